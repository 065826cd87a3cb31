"""Manifests: SpeechBrain's CSV lists of utterances.

One line is one utterance: ID, duration (seconds), wav (path), spk_id, wrd
(its words) and, where it is a part of a longer file, start and stop (seconds).
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mala_asr.data.files import replacing
from mala_asr.errors import MalaError

COLUMNS = ("ID", "duration", "wav", "spk_id", "wrd")
SPAN_COLUMNS = ("start", "stop")

# The fields of a line by column; None where the line is too short.
Row = dict[str, str | None]


class ManifestError(MalaError):
    """A manifest that cannot be read or written as it is."""


@dataclass(frozen=True)
class Utterance:
    """One line of a manifest.

    Arguments
    ---------
    id : str
        Name of the utterance, unique in its manifest.
    duration : float
        Length in seconds.
    wav : str
        Path of the audio file.
    spk_id : str
        Name of the speaker.
    wrd : str
        The words spoken.
    start : float, optional
        Where the utterance starts in the file, in seconds.
    stop : float, optional
        Where it stops.

    Example
    -------
    >>> Utterance("84-1-0000", 2.5, "84-1-0000.flac", "84", "GO ON").spk_id
    '84'
    """

    id: str
    duration: float
    wav: str
    spk_id: str
    wrd: str
    start: float | None = None
    stop: float | None = None


def write_manifest(
    path: str | os.PathLike[str], utterances: Iterable[Utterance]
) -> None:
    """Write utterances as a SpeechBrain CSV, all of them or nothing.

    The columns start and stop are written where some utterance has them.

    Arguments
    ---------
    path : str or os.PathLike
        The CSV to write; an existing one is replaced.
    utterances : iterable of Utterance
        What to write, in this order.

    Raises
    ------
    ManifestError
        If two utterances share an id.

    Example
    -------
    >>> path = getfixture("tmp_path") / "dev.csv"
    >>> write_manifest(path, [Utterance("a", 1.5, "a.flac", "spk", "HELLO")])
    >>> print(path.read_text(), end="")
    ID,duration,wav,spk_id,wrd
    a,1.5,a.flac,spk,HELLO
    """
    utterances = list(utterances)
    refuse_duplicates(path, (utterance.id for utterance in utterances))
    spans = any(u.start is not None or u.stop is not None for u in utterances)
    with (
        replacing(path) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as stream,
    ):
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS + SPAN_COLUMNS if spans else COLUMNS)
        for u in utterances:
            row = [u.id, u.duration, u.wav, u.spk_id, u.wrd]
            writer.writerow(row + [u.start, u.stop] if spans else row)


def read_manifest(path: str | os.PathLike[str]) -> list[Utterance]:
    """Read a manifest; columns it does not know are left alone.

    Arguments
    ---------
    path : str or os.PathLike
        A CSV with the columns ID, duration, wav, spk_id, wrd and perhaps
        start, stop.

    Returns
    -------
    list of Utterance
        In the file's order.

    Raises
    ------
    ManifestError
        If the file is missing, is not such a CSV, or repeats an id.

    Example
    -------
    >>> path = getfixture("tmp_path") / "dev.csv"
    >>> write_manifest(path, [Utterance("a", 1.5, "a.flac", "spk", "HELLO")])
    >>> read_manifest(path)[0].wrd
    'HELLO'
    """
    text = manifest_text(path, "write one with `mala-asr prepare`")
    utterances = [
        _utterance(path, line, row)
        for line, row in csv_rows(path, text, required=COLUMNS)
    ]
    refuse_duplicates(path, (utterance.id for utterance in utterances))
    return utterances


def manifest_text(path: str | os.PathLike[str], advice: str) -> str:
    """Read the text of a list of recordings.

    Arguments
    ---------
    path : str or os.PathLike
        The file.
    advice : str
        What to do where it cannot be read, for the message of the error.

    Returns
    -------
    str
        The text, its line ends as they are.

    Raises
    ------
    ManifestError
        If the file cannot be read or is not UTF-8.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            return stream.read()
    except OSError as error:
        raise ManifestError(
            f"cannot read the manifest {path}: {error.strerror}; {advice}"
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8 text; {advice}") from error


def csv_rows(
    path: str | os.PathLike[str], text: str, required: Iterable[str] = ()
) -> Iterator[tuple[int, Row]]:
    """Go over the lines of a CSV after the one with the columns' names.

    Arguments
    ---------
    path : str or os.PathLike
        The file, for the messages of errors.
    text : str
        What is in it.
    required : iterable of str
        Columns that it must have.

    Yields
    ------
    tuple of int and Row
        The number of the line and its fields; None where it is too short.

    Raises
    ------
    ManifestError
        If it is no CSV or lacks a column.

    Example
    -------
    >>> list(csv_rows("a.csv", "ID,wav\\na,a.flac\\n"))
    [(2, {'ID': 'a', 'wav': 'a.flac'})]
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        present = set(reader.fieldnames or ())
        missing = [name for name in required if name not in present]
        if missing:
            raise ManifestError(
                f"{path} has no column {', '.join(missing)}; "
                f"a manifest's first line is {','.join(required)}"
            )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ManifestError(
            f"{path}, line {reader.line_num}: not a CSV ({error}); write it "
            "anew as CSV"
        ) from error


def _utterance(path: str | os.PathLike[str], line: int, row: Row) -> Utterance:
    short = [name for name in COLUMNS if row[name] is None]
    if short:
        raise ManifestError(
            f"{path}, line {line}: no value for {', '.join(short)}; "
            "give every column a value"
        )
    duration = seconds_of(path, line, "duration", row)
    if duration is None:
        raise ManifestError(
            f"{path}, line {line}: the duration is empty; give it in seconds"
        )
    return Utterance(
        id=row["ID"] or "",
        duration=duration,
        wav=row["wav"] or "",
        spk_id=row["spk_id"] or "",
        wrd=row["wrd"] or "",
        start=seconds_of(path, line, "start", row),
        stop=seconds_of(path, line, "stop", row),
    )


def seconds_of(
    path: str | os.PathLike[str],
    line: int,
    column: str,
    row: Mapping[str, str | None],
) -> float | None:
    """Read a field that holds seconds.

    Arguments
    ---------
    path : str or os.PathLike
        The manifest, for the message of an error.
    line : int
        The line of it.
    column : str
        The field's name.
    row : Mapping[str, str or None]
        The line's fields.

    Returns
    -------
    float or None
        The seconds; None where the field is missing or empty.

    Raises
    ------
    ManifestError
        If it is no number, or less than zero.

    Example
    -------
    >>> seconds_of("dev.csv", 2, "start", {"start": "1.5"})
    1.5
    """
    text = row.get(column)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ManifestError(
            f"{path}, line {line}: {column} is {text!r}; "
            "give a number of seconds"
        )
    return value


def refuse_duplicates(path: str | os.PathLike[str], ids: Iterable[str]) -> None:
    """Refuse a manifest that gives two utterances one id.

    Arguments
    ---------
    path : str or os.PathLike
        The manifest, for the message of an error.
    ids : iterable of str
        The ids in it.

    Raises
    ------
    ManifestError
        If one comes twice.
    """
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise ManifestError(
                f"{Path(path).name}: the id {name!r} appears twice; "
                "give every utterance its own"
            )
        seen.add(name)
