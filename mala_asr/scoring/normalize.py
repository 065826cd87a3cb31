"""What is done to both sides before their words are compared.

A rate depends on it, so every normalizer has a name and a version that the
report states.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from mala_asr.scoring.errors import ScoringError

NORMALIZERS = ("none", "basic", "english")
# To be raised whenever `basic` comes to give another text.
_BASIC_VERSION = "1"
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\uff07", "'"))


@dataclass(frozen=True)
class Normalizer:
    """A function from text to text, and how to cite it.

    Arguments
    ---------
    name : str
        One of `NORMALIZERS`.
    version : str
        Changes with what it does; empty for none.
    description : str
        What it does, in a few words.
    apply : Callable[[str], str]
        The function.

    Example
    -------
    >>> find_normalizer("basic").label
    'basic 1 (NFKC, lower case, punctuation to spaces)'
    """

    name: str
    version: str
    description: str
    apply: Callable[[str], str]

    @property
    def label(self) -> str:
        """Name, version and description in one line."""
        return f"{self.name} {self.version}".rstrip() + f" ({self.description})"


def find_normalizer(name: str) -> Normalizer:
    """Give the normalizer of a name.

    Arguments
    ---------
    name : str
        ``none`` leaves words as they are written, ``basic`` is
        `basic_text`, ``english`` is Whisper's normalizer of English
        (Radford et al., "Robust Speech Recognition via Large-Scale Weak
        Supervision", 2022, appendix C) from the package whisper-normalizer.

    Returns
    -------
    Normalizer
        The normalizer.

    Raises
    ------
    ScoringError
        When its package is not installed.

    Example
    -------
    >>> find_normalizer("none").apply("As it IS.")
    'As it IS.'
    """
    if name == "english":
        return _english()
    if name == "basic":
        return Normalizer(
            "basic",
            _BASIC_VERSION,
            "NFKC, lower case, punctuation to spaces",
            basic_text,
        )
    return Normalizer("none", "", "words as written", str)


def basic_text(text: str) -> str:
    """Normalize text of any language.

    Unicode's compatibility composition (NFKC), lower case, and a space for
    each punctuation mark and symbol but an apostrophe within a word. Letters,
    marks and digits of every script stay.

    Arguments
    ---------
    text : str
        Such as "“Don’t!”, he said.".

    Returns
    -------
    str
        The text, words separated by single spaces.

    Example
    -------
    >>> basic_text("“Don’t!”, he said – twenty-one 'times'.")
    "don't he said twenty one times"
    """
    text = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    words = text.lower().translate(_SPACES).split()
    stripped = (word.strip("'") for word in words)
    return " ".join(word for word in stripped if word)


class _Spaces(dict):
    """A space for each character that is no part of a word."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        # Letters, marks and numbers; the vowels of Devanagari are marks.
        keep = character == "'" or unicodedata.category(character)[0] in "LMN"
        self[code] = character if keep else " "
        return self[code]


_SPACES = _Spaces()


def _english() -> Normalizer:
    from importlib import metadata

    try:
        from whisper_normalizer.english import EnglishTextNormalizer
    except ImportError as error:
        raise ScoringError(
            "--normalize english needs the package whisper-normalizer; "
            "install it with: pip install 'mala_asr[english]'"
        ) from error
    return Normalizer(
        "english",
        metadata.version("whisper_normalizer"),
        "Whisper's English normalizer, from whisper-normalizer",
        EnglishTextNormalizer(),
    )
