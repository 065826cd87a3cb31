"""What computes the encoder, as subcommands take it."""

from __future__ import annotations

import argparse

from mala_asr.inference.engine import (
    BACKENDS,
    DTYPES,
    QUANTIZATIONS,
    Engine,
)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --backend, --dtype, --compile and --quantize.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    group = parser.add_argument_group("speed of the encoder")
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        default="torch",
        help="onnx runs the model.onnx of the folder, see 'mala-asr export "
        "--onnx', on the CPU (default: torch)",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="of the matrix products and convolutions (default: float32)",
    )
    group.add_argument(
        "--compile",
        action="store_true",
        help="compile the feed-forward modules first, for long jobs",
    )
    group.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        help="round the matrices to 8 bits, on the CPU",
    )


def chosen_engine(args: argparse.Namespace) -> Engine:
    """Read what was chosen.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments of a command that has them.

    Returns
    -------
    Engine
        The choice.

    Raises
    ------
    UsageError
        When the choices do not go together.
    """
    return Engine(args.backend, args.dtype, args.compile, args.quantize)
