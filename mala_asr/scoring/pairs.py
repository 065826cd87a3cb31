"""References and hypotheses put side by side by their ids."""

from collections.abc import Mapping
from dataclasses import dataclass

from mala_asr.scoring.errors import ScoringError

# What to do about an id that one side lacks.
MISSING = ("error", "empty", "skip")


@dataclass(frozen=True)
class Pairs:
    """The same ids on every side, and what it took to get there.

    Arguments
    ---------
    references : dict[str, str]
        What was said, by id.
    hypotheses : tuple[dict[str, str], ...]
        What each system recognized, by the same ids.
    missing : str
        What was done about ids that a side lacks: one of `MISSING`.
    without_hypothesis : int
        Ids of references that some system lacked.
    without_reference : int
        Ids of hypotheses that the references lacked.
    """

    references: dict[str, str]
    hypotheses: tuple[dict[str, str], ...]
    missing: str
    without_hypothesis: int
    without_reference: int


def pair(
    references: Mapping[str, str],
    *hypotheses: Mapping[str, str],
    missing: str = "error",
) -> Pairs:
    """Pair references with the hypotheses of one or several systems.

    Arguments
    ---------
    references : Mapping[str, str]
        What was said, by id.
    *hypotheses : Mapping[str, str]
        What each system recognized, by id; ids in any order.
    missing : str
        ``error`` refuses an id that a side lacks; ``empty`` takes that side
        as empty, so that its words count as deletions or insertions;
        ``skip`` leaves the id out.

    Returns
    -------
    Pairs
        In the order of the references.

    Raises
    ------
    ScoringError
        Under ``error``, when an id is not on all sides; under ``skip``, when
        none is.

    Example
    -------
    >>> pairs = pair({"a": "x", "b": "y"}, {"a": "x"}, missing="empty")
    >>> pairs.hypotheses, pairs.without_hypothesis
    (({'a': 'x', 'b': ''},), 1)
    """
    lacking = [
        key for key in references if any(key not in h for h in hypotheses)
    ]
    unknown = list(
        dict.fromkeys(k for h in hypotheses for k in h if k not in references)
    )
    if missing == "error":
        _refuse(lacking, "reference", "hypothesis")
        _refuse(unknown, "hypothesis", "reference")
    ids = [*references, *unknown]
    if missing == "skip":
        left_out = {*lacking, *unknown}
        ids = [key for key in ids if key not in left_out]
        if not ids:
            raise ScoringError(
                "no id is on both sides, so nothing is left to score; check "
                "that the files belong together"
            )
    return Pairs(
        references={key: references.get(key, "") for key in ids},
        hypotheses=tuple(
            {key: system.get(key, "") for key in ids} for system in hypotheses
        ),
        missing=missing,
        without_hypothesis=len(lacking),
        without_reference=len(unknown),
    )


def _refuse(ids: list[str], has: str, lacks: str) -> None:
    if ids:
        raise ScoringError(
            f"{len(ids)} of the utterances have a {has} and no {lacks}, "
            f"the first is '{ids[0]}'; both sides need the same ids, or "
            "choose with --missing empty or --missing skip"
        )
