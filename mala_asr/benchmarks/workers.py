"""Processes that each benchmark's sides work in, and how they are talked to.

A side runs in a process of its own, as a user would run it, because memory
settings hold for a whole process. A request is one line on the worker's
standard input, an answer one line of JSON on its standard output; the first
line it writes gives its number of parameters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, TextIO

from mala_asr.errors import MalaError

# Set for a whole shell, these would speed up SpeechBrain's side as well.
_ALLOCATOR_VARIABLES = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)


class Worker:
    """A side at work in another process.

    Arguments
    ---------
    name : str
        Name of the side.
    command : sequence of str
        Module to run, and its arguments.
    log : file
        Where what it prints goes.
    """

    def __init__(self, name: str, command: Sequence[str], log: IO[str]) -> None:
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in _ALLOCATOR_VARIABLES
        }
        self.name = name
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        self.facts = self._read()
        self.parameters = int(self.facts["parameters"])

    def request(self, line: str) -> dict[str, Any]:
        """Ask for something and wait for it.

        Arguments
        ---------
        line : str
            What the worker understands.

        Returns
        -------
        dict
            The answer.

        Raises
        ------
        MalaError
            If the worker has died, with the last line that it wrote.
        """
        assert self._process.stdin is not None
        try:
            print(line, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # said better by what it wrote last
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            lines = self._log.read().strip().splitlines() or ["no message"]
            raise MalaError(f"the side {self.name!r} failed: {lines[-1]}")
        return json.loads(line)


def reserve_stdout() -> TextIO:
    """Keep standard output for the answers; what else is printed goes aside.

    Returns
    -------
    file
        Where answers go.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def answer(stream: TextIO, content: Mapping[str, Any]) -> None:
    """Send an answer.

    Arguments
    ---------
    stream : file
        From `reserve_stdout`.
    content : mapping
        What to say.
    """
    print(json.dumps(content), file=stream, flush=True)
