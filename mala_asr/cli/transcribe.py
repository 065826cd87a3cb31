"""Transcribe audio files with a model folder.

Prints the text of one file, or a line 'FILE<tab>text' for each of several,
in the order given; a tab, line break or backslash in FILE becomes \\t, \\n,
\\r or \\\\ there. Any format that libsndfile reads, at any sample rate:
wav, flac, mp3, ogg, aiff ...

  mala-asr transcribe --model MODEL recording.wav
  mala-asr transcribe --model MODEL *.flac > transcripts.tsv

A file that cannot be read is reported and the others go on; the exit status
is then 1. The model is made by 'mala-asr demo' or 'mala-asr export'.
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from mala_asr.cli.arguments import positive
from mala_asr.cli.decoding import add_decoding_arguments, decoding_changes

if TYPE_CHECKING:
    from mala_asr.data.audio import AudioError

# So that a line of output is one file, whatever its name.
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})

HELP = "print what is said in audio files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "audio", metavar="FILE", nargs="+", help="audio files to transcribe"
    )
    parser.add_argument(
        "--model",
        required=True,
        metavar="MODEL",
        help="model folder made by 'mala-asr export'",
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=8,
        metavar="N",
        help="files decoded together; changes the speed, not the text "
        "(default: 8)",
    )
    parser.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda or cuda:N (default: auto, a GPU if there is one)",
    )
    add_decoding_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the transcripts on stdout.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0, or 1 if a file could not be read.
    """
    from mala_asr.inference.transcriber import Transcriber

    failed: list[str] = []

    def report(path: str, error: "AudioError") -> None:
        failed.append(path.translate(_ESCAPES))
        line = str(error).translate(_ESCAPES)
        print(f"mala-asr: error: {line}", file=sys.stderr)

    transcriber = Transcriber(
        args.model,
        device=args.device,
        decoding=decoding_changes(args),
        batch_size=args.batch_size,
    )
    start = time.perf_counter()
    seconds = 0.0
    for transcript in transcriber.transcribe(args.audio, report):
        seconds += transcript.duration
        name = transcript.path.translate(_ESCAPES)
        label = f"{name}\t" if len(args.audio) > 1 else ""
        print(f"{label}{transcript.text}", flush=True)
    _say_speed(seconds, time.perf_counter() - start)
    if failed and len(args.audio) > 1:
        print(
            f"mala-asr: {len(failed)} of {len(args.audio)} files failed: "
            + ", ".join(failed),
            file=sys.stderr,
        )
    return 1 if failed else 0


def _say_speed(seconds: float, elapsed: float) -> None:
    if seconds:
        print(
            f"mala-asr: {seconds:.1f} s of audio in {elapsed:.1f} s, "
            f"{seconds / elapsed:.1f} x real time",
            file=sys.stderr,
        )
