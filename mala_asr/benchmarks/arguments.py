"""What the benchmarks' command lines share."""

from __future__ import annotations

import argparse
from typing import Any


def positive(kind: type) -> Any:
    """Make a reader of positive numbers for argparse.

    Arguments
    ---------
    kind : type
        int or float.

    Returns
    -------
    callable
        From text to number; argparse reports what it refuses.

    Example
    -------
    >>> positive(int)("3")
    3
    """

    def parse(text: str) -> Any:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return value

    parse.__name__ = kind.__name__
    return parse
