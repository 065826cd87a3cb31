"""The attention scores of a model's encoder layers, caught as it runs.

A linear layer never forms its scores, and SpeechBrain's softmax layers never
hand theirs out. What goes into each layer is caught by a hook, projected once
more, and measured by `mala_asr.attention.diagnostics` before the next layer
runs, so that no more than one layer's queries and keys are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from speechbrain.nnet.attention import _rope_rotate
from torch import Tensor, nn
from torch.nn import functional

from mala_asr.attention import LinearAttention
from mala_asr.attention.centred import AttentionForm
from mala_asr.attention.diagnostics import (
    AttentionFigures,
    LogitBias,
    inspect_linear,
    inspect_softmax,
)
from mala_asr.attention.reference import ATTENTION_KINDS
from mala_asr.attention.rotary import rotate
from mala_asr.models.asr import MalaASR
from mala_asr.models.attention import (
    ModelOptionError,
    RelPosSelfAttention,
    RoPESelfAttention,
)

# As what the queries and keys of a linear layer can be read.
READINGS = (*ATTENTION_KINDS, "softmax")


@dataclass(frozen=True)
class LayerFigures:
    """What one layer did with one batch.

    Arguments
    ---------
    layer : int
        Its number, from 1.
    attention : str
        The model's own, or as what its queries and keys were read.
    figures : AttentionFigures
        Values per head and query.
    """

    layer: int
    attention: str
    figures: AttentionFigures


@dataclass(frozen=True)
class SoftmaxInputs:
    """What the softmax of a layer is taken of.

    Arguments
    ---------
    queries, keys : Tensor
        q and k as they meet, shape (batch, heads, time, d_head).
    scale : float
        The factor on q k^T.
    bias : callable, optional
        What is added: of an utterance and some of its queries.
    """

    queries: Tensor
    keys: Tensor
    scale: float
    bias: LogitBias | None = None


@torch.no_grad()
def inspect_encoder(
    model: MalaASR,
    feats: Tensor,
    n_frames: Tensor,
    readings: Sequence[str] = (),
    max_queries: int | None = None,
) -> list[LayerFigures]:
    """Encode features and measure the attention of every layer.

    Arguments
    ---------
    model : MalaASR
        In evaluation mode.
    feats : Tensor
        From ``model.features``, shape (batch, frames, n_mels).
    n_frames : Tensor
        Valid frames of each, shape (batch,).
    readings : sequence of str
        Read the queries and keys of linear layers as these attentions too:
        ``mala``, ``linear``, ``inline`` (with the layer's feature map) or
        ``softmax`` (with neither feature map nor training for it).
    max_queries : int, optional
        Form the scores of so many queries of an utterance, evenly spread;
        None for all.

    Returns
    -------
    list of LayerFigures
        By layer; each layer's own attention first.

    Raises
    ------
    ModelOptionError
        If the model's attention has no scores, or not those of a reading.

    Example
    -------
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=2, num_decoder_layers=1,
    ...     d_ffn=128,
    ... ).eval()
    >>> found = inspect_encoder(
    ...     model, torch.randn(1, 101, 80), torch.tensor([101]), ["softmax"]
    ... )
    >>> [(f.layer, f.attention) for f in found]
    [(1, 'mala'), (1, 'softmax'), (2, 'mala'), (2, 'softmax')]
    """
    attention = model.config["attention"]
    check_readings(attention, readings)
    # The model's own attention is not read twice.
    names = list(dict.fromkeys([attention, *readings]))
    found: list[LayerFigures] = []

    def measure(
        number: int, layer: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> None:
        padding = kwargs.get("key_padding_mask")
        visible = None if padding is None else ~padding.unsqueeze(1)
        for name in names:
            figures = _inspect_layer(layer, args[0], name, visible, max_queries)
            found.append(LayerFigures(number, name, figures))

    layers = model.transformer.encoder.layers
    hooks = [
        layer.mha_layer.register_forward_pre_hook(
            partial(measure, number), with_kwargs=True
        )
        for number, layer in enumerate(layers, start=1)
    ]
    try:
        model.encode(feats, n_frames)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def check_readings(attention: str, readings: Sequence[str]) -> None:
    """Refuse what a model's attention cannot be read as.

    Arguments
    ---------
    attention : str
        The model's.
    readings : sequence of str
        As for `inspect_encoder`.

    Raises
    ------
    ModelOptionError
        If the attention has no scores, or not those of a reading.
    """
    if attention == "hypermixing":
        raise ModelOptionError(
            "hypermixing has no attention scores to inspect; give a model of "
            "another attention"
        )
    for reading in readings:
        if reading not in READINGS:
            raise ModelOptionError(
                f"attention cannot be read as {reading!r}; choose one of "
                f"{', '.join(READINGS)}"
            )
    if readings and attention not in ATTENTION_KINDS:
        raise ModelOptionError(
            f"the queries and keys of {attention} were never mapped to "
            f"features, so they cannot be read as {readings[0]}; give a model "
            f"with {', '.join(ATTENTION_KINDS)} attention, or no readings"
        )


def softmax_inputs(layer: nn.Module, x: Tensor) -> SoftmaxInputs:
    """Project what a softmax layer is given, as the layer itself does.

    Arguments
    ---------
    layer : nn.Module
        One of SpeechBrain's softmax layers.
    x : Tensor
        Its input, shape (batch, time, d_model).

    Returns
    -------
    SoftmaxInputs
        Queries and keys as they meet, and what is added to their products.

    Raises
    ------
    ModelOptionError
        If the layer is of another kind.

    Example
    -------
    >>> layer = RoPESelfAttention(num_heads=4, embed_dim=64)
    >>> softmax_inputs(layer, torch.rand(2, 50, 64)).queries.shape
    torch.Size([2, 4, 50, 16])
    """
    if not isinstance(layer, RoPESelfAttention | RelPosSelfAttention):
        raise ModelOptionError(
            f"{type(layer).__name__} has no softmax to inspect"
        )
    projected = functional.linear(x, layer.in_proj_weight)
    q, k, _ = projected.unflatten(-1, (layer.num_heads, -1)).chunk(3, dim=-1)
    if isinstance(layer, RoPESelfAttention):
        q, k = _rope_rotate(q), _rope_rotate(k)
        return SoftmaxInputs(q.transpose(1, 2), k.transpose(1, 2), layer.scale)
    # SpeechBrain reads these biases, kept as (d_head, heads), in this shape.
    by_content, by_place = (
        bias.view(layer.num_heads, layer.head_dim)
        for bias in (layer.pos_bias_u, layer.pos_bias_v)
    )
    places = layer.linear_pos(layer._positions(x))
    places = places.unflatten(-1, (layer.num_heads, -1))[0].transpose(0, 1)
    return SoftmaxInputs(
        (q + by_content).transpose(1, 2),
        k.transpose(1, 2),
        layer.scale,
        _relative_bias((q + by_place).transpose(1, 2) * layer.scale, places),
    )


def _relative_bias(q: Tensor, places: Tensor) -> LogitBias:
    """Logits of the distances of keys, for some queries at a time.

    The encodings are of 2 time - 1 distances; key j of query i has the one
    at time - 1 - i + j.
    """
    time = q.shape[-2]

    def bias(utterance: int, rows: Tensor) -> Tensor:
        logits = q[utterance][:, rows] @ places.transpose(-2, -1)
        keys = torch.arange(time, device=q.device)
        index = time - 1 - rows[:, None] + keys
        return logits.gather(-1, index.expand(len(logits), -1, -1))

    return bias


def _inspect_layer(
    layer: nn.Module,
    x: Tensor,
    name: str,
    visible: Tensor | None,
    max_queries: int | None,
) -> AttentionFigures:
    measure: Callable[..., AttentionFigures]
    if not isinstance(layer, LinearAttention):
        given = softmax_inputs(layer, x)
        measure = partial(
            inspect_softmax,
            given.queries,
            given.keys,
            given.scale,
            bias=given.bias,
        )
    else:
        q, k, _ = layer.project(x, x, x)
        if name == "softmax":
            if layer.form.rotary:
                q, k = rotate(q), rotate(k)
            measure = partial(inspect_softmax, q, k, q.shape[-1] ** -0.5)
        else:
            form = AttentionForm(name, layer.form.features, layer.form.rotary)
            sharpness = layer.sharpness if name == "mala" else None
            measure = partial(inspect_linear, form, q, k, sharpness=sharpness)
    return measure(visible=visible, max_queries=max_queries)
