"""Names of recordings, so that no two of them share an output."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePath
from unicodedata import normalize

from mala_asr.inference.transcript import Recording


def folded(name: str) -> str:
    """Give what file systems that ignore case make of a name.

    Arguments
    ---------
    name : str
        A name.

    Returns
    -------
    str
        Equal for names that would be one file somewhere.

    Example
    -------
    >>> folded("A-1") == folded("a-1")
    True
    """
    return normalize("NFC", name).casefold()


def distinct(recordings: Iterable[Recording]) -> list[Recording]:
    """Give every recording an id of its own.

    Arguments
    ---------
    recordings : Iterable[Recording]
        Recordings whose ids may be equal, also but for upper and lower case,
        which some file systems do not tell apart.

    Returns
    -------
    list[Recording]
        Those of equal ids are named with their folders, and if that is not
        enough with their files' endings or a number.

    Example
    -------
    >>> paths = ["x/a.wav", "y/a.wav", "y/b.wav", "y/b.mp3", "c.wav"]
    >>> [r.id for r in distinct(map(Recording, paths))]
    ['x/a', 'y/a', 'y/b.wav', 'y/b.mp3', 'c']
    """
    kept = list(recordings)
    for names in _longer_names(kept):
        equal = _equal_ids(kept)
        kept = [
            replace(recording, name=name) if index in equal else recording
            for index, (recording, name) in enumerate(
                zip(kept, names, strict=True)
            )
        ]
    return _numbered(kept)


def _longer_names(recordings: Sequence[Recording]) -> list[list[str]]:
    """Names with the folders below the one that all have in common."""
    folders = [os.path.dirname(os.path.abspath(r.path)) for r in recordings]
    root = os.path.commonpath(folders) if folders else ""
    names = [
        (Path(os.path.relpath(folder, root)) / PurePath(r.name).name).as_posix()
        for folder, r in zip(folders, recordings, strict=True)
    ]
    endings = [os.path.splitext(r.path)[1] for r in recordings]
    return [names, [n + e for n, e in zip(names, endings, strict=True)]]


def _equal_ids(recordings: Sequence[Recording]) -> set[int]:
    places: dict[str, list[int]] = {}
    for index, recording in enumerate(recordings):
        places.setdefault(folded(recording.id), []).append(index)
    return {i for same in places.values() if len(same) > 1 for i in same}


def _numbered(recordings: Sequence[Recording]) -> list[Recording]:
    taken: set[str] = set()
    numbered = []
    for recording in recordings:
        name = recording.name
        for number in count(2):
            if folded(recording.id) not in taken:
                break
            recording = replace(recording, name=f"{name}-{number}")
        taken.add(folded(recording.id))
        numbered.append(recording)
    return numbered
