"""What the benchmarks' command lines share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mala_asr.arguments import positive, positive_float
from mala_asr.errors import exit_status


def run_benchmark(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    work: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Read a benchmark's arguments and run it.

    What goes wrong is one line on standard error.

    Arguments
    ---------
    name : str
        Name of its module.
    description : str, optional
        For the help.
    add_arguments : callable
        Gives a parser the benchmark's arguments.
    work : callable
        Measures and prints, given the arguments that were read.
    argv : sequence of str, optional
        The arguments; those of the process if None.

    Returns
    -------
    int
        Exit status: 0 all well, 1 something failed, 2 arguments that do not
        go together, 130 interrupted.

    Raises
    ------
    SystemExit
        With status 2 on wrong usage, with 0 after ``--help``.

    Example
    -------
    >>> def add_arguments(parser):
    ...     parser.add_argument("--count", type=positive)
    >>> def work(args):
    ...     print(f"counted to {args.count}")
    >>> run_benchmark("counting", None, add_arguments, work, ["--count", "3"])
    counted to 3
    0
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m mala_asr.benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(argv)

    def measure() -> int:
        work(args)
        sys.stdout.flush()
        return 0

    return exit_status(f"{name} benchmark", measure)


def add_measuring(
    parser: argparse.ArgumentParser, gigabytes: float, seconds: float
) -> None:
    """Add the arguments of benchmarks that go from short inputs to long ones.

    Arguments
    ---------
    parser : ArgumentParser
        What to add ``--rounds``, ``--max-gigabytes``, ``--max-seconds`` and
        ``--json`` to.
    gigabytes, seconds : float
        Defaults of what is too much for one measurement.
    """
    parser.add_argument(
        "--rounds",
        type=positive,
        default=3,
        help="how often each is timed (default: 3)",
    )
    parser.add_argument(
        "--max-gigabytes",
        type=positive_float,
        default=gigabytes,
        help=f"leave out what would take more memory (default: {gigabytes:g})",
    )
    parser.add_argument(
        "--max-seconds",
        type=positive_float,
        default=seconds,
        help=f"leave out what would take longer (default: {seconds:g})",
    )
    parser.add_argument("--json", type=Path, help="file for all figures")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of benchmarks of a trained model.

    Arguments
    ---------
    parser : ArgumentParser
        What to add ``--model`` and ``--device`` to.
    """
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--device", default="auto")
