"""What to do with a recording that is longer than an utterance.

Kept free of torch, so that a command line can refuse what makes no sense at
once; long_form.py does what is asked for here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mala_asr.errors import UsageError

WAYS = ("auto", "one-pass", "chunks", "silence")

# Longer than any utterance of LibriSpeech, which has 35 s at most.
CHUNK_LENGTH = 40.0

# By itself, chunks share this part of their length.
_OVERLAP = 1 / 8


@dataclass(frozen=True)
class Segmentation:
    """How recordings longer than a chunk are decoded.

    Arguments
    ---------
    way : str
        ``one-pass``; ``chunks`` that overlap, joined by the times of their
        words; ``silence``: cut at the quietest moments; ``auto``: one pass
        if the memory suffices and the decoder can, else chunks.
    chunk_length : float
        Seconds of a chunk or segment at most.
    overlap : float, optional
        Seconds that chunks share, at most a third of their length; by itself
        an eighth of it.

    Raises
    ------
    UsageError
        For an unknown way or lengths that make no sense.

    Example
    -------
    >>> Segmentation("chunks", chunk_length=10, overlap=10)
    Traceback (most recent call last):
    ...
    mala_asr.errors.UsageError: overlap is 10 s and chunk length 10 s; \
overlap at most a third of the chunk
    """

    way: str = "auto"
    chunk_length: float = CHUNK_LENGTH
    overlap: float | None = None

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise UsageError(
                f"unknown segmentation '{self.way}'; choose from "
                + ", ".join(WAYS)
            )
        if not 1.0 <= self.chunk_length < math.inf:
            raise UsageError(
                f"chunk length is {self.chunk_length:g} s; give at least 1"
            )
        if not 0.0 <= self.shared <= self.chunk_length / 3:
            raise UsageError(
                f"overlap is {self.shared:g} s and chunk length "
                f"{self.chunk_length:g} s; overlap at most a third of the chunk"
            )

    @property
    def shared(self) -> float:
        """Seconds that chunks share."""
        if self.overlap is None:
            return _OVERLAP * self.chunk_length
        return self.overlap
