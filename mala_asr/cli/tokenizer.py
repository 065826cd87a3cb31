"""Train a SentencePiece tokenizer on manifests or text files.

mala-asr tokenizer manifests/train-clean-5.csv --vocab-size 500 -o tokenizer
"""

from __future__ import annotations

import argparse

from mala_asr.arguments import positive

HELP = "train a tokenizer on manifests or text files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The subcommand's parser.
    """
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="+",
        help="a manifest (.csv) or a text file, one utterance a line",
    )
    parser.add_argument(
        "-o",
        "--output-dir",
        required=True,
        metavar="DIR",
        help="folder for tokenizer.model",
    )
    parser.add_argument(
        "--kind",
        default="unigram",
        choices=["char", "unigram", "bpe"],
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--vocab-size",
        type=positive,
        metavar="N",
        help="pieces, the four special ones included; char needs none",
    )


def run(args: argparse.Namespace) -> int:
    """Train the tokenizer and print its path.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        The exit status.
    """
    from mala_asr.data.tokenizer import read_texts, train_tokenizer

    texts = [text for path in args.texts for text in read_texts(path)]
    print(train_tokenizer(texts, args.output_dir, args.vocab_size, args.kind))
    return 0
