"""Words of overlapping stretches are joined, none lost and none doubled."""

import random

import pytest

from mala_asr.decoding.hypothesis import Span
from mala_asr.inference.seams import find_seam


def say(text, *starts, length=0.3):
    return [
        Span(word, start, start + length, 1.0)
        for word, start in zip(text.split(), starts, strict=True)
    ]


def joined(left, right, start, end):
    kept, left_out = find_seam(left, right, start, end)
    return " ".join(word.text for word in [*left[:kept], *right[left_out:]])


def test_the_middle_most_agreement_decides():
    left = say("A B C D X", 1.0, 2.0, 3.0, 4.0, 5.0)
    right = say("Y B C D E", 1.1, 2.1, 3.1, 4.0, 5.0)
    assert joined(left, right, 0.8, 5.3) == "A B C D E"


def test_a_word_said_twice_in_a_row_stays_twice():
    left = say("NO NO YES", 1.0, 1.5, 2.0)
    right = say("NO NO YES", 1.0, 1.5, 2.0)
    assert joined(left, right, 0.5, 2.5) == "NO NO YES"


def test_the_same_word_elsewhere_is_no_agreement():
    left = say("GO", 1.0)
    right = say("GO", 3.0)
    assert joined(left, right, 0.5, 3.5) == "GO GO"


def test_a_word_across_the_middle_is_counted_once():
    # Both heard it, differently, and each takes it for its own.
    left, right = say("HORSE", 1.80), say("HOARSE", 1.90)
    assert joined(left, right, 1.0, 3.0) in ("HORSE", "HOARSE")
    # Each takes it for the other's.
    left, right = say("HORSE", 1.90), say("HOARSE", 1.80)
    assert joined(left, right, 1.0, 3.0) in ("HORSE", "HOARSE")


@pytest.mark.parametrize("left, right", [("", "A"), ("A", ""), ("", "")])
def test_silence_on_a_side(left, right):
    found = joined(
        say(left, *[1.0] * bool(left)), say(right, *[4.0] * bool(right)), 2, 3
    )
    assert found == f"{left}{right}"


@pytest.mark.parametrize("seed", range(50))
def test_random_recordings_are_joined_whole(seed):
    rng = random.Random(seed)
    starts, time = [], 0.0
    while time < 30:
        time += rng.uniform(0.35, 1.5)
        starts.append(time)
    text = " ".join(rng.choice("ABC") for _ in starts)
    words = say(text, *starts)
    start, end = 12.0, 12.0 + rng.uniform(1.5, 5.0)

    def heard(first, last):
        """Words with times a little off; the one at the edge is wrong."""
        found = [w for w in words if w.end > first and w.start < last]
        jitter = [rng.uniform(-0.05, 0.05) for _ in found]
        return [
            Span(
                "X" if w.start < first or w.end > last else w.text,
                w.start + off,
                w.end + off,
                1.0,
            )
            for w, off in zip(found, jitter, strict=True)
        ]

    assert joined(heard(0, end), heard(start, 40), start, end) == text
