"""Lists of recordings to transcribe: CSV and JSON lines.

SpeechBrain's manifests and NeMo's are among them. Only the audio's path must
be there; what was said is not read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mala_asr.data.manifest import (
    ManifestError,
    Row,
    csv_rows,
    manifest_text,
    refuse_duplicates,
    seconds_of,
)
from mala_asr.inference.names import distinct
from mala_asr.inference.transcript import Recording

# The usual names, the first that a line has is taken.
_AUDIO = ("wav", "audio_filepath", "audio", "path", "file", "filename")
_ID = ("ID", "id", "utt_id", "utterance_id", "utt", "key")
_START = ("start", "offset")
_STOP = ("stop", "end")


def read_recordings(path: str | os.PathLike[str]) -> list[Recording]:
    """Read a list of recordings.

    Arguments
    ---------
    path : str or os.PathLike
        A CSV with a line of names, or JSON lines. Each line has the audio's
        path (as ``wav``, ``audio_filepath``, ``audio``, ``path``, ``file`` or
        ``filename``; relative paths count from the working folder, else from
        the list's) and perhaps an id, ``start`` and ``stop`` in seconds, or
        ``offset`` and ``duration``.

    Returns
    -------
    list[Recording]
        In the list's order. Where the list has ids they are the names; else
        the files' names are, made distinct.

    Raises
    ------
    ManifestError
        If the list cannot be read, an id comes twice, or a line has no
        audio or no numbers where they belong.

    Example
    -------
    >>> path = getfixture("tmp_path") / "list.jsonl"
    >>> _ = path.write_text('{"audio": "/x/a.wav", "offset": 1, "duration": 2}')
    >>> [recording] = read_recordings(path)
    >>> recording.path, recording.start, recording.stop, recording.name
    ('/x/a.wav', 1.0, 3.0, 'a-0001000-0003000')
    """
    path = Path(path)
    text = manifest_text(path, "give a CSV or JSON lines")
    rows = _json_rows if text.lstrip().startswith("{") else csv_rows
    listed = list(rows(path, text))
    if not listed:
        raise ManifestError(f"{path} lists no recordings; add some")
    recordings = [_recording(path, *row) for row in listed]
    if all(_first(row, _ID) is None for _, row in listed):
        return distinct(recordings)
    refuse_duplicates(path, (recording.name for recording in recordings))
    return recordings


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ManifestError(
                f"{path}, line {number}: not a JSON object; write one a line"
            )
        yield number, {k: None if v is None else str(v) for k, v in row.items()}


def _recording(path: Path, line: int, row: Row) -> Recording:
    audio = _first(row, _AUDIO)
    if audio is None:
        raise ManifestError(
            f"{path}, line {line}: no audio; name it in a field 'wav' or "
            "'audio_filepath'"
        )
    start = seconds_of(path, line, _named(row, _START), row)
    stop = seconds_of(path, line, _named(row, _STOP), row)
    # NeMo's way; elsewhere the duration only tells how long the file is.
    if row.get("offset") and stop is None:
        duration = seconds_of(path, line, "duration", row)
        stop = None if duration is None else (start or 0.0) + duration
    name = _first(row, _ID)
    if name is not None and not name.isprintable():
        raise ManifestError(
            f"{path}, line {line}: the id {name!r} cannot be printed; give "
            "another"
        )
    return Recording(
        _located(audio, path.parent),
        name or _part_name(audio, start, stop),
        start,
        stop,
        source=audio,
        label=name or "",
    )


def _named(row: Row, names: Sequence[str]) -> str:
    """The first of some fields that has a value."""
    return next((name for name in names if row.get(name)), names[0])


def _first(row: Row, names: Sequence[str]) -> str | None:
    return row.get(_named(row, names)) or None


def _located(audio: str, folder: Path) -> str:
    beside = folder / audio
    if not os.path.exists(audio) and os.path.exists(beside):
        return str(beside)
    return audio


def _part_name(audio: str, start: float | None, stop: float | None) -> str:
    name = Path(audio).stem
    for time in (start, stop) if start or stop else ():
        name += "-" if time is None else f"-{round(1000 * time):07}"
    return name
