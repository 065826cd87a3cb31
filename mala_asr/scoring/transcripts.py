"""What every reader of transcripts returns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mala_asr.scoring.errors import ScoringError


@dataclass(frozen=True)
class Source:
    """A file as it was read, and which of its fields are wanted.

    Arguments
    ---------
    path : str
        The file's name, for messages.
    text : str
        What it holds, line ends as newlines.
    hypothesis : bool
        Whether what was recognized is wanted, where a file has both.
    id_field : str, optional
        Field of a table that has the ids, where its name is not a usual one.
    text_field : str, optional
        Field of a table that has the words.

    Example
    -------
    >>> source = Source("a.txt", "one\\n\\ntwo\\n")
    >>> source.lines(), list(source.filled())
    (['one', '', 'two'], [(1, 'one'), (3, 'two')])
    """

    path: str
    text: str
    hypothesis: bool = False
    id_field: str | None = None
    text_field: str | None = None

    def lines(self) -> list[str]:
        """Give the lines of the file without their ends."""
        # Not splitlines(): a vertical tab or U+2028 does not end a line here.
        return self.text.removesuffix("\n").split("\n") if self.text else []

    def filled(self) -> Iterator[tuple[int, str]]:
        """Give the lines that are not blank, with their numbers from 1."""
        for number, line in enumerate(self.lines(), start=1):
            if line.strip():
                yield number, line

    def place(self, line: int) -> str:
        """Name a line, counted from 1, for a message."""
        return f"{self.path}, line {line}"


@dataclass
class Transcripts:
    """Transcripts by id and what else their file tells about them.

    Arguments
    ---------
    file_format : str
        The format that the file was read as.
    texts : dict[str, str]
        Words by id, in the order of the file.
    durations : dict[str, float]
        Seconds by id; empty where the file does not tell.
    speakers : dict[str, str]
        Speaker by id; empty where the file does not tell.
    sets : dict[str, str]
        Name of a part of the data by id; empty where the file does not tell.
    notes : list[str]
        What the reader left out or moved, one line each.
    """

    file_format: str
    texts: dict[str, str] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    speakers: dict[str, str] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        place: str,
        key: str,
        text: str,
        duration: float | None = None,
        speaker: str | None = None,
        set_name: str | None = None,
    ) -> None:
        """Take one utterance in.

        Arguments
        ---------
        place : str
            Where it stands, for messages.
        key : str
            Its id.
        text : str
            Its words.
        duration : float, optional
            Its length in seconds.
        speaker : str, optional
            Who speaks.
        set_name : str, optional
            The part of the data that it belongs to.

        Raises
        ------
        ScoringError
            When the id is there already.
        """
        if key in self.texts:
            raise ScoringError(
                f"{place}: id '{key}' a second time; ids must differ"
            )
        self.texts[key] = text
        if duration is not None:
            self.durations[key] = duration
        if speaker:
            self.speakers[key] = speaker
        if set_name:
            self.sets[key] = set_name


Reader = Callable[[Source], Transcripts]


def wrong_line(source: Source, line: int, file_format: str) -> ScoringError:
    """Say that a line is not of the format.

    Arguments
    ---------
    source : Source
        The file.
    line : int
        The line's number, from 1.
    file_format : str
        What it should be.

    Returns
    -------
    ScoringError
        To be raised.
    """
    return ScoringError(
        f"{source.place(line)}: not in the {file_format} format; "
        "name the file's format with --format"
    )
