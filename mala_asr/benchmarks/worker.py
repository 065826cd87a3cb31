"""One side of the training benchmark, in a process of its own.

Each side runs as a user would run it, and memory settings hold for a whole
process. The benchmark starts the worker with the side's name and the file of
batches, and sends one request a line; each gets one line of JSON back:

    step N     train on batch N; gives the seconds that it took
    profile N  train on batch N; gives the seconds of every part

The first line that the worker writes gives its number of parameters.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import torch

from mala_asr.benchmarks.batches import RawBatch
from mala_asr.benchmarks.sides import Side, build_side
from mala_asr.benchmarks.stopwatch import Stopwatch
from mala_asr.benchmarks.workers import answer, reserve_stdout


def main(argv: list[str]) -> int:
    """Serve the requests on standard input.

    Arguments
    ---------
    argv : list of str
        Name of the side and the file of batches.

    Returns
    -------
    int
        0 when the input ends.
    """
    name, path = argv
    answers = reserve_stdout()
    batches = [RawBatch(*batch) for batch in torch.load(path)]
    torch.manual_seed(0)
    side = build_side(name, batches)
    answer(answers, {"parameters": side.parameters})
    for request in sys.stdin:
        command, number = request.split()
        serve = _profile if command == "profile" else _step
        answer(answers, serve(side, int(number)))
    return 0


def _step(side: Side, number: int) -> dict[str, Any]:
    started = time.perf_counter()
    loss = side.step(number)
    seconds = time.perf_counter() - started
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss {loss}: this step measures nothing")
    return {"seconds": seconds}


def _profile(side: Side, number: int) -> dict[str, Any]:
    watch = Stopwatch()
    side.watch(watch)
    watch.start()
    side.step(number)
    return {"parts": watch.stop()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
