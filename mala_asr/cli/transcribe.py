"""Transcribe audio with a model folder.

AUDIO is a file, a folder that is searched to its depth, a quoted pattern
such as '*/calls/*.wav', or - for the standard input. Prints the text of one
recording, or a line 'FILE<tab>text' for each of several, in the order given;
a tab, line break or backslash in FILE becomes \\t, \\n, \\r or \\\\ there. With
-o, writes a file for each recording and format; below a folder or pattern the
tree of the inputs is kept, and no two recordings share a file.

  mala-asr transcribe recording.wav
  mala-asr transcribe --model MODEL recordings/ > transcripts.tsv
  mala-asr transcribe --model MODEL -f srt -f json -o subtitles recordings/
  ffmpeg -i talk.mp4 -f wav - | mala-asr transcribe --model MODEL -
  mala-asr transcribe --model MODEL --stream mic
  torchrun --nproc-per-node 4 -m mala_asr.cli transcribe -o texts recordings/

Any format that libsndfile reads, at any sample rate: wav, flac, mp3, ogg,
opus, aiff ...; m4a, mp4, webm and others where ffmpeg is installed. What cannot
be read is reported and the rest goes on; the exit status is then 1. MODEL is
made by 'mala-asr demo' or 'mala-asr export'; one comes with the package.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mala_asr.arguments import positive
from mala_asr.cli.decoding import add_decoding_arguments, decoding_changes
from mala_asr.cli.engine import add_engine_arguments, chosen_engine
from mala_asr.cli.long_form import (
    add_segmentation_arguments,
    chosen_segmentation,
)
from mala_asr.cli.stream import (
    STREAM_DECODING,
    add_stream_arguments,
    check_stream_arguments,
    refuse_without_stream,
    run_stream,
)
from mala_asr.errors import MalaError, UsageError
from mala_asr.inference.cues import LINE_COUNT, LINE_WIDTH
from mala_asr.inference.inputs import (
    MIX,
    SPLIT,
    STDIN,
    choose_channels,
    find_recordings,
)
from mala_asr.inference.manifests import read_recordings
from mala_asr.inference.names import distinct
from mala_asr.inference.outputs import OutputFolder
from mala_asr.inference.pretrained import PRETRAINED, introduction
from mala_asr.inference.processes import Processes
from mala_asr.inference.transcript import Recording, Transcript
from mala_asr.inference.writers import FORMATS, Style

if TYPE_CHECKING:
    from mala_asr.inference.transcriber import Transcriber

# So that a line of output is one file, whatever its name.
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})

# Formats that an option changes.
_WORD_TIMED = ("json", "vtt", "tsv")
_LINED = ("srt", "vtt")

_BATCH_SIZE = 8

HELP = "print what is said in audio files, or write subtitles"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "audio",
        metavar="AUDIO",
        nargs="*",
        help="file, folder, quoted pattern, or - for the standard input",
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="model folder made by 'mala-asr export' (default: "
        f"{PRETRAINED}, which comes with this package: a start, with many "
        "errors)",
    )
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        help="CSV or JSON lines of recordings in place of AUDIO: path (wav, "
        "audio_filepath ...) and perhaps id, start and stop, or offset and "
        "duration, in seconds",
    )
    parser.add_argument(
        "--channel",
        type=_channel,
        default=MIX,
        metavar="mix|split|N",
        help="average the channels, transcribe each, or only the Nth, from 1 "
        "(default: mix)",
    )
    _add_output(parser)
    _add_running(parser)
    add_segmentation_arguments(parser)
    add_stream_arguments(parser)
    add_engine_arguments(parser)
    add_decoding_arguments(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f",
        "--output-format",
        choices=tuple(FORMATS),
        action="append",
        help="can be given several times with -o (default: txt); srt, vtt, "
        "tsv and textgrid hold one recording each and need -o for more",
    )
    output.add_argument(
        "-o",
        "--output-dir",
        metavar="DIR",
        help="write a file for each recording and format below this folder",
    )
    existing = output.add_mutually_exclusive_group()
    existing.add_argument(
        "--skip-existing",
        action="store_const",
        const="skip",
        dest="existing",
        help="with -o: keep the files that are there, and transcribe what "
        "lacks some; so an interrupted run goes on",
    )
    existing.add_argument(
        "--overwrite",
        action="store_const",
        const="overwrite",
        dest="existing",
        help="with -o: replace the files that are there",
    )
    output.add_argument(
        "--word-timestamps",
        action="store_true",
        help="times of the words too: listed in json, marked in vtt, a line "
        "for each in tsv (ctm and textgrid always have them)",
    )
    output.add_argument(
        "--max-line-width",
        type=positive,
        metavar="N",
        help=f"characters in a line of srt and vtt (default: {LINE_WIDTH})",
    )
    output.add_argument(
        "--max-line-count",
        type=positive,
        metavar="N",
        help=f"lines of a subtitle of srt and vtt (default: {LINE_COUNT})",
    )


def _add_running(parser: argparse.ArgumentParser) -> None:
    running = parser.add_argument_group("running")
    running.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="recordings decoded together; changes the speed, not the text "
        f"(default: {_BATCH_SIZE})",
    )
    running.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda or cuda:N (default: auto, a GPU if there is one)",
    )
    running.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="CPU threads to compute with (default: torch's choice; with "
        "torchrun, a process' part of the machine's)",
    )
    running.add_argument(
        "--no-progress",
        action="store_true",
        help="no progress bar on a terminal, nor words of --stream before "
        "their line is final",
    )


def run(args: argparse.Namespace) -> int:
    """Print the transcripts, or write them into a folder.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0, or 1 if a recording could not be transcribed.
    """
    processes = Processes.of_environment()
    if processes.count > 1 and (args.stream or STDIN in args.audio):
        raise UsageError(
            "a stream or the standard input cannot be shared out; start it "
            "without torchrun"
        )
    if args.stream:
        check_stream_arguments(args)
        return run_stream(
            args, _transcriber(args, (), STREAM_DECODING, processes)
        )
    refuse_without_stream(args)
    formats, style = _formats_and_style(args)
    part = _Part()
    with (
        tempfile.TemporaryDirectory(prefix="mala-asr-") as spool,
        processes.together(),
    ):
        job = processes.decide(
            lambda: _plan(args, formats, style, spool, part.failures)
        )
        lengths = processes.decide(lambda: _lengths(job.waiting, processes))
        waiting = processes.share(job.waiting, lengths)
        if waiting:
            _transcribe(args, formats, job.output, waiting, part, processes)
        parts = processes.gather(part)
        return processes.decide(lambda: _report(job, parts))


@dataclass(frozen=True)
class _Job:
    """What is to be done, the same in every process."""

    output: _Output
    total: int
    waiting: Sequence[Recording]


@dataclass
class _Part:
    """What one process has done."""

    failures: _Failures = field(default_factory=lambda: _Failures())
    texts: dict[Recording, str] = field(default_factory=dict)
    seconds: float = 0.0
    elapsed: float = 0.0


def _plan(
    args: argparse.Namespace,
    formats: list[str],
    style: Style,
    spool: str,
    failures: _Failures,
) -> _Job:
    recordings = _recordings(args, spool, failures)
    total = len(recordings) + len(failures.labels)
    output = _output(args, formats, style, total)
    waiting = output.to_do(recordings)
    if len(waiting) < len(recordings):
        done = len(recordings) - len(waiting)
        _say(f"{done} of {total} recordings are there already")
    return _Job(output, total, waiting)


def _lengths(
    recordings: Sequence[Recording], processes: Processes
) -> list[float]:
    """Seconds of each, where there is work to share out."""
    if processes.count == 1:
        return [0.0] * len(recordings)
    from mala_asr.data.audio import AudioError
    from mala_asr.inference.transcriber import duration

    lengths = []
    for recording in recordings:
        try:
            lengths.append(duration(recording))
        except AudioError:
            lengths.append(0.0)  # whoever reads it will say what is wrong
    return lengths


def _report(job: _Job, parts: Sequence[_Part]) -> int:
    """Say how it went, after printing what several processes have kept."""
    texts = {r: text for part in parts for r, text in part.texts.items()}
    for recording in job.waiting:
        print(texts.get(recording, ""), end="")
    sys.stdout.flush()
    _say_speed(
        sum(part.seconds for part in parts),
        max(part.elapsed for part in parts),
    )
    failed = [label for part in parts for label in part.failures.labels]
    if failed and job.total > 1:
        names = ", ".join(failed)
        _say(f"{len(failed)} of {job.total} inputs failed: {names}")
    return 1 if failed else 0


def _recordings(
    args: argparse.Namespace, spool: str, failures: _Failures
) -> list[Recording]:
    if bool(args.audio) == (args.manifest is not None):
        raise UsageError("give either AUDIO or --manifest FILE")
    if args.manifest is not None:
        listed = read_recordings(args.manifest)
        return choose_channels(listed, args.channel)
    found = find_recordings(args.audio, spool, failures.add)
    return distinct(choose_channels(found, args.channel))


def _transcribe(
    args: argparse.Namespace,
    formats: Sequence[str],
    output: _Output,
    recordings: Sequence[Recording],
    part: _Part,
    processes: Processes,
) -> None:
    from tqdm import tqdm

    decoding = decoding_changes(args)
    transcriber = _transcriber(args, formats, decoding, processes)
    start = time.perf_counter()
    bar = tqdm(
        total=len(recordings),
        unit="file",
        disable=_no_progress(args) or not processes.first,
    )
    with bar:
        # In a folder the order does not matter, and what is written early
        # is not lost if the run is interrupted.
        for transcript in transcriber.transcribe(
            recordings, part.failures.of, in_order=args.output_dir is None
        ):
            part.seconds += transcript.duration
            if processes.count > 1 and isinstance(output, _Stdout):
                # The first process prints all of them in order.
                part.texts[transcript.recording] = output.line(transcript)
            else:
                output.write(transcript)
            bar.update()
    part.elapsed = time.perf_counter() - start


def _transcriber(
    args: argparse.Namespace,
    formats: Sequence[str],
    decoding: Mapping[str, Any],
    processes: Processes,
) -> Transcriber:
    engine, segmentation = chosen_engine(args), chosen_segmentation(args)
    import torch

    from mala_asr.inference.transcriber import Transcriber

    if args.model is None and processes.first:
        _say(f"no --model: {introduction()}")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    elif processes.count > 1:
        torch.set_num_threads(processes.threads)
    processes.choose_gpu()
    return Transcriber(
        args.model or PRETRAINED,
        device=args.device,
        decoding=decoding,
        batch_size=args.batch_size or _BATCH_SIZE,
        word_times=any(FORMATS[name].timed for name in formats),
        engine=engine,
        segmentation=segmentation,
    )


class _Failures:
    """What could not be transcribed; a line is said for each."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def add(self, label: str, error: MalaError) -> None:
        self.labels.append(label.translate(_ESCAPES))
        _say(f"error: {str(error).translate(_ESCAPES)}")

    def of(self, recording: Recording, error: MalaError) -> None:
        if recording.source == STDIN:
            # It was kept in a file that nobody knows of.
            text = str(error).replace(recording.path, "standard input")
            error = MalaError(text)
        self.add(recording.label, error)


class _Stdout:
    """Prints transcripts as they come."""

    def __init__(self, name: str, style: Style, several: bool) -> None:
        self._name = name
        self._style = style
        self._labeled = several and name == "txt"

    def to_do(self, recordings: Sequence[Recording]) -> Sequence[Recording]:
        return recordings

    def line(self, transcript: Transcript) -> str:
        label = ""
        if self._labeled:
            label = f"{transcript.recording.label.translate(_ESCAPES)}\t"
        return label + FORMATS[self._name].render(transcript, self._style)

    def write(self, transcript: Transcript) -> None:
        print(self.line(transcript), end="", flush=True)


_Output = OutputFolder | _Stdout


def _formats_and_style(args: argparse.Namespace) -> tuple[list[str], Style]:
    """What is written, after refusing options that would change nothing."""
    formats = list(dict.fromkeys(args.output_format or ["txt"]))
    if args.output_dir is None and args.existing is not None:
        raise UsageError("--skip-existing and --overwrite need -o DIR")
    if args.output_dir is None and len(formats) > 1:
        raise UsageError("several formats need -o DIR to write into")
    for option, value, affected in (
        ("--word-timestamps", args.word_timestamps, _WORD_TIMED),
        ("--max-line-width", args.max_line_width, _LINED),
        ("--max-line-count", args.max_line_count, _LINED),
    ):
        if value and not set(formats) & set(affected):
            raise UsageError(
                f"{option} changes nothing in {', '.join(formats)}; leave it "
                f"out, or choose -f {' or '.join(affected)}"
            )
    given: dict[str, Any] = {
        "word_times": args.word_timestamps,
        "line_width": args.max_line_width,
        "line_count": args.max_line_count,
    }
    style = Style(**{k: v for k, v in given.items() if v is not None})
    return formats, style


def _output(
    args: argparse.Namespace, formats: list[str], style: Style, count: int
) -> _Output:
    if args.output_dir is not None:
        existing = args.existing or "refuse"
        return OutputFolder(args.output_dir, formats, style, existing)
    (name,) = formats
    if count > 1 and not FORMATS[name].joins:
        raise UsageError(
            f"{name} holds one recording; give -o DIR to write {count} of them"
        )
    return _Stdout(name, style, count > 1)


def _channel(text: str) -> str:
    if text in (MIX, SPLIT) or (text.isascii() and text.isdigit()):
        if text.strip("0"):
            return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither {MIX}, {SPLIT} nor a channel from 1 on"
    )


def _no_progress(args: argparse.Namespace) -> bool:
    # Not amid the transcripts.
    mixed = args.output_dir is None and sys.stdout.isatty()
    return args.no_progress or mixed or not sys.stderr.isatty()


def _say_speed(seconds: float, elapsed: float) -> None:
    if seconds:
        _say(
            f"{seconds:.1f} s of audio in {elapsed:.1f} s, "
            f"RTF {elapsed / seconds:.4f} ({seconds / elapsed:.1f} x real time)"
        )


def _say(line: str) -> None:
    print(f"mala-asr: {line}", file=sys.stderr)
