"""Keep freed memory in the process, so that steps do not wait for pages.

glibc gives every large block back to the system as soon as it is freed and
asks for it again a moment later. A training step frees and takes hundreds of
large activations, and on a CPU much of its time then goes into zeroing pages.
Blocks kept on the heap are reused as they are.
"""

from __future__ import annotations

import ctypes
import os
import sys

# Names from malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Blocks up to 1 GiB stay on the heap, and the heap's free end is kept.
_MMAP_THRESHOLD = 1 << 30
_TRIM_THRESHOLD = (1 << 31) - 1

# A user who has set one of these knows better.
_ENVIRONMENT = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)


def keep_freed_memory() -> bool:
    """Tell glibc to keep large freed blocks for reuse.

    Nothing is changed where the C library is another one, or where the
    environment already sets ``MALLOC_MMAP_THRESHOLD_``,
    ``MALLOC_TRIM_THRESHOLD_`` or ``GLIBC_TUNABLES``.

    Returns
    -------
    bool
        Whether the setting was made.

    Example
    -------
    >>> keep_freed_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux"):
        return False
    if any(name in os.environ for name in _ENVIRONMENT):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        and mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
    )
