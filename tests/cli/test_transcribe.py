"""`mala-asr transcribe` and `mala-asr export`, as a user calls them."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import torch

from mala_asr.cli.main import main
from mala_asr.inference.writers import FORMATS
from mala_asr.scoring.formats import read_transcripts
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
    assert r"1 of 3 inputs failed: " in err and err.count("\n") == 3


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
    assert f"1 of 3 inputs failed: {bad}" in err


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


@pytest.mark.parametrize("name", ["json", "trn", "ctm"])
def test_formats_that_join_on_stdout(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    assert transcribe(tone_folder, "-f", name, *recordings) == 0
    path = tmp_path / f"hyp.{name}"
    path.write_text(capsys.readouterr().out)
    found = read_transcripts(path, hypothesis=True).texts
    assert found == {"AB-CD": "AB CD", "D": "D", "CAB": "CAB"}


@pytest.mark.parametrize("name", FORMATS)
def test_one_recording_in_every_format(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    assert transcribe(tone_folder, "-f", name, recordings[2]) == 0
    out = capsys.readouterr().out
    assert "CAB" in out
    argv = ["-f", name, "-o", str(tmp_path / "out"), recordings[2]]
    assert transcribe(tone_folder, *argv) == 0
    (path,) = (tmp_path / "out").iterdir()
    assert path.name.lower() == f"cab.{name}"
    assert path.read_text() == out
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "argv, changed",
    [
        (["-f", "json", "--word-timestamps"], '"words"'),
        (["-f", "vtt", "--word-timestamps"], "<00:00:00."),
        (["-f", "tsv", "--word-timestamps"], "\tCD\n"),
        (["-f", "srt", "--max-line-width", "2"], "AB\nCD\n"),
        (["-f", "vtt", "--max-line-width", "2"], "AB\nCD\n"),
    ],
)
def test_a_style_changes_the_text(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    changed: str,
) -> None:
    assert transcribe(tone_folder, *argv, recordings[0]) == 0
    assert changed in capsys.readouterr().out
    assert transcribe(tone_folder, *argv[:2], recordings[0]) == 0
    assert changed not in capsys.readouterr().out


def test_a_subtitle_of_one_line(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["-f", "srt", "--max-line-width", "2", recordings[0]]
    assert transcribe(tone_folder, *argv) == 0
    assert capsys.readouterr().out.count("-->") == 1
    assert transcribe(tone_folder, *argv, "--max-line-count", "1") == 0
    assert capsys.readouterr().out.count("-->") == 2


@pytest.mark.parametrize(
    "argv, said",
    [
        (["-f", "srt"], "give -o DIR to write 3"),
        (["-f", "txt", "-f", "json"], "several formats need -o DIR"),
        (["--skip-existing"], "need -o DIR"),
        (["--overwrite"], "need -o DIR"),
        (["--word-timestamps"], "changes nothing in txt"),
        (["--max-line-width", "9"], "changes nothing in txt"),
        (["-f", "tsv", "--max-line-count", "9"], "changes nothing in tsv"),
    ],
)
def test_options_that_would_be_ignored(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    said: str,
) -> None:
    assert transcribe(tone_folder, *argv, *recordings) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_a_second_run_continues_the_first(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "out"
    argv = ["-o", str(folder), "-f", "txt", "-f", "srt"]
    assert transcribe(tone_folder, *argv, recordings[0]) == 0
    kept = folder / "AB-CD.txt"
    kept.write_text("edited by hand")
    assert transcribe(tone_folder, *argv, *recordings) == 1
    assert "AB-CD.txt is there already; choose" in capsys.readouterr().err
    assert len(list(folder.iterdir())) == 2
    assert transcribe(tone_folder, *argv, *recordings, "--skip-existing") == 0
    assert "1 of 3 recordings are there" in capsys.readouterr().err
    assert len(list(folder.iterdir())) == 6
    assert kept.read_text() == "edited by hand"
    # Nothing is left to do: not even the model is loaded.
    nowhere = tmp_path / "nowhere"
    assert transcribe(nowhere, *argv, *recordings, "--skip-existing") == 0
    assert transcribe(tone_folder, *argv, *recordings, "--overwrite") == 0
    assert kept.read_text() == "AB CD\n"


def test_what_an_interrupted_run_has_done_is_kept(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mala_asr.inference import transcriber

    argv = ["-o", str(tmp_path / "out"), "--batch-size", "1", *recordings]
    read = transcriber.read_audio
    heard: list[str] = []

    def interrupted(path: str, *rest: object) -> object:
        if len(heard) == 2:
            raise KeyboardInterrupt
        heard.append(path)
        return read(path, *rest)

    monkeypatch.setattr(transcriber, "read_audio", interrupted)
    assert transcribe(tone_folder, *argv) == 130
    assert len(list((tmp_path / "out").iterdir())) == 2

    again: list[str] = []

    def counted(path: str, *rest: object) -> object:
        again.append(path)
        return read(path, *rest)

    monkeypatch.setattr(transcriber, "read_audio", counted)
    assert transcribe(tone_folder, *argv, "--skip-existing") == 0
    assert sorted(heard + again) == sorted(recordings)
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_a_folder_into_a_folder(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"a": "AB", "x/a": "CD", "x/y/b": "D A"}
    for name, text in said.items():
        path = tmp_path / "in" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, tones(text).numpy(), 16000)
    (tmp_path / "in" / "x" / "bad.wav").write_text("not audio")
    out = tmp_path / "out"
    argv = ["-o", str(out), str(tmp_path / "in")]
    assert transcribe(tone_folder, *argv) == 1
    assert "1 of 4 inputs failed" in capsys.readouterr().err
    found = {
        path.relative_to(out).as_posix(): path.read_text()
        for path in out.rglob("*.*")
    }
    assert found == {f"{k}.txt": f"{v}\n" for k, v in said.items()}


def test_a_pattern(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert transcribe(tone_folder, str(tmp_path / "*D.flac")) == 0
    assert capsys.readouterr().out == (
        f"{recordings[0]}\tAB CD\n{recordings[1]}\tD\n"
    )
    argv = [recordings[0], str(tmp_path / "no*.flac")]
    assert transcribe(tone_folder, *argv) == 1
    out, err = capsys.readouterr()
    assert out == f"{recordings[0]}\tAB CD\n"
    assert "no file matches" in err and "1 of 2 inputs failed" in err


def test_standard_input(
    tone_folder: Path,
    recordings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for data, status in ((Path(recordings[0]).read_bytes(), 0), (b"text", 1)):
        pipe = io.TextIOWrapper(io.BytesIO(data))
        monkeypatch.setattr("sys.stdin", pipe)
        assert transcribe(tone_folder, "-", "-f", "json") == status
        out, err = capsys.readouterr()
        if status == 0:
            found = json.loads(out)
            assert (found["id"], found["file"]) == ("stdin", "-")
            assert found["text"] == "AB CD"
    assert "error: standard input is not audio" in err


def test_a_manifest_of_parts(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [tones(text) for text in ("AB", "CD")]
    soundfile.write(tmp_path / "a.wav", torch.cat(said).numpy(), 16000)
    second = len(said[0]) / 16000
    listing = tmp_path / "list.csv"
    listing.write_text(
        f"ID,wav,start,stop\nu-2,a.wav,{second},\nu-1,a.wav,,{second}\n"
        "u-3,a.wav,50,60\n"
    )
    argv = ["--manifest", str(listing), "-f", "trn"]
    assert transcribe(tone_folder, *argv) == 1
    out, err = capsys.readouterr()
    assert out == "CD (u-2)\nAB (u-1)\n"
    assert "has no samples from 50 s to 60 s" in err
    assert "1 of 3 inputs failed: u-3" in err


@pytest.mark.parametrize("argv", [[], ["--manifest", "list.csv", "a.wav"]])
def test_either_audio_or_a_manifest(
    tone_folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    assert transcribe(tone_folder, *argv) == 2
    assert "either AUDIO or --manifest" in capsys.readouterr().err


@pytest.mark.parametrize(
    "channel, said",
    [
        ("1", "{path} (channel 1)\tAB CD"),
        ("2", "{path} (channel 2)\tDC BA"),
        ("split", "{path} (channel 1)\tAB CD\n{path} (channel 2)\tDC BA"),
    ],
)
def test_channels(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    channel: str,
    said: str,
) -> None:
    path = tmp_path / "two.wav"
    both = torch.stack([tones("AB CD"), tones("DC BA")], dim=1)
    soundfile.write(path, both.numpy(), 16000)
    argv = ["--channel", channel, str(path), recordings[1]]
    # The other file has one channel.
    assert transcribe(tone_folder, *argv) == int(channel == "2")
    out, err = capsys.readouterr()
    assert out.startswith(said.format(path=path) + "\n")
    assert ("has no channel 2: it has 1" in err) == (channel == "2")


@pytest.mark.parametrize("channel", ["0", "-1", "left", "1.5", ""])
def test_no_channel(tone_folder: Path, channel: str) -> None:
    with pytest.raises(SystemExit) as stop:
        transcribe(tone_folder, "--channel", channel, "a.wav")
    assert stop.value.code == 2


def test_threads(tone_folder: Path, recordings: list[str]) -> None:
    before = torch.get_num_threads()
    try:
        for count in (2, 1):
            argv = ["--threads", str(count), recordings[1]]
            assert transcribe(tone_folder, *argv) == 0
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)


class Terminal(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "argv, shown", [([], True), (["--no-progress"], False)]
)
def test_progress(
    tone_folder: Path,
    recordings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    shown: bool,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert transcribe(tone_folder, *argv, *recordings) == 0
    assert ("3/3" in terminal.getvalue()) == shown


def test_speed(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert transcribe(tone_folder, recordings[0]) == 0
    found = re.search(
        r"mala-asr: (\S+) s of audio in (\S+) s, RTF (\S+) \((\S+) x real",
        capsys.readouterr().err,
    )
    seconds, _, factor, speed = map(float, found.groups())
    assert seconds == pytest.approx(
        soundfile.info(recordings[0]).duration, abs=0.05
    )
    assert factor * speed == pytest.approx(1.0, rel=0.05)


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
