"""`mala-asr transcribe` and `mala-asr export`, as a user calls them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from mala_asr.cli.main import main
from tests.tones import tones


@pytest.fixture
def recordings(tmp_path: Path) -> list[str]:
    paths = []
    for text in ("AB CD", "D", "CAB"):
        path = tmp_path / f"{text.replace(' ', '-')}.flac"
        soundfile.write(path, tones(text).numpy(), 16000)
        paths.append(str(path))
    return paths


def transcribe(folder: Path, *argv: str) -> int:
    return main(
        ["transcribe", "--model", str(folder), "--device", "cpu", *argv]
    )


def test_one_file_is_its_text(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert transcribe(tone_folder, recordings[0]) == 0
    out, err = capsys.readouterr()
    assert out == "AB CD\n"
    assert "s of audio in" in err


def test_several_files_are_labeled(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert transcribe(tone_folder, *recordings) == 0
    assert capsys.readouterr().out == (
        f"{recordings[0]}\tAB CD\n{recordings[1]}\tD\n{recordings[2]}\tCAB\n"
    )


def test_a_line_is_a_file_whatever_its_name(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = tmp_path / "a\tb\nc\rd\\e é.flac"
    shutil.copy(recordings[1], odd)
    missing = str(tmp_path / "no\nfile.wav")
    assert transcribe(tone_folder, str(odd), missing, recordings[2]) == 1
    out, err = capsys.readouterr()
    assert out == (
        f"{tmp_path}/a\\tb\\nc\\rd\\\\e é.flac\tD\n{recordings[2]}\tCAB\n"
    )
    assert "no such audio file: " in err and "no\\nfile.wav; check" in err
    assert r"1 of 3 files failed: " in err and err.count("\n") == 3


def test_a_bad_file_is_reported_and_the_rest_go_on(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("not audio")
    argv = [recordings[1], str(bad), recordings[2]]
    assert transcribe(tone_folder, *argv) == 1
    out, err = capsys.readouterr()
    assert out == f"{recordings[1]}\tD\n{recordings[2]}\tCAB\n"
    assert f"mala-asr: error: {bad} is not audio" in err
    assert f"1 of 3 files failed: {bad}" in err


def test_conversion_is_said(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.wav"
    # A rate that nothing else in this process has read: it is said once.
    soundfile.write(path, tones("BA", 31250).numpy(), 31250)
    assert transcribe(tone_folder, str(path)) == 0
    out, err = capsys.readouterr()
    assert out == "BA\n"
    assert "31250 Hz resampled to 16000 Hz" in err


@pytest.mark.parametrize(
    "argv",
    [
        ["--decoder", "joint"],
        ["--decoder", "joint", "--beam-size", "2"],
        ["--batch-size", "1"],
    ],
)
def test_options_reach_the_transcriber(
    tone_folder: Path,
    recordings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
) -> None:
    from mala_asr.inference import transcriber

    made = []

    class Spy(transcriber.Transcriber):
        def __init__(self, *args: object, **settings: object) -> None:
            super().__init__(*args, **settings)
            made.append(self)

    monkeypatch.setattr(transcriber, "Transcriber", Spy)
    assert transcribe(tone_folder, *argv, recordings[1]) == 0
    assert capsys.readouterr().out == "D\n"
    (used,) = made
    beam = {"--beam-size": 2}.get(argv[-2], 10)
    if "joint" in argv:
        assert used.recognizer.options.settings()["beam_size"] == beam
    else:
        assert used.batch_size == 1


def test_no_model_folder(
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert transcribe(tmp_path / "nowhere", recordings[0]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("mala-asr: error: no model folder at ")


def test_as_a_module(tone_folder: Path, recordings: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mala_asr.cli", "transcribe"]
        + ["--model", str(tone_folder), "--device", "cpu", recordings[0]],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "AB CD\n")
    assert all(
        line.startswith("mala-asr: ") for line in done.stderr.splitlines()
    )


def test_export_of_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = tmp_path / "model"
    assert main(["export", str(tmp_path), str(dest)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "model.json is missing" in err
    assert not dest.exists()
