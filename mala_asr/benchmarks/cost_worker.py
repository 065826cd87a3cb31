"""One side of a cost benchmark, in a process of its own.

Started with what is measured (attention or encoder), the side's name, its
width and the layers of an encoder. Requests, one a line:

    warm KIND FRAMES    do it once, unmeasured
    memory KIND FRAMES  do it once; gives seconds, and bytes that it took
    time KIND FRAMES    do it again and again; gives the median in seconds
    peak                gives operations per second of a matrix product

where KIND is forward or step (forward and backward). The first line that the
worker writes gives parameters, operations and the most frames it takes.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from mala_asr.attention.linear import linear
from mala_asr.benchmarks.cost import COMPILED, KINDS
from mala_asr.benchmarks.cost_sides import (
    build_cost_side,
    compile_side,
    count_operations,
    prepare,
)
from mala_asr.benchmarks.sides import count_parameters
from mala_asr.benchmarks.workers import answer, reserve_stdout
from mala_asr.training.allocator import keep_freed_memory
from mala_asr.training.memory import peak_memory, reset_peak_memory

_PEAK_SIZE = 2048  # of the square matrices whose product is the peak
_PEAK_TRIES = 5
_CACHES_DO_NOT_COUNT = 1.0  # from so many seconds on
_ENOUGH = 0.1  # seconds of the same, for their median


def main(argv: list[str]) -> int:
    """Serve the requests on standard input.

    Arguments
    ---------
    argv : list of str
        What is measured, name of the side, width, layers.

    Returns
    -------
    int
        0 when the input ends.
    """
    what, name, width, layers = argv
    d_model = int(width)
    answers = reserve_stdout()
    keep_freed_memory()  # new pages would be most of the time
    torch.manual_seed(0)
    side = build_cost_side(what, name, d_model, int(layers))
    facts: dict[str, Any] = {
        "parameters": count_parameters(side.module),
        "longest": side.longest,
        "operations": {k: count_operations(side, d_model, k) for k in KINDS},
    }
    if name == COMPILED:
        compile_side(what, side)
    answer(answers, facts)
    for request in sys.stdin:
        command, *of_what = request.split()
        if command == "peak":
            answer(answers, {"operations_per_second": matrix_peak()})
            continue
        kind, frames = of_what
        run = prepare(side, d_model, kind, int(frames))
        measure = added_memory if command == "memory" else _timed_warm
        answer(answers, measure(run))
    return 0


def _timed(run: Callable[[], object]) -> dict[str, Any]:
    started = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - started}


def _timed_warm(run: Callable[[], object]) -> dict[str, Any]:
    """Time what has just been done: the other sides have had the caches."""
    first = _timed(run)
    if first["seconds"] > _CACHES_DO_NOT_COUNT:
        return first
    took: list[float] = []
    while sum(took) < _ENOUGH:
        took.append(_timed(run)["seconds"])
    return {"seconds": statistics.median(took)}


def added_memory(run: Callable[[], object]) -> dict[str, Any]:
    """Do something once and see how much memory it takes at its peak.

    Arguments
    ---------
    run : callable
        What to do.

    Returns
    -------
    dict
        ``seconds``, and ``bytes`` beyond what was in use before; None where
        the system cannot tell.
    """
    gc.collect()
    if not reset_peak_memory():
        return {**_timed(run), "bytes": None}
    before = peak_memory()
    timed = _timed(run)
    # The system counts in batches, so that next to nothing may be below 0.
    return {**timed, "bytes": max(peak_memory() - before, 0)}


def matrix_peak() -> float:
    """Measure the fastest product of large matrices, by MKL or oneDNN.

    Returns
    -------
    float
        Multiplications and additions in a second, in float32.
    """
    a, b = torch.randn(2, _PEAK_SIZE, _PEAK_SIZE)
    out = torch.empty(_PEAK_SIZE, _PEAK_SIZE)
    took = [
        _timed(product)["seconds"]
        for product in (partial(torch.mm, a, b, out=out), partial(linear, a, b))
        for _ in range(_PEAK_TRIES)
    ]
    return 2.0 * _PEAK_SIZE**3 / min(took)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
