"""The rates of parts of the data, and what goes wrong most often."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.significance import Interval, bootstrap_interval
from mala_asr.scoring.wer import EditCounts, UtteranceScore, total

# Seconds at which groups by duration start.
DURATION_EDGES = (0, 2, 5, 10, 15, 20, 30)
_ENDS = (*DURATION_EDGES[1:], "")
DURATION_NAMES = tuple(
    f"{low}-{high} s" for low, high in zip(DURATION_EDGES, _ENDS, strict=True)
)
# The name of those of which a file does not tell the group.
UNKNOWN = "unknown"

# Kaldi's and LibriSpeech's ids start with the speaker.
_FIRST_PART = re.compile(r"([^-_]+)[-_]")


@dataclass(frozen=True)
class Group:
    """Some of the utterances, taken together.

    Arguments
    ---------
    name : str
        What they have in common.
    utterances : int
        How many they are.
    counts : EditCounts
        Their words and errors.
    interval : Interval, optional
        Confidence interval of their rate; None where it was not asked for or
        cannot be told.
    """

    name: str
    utterances: int
    counts: EditCounts
    interval: Interval | None


@dataclass(frozen=True)
class Confusions:
    """How often which words went wrong.

    Arguments
    ---------
    substitutions : Counter[tuple[str, str]]
        By word said and word recognized in its place.
    deletions : Counter[str]
        By word said.
    insertions : Counter[str]
        By word recognized.
    """

    substitutions: Counter[tuple[str, str]]
    deletions: Counter[str]
    insertions: Counter[str]


def partition(
    utterances: Iterable[UtteranceScore], names: Mapping[str, str]
) -> dict[str, list[UtteranceScore]]:
    """Put utterances of one name together.

    Arguments
    ---------
    utterances : Iterable[UtteranceScore]
        The utterances.
    names : Mapping[str, str]
        The group of each, by utterance id; without one it is `UNKNOWN`.

    Returns
    -------
    dict[str, list[UtteranceScore]]
        Utterances by group, groups in the order of their first utterance.
    """
    groups: dict[str, list[UtteranceScore]] = {}
    for utterance in utterances:
        name = names.get(utterance.id, UNKNOWN)
        groups.setdefault(name, []).append(utterance)
    return groups


def make_groups(
    utterances: Iterable[UtteranceScore],
    names: Mapping[str, str],
    resamples: int,
    seed: int,
) -> list[Group]:
    """Count words and errors of each group.

    Arguments
    ---------
    utterances : Iterable[UtteranceScore]
        The utterances.
    names : Mapping[str, str]
        The group of each, by utterance id.
    resamples : int
        Draws behind the confidence intervals; 0 for none.
    seed : int
        Of the draws.

    Returns
    -------
    list[Group]
        In the order of their first utterances.
    """
    return [
        Group(
            name,
            len(members),
            total(members),
            bootstrap_interval(members, "utterances", resamples, seed)
            if resamples
            else None,
        )
        for name, members in partition(utterances, names).items()
    ]


def duration_name(seconds: float) -> str:
    """Name the group of a duration.

    Arguments
    ---------
    seconds : float
        The duration.

    Returns
    -------
    str
        From which to below which of `DURATION_EDGES` it is.

    Example
    -------
    >>> duration_name(4.9), duration_name(5.0), duration_name(99)
    ('2-5 s', '5-10 s', '30- s')
    """
    return DURATION_NAMES[bisect_right(DURATION_EDGES, seconds) - 1]


def speakers_from_ids(
    ids: Sequence[str], pattern: re.Pattern[str] | None = None
) -> dict[str, str]:
    """Read the speakers off the ids.

    Arguments
    ---------
    ids : Sequence[str]
        Utterance ids.
    pattern : re.Pattern, optional
        Finds the speaker in an id, as its first group if it has groups. By
        default what stands before the first ``-`` or ``_``, as in the ids of
        Kaldi and LibriSpeech.

    Returns
    -------
    dict[str, str]
        Speaker by id; by default empty where the ids tell none: not all are
        of that form, all of one speaker, or each of another.

    Raises
    ------
    ScoringError
        When the pattern given finds nothing in an id.

    Example
    -------
    >>> speakers_from_ids(["84-1-0", "84-1-1", "116-2-0"])
    {'84-1-0': '84', '84-1-1': '84', '116-2-0': '116'}
    >>> speakers_from_ids(["1", "2", "3"])
    {}
    """
    if pattern is not None:
        return {key: _speaker(key, pattern) for key in ids}
    speakers = {
        key: match[1] for key in ids if (match := _FIRST_PART.match(key))
    }
    count = len(set(speakers.values()))
    told = len(speakers) == len(ids) and 1 < count < len(ids)
    return speakers if told else {}


def find_confusions(utterances: Iterable[UtteranceScore]) -> Confusions:
    """Count which words were taken for which.

    Arguments
    ---------
    utterances : Iterable[UtteranceScore]
        The utterances.

    Returns
    -------
    Confusions
        The counts; ``most_common`` gives the most frequent.

    Example
    -------
    >>> from mala_asr.scoring.wer import score
    >>> report = score({"a": "in the end"}, {"a": "and the"})
    >>> find_confusions(report.utterances).substitutions
    Counter({('in', 'and'): 1})
    """
    found = Confusions(Counter(), Counter(), Counter())
    for utterance in utterances:
        if not utterance.errors:
            continue
        for step in utterance.alignment():
            said, heard = step.reference, step.hypothesis
            if said is not None and heard is not None:
                if said != heard:
                    found.substitutions[said, heard] += 1
            elif said is not None:
                found.deletions[said] += 1
            elif heard is not None:
                found.insertions[heard] += 1
    return found


def worst(
    utterances: Iterable[UtteranceScore], count: int
) -> list[UtteranceScore]:
    """Give the utterances with most errors.

    Arguments
    ---------
    utterances : Iterable[UtteranceScore]
        The utterances.
    count : int
        How many to give.

    Returns
    -------
    list[UtteranceScore]
        Those with an error, most errors first; of as many errors, the one
        with fewer words first, then by id.
    """
    wrong = (u for u in utterances if u.errors)
    return sorted(wrong, key=lambda u: (-u.errors, u.words, u.id))[:count]


def _speaker(key: str, pattern: re.Pattern[str]) -> str:
    match = pattern.search(key)
    found = match and match[1 if pattern.groups else 0]
    if not found:
        raise ScoringError(
            f"--speaker-pattern finds no speaker in the id '{key}'; give one "
            "that fits every id"
        )
    return found
