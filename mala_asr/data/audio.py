"""Audio files in, 16 kHz mono float32 out, or a line saying why not.

libsndfile reads (WAV, FLAC, Ogg, MP3, AIFF ...), and ffmpeg, where it is
installed, decodes what libsndfile does not (M4A, MP4, WebM ...). Another sample
rate or more than one channel is converted, and the log says so once for each
kind.

A file whose end is missing is refused, as far as it can be known: WAV, AIFF
and Ogg say so in their headers and pages, FLAC, and MP3 with the frame count
that encoders put at its start, when their samples run out. A streamed WAV
that states no length, an MP3 without that count and the rarer formats (AU,
W64 ...) do not tell, and are read as far as they go. A file in which ffmpeg
finds an error is refused.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile

from mala_asr.data import ffmpeg
from mala_asr.data.containers import ogg_has_end, sample_bytes
from mala_asr.errors import MalaError

if TYPE_CHECKING:  # headers are read without waiting for torch
    import numpy
    import torch

logger = logging.getLogger(__name__)

SAMPLE_RATE = 16000

# No recording of speech has a rate outside of these, in Hz; a damaged header
# may, and resampling would then take any memory.
_RATES = range(1000, 1_000_001)

# torchaudio tabulates its filter for every phase between two rates: 160 x 441
# for 44100 Hz, but 16000 x 44101 for a rate that shares no divisor with
# 16000 Hz, which is gigabytes and minutes. From here on it is not tabulated.
_MOST_PHASES = 1 << 21
_FILTER_ZEROS, _ROLLOFF = 6, 0.99  # torchaudio's
_RESAMPLE_BLOCK = 1 << 14

# Frames that are read at once.
_READ_BLOCK = 1 << 20

# A streamed FLAC does not know its length; libsndfile then says 2^63 - 1, and
# cannot seek in it.
_UNKNOWN_FRAMES = 1 << 62


class AudioError(MalaError):
    """An audio file that cannot be used, with the remedy."""


@dataclass(frozen=True)
class AudioInfo:
    """What a file's header says.

    Arguments
    ---------
    sample_rate : int
        In Hz.
    channels : int
        Number of channels.
    frames : int
        Samples of each channel.

    Example
    -------
    >>> AudioInfo(sample_rate=16000, channels=2, frames=8000).duration
    0.5
    """

    sample_rate: int
    channels: int
    frames: int

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.frames / self.sample_rate


def audio_info(path: str | os.PathLike[str]) -> AudioInfo:
    """Read the header of an audio file.

    Arguments
    ---------
    path : str or os.PathLike
        The file.

    Returns
    -------
    AudioInfo
        Its sample rate, channels and length.

    Raises
    ------
    AudioError
        If it is missing, is no audio that libsndfile reads, is empty, or
        its header tells that its end is missing.

    Example
    -------
    >>> path = getfixture("tmp_path") / "a.wav"
    >>> soundfile.write(path, [0.0] * 800, 8000)
    >>> audio_info(path)
    AudioInfo(sample_rate=8000, channels=1, frames=800)
    """
    with _open(path) as file:
        return _info(path, file)


def read_audio(
    path: str | os.PathLike[str],
    start: float | None = None,
    stop: float | None = None,
    sample_rate: int = SAMPLE_RATE,
    channel: int | None = None,
) -> torch.Tensor:
    """Read a file, or a part of it, as one channel at one sample rate.

    Arguments
    ---------
    path : str or os.PathLike
        The file.
    start : float, optional
        Where to start, in seconds from the beginning.
    stop : float, optional
        Where to stop; the file's end if it comes first.
    sample_rate : int
        The rate wanted, in Hz. Other rates are resampled; the log says so
        once for each kind.
    channel : int, optional
        The channel wanted, the first is 1. All are averaged if None, and the
        log says so.

    Returns
    -------
    torch.Tensor
        Shape (samples,), float32.

    Raises
    ------
    AudioError
        If the file, the part or the channel cannot be read, is empty, cut
        short, or holds samples that are not finite.

    Example
    -------
    >>> path = getfixture("tmp_path") / "a.wav"
    >>> soundfile.write(path, [[0.5, 0.0]] * 800, 8000)
    >>> read_audio(path).shape, read_audio(path, stop=0.05).shape
    (torch.Size([1600]), torch.Size([800]))
    """
    import torch

    with _open(path) as file:
        info = _info(path, file)
        _check_channel(path, info, channel)
        samples = _read(path, file, info, start, stop, channel)
    mono = torch.from_numpy(samples)
    if not torch.isfinite(mono).all():
        raise AudioError(
            f"{path} holds samples that are not finite numbers; "
            f"{_convert_hint(path)}"
        )
    averaged = info.channels if channel is None else 1
    if averaged > 1 or info.sample_rate != sample_rate:
        _say_conversion(info.sample_rate, averaged, sample_rate)
    if info.sample_rate != sample_rate:
        mono = _resample(mono, info.sample_rate, sample_rate)
    return mono


def change_speed(samples: torch.Tensor, speed: float) -> torch.Tensor:
    """Play samples faster or slower; the pitch moves with the speed.

    Arguments
    ---------
    samples : torch.Tensor
        Shape (samples,).
    speed : float
        1.1 makes them a tenth faster, so shorter.

    Returns
    -------
    torch.Tensor
        Shape (samples / speed, rounded up).

    Raises
    ------
    ValueError
        If the speed is not positive.

    Example
    -------
    >>> import torch
    >>> change_speed(torch.zeros(16000), 1.25).shape
    torch.Size([12800])
    """
    if speed <= 0:
        raise ValueError(f"speed must be positive, not {speed}")
    if speed == 1.0:
        return samples
    # Rates with a large common divisor keep the resampling filter short.
    return _resample(samples, round(1000 * speed), 1000)


def _resample(samples: torch.Tensor, rate: int, wanted: int) -> torch.Tensor:
    """Resample as torchaudio does, at a cost that no rate can blow up."""
    common = math.gcd(rate, wanted)
    if rate // common * (wanted // common) > _MOST_PHASES:
        return _resample_directly(samples, rate, wanted)
    from torchaudio.functional import resample

    return resample(samples, rate, wanted)


def _resample_directly(
    samples: torch.Tensor, rate: int, wanted: int
) -> torch.Tensor:
    """The same sum, with the filter computed anew for each sample wanted."""
    import torch

    cutoff = min(rate, wanted) * _ROLLOFF / rate
    reach = math.ceil(_FILTER_ZEROS / cutoff)
    taps = torch.arange(-reach, reach + 1)
    padded = torch.nn.functional.pad(samples, (reach, reach))
    count = -(-len(samples) * wanted // rate)  # rounded up
    blocks = []
    for block in torch.arange(count).split(_RESAMPLE_BLOCK):
        nearest = block * rate // wanted
        rest = (block * rate % wanted).double() / wanted
        offset = (taps - rest[:, None]) * cutoff
        window = torch.cos(offset * (torch.pi / 2 / _FILTER_ZEROS)) ** 2
        window[offset.abs() >= _FILTER_ZEROS] = 0.0
        weights = (torch.sinc(offset) * window * cutoff).to(samples.dtype)
        heard = padded[nearest[:, None] + (taps + reach)]
        blocks.append((weights * heard).sum(dim=1))
    return torch.cat(blocks)


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[soundfile.SoundFile]:
    if not os.path.exists(path):
        raise AudioError(f"no such audio file: {path}; check the path")
    if os.path.isdir(path):
        raise AudioError(f"{path} is a folder; name an audio file in it")
    if not os.path.isfile(path):
        raise AudioError(f"{path} is not a file; save the audio in one")
    if not os.access(path, os.R_OK):
        raise AudioError(f"no permission to read {path}; change its mode")
    if os.path.getsize(path) == 0:
        raise AudioError(f"{path} is an empty file; replace it")
    kind = ffmpeg.container(path)
    if kind is None:
        with _sound_file(path, path) as file:
            yield file
        return
    program = ffmpeg.find_ffmpeg()
    if program is None:
        raise AudioError(
            f"{path} is {kind}, which takes ffmpeg; install ffmpeg, or "
            f"{_convert_hint(path)}"
        )
    with tempfile.NamedTemporaryFile(suffix=".w64") as decoded:
        problem = ffmpeg.decode(program, path, decoded.name)
        if problem:
            raise AudioError(
                f"{path} cannot be decoded whole (ffmpeg: {problem}); replace "
                f"it, or keep what is there: {_convert_command(path)}"
            )
        with _sound_file(path, decoded.name) as file:
            yield file


def _sound_file(
    path: str | os.PathLike[str], decoded: str | os.PathLike[str]
) -> soundfile.SoundFile:
    try:
        return soundfile.SoundFile(decoded)
    except UnicodeEncodeError as error:
        raise AudioError(
            f"{os.fspath(path)!r} has a name that is not UTF-8; rename it"
        ) from error
    # TypeError: soundfile asks for a format where the name ends in .raw
    except (soundfile.SoundFileError, TypeError) as error:
        raise AudioError(
            f"{path} is not audio that libsndfile reads; {_convert_hint(path)}"
        ) from error


def _info(path: str | os.PathLike[str], file: soundfile.SoundFile) -> AudioInfo:
    if file.frames >= _UNKNOWN_FRAMES:
        raise _without_length(path)
    sizes = sample_bytes(file.name)
    if file.frames <= 0:
        if sizes is not None and sizes[1] > 0:
            raise _without_length(path)
        raise AudioError(f"{path} holds no samples; replace or remove it")
    if file.samplerate not in _RATES:
        raise AudioError(
            f"{path} states a sample rate of {file.samplerate} Hz; "
            f"{_convert_hint(path)}"
        )
    info = AudioInfo(file.samplerate, file.channels, file.frames)
    if sizes is not None and sizes[0] > sizes[1]:
        stated, held = sizes
        raise _cut_short(
            path,
            f"ends at {info.duration:.3g} s of "
            f"{info.duration * stated / held:.3g} s",
        )
    if file.format == "OGG" and not ogg_has_end(path):
        raise _cut_short(path, "has no last page")
    return info


def _read(
    path: str | os.PathLike[str],
    file: soundfile.SoundFile,
    info: AudioInfo,
    start: float | None,
    stop: float | None,
    channel: int | None,
) -> numpy.ndarray:
    """The samples of one channel, or the mean of all, (samples,)."""
    first = round((start or 0.0) * info.sample_rate)
    last = info.frames
    if stop is not None:
        last = min(last, round(stop * info.sample_rate))
    if not 0 <= first < last:
        raise AudioError(
            f"{path} has no samples from {start or 0.0:g} s to "
            f"{'its end' if stop is None else f'{stop:g} s'}: it is "
            f"{info.duration:g} s long; check start and stop"
        )
    try:
        file.seek(first)
        samples = _one_channel(file, last - first, channel)
    except soundfile.SoundFileError as error:
        raise AudioError(f"{path} is damaged ({error}); replace it") from error
    if len(samples) < last - first:
        end = (first + len(samples)) / info.sample_rate
        raise _cut_short(path, f"ends at {end:g} s of {info.duration:g} s")
    return samples


def _one_channel(
    file: soundfile.SoundFile, count: int, channel: int | None
) -> numpy.ndarray:
    """Read by blocks: a header may state more than there is memory for."""
    import numpy

    blocks = [numpy.zeros(0, numpy.float32)]
    while count > 0:
        block = file.read(
            min(count, _READ_BLOCK), dtype="float32", always_2d=True
        )
        if not len(block):
            break
        count -= len(block)
        if channel is not None:
            blocks.append(block[:, channel - 1])
            continue
        # What is not finite is refused later, in words.
        with numpy.errstate(over="ignore", invalid="ignore"):
            blocks.append(block.mean(axis=1))
    return numpy.concatenate(blocks)


def _check_channel(
    path: str | os.PathLike[str], info: AudioInfo, channel: int | None
) -> None:
    if channel is not None and not 1 <= channel <= info.channels:
        raise AudioError(
            f"{path} has no channel {channel}: it has {info.channels}; choose "
            "one of them, or mix"
        )


def _without_length(path: str | os.PathLike[str]) -> AudioError:
    return AudioError(
        f"{path} does not state its length; {_convert_hint(path)}"
    )


def _cut_short(path: str | os.PathLike[str], what: str) -> AudioError:
    return AudioError(
        f"{path} is cut short: it {what}; replace it, or keep what is there: "
        f"{_convert_command(path)}"
    )


def _convert_hint(path: str | os.PathLike[str]) -> str:
    return f"convert it first: {_convert_command(path)}"


def _convert_command(path: str | os.PathLike[str]) -> str:
    names = (Path(path).name, f"{Path(path).stem}-converted.flac")
    return f"ffmpeg -i {' '.join(map(shlex.quote, names))}"


@cache
def _say_conversion(rate: int, channels: int, wanted: int) -> None:
    """Cached, so that each kind of file is spoken of once."""
    steps = []
    if channels > 1:
        steps.append(f"{channels} channels averaged to one")
    if rate != wanted:
        steps.append(f"{rate} Hz resampled to {wanted} Hz")
    logger.info("audio converted on reading: %s", ", ".join(steps))
