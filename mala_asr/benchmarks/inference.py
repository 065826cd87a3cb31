"""From an audio file to words: time and memory against its length.

The same recordings, joined and repeated to each length, go to this project's
engines, to SpeechBrain's attentions in the same Conformer, to Whisper and to
PocketSphinx. Each works in a process of its own and they take turns on every
length, so that a busy machine slows all of them alike. Sides whose packages
are missing are named and left out.

  python -m mala_asr.benchmarks.inference data/LibriSpeech/dev-clean-2
  python -m mala_asr.benchmarks.inference --model MODEL --lengths 10 60 -- a.wav
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import soundfile
import torch

from mala_asr.arguments import positive
from mala_asr.benchmarks.command import add_measuring, run_benchmark
from mala_asr.benchmarks.cost import Limits
from mala_asr.benchmarks.inference_models import prepare_folders
from mala_asr.benchmarks.inference_sides import (
    SIDES,
    Folders,
    describe,
    missing_packages,
)
from mala_asr.benchmarks.tables import table_head, table_row
from mala_asr.benchmarks.workers import Worker
from mala_asr.data.audio import SAMPLE_RATE, read_audio
from mala_asr.data.files import write_json
from mala_asr.errors import MalaError
from mala_asr.inference.inputs import find_recordings

LENGTHS = (10, 60, 600, 3600)

# A measurement longer than this is made once.
_LONG = 30.0
_MODULE = "mala_asr.benchmarks.inference_worker"


@dataclass
class Speed:
    """What a side took on a recording.

    Arguments
    ---------
    side : str
        Name of the side.
    frames : int
        Length of the recording in seconds.
    took : list of float
        Seconds of each time it was transcribed; empty where it was left out.
    peak : int, optional
        The most bytes that the process held.
    words : int
        Words that were found.
    left_out : str
        Why it was not measured.
    idle : int
        Bytes that the process held before, with the model in it.

    Example
    -------
    >>> Speed("ours", 10, [0.2, 0.1, 0.9]).rtf
    0.02
    """

    side: str
    frames: int
    took: list[float] = field(default_factory=list)
    peak: int | None = None
    words: int = 0
    left_out: str = ""
    idle: int = 0

    @property
    def seconds(self) -> float | None:
        """Median of the times."""
        return statistics.median(self.took) if self.took else None

    @property
    def memory(self) -> int | None:
        """Bytes that it took beyond those held before."""
        return None if self.peak is None else max(self.peak - self.idle, 0)

    @property
    def rtf(self) -> float | None:
        """Seconds for a second of audio."""
        return None if self.seconds is None else self.seconds / self.frames


def write_recordings(
    audio: Sequence[str], lengths: Sequence[int], folder: Path
) -> dict[int, Path]:
    """Join recordings, and repeat them, to each length.

    Arguments
    ---------
    audio : sequence of str
        Files, folders or patterns.
    lengths : sequence of int
        In seconds.
    folder : Path
        Where to write them.

    Returns
    -------
    dict of int to Path
        A 16 kHz WAV file for each length.

    Raises
    ------
    MalaError
        When something named holds no recording, or one cannot be read.
    """

    def refuse(name: str, error: MalaError) -> None:
        raise error

    wanted = max(lengths) * SAMPLE_RATE
    parts: list[torch.Tensor] = []
    for recording in find_recordings(audio, folder, refuse):
        if sum(map(len, parts)) >= wanted:
            break
        parts.append(read_audio(recording.path))
    joined = torch.cat(parts)
    joined = joined.repeat(-(-wanted // len(joined)))
    paths = {}
    for length in lengths:
        paths[length] = folder / f"{length}.wav"
        samples = joined[: length * SAMPLE_RATE]
        soundfile.write(paths[length], samples.numpy(), SAMPLE_RATE)
    return paths


@contextmanager
def _at_work(
    sides: Sequence[str], folders: Folders, threads: int, place: Path
) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        workers = []
        for number, side in enumerate(sides):
            log = stack.enter_context(open(place / f"{number}.log", "w+"))
            where = [str(folders.ours), str(folders.stock), str(threads)]
            workers.append(Worker(side, [_MODULE, side, *where], log))
            stack.callback(workers[-1].close)
        yield workers


def measure(
    workers: Sequence[Worker],
    paths: dict[int, Path],
    limits: Limits,
    rounds: int,
) -> Iterator[list[Speed]]:
    """Measure all sides, from short recordings to long ones.

    Arguments
    ---------
    workers : sequence of Worker
        The sides.
    paths : dict of int to Path
        The recording of each length.
    limits : Limits
        What is left out.
    rounds : int
        How often each is timed, after one time to warm up.

    Yields
    ------
    list of Speed
        Of one length, for each side.
    """
    earlier: list[Speed] = []
    for length in sorted(paths):
        speeds = [
            Speed(worker.name, length, idle=worker.facts["bytes"])
            for worker in workers
        ]
        todo = []
        for worker, speed in zip(workers, speeds, strict=True):
            mine = [s for s in earlier if s.side == speed.side]
            speed.left_out = limits.reason(mine, length)
            if not speed.left_out:
                todo.append((worker, speed))
        for turn in range(rounds + 1):
            for worker, speed in todo:
                if speed.left_out:
                    continue
                if not speed.took or speed.took[0] <= _LONG:
                    _once(worker, speed, paths[length], warming=turn == 0)
        earlier += speeds
        yield speeds


def _once(worker: Worker, speed: Speed, path: Path, warming: bool) -> None:
    found = worker.request(str(path))
    if "failed" in found:
        speed.left_out = "failed"
        print(
            f"{speed.side}, {path.stem} s: {found['failed']}", file=sys.stderr
        )
        return
    speed.words = found["words"]
    if warming:
        speed.peak = found["bytes"]
    if not warming or found["seconds"] > _LONG:
        speed.took.append(found["seconds"])


def report(speeds: Sequence[Speed]) -> str:
    """Write the figures as two tables, of RTF and of memory.

    Arguments
    ---------
    speeds : sequence of Speed
        Of all lengths and sides.

    Returns
    -------
    str
        Sides as rows, lengths as columns; the fastest of a length in bold.

    Example
    -------
    >>> print(report([Speed("ours", 60, [0.6]), Speed("x", 60, [6.0])]))
    | RTF | 60 s |
    |---|---|
    | ours | **0.0100** |
    | x | 0.1000 |
    <BLANKLINE>
    | peak memory | 60 s |
    |---|---|
    | ours | n/a |
    | x | n/a |
    """
    by_place = {(s.side, s.frames): s for s in speeds}
    sides = list(dict.fromkeys(s.side for s in speeds))
    lengths = sorted({s.frames for s in speeds})
    best = {
        length: min(
            (s.rtf for s in speeds if s.frames == length and s.rtf is not None),
            default=None,
        )
        for length in lengths
    }

    def time_cell(speed: Speed) -> str:
        if speed.rtf is None:
            return f"({speed.left_out})"
        mark = "**" if speed.rtf == best[speed.frames] else ""
        return f"{mark}{speed.rtf:.4f}{mark}"

    def memory_cell(speed: Speed) -> str:
        if speed.peak is None:
            return f"({speed.left_out})" if speed.left_out else "n/a"
        return f"{speed.peak / 1e9:.2f} GB"

    tables = []
    for title, cell in (("RTF", time_cell), ("peak memory", memory_cell)):
        lines = [table_head([title, *(f"{length} s" for length in lengths)])]
        lines += [
            table_row([s, *(cell(by_place[s, n]) for n in lengths)])
            for s in sides
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _run(args: argparse.Namespace) -> None:
    threads = args.threads or torch.get_num_threads()
    if missing := describe(args.sides):
        print(missing, file=sys.stderr)
    sides = [side for side in args.sides if not missing_packages(side)]
    if not sides:
        raise MalaError("no side is left")
    limits = Limits(args.max_gigabytes, args.max_seconds)
    everything: list[Speed] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = write_recordings(args.audio, sorted(set(args.lengths)), place)
        folders = prepare_folders(sides, args.model, place)
        try:
            with _at_work(sides, folders, threads, place) as workers:
                for speeds in measure(workers, paths, limits, args.rounds):
                    everything += speeds
                    # Hours may lie between two lengths.
                    print(f"{speeds[0].frames} s is done", file=sys.stderr)
        finally:
            # Also what was measured before it was interrupted.
            if everything:
                _tell(args, threads, everything)


def _tell(
    args: argparse.Namespace, threads: int, speeds: Sequence[Speed]
) -> None:
    print(
        f"torch {torch.__version__}, {threads} threads, median of "
        f"{args.rounds}, model "
        f"{args.model or 'untrained, of conformer_small'}; in parentheses "
        "what a side that was left out would take\n"
    )
    print(report(speeds))
    if args.json:
        write_json(args.json, [asdict(speed) for speed in speeds])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "audio", nargs="+", help="files, folders or patterns of recordings"
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="our model folder (default: an untrained one of the sizes of "
        "SpeechBrain's conformer_small)",
    )
    parser.add_argument(
        "--lengths",
        nargs="+",
        type=positive,
        default=list(LENGTHS),
        help="seconds (default: 10 60 600 3600)",
    )
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=SIDES,
        default=list(SIDES),
        help="what to compare (default: all)",
    )
    parser.add_argument(
        "--threads",
        type=positive,
        help="CPU threads of each side (default: torch's choice)",
    )
    add_measuring(parser, gigabytes=8.0, seconds=1800.0)


main = partial(run_benchmark, "inference", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
