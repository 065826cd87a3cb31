"""The most memory that a process has held."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


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


def reset_peak_memory() -> bool:
    """Have `peak_memory` start anew from what is in use now.

    Freed blocks that the C library keeps are given back first: they would
    hide new ones.

    Returns
    -------
    bool
        False where the system cannot do that.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or not _CLEAR_REFS.exists():
        return False
    trim(0)
    _CLEAR_REFS.write_text("5")
    return True


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
