"""Estimate an n-gram language model for ctc_beam and rescore.

Writes <unit>.arpa, <unit>.bin (KenLM's binary of the same) and <unit>.json,
and prints how well it predicts the held-out texts. A model of words binds the
search to the words of TEXT; one of pieces does not.

  mala-asr train-lm lm_text.txt.gz manifests/train-clean-5.csv \\
      --heldout manifests/dev-clean-2.csv -o lm
  mala-asr train-lm lm_text.txt.gz --unit piece \\
      --tokenizer MODEL/tokenizer.model --heldout dev.txt -o lm
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mala_asr.arguments import positive
from mala_asr.errors import UsageError

HELP = "estimate an n-gram language model"

# Words of context for words; for letters as many as KenLM is built for.
ORDERS = {"word": 3, "piece": 6}


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
        help="a manifest (.csv), or a text file, also .gz, one sentence a line",
    )
    parser.add_argument(
        "--heldout",
        required=True,
        metavar="TEXT",
        help="a manifest or text file to measure the language model on",
    )
    parser.add_argument(
        "-o",
        "--output-dir",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder for the language model",
    )
    parser.add_argument(
        "--unit",
        default="word",
        choices=list(ORDERS),
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--order",
        type=positive,
        metavar="N",
        help="units of the longest n-gram, 2 to 6 (default: 3 words, 6 pieces)",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="FILE",
        help="the model's tokenizer.model; for pieces",
    )


def run(args: argparse.Namespace) -> int:
    """Write the language model and print its path and its figures.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        The exit status.
    """
    if (args.unit == "piece") != (args.tokenizer is not None):
        raise UsageError(
            "--tokenizer and --unit piece go together: words need no "
            "tokenizer, and pieces are the tokenizer's"
        )
    from mala_asr.data.tokenizer import load_tokenizer, read_texts
    from mala_asr.decoding.ngram import perplexity, train_language_model

    tokenizer = args.tokenizer and load_tokenizer(args.tokenizer)
    heldout = read_texts(args.heldout)
    texts = [text for path in args.texts for text in read_texts(path)]
    order = args.order or ORDERS[args.unit]
    lm = train_language_model(
        texts, args.output_dir, args.unit, order, tokenizer
    )
    found = perplexity(lm, heldout, tokenizer)
    share = 100 * found.unknown / found.units if found.units else 0.0
    print(lm.path)
    print(
        f"held out: perplexity {found.value:.2f}; {share:.2f} % out of "
        f"vocabulary ({found.unknown} of {found.units} {args.unit}s)"
    )
    return 0
