"""Formats of one utterance a line: trn, Kaldi text and plain lines."""

import re
from collections.abc import Sequence

from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.transcripts import Source, Transcripts, wrong_line

# `words (id)`, as sclite reads it.
TRN_LINE = re.compile(r"^(.*?)\s*\(([^()\s]+)\)\s*$")
# A first field that is rather an id than a word: 84-121123-0000, spk1_utt2.
_LIKE_AN_ID = re.compile(r"^(?=.*\d)(?=.*[^\d.,]).+$")


def read_trn(source: Source) -> Transcripts:
    """Read ``words (id)``.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        Its transcripts.

    Raises
    ------
    ScoringError
        When a line is not of the format, or has sclite's alternatives.

    Example
    -------
    >>> read_trn(Source("f.trn", "one two (a-1)\\n(a-2)\\n")).texts
    {'a-1': 'one two', 'a-2': ''}
    """
    transcripts = Transcripts("trn")
    for number, line in source.filled():
        match = TRN_LINE.match(line)
        if match is None:
            raise wrong_line(source, number, "trn")
        text, key = match.groups()
        place = source.place(number)
        refuse_alternatives(place, text)
        transcripts.add(place, key, text)
    return transcripts


def read_kaldi(source: Source) -> Transcripts:
    """Read ``id words``, the ``text`` file of a Kaldi data folder.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        Its transcripts.

    Example
    -------
    >>> read_kaldi(Source("text", "a-1 one two\\na-2\\n")).texts
    {'a-1': 'one two', 'a-2': ''}
    """
    transcripts = Transcripts("kaldi")
    for number, line in source.filled():
        key, *text = line.split(maxsplit=1)
        transcripts.add(source.place(number), key, "".join(text))
    return transcripts


def read_plain(source: Source) -> Transcripts:
    """Read one utterance a line, its id the number of the line.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        Its transcripts.

    Example
    -------
    >>> read_plain(Source("f.txt", "one two\\n\\nthree\\n")).texts
    {'1': 'one two', '2': '', '3': 'three'}
    """
    transcripts = Transcripts("plain")
    for number, line in enumerate(source.lines(), start=1):
        transcripts.add(source.place(number), str(number), line)
    return transcripts


def is_trn(filled: Sequence[str]) -> bool:
    """Whether every line ends in an id between parentheses.

    Arguments
    ---------
    filled : Sequence[str]
        The lines that are not blank.

    Returns
    -------
    bool
        Whether they look like trn.
    """
    return all(TRN_LINE.match(line) for line in filled)


def is_kaldi(filled: Sequence[str]) -> bool:
    """Whether every line starts with another first field like an id.

    Arguments
    ---------
    filled : Sequence[str]
        The lines that are not blank.

    Returns
    -------
    bool
        Whether they look like Kaldi text: the first fields all differ and
        have a digit and something else.
    """
    first = [line.split(maxsplit=1)[0] for line in filled]
    return len(set(first)) == len(first) and all(
        _LIKE_AN_ID.match(field) for field in first
    )


def refuse_alternatives(place: str, text: str) -> None:
    """Refuse ``{ a / b }``, which sclite would choose from.

    Arguments
    ---------
    place : str
        Where the words stand, for the message.
    text : str
        The words.

    Raises
    ------
    ScoringError
        When there is such a choice.
    """
    if "{" in text and "{" in text.split():
        raise ScoringError(
            f"{place}: alternatives {{ a / b }} are not chosen from here; "
            "write one of them out, or score this file with sclite"
        )
