"""Kinds of command-line arguments that several commands take."""

from __future__ import annotations

import argparse
import math


def names(text: str) -> list[str]:
    """Names between commas.

    Arguments
    ---------
    text : str
        Such as "dev-clean,test-clean".

    Returns
    -------
    list of str
        The names.

    Raises
    ------
    argparse.ArgumentTypeError
        If there is none.

    Example
    -------
    >>> names("dev-clean,test-clean")
    ['dev-clean', 'test-clean']
    """
    found = [name for part in text.split(",") if (name := part.strip())]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} holds no name")
    return found


def positive(text: str) -> int:
    """A whole number above zero.

    Arguments
    ---------
    text : str
        Such as "8".

    Returns
    -------
    int
        The number.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is none.

    Example
    -------
    >>> positive("8")
    8
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number above zero"
        )
    return number


def number(text: str) -> float:
    """A finite number.

    Arguments
    ---------
    text : str
        Such as "-1.5".

    Returns
    -------
    float
        The number.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is none.

    Example
    -------
    >>> number("-1.5")
    -1.5
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def positive_float(text: str) -> float:
    """A finite number above zero.

    Arguments
    ---------
    text : str
        Such as "1.5".

    Returns
    -------
    float
        The number.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is none.

    Example
    -------
    >>> positive_float("1.5")
    1.5
    """
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return value
