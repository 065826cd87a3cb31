"""What is done to words before they are compared."""

import sys

import pytest

from mala_asr.scoring import ScoringError, find_normalizer
from mala_asr.scoring.normalize import basic_text


@pytest.mark.parametrize(
    "text, normal",
    [
        ("", ""),
        ("  A\tB ", "a b"),
        ("Don\u2019t!", "don't"),
        ("'quoted' rock 'n' roll", "quoted rock n roll"),
        ("mother-in-law\u2014well_known", "mother in law well known"),
        ("\ufb01ne \uff21\uff22\uff23 \u00bd", "fine abc 1 2"),
        ("GRÖSSE straße", "grösse straße"),
        ("日本、語。", "日本 語"),
        # Its vowels are marks: no letter, and yet part of the word.
        ("हिन्दी।", "हिन्दी"),
        ("3.5 $20", "3 5 20"),
        ("...", ""),
    ],
)
def test_basic(text: str, normal: str) -> None:
    assert basic_text(text) == normal
    assert basic_text(normal) == normal


def test_none_changes_nothing() -> None:
    assert find_normalizer("none").apply(" A b. ") == " A b. "


def test_english() -> None:
    pytest.importorskip("whisper_normalizer")
    normalizer = find_normalizer("english")
    assert normalizer.version in normalizer.label
    text = "Mr. Brown's colour, um, it's twenty-one [noise]"
    assert normalizer.apply(text).split() == (
        "mister brown is color it is 21".split()
    )


def test_english_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "whisper_normalizer.english", None)
    with pytest.raises(ScoringError, match=r"mala_asr\[english\]"):
        find_normalizer("english")


def test_names_and_versions() -> None:
    labels = [find_normalizer(name).label for name in ("none", "basic")]
    assert labels == [
        "none (words as written)",
        "basic 1 (NFKC, lower case, punctuation to spaces)",
    ]
