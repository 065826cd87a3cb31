"""Several processes, perhaps on several machines, that share out one job.

Each is started with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its
environment, and the address of a meeting point: ``torchrun`` does so. It also
ends all of them when one fails, so that none ends before the others are done,
be it with a failure: it would take them with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from mala_asr.errors import MalaError

Item = TypeVar("Item")

# Who has finished waits for the others, whose recordings may be longer.
_PATIENCE = timedelta(days=30)


class ProcessError(MalaError):
    """Processes that do not find each other, or have lost one of them."""


@dataclass(frozen=True)
class Processes:
    """This process among those that share the job.

    Arguments
    ---------
    rank : int
        Number of this process, from 0.
    count : int
        How many there are.
    local_rank : int
        Number of this process among those of its machine, from 0.
    local_count : int
        How many there are on this machine.

    Example
    -------
    >>> Processes(rank=1, count=2).share("abcd", [9.0, 2.0, 3.0, 2.0])
    ['b', 'c', 'd']
    >>> Processes().decide(lambda: "alone")
    'alone'
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1

    @classmethod
    def of_environment(
        cls, environment: Mapping[str, str] = os.environ
    ) -> Processes:
        """Find out who this process is.

        Arguments
        ---------
        environment : Mapping[str, str]
            Environment variables.

        Returns
        -------
        Processes
            It, or a process that is alone if nothing else is said.

        Raises
        ------
        ProcessError
            If what is said makes no sense.

        Example
        -------
        >>> Processes.of_environment({"RANK": "3", "WORLD_SIZE": "4"}).count
        4
        """
        if not {"RANK", "WORLD_SIZE"} <= environment.keys():
            return cls()
        rank, count = environment["RANK"], environment["WORLD_SIZE"]
        try:
            found = cls(
                int(rank),
                int(count),
                int(environment.get("LOCAL_RANK", rank)),
                int(environment.get("LOCAL_WORLD_SIZE", count)),
            )
        except ValueError:
            found = cls(count=0)
        if not (0 <= found.rank < found.count and found.local_count > 0):
            raise ProcessError(
                f"RANK {rank} of WORLD_SIZE {count} makes no sense; start with "
                "torchrun, or remove them from the environment"
            )
        return found

    @property
    def first(self) -> bool:
        """Whether this is the one that decides and speaks for all."""
        return self.rank == 0

    @property
    def threads(self) -> int:
        """This process' part of its machine's CPUs."""
        if hasattr(os, "sched_getaffinity"):
            cpus = len(os.sched_getaffinity(0))
        else:
            cpus = os.cpu_count() or 1
        return max(1, cpus // self.local_count)

    def share(
        self, items: Sequence[Item], lengths: Sequence[float]
    ) -> list[Item]:
        """Pick what this process has to do.

        Arguments
        ---------
        items : Sequence
            All there is to do, the same in every process.
        lengths : Sequence[float]
            How long each takes, in any unit.

        Returns
        -------
        list
            In order. The longest are dealt first, each to the process that
            has the least to do so far, so that all end at about one time.
        """
        loads = [(0.0, 0)] * self.count
        mine = []
        for index in sorted(range(len(items)), key=lambda i: -lengths[i]):
            least = min(range(self.count), key=loads.__getitem__)
            load, number = loads[least]
            loads[least] = load + lengths[index], number + 1
            if least == self.rank:
                mine.append(index)
        return [items[index] for index in sorted(mine)]

    def choose_gpu(self) -> None:
        """Make ``cuda`` mean a GPU of this process' own, where there are."""
        import torch

        if self.count > 1 and torch.cuda.is_available():
            torch.cuda.set_device(self.local_rank % torch.cuda.device_count())

    @contextmanager
    def together(self) -> Iterator[None]:
        """Hold a connection to the other processes.

        Raises
        ------
        ProcessError
            When they are not found.
        """
        if self.count == 1:
            yield
            return
        from torch import distributed

        with _losses():
            distributed.init_process_group(
                "gloo", rank=self.rank, world_size=self.count, timeout=_PATIENCE
            )
        try:
            yield
        finally:
            distributed.destroy_process_group()

    def decide(self, decision: Callable[[], Item]) -> Item:
        """Let the first process decide for all.

        Arguments
        ---------
        decision : Callable
            Called in the first process.

        Returns
        -------
        Any
            What it has returned there.

        Raises
        ------
        SystemExit
            In the other processes, when it has raised an error in the first:
            that one says why.
        ProcessError
            When a process is lost.
        """
        if not self.first:
            return self._from_first([])[0]
        try:
            decided = decision()
        except BaseException:
            self._from_first([])
            raise
        self._from_first([decided])
        return decided

    def gather(self, part: Item) -> list[Item]:
        """Bring together what the processes have, once all have it.

        Arguments
        ---------
        part : Any
            What this process has.

        Returns
        -------
        list
            What each has, by rank; empty but in the first process.

        Raises
        ------
        ProcessError
            When a process is lost.
        """
        if self.count == 1:
            return [part]
        from torch import distributed

        parts: list[Any] | None = [None] * self.count if self.first else None
        with _losses():
            distributed.gather_object(part, parts)
        return parts or []

    def _from_first(self, decided: list[Item]) -> list[Item]:
        if self.count == 1:
            return decided
        from torch import distributed

        told = [decided]
        with _losses():
            distributed.broadcast_object_list(told)
        if not told[0] and not self.first:
            raise SystemExit(1)
        return told[0]


@contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        line = " ".join(str(error).split())
        raise ProcessError(
            f"lost another process of this job ({line[:100]}); see what it "
            "says, and repeat the command (-o DIR --skip-existing goes on)"
        ) from error
