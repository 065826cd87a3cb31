"""Dropout that does not wait for random numbers on a CPU.

PyTorch draws one number per element on a single thread; for a Conformer of
this project's sizes that is a sixth of a training step. Here one 64-bit
number serves four elements, and it comes from NumPy's SFC64, twice as fast as
PyTorch's generator, which gives the seed of each mask. Elsewhere than on a
CPU, and in evaluation, it is PyTorch's own.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

_LEVELS = 2**16  # of a 16-bit number


class Dropout(nn.Dropout):
    """PyTorch's dropout, several times faster in training on a CPU.

    Arguments
    ---------
    p : float
        Probability of an element to be zeroed, kept to within 1 / 65536.

    Example
    -------
    >>> x = Dropout(0.5)(torch.ones(1000))
    >>> sorted(x.unique().tolist())
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Zero elements at random and scale up the rest.

        Arguments
        ---------
        x : Tensor
            Any shape.

        Returns
        -------
        Tensor
            Shape of ``x``.
        """
        dropped = round(self.p * _LEVELS)
        # From 64 Ki elements on: below, PyTorch's is as fast.
        small = x.numel() < _LEVELS
        if x.is_cpu and self.training and 0 < dropped < _LEVELS and not small:
            return x * _keep(x, dropped)
        return super().forward(x)


def _keep(x: Tensor, dropped: int) -> Tensor:
    """Draw 0 for ``dropped`` of 65536 elements and the scale for others."""
    limits = np.iinfo(np.int64)
    generator = np.random.Generator(
        np.random.SFC64(int(torch.randint(limits.max, ())))
    )
    count = -(-x.numel() // 4)
    bits = torch.from_numpy(
        generator.integers(limits.min, limits.max, count, endpoint=True)
    )
    numbers = bits.view(torch.int16)[: x.numel()].view(x.shape)
    # Compared straight into floats: no pass over booleans in between.
    keep = torch.empty_like(numbers, dtype=x.dtype)
    torch.ge(numbers, dropped - _LEVELS // 2, out=keep)
    return keep.mul_(_LEVELS / (_LEVELS - dropped))
