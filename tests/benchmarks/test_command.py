"""What goes wrong in a benchmark is one line, with the status it has."""

import argparse
import subprocess
import sys
from importlib import import_module

import pytest

from mala_asr.benchmarks.command import run_benchmark
from mala_asr.errors import MalaError, UsageError

NAMES = (
    "attention",
    "decoders",
    "decoding",
    "encoder",
    "inference",
    "long_form",
    "streaming",
    "training",
    "word_times",
)


@pytest.mark.parametrize(
    "error, status, said",
    [
        (MalaError("no such set; name one"), 1, "error: no such set; name one"),
        (UsageError("give --a or --b"), 2, "error: give --a or --b"),
        (OSError(28, "No space left", "a.png"), 1, "error: a.png: No space le"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_line(
    error: BaseException,
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(args: argparse.Namespace) -> None:
        raise error

    assert run_benchmark("x", None, lambda parser: None, work, []) == status
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"x benchmark: {said}")
    assert err.count("\n") == 1


def test_a_mistake_in_the_code_is_not_hidden() -> None:
    def work(args: argparse.Namespace) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run_benchmark("x", None, lambda parser: None, work, [])


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    script = (
        "import sys\n"
        "from mala_asr.benchmarks.command import run_benchmark\n"
        "def work(args):\n"
        "    print('a table')\n"
        "sys.stdin.read()\n"
        "sys.exit(run_benchmark('x', None, lambda parser: None, work, []))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_names_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = import_module(f"mala_asr.benchmarks.{name}")
    with pytest.raises(SystemExit) as stop:
        benchmark.main(["--no-such-argument"])
    assert stop.value.code == 2
    module = f"python -m mala_asr.benchmarks.{name}"
    assert f"{module}: error: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        benchmark.main(["--help"])
    assert stop.value.code == 0
    assert f"  {module}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("decoders", ["--model", "none", "--dev", "none.csv"]),
        ("decoding", ["--model", "none"]),
        ("inference", ["none.wav", "--sides", "ours"]),
        ("long_form", ["wer", "--model", "none", "--set", "none.csv"]),
        ("streaming", ["--model", "none", "--set", "none.csv"]),
        ("training", ["--data_folder", "none"]),
        ("word_times", ["--model", "none", "--corpus", "none"]),
    ],
)
def test_what_is_missing_is_one_line(
    name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = import_module(f"mala_asr.benchmarks.{name}")
    assert benchmark.main(arguments) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"{name} benchmark: error: ")
    assert err.count("\n") == 1
