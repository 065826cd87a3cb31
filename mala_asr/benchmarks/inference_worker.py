"""One side of the inference benchmark, in a process of its own.

Started with the side's name, the folders of the models and the number of
threads. The first line that the worker writes gives the memory that it holds
once the side is loaded. Each request is the path of a WAV file, and gives the
seconds from the file to its text, the most memory that the process then held,
and how many words were found; or why the side cannot do it.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

from mala_asr.benchmarks.inference_sides import Folders, build_transcribe
from mala_asr.benchmarks.workers import answer, reserve_stdout
from mala_asr.errors import MalaError
from mala_asr.training.memory import peak_memory, reset_peak_memory


def main(argv: list[str]) -> int:
    """Serve the requests on standard input.

    Arguments
    ---------
    argv : list of str
        Name of the side, our model folder, that of SpeechBrain's, threads.

    Returns
    -------
    int
        0 when the input ends.
    """
    side, ours, stock, threads = argv
    answers = reserve_stdout()
    folders = Folders(Path(ours), Path(stock))
    transcribe = build_transcribe(side, folders, int(threads))
    gc.collect()
    reset_peak_memory()
    # Not all sides tell their parameters.
    answer(answers, {"parameters": 0, "bytes": peak_memory()})
    for line in sys.stdin:
        gc.collect()
        reset_peak_memory()
        started = time.perf_counter()
        try:
            text = transcribe(line.rstrip("\n"))
        except MalaError as error:
            answer(answers, {"failed": str(error)})
            continue
        seconds = time.perf_counter() - started
        found = {"seconds": seconds, "bytes": peak_memory()}
        answer(answers, {**found, "words": len(text.split())})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
