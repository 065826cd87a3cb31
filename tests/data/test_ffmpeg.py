"""Containers that take ffmpeg: decoded by it, refused without it."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mala_asr.data import ffmpeg
from mala_asr.data.audio import AudioError, audio_info, read_audio

needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None, reason="ffmpeg is not installed"
)

STAND_IN = """\
#!/bin/sh
for last; do :; done
{command}
"""


def tone(seconds: float, rate: int) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * 440 * np.arange(seconds * rate) / rate)


def encode(folder: Path, name: str, *options: str) -> Path:
    """Encode half a second of a tone and half a second of silence."""
    left = np.concatenate([tone(0.5, 44100), np.zeros(22050)])
    soundfile.write(folder / "t.wav", np.stack([left, 0 * left], 1), 44100)
    source = ["ffmpeg", "-v", "error", "-nostdin", "-i", folder / "t.wav"]
    subprocess.run([*source, *options, folder / name], check=True)
    return folder / name


@needs_ffmpeg
@pytest.mark.parametrize("ending", ["m4a", "mp4", "mov", "webm", "mkv", "wma"])
def test_what_ffmpeg_decodes(tmp_path: Path, ending: str) -> None:
    path = encode(tmp_path, f"a.{ending}")
    info = audio_info(path)
    assert info.channels == 2 and info.duration == pytest.approx(1.0, abs=0.1)
    wave = read_audio(path, channel=1)
    assert wave[2000:6000].std() == pytest.approx(0.3 / 2**0.5, rel=0.1)
    assert wave[12000:].std() < 0.01
    assert read_audio(path, channel=2).std() < 0.01
    assert len(read_audio(path, start=0.5)) == pytest.approx(8000, abs=1600)


@needs_ffmpeg
@pytest.mark.parametrize(
    "name, options",
    [("a.m4a", ()), ("a.m4a", ("-movflags", "+faststart")), ("a.webm", ())],
)
def test_a_missing_end_is_noticed(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    path = encode(tmp_path, name, *options)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(AudioError, match="cannot be decoded whole") as caught:
        read_audio(path)
    assert "\n" not in str(caught.value)


@needs_ffmpeg
def test_a_name_is_no_option_and_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-version", "http:x", "concat:a|b"):
        shutil.copy(encode(tmp_path, "a.m4a", "-y"), name)
        assert audio_info(name).channels == 2


@needs_ffmpeg
def test_video_without_sound(tmp_path: Path) -> None:
    subprocess.run(
        "ffmpeg -v error -f lavfi -i color=size=16x16:duration=1".split()
        + [tmp_path / "a.mp4"],
        check=True,
    )
    with pytest.raises(AudioError, match="matches no streams"):
        audio_info(tmp_path / "a.mp4")


def test_without_ffmpeg_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a talk.m4a"
    path.write_bytes(b"\0\0\0\x20ftypM4A " + bytes(100))
    monkeypatch.setattr(ffmpeg, "find_ffmpeg", lambda: None)
    with pytest.raises(AudioError) as caught:
        audio_info(path)
    assert f"{path} is MP4, which takes ffmpeg; install ffmpeg, or" in str(
        caught.value
    )
    assert "ffmpeg -i 'a talk.m4a' 'a talk-converted.flac'" in str(caught.value)


def stand_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Put a program of the name ffmpeg first on the path."""
    program = folder / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(command=command))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def test_what_the_program_writes_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "t.wav", tone(0.5, 8000), 8000)
    command = f'cp "{tmp_path}/t.wav" "${{last#file:}}"'
    stand_in(tmp_path, monkeypatch, command)
    path = tmp_path / "a.webm"
    path.write_bytes(b"\x1aE\xdf\xa3" + bytes(100))
    assert audio_info(path).frames == 4000
    assert len(read_audio(path)) == 8000


@pytest.mark.parametrize(
    "command, said",
    [
        ("echo '[mov @ 0x1] cut: off' >&2; echo b >&2", r"ffmpeg: cut: off\)"),
        ("exit 3", "exit status 3"),
        ("exit 0", "not audio that libsndfile reads"),
    ],
)
def test_a_program_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    stand_in(tmp_path, monkeypatch, command)
    path = tmp_path / "a.webm"
    path.write_bytes(b"\x1aE\xdf\xa3" + bytes(100))
    with pytest.raises(AudioError, match=said) as caught:
        audio_info(path)
    assert str(path) in str(caught.value)


def test_only_containers_are_for_ffmpeg(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data in (b"", b"#EXTM3U\nhttp://x/y", b"ffconcat version 1.0", b"RIFF"):
        path.write_bytes(data)
        assert ffmpeg.container(path) is None
    for name in ("a.wav", "a.flac", "a.ogg", "a.mp3", "a.aiff"):
        soundfile.write(tmp_path / name, tone(0.5, 16000), 16000)
        assert ffmpeg.container(tmp_path / name) is None
