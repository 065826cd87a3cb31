"""The most memory that a process has held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Give the most memory that this process has had in use.

    Returns
    -------
    int
        Bytes of resident memory, of this program alone: on Linux the figure
        of `getrusage` may be that of the program which started it.

    Example
    -------
    >>> peak_memory() > 1_000_000
    True
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_device_memory() -> int | None:
    """Give the most memory that PyTorch has had in use on a GPU.

    Returns
    -------
    int or None
        Bytes; None where no GPU was used.
    """
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return torch.cuda.max_memory_allocated()
