"""Formats of named fields: JSON lines, and CSV with a line of names.

SpeechBrain's manifests (ID, duration, spk_id, wrd) and NeMo's
(audio_filepath, duration, text, pred_text) are among them.
"""

import csv
import io
import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.transcripts import Source, Transcripts, wrong_line

# The usual names, the first that a file has is taken.
ID_FIELDS = (
    "id",
    "ID",
    "utt_id",
    "utterance_id",
    "utt",
    "key",
    "audio_filepath",
    "path",
    "file",
    "wav",
)
_TEXT_FIELDS = ("text", "wrd", "transcript", "transcription", "sentence")
REFERENCE_FIELDS = ("reference", "ref", *_TEXT_FIELDS)
HYPOTHESIS_FIELDS = (
    "pred_text",
    "hypothesis",
    "hyp",
    "prediction",
    *_TEXT_FIELDS,
)
SPEAKER_FIELDS = ("spk_id", "speaker", "speaker_id", "spk")
SET_FIELDS = ("set", "split", "subset")


def read_jsonl(source: Source) -> Transcripts:
    """Read one JSON object a line.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        Its transcripts, with duration, speaker and set where it has them.

    Raises
    ------
    ScoringError
        When a line is no object, or lacks id or words.

    Example
    -------
    >>> line = '{"id": "a-1", "text": "one two", "duration": 1.5}'
    >>> read_jsonl(Source("f.jsonl", line)).durations
    {'a-1': 1.5}
    """
    return _from_rows(source, "jsonl", _json_rows(source))


def read_csv(source: Source) -> Transcripts:
    """Read fields between commas or tabs under a line of their names.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        Its transcripts, with duration, speaker and set where it has them.

    Raises
    ------
    ScoringError
        When there are no fields of id and words, or a line has more or less
        fields than the first.

    Example
    -------
    >>> read_csv(Source("f.csv", "ID,wrd\\na-1,one two\\n")).texts
    {'a-1': 'one two'}
    """
    return _from_rows(source, "csv", _csv_rows(source))


def is_jsonl(filled: Sequence[str]) -> bool:
    """Whether the first line is a JSON object.

    Arguments
    ---------
    filled : Sequence[str]
        The lines that are not blank.

    Returns
    -------
    bool
        Whether they look like JSON lines.
    """
    if not filled[0].lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(filled[0]), dict)
    except ValueError:
        return False


def is_csv(source: Source) -> bool:
    """Whether the first line names a field of ids and a field of words.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    bool
        Whether it looks like CSV.
    """
    names = next(_csv_records(source), (0, []))[1]
    return len(names) > 1 and all(
        any(name in names for name in wanted)
        for wanted in _wanted(source).values()
    )


def _wanted(source: Source) -> dict[str, Sequence[str]]:
    usual = HYPOTHESIS_FIELDS if source.hypothesis else REFERENCE_FIELDS
    return {
        "id": [source.id_field] if source.id_field else ID_FIELDS,
        "words": [source.text_field] if source.text_field else usual,
    }


def _json_rows(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in source.filled():
        try:
            row = json.loads(line)
        except ValueError as error:
            raise wrong_line(source, number, "jsonl") from error
        if not isinstance(row, dict):
            raise wrong_line(source, number, "jsonl")
        yield number, row


def _csv_rows(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    records = _csv_records(source)
    names = next(records, (0, []))[1]
    for number, fields in records:
        if not fields:
            continue
        if len(fields) != len(names):
            raise ScoringError(
                f"{source.place(number)}: {len(fields)} fields, and the first "
                f"line names {len(names)}; quote fields that have separators"
            )
        yield number, dict(zip(names, fields, strict=True))


def _csv_records(source: Source) -> Iterator[tuple[int, list[str]]]:
    first = source.text.partition("\n")[0]
    tabs = first.count("\t") > first.count(",")
    # A transcript of hours in one field is longer than csv expects.
    csv.field_size_limit(max(csv.field_size_limit(), len(source.text)))
    reader = csv.reader(
        io.StringIO(source.text), delimiter="\t" if tabs else ","
    )
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise ScoringError(
            f"{source.place(reader.line_num)}: {error}; write it anew as CSV"
        ) from error


def _from_rows(
    source: Source,
    file_format: str,
    rows: Iterable[tuple[int, dict[str, Any]]],
) -> Transcripts:
    transcripts = Transcripts(file_format)
    names: dict[str, str] = {}
    for number, row in rows:
        place = source.place(number)
        # The first row decides, so that all rows are read from one field.
        names = names or {
            what: _choose(place, row, what, wanted)
            for what, wanted in _wanted(source).items()
        }
        transcripts.add(
            place,
            _text(place, row, names["id"]).strip(),
            _text(place, row, names["words"]),
            duration=_duration(place, row.get("duration")),
            speaker=_first(place, row, SPEAKER_FIELDS),
            set_name=_first(place, row, SET_FIELDS),
        )
    return transcripts


def _choose(
    place: str, row: Collection[str], what: str, wanted: Sequence[str]
) -> str:
    for name in wanted:
        if name in row:
            return name
    option = "--id-field" if what == "id" else "--ref-field or --hyp-field"
    raise ScoringError(
        f"{place}: no field of {what} ({', '.join(wanted)}) among "
        f"{', '.join(map(str, row))}; name it with {option}"
    )


def _text(place: str, row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if isinstance(value, str):
        return _encodable(place, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ScoringError(
        f"{place}: the field '{name}' has no text; an utterance without words "
        'has ""'
    )


def _encodable(place: str, text: str) -> str:
    # JSON can spell half of a surrogate pair, which no file can hold.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ScoringError(
            f"{place}: {text[error.start]!r} is no character; write the text "
            "anew"
        ) from error
    return text


def _duration(place: str, value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ScoringError(
            f"{place}: duration {value!r} is not a number of seconds"
        )
    return seconds


def _first(place: str, row: dict[str, Any], names: Sequence[str]) -> str | None:
    told = (row[name] for name in names if row.get(name) is not None)
    return next((_encodable(place, str(value)) for value in told), None)
