"""What is transcribed, and what comes out of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mala_asr.decoding.hypothesis import Hypothesis, Span


@dataclass(frozen=True)
class Recording:
    """An audio file, or a part or a channel of one.

    Arguments
    ---------
    path : str
        The file.
    name : str
        What outputs call it; by itself the file's name without its ending.
        It may have folders, between slashes.
    start, stop : float, optional
        The part to transcribe, in seconds of the file.
    channel : int, optional
        The channel to transcribe, the first is 1; all are averaged if None.
    source : str
        Where the audio came from; by itself the path.
    label : str
        What lists and messages call it; by itself the source.

    Example
    -------
    >>> Recording("calls/a.wav", channel=2).id
    'a-ch2'
    """

    path: str
    name: str = ""
    start: float | None = None
    stop: float | None = None
    channel: int | None = None
    source: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        for field, value in (
            ("name", Path(self.path).stem),
            ("source", self.path),
            ("label", self.source or self.path),
        ):
            if not getattr(self, field):
                object.__setattr__(self, field, value)

    @classmethod
    def of(cls, audio: str | os.PathLike[str] | Recording) -> Recording:
        """Take a path for a recording.

        Arguments
        ---------
        audio : str or os.PathLike or Recording
            A path, or a recording already.

        Returns
        -------
        Recording
            The recording.
        """
        return audio if isinstance(audio, Recording) else cls(os.fspath(audio))

    @property
    def id(self) -> str:
        """The name, with the channel where one was chosen."""
        if self.channel is None:
            return self.name
        return f"{self.name}-ch{self.channel}"


@dataclass(frozen=True)
class Segment:
    """A stretch of a recording that was decoded as one.

    Arguments
    ---------
    start, end : float
        In seconds of the recording.
    hypothesis : Hypothesis
        What was said; its times count from the segment's start.
    """

    start: float
    end: float
    hypothesis: Hypothesis


@dataclass(frozen=True)
class Transcript:
    """What was said in a recording.

    Arguments
    ---------
    recording : Recording
        The recording.
    duration : float
        Its length in seconds.
    segments : Sequence[Segment]
        What was decoded, in the order of time.

    Example
    -------
    >>> said = [Segment(0.0, 1.0, Hypothesis("GO ON", [5], 0.0)),
    ...         Segment(1.0, 2.0, Hypothesis("", [], 0.0))]
    >>> Transcript(Recording("a.wav"), 2.0, said).text
    'GO ON'
    """

    recording: Recording
    duration: float
    segments: Sequence[Segment]

    @property
    def path(self) -> str:
        """The audio file, as it was given."""
        return self.recording.path

    @property
    def text(self) -> str:
        """What was said; empty where nothing was heard."""
        texts = (segment.hypothesis.text for segment in self.segments)
        return " ".join(filter(None, texts))

    @property
    def words(self) -> list[Span] | None:
        """The words with times that count from the recording's start.

        None where times were not asked for.
        """
        words: list[Span] = []
        for segment in self.segments:
            if segment.hypothesis.words is None:
                return None
            words += [
                replace(
                    word,
                    start=segment.start + word.start,
                    end=segment.start + word.end,
                )
                for word in segment.hypothesis.words
            ]
        return words
