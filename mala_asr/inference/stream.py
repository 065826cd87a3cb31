"""Speech recognized while it is said.

Samples go in, results come out: after each chunk a partial result with what
has been said since the last pause, at a pause a final one. A partial result
is never withdrawn, only its last word can still grow: the best label of each
frame is decided with its chunk. So the final results put together are the
words of the whole recording encoded with the same chunks and decoded with
``ctc_greedy``, and what is remembered does not grow with the recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy
import torch
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from torch import Tensor

from mala_asr.decoding.alignment import WordBuilder, surfaces
from mala_asr.decoding.ctc_greedy import best_path
from mala_asr.decoding.hypothesis import Span
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.errors import MalaError
from mala_asr.models.streaming import EncoderStream, FeatureStream

# Seconds.
CHUNK = 0.64
PAUSE = 0.8
LONGEST = 20.0

# A word that lasts so long is noise that the model takes for letters; it is
# ended, so that memory stays bounded.
_LONGEST_WORD = 60.0

_FULL_SCALE = 1 << 15  # of 16-bit samples


class StreamError(MalaError):
    """A stream that cannot be, or is used after its end."""


@dataclass(frozen=True)
class StreamResult:
    """What a stream has heard.

    Arguments
    ---------
    words : list[Span]
        The words, their times in seconds from the start of the stream.
    final : bool
        Whether this is the end of a stretch of speech. The next result
        starts after it.
    heard : float
        Seconds of audio that are decoded by now.

    Example
    -------
    >>> words = [Span("GO", 0.5, 0.8, 0.9), Span("ON", 0.9, 1.3, 0.8)]
    >>> StreamResult(words, final=False, heard=1.92).text
    'GO ON'
    """

    words: list[Span]
    final: bool
    heard: float

    @property
    def text(self) -> str:
        """The words, separated by single spaces."""
        return " ".join(word.text for word in self.words)

    @property
    def start(self) -> float:
        """Seconds at which the first word starts."""
        return self.words[0].start

    @property
    def end(self) -> float:
        """Seconds at which the last word ends."""
        return self.words[-1].end


class SpeechStream:
    """A recording that is recognized as it arrives.

    Arguments
    ---------
    recognizer : Recognizer
        Its model and tokenizer are used. The decoder of a stream is
        ``ctc_greedy``, whatever the recognizer's is.
    chunk : float
        Seconds of a chunk, rounded to the encoder's frames: a result waits
        for the end of its chunk.
    left : float, optional
        Seconds of the past that are seen; all of it if None, which costs no
        more with linear attention.
    pause : float
        Seconds without a token after which a result is final once the last
        word is known to have ended.
    longest : float
        Seconds after which a result is final without a pause.

    Raises
    ------
    StreamError
        If a duration makes no sense.
    ModelOptionError
        If the model's attention cannot stream.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        chunk: float = CHUNK,
        left: float | None = None,
        pause: float = PAUSE,
        longest: float = LONGEST,
    ) -> None:
        _check(chunk=chunk, pause=pause, longest=longest)
        self.model = recognizer.model.eval()
        frame = self.model.frame_shift * self.model.ctc_upsampling
        size = max(round(chunk / frame), 1)
        left_chunks = None
        if left is not None:
            if not 0 <= left < math.inf:
                raise StreamError(f"left context is {left} s; give 0 or more")
            left_chunks = math.ceil(left / (size * frame))
        self._features = FeatureStream(self.model)
        self._encoder = EncoderStream(
            self.model, DynChunkTrainConfig(size, left_chunks)
        )
        self._words = _Words(recognizer, pause, longest)
        self._device = next(self.model.parameters()).device
        self._samples = 0
        self._odd = b""
        self._ended = False

    def push(self, samples: Tensor) -> list[StreamResult]:
        """Take in what has been said since the last call.

        Arguments
        ---------
        samples : Tensor
            Mono, at the model's rate, in [-1, 1], any number of them,
            (samples,).

        Returns
        -------
        list[StreamResult]
            What is final since the last call, then at most one partial
            result, where there is something new.

        Raises
        ------
        StreamError
            After the end of the stream, or for samples that are not finite.
        """
        return self._push(samples, False)

    def push_pcm(self, data: bytes) -> list[StreamResult]:
        """Take in raw audio: signed 16-bit little-endian, mono.

        Arguments
        ---------
        data : bytes
            Any number of them; a sample may be cut in two.

        Returns
        -------
        list[StreamResult]
            As `push`.
        """
        data = self._odd + data
        whole = len(data) // 2 * 2
        data, self._odd = data[:whole], data[whole:]
        values = numpy.frombuffer(data, dtype="<i2").astype(numpy.float32)
        return self.push(torch.from_numpy(values) / _FULL_SCALE)

    def finish(self) -> list[StreamResult]:
        """End the recording.

        Returns
        -------
        list[StreamResult]
            What is left, all of it final.
        """
        results = self._push(torch.zeros(0), True)
        self._ended = True
        return results

    @torch.no_grad()
    def _push(self, samples: Tensor, final: bool) -> list[StreamResult]:
        if self._ended:
            raise StreamError("this stream has ended; start another")
        if not torch.isfinite(samples).all():
            raise StreamError(
                "the stream holds samples that are not finite numbers; check "
                "where it comes from"
            )
        self._samples += len(samples)
        feats = self._features.push(samples[None].to(self._device), final)
        if not self._samples:
            return []
        states = self._encoder.push(feats, final)
        scores, path = best_path(self.model.ctc_log_probs(states)[0])
        results = list(self._words.push(path.tolist(), scores.tolist()))
        if final:
            length = self._samples / self.model.sample_rate
            results += self._words.finish(length)
        return results


class _Words:
    """From the best label of each frame to results."""

    def __init__(
        self, recognizer: Recognizer, pause: float, longest: float
    ) -> None:
        self._tokenizer = recognizer.tokenizer
        self._blank = recognizer.tokenizer.pad_id()
        self._frame_shift = recognizer.model.frame_shift
        self._pause = pause
        self._longest = longest
        self._frames = 0
        self._run = _Run(self._blank)
        self._builder = WordBuilder()
        self._words: list[Span] = []
        self._shown = ""

    def push(
        self, path: list[int], scores: list[float]
    ) -> Iterator[StreamResult]:
        """Take in the labels of some frames and their log-probabilities."""
        for label, score in zip(path, scores, strict=True):
            if label != self._run.label:
                yield from self._end_run()
                self._run = _Run(label, self._frames)
            self._run.count += 1
            self._run.total += math.exp(score)
            self._frames += 1
        if self._is_over():
            yield from self._final()
        yield from self._partial()

    def finish(self, length: float) -> Iterator[StreamResult]:
        """End the recording, which lasted ``length`` seconds."""
        yield from self._end_run()
        self._words += self._builder.finish()
        self._words = [_until(word, length) for word in self._words]
        yield from self._final()

    @property
    def _now(self) -> float:
        return self._frames * self._frame_shift

    def _end_run(self) -> Iterator[StreamResult]:
        token = self._token(self._run)
        if token is None:
            return
        span, surface = token
        began_word = self._builder.unfinished is None
        starts_word = surface[:1].isspace() or began_word
        if starts_word and surface.strip():
            done = [*self._words, *self._builder.finish()]
            self._words = done
            if done and span.start - done[-1].end >= self._pause:
                yield from self._final()
        self._words += self._builder.add(span, surface)
        unfinished = self._builder.unfinished
        if unfinished and span.end - unfinished.start > _LONGEST_WORD:
            self._words += self._builder.finish()
        if self._words:
            if self._words[-1].end - self._words[0].start >= self._longest:
                yield from self._final()

    def _token(self, run: _Run) -> tuple[Span, str] | None:
        if run.label == self._blank or not run.count:
            return None
        span = Span(
            self._tokenizer.id_to_piece(run.label),
            run.first * self._frame_shift,
            (run.first + run.count) * self._frame_shift,
            run.total / run.count,
        )
        (surface,) = surfaces([run.label], self._tokenizer)
        return span, surface

    def _is_over(self) -> bool:
        """Whether a pause follows a word that is known to have ended."""
        if not self._words or self._builder.unfinished is not None:
            return False
        if self._run.label != self._blank:
            return False
        return self._now - self._words[-1].end >= self._pause

    def _final(self) -> Iterator[StreamResult]:
        if self._words:
            yield StreamResult(self._words, True, self._now)
        self._words, self._shown = [], ""

    def _partial(self) -> Iterator[StreamResult]:
        # The last label may go on, but its token is certain.
        builder, words = deepcopy(self._builder), [*self._words]
        token = self._token(self._run)
        if token is not None:
            words += builder.add(*token)
        words += builder.finish()
        result = StreamResult(words, False, self._now)
        if result.text != self._shown:
            self._shown = result.text
            yield result


@dataclass
class _Run:
    """Frames in a row with one label."""

    label: int
    first: int = 0
    count: int = 0
    total: float = 0.0


def _until(word: Span, length: float) -> Span:
    return Span(
        word.text,
        min(word.start, length),
        min(word.end, length),
        word.confidence,
    )


def _check(**durations: float) -> None:
    for name, seconds in durations.items():
        if not 0 < seconds < math.inf:
            raise StreamError(f"{name} is {seconds} s; give more than 0")
