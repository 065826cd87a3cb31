"""Joining the words of two stretches of audio that overlap.

Both heard the overlap, each worst at its own edge, where it lacks what came
before or came next. So words near an edge are taken from the other stretch.
The seam is put after a word that both heard at the same time, the one nearest
to the middle of the overlap: before it all words are the left's, after it the
right's, and none is lost or doubled. Where they agree on no word, the seam is
the middle, and a word that lies across it is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence

from mala_asr.decoding.hypothesis import Span

# Two stretches place a word that both heard at most so far apart, in seconds.
_TOLERANCE = 0.3


def find_seam(
    left: Sequence[Span], right: Sequence[Span], start: float, end: float
) -> tuple[int, int]:
    """Tell which words to keep of two stretches.

    Arguments
    ---------
    left, right : Sequence[Span]
        Words of the stretches, their times counted from the same moment.
    start, end : float
        Where the right one begins and the left one ends.

    Returns
    -------
    tuple[int, int]
        How many words to keep of the left one, and how many to leave out of
        the right one.

    Example
    -------
    >>> def say(text, *starts):
    ...     words = zip(text.split(), starts)
    ...     return [Span(word, at, at + 0.4, 1.0) for word, at in words]
    >>> left = say("A RED HOT SUN RO", 0.2, 1.0, 2.0, 3.0, 3.6)
    >>> right = say("ED HOT SUN ROSE", 1.2, 2.0, 3.1, 3.6)
    >>> kept, left_out = find_seam(left, right, 1.0, 4.0)
    >>> " ".join(w.text for w in [*left[:kept], *right[left_out:]])
    'A RED HOT SUN ROSE'
    """
    middle = (start + end) / 2
    shared = [
        (abs(_center(word) + _center(other) - 2 * middle), i, j)
        for i, word in enumerate(left)
        if _center(word) >= start - _TOLERANCE
        for j, other in enumerate(right)
        if _center(other) <= end + _TOLERANCE
        and word.text == other.text
        and abs(_center(word) - _center(other)) <= _TOLERANCE
    ]
    if shared:
        _, i, j = min(shared)
        return i + 1, j + 1
    return _at_the_middle(left, right, middle)


def _at_the_middle(
    left: Sequence[Span], right: Sequence[Span], middle: float
) -> tuple[int, int]:
    kept = sum(_center(word) < middle for word in left)
    left_out = sum(_center(word) < middle for word in right)
    if kept and left_out < len(right):
        if _same_sound(left[kept - 1], right[left_out]):
            # Both sides of the seam hold it: the left one knows its start.
            return kept, left_out + 1
    if kept < len(left) and left_out:
        if _same_sound(left[kept], right[left_out - 1]):
            return kept + 1, left_out  # each left it to the other
    return kept, left_out


def _same_sound(one: Span, other: Span) -> bool:
    shared = min(one.end, other.end) - max(one.start, other.start)
    shorter = min(one.end - one.start, other.end - other.start)
    return shared > shorter / 2


def _center(word: Span) -> float:
    return (word.start + word.end) / 2
