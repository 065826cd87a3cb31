"""Audio files in, text out, with a model folder."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mala_asr.data.audio import AudioError, audio_info, read_audio
from mala_asr.data.batching import length_batches
from mala_asr.decoding.hypothesis import Hypothesis
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.devices import find_device
from mala_asr.inference.model_folder import load_model_folder

# Long recordings are not put together into one batch beyond this, so that
# the memory of a batch does not depend on how many files there are.
MAX_BATCH_SECONDS = 300.0

# Batches are made of files of like length, out of this many batches at a time:
# enough to waste little on padding, and results still come as they are ready.
WINDOW = 32

OnError = Callable[[str, AudioError], None]


@dataclass(frozen=True)
class Transcript:
    """The text of one recording.

    Arguments
    ---------
    path : str
        The file, as it was given.
    text : str
        What was said; empty where nothing was heard.
    duration : float
        Length of the recording in seconds.
    hypothesis : Hypothesis
        What the decoder returned.
    """

    path: str
    text: str
    duration: float
    hypothesis: Hypothesis


@dataclass(frozen=True)
class _Recording:
    position: int
    path: str
    duration: float


class Transcriber:
    """Transcribes files with the model in a model folder.

    Arguments
    ---------
    model_folder : str or os.PathLike
        A folder made by ``mala-asr export``.
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

    Raises
    ------
    ModelFolderError
        When the folder cannot be used.
    DeviceError
        When there is no such device.
    DecodingError
        When the model cannot be decoded in that way.
    """

    def __init__(
        self,
        model_folder: str | os.PathLike[str],
        device: str = "auto",
        decoding: Mapping[str, Any] | None = None,
        batch_size: int = 8,
        word_times: bool = False,
    ) -> None:
        place = find_device(device)
        loaded = load_model_folder(model_folder)
        self.recognizer = Recognizer(
            loaded.model.to(place),
            loaded.tokenizer,
            loaded.decoding(decoding or {}),
            word_times,
        )
        self.sample_rate = loaded.model.config["sample_rate"]
        self.batch_size = batch_size

    def transcribe(
        self,
        paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
        on_error: OnError | None = None,
    ) -> Iterator[Transcript]:
        """Transcribe files, in the order in which they are given.

        Arguments
        ---------
        paths : Iterable[str or os.PathLike] or str or os.PathLike
            Audio files, or one, of any rate and number of channels.
        on_error : Callable[[str, AudioError], None], optional
            Called with a file that cannot be read and the reason; the others
            go on. Without it the error is raised.

        Yields
        ------
        Transcript
            One for each file that could be read.

        Raises
        ------
        AudioError
            For a file that cannot be read, unless `on_error` is given.
        """

        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        names = (os.fspath(path) for path in paths)
        while window := list(islice(names, WINDOW * self.batch_size)):
            readable = _measure(window, on_error)
            results: dict[int, Transcript] = {}
            batches = length_batches(
                [recording.duration for recording in readable],
                MAX_BATCH_SECONDS,
                self.batch_size,
            )
            for batch in batches:
                chosen = [readable[index] for index in batch]
                results |= self._decode(chosen, on_error)
            yield from (results[position] for position in sorted(results))

    def _decode(
        self, batch: Sequence[_Recording], on_error: OnError | None
    ) -> dict[int, Transcript]:
        heard, waves = [], []
        for recording in batch:
            with _reporting(recording.path, on_error):
                waves.append(
                    read_audio(recording.path, sample_rate=self.sample_rate)
                )
                heard.append(recording)
        return {
            recording.position: Transcript(
                recording.path,
                hypothesis.text,
                recording.duration,
                hypothesis,
            )
            for recording, hypothesis in zip(
                heard, self.recognizer.waves(waves), strict=True
            )
        }


@contextmanager
def _reporting(path: str, on_error: OnError | None) -> Iterator[None]:
    try:
        yield
    except AudioError as error:
        if on_error is None:
            raise
        on_error(path, error)


def _measure(
    paths: Sequence[str], on_error: OnError | None
) -> list[_Recording]:
    recordings = []
    for position, path in enumerate(paths):
        with _reporting(path, on_error):
            duration = audio_info(path).duration
            recordings.append(_Recording(position, path, duration))
    return recordings
