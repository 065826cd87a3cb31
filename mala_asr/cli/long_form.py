"""What to do with long recordings, as subcommands take it."""

from __future__ import annotations

import argparse

from mala_asr.arguments import number, positive_float
from mala_asr.errors import UsageError
from mala_asr.inference.segmentation import (
    CHUNK_LENGTH,
    WAYS,
    Segmentation,
)

# The ways that have chunks, and those whose chunks overlap.
_CHUNKED = ("auto", "chunks", "silence")
_OVERLAPPING = ("auto", "chunks")


def add_segmentation_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --segment, --chunk-length and --overlap.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    group = parser.add_argument_group("long recordings")
    group.add_argument(
        "--segment",
        choices=WAYS,
        help="one-pass; chunks that overlap, joined by the times of their "
        "words; silence: cut at the quietest moments; auto: one pass if the "
        "memory suffices, else chunks, and says so (default: auto)",
    )
    group.add_argument(
        "--chunk-length",
        type=positive_float,
        metavar="S",
        help="seconds of a chunk or segment at most; shorter recordings are "
        f"decoded whole (default: {CHUNK_LENGTH:g}); alone, it asks for "
        "chunks",
    )
    group.add_argument(
        "--overlap",
        type=number,
        metavar="S",
        help="seconds that chunks share (default: an eighth of their length)",
    )


def chosen_segmentation(args: argparse.Namespace) -> Segmentation:
    """Read what was chosen.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments of a command that has them.

    Returns
    -------
    Segmentation
        The choice.

    Raises
    ------
    UsageError
        When the choices do not go together.
    """
    way = args.segment
    if way is None:
        alone = args.chunk_length is not None or args.overlap is not None
        way = "chunks" if alone else "auto"
    for option, value, ways in (
        ("--chunk-length", args.chunk_length, _CHUNKED),
        ("--overlap", args.overlap, _OVERLAPPING),
    ):
        if value is not None and way not in ways:
            raise UsageError(
                f"{option} changes nothing with --segment {way}; leave it out, "
                f"or choose {' or '.join(ways)}"
            )
    length = CHUNK_LENGTH if args.chunk_length is None else args.chunk_length
    return Segmentation(way, length, args.overlap)
