"""An analysis as numbers and names that JSON can hold."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mala_asr.scoring.analysis import Analysis, Comparison
from mala_asr.scoring.groups import Group, find_confusions, worst
from mala_asr.scoring.significance import LEVEL, Interval
from mala_asr.scoring.wer import EDIT_COSTS, EditCounts, UtteranceScore


def analysis_record(
    analysis: Analysis,
    by: Sequence[str] = (),
    top: int = 0,
    align: bool = False,
) -> dict[str, Any]:
    """Give an analysis as a dictionary.

    Arguments
    ---------
    analysis : Analysis
        What `analyze` returned.
    by : Sequence[str]
        What to group utterances by.
    top : int
        How many of the worst utterances and most frequent confusions to give.
    align : bool
        Whether to give every utterance with its alignment.

    Returns
    -------
    dict[str, Any]
        Rates in percent, None where there are no words to recognize.

    Raises
    ------
    ScoringError
        When the files do not tell a grouping.
    """
    report = analysis.report
    record: dict[str, Any] = {
        **report.summary(),
        "hits": report.hits,
        "MER": report.mer,
        "WIL": report.wil,
        "CER": analysis.characters.wer,
        "characters": _counts(analysis.characters),
        "confidence": {
            "level": LEVEL,
            "resamples": analysis.resamples,
            "seed": analysis.seed,
            "intervals": [_interval(i) for i in analysis.intervals],
        },
        "normalization": {
            "name": analysis.normalizer.name,
            "version": analysis.normalizer.version,
            "description": analysis.normalizer.description,
            "before": analysis.before and _counts(analysis.before),
        },
        "edit_costs": EDIT_COSTS,
        "missing": {
            "policy": analysis.pairs.missing,
            "without_hypothesis": analysis.pairs.without_hypothesis,
            "without_reference": analysis.pairs.without_reference,
        },
        "notes": analysis.notes,
        "groups": {g: [*map(_group, analysis.groups(g))] for g in by},
    }
    if analysis.comparison is not None:
        record["comparison"] = _comparison(analysis.comparison)
    if top:
        record["worst"] = [_utterance(u) for u in worst(report.utterances, top)]
        record["confusions"] = confusions_record(analysis, top)
    if align:
        record["aligned"] = [
            {**_utterance(u), "alignment": steps_record(u)}
            for u in report.utterances
        ]
    return record


def confusions_record(analysis: Analysis, top: int) -> dict[str, list]:
    """Give the most frequent confusions.

    Arguments
    ---------
    analysis : Analysis
        What `analyze` returned.
    top : int
        How many of each kind.

    Returns
    -------
    dict[str, list]
        Substitutions as word said, word recognized and count; deletions and
        insertions as word and count.
    """
    found = find_confusions(analysis.report.utterances)
    return {
        "substitutions": [
            [*words, n] for words, n in found.substitutions.most_common(top)
        ],
        "deletions": [[w, n] for w, n in found.deletions.most_common(top)],
        "insertions": [[w, n] for w, n in found.insertions.most_common(top)],
    }


def steps_record(utterance: UtteranceScore) -> list[Any]:
    """Give an alignment in few characters.

    Arguments
    ---------
    utterance : UtteranceScore
        The utterance.

    Returns
    -------
    list
        A right word as itself; else the word said (None for an insertion)
        and the word recognized (None for a deletion).

    Example
    -------
    >>> from mala_asr.scoring.wer import score
    >>> report = score({"a": "in the end"}, {"a": "and the"})
    >>> steps_record(report.utterances[0])
    [['in', 'and'], 'the', ['end', None]]
    """
    return [
        step.reference
        if step.operation == "="
        else [step.reference, step.hypothesis]
        for step in utterance.alignment()
    ]


def _counts(counts: EditCounts) -> dict[str, Any]:
    return {
        "rate": counts.wer,
        "length": counts.words,
        "substitutions": counts.substitutions,
        "deletions": counts.deletions,
        "insertions": counts.insertions,
    }


def _utterance(utterance: UtteranceScore) -> dict[str, Any]:
    return {"id": utterance.id, **_counts(utterance)}


def _interval(interval: Interval) -> dict[str, Any]:
    return {**asdict(interval), "few": interval.few}


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "utterances": group.utterances,
        **_counts(group.counts),
        "interval": group.interval and _interval(group.interval),
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        **comparison.report.summary(),
        "before": comparison.before and _counts(comparison.before),
        "paired_bootstrap": [_interval(b) for b in comparison.bootstraps],
        "mapsswe": asdict(comparison.matched_pairs),
    }
