"""What every decoder returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


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
        The decoder's log-probability of the tokens. Its scale belongs to the
        decoder: compare scores of one decoder only.
    token_frames : list[int], optional
        Encoder frame at which each token was emitted, one per token; None
        from a decoder that does not place its tokens in time.

    Example
    -------
    >>> Hypothesis("HI", tokens=[7, 9], score=-0.5, token_frames=[3, 5]).text
    'HI'
    """

    text: str
    tokens: list[int]
    score: float
    token_frames: list[int] | None = None


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
