"""The weights of a decoder that give the fewest word errors on a set.

Every point of a grid is decoded in full, so that the rate in the table is
the rate that those options give; only the encoder runs once for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mala_asr.data.batching import read_batches
from mala_asr.data.manifest import Utterance
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.options import DecodingOptions
from mala_asr.decoding.recognizer import Encoded, Recognizer
from mala_asr.scoring.wer import WerReport, score

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from mala_asr.models import MalaASR

# What is tuned, where the decoder has it, and over which values.
GRID: dict[str, tuple[float, ...]] = {
    "lm_weight": (0.3, 0.5, 0.7, 0.9),
    "word_score": (-1.0, 0.0, 1.0, 2.0),
    "ctc_weight": (0.3, 0.5, 0.7),
}

BATCH_SECONDS = 120.0


@dataclass(frozen=True)
class Point:
    """A point of the grid and what it gave.

    Arguments
    ---------
    values : dict[str, float]
        The values tried, by option.
    options : DecodingOptions
        All options with these values.
    report : WerReport
        The word errors.
    """

    values: dict[str, float]
    options: DecodingOptions
    report: WerReport


class EncodedSet:
    """A set of utterances, encoded once to be decoded in several ways.

    Arguments
    ---------
    model : MalaASR
        The model.
    tokenizer : SentencePieceProcessor
        Its tokenizer.
    utterances : Iterable[Utterance]
        The set.
    """

    def __init__(
        self,
        model: MalaASR,
        tokenizer: SentencePieceProcessor,
        utterances: Iterable[Utterance],
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.utterances = list(utterances)
        encoder = Recognizer(model, tokenizer)
        self.batches: list[tuple[list[Utterance], Encoded]] = [
            (batch, encoder.encode(waves))
            for batch, waves in read_batches(
                self.utterances, BATCH_SECONDS, model.sample_rate
            )
        ]

    def score(self, options: DecodingOptions) -> WerReport:
        """Count the word errors of a decoder.

        Arguments
        ---------
        options : DecodingOptions
            The decoder.

        Returns
        -------
        WerReport
            Over the whole set.
        """
        recognizer = Recognizer(self.model, self.tokenizer, options)
        texts = {
            utterance.id: hypothesis.text
            for batch, encoded in self.batches
            for utterance, hypothesis in zip(
                batch, recognizer.decode(encoded), strict=True
            )
        }
        return score({u.id: u.wrd for u in self.utterances}, texts)


def grid_of(
    options: DecodingOptions, given: Mapping[str, Sequence[float] | None]
) -> dict[str, Sequence[float]]:
    """Find out what is to be tuned.

    Arguments
    ---------
    options : DecodingOptions
        The decoder.
    given : Mapping[str, Sequence[float] or None]
        Values to try in place of `GRID`'s, by option.

    Returns
    -------
    dict[str, Sequence[float]]
        The values to try of every option that the decoder has.

    Raises
    ------
    DecodingError
        When the decoder has nothing to tune, or not what is given.

    Example
    -------
    >>> grid_of(DecodingOptions("joint"), {"ctc_weight": [0.2, 0.4]})
    {'ctc_weight': [0.2, 0.4]}
    """
    settings = options.settings()
    for name, values in given.items():
        if values and name not in settings:
            lacking = " without a language model" if name == "lm_weight" else ""
            raise DecodingError(
                f"{options.decoder} has no {name}{lacking}; leave it out, or "
                "choose another decoder or language model"
            )
    grid = {
        name: given.get(name) or values
        for name, values in GRID.items()
        if name in settings
    }
    if not grid:
        raise DecodingError(
            f"{options.decoder} has nothing to tune; choose another decoder"
        )
    return grid


def tune(
    dev: EncodedSet,
    options: DecodingOptions,
    grid: Mapping[str, Sequence[float]],
    on_point: Callable[[Point], None] = lambda point: None,
) -> Point:
    """Try every point of a grid.

    Arguments
    ---------
    dev : EncodedSet
        The set to tune on.
    options : DecodingOptions
        The decoder.
    grid : Mapping[str, Sequence[float]]
        Values to try, by option.
    on_point : Callable[[Point], None]
        Called with each point when it is done.

    Returns
    -------
    Point
        The one with the fewest word errors, the first of several.

    Raises
    ------
    DecodingError
        When a value is out of its range.
    """
    points = []
    combinations = itertools.product(*grid.values())
    for combination in combinations:
        values = dict(zip(grid, combination, strict=True))
        tried = options.changed(values)
        points.append(Point(values, tried, dev.score(tried)))
        on_point(points[-1])
    return min(points, key=lambda point: point.report.errors)


def at_edge(point: Point, grid: Mapping[str, Sequence[float]]) -> list[str]:
    """Name the options for which a wider grid might do better.

    Arguments
    ---------
    point : Point
        The best point.
    grid : Mapping[str, Sequence[float]]
        The grid.

    Returns
    -------
    list[str]
        Options of several values whose best is the least or the greatest.
    """
    return [
        name
        for name, value in point.values.items()
        if len(grid[name]) > 1 and value in (min(grid[name]), max(grid[name]))
    ]
