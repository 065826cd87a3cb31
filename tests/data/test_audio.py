"""Audio is read as 16 kHz mono, or refused with the file and the remedy."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torchaudio

from mala_asr.data import audio
from mala_asr.data.audio import (
    AudioError,
    audio_info,
    change_speed,
    read_audio,
)


def tone(seconds: float, rate: int, pitch: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(seconds * rate) / rate)


@pytest.fixture
def flac(tmp_path: Path) -> Path:
    path = tmp_path / "a.flac"
    soundfile.write(path, tone(2.0, 16000), 16000)
    return path


def test_samples_come_as_they_were_written(flac):
    samples = read_audio(flac)
    assert samples.dtype == torch.float32
    assert np.allclose(samples, tone(2.0, 16000), atol=1e-4)
    assert audio_info(flac).duration == 2.0


# The last one shares no divisor with 16000.
@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000, 44101])
def test_other_rates_become_16_khz(tmp_path, rate):
    soundfile.write(tmp_path / "a.wav", tone(1.0, rate), rate)
    samples = read_audio(tmp_path / "a.wav")
    assert len(samples) == 16000
    middle = slice(1000, -1000)
    expected = tone(1.0, 16000)[middle]
    assert np.allclose(samples[middle], expected, atol=0.01)


@pytest.mark.parametrize("rate", [8000, 44100])
@pytest.mark.parametrize("count", [1, 20000])
def test_the_direct_resampling_is_torchaudio_s(rate, count):
    samples = torch.randn(count, generator=torch.Generator().manual_seed(0))
    direct = audio._resample_directly(samples, rate, 16000)
    expected = torchaudio.functional.resample(samples, rate, 16000)
    assert torch.allclose(direct, expected, atol=1e-4)


def test_channels_are_averaged(tmp_path):
    left, right = tone(1.0, 16000), tone(1.0, 16000, pitch=300)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], 1), 16000)
    samples = read_audio(tmp_path / "a.wav")
    assert np.allclose(samples, (left + right) / 2, atol=1e-4)


def test_conversion_is_said_once_for_each_kind(tmp_path, caplog):
    audio._say_conversion.cache_clear()
    for name in ("a.wav", "b.wav"):
        soundfile.write(tmp_path / name, np.zeros((800, 2)), 8000)
    soundfile.write(tmp_path / "c.wav", np.zeros(1600), 16000)
    with caplog.at_level(logging.INFO, logger="mala_asr"):
        for name in ("a.wav", "b.wav", "c.wav"):
            read_audio(tmp_path / name)
    (line,) = caplog.messages
    assert "2 channels" in line and "8000 Hz resampled to 16000 Hz" in line


def test_a_part_is_cut_to_the_sample(flac):
    whole = read_audio(flac)
    assert torch.equal(read_audio(flac, 0.5, 1.25), whole[8000:20000])
    assert torch.equal(read_audio(flac, start=1.5), whole[24000:])
    # A stop past the end is the end: durations are often rounded up.
    assert torch.equal(read_audio(flac, stop=2.01), whole)


@pytest.mark.parametrize(
    "start, stop", [(2.0, None), (1.0, 1.0), (1.5, 1.0), (-1.0, 1.0)]
)
def test_an_empty_part_is_refused(flac, start, stop):
    with pytest.raises(AudioError, match="check start and stop"):
        read_audio(flac, start, stop)


def missing(path: Path) -> None:
    pass


def folder(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("these are words, not samples")


def headers_only(path: Path) -> None:
    soundfile.write(path, np.zeros(0), 16000)


def no_length(path: Path) -> None:
    """A FLAC as it is streamed: its header counts no samples."""
    soundfile.write(path, tone(1.0, 16000), 16000, format="FLAC")
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    soundfile.write(path, tone(5.0, 16000), 16000, format="FLAC")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def zero_length(path: Path) -> None:
    """A WAV as some programs stream it; libsndfile finds no samples."""
    soundfile.write(path, tone(1.0, 16000), 16000, format="WAV")
    data = bytearray(path.read_bytes())
    size = data.index(b"data") + 4
    data[size : size + 4] = bytes(4)
    path.write_bytes(data)


def not_a_number(path: Path) -> None:
    samples = np.zeros(1000)
    samples[500] = math.nan
    soundfile.write(path, samples, 16000, format="WAV", subtype="FLOAT")


@pytest.mark.parametrize(
    "make, remedy",
    [
        (missing, "check the path"),
        (folder, "name an audio file"),
        (empty, "replace it"),
        (text, "ffmpeg -i speech.wav"),
        (headers_only, "replace or remove"),
        (no_length, "ffmpeg -i speech.wav"),
        (zero_length, "ffmpeg -i speech.wav"),
        (cut_short, "replace it"),
        (not_a_number, "ffmpeg -i speech.wav"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_remedy(tmp_path, make, remedy):
    path = tmp_path / "speech.wav"
    make(path)
    with pytest.raises(AudioError) as caught:
        read_audio(path)
    line = str(caught.value)
    assert str(path) in line and remedy in line and "\n" not in line


@pytest.mark.parametrize("kept", [0.3, 0.999])
@pytest.mark.parametrize(
    "form, subtype",
    [
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("WAV", "IMA_ADPCM"),
        ("WAVEX", "PCM_24"),
        ("RF64", "PCM_16"),
        ("AIFF", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
        ("MP3", "MPEG_LAYER_III"),
    ],
)
def test_a_file_whose_end_is_missing_is_refused(tmp_path, form, subtype, kept):
    path = tmp_path / "speech"
    noise = np.random.default_rng(0).normal(scale=0.1, size=10 * 16000)
    soundfile.write(path, noise, 16000, subtype, format=form)
    assert len(read_audio(path)) >= 10 * 16000
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(AudioError, match="cut short|damaged") as caught:
        read_audio(path)
    assert "replace it" in str(caught.value)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000, 0x7FFFFFFF])
@pytest.mark.parametrize("riff", ["LITTLE", "BIG"])
def test_a_streamed_wav_is_read_to_its_end(tmp_path, size, riff):
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(1.0, 16000), 16000, "PCM_16", riff)
    data = bytearray(path.read_bytes())
    start = data.index(b"data") + 4
    data[start : start + 4] = size.to_bytes(4, riff.lower())
    path.write_bytes(data)
    assert len(read_audio(path)) == 16000


def test_what_follows_the_samples_is_no_missing_end(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(1.0, 16000), 16000, "PCM_16")
    with open(path, "ab") as file:
        file.write(b"LIST\x04\0\0\0INFO")
    assert len(read_audio(path)) == 16000


def test_a_command_to_copy_suits_names_with_spaces(tmp_path):
    path = tmp_path / "my memo.wav"
    text(path)
    with pytest.raises(AudioError) as caught:
        read_audio(path)
    command = "ffmpeg -i 'my memo.wav' 'my memo-converted.flac'"
    assert str(caught.value).endswith(command)


def test_m4a_is_refused_with_the_command_that_converts_it(tmp_path):
    path = tmp_path / "memo.m4a"
    path.write_bytes(b"\0\0\0\x20ftypM4A " + bytes(100))
    with pytest.raises(AudioError, match="ffmpeg -i memo.m4a .*flac"):
        audio_info(path)


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_speed_changes_length_and_pitch(speed):
    samples = torch.from_numpy(tone(1.0, 16000)).float()
    changed = change_speed(samples, speed)
    assert len(changed) == math.ceil(16000 / speed)
    spectrum = torch.fft.rfft(changed).abs()
    pitch = spectrum.argmax() * 16000 / len(changed)
    assert pitch == pytest.approx(440 * speed, abs=1.5)


def test_speed_one_changes_nothing():
    samples = torch.randn(100)
    assert change_speed(samples, 1.0) is samples
