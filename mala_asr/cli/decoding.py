"""The decoding options, as several subcommands take them."""

from __future__ import annotations

import argparse
from typing import Any

from mala_asr.arguments import number, positive
from mala_asr.decoding import DECODERS

_OPTIONS: dict[str, dict[str, Any]] = {
    "beam_size": {
        "type": positive,
        "metavar": "N",
        "help": "hypotheses kept at each step (ctc_beam, rescore: 100, "
        "joint: 10)",
    },
    "token_beam": {
        "type": positive,
        "metavar": "N",
        "help": "tokens tried at each frame (ctc_beam, rescore: 30)",
    },
    "beam_threshold": {
        "type": number,
        "metavar": "X",
        "help": "drop hypotheses this much worse than the best (ctc_beam, "
        "rescore: 25)",
    },
    "lm": {
        "metavar": "FILE",
        "help": "language model of 'mala-asr train-lm', an ARPA file, or "
        "none (ctc_beam, rescore: the one in the model folder)",
    },
    "lm_weight": {
        "type": number,
        "metavar": "X",
        "help": "weight of the language model (0.5)",
    },
    "word_score": {
        "type": number,
        "metavar": "X",
        "help": "added for each word (ctc_beam, rescore: 0)",
    },
    "n_best": {
        "type": positive,
        "metavar": "N",
        "help": "hypotheses that the attention decoder reorders (rescore: 20)",
    },
    "ctc_weight": {
        "type": number,
        "metavar": "X",
        "help": "share of CTC against the attention decoder (joint, rescore: "
        "0.4)",
    },
}


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --decoder and the options of the decoders.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    group = parser.add_argument_group(
        "decoding", "what is not given is as the model was evaluated or tuned"
    )
    group.add_argument(
        "--decoder",
        choices=DECODERS,
        help="ctc_greedy is fastest; ctc_beam searches with a language model, "
        "joint with the attention decoder; rescore reorders the best of "
        "ctc_beam by the attention decoder",
    )
    for name, settings in _OPTIONS.items():
        group.add_argument(f"--{name.replace('_', '-')}", **settings)


def decoding_changes(args: argparse.Namespace) -> dict[str, Any]:
    """Collect the decoding options that were given.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments of a command that has them.

    Returns
    -------
    dict[str, Any]
        By name, for `DecodingOptions.changed`; None where not given.
    """
    return {name: getattr(args, name) for name in ("decoder", *_OPTIONS)}
