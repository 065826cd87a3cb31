"""Print the word error rate of hypotheses against references.

The two files are trn (`words (id)`), Kaldi text (`id words`) or plain lines,
and are paired by id; plain lines by their number. Words are compared as they
are written, case and punctuation included.
"""

import argparse
import sys

from mala_asr.scoring import (
    FORMATS,
    ScoringError,
    read_transcripts,
    score,
    summary_text,
    wer_text,
)

HELP = "print the word error rate of a file of hypotheses"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "ref", metavar="REF", help="file of what was said (references)"
    )
    parser.add_argument(
        "hyp", metavar="HYP", help="file of what was recognized (hypotheses)"
    )
    parser.add_argument(
        "--format",
        choices=("auto", *FORMATS),
        default="auto",
        help="format of both files (default: auto, told from their lines)",
    )
    parser.add_argument(
        "--align",
        action="store_true",
        help="also print each utterance word by word",
    )


def run(args: argparse.Namespace) -> int:
    """Print the report on stdout.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0; a file that cannot be scored raises ScoringError.
    """
    references, ref_format = read_transcripts(args.ref, args.format)
    hypotheses, hyp_format = read_transcripts(args.hyp, args.format)
    if ref_format != hyp_format:
        raise ScoringError(
            f"{args.ref} looks like {ref_format} and {args.hyp} like "
            f"{hyp_format}; name the format of both with --format"
        )
    if args.format == "auto":
        print(f"mala-asr: format: {ref_format}", file=sys.stderr)
    report = score(references, hypotheses)
    print(wer_text(report) if args.align else summary_text(report), end="")
    return 0
