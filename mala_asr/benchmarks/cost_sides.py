"""What the cost benchmarks compare: attention layers, and encoders of them.

Each side is called as SpeechBrain's Conformer calls it, on one recording
without padding. Dropout is 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch._dynamo
from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
from speechbrain.lobes.models.transformer.Transformer import PositionalEncoding
from speechbrain.nnet.attention import (
    MultiheadAttention,
    RelPosEncXL,
    RelPosMHAXL,
    RoPEMHA,
)
from speechbrain.nnet.hypermixing import HyperMixing
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mala_asr.attention import LinearAttention
from mala_asr.benchmarks.cost import COMPILED, MALA, SIZES, Size
from mala_asr.models.conformer import MalaConformerEncoder

_KERNEL_SIZE = 31
_COMPILATIONS = 1000

# Where SpeechBrain's tables of positions end, in frames.
HYPERMIXING_POSITIONS = 3000
SINE_POSITIONS = 2500


@dataclass
class CostSide:
    """Something whose cost is measured.

    Arguments
    ---------
    module : nn.Module
        Holds the parameters.
    call : callable
        From input (1, frames, d_model) and positions to output.
    positions : callable, optional
        Makes what `call` gets besides the input; not part of the cost.
    longest : int, optional
        The most frames it takes.
    """

    module: nn.Module
    call: Callable[[Tensor, Any], Tensor]
    positions: Callable[[Tensor], Any] = lambda x: None
    longest: int | None = None


def build_cost_side(
    kind: str, name: str, d_model: int, layers: int
) -> CostSide:
    """Build a side.

    Arguments
    ---------
    kind : str
        ``attention`` or ``encoder``.
    name : str
        One of `SIDES`.
    d_model : int
        One of `SIZES`.
    layers : int
        Layers of an encoder.

    Returns
    -------
    CostSide

    Example
    -------
    >>> side = build_cost_side("attention", "MALA", 144, 1)
    >>> side.call(torch.rand(1, 50, 144), None).shape
    torch.Size([1, 50, 144])
    """
    size = SIZES[d_model]
    if kind == "attention":
        return _attention(name, d_model, size)
    if name in (MALA, COMPILED):
        return _our_encoder(d_model, size, layers)
    return _their_encoder(name, d_model, size, layers)


def compile_side(kind: str, side: CostSide) -> None:
    """Have a side compiled for inputs of any length.

    Arguments
    ---------
    kind : str
        ``attention`` or ``encoder``; of an encoder, the layers are compiled,
        which share their code.
    side : CostSide
        Changed in place.
    """
    # The backward of an encoder layer is compiled anew for each length; after
    # eight of them PyTorch would run it uncompiled, and not say so.
    torch._dynamo.config.recompile_limit = _COMPILATIONS
    module: Any = side.module
    parts = module.layers if kind == "encoder" else [module]
    for part in parts:
        part.compile(dynamic=True)


def _attention(name: str, d_model: int, size: Size) -> CostSide:
    layer: nn.Module
    if name in (MALA, COMPILED):
        layer = LinearAttention(d_model, size.nhead)
        return CostSide(layer, lambda x, _: layer(x, x, x)[0])
    if name == "RelPosMHAXL":
        layer = RelPosMHAXL(d_model, size.nhead, mask_pos_future=False)
        return CostSide(
            layer,
            lambda x, positions: layer(x, x, x, pos_embs=positions)[0],
            # Once for all layers of an encoder.
            positions=RelPosEncXL(d_model),
        )
    if name == "HyperMixing":
        layer = HyperMixing(
            d_model,
            size.d_ffn,
            num_heads=size.nhead,
            max_length=HYPERMIXING_POSITIONS,
        )
        return CostSide(
            layer,
            lambda x, _: layer(x, x, x)[0],
            longest=HYPERMIXING_POSITIONS,
        )
    if name == "RoPEMHA":
        layer = RoPEMHA(d_model, size.nhead)
    else:
        layer = MultiheadAttention(size.nhead, d_model)
    return CostSide(layer, lambda x, _: layer(x, x, x)[0])


def _our_encoder(d_model: int, size: Size, layers: int) -> CostSide:
    encoder = MalaConformerEncoder(
        layers, d_model, size.d_ffn, size.nhead, _KERNEL_SIZE
    )
    return CostSide(encoder, lambda x, _: encoder(x)[0])


def _their_encoder(
    name: str, d_model: int, size: Size, layers: int
) -> CostSide:
    encoder = ConformerEncoder(
        layers,
        d_model,
        size.d_ffn,
        size.nhead,
        kernel_size=_KERNEL_SIZE,
        attention_type="hypermixing" if name == "HyperMixing" else name,
    )
    if name == "RelPosMHAXL":
        positions = RelPosEncXL(d_model)
        return CostSide(
            encoder, lambda x, _: encoder(x, pos_embs=positions(x))[0]
        )
    if name == "regularMHA":
        sine = PositionalEncoding(d_model, SINE_POSITIONS)
        return CostSide(
            encoder,
            lambda x, _: encoder(x + sine(x))[0],
            longest=SINE_POSITIONS,
        )
    longest = HYPERMIXING_POSITIONS if name == "HyperMixing" else None
    return CostSide(encoder, lambda x, _: encoder(x)[0], longest=longest)


def count_operations(side: CostSide, d_model: int, kind: str) -> list[float]:
    """Count the multiplications and additions of a side's matrix products.

    Every side's count is a polynomial of degree 2 in the frames, so that
    three short inputs tell it for all.

    Arguments
    ---------
    side : CostSide
        Not compiled.
    d_model : int
        Its width.
    kind : str
        ``forward`` or ``step``.

    Returns
    -------
    list of float
        Coefficients of 1, frames and frames squared.
    """
    lengths = (32, 64, 128)
    counts = []
    for frames in lengths:
        run = prepare(side, d_model, kind, frames)
        # Only this way of computing softmax attention is counted.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as c:
            run()
        counts.append(c.get_total_flops())
    highest_first = np.polyfit(lengths, counts, 2)
    return [float(c) for c in highest_first[::-1]]


def prepare(
    side: CostSide, d_model: int, kind: str, frames: int
) -> Callable[[], None]:
    """Make everything ready for a measurement.

    Arguments
    ---------
    side : CostSide
        What is measured.
    d_model : int
        Its width.
    kind : str
        ``forward`` alone, without gradients, or ``step``: forward and
        backward.
    frames : int
        Length of the input.

    Returns
    -------
    callable
        Does it once.
    """
    step = kind == "step"
    x = torch.randn(1, frames, d_model, requires_grad=step)
    gradient = torch.randn(1, frames, d_model)
    positions = side.positions(x.detach())
    side.module.train(step)

    def run() -> None:
        side.module.zero_grad(set_to_none=True)
        x.grad = None
        with torch.set_grad_enabled(step):
            out = side.call(x, positions)
            if step:
                out.backward(gradient)

    return run
