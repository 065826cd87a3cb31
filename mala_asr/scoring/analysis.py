"""Everything that is told about a pair of files, computed once.

`analyze` returns a dataclass; the text, the JSON and the page only read from
it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.groups import (
    DURATION_NAMES,
    UNKNOWN,
    Group,
    duration_name,
    make_groups,
    partition,
    speakers_from_ids,
)
from mala_asr.scoring.normalize import Normalizer, find_normalizer
from mala_asr.scoring.pairs import Pairs, pair
from mala_asr.scoring.significance import (
    Interval,
    MatchedPairs,
    PairedBootstrap,
    bootstrap_interval,
    matched_pairs,
    paired_bootstrap,
)
from mala_asr.scoring.transcripts import Transcripts
from mala_asr.scoring.wer import (
    EditCounts,
    UtteranceScore,
    WerReport,
    character_counts,
    score,
    total,
)

# What utterances can be grouped by, and what to do where nothing tells it.
_GROUPINGS = {
    "speaker": "ids that start with it (84-121123-0000), a field spk_id or "
    "--speaker-pattern do",
    "duration": "JSON lines or CSV with a field duration, or an stm file, do",
    "set": "JSON lines or CSV with a field set, or the labels of an stm file, "
    "do",
}
GROUPINGS = tuple(_GROUPINGS)


@dataclass(frozen=True)
class Comparison:
    """A second system against the first.

    Arguments
    ---------
    report : WerReport
        The second system's words.
    before : EditCounts, optional
        Its totals before normalization; None where there is none.
    bootstraps : list[PairedBootstrap]
        The difference's intervals, over utterances and speakers.
    matched_pairs : MatchedPairs
        The MAPSSWE test.
    """

    report: WerReport
    before: EditCounts | None
    bootstraps: list[PairedBootstrap]
    matched_pairs: MatchedPairs


@dataclass(frozen=True)
class Analysis:
    """What scoring found.

    Arguments
    ---------
    report : WerReport
        Words, in total and by utterance.
    characters : EditCounts
        Characters in the place of words.
    normalizer : Normalizer
        What was done to both sides before.
    before : EditCounts, optional
        Totals before normalization; None where there is none.
    pairs : Pairs
        The texts as they were scored, and which ids a side lacked.
    names : dict[str, dict[str, str]]
        By each of `GROUPINGS`, the group of each utterance id.
    durations : dict[str, float]
        Seconds by id, where a file told them.
    intervals : list[Interval]
        Confidence intervals of the rate, over utterances and speakers.
    resamples : int
        Draws behind each interval; 0 for none.
    seed : int
        Of the draws.
    notes : list[str]
        What readers left out or moved.
    comparison : Comparison, optional
        A second system against the first.
    """

    report: WerReport
    characters: EditCounts
    normalizer: Normalizer
    before: EditCounts | None
    pairs: Pairs
    names: dict[str, dict[str, str]]
    durations: dict[str, float]
    intervals: list[Interval]
    resamples: int
    seed: int
    notes: list[str]
    comparison: Comparison | None
    # Text, record and page ask for the same groups, with their intervals.
    _groups: dict[str, list[Group]] = field(
        default_factory=dict, init=False, repr=False
    )

    def groups(self, by: str) -> list[Group]:
        """Count words and errors of parts of the data.

        Arguments
        ---------
        by : str
            One of `GROUPINGS`.

        Returns
        -------
        list[Group]
            Durations from short to long; speakers and sets by their rates,
            the highest first.

        Raises
        ------
        ScoringError
            When the files do not tell the groups.
        """
        if by not in self._groups:
            self._groups[by] = self._make_groups(by)
        return self._groups[by]

    def _make_groups(self, by: str) -> list[Group]:
        names = self.names[by]
        if not names:
            raise ScoringError(
                f"nothing tells the {by} of the utterances; {_GROUPINGS[by]}"
            )
        groups = make_groups(
            self.report.utterances, names, self.resamples, self.seed
        )
        if by == "duration":
            order = [*DURATION_NAMES, UNKNOWN]
            return sorted(groups, key=lambda g: order.index(g.name))
        return sorted(groups, key=lambda g: (-(g.counts.wer or 0.0), g.name))


def analyze(
    references: Transcripts,
    hypotheses: Transcripts,
    second: Transcripts | None = None,
    *,
    missing: str = "error",
    normalize: str = "none",
    resamples: int = 1000,
    seed: int = 0,
    speaker_pattern: re.Pattern[str] | None = None,
) -> Analysis:
    """Pair, normalize, align and count.

    Arguments
    ---------
    references : Transcripts
        What was said.
    hypotheses : Transcripts
        What was recognized.
    second : Transcripts, optional
        What another system recognized, to be compared.
    missing : str
        What to do about ids that a side lacks: one of `pairs.MISSING`.
    normalize : str
        What to do to both sides: one of `normalize.NORMALIZERS`.
    resamples : int
        Draws behind each interval; 0 for no intervals.
    seed : int
        Of the draws; the same seed gives the same intervals.
    speaker_pattern : re.Pattern, optional
        Finds the speaker in an id.

    Returns
    -------
    Analysis
        What was found.

    Raises
    ------
    ScoringError
        When the files do not pair up, or a package is missing.

    Example
    -------
    >>> said = Transcripts("trn", {"a": "One two.", "b": "three"})
    >>> heard = Transcripts("trn", {"a": "one two", "b": "tree"})
    >>> found = analyze(said, heard, normalize="basic")
    >>> found.before.errors, found.report.errors
    (3, 1)
    """
    normalizer = find_normalizer(normalize)
    systems = [hypotheses] if second is None else [hypotheses, second]
    raw = pair(references.texts, *(s.texts for s in systems), missing=missing)
    pairs = raw if normalizer.name == "none" else _normalized(raw, normalizer)
    reports = [score(pairs.references, texts) for texts in pairs.hypotheses]
    befores = [
        None if pairs is raw else total(score(raw.references, texts).utterances)
        for texts in raw.hypotheses
    ]
    files = [references, *systems]
    names = _group_names(files, list(pairs.references), speaker_pattern)
    comparison = None
    if second is not None:
        comparison = _compare(
            reports, befores[1], names["speaker"], resamples, seed
        )
    return Analysis(
        report=reports[0],
        characters=character_counts(reports[0]),
        normalizer=normalizer,
        before=befores[0],
        pairs=pairs,
        names=names,
        durations=_merged([file.durations for file in files]),
        intervals=_intervals(
            reports[0].utterances, names["speaker"], resamples, seed
        ),
        resamples=resamples,
        seed=seed,
        notes=[note for file in files for note in file.notes],
        comparison=comparison,
    )


def _normalized(pairs: Pairs, normalizer: Normalizer) -> Pairs:
    def apply(texts: Mapping[str, str]) -> dict[str, str]:
        return {key: normalizer.apply(text) for key, text in texts.items()}

    return Pairs(
        apply(pairs.references),
        tuple(apply(texts) for texts in pairs.hypotheses),
        pairs.missing,
        pairs.without_hypothesis,
        pairs.without_reference,
    )


def _group_names(
    files: Sequence[Transcripts],
    ids: Sequence[str],
    pattern: re.Pattern[str] | None,
) -> dict[str, dict[str, str]]:
    told = {} if pattern else _merged([file.speakers for file in files])
    durations = _merged([file.durations for file in files])
    return {
        "speaker": told or speakers_from_ids(ids, pattern),
        "duration": {k: duration_name(v) for k, v in durations.items()},
        "set": _merged([file.sets for file in files]),
    }


def _merged(told: Sequence[dict]) -> dict:
    """Take what several files tell; the references' word comes first."""
    merged: dict = {}
    for facts in reversed(told):
        merged.update(facts)
    return merged


def _units(
    utterances: Sequence[UtteranceScore], speakers: Mapping[str, str]
) -> dict[str, list[EditCounts]]:
    """What to draw from: utterances, and speakers where they are told."""
    units: dict[str, list[EditCounts]] = {"utterances": list(utterances)}
    if speakers:
        groups = partition(utterances, speakers)
        units["speakers"] = [total(members) for members in groups.values()]
    return units


def _intervals(
    utterances: Sequence[UtteranceScore],
    speakers: Mapping[str, str],
    resamples: int,
    seed: int,
) -> list[Interval]:
    if not resamples:
        return []
    found = (
        bootstrap_interval(parts, unit, resamples, seed)
        for unit, parts in _units(utterances, speakers).items()
    )
    return [interval for interval in found if interval is not None]


def _compare(
    reports: Sequence[WerReport],
    before: EditCounts | None,
    speakers: Mapping[str, str],
    resamples: int,
    seed: int,
) -> Comparison:
    first, second = (report.utterances for report in reports)
    bootstraps = []
    if resamples:
        parts = _units(first, speakers), _units(second, speakers)
        for unit in parts[0]:
            found = paired_bootstrap(
                parts[0][unit], parts[1][unit], unit, resamples, seed
            )
            if found is not None:
                bootstraps.append(found)
    return Comparison(
        reports[1], before, bootstraps, matched_pairs(first, second)
    )
