"""Front-ends: log-mel frames in, 4 or 8 times fewer frames out.

Both halve time and frequency with 3 x 3 convolutions of stride 2, with the
reflected edges of SpeechBrain's Conv2d. In a batch, an utterance is
reflected at its own end, not at that of the longest one: its output does
not depend on its neighbors. Arrays are (batch, time, frequency, channels)
as in SpeechBrain, which is also the layout of the fastest kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mala_asr.attention.linear import Linear
from mala_asr.models.attention import ModelOptionError

Length = TypeVar("Length", int, Tensor)


def halved(length: Length) -> Length:
    """Count the frames after a convolution of stride 2.

    Arguments
    ---------
    length : int or Tensor
        Frames before.

    Returns
    -------
    int or Tensor
        Half of it, rounded up.

    Example
    -------
    >>> halved(101)
    51
    """
    return (length + 1) // 2


def halve(x: Tensor, conv: nn.Conv2d, lengths: Tensor | None = None) -> Tensor:
    """Apply a 3 x 3 convolution of stride 2 with reflected edges.

    Arguments
    ---------
    x : Tensor
        Shape (batch, time, frequency, channels).
    conv : nn.Conv2d
        3 x 3, stride 2; its weight is (out, in, frequency, time).
    lengths : Tensor, optional
        Valid frames of each utterance, shape (batch,); None if all are.

    Returns
    -------
    Tensor
        Shape (batch, (time + 1) // 2, (frequency + 1) // 2, out).

    Example
    -------
    >>> conv = nn.Conv2d(1, 8, 3, stride=2)
    >>> halve(torch.rand(2, 101, 80, 1), conv).shape
    torch.Size([2, 51, 40, 8])
    """
    image = _Reflected.apply(x, lengths).permute(0, 3, 1, 2)
    out = functional.conv2d(
        image,
        conv.weight.transpose(2, 3),
        conv.bias,
        stride=2,
        groups=conv.groups,
    )
    return out.permute(0, 2, 3, 1)


class _Reflected(torch.autograd.Function):
    """Frame an image with its second rows and columns, at utterances' ends.

    What stands in a frame comes from elsewhere in the image. Written out, the
    way back is a copy and a few rows; PyTorch's takes six times as many
    passes over a front-end's largest arrays.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
        ctx.edges = _edges(x, lengths)
        framed = functional.pad(x, (0, 0, 1, 1, 1, 1))
        for edge, inner in ctx.edges:
            framed[edge] = framed[inner]
        return framed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        for edge, inner in reversed(ctx.edges):
            grad[inner] += grad[edge]
            grad[edge] = 0.0
        return grad[:, 1:-1, 1:-1], None


def _edges(x: Tensor, lengths: Tensor | None) -> list[tuple[Any, Any]]:
    """Give what is to be copied in a framed image: where to, where from.

    An only row or column has no neighbor to reflect: it is repeated.
    """
    time, bins = x.shape[1:3]
    every = slice(None)
    ends: tuple[Any, Any, Any, Any]
    if lengths is None:
        rows: Any = every
        ends = 0, min(2, time), time + 1, max(time - 1, 1)
    else:
        rows = torch.arange(x.shape[0], device=x.device)
        ends = 0, lengths.clamp_max(2), lengths + 1, (lengths - 1).clamp_min(1)
    return [
        ((rows, ends[0]), (rows, ends[1])),
        ((rows, ends[2]), (rows, ends[3])),
        ((every, every, 0), (every, every, min(2, bins))),
        ((every, every, bins + 1), (every, every, max(bins - 1, 1))),
    ]


class ConvFrontEnd4x(ConvolutionFrontEnd):
    """SpeechBrain's front-end of its Conformer recipes, blind to padding.

    Two full convolutions of 64 and 32 channels. Parameters, and outputs of
    a single utterance, are the parent's.

    Arguments
    ---------
    n_mels : int
        Frequency bins of the features.
    dropout : float
        Dropout after each convolution.

    Example
    -------
    >>> front = ConvFrontEnd4x(80)
    >>> front(torch.rand(2, 101, 80), torch.tensor([101, 50])).shape
    torch.Size([2, 26, 20, 32])
    """

    subsampling = 4

    def __init__(self, n_mels: int = 80, dropout: float = 0.1) -> None:
        super().__init__(
            input_shape=(8, 10, n_mels),
            num_blocks=2,
            num_layers_per_block=1,
            out_channels=[64, 32],
            kernel_sizes=[3, 3],
            strides=[2, 2],
            residuals=[False, False],
            dropout=dropout,
        )
        # Channels times frequency bins: what the encoder is fed per frame.
        self.output_size = 32 * halved(halved(n_mels))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Subsample.

        Arguments
        ---------
        x : Tensor
            Features, shape (batch, time, n_mels).
        lengths : Tensor, optional
            Valid frames of each utterance, shape (batch,).

        Returns
        -------
        Tensor
            Shape (batch, ceil(time / 4), frequency, channels).
        """
        x = x.unsqueeze(-1)
        for block in self.children():
            layers = block.convs
            x = halve(x, layers["conv_0"].conv, lengths)
            lengths = None if lengths is None else halved(lengths)
            x = layers["act_0"](layers["norm_0"](x))
            x = layers["dropout_0"](x)
        return x


class _SeparableStage(nn.Module):
    """Depthwise convolution of stride 2, pointwise, LayerNorm, SiLU."""

    def __init__(
        self, channels_in: int, channels_out: int, bins_out: int
    ) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(
            channels_in, channels_in, 3, stride=2, groups=channels_in
        )
        self.pointwise = Linear(channels_in, channels_out)
        self.norm = nn.LayerNorm((bins_out, channels_out))

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        x = self.pointwise(halve(x, self.depthwise, lengths))
        return functional.silu(self.norm(x))


class SeparableFrontEnd(nn.Module):
    """A light front-end for small machines: 4 or 8 times fewer frames.

    One thin full convolution, then one or two depthwise-separable ones.

    Arguments
    ---------
    n_mels : int
        Frequency bins of the features.
    channels : tuple of int
        Output channels of each stage; each halves the frames.
    dropout : float
        Dropout at the end.

    Example
    -------
    >>> front = SeparableFrontEnd(80, channels=(16, 32, 64))
    >>> front(torch.rand(2, 101, 80), torch.tensor([101, 50])).shape
    torch.Size([2, 13, 10, 64])
    """

    def __init__(
        self,
        n_mels: int = 80,
        channels: tuple[int, ...] = (16, 32, 64),
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        bins = halved(n_mels)
        self.conv = nn.Conv2d(1, channels[0], 3, stride=2)
        self.norm = nn.LayerNorm((bins, channels[0]))
        self.stages = nn.ModuleList()
        for before, after in zip(channels[:-1], channels[1:], strict=True):
            bins = halved(bins)
            self.stages.append(_SeparableStage(before, after, bins))
        self.dropout = nn.Dropout(dropout)
        self.subsampling = 2 ** len(channels)
        self.output_size = channels[-1] * bins

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Subsample.

        Arguments
        ---------
        x : Tensor
            Features, shape (batch, time, n_mels).
        lengths : Tensor, optional
            Valid frames of each utterance, shape (batch,).

        Returns
        -------
        Tensor
            Shape (batch, ceil(time / subsampling), frequency, channels).
        """
        x = halve(x.unsqueeze(-1), self.conv, lengths)
        x = functional.silu(self.norm(x))
        for stage in self.stages:
            lengths = None if lengths is None else halved(lengths)
            x = stage(x, lengths)
        return self.dropout(x)


FRONTENDS: dict[str, Callable[..., ConvFrontEnd4x | SeparableFrontEnd]] = {
    "conv4": ConvFrontEnd4x,
    "separable4": partial(SeparableFrontEnd, channels=(16, 32)),
    "separable8": partial(SeparableFrontEnd, channels=(16, 32, 64)),
}


def build_frontend(
    name: str, n_mels: int, dropout: float = 0.1
) -> ConvFrontEnd4x | SeparableFrontEnd:
    """Build the front-end of that name.

    Arguments
    ---------
    name : str
        ``conv4``, ``separable4`` or ``separable8``.
    n_mels : int
        Frequency bins of the features.
    dropout : float
        Its dropout.

    Returns
    -------
    nn.Module
        Called with features and lengths; has ``subsampling`` and
        ``output_size``.

    Raises
    ------
    ModelOptionError
        If the name is unknown.

    Example
    -------
    >>> build_frontend("separable8", 80).subsampling
    8
    """
    if name not in FRONTENDS:
        raise ModelOptionError(
            f"unknown frontend {name!r}; choose one of {', '.join(FRONTENDS)}"
        )
    return FRONTENDS[name](n_mels, dropout=dropout)
