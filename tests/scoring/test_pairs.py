"""Ids that one side lacks."""

import pytest

from mala_asr.scoring import ScoringError, pair

SAID = {"a": "x", "b": "y"}
HEARD = {"c": "z", "a": "x"}


def test_empty() -> None:
    pairs = pair(SAID, HEARD, missing="empty")
    assert pairs.references == {"a": "x", "b": "y", "c": ""}
    assert pairs.hypotheses == ({"a": "x", "b": "", "c": "z"},)
    assert (pairs.without_hypothesis, pairs.without_reference) == (1, 1)


def test_skip() -> None:
    pairs = pair(SAID, HEARD, missing="skip")
    assert pairs.references == {"a": "x"}
    assert pairs.hypotheses == ({"a": "x"},)
    assert (pairs.without_hypothesis, pairs.without_reference) == (1, 1)


def test_skip_what_a_second_system_lacks() -> None:
    pairs = pair(SAID, SAID, {"b": "y"}, missing="skip")
    assert pairs.references == {"b": "y"}
    assert pairs.without_hypothesis == 1


def test_nothing_left() -> None:
    with pytest.raises(ScoringError, match="no id is on both sides"):
        pair({"a": "x"}, {"b": "x"}, missing="skip")


def test_error() -> None:
    with pytest.raises(ScoringError, match="no hypothesis, .* 'b'"):
        pair(SAID, HEARD)
