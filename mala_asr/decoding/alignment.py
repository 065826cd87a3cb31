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
    spans = [
        Span(
            tokenizer.id_to_piece(token),
            min(first * frame_shift, duration),
            min(end * frame_shift, duration),
            confidence,
        )
        for token, (first, end, confidence) in zip(
            tokens, _aligned(log_probs, tokens, tokenizer.pad_id()), strict=True
        )
    ]
    words = list(_words(spans, _surfaces(tokens, tokenizer)))
    return replace(hypothesis, token_spans=spans, words=words)


def _aligned(
    log_probs: torch.Tensor, tokens: Sequence[int], blank: int
) -> list[tuple[float, float, float]]:
    """First frame, end frame and confidence of each token."""
    frames = len(log_probs)
    repeats = sum(one == other for one, other in pairwise(tokens))
    if not tokens:
        return []
    if len(tokens) + repeats > frames:
        # The attention decoder may say more than CTC has frames for.
        step = frames / len(tokens)
        return [(k * step, (k + 1) * step, 0.0) for k in range(len(tokens))]
    path, scores = forced_align(
        log_probs[None].float().cpu(), torch.tensor([tokens]), blank=blank
    )
    labels, runs = torch.unique_consecutive(path[0], return_counts=True)
    ends = runs.cumsum(0)
    spoken = labels != blank
    return [
        (end - run, end, float(scores[0, end - run : end].exp().mean()))
        for run, end in zip(
            runs[spoken].tolist(), ends[spoken].tolist(), strict=True
        )
    ]


def _surfaces(
    tokens: Sequence[int], tokenizer: SentencePieceProcessor
) -> list[str]:
    """The text that each token adds, spaces included."""
    unknown = tokenizer.decode([tokenizer.unk_id()])
    return [
        unknown
        if token == tokenizer.unk_id()
        else tokenizer.id_to_piece(token).replace("\u2581", " ")
        for token in tokens
    ]


def _words(spans: Sequence[Span], surfaces: Sequence[str]) -> Iterator[Span]:
    parts: list[Span] = []
    text = ""
    # The space after the last token ends the last word.
    for span, surface in [*zip(spans, surfaces, strict=True), (None, " ")]:
        if text and surface[:1].isspace():
            yield _word(text, parts)
            parts, text = [], ""
        text += surface.strip()
        if span is not None and surface.strip():
            parts.append(span)
        if text and surface[-1:].isspace():
            yield _word(text, parts)
            parts, text = [], ""


def _word(text: str, parts: Sequence[Span]) -> Span:
    return Span(
        text,
        parts[0].start,
        parts[-1].end,
        min(part.confidence for part in parts),
    )
