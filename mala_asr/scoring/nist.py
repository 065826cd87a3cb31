"""NIST's time-marked formats: stm segments and ctm words.

stm: ``file channel speaker start end [<label>] words``, one segment a line.
ctm: ``file channel start duration word [confidence]``, one word a line.
Lines that start with ``;;`` are remarks. Both are described in the manual of
sclite (NIST SCTK, ``infmts``).
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.lines import refuse_alternatives
from mala_asr.scoring.transcripts import Source, Transcripts, wrong_line

# In the place of a segment's words: do not score what is heard there.
IGNORE = "ignore_time_segment_in_scoring"

_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_STM_LINE = re.compile(
    rf"^(\S+)\s+(\S+)\s+(\S+)\s+({_NUMBER})\s+({_NUMBER})"
    r"(?:\s+<([^>]*)>)?(?:\s+(.*))?$"
)
_CTM_LINE = re.compile(
    rf"^(\S+)\s+(\S+)\s+({_NUMBER})\s+({_NUMBER})\s+(\S+)"
    r"(?:\s+(?:-?[\d.]+(?:[eE]-?\d+)?|NA)(?:\s+\S+)*)?\s*$"
)


@dataclass(frozen=True)
class Segment:
    """One line of an stm file.

    Arguments
    ---------
    line : int
        Number of the line.
    file : str
        Name of the recording.
    channel : str
        Its channel.
    speaker : str
        Who speaks.
    start : float
        Where the segment starts, in seconds.
    end : float
        Where it ends, in seconds.
    label : str, optional
        What stands between ``<`` and ``>``.
    text : str
        The words.

    Example
    -------
    >>> Segment(1, "rec", "A", "ann", 1.5, 3.0, None, "HELLO").id
    'rec_A_0001500-0003000'
    """

    line: int
    file: str
    channel: str
    speaker: str
    start: float
    end: float
    label: str | None
    text: str

    @property
    def id(self) -> str:
        """Recording, channel and times in milliseconds."""
        return (
            f"{self.file}_{self.channel}_"
            f"{1000 * self.start:07.0f}-{1000 * self.end:07.0f}"
        )

    @property
    def ignored(self) -> bool:
        """Whether what is heard here is not to be scored."""
        return self.text.strip().lower() == IGNORE


@dataclass(frozen=True)
class TimedWord:
    """One line of a ctm file.

    Arguments
    ---------
    file : str
        Name of the recording.
    channel : str
        Its channel.
    start : float
        Where the word starts, in seconds.
    duration : float
        How long it lasts, in seconds.
    word : str
        The word.
    """

    file: str
    channel: str
    start: float
    duration: float
    word: str

    @property
    def middle(self) -> float:
        """The time halfway through the word, in seconds."""
        return self.start + self.duration / 2


def read_stm(source: Source) -> Transcripts:
    """Read the segments of an stm file as utterances.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        The segments to score, with their durations, speakers and labels (as
        sets); a note tells of segments not to be scored.

    Raises
    ------
    ScoringError
        When a line is not of the format.

    Example
    -------
    >>> line = "rec A ann 1.5 3.0 <o,f> one two"
    >>> read_stm(Source("f.stm", line)).texts
    {'rec_A_0001500-0003000': 'one two'}
    """
    segments = read_segments(source)
    transcripts = Transcripts("stm")
    for segment in segments:
        if not segment.ignored:
            transcripts.add(
                source.place(segment.line),
                segment.id,
                segment.text,
                duration=segment.end - segment.start,
                speaker=segment.speaker,
                set_name=segment.label,
            )
    ignored = sum(segment.ignored for segment in segments)
    if ignored:
        transcripts.notes.append(
            f"{ignored} of {len(segments)} segments are marked {IGNORE} and "
            "are not scored"
        )
    return transcripts


def read_ctm(source: Source) -> Transcripts:
    """Read a ctm file as one utterance a recording.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    Transcripts
        The words of each recording in the order of their times.

    Raises
    ------
    ScoringError
        When a line is not of the format, or a recording has two channels,
        whose words only an stm file can tell apart.

    Example
    -------
    >>> source = Source("f.ctm", "a-1 1 0.5 0.2 two\\na-1 1 0.1 0.2 one\\n")
    >>> read_ctm(source).texts
    {'a-1': 'one two'}
    """
    transcripts = Transcripts("ctm")
    channels: dict[str, str] = {}
    for (file, channel), words in _by_channel(read_words(source)).items():
        if file in channels:
            raise ScoringError(
                f"{source.path}: '{file}' has the channels "
                f"{channels[file]} and {channel}; score it against an stm "
                "file, or each channel alone"
            )
        channels[file] = channel
        transcripts.add(
            source.path, file, " ".join(word.word for word in words)
        )
    return transcripts


def words_by_segment(source: Source, reference: Source) -> Transcripts:
    """Give each segment of an stm file its words of a ctm file.

    A word belongs to the segment of its recording and channel that its
    middle lies in. A word between two segments counts in the next one, and
    one after the last in the last: as with sclite, it is an insertion and
    not lost. Words in a segment marked `IGNORE` are left out.

    Arguments
    ---------
    source : Source
        The ctm file.
    reference : Source
        The stm file.

    Returns
    -------
    Transcripts
        The words by the ids of the segments, and notes on words that lie in
        no segment or in one that is not scored. A recording that the ctm
        file does not have is left out, one that the stm file does not have
        gets an id of its own.

    Raises
    ------
    ScoringError
        When a line is not of its format, or segments overlap.
    """
    segments = _by_channel(read_segments(reference))
    for place in segments.values():
        _refuse_overlap(reference, place)
    transcripts = Transcripts("ctm")
    outside = ignored = 0
    for (file, channel), words in _by_channel(read_words(source)).items():
        place = segments.get((file, channel), [])
        if not place:
            text = " ".join(word.word for word in words)
            transcripts.add(source.path, f"{file}_{channel}", text)
            continue
        found: list[list[str]] = [[] for _ in place]
        for word in words:
            index, inside = _find(place, word.middle)
            outside += not inside
            ignored += place[index].ignored
            found[index].append(word.word)
        for segment, text_words in zip(place, found, strict=True):
            if not segment.ignored:
                transcripts.add(source.path, segment.id, " ".join(text_words))
    if ignored:
        transcripts.notes.append(
            f"{ignored} recognized words in segments marked {IGNORE} are not "
            "scored"
        )
    if outside:
        transcripts.notes.append(
            f"{outside} recognized words lie in no segment; each counts in "
            "the next segment of its recording, or in the last"
        )
    return transcripts


def read_segments(source: Source) -> list[Segment]:
    """Read every segment of an stm file.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    list[Segment]
        In the order of the file, with those not to be scored.

    Raises
    ------
    ScoringError
        When a line is not of the format.
    """
    segments = []
    for number, line in _marks(source):
        match = _STM_LINE.match(line)
        if match is None or float(match[4]) > float(match[5]):
            raise wrong_line(source, number, "stm")
        file, channel, speaker, start, end, label, text = match.groups()
        refuse_alternatives(source.place(number), text or "")
        segments.append(
            Segment(
                number,
                file,
                channel,
                speaker,
                float(start),
                float(end),
                label,
                text or "",
            )
        )
    return segments


def read_words(source: Source) -> list[TimedWord]:
    """Read every word of a ctm file.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    list[TimedWord]
        In the order of the file.

    Raises
    ------
    ScoringError
        When a line is not of the format.
    """
    words = []
    for number, line in _marks(source):
        match = _CTM_LINE.match(line)
        if match is None:
            raise wrong_line(source, number, "ctm")
        file, channel, start, duration, word = match.groups()
        words.append(
            TimedWord(file, channel, float(start), float(duration), word)
        )
    return words


def is_stm(source: Source) -> bool:
    """Whether every line reads as a segment with decimal times.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    bool
        Whether it looks like stm.
    """
    return _all_match(source, _STM_LINE, times=(4, 5))


def is_ctm(source: Source) -> bool:
    """Whether every line reads as a word with decimal times.

    Arguments
    ---------
    source : Source
        The file.

    Returns
    -------
    bool
        Whether it looks like ctm.
    """
    return _all_match(source, _CTM_LINE, times=(3, 4))


def _all_match(
    source: Source, pattern: re.Pattern[str], times: tuple[int, int]
) -> bool:
    matches = [pattern.match(line) for _, line in _marks(source)]
    # Some decimal point: two counts in a line of words are no times.
    return bool(matches) and all(
        match and any("." in match[time] for time in times) for match in matches
    )


def _marks(source: Source) -> Iterator[tuple[int, str]]:
    """The lines but blank ones and remarks, stripped."""
    for number, line in source.filled():
        if not line.startswith(";;"):
            yield number, line.strip()


def _by_channel(marks: Sequence) -> dict[tuple[str, str], list]:
    channels = defaultdict(list)
    for mark in marks:
        channels[mark.file, mark.channel].append(mark)
    return {
        place: sorted(found, key=lambda mark: mark.start)
        for place, found in channels.items()
    }


def _find(segments: Sequence[Segment], time: float) -> tuple[int, bool]:
    """Index of the segment that a time belongs to, and if it lies in it."""
    index = bisect_right(segments, time, key=lambda segment: segment.start) - 1
    if index >= 0 and time <= segments[index].end:
        return index, True
    return min(index + 1, len(segments) - 1), False


def _refuse_overlap(source: Source, segments: Sequence[Segment]) -> None:
    for before, after in pairwise(segments):
        if after.start < before.end:
            raise ScoringError(
                f"{source.place(after.line)}: the segment overlaps with that "
                f"of line {before.line}, so a word of a ctm file may belong "
                "to both; give each speaker a channel, or use asclite"
            )
