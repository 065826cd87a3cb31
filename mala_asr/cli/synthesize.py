"""Synthesize a multi-speaker English corpus in LibriSpeech's layout.

Sentences come from a written grammar, voices from eSpeak NG. Training, dev and
test have their own voices and sentences. An interrupted run goes on.

  mala-asr synthesize corpus --minutes 45
"""

from __future__ import annotations

import argparse

from mala_asr.arguments import positive, positive_float

HELP = "synthesize a multi-speaker English corpus in LibriSpeech's layout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The subcommand's parser.
    """
    parser.add_argument(
        "dest",
        metavar="DEST",
        help="folder that gets LibriSpeech/synth-{train,dev,test}",
    )
    parser.add_argument(
        "--minutes",
        type=positive_float,
        default=45.0,
        metavar="M",
        help="training speech; dev and test get a fifteenth each "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="another seed gives other sentences (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="processes (default: one for each CPU)",
    )


def run(args: argparse.Namespace) -> int:
    """Speak the corpus and print its folder.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        The exit status.
    """
    from mala_asr.data.synthetic import make_corpus

    print(make_corpus(args.dest, args.minutes, args.seed, args.workers))
    return 0
