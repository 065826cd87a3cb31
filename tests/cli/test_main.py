"""The command's frame: exit status, one-line errors, help."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mala_asr.cli import main as cli
from mala_asr.cli.main import COMMANDS, main
from mala_asr.errors import MalaError


def stand_in(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Replace every subcommand by one that raises."""

    def run(args: object) -> int:
        raise error

    module = SimpleNamespace(
        HELP="", __doc__="", add_arguments=lambda parser: None, run=run
    )
    monkeypatch.setattr(cli, "import_module", lambda name: module)


@pytest.mark.parametrize(
    "error, status, line",
    [
        (MalaError("no x; give one"), 1, "mala-asr: error: no x; give one"),
        (MalaError("two\nlines"), 1, "mala-asr: error: two lines"),
        (
            OSError(28, "No space left on device", "a/b"),
            1,
            "mala-asr: error: a/b: No space left on device",
        ),
        (OSError("odd"), 1, "mala-asr: error: odd"),
        (KeyboardInterrupt(), 130, "mala-asr: interrupted"),
    ],
)
def test_expected_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    line: str,
) -> None:
    stand_in(monkeypatch, error)
    assert main(["score"]) == status
    assert capsys.readouterr() == ("", f"{line}\n")


def test_an_unexpected_error_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["score"])


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert max(map(len, text.splitlines())) <= 80


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "mala-asr demo" in err


@pytest.mark.parametrize(
    "argv", [["sing"], ["score"], ["score", "a", "b", "--formt", "trn"]]
)
def test_wrong_usage(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert "usage: mala-asr" in capsys.readouterr().err


TALKER = """
import sys
from types import SimpleNamespace
from mala_asr.cli import main as cli

def run(args):
    for number in range(100000):
        print("line", number)
    return 0

module = SimpleNamespace(
    HELP="", __doc__="", add_arguments=lambda parser: None, run=run
)
cli.import_module = lambda name: module
sys.exit(cli.main(["score"]))
"""


def test_a_closed_pipe_is_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TALKER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 1
