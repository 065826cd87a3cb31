"""What linear attention needs to know about a set of keys.

Every linear form of this package reads its keys through four means over
the visible ones: their number, the mean of phi(k), the mean of v, and the
mean of phi(k) (v - mean v)^T. Two choices explain this file:

- Values are centred before they meet the keys. That is exact algebra (the
  rows of the scores sum to 1) and loses less precision than subtracting
  two large sums afterwards.
- Statistics of disjoint sets merge exactly, as in the parallel covariance
  update of Chan, Golub and LeVeque (1979). Full context is one set, chunks
  are sets merged over a window, and a stream merges one chunk at a time.

Shapes: (..., time, channels) for keys and values, where ... is usually
(batch, heads); statistics keep the same leading axes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

FEATURE_MAPS = ("elu1", "relu", "exp")


def feature_map(x: Tensor, name: str = "elu1") -> Tensor:
    """Map queries or keys to non-negative features phi(x).

    Arguments
    ---------
    x : Tensor
        Queries or keys, any shape.
    name : str
        ``elu1`` for ELU(x) + 1 (the paper's default), ``relu`` or ``exp``.

    Returns
    -------
    Tensor
        Features of the same shape and dtype, all >= 0.

    Raises
    ------
    ValueError
        If the name is none of the three.

    Example
    -------
    >>> feature_map(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3679, 1.0000, 3.0000])
    """
    if name == "elu1":
        return _ELU1.apply(x) if torch.is_grad_enabled() else _elu1(x)[0]
    if name == "relu":
        return torch.relu(x)
    if name == "exp":
        return torch.exp(x)
    raise ValueError(
        f"unknown feature_map {name!r}; choose one of {', '.join(FEATURE_MAPS)}"
    )


class _ELU1(torch.autograd.Function):
    """ELU(x) + 1 = exp(min(x, 0)) + max(x, 0), without its cancellation.

    Computed as ELU plus 1 it is 0 in bfloat16 at x = -8. The derivative is
    the first term, so that the way back is one product: PyTorch's gradients
    of relu and clamp are several times slower than that on a CPU.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        out, below = _elu1(x)
        ctx.save_for_backward(below)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (below,) = ctx.saved_tensors
        return grad * below


def _elu1(x: Tensor) -> tuple[Tensor, Tensor]:
    """Give ELU(x) + 1 and its derivative."""
    below = x.clamp_max(0.0).exp_()
    return torch.relu(x).add_(below), below


class KeyStatistics(NamedTuple):
    """Means over a set of visible keys; the state of linear attention.

    Arguments
    ---------
    number : Tensor
        Number of keys, float, shape (..., 1, 1).
    key_mean : Tensor
        Mean of phi(k), shape (..., 1, d_key).
    rotated_mean : Tensor
        Mean of the rotated phi(k), shape (..., 1, d_key); the same tensor
        as ``key_mean`` where there are no rotary positions.
    value_mean : Tensor
        Mean of v, shape (..., 1, d_value).
    covariance : Tensor
        Mean of (rotated) phi(k) (v - value_mean)^T,
        shape (..., d_key, d_value).

    Example
    -------
    >>> keys, values = torch.rand(2, 7, 4), torch.rand(2, 7, 3)
    >>> stats = KeyStatistics.of_keys(keys, values)
    >>> stats.covariance.shape
    torch.Size([2, 4, 3])
    """

    number: Tensor
    key_mean: Tensor
    rotated_mean: Tensor
    value_mean: Tensor
    covariance: Tensor

    @classmethod
    def of_keys(
        cls,
        keys: Tensor,
        values: Tensor,
        visible: Tensor | None = None,
        rotated_keys: Tensor | None = None,
    ) -> KeyStatistics:
        """Summarize keys that are at hand all at once.

        Arguments
        ---------
        keys : Tensor
            phi(k), shape (..., time, d_key).
        values : Tensor
            v, shape (..., time, d_value).
        visible : Tensor, optional
            bool, True = this key counts; shape (..., time), broadcastable.
            What stands at the other positions has no influence, as long
            as it is finite, and receives no gradient.
        rotated_keys : Tensor, optional
            phi(k) after rotary positions, shape of ``keys``.

        Returns
        -------
        KeyStatistics
            All zero for a set without visible keys.
        """
        if visible is None:
            count = keys.new_full((*keys.shape[:-2], 1, 1), keys.shape[-2])
            divisor = count
        else:
            # A product, not a torch.where: on a CPU that is ten times slower.
            shown = visible.unsqueeze(-1).to(keys.dtype)
            keys, values = keys * shown, values * shown
            if rotated_keys is not None:
                rotated_keys = rotated_keys * shown
            count = shown.sum(-2, keepdim=True)
            divisor = count.clamp_min(1.0)
        key_mean = keys.sum(-2, keepdim=True) / divisor
        value_mean = values.sum(-2, keepdim=True) / divisor
        carried = keys if rotated_keys is None else rotated_keys
        rotated_mean = (
            key_mean
            if rotated_keys is None
            else rotated_keys.sum(-2, keepdim=True) / divisor
        )
        # Hidden keys are zero by now, so their centred values do not count.
        covariance = carried.transpose(-2, -1) @ (values - value_mean)
        covariance = covariance / divisor
        return cls(count, key_mean, rotated_mean, value_mean, covariance)

    def merge(self, other: KeyStatistics) -> KeyStatistics:
        """Summarize the union of two disjoint sets, exactly.

        Arguments
        ---------
        other : KeyStatistics
            Statistics of the other set; either set may be empty.

        Returns
        -------
        KeyStatistics
            As if computed over all keys at once.

        Example
        -------
        >>> keys, values = torch.rand(7, 4), torch.rand(7, 3)
        >>> whole = KeyStatistics.of_keys(keys, values)
        >>> parts = KeyStatistics.of_keys(keys[:2], values[:2]).merge(
        ...     KeyStatistics.of_keys(keys[2:], values[2:])
        ... )
        >>> torch.allclose(whole.covariance, parts.covariance, atol=1e-6)
        True
        """
        count = self.number + other.number
        share = other.number / count.clamp_min(1.0)
        value_gap = other.value_mean - self.value_mean
        rotated_gap = other.rotated_mean - self.rotated_mean
        key_mean = self.key_mean + share * (other.key_mean - self.key_mean)
        rotated_mean = (
            key_mean
            if self.rotated_mean is self.key_mean
            and other.rotated_mean is other.key_mean
            else self.rotated_mean + share * rotated_gap
        )
        covariance = (
            self.covariance
            + share * (other.covariance - self.covariance)
            + (share * (1.0 - share) * rotated_gap).transpose(-2, -1)
            * value_gap
        )
        return KeyStatistics(
            count,
            key_mean,
            rotated_mean,
            self.value_mean + share * value_gap,
            covariance,
        )

    def delayed(self, steps: int) -> KeyStatistics:
        """Shift the chunk axis (third from the end) into the past.

        Arguments
        ---------
        steps : int
            Chunk i of the result is chunk i - steps of this; the first
            ``steps`` chunks of the result are empty sets.

        Returns
        -------
        KeyStatistics
            With the same number of chunks.
        """
        if steps == 0:
            return self
        chunks = self.number.shape[-3]
        kept = max(chunks - steps, 0)

        def shift(means: Tensor) -> Tensor:
            empty = torch.zeros_like(means[..., : chunks - kept, :, :])
            return torch.cat((empty, means[..., :kept, :, :]), dim=-3)

        key_mean = shift(self.key_mean)
        return KeyStatistics(
            shift(self.number),
            key_mean,
            key_mean
            if self.rotated_mean is self.key_mean
            else shift(self.rotated_mean),
            shift(self.value_mean),
            shift(self.covariance),
        )


def merge_windows(chunks: KeyStatistics, width: int) -> KeyStatistics:
    """Merge, for every chunk, itself with the ``width - 1`` before it.

    Takes log2(width) merges of all chunks at once (windows of 1, 2, 4, ...
    chunks, joined by the binary digits of ``width``), with no subtraction
    that could lose precision.

    Arguments
    ---------
    chunks : KeyStatistics
        One set per chunk, chunks on the third axis from the end.
    width : int
        Chunks in a window, >= 1; the number of chunks for all the past.

    Returns
    -------
    KeyStatistics
        One merged set per chunk.

    Example
    -------
    >>> keys, values = torch.rand(5, 2, 4), torch.rand(5, 2, 3)
    >>> chunks = KeyStatistics.of_keys(keys, values)
    >>> merge_windows(chunks, 3).number.flatten()
    tensor([2., 4., 6., 6., 6.])
    """
    merged: KeyStatistics | None = None
    covered, span, window = 0, 1, chunks
    while True:
        if width & span:
            late = window.delayed(covered)
            merged = late if merged is None else late.merge(merged)
            covered += span
        if covered == width:
            assert merged is not None
            return merged
        window = window.delayed(span).merge(window)
        span *= 2
