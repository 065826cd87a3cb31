"""When each token and word was said, by CTC forced alignment.

The same for every decoder: the most likely CTC path that spells the
hypothesis says at which frames each token was emitted. A token's confidence
is its mean posterior probability over those frames, a word's is the least of
its tokens'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torchaudio.functional import forced_align

from mala_asr.decoding.hypothesis import Hypothesis, Span

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


def with_times(
    hypothesis: Hypothesis,
    log_probs: torch.Tensor,
    tokenizer: SentencePieceProcessor,
    frame_shift: float,
    duration: float,
) -> Hypothesis:
    """Place the tokens and words of a hypothesis in time.

    Arguments
    ---------
    hypothesis : Hypothesis
        What was said.
    log_probs : torch.Tensor
        CTC's log-probabilities of this utterance, (frames, vocabulary).
    tokenizer : SentencePieceProcessor
        The tokenizer; its pad is the CTC blank.
    frame_shift : float
        Seconds of a CTC frame.
    duration : float
        Length of the audio in seconds; nothing is placed beyond it.

    Returns
    -------
    Hypothesis
        The same with its spans.

    Example
    -------
    >>> from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
    >>> path = train_tokenizer(["A B"], getfixture("tmp_path"), kind="char")
    >>> tokenizer = load_tokenizer(path)
    >>> space, a, b = (tokenizer.piece_to_id(piece) for piece in "▁AB")
    >>> best_path = torch.tensor([space, a, a, 0, space, b])
    >>> log_probs = torch.nn.functional.one_hot(best_path, 7).float()
    >>> found = with_times(
    ...     Hypothesis("A B", [space, a, space, b], 0.0),
    ...     log_probs.log_softmax(-1), tokenizer, 0.5, 2.8,
    ... )
    >>> [(word.text, word.start, word.end) for word in found.words]
    [('A', 0.5, 1.5), ('B', 2.5, 2.8)]
    """
    tokens = hypothesis.tokens
    blank = tokenizer.pad_id()
    frames = len(log_probs)
    repeats = sum(one == other for one, other in pairwise(tokens))
    if not tokens:
        runs = []
    elif len(tokens) + repeats > frames:
        # The attention decoder may say more than CTC has frames for.
        step = frames / len(tokens)
        runs = [(k * step, (k + 1) * step, 0.0) for k in range(len(tokens))]
    else:
        path, scores = forced_align(
            log_probs[None].float().cpu(), torch.tensor([tokens]), blank=blank
        )
        runs = _runs(path[0], scores[0], blank)
    return _placed(hypothesis, runs, tokenizer, frame_shift, duration)


def with_path_times(
    hypothesis: Hypothesis,
    path: torch.Tensor,
    scores: torch.Tensor,
    tokenizer: SentencePieceProcessor,
    frame_shift: float,
    duration: float,
) -> Hypothesis:
    """Place the tokens of a CTC path that is known already.

    Of a greedy hypothesis the most likely path is the one it was read from,
    so that it needs no alignment, whose memory grows with the square of the
    length.

    Arguments
    ---------
    hypothesis, tokenizer, frame_shift, duration
        As for `with_times`.
    path, scores : torch.Tensor
        The label of each frame and its log-probability, (frames,).

    Returns
    -------
    Hypothesis
        The same with its spans.
    """
    runs = _runs(path.cpu(), scores.cpu(), tokenizer.pad_id())
    return _placed(hypothesis, runs, tokenizer, frame_shift, duration)


def surfaces(
    tokens: Sequence[int], tokenizer: SentencePieceProcessor
) -> list[str]:
    """Give the text that each token adds, spaces included.

    Arguments
    ---------
    tokens : Sequence[int]
        The tokenizer's ids.
    tokenizer : SentencePieceProcessor
        The tokenizer.

    Returns
    -------
    list[str]
        One for each token.
    """
    unknown = tokenizer.decode([tokenizer.unk_id()])
    return [
        unknown
        if token == tokenizer.unk_id()
        else tokenizer.id_to_piece(token).replace("\u2581", " ")
        for token in tokens
    ]


class WordBuilder:
    """Puts tokens together to words, one after the other.

    Example
    -------
    >>> builder = WordBuilder()
    >>> for number, surface in enumerate([" GO", " O", "N"]):
    ...     span = Span(surface, number, number + 1, 0.9)
    ...     print([word.text for word in builder.add(span, surface)])
    []
    ['GO']
    []
    >>> builder.unfinished
    Span(text='ON', start=1, end=3, confidence=0.9)
    """

    def __init__(self) -> None:
        self._text = ""
        self._parts: list[Span] = []

    def add(self, span: Span, surface: str) -> Iterator[Span]:
        """Take the next token.

        Arguments
        ---------
        span : Span
            When it was said.
        surface : str
            The text that it adds, see `surfaces`.

        Yields
        ------
        Span
            The words that it completes.
        """
        if surface[:1].isspace():
            yield from self.finish()
        self._text += surface.strip()
        if surface.strip():
            self._parts.append(span)
        if surface[-1:].isspace():
            yield from self.finish()

    def finish(self) -> Iterator[Span]:
        """End the word that is unfinished.

        Yields
        ------
        Span
            The word, if there is one.
        """
        word = self.unfinished
        self._text, self._parts = "", []
        if word is not None:
            yield word

    @property
    def unfinished(self) -> Span | None:
        """The word as far as it goes; None between words."""
        if not self._text:
            return None
        return Span(
            self._text,
            self._parts[0].start,
            self._parts[-1].end,
            min(part.confidence for part in self._parts),
        )


def _placed(
    hypothesis: Hypothesis,
    runs: Sequence[tuple[float, float, float]],
    tokenizer: SentencePieceProcessor,
    frame_shift: float,
    duration: float,
) -> Hypothesis:
    """Put tokens where they were emitted, and words where their tokens are."""
    tokens = hypothesis.tokens
    spans = [
        Span(
            tokenizer.id_to_piece(token),
            min(first * frame_shift, duration),
            min(end * frame_shift, duration),
            confidence,
        )
        for token, (first, end, confidence) in zip(tokens, runs, strict=True)
    ]
    builder = WordBuilder()
    words: list[Span] = []
    for span, surface in zip(spans, surfaces(tokens, tokenizer), strict=True):
        words += builder.add(span, surface)
    words += builder.finish()
    return replace(hypothesis, token_spans=spans, words=words)


def _runs(
    path: torch.Tensor, scores: torch.Tensor, blank: int
) -> list[tuple[float, float, float]]:
    """First frame, end frame and confidence of each token of a path."""
    labels, runs = torch.unique_consecutive(path, return_counts=True)
    ends = runs.cumsum(0)
    spoken = labels != blank
    return [
        (end - run, end, float(scores[end - run : end].exp().mean()))
        for run, end in zip(
            runs[spoken].tolist(), ends[spoken].tolist(), strict=True
        )
    ]
