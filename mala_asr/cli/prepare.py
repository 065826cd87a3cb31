"""Write a CSV manifest for each split of a corpus in LibriSpeech's layout.

The layout is SPLIT/SPEAKER/CHAPTER/*.flac with *.trans.txt; split names are
free. A manifest that was made from the same files is kept as it is.

  mala-asr prepare corpora manifests --splits train-clean-5,dev-clean-2
"""

from __future__ import annotations

import argparse

from mala_asr.arguments import names, positive

HELP = "write CSV manifests of a corpus in LibriSpeech's layout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The subcommand's parser.
    """
    parser.add_argument(
        "data_folder",
        metavar="DATA",
        help="folder that holds the splits, or its LibriSpeech folder",
    )
    parser.add_argument(
        "save_folder", metavar="MANIFESTS", help="folder for SPLIT.csv"
    )
    parser.add_argument(
        "--splits",
        type=names,
        metavar="A,B",
        help="names of the splits' folders (default: all that are there)",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="threads that read headers (default: one for each CPU)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the manifests and print their paths.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        The exit status.
    """
    from mala_asr.data.librispeech import find_splits, prepare_librispeech

    splits = args.splits or find_splits(args.data_folder)
    manifests = prepare_librispeech(
        args.data_folder, args.save_folder, splits, workers=args.workers
    )
    for path in manifests.values():
        print(path)
    return 0
