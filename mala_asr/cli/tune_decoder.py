"""Find the decoding weights that give the fewest word errors on a set.

Decodes the set at every point of a grid over the weights that the decoder
has (the language model's, the word score's, CTC's), and prints a table and
the best point as options of 'transcribe'. Tune on a set that you do not
report results on.

  mala-asr tune-decoder --model MODEL manifests/dev-clean-2.csv --write
  mala-asr tune-decoder --model MODEL dev.csv --decoder joint \\
      --ctc-weights 0.2 0.4 0.6
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from mala_asr.arguments import number
from mala_asr.cli.decoding import add_decoding_arguments, decoding_changes

if TYPE_CHECKING:
    from mala_asr.inference.tuning import Point

HELP = "tune the weights of a decoder on a set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "manifest", metavar="MANIFEST", help="the set to tune on (.csv)"
    )
    parser.add_argument(
        "--model",
        required=True,
        metavar="MODEL",
        help="model folder made by 'mala-asr export'",
    )
    for name, what in (
        ("lm-weights", "weights of the language model"),
        ("word-scores", "word scores"),
        ("ctc-weights", "shares of CTC against the attention decoder"),
    ):
        parser.add_argument(
            f"--{name}",
            type=number,
            nargs="+",
            metavar="X",
            help=f"{what} to try",
        )
    parser.add_argument(
        "--write",
        action="store_true",
        help="make the best point what MODEL is decoded with",
    )
    parser.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda or cuda:N (default: auto, a GPU if there is one)",
    )
    add_decoding_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table and the best options.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0; what cannot be tuned raises a MalaError.
    """
    from mala_asr.data.manifest import read_manifest
    from mala_asr.devices import find_device
    from mala_asr.errors import UsageError
    from mala_asr.inference.model_folder import (
        load_model_folder,
        set_decoding,
    )
    from mala_asr.inference.pretrained import pretrained_folder, resolve
    from mala_asr.inference.tuning import EncodedSet, at_edge, grid_of, tune

    if args.write and resolve(args.model).resolve() == pretrained_folder():
        raise UsageError(
            "--write would change the installed package; copy "
            f"{pretrained_folder()} and give the copy as --model"
        )
    if args.write and args.lm is not None:
        raise UsageError(
            "--write keeps the model folder's own language model; put "
            f"{args.lm} there with 'mala-asr export --lm', and leave --lm out"
        )
    device = find_device(args.device)
    utterances = read_manifest(args.manifest)
    loaded = load_model_folder(args.model)
    changes = decoding_changes(args)
    options = loaded.decoding(changes)
    given = {
        "lm_weight": args.lm_weights,
        "word_score": args.word_scores,
        "ctc_weight": args.ctc_weights,
    }
    grid = grid_of(options, given)
    dev = EncodedSet(loaded.model.to(device), loaded.tokenizer, utterances)
    print("\t".join([*grid, "WER", "sub", "del", "ins"]))
    best = tune(dev, options, grid, _print_row)
    chosen = {"decoder": options.decoder, **best.values}
    flags = (f"--{k.replace('_', '-')} {v}" for k, v in chosen.items())
    print("best:", " ".join(flags))
    for name in at_edge(best, grid):
        print(
            f"mala-asr: the best {name} is at the edge of those tried; a "
            "wider grid may find better",
            file=sys.stderr,
        )
    if args.write:
        set_decoding(args.model, best.options)
        print(f"mala-asr: written to {args.model}", file=sys.stderr)
    return 0


def _print_row(point: Point) -> None:
    found = point.report
    rate = "n/a" if found.wer is None else f"{found.wer:.2f}"
    counts = (found.substitutions, found.deletions, found.insertions)
    cells = [*point.values.values(), rate, *counts]
    print("\t".join(map(str, cells)), flush=True)
