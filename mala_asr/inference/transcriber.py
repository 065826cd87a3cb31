"""Audio files in, transcripts out, with a model folder."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

from torch import Tensor

from mala_asr.data.audio import AudioError, audio_info, read_audio
from mala_asr.data.batching import length_batches
from mala_asr.inference.engine import Engine
from mala_asr.inference.engines import build_recognizer
from mala_asr.inference.long_form import LongFormDecoder
from mala_asr.inference.model_folder import load_model_folder
from mala_asr.inference.pretrained import PRETRAINED
from mala_asr.inference.segmentation import Segmentation
from mala_asr.inference.stream import (
    CHUNK,
    LONGEST,
    PAUSE,
    SpeechStream,
    StreamError,
)
from mala_asr.inference.transcript import Recording, Segment, Transcript

# Long recordings are not put together into one batch beyond this, so that
# the memory of a batch does not depend on how many files there are.
MAX_BATCH_SECONDS = 300.0

# Batches are made of files of like length, out of this many batches at a time:
# enough to waste little on padding, and results still come as they are ready.
WINDOW = 32

OnError = Callable[[Recording, AudioError], None]
Audio = str | os.PathLike[str] | Recording


@dataclass(frozen=True)
class _Measured:
    position: int
    recording: Recording
    duration: float

    def transcribed(
        self, segments: Sequence[Segment]
    ) -> tuple[int, Transcript]:
        transcript = Transcript(self.recording, self.duration, segments)
        return self.position, transcript


class Transcriber:
    """Transcribes files with the model in a model folder.

    Arguments
    ---------
    model_folder : str or os.PathLike
        A folder made by ``mala-asr export``; the model that comes with the
        package unless told otherwise.
    device : str
        ``auto`` (a CUDA device if there is one), ``cpu``, ``cuda``,
        ``cuda:1`` ...
    decoding : Mapping[str, Any], optional
        Decoding options by name, as `DecodingOptions` has them; those that
        are not given or None are the model folder's.
    batch_size : int
        Files decoded together at most. The text does not depend on it.
    word_times : bool
        Whether hypotheses come with the times and confidences of their
        words.
    engine : Engine, optional
        What computes the encoder: plain torch in float32 unless told
        otherwise.
    segmentation : Segmentation, optional
        What to do with recordings longer than an utterance: one pass where
        the memory suffices unless told otherwise.

    Raises
    ------
    ModelFolderError
        When the folder cannot be used.
    DeviceError
        When there is no such device, or it cannot do what is asked.
    DecodingError
        When the model cannot be decoded in that way.
    """

    def __init__(
        self,
        model_folder: str | os.PathLike[str] = PRETRAINED,
        device: str = "auto",
        decoding: Mapping[str, Any] | None = None,
        batch_size: int = 8,
        word_times: bool = False,
        engine: Engine | None = None,
        segmentation: Segmentation | None = None,
    ) -> None:
        loaded = load_model_folder(model_folder)
        self.engine = engine or Engine()
        self.recognizer = build_recognizer(
            loaded, device, decoding or {}, word_times, self.engine
        )
        self.long_form = LongFormDecoder(
            self.recognizer, segmentation, batch_size
        )
        self.sample_rate = loaded.model.config["sample_rate"]
        self.batch_size = batch_size

    def transcribe(
        self,
        audio: Iterable[Audio] | Audio,
        on_error: OnError | None = None,
        in_order: bool = True,
    ) -> Iterator[Transcript]:
        """Transcribe files, in the order in which they are given.

        Arguments
        ---------
        audio : Iterable[str or os.PathLike or Recording] or one of these
            Audio files, or parts or channels of them, of any rate and
            number of channels.
        on_error : Callable[[Recording, AudioError], None], optional
            Called with a recording that cannot be read and the reason; the
            others go on. Without it the error is raised.
        in_order : bool
            Whether to keep the order. Without it, transcripts come as soon
            as they are there.

        Yields
        ------
        Transcript
            One for each recording that could be read.

        Raises
        ------
        AudioError
            For a file that cannot be read, unless `on_error` is given.
        """
        if isinstance(audio, str | os.PathLike | Recording):
            audio = [audio]
        recordings = map(Recording.of, audio)
        while window := list(islice(recordings, WINDOW * self.batch_size)):
            results = self._window(_measure(window, on_error), on_error)
            if in_order:
                results = iter(sorted(results, key=itemgetter(0)))
            yield from (transcript for _, transcript in results)

    def stream(
        self,
        chunk: float = CHUNK,
        left: float | None = None,
        pause: float = PAUSE,
        longest: float = LONGEST,
    ) -> SpeechStream:
        """Begin to recognize speech while it is said.

        Arguments
        ---------
        chunk, left, pause, longest
            As for `SpeechStream`, in seconds.

        Returns
        -------
        SpeechStream
            To be fed samples at the model's rate. It is decoded with
            ``ctc_greedy``, by a model that should be trained with chunks.

        Raises
        ------
        StreamError
            When a setting makes no sense, or the engine cannot stream.
        """
        if self.engine.backend != "torch" or self.engine.dtype != "float32":
            raise StreamError(
                "a stream is computed by torch in float32; leave out the "
                "backend and dtype"
            )
        return SpeechStream(self.recognizer, chunk, left, pause, longest)

    def _window(
        self, measured: Sequence[_Measured], on_error: OnError | None
    ) -> Iterator[tuple[int, Transcript]]:
        """Transcripts with their positions, the shortest first."""
        batches = length_batches(
            [one.duration for one in measured],
            MAX_BATCH_SECONDS,
            self.batch_size,
        )
        for batch in batches:
            chosen = [measured[index] for index in batch]
            yield from self._decode(chosen, on_error)

    def _decode(
        self, batch: Sequence[_Measured], on_error: OnError | None
    ) -> Iterator[tuple[int, Transcript]]:
        heard, waves = [], []
        for one in batch:
            with _reporting(one.recording, on_error):
                if self.long_form.is_long(one.duration):
                    yield one.transcribed(self._decode_long(one))
                else:
                    waves.append(self._read(one.recording))
                    heard.append(one)
        for one, hypothesis in zip(
            heard, self.recognizer.waves(waves), strict=True
        ):
            yield one.transcribed([Segment(0.0, one.duration, hypothesis)])

    def _decode_long(self, one: _Measured) -> list[Segment]:
        # The plan comes first: it may refuse what the memory cannot hold.
        plan = self.long_form.plan(one.duration, one.recording.label)
        return self.long_form.decode(self._read(one.recording), plan)

    def _read(self, recording: Recording) -> Tensor:
        return read_audio(
            recording.path,
            recording.start,
            recording.stop,
            self.sample_rate,
            recording.channel,
        )


def duration(recording: Recording) -> float:
    """Tell how long a recording is without reading it.

    Arguments
    ---------
    recording : Recording
        The recording, perhaps a part of a file.

    Returns
    -------
    float
        Seconds; less than 0 for a part that starts after the file's end.

    Raises
    ------
    AudioError
        If it is no audio file.
    """
    seconds = audio_info(recording.path).duration
    if recording.stop is not None:
        seconds = min(seconds, recording.stop)
    return seconds - (recording.start or 0.0)


@contextmanager
def _reporting(
    recording: Recording, on_error: OnError | None
) -> Iterator[None]:
    try:
        yield
    except AudioError as error:
        if on_error is None:
            raise
        on_error(recording, error)


def _measure(
    recordings: Sequence[Recording], on_error: OnError | None
) -> list[_Measured]:
    measured = []
    for position, recording in enumerate(recordings):
        with _reporting(recording, on_error):
            seconds = duration(recording)
            measured.append(_Measured(position, recording, seconds))
    return measured
