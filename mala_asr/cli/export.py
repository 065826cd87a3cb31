"""Make a model folder of a training run.

The model folder holds the averaged weights, the tokenizer, the settings and
a model card, as data: loading it runs no code. The run is only read.

  mala-asr export results/mini_librispeech_mala/1986 my-model
  mala-asr transcribe --model my-model recording.wav
"""

import argparse
import shlex
import sys

from mala_asr.cli.arguments import positive

HELP = "make a model folder of a training run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "run_folder", metavar="RUN", help="output folder of a training"
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="folder to write; a model folder that is there is replaced",
    )
    parser.add_argument(
        "--average",
        type=positive,
        metavar="N",
        help="average the N best checkpoints (default: as many as the run's "
        "evaluation)",
    )
    parser.add_argument(
        "--lm",
        metavar="FILE",
        help="language model of 'mala-asr train-lm', or an ARPA file, to put "
        "into the folder; 'transcribe' then uses it (default: that of the "
        "run's evaluation, if any)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder and print where it is.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0; what cannot be exported raises a MalaError.
    """
    from mala_asr.inference.export import export_run

    print(export_run(args.run_folder, args.model, args.average, args.lm))
    print(
        "mala-asr: try it: mala-asr transcribe --model "
        f"{shlex.quote(args.model)} recording.wav",
        file=sys.stderr,
    )
    return 0
