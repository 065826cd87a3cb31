"""Whether an audio file holds all that its header promises.

libsndfile takes a WAV, AIFF or Ogg file whose end is missing for a shorter
one, without a word. What the container itself says is read here.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

# Containers made of chunks, by their first four bytes: the order of bytes.
_CHUNKED = {b"RIFF": "<", b"RF64": "<", b"RIFX": ">", b"FORM": ">"}
_SAMPLE_CHUNKS = (b"data", b"SSND", b"BODY")

# A program that writes to a pipe cannot go back to fill in the size; it
# leaves about the greatest number there is, with or without a sign.
_OPEN_ENDED = (range(0x7FFFF000, 0x80000001), range(0xFFFFF000, 0x100000000))

_LARGEST_OGG_PAGE = 65307
_OGG_END_OF_STREAM = 4


def sample_bytes(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Compare what a WAV or AIFF promises with what it holds.

    Arguments
    ---------
    path : str or os.PathLike
        An audio file.

    Returns
    -------
    tuple of (int, int) or None
        Bytes of samples that the header states and that are in the file;
        None for other containers, and where a streamed file states none.

    Example
    -------
    >>> import soundfile
    >>> path = getfixture("tmp_path") / "a.wav"
    >>> soundfile.write(path, [0.0] * 800, 8000, "PCM_16")
    >>> sample_bytes(path)
    (1600, 1600)
    """
    with open(path, "rb") as stream:
        order = _CHUNKED.get(stream.read(12)[:4])
        stated = None if order is None else _find_samples(stream, order)
        if stated is None or any(stated in sizes for sizes in _OPEN_ENDED):
            return None
        return stated, os.path.getsize(path) - stream.tell()


def _find_samples(stream: BinaryIO, order: str) -> int | None:
    """Go to the samples and give the size stated for them."""
    long_size = None
    while len(head := stream.read(8)) == 8:
        name, size = struct.unpack(f"{order}4sI", head)
        if name in _SAMPLE_CHUNKS:
            return size if long_size is None else long_size
        body = stream.tell()
        if name == b"ds64":  # the sizes of an RF64, which take 64 bits
            long_size = int.from_bytes(stream.read(16)[8:], "little")
        stream.seek(body + size + size % 2)
    return None


def ogg_has_end(path: str | os.PathLike[str]) -> bool:
    """Whether an Ogg file has its last page, which says that it is the last.

    Arguments
    ---------
    path : str or os.PathLike
        An Ogg file.

    Returns
    -------
    bool
        Whether the stream is whole.
    """
    with open(path, "rb") as stream:
        size = os.path.getsize(path)
        stream.seek(max(0, size - _LARGEST_OGG_PAGE))
        page = stream.read()
    page = page[max(0, page.rfind(b"OggS")) :]
    if len(page) < 27:
        return False
    segments = page[27 : 27 + page[26]]
    whole = len(page) >= 27 + page[26] + sum(segments)
    return whole and bool(page[5] & _OGG_END_OF_STREAM)
