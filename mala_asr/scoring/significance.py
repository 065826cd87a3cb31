"""How sure a rate is, and whether two systems differ.

Utterances (or speakers) are drawn anew with replacement, as many as there
are, and the rate of each draw is its errors by its words (Bisani and Ney,
"Bootstrap Estimates for Confidence Intervals in ASR Performance Evaluation",
ICASSP 2004). Words within an utterance, and utterances of a speaker, are not
independent: the interval over speakers is the one that tells how the rate
would be on other speakers (Liu et al., "Statistical Testing on ASR
Performance via Blockwise Bootstrap", Interspeech 2020).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mala_asr.scoring.wer import EditCounts, UtteranceScore

LEVEL = 95.0
# With fewer draws' units than this, intervals come out too narrow.
FEW = 20
# Largest table of draws held at a time, in numbers.
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Interval:
    """A confidence interval of `LEVEL` percent, in percent of words.

    Arguments
    ---------
    unit : str
        What was drawn: ``utterances`` or ``speakers``.
    size : int
        How many of them there are.
    low : float
        Lower end.
    high : float
        Upper end.
    """

    unit: str
    size: int
    low: float
    high: float

    @property
    def few(self) -> bool:
        """Whether there are so few that the interval is too narrow."""
        return self.size < FEW


@dataclass(frozen=True)
class PairedBootstrap(Interval):
    """The interval of a difference between two systems.

    Arguments
    ---------
    p_value : float
        Two-sided; small where the difference is unlikely to be chance.
    improved : float
        Share of the draws in which the second system has fewer errors, with
        half of those in which both have as many (Bisani and Ney's
        probability of improvement).
    """

    p_value: float
    improved: float


@dataclass(frozen=True)
class MatchedPairs:
    """The matched-pairs sentence-segment word error test (MAPSSWE).

    Arguments
    ---------
    segments : int
        Segments with an error of either system.
    mean : float
        Errors of the second system less those of the first, a segment.
    deviation : float, optional
        Standard deviation of that; None with fewer than two segments.
    z : float, optional
        Mean by its standard error; None where that is 0 or unknown.
    p_value : float, optional
        Two-sided, from the normal distribution, which holds for many
        segments (50 or more); None with fewer than two segments.
    """

    segments: int
    mean: float
    deviation: float | None
    z: float | None
    p_value: float | None


def bootstrap_interval(
    parts: Sequence[EditCounts], unit: str, resamples: int, seed: int
) -> Interval | None:
    """Give the confidence interval of a word error rate.

    Arguments
    ---------
    parts : Sequence[EditCounts]
        Counts of each utterance, or of each speaker.
    unit : str
        What the parts are, such as ``utterances``.
    resamples : int
        How many draws.
    seed : int
        Of the draws.

    Returns
    -------
    Interval or None
        Percentiles of the rates; None where there are fewer than two parts
        or no words, so that nothing can be told.

    Example
    -------
    >>> parts = [EditCounts(9, 1, 0, 0), EditCounts(5, 4, 1, 0)] * 50
    >>> bound = bootstrap_interval(parts, "utterances", 1000, seed=0)
    >>> 20 < bound.low < 30 < bound.high < 40
    True
    """
    table = np.array([(part.errors, part.words) for part in parts], dtype=float)
    if len(parts) < 2:
        return None
    errors, words = _draws(table, resamples, seed).T
    rates = 100.0 * errors[words > 0] / words[words > 0]
    if not rates.size:
        return None
    low, high = _percentiles(rates)
    return Interval(unit, len(parts), low, high)


def paired_bootstrap(
    first: Sequence[EditCounts],
    second: Sequence[EditCounts],
    unit: str,
    resamples: int,
    seed: int,
) -> PairedBootstrap | None:
    """Compare two systems on the same draws of what both recognized.

    Arguments
    ---------
    first : Sequence[EditCounts]
        Counts of each utterance, or each speaker, of one system.
    second : Sequence[EditCounts]
        Those of the other system, in the same order.
    unit : str
        What the parts are, such as ``utterances``.
    resamples : int
        How many draws.
    seed : int
        Of the draws.

    Returns
    -------
    PairedBootstrap or None
        Of the second rate less the first; None where there are fewer than
        two parts or no words. The p-value is twice the smaller share of draws
        on either side of no difference, counting the data itself as a draw
        (Davison and Hinkley, "Bootstrap Methods", 1997), so it is never 0.

    Example
    -------
    >>> good, bad = EditCounts(9, 1, 0, 0), EditCounts(8, 2, 0, 0)
    >>> found = paired_bootstrap([good] * 9, [bad] * 9, "utterances", 999, 0)
    >>> found.low, found.high, found.p_value, found.improved
    (10.0, 10.0, 0.002, 0.0)
    """
    if len(first) < 2:
        return None
    table = np.array(
        [
            (two.errors - one.errors, one.words)
            for one, two in zip(first, second, strict=True)
        ],
        dtype=float,
    )
    more, words = _draws(table, resamples, seed).T
    more, words = more[words > 0], words[words > 0]
    if not words.size:
        return None
    low, high = _percentiles(100.0 * more / words)
    smaller = min(np.sum(more <= 0), np.sum(more >= 0))
    return PairedBootstrap(
        unit,
        len(first),
        low,
        high,
        p_value=min(1.0, 2.0 * float(smaller + 1) / (words.size + 1)),
        improved=float(np.mean(more < 0) + np.mean(more == 0) / 2),
    )


def matched_pairs(
    first: Sequence[UtteranceScore], second: Sequence[UtteranceScore]
) -> MatchedPairs:
    """Compare two systems by MAPSSWE, the test of NIST's benchmarks.

    Utterances are cut where both systems have two right words in a row, and
    the errors of both in each segment compared (Gillick and Cox, "Some
    Statistical Issues in the Comparison of Speech Recognition Algorithms",
    ICASSP 1989; Pallett et al., "Tools for the Analysis of Benchmark Speech
    Recognition Tests", ICASSP 1990).

    Arguments
    ---------
    first : Sequence[UtteranceScore]
        Utterances of one system.
    second : Sequence[UtteranceScore]
        The same utterances of the other system, in the same order.

    Returns
    -------
    MatchedPairs
        Its statistic and p-value.
    """
    more = [
        errors[1] - errors[0]
        for one, two in zip(first, second, strict=True)
        for errors in segment_errors(one, two)
    ]
    mean = float(np.mean(more)) if more else 0.0
    if len(more) < 2:
        return MatchedPairs(len(more), mean, None, None, None)
    deviation = float(np.std(more, ddof=1))
    if deviation == 0.0:
        p_value = 1.0 if mean == 0.0 else 0.0
        return MatchedPairs(len(more), mean, deviation, None, p_value)
    z = mean / (deviation / math.sqrt(len(more)))
    p_value = math.erfc(abs(z) / math.sqrt(2.0))
    return MatchedPairs(len(more), mean, deviation, z, p_value)


def segment_errors(
    first: UtteranceScore, second: UtteranceScore
) -> Iterator[tuple[int, int]]:
    """Cut an utterance where both systems are right two words in a row.

    Arguments
    ---------
    first : UtteranceScore
        The utterance as one system recognized it.
    second : UtteranceScore
        As the other did.

    Yields
    ------
    tuple[int, int]
        Errors of the first and of the second system, for each segment in
        which there is one.

    Example
    -------
    >>> from mala_asr.scoring.wer import score
    >>> said = {"a": "one two three four five six"}
    >>> first = score(said, {"a": "on two three four five"}).utterances[0]
    >>> second = score(said, {"a": "one to three four five"}).utterances[0]
    >>> list(segment_errors(first, second))
    [(1, 1), (1, 1)]
    """
    errors = [0, 0]
    last = None
    for slot, system in sorted(
        [(slot, 0) for slot in _error_slots(first)]
        + [(slot, 1) for slot in _error_slots(second)]
    ):
        # Words between two slots: see `_error_slots`.
        if last is not None and slot // 2 - (last + 1) // 2 >= 2:
            yield errors[0], errors[1]
            errors = [0, 0]
        errors[system] += 1
        last = slot
    if last is not None:
        yield errors[0], errors[1]


def _error_slots(utterance: UtteranceScore) -> Iterator[int]:
    """Where errors are: 2i + 1 at word i, 2i before it; one each."""
    for chunk in utterance.chunks:
        start, end = chunk.ref_start_idx, chunk.ref_end_idx
        if chunk.type == "insert":
            inserted = chunk.hyp_end_idx - chunk.hyp_start_idx
            yield from [2 * start] * inserted
        elif chunk.type != "equal":
            yield from range(2 * start + 1, 2 * end + 1, 2)


def _draws(table: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Sums of the rows of draws, as many rows each as the table has.

    Rows that are alike are drawn together, from the multinomial
    distribution: the same draws, at a cost of the kinds of rows and not of
    all their number.
    """
    kinds, counts = np.unique(table, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    rows = max(1, _BLOCK // len(kinds))
    blocks = [
        generator.multinomial(
            len(table), counts / len(table), min(rows, resamples - start)
        )
        @ kinds
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(blocks)


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    tail = (100.0 - LEVEL) / 2
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)
