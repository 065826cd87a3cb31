"""`mala-asr transcribe --stream`: speech printed while it is said."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mala_asr.arguments import number, positive_float
from mala_asr.cli.decoding import decoding_changes
from mala_asr.errors import MalaError, UsageError

if TYPE_CHECKING:
    from mala_asr.inference.stream import StreamResult
    from mala_asr.inference.transcriber import Transcriber

STDIN, MICROPHONE = "-", "mic"

# Bytes that are read at once; fewer where fewer are there.
_BLOCK = 1 << 16

# What audio files begin with, which raw audio is taken for noise.
_HEADERS = {b"RIFF": "WAV", b"fLaC": "FLAC", b"OggS": "Ogg", b"ID3": "MP3"}

# What a stream is decoded with, whatever its model folder prefers.
STREAM_DECODING = {"decoder": "ctc_greedy"}

# Options of files that a stream has no use for, and their defaults.
_FILE_OPTIONS = {
    "manifest": None,
    "channel": "mix",
    "output_dir": None,
    "existing": None,
    "word_timestamps": False,
    "max_line_width": None,
    "max_line_count": None,
    "segment": None,
    "chunk_length": None,
    "overlap": None,
    "batch_size": None,
    "backend": "torch",
    "dtype": "float32",
}


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --stream and its options.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    group = parser.add_argument_group("streams")
    group.add_argument(
        "--stream",
        action="store_true",
        help="transcribe while it is said: AUDIO is - for raw audio on the "
        "standard input (16-bit, mono, at the model's rate) or mic for the "
        "microphone; a line for each stretch of speech, or with -f json for "
        "each partial and final result. Best with a model trained with chunks, "
        "such as mini_librispeech_streaming",
    )
    group.add_argument(
        "--stream-chunk",
        type=positive_float,
        metavar="S",
        help="seconds of a chunk: what is said shows up after its chunk "
        "(default: 0.64)",
    )
    group.add_argument(
        "--left-context",
        type=number,
        metavar="S",
        help="seconds of the past that are seen (default: all of it)",
    )


def refuse_without_stream(args: argparse.Namespace) -> None:
    """Refuse a stream's options where there is no stream.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Raises
    ------
    UsageError
        If one was given.
    """
    for name in ("stream_chunk", "left_context"):
        if getattr(args, name) is not None:
            raise UsageError(f"{_flag(name)} needs --stream")


def check_stream_arguments(args: argparse.Namespace) -> None:
    """Refuse what a stream would ignore.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Raises
    ------
    UsageError
        For the first thing that makes no sense.
    """
    if args.audio not in ([STDIN], [MICROPHONE]):
        raise UsageError(
            "--stream takes one input: - for raw audio on the standard input, "
            "or mic for the microphone"
        )
    for name, default in _FILE_OPTIONS.items():
        if getattr(args, name) != default:
            raise UsageError(f"{_flag(name)} is not for --stream; leave it out")
    if args.output_format not in (None, ["txt"], ["json"]):
        raise UsageError("a stream is printed as -f txt or -f json")
    changes = {k: v for k, v in decoding_changes(args).items() if v is not None}
    if changes not in ({}, STREAM_DECODING):
        raise UsageError(
            "a stream is decoded with ctc_greedy; leave out other decoding "
            "options"
        )
    if (args.left_context or 0.0) < 0.0:
        raise UsageError(
            f"--left-context is {args.left_context:g} s; give 0 or more"
        )


def run_stream(args: argparse.Namespace, transcriber: Transcriber) -> int:
    """Print what is said until the input ends or Ctrl-C.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.
    transcriber : Transcriber
        Has the model.

    Returns
    -------
    int
        0.

    Raises
    ------
    MalaError
        If the input is no raw audio, or there is no microphone.
    """
    from mala_asr.inference.stream import CHUNK

    stream = transcriber.stream(args.stream_chunk or CHUNK, args.left_context)
    as_json = args.output_format == ["json"]
    live = sys.stderr.isatty() and not (as_json or args.no_progress)
    show = _Printer(as_json, live)
    rate = transcriber.sample_rate
    microphone = args.audio == [MICROPHONE]
    try:
        for data in _microphone(rate) if microphone else _stdin(rate):
            show.results(stream.push_pcm(data))
    except KeyboardInterrupt:
        # That is how one ends a recording.
        if not microphone:
            show.results(stream.finish())
            raise
    show.results(stream.finish())
    return 0


def _microphone(rate: int) -> Iterator[bytes]:
    from mala_asr.inference.microphone import listen

    blocks = listen(rate)
    first = next(blocks)
    print("mala-asr: listening; Ctrl-C ends", file=sys.stderr)
    yield first
    yield from blocks


def _stdin(rate: int) -> Iterator[bytes]:
    first = True
    while data := os.read(sys.stdin.fileno(), _BLOCK):
        if first:
            _refuse_files(data, rate)
        first = False
        yield data


def _refuse_files(data: bytes, rate: int) -> None:
    for header, name in _HEADERS.items():
        if data.startswith(header):
            raise MalaError(
                f"the standard input is {name}, not raw audio; decode it: "
                f"ffmpeg -i - -f s16le -ac 1 -ar {rate} - | mala-asr ..."
            )


class _Printer:
    """Final results on stdout; partial ones where they can be overwritten."""

    def __init__(self, as_json: bool, live: bool) -> None:
        self._as_json = as_json
        self._live = live
        self._shown = ""

    def results(self, results: list[StreamResult]) -> None:
        for result in results:
            if self._as_json:
                print(_as_json(result), flush=True)
            elif result.final:
                self._overwrite("")
                print(result.text, flush=True)
            else:
                self._overwrite(result.text)

    def _overwrite(self, text: str) -> None:
        if self._live:
            width = len(self._shown)
            print(f"\r{text:{width}}\r{text}", end="", file=sys.stderr)
            sys.stderr.flush()
            self._shown = text


def _as_json(result: StreamResult) -> str:
    return json.dumps(
        {
            "final": result.final,
            "start": round(result.start, 3),
            "end": round(result.end, 3),
            "heard": round(result.heard, 3),
            "text": result.text,
            "words": [dataclasses.asdict(word) for word in result.words],
        },
        ensure_ascii=False,
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
