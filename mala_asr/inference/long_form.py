"""Recordings longer than what a model was trained on.

In one pass, which linear attention makes possible: its memory is linear in
the length and known beforehand. In chunks that overlap, their words joined by
time (seams.py). Or in segments cut at the quietest moments, one after the
other. Every sample is decoded in each of the ways.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from mala_asr.data.audio import AudioError
from mala_asr.decoding.hypothesis import Hypothesis, Span
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.inference.memory import (
    available_bytes,
    in_gib,
    one_pass_bytes,
)
from mala_asr.inference.seams import find_seam
from mala_asr.inference.segmentation import Segmentation
from mala_asr.inference.transcript import Segment

logger = logging.getLogger(__name__)

# One pass is planned into this share of the memory that is free.
_MEMORY_SHARE = 0.8

# One pass is what everybody expects of a shorter recording, in seconds.
_WORTH_SAYING = 300.0

# Their decoder reads the whole recording at each step, and has read nothing
# longer than an utterance in training.
_ATTENTION_DECODERS = ("joint", "rescore")

# Energy is smoothed over so many seconds where a quiet moment is sought:
# longer than the closure of a plosive, shorter than a pause.
_PAUSE = 0.2


class LongFormError(AudioError):
    """A recording that is too long for what was asked."""


@dataclass(frozen=True)
class Plan:
    """How a recording is decoded, and why.

    Arguments
    ---------
    way : str
        ``one-pass``, ``chunks`` or ``silence``.
    reason : str
        For the log.
    """

    way: str
    reason: str


class LongFormDecoder:
    """Decodes recordings of any length.

    Arguments
    ---------
    recognizer : Recognizer
        The model and its decoder.
    segmentation : Segmentation, optional
        What to do with recordings longer than a chunk.
    batch_size : int
        Chunks or segments decoded together.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        segmentation: Segmentation | None = None,
        batch_size: int = 8,
    ) -> None:
        self.recognizer = recognizer
        self.segmentation = segmentation or Segmentation()
        self.batch_size = batch_size

    def is_long(self, seconds: float) -> bool:
        """Tell whether a recording is more than one utterance.

        Arguments
        ---------
        seconds : float
            Its length.

        Returns
        -------
        bool
            Whether to call `decode`.
        """
        return seconds > self.segmentation.chunk_length

    def decode(self, wave: Tensor, plan: Plan) -> list[Segment]:
        """Decode one recording.

        Arguments
        ---------
        wave : Tensor
            Mono samples at the model's rate, at least one, (samples,).
        plan : Plan
            From `plan`.

        Returns
        -------
        list[Segment]
            In the order of time, without gaps.
        """
        if plan.way == "one-pass":
            seconds = len(wave) / self.recognizer.model.sample_rate
            encoded = self.recognizer.encode_long(wave)
            (whole,) = self.recognizer.decode(encoded)
            return [Segment(0.0, seconds, whole)]
        if plan.way == "silence":
            return self._by_silence(wave)
        return self._by_chunks(wave)

    def plan(self, seconds: float, name: str) -> Plan:
        """Choose the way before anything is computed, and say so.

        Arguments
        ---------
        seconds : float
            Length of the recording.
        name : str
            What the log and errors call it.

        Returns
        -------
        Plan
            The way and its reason.

        Raises
        ------
        LongFormError
            When one pass was asked for and cannot be.
        """
        plan = self._choose(seconds, name)
        if plan.way != "one-pass" or seconds > _WORTH_SAYING:
            logger.info("%s: %s", name, plan.reason)
        return plan

    def _choose(self, seconds: float, name: str) -> Plan:
        asked = self.segmentation.way
        if asked in ("chunks", "silence"):
            return Plan(asked, f"{_minutes(seconds)} by {asked}, as asked")
        if asked == "auto":
            if self.recognizer.options.decoder in _ATTENTION_DECODERS:
                return self._chunks_since(
                    seconds, "its decoder reads no more at once"
                )
        limit = self._longest_input()
        if seconds > limit:
            why = f"hypermixing takes {limit:.0f} s at most"
        else:
            needed = one_pass_bytes(
                self.recognizer.model,
                seconds,
                self.recognizer.options.decoder,
                self.recognizer.word_times,
                blocks=self.recognizer.in_blocks,
            )
            device = next(self.recognizer.model.parameters()).device
            free = available_bytes(device)
            memory = f"about {in_gib(needed)} of the {in_gib(free)} free"
            if needed <= _MEMORY_SHARE * free:
                return Plan(
                    "one-pass", f"{_minutes(seconds)} in one pass, {memory}"
                )
            why = f"one pass would take {memory}"
        if asked == "auto":
            return self._chunks_since(seconds, why)
        raise LongFormError(
            f"{name}: {_minutes(seconds)} do not fit into one pass: {why}; "
            "choose --segment chunks or silence, or leave it to auto"
        )

    def _chunks_since(self, seconds: float, why: str) -> Plan:
        length = self.segmentation.chunk_length
        return Plan(
            "chunks",
            f"{_minutes(seconds)} in chunks of {length:g} s at most: {why}",
        )

    def _longest_input(self) -> float:
        layer = self.recognizer.model.transformer.encoder.layers[0].mha_layer
        frames = getattr(layer, "max_length", None)
        if frames is None:
            return float("inf")
        model = self.recognizer.model
        return (
            frames * model.subsampling * model.hop_samples / (model.sample_rate)
        )

    def _by_silence(self, wave: Tensor) -> list[Segment]:
        rate = self.recognizer.model.sample_rate
        longest = self.segmentation.chunk_length
        bounds = [0, *quiet_moments(wave, rate, longest), len(wave)]
        waves = [wave[a:b] for a, b in pairwise(bounds)]
        found = self._decoded(self.recognizer, waves)
        return [
            Segment(a / rate, b / rate, hypothesis)
            for (a, b), hypothesis in zip(pairwise(bounds), found, strict=True)
        ]

    def _by_chunks(self, wave: Tensor) -> list[Segment]:
        rate = self.recognizer.model.sample_rate
        bounds = chunk_bounds(
            len(wave),
            round(self.segmentation.chunk_length * rate),
            round(self.segmentation.shared * rate),
        )
        timed = copy(self.recognizer)
        timed.word_times = True
        found = self._decoded(timed, [wave[a:b] for a, b in bounds])
        chunks = [
            Segment(a / rate, b / rate, hypothesis)
            for (a, b), hypothesis in zip(bounds, found, strict=True)
        ]
        return join(chunks)

    def _decoded(
        self, recognizer: Recognizer, waves: Sequence[Tensor]
    ) -> list[Hypothesis]:
        size = self.batch_size
        return [
            hypothesis
            for start in range(0, len(waves), size)
            for hypothesis in recognizer.waves(waves[start : start + size])
        ]


def chunk_bounds(
    samples: int, longest: int, overlap: int
) -> list[tuple[int, int]]:
    """Cut a recording into chunks of one length that overlap.

    Arguments
    ---------
    samples : int
        Length of the recording.
    longest : int
        Longest length of a chunk; they are made as short as their number
        allows, so that the last one is no shorter than the others.
    overlap : int
        Samples that two neighbors share, less than ``longest``.

    Returns
    -------
    list[tuple[int, int]]
        First sample and end of each.

    Example
    -------
    >>> chunk_bounds(100, longest=40, overlap=10)
    [(0, 40), (30, 70), (60, 100)]
    >>> chunk_bounds(43, longest=40, overlap=10)
    [(0, 26), (16, 43)]
    """
    new = max(samples - overlap, 1)
    count = -(-new // (longest - overlap))
    starts = [number * new // count for number in range(count + 1)]
    return [
        (start, min(end + overlap, samples)) for start, end in pairwise(starts)
    ]


def quiet_moments(wave: Tensor, rate: int, longest: float) -> list[int]:
    """Find where to cut a recording.

    Arguments
    ---------
    wave : Tensor
        Samples, (samples,).
    rate : int
        Of the samples, in Hz.
    longest : float
        Seconds that a segment may last. Each cut is at the quietest moment
        of the second half of that time.

    Returns
    -------
    list[int]
        Samples, in order.

    Example
    -------
    >>> wave = torch.ones(1000)
    >>> wave[650:680] = 0.0
    >>> [600 < cut < 700 for cut in quiet_moments(wave, rate=100, longest=8)]
    [True]
    """
    if len(wave) <= longest * rate:
        return []
    hop = max(rate // 100, 1)
    energy = wave[: len(wave) // hop * hop].view(-1, hop).square().mean(1)
    width = round(_PAUSE * rate / hop) // 2 * 2 + 1
    smooth = torch.nn.functional.avg_pool1d(
        energy[None],
        width,
        stride=1,
        padding=width // 2,
        count_include_pad=False,
    )[0]
    most = max(int(longest * rate / hop), 2)
    cuts, start = [], 0
    while len(wave) - start * hop > longest * rate:
        second_half = smooth[start + most // 2 : start + most]
        start += most // 2 + int(second_half.argmin())
        cuts.append(start * hop)
    return cuts


def join(chunks: Sequence[Segment]) -> list[Segment]:
    """Make segments that follow each other of chunks that overlap.

    Arguments
    ---------
    chunks : Sequence[Segment]
        In the order of time, with the times of their words.

    Returns
    -------
    list[Segment]
        As many, with the words that `find_seam` keeps. A hypothesis' score
        is that of its whole chunk.
    """
    spoken = [_absolute(chunk) for chunk in chunks]
    first = [0] * len(chunks)
    last = [len(words) for words in spoken]
    edges = [chunks[0].start]
    for number, (one, other) in enumerate(pairwise(chunks)):
        begun = first[number]
        kept, left_out = find_seam(
            spoken[number][begun:],
            spoken[number + 1],
            other.start,
            one.end,
        )
        last[number], first[number + 1] = begun + kept, left_out
        edges.append(
            _edge(
                spoken[number][begun : begun + kept],
                spoken[number + 1][left_out:],
                (other.start + one.end) / 2,
                edges[-1],
            )
        )
    edges.append(chunks[-1].end)
    return [
        Segment(start, end, _part(chunk, slice(first[n], last[n]), start, end))
        for n, (chunk, (start, end)) in enumerate(
            zip(chunks, pairwise(edges), strict=True)
        )
    ]


def _absolute(chunk: Segment) -> list[Span]:
    words = chunk.hypothesis.words
    assert words is not None, "chunks are joined by the times of their words"
    return [_shifted(word, chunk.start) for word in words]


def _edge(
    before: Sequence[Span], after: Sequence[Span], middle: float, least: float
) -> float:
    """Where a segment ends: between its last word and the next one's first."""
    low = max(before[-1].end, least) if before else least
    high = max(after[0].start, low) if after else max(middle, low)
    return min(max(middle, low), high)


def _part(chunk: Segment, kept: slice, start: float, end: float) -> Hypothesis:
    """The hypothesis of some words of a chunk, timed from ``start``."""
    whole = chunk.hypothesis
    assert whole.words is not None and whole.token_spans is not None
    words = whole.words[kept]
    tokens = _tokens_of(whole, kept)
    delay = chunk.start - start

    def placed(spans: Sequence[Span]) -> list[Span]:
        moved = (_shifted(span, delay) for span in spans)
        return [
            replace(
                span,
                start=min(max(span.start, 0.0), end - start),
                end=min(max(span.end, 0.0), end - start),
            )
            for span in moved
        ]

    return replace(
        whole,
        text=" ".join(word.text for word in words),
        tokens=whole.tokens[tokens],
        token_spans=placed(whole.token_spans[tokens]),
        words=placed(words),
    )


def _tokens_of(whole: Hypothesis, kept: slice) -> slice:
    """The tokens of some words: a word starts where a token does."""
    assert whole.words is not None and whole.token_spans is not None
    starts = [span.start for span in whole.token_spans]
    firsts = [starts.index(word.start) for word in whole.words]
    # What is no part of a word, such as spaces, goes with the word before.
    firsts = [0, *firsts[1:], len(starts)] if firsts else [0]
    return slice(firsts[kept.start], firsts[kept.stop])


def _shifted(span: Span, delay: float) -> Span:
    return replace(span, start=span.start + delay, end=span.end + delay)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
