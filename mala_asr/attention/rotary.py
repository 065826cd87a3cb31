"""Rotary positions (Su et al., arXiv 2104.09864) for attention features."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, start: int = 0, base: float = 10000.0) -> Tensor:
    """Turn each pair of channels by an angle that grows with the position.

    Arguments
    ---------
    x : Tensor
        Features, shape (..., time, channels), an even number of channels.
    start : int
        Position of the first frame.
    base : float
        Wavelengths run from 2 pi to 2 pi * base frames.

    Returns
    -------
    Tensor
        Same shape and dtype; products of two rotated vectors depend on
        their distance alone.

    Example
    -------
    >>> x = torch.rand(5, 8)
    >>> torch.allclose(rotate(x).norm(dim=-1), x.norm(dim=-1))
    True
    """
    half = x.shape[-1] // 2
    # float64: position times frequency in float32 drifts on long recordings.
    index = torch.arange(half, device=x.device, dtype=torch.float64)
    position = torch.arange(
        x.shape[-2], device=x.device, dtype=torch.float64
    ) + float(start)
    angles = position[:, None] * base ** (-index / half)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        (first * cos - second * sin, second * cos + first * sin), dim=-1
    )
