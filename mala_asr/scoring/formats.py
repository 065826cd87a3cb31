"""Files of transcripts: trn, Kaldi text and plain lines."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mala_asr.scoring.wer import ScoringError

# `words (id)`, as sclite reads it.
_TRN_LINE = re.compile(r"^(.*?)\s*\(([^()\s]+)\)\s*$")
# A first field that is rather an id than a word: 84-121123-0000, spk1_utt2.
_LIKE_AN_ID = re.compile(r"^(?=.*\d)(?=.*[^\d.,]).+$")


def read_transcripts(
    path: str | os.PathLike[str], file_format: str = "auto"
) -> tuple[dict[str, str], str]:
    """Read the transcripts in a file by id.

    Arguments
    ---------
    path : str or os.PathLike
        A UTF-8 text file.
    file_format : str
        ``trn`` (``words (id)``), ``kaldi`` (``id words``), ``plain`` (one
        utterance a line, its id the number of the line), or ``auto``: trn if
        every line ends in an id, kaldi if every line starts with a different
        first field that has a digit and something else, and else plain.

    Returns
    -------
    transcripts : dict[str, str]
        Text by id, in the order of the file.
    file_format : str
        The format that the file was read as.

    Raises
    ------
    ScoringError
        When the file cannot be read, a line is not of the format, or an id
        comes twice.
    """
    lines = _read_lines(Path(path))
    if file_format == "auto":
        file_format = detect_format(lines)
    pairs: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() and file_format != "plain":
            continue
        pair = FORMATS[file_format](number, line)
        if pair is None:
            raise ScoringError(
                f"{path}, line {number}: not in the {file_format} format; "
                "name the file's format with --format"
            )
        key, text = pair
        if key in pairs:
            raise ScoringError(
                f"{path}, line {number}: id '{key}' a second time; "
                "ids must differ"
            )
        pairs[key] = text
    if not pairs:
        raise ScoringError(f"{path}: no transcripts in this file")
    return pairs, file_format


def detect_format(lines: Iterable[str]) -> str:
    """Tell trn, Kaldi text and plain lines apart.

    Arguments
    ---------
    lines : Iterable[str]
        The lines of a file.

    Returns
    -------
    str
        ``trn``, ``kaldi`` or ``plain``.

    Example
    -------
    >>> detect_format(["one two (a-1)", "(a-2)"])
    'trn'
    >>> detect_format(["a-1 one two", "a-2"])
    'kaldi'
    >>> detect_format(["one two", "2 dogs"])
    'plain'
    """
    filled = [line for line in lines if line.strip()]
    if filled and all(_TRN_LINE.match(line) for line in filled):
        return "trn"
    first = [line.split(maxsplit=1)[0] for line in filled]
    if (
        first
        and len(set(first)) == len(first)
        and all(_LIKE_AN_ID.match(field) for field in first)
    ):
        return "kaldi"
    return "plain"


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
        if not _TRN_LINE.match(f"({key})"):
            raise ScoringError(
                f"'{key}' cannot be an id in a .trn file; take out white "
                "space and parentheses"
            )
    lines = [
        f"{' '.join(text.split())} ({key})\n".lstrip()
        for key, text in transcripts.items()
    ]
    Path(path).write_text("".join(lines), encoding="utf-8")


def _trn(number: int, line: str) -> tuple[str, str] | None:
    match = _TRN_LINE.match(line)
    return (match[2], match[1]) if match else None


def _kaldi(number: int, line: str) -> tuple[str, str] | None:
    key, *text = line.split(maxsplit=1)
    return key, "".join(text)


def _plain(number: int, line: str) -> tuple[str, str] | None:
    return str(number), line


FORMATS: dict[str, Callable[[int, str], tuple[str, str] | None]] = {
    "trn": _trn,
    "kaldi": _kaldi,
    "plain": _plain,
}


def _read_lines(path: Path) -> list[str]:
    try:
        # "utf-8-sig" drops the mark that some editors put at the start.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ScoringError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScoringError(
            f"{path}: not UTF-8 text; convert it, for example with "
            "iconv -t UTF-8"
        ) from error
    if not text:
        return []
    # Not splitlines(): a vertical tab or U+2028 does not end a line here.
    return text.removesuffix("\n").split("\n")
