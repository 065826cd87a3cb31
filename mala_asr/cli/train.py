"""Train and evaluate a model as a config file says.

The same as `python recipes/LibriSpeech/train.py`. Any key of the config can
be given after it, and so can SpeechBrain's run options:

  mala-asr train hparams/mini_librispeech_mala.yaml \\
      --data_folder data --number_of_epochs 40 --device cpu

'mala-asr train CONFIG --help' lists the config's keys and the run options.
"""

import argparse

HELP = "train a model as a config file says"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "hparams", metavar="CONFIG", help="a file of hparams/, or your own"
    )
    parser.add_argument(
        "overrides",
        metavar="--KEY VALUE",
        nargs=argparse.REMAINDER,
        help="keys of the config to change, and SpeechBrain's run options",
    )


def run(args: argparse.Namespace) -> int:
    """Hand the arguments to the training script.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        The script's exit status.
    """
    from mala_asr.training.train import main

    return main([args.hparams, *args.overrides])
