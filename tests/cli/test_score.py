"""`mala-asr score REF HYP`."""

from pathlib import Path

import pytest

from mala_asr.cli.main import main
from mala_asr.scoring import score, summary_text, wer_text


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    ref, hyp = tmp_path / "ref.trn", tmp_path / "hyp.trn"
    ref.write_text("the cat sat (a-1)\nhello (a-2)\n")
    hyp.write_text("hello you (a-2)\nthe bat sat (a-1)\n")
    return str(ref), str(hyp)


REPORT = score(
    {"a-1": "the cat sat", "a-2": "hello"},
    {"a-1": "the bat sat", "a-2": "hello you"},
)


def test_prints_the_summary(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *files]) == 0
    out, err = capsys.readouterr()
    assert out == summary_text(REPORT)
    assert out.startswith("%WER 50.00 [ 2 / 4, 1 ins, 0 del, 1 sub ]\n")
    assert err == "mala-asr: format: trn\n"


def test_align(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--align", *files]) == 0
    assert capsys.readouterr().out == wer_text(REPORT)


def test_format(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--format", "plain", *files]) == 0
    out, err = capsys.readouterr()
    # Line by line, with the ids as words.
    assert out.startswith("%WER 133.33 [ 8 / 6,")
    assert err == ""


def test_formats_that_differ(
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = tmp_path / "hyp.txt"
    plain.write_text("the bat sat\nhello you\n")
    assert main(["score", files[0], str(plain)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "looks like trn" in err and "like plain" in err
    assert err.count("\n") == 1


def test_a_missing_utterance(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_text("the bat sat (a-1)\n")
    assert main(["score", *files]) == 1
    assert "'a-2'" in capsys.readouterr().err
