"""`mala-asr inspect`, as a user calls it."""

import json
from pathlib import Path

import pytest
import soundfile

from mala_asr.cli import inspect
from mala_asr.cli.main import main
from mala_asr.models.inspection import READINGS
from tests.tones import tones


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = tmp_path / "a.flac"
    soundfile.write(path, tones("AB CD").numpy(), 16000)
    return str(path)


def run(folder: Path, *argv: str) -> int:
    return main(["inspect", str(folder), *argv, "--device", "cpu"])


def table(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]


def test_the_table_is_on_stdout_and_says_what_it_means_on_stderr(
    tone_folder: Path, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tone_folder, recording) == 0
    out, err = capsys.readouterr()
    head, rule, layer, whole = table(out)
    assert head[:5] == ["model", "attention", "layer", "head", "A <= 0"]
    assert set("".join(rule)) == {"-"}
    assert layer[:4] == [str(tone_folder), "mala", "1", "all"]
    assert whole[:4] == [str(tone_folder), "mala", "all", "all"]
    assert "share of the keys whose score is not positive" in err


def test_every_option_changes_something(
    tone_folder: Path,
    recording: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rows(*argv: str) -> list[list[str]]:
        assert run(tone_folder, recording, *argv) == 0
        return table(capsys.readouterr().out)[2:]

    plain = rows("--by", "model")
    assert len(plain) == 1
    assert len(rows()) == 2
    assert len(rows("--by", "head")) == 6
    readings = rows("--by", "model", "--as", "linear,inline,softmax")
    assert [row[1] for row in readings] == [
        "mala",
        "as linear",
        "as inline",
        "as softmax",
    ]
    one, two = (rows("--untrained", *seed) for seed in ((), ("2",)))
    assert one[2][0].endswith("untrained (seed 1)")
    assert two[2][0].endswith("untrained (seed 2)")
    assert one[3][4:] != two[3][4:]
    assert rows("--by", "model", "--queries", "3") != plain
    copy = tmp_path / "copy"
    copy.symlink_to(tone_folder)
    compared = rows("--by", "model", "--compare", str(copy))
    assert [row[0] for row in compared] == [str(tone_folder), str(copy)]
    assert compared[0][1:] == compared[1][1:] == plain[0][1:]


def test_files_are_written_and_named(
    tone_folder: Path,
    recording: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, page = tmp_path / "figures", tmp_path / "page.html"
    argv = [recording, "-o", str(folder), "--html", str(page)]
    assert run(tone_folder, *argv) == 0
    record = json.loads((folder / "inspection.json").read_text())
    assert record["recordings"][0]["path"] == recording
    err = capsys.readouterr().err
    assert page.is_file() and f"wrote {page}" in err
    for path in folder.iterdir():
        assert f"wrote {path}" in err


def test_failures_are_one_line(
    tone_folder: Path,
    recording: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = str(tmp_path / "missing.wav")
    assert run(tone_folder, missing, recording) == 1
    out, err = capsys.readouterr()
    assert out and "no such audio file" in err
    assert run(tone_folder, missing) == 1
    assert "no recording could be read" in capsys.readouterr().err
    assert run(tmp_path / "nothing", recording) == 1
    assert "no model folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["--as", "cosine"], ["--queries", "0"], ["--untrained", "x"], []]
)
def test_wrong_usage_is_refused_at_once(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["a.wav"] if argv else []
    with pytest.raises(SystemExit) as exit:
        main(["inspect", "model", *files, *argv])
    assert exit.value.code == 2
    assert "inspect" in capsys.readouterr().err


def test_the_command_knows_the_readings_without_loading_torch() -> None:
    assert inspect._READINGS == READINGS
