"""Training speed of this project against SpeechBrain's own recipe.

A step is forward, backward and optimizer on 240 s of speech. Every side has
the same batches, sizes, vocabulary, loss and dropout, and runs as its user
would run it: SpeechBrain's recipe computes its features in every step; ours
reads them from the cache and keeps freed memory in the process. The sides
take turns on every batch, each in a process of its own, so that a busy
machine slows all of them alike.

  python -m mala_asr.benchmarks.training
  python -m mala_asr.benchmarks.training --data_folder data/LibriSpeech
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from mala_asr.arguments import positive, positive_float
from mala_asr.benchmarks.batches import (
    RawBatch,
    corpus_batches,
    noise_batches,
)
from mala_asr.benchmarks.command import run_benchmark
from mala_asr.benchmarks.sides import OURS, STOCK, shared_config
from mala_asr.benchmarks.stopwatch import backward
from mala_asr.benchmarks.tables import table_head
from mala_asr.benchmarks.workers import Worker

_MODULE = "mala_asr.benchmarks.worker"


@dataclass
class Measurement:
    """What one side took.

    Arguments
    ---------
    name : str
        Name of the side.
    parameters : int
        Trainable parameters of its model.
    audio : list of float
        Seconds of speech of each timed step.
    took : list of float
        Seconds that each timed step took.
    parts : dict of str to float
        Seconds of each part of one more step.

    Example
    -------
    >>> Measurement("ours", 10, [240.0, 240.0], [8.0, 12.0]).speed
    24.0
    """

    name: str
    parameters: int
    audio: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """Seconds of speech trained on in a second."""
        return sum(self.audio) / sum(self.took)


def measure(
    batches: Sequence[RawBatch], sides: Sequence[str], repeats: int
) -> list[Measurement]:
    """Time every side on every batch, taking turns.

    Arguments
    ---------
    batches : sequence of RawBatch
        The speech of each step.
    sides : sequence of str
        Names of the sides.
    repeats : int
        Rounds over all batches after one step to warm up.

    Returns
    -------
    list of Measurement
        One for each side, in their order.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.pt"
        torch.save([(b.waves, b.tokens) for b in batches], path)
        logs = [open(Path(folder) / f"{s}.log", "w+") for s in sides]
        workers = []
        try:
            for name, log in zip(sides, logs, strict=True):
                workers.append(Worker(name, [_MODULE, name, str(path)], log))
            return _take_turns(workers, batches, repeats)
        finally:
            for worker in workers:
                worker.close()
            for log in logs:
                log.close()


def _take_turns(
    workers: Sequence[Worker], batches: Sequence[RawBatch], repeats: int
) -> list[Measurement]:
    results = [Measurement(w.name, w.parameters) for w in workers]
    total = len(workers) * (repeats * len(batches) + 2)
    with tqdm(total=total, unit="step", dynamic_ncols=True) as bar:
        # The longest utterances first: memory grows once.
        for worker in workers:
            worker.request(f"step {len(batches) - 1}")
            bar.update()
        for number in list(range(len(batches))) * repeats:
            for worker, result in zip(workers, results, strict=True):
                took = worker.request(f"step {number}")["seconds"]
                result.took.append(took)
                result.audio.append(batches[number].seconds)
                bar.update()
        for worker, result in zip(workers, results, strict=True):
            result.parts = worker.request(f"profile {len(batches) // 2}")[
                "parts"
            ]
            bar.update()
    return results


def report(results: Sequence[Measurement]) -> str:
    """Write the results out as tables.

    Arguments
    ---------
    results : sequence of Measurement
        The first one is what the others are compared with.

    Returns
    -------
    str
        Speeds, ratios, and the parts of a step.

    Example
    -------
    >>> stock = Measurement("stock", 2000, [240.0], [10.0])
    >>> ours = Measurement("ours", 1000, [240.0], [4.0], {"attention": 4.0})
    >>> print(report([stock, ours]).splitlines()[3])
    | ours | 0.00 M | 4.00 s | 60.0 | 2.50x (2.50-2.50) |
    """
    first = results[0]
    lines = [
        table_head(
            ["side", "parameters", "step", "audio s / s", "ratio (range)"]
        )
    ]
    for result in results:
        ratios = [a / b for a, b in zip(first.took, result.took, strict=True)]
        lines.append(
            f"| {result.name} | {result.parameters / 1e6:.2f} M "
            f"| {statistics.mean(result.took):.2f} s | {result.speed:.1f} "
            f"| {result.speed / first.speed:.2f}x "
            f"({min(ratios):.2f}-{max(ratios):.2f}) |"
        )
    for result in results:
        lines += ["", *_parts_table(result)]
    return "\n".join(lines)


def _parts_table(result: Measurement) -> list[str]:
    total = sum(result.parts.values())
    lines = [
        table_head(
            [f"{result.name}: part of a step", "forward", "backward", "share"]
        )
    ]
    names = [n for n in result.parts if not n.endswith(backward(""))]
    rows = {
        name: (result.parts[name], result.parts.get(backward(name), 0.0))
        for name in names
    }
    for name in sorted(rows, key=lambda n: -sum(rows[n])):
        there, back = rows[name]
        lines.append(
            f"| {name} | {there:.2f} s | {back:.2f} s "
            f"| {100 * (there + back) / total:.0f} % |"
        )
    return lines


def _run(args: argparse.Namespace) -> None:
    vocab_size = shared_config()["vocab_size"]
    if args.data_folder is None:
        batches = noise_batches(args.seconds, vocab_size)
    else:
        batches = corpus_batches(args.data_folder, args.seconds, vocab_size)
    results = measure(batches, [STOCK, *args.sides], args.repeats)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; "
        f"{len(batches)} batches of {args.seconds:.0f} s, "
        f"{args.repeats} rounds\n"
    )
    print(report(results))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data_folder",
        type=Path,
        help="corpus in LibriSpeech's layout (default: noise)",
    )
    parser.add_argument(
        "--seconds",
        type=positive_float,
        default=240.0,
        help="speech in a batch (default: 240)",
    )
    parser.add_argument(
        "--repeats",
        type=positive,
        default=2,
        help="rounds over the three batches (default: 2)",
    )
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=list(OURS),
        default=list(OURS),
        help=f"what to compare with {STOCK} (default: all)",
    )


main = partial(run_benchmark, "training", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
