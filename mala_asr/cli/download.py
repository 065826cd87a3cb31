"""Fetch LibriSpeech (SLR12) or Mini LibriSpeech (SLR31) from OpenSLR.

Archives are resumed, verified by their MD5 and unpacked; run the same command
again after an interruption. Splits that are there already are left alone.

  mala-asr download mini-librispeech corpora
  mala-asr download librispeech --splits dev-clean,test-clean corpora
"""

from __future__ import annotations

import argparse

from mala_asr.arguments import names

HELP = "fetch LibriSpeech or Mini LibriSpeech from OpenSLR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The subcommand's parser.
    """
    from mala_asr.data.download import CORPORA, OPENSLR

    parser.add_argument("corpus", choices=list(CORPORA))
    parser.add_argument(
        "dest",
        metavar="DEST",
        help="folder that gets LibriSpeech/SPLIT; run again to resume",
    )
    parser.add_argument(
        "--splits",
        type=names,
        metavar="A,B",
        help="which splits (default: all, 60 GB of librispeech): "
        + "; ".join(
            f"{name}: {', '.join(corpus.splits)}"
            for name, corpus in CORPORA.items()
        ),
    )
    parser.add_argument(
        "--base-url",
        default=OPENSLR,
        metavar="URL",
        help="a mirror of OpenSLR's resources (default: %(default)s)",
    )
    parser.add_argument(
        "--keep-archives",
        action="store_true",
        help="keep the archives once they are unpacked",
    )


def run(args: argparse.Namespace) -> int:
    """Fetch the splits and print the folder that holds them.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        The exit status.
    """
    from mala_asr.data.download import download_corpus

    print(
        download_corpus(
            args.corpus,
            args.splits,
            args.dest,
            base_url=args.base_url,
            keep_archives=args.keep_archives,
        )
    )
    return 0
