"""The command that compares variants as a plan says."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mala_asr.errors import exit_status

HELP = """\
Train variants of a model under one schedule and one order of batches, decode
all with the same decoders, and write one table.

The same command goes on wherever it was stopped, and what is done is not done
again. The table is written at the end of each call, of what there is by then.
"""


def main(
    argv: Sequence[str] | None = None, results: Path = Path("results")
) -> int:
    """Compare as a plan says.

    Arguments
    ---------
    argv : sequence of str, optional
        Arguments of the command line.
    results : Path
        Where ``--publish`` puts results.

    Returns
    -------
    int
        0, or 1 after an expected error, 2 wrong usage, 130 interrupted.
    """
    args = build_parser().parse_args(argv)
    logging.basicConfig(
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        level=logging.INFO,
        stream=sys.stderr,
    )
    logging.getLogger("speechbrain").setLevel(logging.WARNING)

    def work() -> int:
        with _terminated_like_interrupted():
            return _compare(args, results)

    return exit_status(
        "compare", work, "interrupted; the same command goes on from here"
    )


def _compare(args: argparse.Namespace, results: Path) -> int:
    # Heavy, and wrong arguments are to be refused at once.
    from mala_asr.training.compare import runs as work_list
    from mala_asr.training.compare.plan import PlanError, read_plan
    from mala_asr.training.compare.report import write_report
    from mala_asr.training.compare.results import gather
    from mala_asr.training.run_folder import sole_writer

    started = time.monotonic()
    plan = read_plan(args.plan, args.overrides, args.lm)
    for name in args.only:
        if name not in plan.variants:
            raise PlanError(
                f"--only {name}: no such variant; the plan has "
                + ", ".join(plan.variants)
            )
    folder = args.output_folder or Path("results") / "compare" / plan.name
    place = work_list.Place(
        folder.absolute(),
        str(args.data_folder.absolute()),
        str((args.feature_folder or folder / "features").absolute()),
        args.device,
    )
    config = work_list.check_models(plan, place.data_folder)
    facts = work_list.decodings(plan)
    epochs = config["number_of_epochs"]
    with sole_writer(folder):
        work_list.check_same_plan(plan, folder)
        try:
            if not args.report_only:
                work_list.check_decoders(plan, place)
                deadline = started + 3600 * args.max_hours
                work_list.work(plan, place, epochs, args.only, deadline)
        except work_list.TimeUp:
            print(
                f"compare: {args.max_hours:g} h are over; the same command "
                "goes on from here",
                file=sys.stderr,
            )
        found = gather(plan, place, config)
        table = write_report(found, facts, folder / "report")
        print(table.read_text(encoding="utf-8"), end="")
        if args.publish:
            write_report(found, facts, results / plan.name)
    return 0


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Stop the worker too where this process is asked to end."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line.

    Returns
    -------
    argparse.ArgumentParser
        The parser.
    """
    parser = argparse.ArgumentParser(
        prog="compare.py",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", metavar="PLAN.yaml", type=Path)
    parser.add_argument(
        "--data_folder",
        type=Path,
        required=True,
        help="holds the splits, or a folder LibriSpeech of them",
    )
    parser.add_argument(
        "--output_folder",
        type=Path,
        help="gets runs and report (default: results/compare/PLAN)",
    )
    parser.add_argument(
        "--feature_folder",
        type=Path,
        help="features, shared by all runs (default: OUTPUT_FOLDER/features)",
    )
    parser.add_argument(
        "--lm",
        help="language model of the decoders whose `lm:` the plan leaves empty",
    )
    parser.add_argument(
        "--overrides",
        default="",
        metavar="YAML",
        help="joins the plan's overrides, such as '{number_of_epochs: 2}'",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="VARIANT",
        help="work on these variants alone",
    )
    parser.add_argument(
        "--max-hours",
        type=_hours,
        default=math.inf,
        help="stop after this time, to go on later",
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="train nothing; write the report of what there is",
    )
    parser.add_argument("--device", help="as for training, such as cuda")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="put table, curves and hypotheses among the recipe's results too",
    )
    return parser


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return hours
