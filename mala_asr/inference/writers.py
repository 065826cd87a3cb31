"""The formats that transcripts are written in.

Each is a function from a transcript to the text that stands for it. `FORMATS`
has them by name, with what the command line must know of each.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from mala_asr.decoding.hypothesis import Span
from mala_asr.inference.cues import LINE_COUNT, LINE_WIDTH, Cue, make_cues
from mala_asr.inference.textgrid import textgrid
from mala_asr.inference.transcript import Transcript

# Subtitles of a single short word could not be read in its time.
_LEAST_SHOWN = 1.0


@dataclass(frozen=True)
class Style:
    """How transcripts are written.

    Arguments
    ---------
    word_times : bool
        Whether json lists words, vtt marks when each word is said, and tsv
        has a line for each.
    line_width : int
        Most characters in a line of subtitles.
    line_count : int
        Most lines of a subtitle.
    """

    word_times: bool = False
    line_width: int = LINE_WIDTH
    line_count: int = LINE_COUNT

    def cues(self, transcript: Transcript) -> list[Cue]:
        """Make the subtitles of a transcript.

        Arguments
        ---------
        transcript : Transcript
            A transcript with word times.

        Returns
        -------
        list[Cue]
            Every word of it, in order.
        """
        words = _words(transcript)
        return make_cues(words, self.line_width, self.line_count)


@dataclass(frozen=True)
class Format:
    """One of the formats.

    Arguments
    ---------
    render : Callable[[Transcript, Style], str]
        Gives the text of one transcript.
    timed : bool
        Whether the words' times are needed.
    joins : bool
        Whether texts of several recordings make one file when joined.
    """

    render: Callable[[Transcript, Style], str]
    timed: bool
    joins: bool


def _words(transcript: Transcript) -> list[Span]:
    words = transcript.words
    if words is None:
        raise ValueError(
            "this format needs the words' times: Transcriber(word_times=True)"
        )
    return words


def _txt(transcript: Transcript, style: Style) -> str:
    return f"{transcript.text}\n"


def _srt(transcript: Transcript, style: Style) -> str:
    cues = style.cues(transcript)
    blocks = [
        f"{number}\n{_clock(start, ',')} --> {_clock(end, ',')}\n"
        + "".join(f"{_plain(line)}\n" for line in cue.lines)
        for number, (cue, start, end) in enumerate(_shown(cues), start=1)
    ]
    return "\n".join(blocks)


def _vtt(transcript: Transcript, style: Style) -> str:
    cues = style.cues(transcript)
    blocks = ["WEBVTT"]
    for cue, start, end in _shown(cues):
        marked = range(start + 1, end) if style.word_times else range(0)
        lines = [_marked(line, marked) for line in cue.lines]
        times = f"{_clock(start, '.')} --> {_clock(end, '.')}"
        blocks.append("\n".join([times, *lines]))
    return "\n\n".join(blocks) + "\n"


def _tsv(transcript: Transcript, style: Style) -> str:
    spans = _words(transcript) if style.word_times else style.cues(transcript)
    rows = [
        f"{_milliseconds(span.start)}\t{_milliseconds(span.end)}\t{span.text}"
        for span in spans
    ]
    return "\n".join(["start\tend\ttext", *rows, ""])


def _json(transcript: Transcript, style: Style) -> str:
    recording = transcript.recording
    words = _words(transcript)
    place = {
        "channel": recording.channel,
        "start": recording.start,
        "stop": recording.stop,
    }
    content: dict[str, Any] = {
        "id": recording.id,
        "file": recording.source,
        **{key: value for key, value in place.items() if value is not None},
        "duration": round(transcript.duration, 3),
        "text": transcript.text,
        "confidence": _mean_confidence(words),
        "segments": [_json_cue(cue, style) for cue in make_cues(words)],
    }
    return json.dumps(content, ensure_ascii=False) + "\n"


def _json_cue(cue: Cue, style: Style) -> dict[str, Any]:
    content = _json_span(cue)
    if style.word_times:
        content["words"] = [_json_span(word) for word in cue.words]
    return content


def _json_span(span: Cue | Span) -> dict[str, Any]:
    return {
        "start": round(span.start, 3),
        "end": round(span.end, 3),
        "text": span.text,
        "confidence": round(span.confidence, 4),
    }


def _mean_confidence(words: Sequence[Span]) -> float | None:
    return round(Cue([words]).confidence, 4) if words else None


def _ctm(transcript: Transcript, style: Style) -> str:
    recording = transcript.recording
    place = f"{_nist_id(recording.name)} {recording.channel or 1}"
    return "".join(
        f"{place} {word.start:.3f} {word.end - word.start:.3f} {word.text} "
        f"{word.confidence:.4f}\n"
        for word in _words(transcript)
    )


def _trn(transcript: Transcript, style: Style) -> str:
    name = _nist_id(transcript.recording.id)
    return f"{transcript.text} ({name})\n".lstrip()


def _nist_id(name: str) -> str:
    """Percent-encode what ends or comments out an id in NIST's formats."""
    return re.sub(r"[\s()%;]", lambda found: quote(found.group()), name)


def _textgrid(transcript: Transcript, style: Style) -> str:
    tiers: dict[str, Sequence[Cue | Span]] = {
        "phrases": style.cues(transcript),
        "words": _words(transcript),
    }
    spans = {
        name: [
            (_milliseconds(span.start), _milliseconds(span.end), span.text)
            for span in tier
        ]
        for name, tier in tiers.items()
    }
    return textgrid(spans, _milliseconds(transcript.duration))


def _plain(line: Sequence[Span]) -> str:
    return " ".join(word.text for word in line)


def _marked(line: Sequence[Span], marked: range) -> str:
    """A line of WebVTT with the times of words that start in a range."""
    parts = []
    for word in line:
        said = _milliseconds(word.start)
        mark = f"<{_clock(said, '.')}>" if said in marked else ""
        parts.append(mark + html.escape(word.text, quote=False))
    return " ".join(parts)


def _shown(cues: Sequence[Cue]) -> Iterator[tuple[Cue, int, int]]:
    """Each cue and the milliseconds from and until which it is shown."""
    starts = [_milliseconds(cue.start) for cue in cues]
    for cue, start, following in zip_longest(cues, starts, starts[1:]):
        readable = start + _milliseconds(_LEAST_SHOWN)
        if following is not None:
            readable = min(readable, following)
        yield cue, start, max(_milliseconds(cue.end), readable, start + 1)


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _clock(milliseconds: int, point: str) -> str:
    """Hours, minutes, seconds and milliseconds."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{rest:03}"


FORMATS = {
    "txt": Format(_txt, timed=False, joins=True),
    "srt": Format(_srt, timed=True, joins=False),
    "vtt": Format(_vtt, timed=True, joins=False),
    "json": Format(_json, timed=True, joins=True),
    "tsv": Format(_tsv, timed=True, joins=False),
    "ctm": Format(_ctm, timed=True, joins=True),
    "trn": Format(_trn, timed=False, joins=True),
    "textgrid": Format(_textgrid, timed=True, joins=False),
}
