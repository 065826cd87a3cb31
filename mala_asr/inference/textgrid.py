"""Praat's TextGrid files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

# Start and end in milliseconds, and the text.
Interval = tuple[int, int, str]

_HEAD = """\
File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = {length}
tiers? <exists>
size = {size}
item []:
"""
_TIER = """\
    item [{number}]:
        class = "IntervalTier"
        name = "{name}"
        xmin = 0
        xmax = {length}
        intervals: size = {size}
"""
_INTERVAL = """\
        intervals [{number}]:
            xmin = {start}
            xmax = {end}
            text = "{text}"
"""


def textgrid(tiers: Mapping[str, Sequence[Interval]], length: int) -> str:
    """Write tiers of intervals as a TextGrid.

    Arguments
    ---------
    tiers : Mapping[str, Sequence[Interval]]
        Intervals by the name of their tier, in the order of time. Praat
        takes none that is empty or overlaps another: such a one is moved by
        what it takes.
    length : int
        Length of the recording in milliseconds.

    Returns
    -------
    str
        The file, with empty intervals where there is silence.

    Example
    -------
    >>> text = textgrid({"words": [(500, 750, "HI")]}, 1000)
    >>> print(text[text.index("        intervals:"):], end="")
            intervals: size = 3
            intervals [1]:
                xmin = 0.000
                xmax = 0.500
                text = ""
            intervals [2]:
                xmin = 0.500
                xmax = 0.750
                text = "HI"
            intervals [3]:
                xmin = 0.750
                xmax = 1.000
                text = ""
    """
    placed = {name: _placed(spans) for name, spans in tiers.items()}
    ends = [spans[-1][1] for spans in placed.values() if spans]
    length = max([length, 1, *ends])
    parts = [_HEAD.format(length=_seconds(length), size=len(tiers))]
    for number, (name, spans) in enumerate(placed.items(), start=1):
        intervals = list(_with_silences(spans, length))
        parts.append(
            _TIER.format(
                number=number,
                name=name,
                length=_seconds(length),
                size=len(intervals),
            )
        )
        parts += [
            _INTERVAL.format(
                number=index,
                start=_seconds(start),
                end=_seconds(end),
                text=text.replace('"', '""'),
            )
            for index, (start, end, text) in enumerate(intervals, start=1)
        ]
    return "".join(parts)


def _placed(spans: Sequence[Interval]) -> list[Interval]:
    placed: list[Interval] = []
    last = 0
    for start, end, text in spans:
        start = max(start, last)
        last = max(end, start + 1)
        placed.append((start, last, text))
    return placed


def _with_silences(
    spans: Sequence[Interval], length: int
) -> Iterator[Interval]:
    last = 0
    for start, end, text in [*spans, (length, length, "")]:
        if start > last:
            yield last, start, ""
        if end > start:
            yield start, end, text
        last = end


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"
