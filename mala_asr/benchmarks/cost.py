"""Time and memory against length, side by side: what both benchmarks share.

Each side works in a process of its own and they take turns on every length,
so that a busy machine slows all of them alike. Before a measurement, what it
would take is foretold from the shorter ones, and what goes beyond the limits
is left out and said so.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tqdm import tqdm

from mala_asr.arguments import positive
from mala_asr.benchmarks.command import add_measuring, run_benchmark
from mala_asr.benchmarks.tables import table_head, table_row
from mala_asr.benchmarks.workers import Worker
from mala_asr.data.files import replacing, write_json

MALA = "MALA"
COMPILED = "MALA, compiled"
SIDES = (
    MALA,
    COMPILED,
    "RelPosMHAXL",
    "RoPEMHA",
    "HyperMixing",
    "regularMHA",
)
KINDS = {"forward": "forward", "step": "forward and backward"}
LENGTHS = (128, 200, 250, 500, 1000, 3000, 6000, 15_000, 30_000, 100_000)
QUICK_LENGTHS = (128, 250, 500)

# Exponents are fitted where the length's own cost rules.
_FITTED_FROM = 1000
# How much faster a cost may grow than it has so far.
_MARGIN = 0.3
# A measurement longer than this is made once.
_LONG = 10.0
_MODULE = "mala_asr.benchmarks.cost_worker"


class Size(NamedTuple):
    """Sizes that go with a width."""

    nhead: int
    d_ffn: int


# Of SpeechBrain's conformer_small and conformer_large.
SIZES = {144: Size(4, 1024), 512: Size(8, 2048)}


@dataclass
class Cost:
    """What a side took on inputs of one length.

    Arguments
    ---------
    side : str
        Name of the side.
    d_model : int
        Its width.
    kind : str
        One of `KINDS`.
    frames : int
        Length of the input.
    took : list of float
        Seconds of each time it was done; empty where it was left out.
    memory : int, optional
        Bytes that it took at its peak.
    operations : float
        Multiplications and additions in its matrix products.
    left_out : str
        Why it was not measured.

    Example
    -------
    >>> Cost("MALA", 144, "step", 128, [2.0, 1.0, 9.0]).seconds
    2.0
    """

    side: str
    d_model: int
    kind: str
    frames: int
    took: list[float] = field(default_factory=list)
    memory: int | None = None
    operations: float = 0.0
    left_out: str = ""

    @property
    def seconds(self) -> float | None:
        """Median of the times."""
        return statistics.median(self.took) if self.took else None


class Measured(Protocol):
    """Something whose cost on an input of one length is known."""

    @property
    def frames(self) -> int:
        """Length of the input."""

    @property
    def seconds(self) -> float | None:
        """What it took."""

    @property
    def memory(self) -> int | None:
        """Bytes that it took."""


@dataclass(frozen=True)
class Limits:
    """What is too much.

    Arguments
    ---------
    gigabytes : float
        Memory of one measurement.
    seconds : float
        Time of one measurement.
    """

    gigabytes: float
    seconds: float

    def reason(self, earlier: Sequence[Measured], frames: int) -> str:
        """Tell whether a measurement would be too much.

        Arguments
        ---------
        earlier : sequence of Measured
            What the same side took on shorter inputs.
        frames : int
            Length of the next one.

        Returns
        -------
        str
            What it would take; empty if that is within the limits.

        Example
        -------
        >>> done = [Cost("x", 144, "step", n, [n / 10], n) for n in (10, 20)]
        >>> Limits(1.0, 8.0).reason(done, 50), Limits(1.0, 4.0).reason(done, 50)
        ('', '6.6 s')
        """
        seconds = _foretold([(c.frames, c.seconds) for c in earlier], frames)
        memory = _foretold([(c.frames, c.memory) for c in earlier], frames)
        if memory > self.gigabytes * 1e9:
            return f"{_roughly(memory / 1e9)} GB"
        if seconds > self.seconds:
            return f"{_roughly(seconds)} s"
        return ""


def _foretold(points: Sequence[tuple[int, float | None]], frames: int) -> float:
    """Go on from the last two points, a little steeper; 0 if unknown."""
    known = [(n, value) for n, value in points if value]
    if len(known) < 2:
        return 0.0
    (n1, v1), (n2, v2) = known[-2:]
    slope = math.log(v2 / v1) / math.log(n2 / n1) + _MARGIN
    return v2 * (frames / n2) ** min(max(slope, 1.0), 2.0)


def _roughly(value: float) -> str:
    """Two digits, and zeros: 820 and not 8.2e+02."""
    return f"{float(f'{value:.2g}'):,.15g}"


def exponent(points: Sequence[tuple[int, float | None]]) -> float | None:
    """Fit the power of the length that a cost grows with.

    Arguments
    ---------
    points : sequence of tuple
        Frames and cost.

    Returns
    -------
    float or None
        Slope of log cost against log frames, from 1000 frames on; None with
        fewer than two points there.

    Example
    -------
    >>> round(exponent([(n, 3e-9 * n**2) for n in (500, 1000, 4000)]), 3)
    2.0
    """
    known = [
        (math.log(n), math.log(value))
        for n, value in points
        if value and n >= _FITTED_FROM
    ]
    if len(known) < 2:
        return None
    return statistics.linear_regression(*zip(*known, strict=True)).slope


def measure(
    what: str,
    sides: Sequence[str],
    d_model: int,
    lengths: Sequence[int],
    limits: Limits,
    rounds: int,
    layers: int,
) -> tuple[list[Cost], float]:
    """Measure all sides of one width.

    Arguments
    ---------
    what : str
        ``attention`` or ``encoder``.
    sides : sequence of str
        Some of `SIDES`.
    d_model : int
        The width.
    lengths : sequence of int
        Frames, from short to long.
    limits : Limits
        What is left out.
    rounds : int
        How often each is timed.
    layers : int
        Layers of an encoder.

    Returns
    -------
    list of Cost
        Everything that was measured or left out.
    float
        Operations per second of this machine's matrix product, the fastest
        that was seen.
    """
    costs: list[Cost] = []
    peak = 0.0
    total = len(KINDS) * len(lengths)
    with (
        _at_work(what, sides, d_model, layers) as workers,
        tqdm(total=total, desc=f"d={d_model}", dynamic_ncols=True) as bar,
    ):
        for kind in KINDS:
            for frames in lengths:
                found = workers[0].request("peak")["operations_per_second"]
                peak = max(peak, found)
                costs += _one_length(
                    workers, costs, d_model, kind, frames, limits, rounds
                )
                bar.update()
    return costs, peak


@contextmanager
def _at_work(
    what: str, sides: Sequence[str], d_model: int, layers: int
) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        workers = []
        for number, name in enumerate(sides):
            log = stack.enter_context(open(Path(folder) / str(number), "w+"))
            command = [_MODULE, what, name, str(d_model), str(layers)]
            workers.append(Worker(name, command, log))
            stack.callback(workers[-1].close)
        yield workers


def _one_length(
    workers: Sequence[Worker],
    earlier: Sequence[Cost],
    d_model: int,
    kind: str,
    frames: int,
    limits: Limits,
    rounds: int,
) -> list[Cost]:
    costs = []
    for worker in workers:
        mine = [c for c in earlier if c.side == worker.name and c.kind == kind]
        cost = Cost(worker.name, d_model, kind, frames)
        coefficients = worker.facts["operations"][kind]
        cost.operations = sum(
            c * frames**power for power, c in enumerate(coefficients)
        )
        longest = worker.facts["longest"]
        if longest is not None and frames > longest:
            cost.left_out = f"positions end at {longest:,d}"
        else:
            cost.left_out = limits.reason(mine, frames)
        costs.append(cost)
    todo = [
        (worker, cost)
        for worker, cost in zip(workers, costs, strict=True)
        if not cost.left_out
    ]
    for worker, cost in todo:
        if cost.side == COMPILED:
            worker.request(f"warm {kind} {frames}")
        first = worker.request(f"memory {kind} {frames}")
        cost.memory = first["bytes"]
        if first["seconds"] > _LONG:
            cost.took.append(first["seconds"])
    for _ in range(rounds):
        for worker, cost in todo:
            if not cost.took or cost.took[0] <= _LONG:
                answer = worker.request(f"time {kind} {frames}")
                cost.took.append(answer["seconds"])
    return costs


def report(costs: Sequence[Cost], peak: float) -> str:
    """Write the costs of one width as tables.

    Arguments
    ---------
    costs : sequence of Cost
        What `measure` gave.
    peak : float
        Operations per second of the matrix product.

    Returns
    -------
    str
        For each kind: time, memory, and the share of the peak.
    """
    parts = []
    for kind, name in KINDS.items():
        mine = [c for c in costs if c.kind == kind]
        head = f"d={costs[0].d_model}, {name}"
        parts += [
            _table(f"{head}: time", mine, _time_cell, _time_points),
            _table(f"{head}: memory", mine, _memory_cell, _memory_points),
            _table(
                f"{head}: share of {peak / 1e9:.0f} GFLOP/s",
                mine,
                lambda cost, _: _share_cell(cost, peak),
            ),
        ]
    return "\n\n".join(parts)


def _table(
    title: str, costs: Sequence[Cost], cell: Any, points: Any = None
) -> str:
    sides = list(dict.fromkeys(c.side for c in costs))
    lengths = list(dict.fromkeys(c.frames for c in costs))
    by_place = {(c.frames, c.side): c for c in costs}
    rows = []
    for frames in lengths:
        first = by_place[frames, sides[0]]
        rows.append(
            [f"{frames:,d}"]
            + [cell(by_place[frames, side], first) for side in sides]
        )
    if points is not None:
        fits = [
            exponent([points(c) for c in costs if c.side == side])
            for side in sides
        ]
        if any(fit is not None for fit in fits):
            rows.append(
                ["grows with the power"]
                + ["" if fit is None else f"{fit:.2f}" for fit in fits]
            )
    return "\n".join([table_head([title, *sides]), *map(table_row, rows)])


def _time_points(cost: Cost) -> tuple[int, float | None]:
    return cost.frames, cost.seconds


def _memory_points(cost: Cost) -> tuple[int, float | None]:
    return cost.frames, cost.memory


def _time_cell(cost: Cost, first: Cost) -> str:
    if cost.seconds is None:
        return f"({cost.left_out})"
    text = _figures(1000 * cost.seconds) + " ms"
    if first is cost or first.seconds is None:
        return text
    return f"{text}, {_figures(cost.seconds / first.seconds)}x"


def _memory_cell(cost: Cost, first: Cost) -> str:
    if not cost.took:
        return f"({cost.left_out})"
    if cost.memory is None:
        return "n/a"
    return f"{_figures(cost.memory / 1e6)} MB"


def _share_cell(cost: Cost, peak: float) -> str:
    if cost.seconds is None:
        return ""
    return f"{100 * cost.operations / cost.seconds / peak:.0f} %"


def _figures(value: float) -> str:
    """Two digits where there are fewer before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(costs: Sequence[Cost], path: Path) -> None:
    """Draw time and memory against length.

    Arguments
    ---------
    costs : sequence of Cost
        Of all widths.
    path : Path
        The PNG to write.
    """
    # Figure alone needs no display and leaves no global state behind.
    from matplotlib.figure import Figure

    widths = list(dict.fromkeys(c.d_model for c in costs))
    figure = Figure(figsize=(16, 4 * len(widths)), layout="constrained")
    grid = figure.subplots(len(widths), 4, squeeze=False)
    for row, d_model in zip(grid, widths, strict=True):
        mine = [c for c in costs if c.d_model == d_model]
        for place, kind in enumerate(KINDS):
            of_kind = [c for c in mine if c.kind == kind]
            title = f"d={d_model}, {KINDS[kind]}"
            _draw_one(row[2 * place], of_kind, _time_points)
            row[2 * place].set(title=title, ylabel="seconds")
            _draw_one(row[2 * place + 1], of_kind, _memory_points, 1e-6)
            row[2 * place + 1].set(title=title, ylabel="peak memory (MB)")
    grid[0][0].legend()
    figure.savefig(path, dpi=100)


def _draw_one(
    axes: Any, costs: Sequence[Cost], points: Any, unit: float = 1.0
) -> None:
    for side in dict.fromkeys(c.side for c in costs):
        known = [
            (n, unit * value)
            for n, value in (points(c) for c in costs if c.side == side)
            if value
        ]
        x, y = zip(*known, strict=True) if known else ((), ())
        axes.plot(x, y, marker=".", label=side)
    axes.set(xlabel="frames", xscale="log", yscale="log")
    axes.xaxis.set_minor_formatter("")  # they overlap
    axes.grid(alpha=0.3)


def main(
    what: str, description: str | None, argv: Sequence[str] | None = None
) -> int:
    """Run a cost benchmark and print its tables.

    Arguments
    ---------
    what : str
        ``attention`` or ``encoder``.
    description : str, optional
        For the help.
    argv : sequence of str, optional
        Arguments of the command line.

    Returns
    -------
    int
        Exit status, as of `run_benchmark`.
    """
    arguments, work = partial(_add_arguments, what), partial(_run, what)
    return run_benchmark(what, description, arguments, work, argv)


def _run(what: str, args: argparse.Namespace) -> None:
    import torch

    lengths = args.lengths or (QUICK_LENGTHS if args.quick else LENGTHS)
    widths = args.widths or ([144] if args.quick else list(SIZES))
    limits = Limits(args.max_gigabytes, args.max_seconds)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"median of {args.rounds}"
        + (f", layers: {args.layers}" if what == "encoder" else "")
        + "; in parentheses why a side was left out: what it would take, or "
        "where its positions end\n"
    )
    everything: list[Cost] = []
    peaks = {}
    for d_model in widths:
        costs, peaks[d_model] = measure(
            what,
            args.sides,
            d_model,
            sorted(set(lengths)),
            limits,
            args.rounds,
            args.layers,
        )
        print(report(costs, peaks[d_model]) + "\n", flush=True)
        everything += costs
    if args.json:
        record = {"peaks": peaks, "costs": [asdict(c) for c in everything]}
        write_json(args.json, record)
    if args.plot:
        with replacing(args.plot) as path:
            draw(everything, path)


def _add_arguments(what: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short inputs of one width, for a first look",
    )
    parser.add_argument(
        "--lengths",
        nargs="+",
        type=positive,
        help=f"frames (default: {' '.join(map(str, LENGTHS))})",
    )
    parser.add_argument(
        "--widths",
        nargs="+",
        type=int,
        choices=list(SIZES),
        help="d_model (default: all)",
    )
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=SIDES,
        default=list(SIDES),
        help="what to measure; the others are compared with the first",
    )
    add_measuring(parser, gigabytes=4.0, seconds=60.0)
    parser.add_argument("--plot", type=Path, help="PNG to draw")
    parser.set_defaults(layers=1)
    if what == "encoder":
        parser.add_argument(
            "--layers",
            type=positive,
            default=12,
            help="layers of the encoder (default: 12)",
        )
