"""Words with times, put together into the cues of subtitles.

A model gives words without punctuation, so a cue ends where the speaker
pauses, where its lines are full, or when it has stood long enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mala_asr.decoding.hypothesis import Span

# What broadcasters ask of subtitles: two lines of 42 characters, for not
# more than seven seconds.
LINE_WIDTH = 42
LINE_COUNT = 2
MAX_SECONDS = 7.0

# Silence that ends a phrase, longer than that between the words of one.
PAUSE = 0.7


@dataclass(frozen=True)
class Cue:
    """Words that are shown together.

    Arguments
    ---------
    lines : Sequence[Sequence[Span]]
        The words of each line; there is at least one word.

    Example
    -------
    >>> word = Span("HI", start=0.5, end=0.75, confidence=0.5)
    >>> cue = Cue([[word], [word, word]])
    >>> cue.text, cue.start, cue.end
    ('HI HI HI', 0.5, 0.75)
    """

    lines: Sequence[Sequence[Span]]

    @property
    def words(self) -> list[Span]:
        """The words of all lines."""
        return [word for line in self.lines for word in line]

    @property
    def text(self) -> str:
        """The words as one line."""
        return " ".join(word.text for word in self.words)

    @property
    def start(self) -> float:
        """Where the first word starts, in seconds."""
        return self.lines[0][0].start

    @property
    def end(self) -> float:
        """Where the last word ends, in seconds."""
        return self.lines[-1][-1].end

    @property
    def confidence(self) -> float:
        """The mean confidence of the words."""
        words = self.words
        return sum(word.confidence for word in words) / len(words)


def make_cues(
    words: Sequence[Span],
    line_width: int = LINE_WIDTH,
    line_count: int = LINE_COUNT,
) -> list[Cue]:
    """Put words together into cues.

    Arguments
    ---------
    words : Sequence[Span]
        Words in the order of time.
    line_width : int
        Most characters of a line; a longer word gets a line of its own.
    line_count : int
        Most lines of a cue.

    Returns
    -------
    list[Cue]
        Every word is in one cue, in order.

    Example
    -------
    >>> words = [Span("WELL", 0.0, 0.5, 1.0), Span("GO", 2.0, 2.2, 1.0),
    ...          Span("ON", 2.2, 2.5, 1.0), Span("THEN", 2.5, 3.0, 1.0)]
    >>> [cue.text for cue in make_cues(words)]
    ['WELL', 'GO ON THEN']
    >>> [cue.text for cue in make_cues(words, line_width=5, line_count=1)]
    ['WELL', 'GO ON', 'THEN']
    """
    return list(_cues(words, line_width, line_count))


def _cues(
    words: Sequence[Span], line_width: int, line_count: int
) -> Iterator[Cue]:
    lines: list[list[Span]] = []
    for word in words:
        if lines and _ends(Cue(lines), word):
            yield Cue(lines)
            lines = []
        if lines and _width(lines[-1]) + 1 + len(word.text) <= line_width:
            lines[-1].append(word)
        elif len(lines) < line_count:
            lines.append([word])
        else:
            yield Cue(lines)
            lines = [[word]]
    if lines:
        yield Cue(lines)


def _ends(cue: Cue, word: Span) -> bool:
    """Whether a word is too late to stand in a cue."""
    return word.start - cue.end >= PAUSE or word.end - cue.start > MAX_SECONDS


def _width(line: Sequence[Span]) -> int:
    return sum(len(word.text) + 1 for word in line) - 1
