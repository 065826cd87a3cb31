"""Measure the attention scores of a model on recordings.

Prints a table of how many scores A_ij are not positive, how sharp they are,
and what a longer query does to the ratio of two scores: what the paper on
MALA claims, on a model of your own.

  mala-asr inspect MODEL *.flac --untrained --as linear,inline,softmax
  mala-asr inspect MODEL meeting.wav -o figures --html page.html

-o writes every figure of every layer and head as JSON, with pictures.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mala_asr.arguments import names, positive

if TYPE_CHECKING:
    from mala_asr.data.audio import AudioError

HELP = "measure a model's attention scores"

_READINGS = ("mala", "linear", "inline", "softmax")
_LEVELS = ("model", "layer", "head")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "model", metavar="MODEL", help="model folder made by 'mala-asr export'"
    )
    parser.add_argument(
        "audio", metavar="FILE", nargs="+", help="audio files to run it on"
    )
    parser.add_argument(
        "--compare",
        metavar="MODEL",
        action="append",
        default=[],
        help="another model folder, shown beside; can be repeated",
    )
    parser.add_argument(
        "--untrained",
        metavar="SEED",
        nargs="?",
        type=int,
        const=1,
        help="show each model beside an untrained one of its architecture, "
        "drawn from this seed (1 where none is given)",
    )
    parser.add_argument(
        "--as",
        dest="readings",
        type=_readings,
        metavar="NAMES",
        default=[],
        help="also read the queries and keys of a mala, linear or inline model "
        f"as other attentions: {', '.join(_READINGS)}, between commas",
    )
    parser.add_argument(
        "--queries",
        type=positive,
        metavar="N",
        help="form the scores of N frames of a recording, evenly spread, as "
        "queries; for long recordings, as the time it takes grows with the "
        "square of their length (default: all)",
    )
    parser.add_argument(
        "--by",
        choices=_LEVELS,
        default="layer",
        help="rows of the table (default: layer); JSON has them all",
    )
    parser.add_argument(
        "-o",
        "--output-dir",
        metavar="DIR",
        help="write inspection.json and pictures (PNG) into this folder",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write pictures and tables as one page that needs nothing else",
    )
    parser.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda or cuda:N (default: auto, a GPU if there is one)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the table on stdout.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0, or 1 if a file could not be read.
    """
    from mala_asr.inference.inspection import inspect_files
    from mala_asr.inference.inspection_page import write_files, write_page
    from mala_asr.inference.inspection_report import LEGEND, table_text

    failed: list[str] = []

    def report(path: str, error: "AudioError") -> None:
        failed.append(path)
        line = str(error).replace("\n", r"\n")
        print(f"mala-asr: error: {line}", file=sys.stderr)

    inspection = inspect_files(
        [args.model, *args.compare],
        args.audio,
        args.readings,
        args.untrained,
        args.queries,
        args.device,
        report,
    )
    # Files first: a reader of stdout may go away, as `head` does.
    if args.output_dir is not None:
        for path in write_files(args.output_dir, inspection):
            print(f"mala-asr: wrote {path}", file=sys.stderr)
    if args.html is not None:
        title = f"Attention of {Path(args.model).name}"
        write_page(args.html, inspection, title)
        print(f"mala-asr: wrote {args.html}", file=sys.stderr)
    print(table_text(inspection, args.by), end="")
    print(LEGEND, file=sys.stderr, end="")
    return 1 if failed else 0


def _readings(text: str) -> list[str]:
    readings = names(text)
    for name in readings:
        if name not in _READINGS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is none of {', '.join(_READINGS)}"
            )
    return readings
