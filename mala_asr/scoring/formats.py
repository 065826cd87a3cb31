"""Files of transcripts: which format they are in, reading, writing trn."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from mala_asr.scoring import lines, nist, tables
from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.transcripts import Reader, Source, Transcripts

FORMATS: dict[str, Reader] = {
    "trn": lines.read_trn,
    "kaldi": lines.read_kaldi,
    "plain": lines.read_plain,
    "stm": nist.read_stm,
    "ctm": nist.read_ctm,
    "jsonl": tables.read_jsonl,
    "csv": tables.read_csv,
}
_ENDINGS = {
    ".trn": "trn",
    ".stm": "stm",
    ".ctm": "ctm",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
}


def read_transcripts(
    path: str | os.PathLike[str],
    file_format: str = "auto",
    hypothesis: bool = False,
    id_field: str | None = None,
    text_field: str | None = None,
    segments: str | os.PathLike[str] | None = None,
) -> Transcripts:
    """Read the transcripts in a file by id.

    Arguments
    ---------
    path : str or os.PathLike
        A UTF-8 text file.
    file_format : str
        A name in `FORMATS`, or ``auto``: told from the file's ending, and
        else from its lines (`detect_format`).
    hypothesis : bool
        Whether what was recognized is wanted, from a table that has both.
    id_field : str, optional
        Field of a table that has the ids.
    text_field : str, optional
        Field of a table that has the words.
    segments : str or os.PathLike, optional
        An stm file; where ``path`` is a ctm file, each of its words goes to
        the segment that it lies in (`nist.words_by_segment`).

    Returns
    -------
    Transcripts
        Texts by id, in the order of the file, and the format it was read as.

    Raises
    ------
    ScoringError
        When the file cannot be read, a line is not of the format, or an id
        comes twice.
    """
    source = Source(
        str(path), _read_text(Path(path)), hypothesis, id_field, text_field
    )
    if file_format == "auto":
        file_format = detect_format(source)
    if file_format == "ctm" and segments is not None:
        reference = Source(str(segments), _read_text(Path(segments)))
        transcripts = nist.words_by_segment(source, reference)
    else:
        transcripts = FORMATS[file_format](source)
    if not transcripts.texts:
        raise ScoringError(f"{path}: no transcripts in this file")
    return transcripts


def detect_format(source: Source) -> str:
    """Tell the formats apart.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    str
        The format of the file's ending, if it has one; else ``jsonl`` if the
        first line is a JSON object, ``csv`` if it names fields of ids and
        words, ``stm`` or ``ctm`` if every line has their times, ``trn`` if
        every line ends in an id, ``kaldi`` if every line starts with a
        different first field that has a digit and something else, and else
        ``plain``.

    Example
    -------
    >>> detect_format(Source("ref", "one two (a-1)\\n(a-2)\\n"))
    'trn'
    >>> detect_format(Source("ref", "a-1 one two\\na-2\\n"))
    'kaldi'
    >>> detect_format(Source("ref", "one two\\n2 dogs\\n"))
    'plain'
    """
    ending = Path(source.path).suffix.lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    filled = [line for _, line in source.filled()]
    checks = {
        "jsonl": lambda: tables.is_jsonl(filled),
        "csv": lambda: tables.is_csv(source),
        "stm": lambda: nist.is_stm(source),
        "ctm": lambda: nist.is_ctm(source),
        "trn": lambda: lines.is_trn(filled),
        "kaldi": lambda: lines.is_kaldi(filled),
    }
    if not filled:
        return "plain"
    return next((name for name, is_it in checks.items() if is_it()), "plain")


def write_trn(
    path: str | os.PathLike[str], transcripts: Mapping[str, str]
) -> None:
    """Write transcripts as ``words (id)``, one utterance a line.

    Arguments
    ---------
    path : str or os.PathLike
        The file to write.
    transcripts : Mapping[str, str]
        Text by id; the words end up separated by single spaces.

    Raises
    ------
    ScoringError
        When an id has white space or parentheses, which the format cannot
        hold.
    """
    for key in transcripts:
        if not lines.TRN_LINE.match(f"({key})"):
            raise ScoringError(
                f"'{key}' cannot be an id in a .trn file; take out white "
                "space and parentheses"
            )
    Path(path).write_text("".join(_trn_lines(transcripts)), encoding="utf-8")


def _trn_lines(transcripts: Mapping[str, str]) -> Iterable[str]:
    for key, text in transcripts.items():
        yield f"{' '.join(text.split())} ({key})\n".lstrip()


def _read_text(path: Path) -> str:
    try:
        # "utf-8-sig" drops the mark that some editors put at the start.
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ScoringError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScoringError(
            f"{path}: not UTF-8 text; convert it, for example with "
            "iconv -t UTF-8"
        ) from error
