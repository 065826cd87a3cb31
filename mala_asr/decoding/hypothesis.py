"""What every decoder returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


@dataclass(frozen=True)
class Span:
    """A token or a word, and when it was said.

    Arguments
    ---------
    text : str
        The word, or the tokenizer's piece.
    start, end : float
        In seconds from the start of the audio; end >= start.
    confidence : float
        From 0 to 1; `mala_asr.decoding.alignment` defines it.

    Example
    -------
    >>> Span("HI", start=0.4, end=0.72, confidence=0.9).end
    0.72
    """

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Hypothesis:
    """One transcript of one utterance and where it came from.

    Arguments
    ---------
    text : str
        The words, separated by single spaces; empty where nothing was heard.
    tokens : list[int]
        The tokenizer's ids behind the text, without blank, bos and eos.
    score : float
        What the decoder ranked it by. Its scale belongs to the decoder:
        compare scores of one decoder only.
    scores : Mapping[str, float]
        The parts of the score by name, before weights: natural logarithms
        of probabilities as ``ctc``, ``attention`` and ``lm``.
    token_spans : list[Span], optional
        One for each token; None where times were not asked for.
    words : list[Span], optional
        One for each word of the text; None where times were not asked for.

    Example
    -------
    >>> Hypothesis("HI", tokens=[7, 9], score=-0.5, scores={"ctc": -0.5}).text
    'HI'
    """

    text: str
    tokens: list[int]
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
    token_spans: list[Span] | None = None
    words: list[Span] | None = None


def spell(tokens: Sequence[int], tokenizer: "SentencePieceProcessor") -> str:
    """Turn tokens into words.

    Arguments
    ---------
    tokens : Sequence[int]
        The tokenizer's ids.
    tokenizer : SentencePieceProcessor
        The tokenizer.

    Returns
    -------
    str
        The words, separated by single spaces: a model may well put a space
        at the end or two in a row.
    """
    return " ".join(tokenizer.decode(list(tokens)).split())
