"""What the scores of an attention look like: measured, not assumed.

Per head and query: scores that are not positive, row sums, entropy, and what
happens when the query's magnitude is scaled by a. Three facts make the last
one exact instead of a search. For every linear form of this package a score
lies on a straight line in a, also with rotary positions and sharpness,

    A_ij(a) = base_ij + a slope_ij

(base: what linear attention gives, or 1/N for InLine; slope: the centred part
that the form adds to it, so 0 for linear attention itself). Hence

- key j has a positive score up to a = -base / slope where slope < 0, and a row
  of scores is positive up to the smallest of these;
- in a row, base and slope are both 1/N or 0 plus a non-negative multiple of
  one centred product. The derivative of A_m(a) / A_n(a) then has the sign of
  A_m - A_n as long as A_n(a) > 0: the paper's p_m > p (Fan et al., eq. 11-12)
  holds for a pair if and only if its weaker score is still positive at a;
- so sorting a row counts all of its pairs, N^2 / 2 of them, in N log N steps.

Softmax is measured by the same figures, with a on its logits: all its scores
are positive and p_m = p^a.

Magnitudes take memory linear in time. Scores are formed for blocks of queries
at a time, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mala_asr.attention.centred import AttentionForm
from mala_asr.attention.reference import scores
from mala_asr.attention.rotary import rotate
from mala_asr.attention.statistics import feature_map

FACTORS = (1.0, 1.5, 2.0, 4.0, 8.0)

# Scores held at once, over all heads: tensors that a CPU's cache holds are
# gone through several times as fast as larger ones.
BLOCK_SCORES = 1 << 17

# (utterance, its query frames) -> logits to add, (heads, queries, time).
LogitBias = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class AttentionFigures:
    """Figures of one layer, a value for each head and query, in float64.

    Padding is left out, and the queries of all recordings stand in a row.

    Arguments
    ---------
    factors : tuple of float
        The factors a on the query's magnitude.
    concentrates : bool
        Whether the query's magnitude has any influence on the scores; it
        has none on those of linear attention.
    query_norm : Tensor
        Length of phi(q), of q for softmax; every query, (heads, frames).
    z : Tensor
        c phi(q) . mean phi(k); every query, (heads, frames), and none,
        (heads, 0), for softmax.
    keys : Tensor
        Visible keys N. This and all that follow are of the queries whose
        scores were formed, (heads, queries).
    nonpositive_share : Tensor
        Share of the keys with A_ij <= 0.
    smallest : Tensor
        min_j A_ij.
    row_sum, absolute_sum : Tensor
        sum_j A_ij and sum_j |A_ij|.
    entropy : Tensor
        In nats, of |A_ij| / sum_j |A_ij|: scores may be negative.
    largest_factor : Tensor
        The a below which every score of the row is positive: infinite where
        there is no limit, 0 where no a makes them so.
    pairs : Tensor
        Pairs of keys with A_m > A_n > 0, so with a ratio p > 1.
    kept_pairs : Tensor
        Those of them whose scores are positive at each factor too,
        (factors, heads, queries).
    log_ratio : Tensor
        Sum of log p over the kept pairs, (factors, heads, queries).
    log_scaled_ratio : Tensor
        Sum of log p_m over the kept pairs, where p_m is the ratio at the
        factor, (factors, heads, queries).
    """

    factors: tuple[float, ...]
    concentrates: bool
    query_norm: Tensor
    z: Tensor
    keys: Tensor
    nonpositive_share: Tensor
    smallest: Tensor
    row_sum: Tensor
    absolute_sum: Tensor
    entropy: Tensor
    largest_factor: Tensor
    pairs: Tensor
    kept_pairs: Tensor
    log_ratio: Tensor
    log_scaled_ratio: Tensor

    @property
    def effective_keys(self) -> Tensor:
        """exp(entropy): as many keys of equal weight have that entropy."""
        return self.entropy.exp()

    @property
    def effective_share(self) -> Tensor:
        """The effective number of keys over their number, at most 1."""
        return self.effective_keys / self.keys

    @property
    def smallest_over_mean(self) -> Tensor:
        """N min_j A_ij: the mean score of a row is 1/N."""
        return self.smallest * self.keys

    def of_head(self, head: int) -> AttentionFigures:
        """Select a head.

        Arguments
        ---------
        head : int
            Its index, from 0.

        Returns
        -------
        AttentionFigures
            Its figures alone.
        """
        return self._map(lambda parts: parts[0][..., head : head + 1, :])

    def to(self, device: torch.device | str) -> AttentionFigures:
        """Move the figures.

        Arguments
        ---------
        device : torch.device or str
            Where to.

        Returns
        -------
        AttentionFigures
            There.
        """
        return self._map(lambda parts: parts[0].to(device))

    def pool(self, *others: AttentionFigures) -> AttentionFigures:
        """Put queries of several recordings or layers into one row.

        Arguments
        ---------
        *others : AttentionFigures
            Of the same attention, factors and number of heads.

        Returns
        -------
        AttentionFigures
            Figures of all the queries.

        Raises
        ------
        ValueError
            If they are of other factors or of another kind of attention.
        """
        for other in others:
            if (other.factors, other.concentrates) != (
                self.factors,
                self.concentrates,
            ):
                raise ValueError(
                    "figures of different factors or attentions; pool those "
                    "of one attention"
                )
        return self._map(lambda parts: torch.cat(parts, dim=-1), *others)

    def _map(
        self,
        function: Callable[[list[Tensor]], Tensor],
        *others: AttentionFigures,
    ) -> AttentionFigures:
        tensors = {
            name: function([getattr(part, name) for part in (self, *others)])
            for name in _TENSORS
        }
        return AttentionFigures(self.factors, self.concentrates, **tensors)


_TENSORS = [
    field.name
    for field in fields(AttentionFigures)
    if field.name not in ("factors", "concentrates")
]


def inspect_linear(
    form: AttentionForm,
    queries: Tensor,
    keys: Tensor,
    visible: Tensor | None = None,
    sharpness: Tensor | None = None,
    factors: Sequence[float] = FACTORS,
    max_queries: int | None = None,
) -> AttentionFigures:
    """Measure MALA, linear or InLine self-attention over the full context.

    Arguments
    ---------
    form : AttentionForm
        Which attention.
    queries, keys : Tensor
        q and k before the feature map, shape (batch, heads, time, d_head).
    visible : Tensor, optional
        bool, True = not padding, shape (batch, 1, time).
    sharpness : Tensor, optional
        Learned factor per head, shape (heads, 1, 1); of MALA only.
    factors : sequence of float
        Factors on phi(q), each at least 1.
    max_queries : int, optional
        Form the scores of so many queries of an utterance, evenly spread;
        None for all.

    Returns
    -------
    AttentionFigures
        One value for each head and query that is not padding.

    Raises
    ------
    ValueError
        If shapes differ, all is padding, or a factor or ``max_queries`` is
        out of range.

    Example
    -------
    >>> q, k = torch.randn(2, 1, 4, 50, 8)
    >>> figures = inspect_linear(AttentionForm("mala"), q, k)
    >>> figures.largest_factor.shape, figures.kept_pairs.shape
    (torch.Size([4, 50]), torch.Size([5, 4, 50]))
    """
    _check(queries, keys, visible, factors, max_queries)
    plain = [feature_map(x.double(), form.features) for x in (queries, keys)]
    rotated = [rotate(x) for x in plain] if form.rotary else plain
    alpha = 1.0 if sharpness is None else sharpness.double()

    def utterance(index: int, shown: Tensor) -> AttentionFigures:
        q, k = (x[index][:, shown] for x in plain)
        turned_q, turned_k = (x[index][:, shown] for x in rotated)

        def lines(rows: Tensor) -> _Lines:
            turned = (turned_q[:, rows], turned_k) if form.rotary else None
            return _lines(form.kind, q[:, rows], k, alpha, turned)

        z = q @ k.mean(-2).unsqueeze(-1) * q.shape[-1] ** -0.5
        return AttentionFigures(
            tuple(factors),
            form.kind != "linear",
            q.norm(dim=-1),
            z.squeeze(-1),
            **_measure(lines, q, factors, max_queries),
        )

    return _pool_utterances(utterance, queries, visible)


def inspect_softmax(
    queries: Tensor,
    keys: Tensor,
    scale: float,
    visible: Tensor | None = None,
    bias: LogitBias | None = None,
    factors: Sequence[float] = FACTORS,
    max_queries: int | None = None,
) -> AttentionFigures:
    """Measure softmax self-attention over the full context.

    Arguments
    ---------
    queries, keys : Tensor
        q and k as they meet (after rotary positions, if any), shape (batch,
        heads, time, d_head).
    scale : float
        The factor on q k^T.
    visible : Tensor, optional
        bool, True = not padding, shape (batch, 1, time).
    bias : callable, optional
        Gives what is added to the logits of an utterance and some of its
        queries; a factor on the query scales it too.
    factors : sequence of float
        Factors on the logits, each at least 1.
    max_queries : int, optional
        As for `inspect_linear`.

    Returns
    -------
    AttentionFigures
        One value for each head and query that is not padding; no z.

    Raises
    ------
    ValueError
        If shapes differ, all is padding, or a factor or ``max_queries`` is
        out of range.

    Example
    -------
    >>> q, k = torch.randn(2, 1, 4, 50, 8)
    >>> figures = inspect_softmax(q, k, scale=8**-0.5)
    >>> bool(figures.nonpositive_share.max() > 0)
    False
    """
    _check(queries, keys, visible, factors, max_queries)

    def utterance(index: int, shown: Tensor) -> AttentionFigures:
        q, k = (x[index][:, shown].double() for x in (queries, keys))
        frames = shown.nonzero().squeeze(-1)

        def logits(rows: Tensor) -> _Logits:
            products = q[:, rows] @ k.transpose(-2, -1) * scale
            if bias is not None:
                products = products + bias(index, frames[rows])[..., shown]
            return _Logits(products)

        return AttentionFigures(
            tuple(factors),
            True,
            q.norm(dim=-1),
            q.new_empty(len(q), 0),
            **_measure(logits, q, factors, max_queries),
        )

    return _pool_utterances(utterance, queries, visible)


class _Scores(Protocol):
    """Scores of some queries, (heads, queries, keys), as functions of a."""

    def plain(self) -> Tensor:
        """A at a = 1."""

    def log(self, factor: float) -> Tensor:
        """log A(a); -inf where A(a) <= 0."""

    def largest_factor(self) -> Tensor:
        """The a below which a row is positive, (heads, queries)."""

    def take(self, order: Tensor) -> _Scores:
        """The same with the keys of each row in another order."""


@dataclass(frozen=True)
class _Lines:
    """The scores of the linear forms: straight lines in a."""

    base: Tensor
    slope: Tensor

    def plain(self) -> Tensor:
        return self.base + self.slope

    def log(self, factor: float) -> Tensor:
        return (self.base + factor * self.slope).clamp_min(0.0).log()

    def largest_factor(self) -> Tensor:
        unlimited = torch.where(self.base > 0, torch.inf, 0.0)
        falling = self.slope < 0
        limit = self.base.clamp_min(0.0) / torch.where(
            falling, -self.slope, 1.0
        )
        return torch.where(falling, limit, unlimited).amin(-1)

    def take(self, order: Tensor) -> _Lines:
        return _Lines(self.base.gather(-1, order), self.slope.gather(-1, order))


@dataclass(frozen=True)
class _Logits:
    """The scores of softmax: exponentials of a times the logits."""

    logits: Tensor

    def plain(self) -> Tensor:
        return self.logits.softmax(-1)

    def log(self, factor: float) -> Tensor:
        return (factor * self.logits).log_softmax(-1)

    def largest_factor(self) -> Tensor:
        return torch.full_like(self.logits[..., 0], torch.inf)

    def take(self, order: Tensor) -> _Logits:
        return _Logits(self.logits.gather(-1, order))


def _lines(
    kind: str,
    q: Tensor,
    k: Tensor,
    sharpness: Tensor | float,
    rotated: tuple[Tensor, Tensor] | None,
) -> _Lines:
    own = scores(q, k, kind, None, sharpness, rotated)
    if kind == "inline":
        base = torch.full_like(own, 1 / k.shape[-2])
    elif kind == "linear":
        base = own
    else:
        base = scores(q, k, "linear", rotated=rotated)
    return _Lines(base, own - base)


def _check(
    queries: Tensor,
    keys: Tensor,
    visible: Tensor | None,
    factors: Sequence[float],
    max_queries: int | None,
) -> None:
    if queries.shape != keys.shape or queries.dim() != 4:
        raise ValueError(
            f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} must "
            "both be (batch, heads, time, d_head): this is self-attention"
        )
    batch, _, time, _ = queries.shape
    if visible is not None and visible.shape != (batch, 1, time):
        raise ValueError(
            f"visible is {tuple(visible.shape)}; give (batch, 1, time), here "
            f"{(batch, 1, time)}"
        )
    if not factors or min(factors) < 1:
        raise ValueError(f"factors are {factors}; give some, each at least 1")
    if max_queries is not None and max_queries < 1:
        raise ValueError(f"max_queries is {max_queries}; give 1 or more")


def _pool_utterances(
    measure: Callable[[int, Tensor], AttentionFigures],
    queries: Tensor,
    visible: Tensor | None,
) -> AttentionFigures:
    """Measure each utterance of a batch by itself, without its padding."""
    batch, _, time, _ = queries.shape
    if visible is None:
        visible = queries.new_ones(batch, 1, time, dtype=torch.bool)
    parts = [
        measure(index, shown)
        for index, shown in enumerate(visible.squeeze(1))
        if shown.any()
    ]
    if not parts:
        raise ValueError("no frame is visible; give some speech")
    return parts[0].pool(*parts[1:])


def _measure(
    scores_of: Callable[[Tensor], _Scores],
    q: Tensor,
    factors: Sequence[float],
    max_queries: int | None,
) -> dict[str, Tensor]:
    """Form the scores of an utterance's queries block by block."""
    heads, time, _ = q.shape
    size = max(1, BLOCK_SCORES // (heads * time))
    blocks = [
        _block_figures(scores_of(rows), factors)
        for rows in _spread(time, max_queries).to(q.device).split(size)
    ]
    return {
        name: torch.cat([block[name] for block in blocks], dim=-1)
        for name in blocks[0]
    }


def _spread(time: int, most: int | None) -> Tensor:
    """Indices of at most so many queries, evenly spread."""
    if most is None or most >= time:
        return torch.arange(time)
    return (torch.arange(most) * time + time // 2) // most


def _block_figures(
    block: _Scores, factors: Sequence[float]
) -> dict[str, Tensor]:
    return {**_row_figures(block), **_pair_figures(block, factors)}


def _row_figures(block: _Scores) -> dict[str, Tensor]:
    plain = block.plain()
    absolute = plain.abs()
    total = absolute.sum(-1)
    share = absolute / total.unsqueeze(-1)
    return {
        "keys": torch.full_like(total, plain.shape[-1]),
        "nonpositive_share": (plain <= 0).double().mean(-1),
        "smallest": plain.amin(-1),
        "row_sum": plain.sum(-1),
        "absolute_sum": total,
        "entropy": -torch.xlogy(share, share).sum(-1),
        "largest_factor": block.largest_factor(),
    }


def _pair_figures(
    block: _Scores, factors: Sequence[float]
) -> dict[str, Tensor]:
    """Count all pairs of a row by sorting it, the weakest key first."""
    ordered, order = block.plain().sort(dim=-1)
    block = block.take(order)
    number = ordered.shape[-1]
    place = torch.arange(number, device=ordered.device)
    # Keys of equal score make no pair, as p is 1: find the last key of each
    # run of equal ones.
    rises = functional.pad(ordered.diff(dim=-1) > 0, (0, 1), value=True)
    ends = torch.where(rises, place, number).flip(-1).cummin(-1).values.flip(-1)
    stronger = number - 1 - ends
    logs = block.log(1.0)
    positive = logs.isfinite()
    by_factor = []
    for factor in factors:
        scaled = block.log(factor)
        kept = positive & scaled.isfinite()
        # A key that is r-th of the n kept is the stronger one of r - 1 pairs
        # and the weaker one of n - r. Those kept are the last in the order.
        weight = 2 * (place - number) + kept.sum(-1, keepdim=True) + 1
        sums = [
            (weight * torch.where(kept, log, 0.0)).sum(-1)
            for log in (logs, scaled)
        ]
        by_factor.append(torch.stack([(stronger * kept).sum(-1), *sums]))
    kept_pairs, log_ratio, log_scaled_ratio = torch.stack(by_factor, dim=1)
    return {
        "pairs": (stronger * positive).sum(-1).double(),
        "kept_pairs": kept_pairs,
        "log_ratio": log_ratio,
        "log_scaled_ratio": log_scaled_ratio,
    }
