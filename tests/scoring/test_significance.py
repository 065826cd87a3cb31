"""Intervals and tests against what statistics says they should be."""

import math
import random

import numpy as np
import pytest

from mala_asr.scoring import score
from mala_asr.scoring.significance import (
    bootstrap_interval,
    matched_pairs,
    paired_bootstrap,
    segment_errors,
)
from mala_asr.scoring.wer import EditCounts
from tests.scoring.random_pairs import misheard, random_pairs


def ten_words(errors: int) -> EditCounts:
    return EditCounts(10 - errors, errors, 0, 0)


def test_an_interval_is_as_wide_as_the_normal_one() -> None:
    """Utterances of one length: the rate is a mean, its error known."""
    rng = np.random.default_rng(1)
    errors = rng.binomial(10, 0.2, size=2000)
    bound = bootstrap_interval(
        [ten_words(int(e)) for e in errors], "utterances", 4000, seed=0
    )
    mean = 10 * errors.mean()
    half = 1.96 * 10 * errors.std() / math.sqrt(2000)
    assert bound.low == pytest.approx(mean - half, abs=0.06)
    assert bound.high == pytest.approx(mean + half, abs=0.06)
    assert (bound.unit, bound.size) == ("utterances", 2000)


def test_intervals_hold_the_true_rate_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for trial in range(200):
        parts = [ten_words(int(e)) for e in rng.binomial(10, 0.3, size=60)]
        bound = bootstrap_interval(parts, "utterances", 400, seed=trial)
        held += bound.low <= 30.0 <= bound.high
    assert 0.88 <= held / 200 <= 0.99


def test_draws_are_whole_utterances() -> None:
    """Long utterances weigh more: the ratio of sums, no mean of rates."""
    parts = [EditCounts(0, 10, 0, 0), EditCounts(1, 0, 0, 0)]
    bound = bootstrap_interval(parts, "utterances", 1000, seed=0)
    assert (bound.low, bound.high) == (0.0, 100.0)


def test_seed_and_resamples_matter_and_nothing_else() -> None:
    parts = score(*random_pairs(100, seed=3)).utterances
    first = bootstrap_interval(parts, "utterances", 500, seed=0)
    assert first == bootstrap_interval(parts, "utterances", 500, seed=0)
    assert first != bootstrap_interval(parts, "utterances", 500, seed=1)
    assert first != bootstrap_interval(parts, "utterances", 501, seed=0)


def test_large_tables_are_drawn_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = score(*random_pairs(100, seed=4)).utterances
    whole = bootstrap_interval(parts, "utterances", 500, seed=0)
    monkeypatch.setattr("mala_asr.scoring.significance._BLOCK", 100)
    assert bootstrap_interval(parts, "utterances", 500, seed=0) == whole


@pytest.mark.parametrize(
    "parts", [[], [ten_words(1)], [EditCounts(0, 0, 0, 1)] * 3]
)
def test_nothing_to_tell(parts: list[EditCounts]) -> None:
    assert bootstrap_interval(parts, "utterances", 100, seed=0) is None
    assert paired_bootstrap(parts, parts, "utterances", 100, seed=0) is None


def test_the_same_system_twice() -> None:
    parts = score(*random_pairs(100, seed=5)).utterances
    found = paired_bootstrap(parts, parts, "utterances", 500, seed=0)
    assert (found.low, found.high, found.p_value) == (0.0, 0.0, 1.0)
    assert found.improved == 0.5
    matched = matched_pairs(parts, parts)
    assert (matched.mean, matched.p_value) == (0.0, 1.0)


def rates_of_rejection(worse: float) -> tuple[float, float]:
    """How often each test finds p < 0.05 in 100 comparisons."""
    bootstrap = matched = 0
    for trial in range(100):
        rng = random.Random(trial)
        said, first = random_pairs(120, seed=1000 + trial)
        second = {
            key: " ".join(
                misheard(text.split(), rng)
                if rng.random() > worse
                else misheard(misheard(text.split(), rng), rng)
            )
            for key, text in said.items()
        }
        parts = [score(said, side).utterances for side in (first, second)]
        found = paired_bootstrap(*parts, "utterances", 400, seed=trial)
        bootstrap += found.p_value < 0.05
        matched += matched_pairs(*parts).p_value < 0.05
    return bootstrap / 100, matched / 100


def test_systems_alike_are_seldom_told_apart() -> None:
    bootstrap, matched = rates_of_rejection(worse=0.0)
    assert bootstrap <= 0.12
    assert matched <= 0.12


def test_systems_unlike_are_mostly_told_apart() -> None:
    bootstrap, matched = rates_of_rejection(worse=0.6)
    assert bootstrap >= 0.8
    assert matched >= 0.8


def test_the_sign_of_a_difference() -> None:
    good, bad = [ten_words(1)] * 30, [ten_words(2)] * 20 + [ten_words(1)] * 10
    found = paired_bootstrap(good, bad, "utterances", 500, seed=0)
    assert 0 < found.low < 100 * 20 / 300 < found.high
    assert found.improved == 0.0
    back = paired_bootstrap(bad, good, "utterances", 500, seed=0)
    assert (back.low, back.high) == (-found.high, -found.low)
    assert back.improved == 1.0


@pytest.mark.parametrize(
    "first, second, segments",
    [
        ("a b c d e f", "a b c d e f", []),
        ("x b c d e f", "a b c d e f", [(1, 0)]),
        # One right word, or two that only one system has right, do not cut.
        ("x b y d e f", "a b c d e f", [(2, 0)]),
        ("x b c y e f", "a b c d e f", [(1, 0), (1, 0)]),
        ("x b c d e y", "a b z d e f", [(1, 1), (1, 0)]),
        ("x b c d y f", "a z c d e f", [(1, 1), (1, 0)]),
        # Insertions stand between words.
        ("a b x c d e f", "a b c d y e f", [(1, 0), (0, 1)]),
        ("a b x c y d e f", "a b c d e f", [(2, 0)]),
        ("x y a b c d e f z", "a b c d e f", [(2, 0), (1, 0)]),
        ("", "a b c d e f", [(6, 0)]),
    ],
)
def test_segments(
    first: str, second: str, segments: list[tuple[int, int]]
) -> None:
    said = {"u": "a b c d e f"}
    utterances = [
        score(said, {"u": text}).utterances[0] for text in (first, second)
    ]
    assert list(segment_errors(*utterances)) == segments


def test_matched_pairs_by_hand() -> None:
    """Differences -1, 0, 1, 1, 0: mean 0.2, deviation 0.837, Z 0.535."""
    said = dict.fromkeys("abcde", "one two three")
    wrong = "one to three"
    first = {**said, "a": wrong, "b": wrong, "e": wrong}
    second = {**said, "b": wrong, "c": wrong, "d": wrong, "e": wrong}
    found = matched_pairs(
        score(said, first).utterances, score(said, second).utterances
    )
    assert found.segments == 5
    assert found.mean == pytest.approx(0.2)
    assert found.deviation == pytest.approx(0.83666, abs=1e-5)
    assert found.z == pytest.approx(0.53452, abs=1e-5)
    assert found.p_value == pytest.approx(0.59298, abs=1e-5)


def test_too_few_segments() -> None:
    said = {"u": "one two three"}
    right = score(said, said).utterances
    wrong = score(said, {"u": "one to three"}).utterances
    assert matched_pairs(right, right).segments == 0
    found = matched_pairs(right, wrong)
    assert (found.segments, found.mean) == (1, 1.0)
    assert (found.z, found.p_value) == (None, None)
