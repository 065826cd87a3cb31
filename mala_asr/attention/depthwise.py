"""Depthwise convolution over time: exact under padding, chunked, streamed.

Frames are the rows of (batch, time, channels). Seen as an image of height 1
in channels-last layout, that is what the CPU's and the GPU's fastest
depthwise kernels take, without a transpose.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def convolve(x: Tensor, conv: nn.Conv1d, left: int, right: int) -> Tensor:
    """Apply a depthwise convolution with the given zero padding.

    Arguments
    ---------
    x : Tensor
        Shape (batch, time, channels).
    conv : nn.Conv1d
        Depthwise (groups = channels), stride 1; its own padding is not
        used.
    left, right : int
        Zero frames put before and after.

    Returns
    -------
    Tensor
        Shape (batch, time + left + right - kernel_size + 1, channels).

    Example
    -------
    >>> conv = nn.Conv1d(4, 4, 3, groups=4)
    >>> convolve(torch.rand(2, 7, 4), conv, 1, 1).shape
    torch.Size([2, 7, 4])
    """
    image = x.transpose(1, 2).unsqueeze(2)
    if left != right:
        image = functional.pad(image, (left, right))
        left = 0
    out = functional.conv2d(
        image,
        conv.weight.unsqueeze(2),
        conv.bias,
        padding=(0, left),
        dilation=(1, conv.dilation[0]),
        groups=conv.groups,
    )
    return out.squeeze(2).transpose(1, 2)


def convolve_frames(
    x: Tensor,
    conv: nn.Conv1d,
    padding: Tensor | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """Convolve utterances, blind to padding and within chunks if asked.

    Arguments
    ---------
    x : Tensor
        Shape (batch, time, channels).
    conv : nn.Conv1d
        Depthwise with an odd kernel.
    padding : Tensor, optional
        bool, True = padding, shape (batch, time, 1).
    chunk_size : int, optional
        Frames in a chunk, see `convolve_chunked`; None for full context.

    Returns
    -------
    Tensor
        Shape of ``x``; undefined in the padding.

    Example
    -------
    >>> conv = nn.Conv1d(4, 4, 3, groups=4)
    >>> convolve_frames(torch.rand(2, 7, 4), conv).shape
    torch.Size([2, 7, 4])
    """
    if padding is not None:
        x = x * padding.logical_not().to(x.dtype)
    if chunk_size is not None:
        return convolve_chunked(x, conv, chunk_size)
    reach = context_frames(conv)
    return convolve(x, conv, reach, reach)


def convolve_chunked(x: Tensor, conv: nn.Conv1d, chunk_size: int) -> Tensor:
    """Convolve so that no frame sees beyond the end of its chunk.

    Dynamic chunk convolution (Li et al., arXiv 2304.09325): the past of a
    chunk is seen across its left edge, its future is zeros.

    Arguments
    ---------
    x : Tensor
        Shape (batch, time, channels).
    conv : nn.Conv1d
        Depthwise with an odd kernel.
    chunk_size : int
        Frames in a chunk; the last one may be shorter.

    Returns
    -------
    Tensor
        Shape of ``x``.

    Example
    -------
    >>> conv = nn.Conv1d(4, 4, 3, groups=4)
    >>> convolve_chunked(torch.rand(2, 7, 4), conv, 3).shape
    torch.Size([2, 7, 4])
    """
    batch, time, channels = x.shape
    reach = context_frames(conv)
    chunks = -(-time // chunk_size)
    missing = chunks * chunk_size - time
    padded = functional.pad(x, (0, 0, reach, missing))
    windows = padded.unfold(1, reach + chunk_size, chunk_size)
    windows = windows.transpose(2, 3).reshape(
        batch * chunks, reach + chunk_size, channels
    )
    out = convolve(windows, conv, 0, reach)
    return out.reshape(batch, chunks * chunk_size, channels)[:, :time]


def convolve_streaming(
    x: Tensor, conv: nn.Conv1d, past: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Convolve one chunk of a stream.

    Arguments
    ---------
    x : Tensor
        The chunk, shape (batch, time, channels).
    conv : nn.Conv1d
        Depthwise with an odd kernel.
    past : Tensor, optional
        What the last call returned; None at the start.

    Returns
    -------
    tuple of Tensor
        The chunk's output, shape of ``x``, and the frames to keep for the
        next call, at most (kernel_size - 1) / 2.

    Example
    -------
    >>> conv = nn.Conv1d(4, 4, 3, groups=4)
    >>> out, past = convolve_streaming(torch.rand(2, 7, 4), conv, None)
    >>> out.shape, past.shape
    (torch.Size([2, 7, 4]), torch.Size([2, 1, 4]))
    """
    reach = context_frames(conv)
    if past is None:
        past = x.new_zeros(x.shape[0], reach, x.shape[2])
    window = torch.cat((past, x), dim=1)
    out = convolve(window, conv, 0, reach)
    return out, window[:, window.shape[1] - reach :]


def context_frames(conv: nn.Conv1d) -> int:
    """Count the frames that a convolution sees on either side.

    Arguments
    ---------
    conv : nn.Conv1d
        With an odd kernel.

    Returns
    -------
    int
        (kernel_size - 1) / 2, times the dilation.

    Raises
    ------
    ValueError
        If the kernel is even: it has no center.
    """
    (kernel,), (dilation,) = conv.kernel_size, conv.dilation
    if kernel % 2 == 0:
        raise ValueError(f"kernel_size is {kernel}; it must be odd")
    return (kernel - 1) // 2 * dilation
