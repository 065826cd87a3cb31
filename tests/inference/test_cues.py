"""Words go into cues: all of them, in order, in lines that fit."""

import random

import pytest

from mala_asr.decoding.hypothesis import Span
from mala_asr.inference.cues import MAX_SECONDS, PAUSE, make_cues


def speech(seed: int, count: int = 300) -> list[Span]:
    """Words of any length, with pauses and without."""
    rng = random.Random(seed)
    words, time = [], 0.0
    for _ in range(count):
        time += rng.choice([0.0, 0.0, 0.1, 0.5, 1.5])
        end = time + rng.uniform(0.0, 1.0)
        text = "".join(rng.choices("ABC", k=rng.randint(1, 14)))
        words.append(Span(text, time, end, rng.random()))
        time = end
    return words


@pytest.mark.parametrize("width, count", [(42, 2), (20, 1), (5, 3), (1, 1)])
def test_every_word_once_and_lines_that_fit(width: int, count: int) -> None:
    words = speech(seed=width)
    cues = make_cues(words, width, count)
    assert [word for cue in cues for word in cue.words] == words
    for cue in cues:
        assert len(cue.lines) <= count
        for line in cue.lines:
            text = " ".join(word.text for word in line)
            assert len(text) <= width or len(line) == 1
        assert cue.end - cue.start <= MAX_SECONDS


def test_a_cue_ends_at_a_pause_and_not_within_a_phrase() -> None:
    cues = make_cues(speech(seed=1), 1000, 1000)
    assert len(cues) > 10
    for cue, following in zip(cues, cues[1:], strict=False):
        pause = following.start - cue.end
        full = following.words[0].end - cue.start > MAX_SECONDS
        assert pause >= PAUSE or full
        within = cue.words
        for one, other in zip(within, within[1:], strict=False):
            assert other.start - one.end < PAUSE


def test_nothing_said() -> None:
    assert make_cues([]) == []


def test_a_word_longer_than_the_longest_cue() -> None:
    words = [Span("SO", 0.0, 9.0, 1.0), Span("OH", 9.0, 20.0, 1.0)]
    assert [cue.text for cue in make_cues(words)] == ["SO", "OH"]
