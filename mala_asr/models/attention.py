"""One name, one attention layer: what stands in the Conformer's middle.

The linear forms are ours (`mala_asr.attention`). The softmax controls and
HyperMixing are SpeechBrain's own layers, subclassed for what the encoder
asks of every attention: chunks given as numbers instead of as a mask, and
a stream. Each class keeps its parent's parameter names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from speechbrain.lobes.models.transformer.TransformerASR import (
    make_transformer_src_mask,
)
from speechbrain.nnet.attention import RelPosEncXL, RelPosMHAXL, RoPEMHA
from speechbrain.nnet.hypermixing import HyperMixing
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from torch import Tensor, nn

from mala_asr.attention import LinearAttention
from mala_asr.errors import MalaError

ATTENTIONS = (
    "mala",
    "linear",
    "inline",
    "softmax_rope",
    "softmax_relpos",
    "hypermixing",
)


class ModelOptionError(MalaError):
    """A model option that does not exist or does not fit the others."""


@dataclass
class SoftmaxStream:
    """The past inputs that a softmax attention must keep.

    Arguments
    ---------
    left_chunks : int, optional
        How many chunks are kept; None for all: this memory grows.
    past : list of Tensor
        The chunks kept, each (batch, frames, d_model).
    """

    left_chunks: int | None
    past: list[Tensor] = field(default_factory=list)


class _SoftmaxChunks:
    """Chunks and streams for SpeechBrain's softmax layers."""

    def _positions(self, x: Tensor) -> Tensor | None:
        """Positional embeddings the layer needs; None for none."""
        return None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        pos_embs: Tensor | None = None,
        chunk_size: int | None = None,
        left_chunks: int | None = None,
    ) -> tuple[Tensor, None]:
        """Attend; arguments as for `LinearAttention.forward`."""
        if chunk_size is not None:
            attn_mask = make_transformer_src_mask(
                query,
                dynchunktrain_config=DynChunkTrainConfig(
                    chunk_size, left_chunks
                ),
            )
        if pos_embs is None:
            pos_embs = self._positions(query)
        out = super().forward(  # type: ignore[misc]
            query,
            key,
            value,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            pos_embs=pos_embs,
            return_attn_weights=False,
        )
        return out, None

    def start_stream(self, left_chunks: int | None = None) -> SoftmaxStream:
        """Begin a recording that arrives chunk by chunk."""
        return SoftmaxStream(left_chunks)

    def forward_streaming(self, x: Tensor, stream: SoftmaxStream) -> Tensor:
        """Attend within the next chunk and to its past.

        Both kinds of position are relative, so that they may start anew at
        the first frame kept.
        """
        window = torch.cat((*stream.past, x), dim=1)
        out, _ = self.forward(window, window, window)
        stream.past.append(x)
        if stream.left_chunks is not None:
            surplus = len(stream.past) - stream.left_chunks
            del stream.past[: max(surplus, 0)]
        return out[:, -x.shape[1] :]


class RoPESelfAttention(_SoftmaxChunks, RoPEMHA):
    """SpeechBrain's softmax attention with rotary positions.

    Example
    -------
    >>> layer = RoPESelfAttention(num_heads=4, embed_dim=64)
    >>> x = torch.rand(2, 50, 64)
    >>> layer(x, x, x, chunk_size=16)[0].shape
    torch.Size([2, 50, 64])
    """


class RelPosSelfAttention(_SoftmaxChunks, RelPosMHAXL):
    """SpeechBrain's softmax attention with Transformer-XL positions.

    Arguments
    ---------
    embed_dim : int
        Channels of input and output.
    num_heads : int
        Number of heads.
    dropout : float
        Dropout on the scores.

    Example
    -------
    >>> layer = RelPosSelfAttention(embed_dim=64, num_heads=4)
    >>> x = torch.rand(2, 50, 64)
    >>> layer(x, x, x, chunk_size=16)[0].shape
    torch.Size([2, 50, 64])
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0
    ) -> None:
        super().__init__(
            embed_dim=embed_dim,
            num_heads=num_heads,
            dropout=dropout,
            mask_pos_future=False,
        )
        # Called as a function: no parameters, nothing in the state dict.
        self._encoding: Callable[[Tensor], Tensor] = RelPosEncXL(
            embed_dim
        ).forward

    def _positions(self, x: Tensor) -> Tensor:
        return self._encoding(x).to(x)


class HyperMixingAttention(HyperMixing):
    """SpeechBrain's HyperMixing (Mai et al., arXiv 2203.03691).

    It mixes whole utterances, so it has neither chunks nor streams, and
    its positions end at ``max_length`` frames.

    Arguments
    ---------
    d_model : int
        Channels of input and output.
    nhead : int
        Number of heads.
    d_ffn : int
        Width of the generated networks.
    max_length : int
        Longest input in frames.

    Example
    -------
    >>> layer = HyperMixingAttention(d_model=64, nhead=4, d_ffn=128)
    >>> x = torch.rand(2, 50, 64)
    >>> layer(x, x, x)[0].shape
    torch.Size([2, 50, 64])
    """

    def __init__(
        self, d_model: int, nhead: int, d_ffn: int, max_length: int = 3000
    ) -> None:
        super().__init__(
            input_output_dim=d_model,
            hypernet_size=d_ffn,
            num_heads=nhead,
            max_length=max_length,
        )
        self.max_length = max_length

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        pos_embs: Tensor | None = None,
        chunk_size: int | None = None,
        left_chunks: int | None = None,
    ) -> tuple[Tensor, None]:
        """Mix; arguments as for `LinearAttention.forward`, without masks.

        Raises
        ------
        ModelOptionError
            On chunks, masks, or an input longer than ``max_length``.
        """
        if chunk_size is not None or attn_mask is not None:
            raise ModelOptionError(
                "hypermixing mixes the whole utterance: it has no chunks; "
                "choose another attention to stream"
            )
        if query.shape[1] > self.max_length:
            raise ModelOptionError(
                f"hypermixing takes {self.max_length} frames at most, not "
                f"{query.shape[1]}; split the recording or choose mala"
            )
        out, _ = super().forward(
            query, key, value, key_padding_mask=key_padding_mask
        )
        return out, None

    def start_stream(self, left_chunks: int | None = None) -> None:
        """Refuse: see the class."""
        raise ModelOptionError(
            "hypermixing mixes the whole utterance: it cannot stream; "
            "choose another attention"
        )


def build_attention(
    name: str,
    d_model: int,
    nhead: int,
    d_ffn: int,
    dropout: float,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """Build the attention layer of that name.

    Arguments
    ---------
    name : str
        ``mala``, ``linear``, ``inline``, ``softmax_rope``,
        ``softmax_relpos`` or ``hypermixing``.
    d_model : int
        Channels of input and output.
    nhead : int
        Number of heads.
    d_ffn : int
        Width of the feed-forward modules (HyperMixing takes it over).
    dropout : float
        Of the model: softmax layers apply it to their scores; linear forms
        have none unless ``options`` says so.
    options : dict, optional
        Of `LinearAttention`: ``feature_map``, ``sharpness``,
        ``sharpness_start``, ``rotary``, ``gate``, ``lepe_kernel``,
        ``dropout``. Softmax layers take ``dropout`` alone.

    Returns
    -------
    nn.Module
        A layer with SpeechBrain's attention call contract.

    Raises
    ------
    ModelOptionError
        If the name or an option is unknown, or does not belong to it.

    Example
    -------
    >>> build_attention("mala", 64, 4, 128, 0.1, {"rotary": True}).form.rotary
    True
    """
    options = dict(options or {})
    if name not in ATTENTIONS:
        raise ModelOptionError(
            f"unknown attention {name!r}; choose one of {', '.join(ATTENTIONS)}"
        )
    linear = name in ("mala", "linear", "inline")
    known = {"dropout"} if name != "hypermixing" else set()
    if linear:
        known |= {"feature_map", "rotary", "gate", "lepe_kernel"}
        known |= {"sharpness", "sharpness_start"}
    for option in options:
        if option not in known:
            raise ModelOptionError(
                f"attention {name} has no option {option!r}"
                + (f"; it has {', '.join(sorted(known))}" if known else "")
            )
    try:
        if linear:
            return LinearAttention(d_model, nhead, name, **options)
        if name == "softmax_rope":
            return RoPESelfAttention(
                num_heads=nhead,
                embed_dim=d_model,
                dropout=options.get("dropout", dropout),
            )
        if name == "softmax_relpos":
            return RelPosSelfAttention(
                d_model, nhead, options.get("dropout", dropout)
            )
        return HyperMixingAttention(d_model, nhead, d_ffn)
    except ValueError as error:
        raise ModelOptionError(str(error)) from error
