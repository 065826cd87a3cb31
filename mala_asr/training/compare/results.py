"""What a comparison has found so far, from the files that its runs left."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from mala_asr.scoring.formats import read_transcripts
from mala_asr.scoring.significance import (
    bootstrap_interval,
    matched_pairs,
    paired_bootstrap,
)
from mala_asr.scoring.wer import EditCounts, WerReport, score, total
from mala_asr.training.compare.plan import Plan
from mala_asr.training.compare.runs import (
    CompareError,
    Place,
    Run,
    best_rate,
    decodings,
    full_run,
    is_decoded,
    read_json,
    scan_runs,
)

RESAMPLES = 10_000
_SEED = 0  # of the bootstrap's draws


@dataclass(frozen=True)
class Comparison:
    """Everything that the table, the JSON and the plot show.

    Arguments
    ---------
    plan : Plan
        The plan.
    config : dict
        Data, epochs and schedule that all share.
    runs : dict
        The finished runs of each variant.
    scan : list of Run
        The scan's runs, finished or not.
    cost : dict
        By variant: ``parameters``, ``speech_per_second``, ``peak_memory`` in
        bytes and ``peak_rate``, its learning rate.
    words : dict
        By decoder and set, what each variant recognized: see `_words`.
    unfair : list of str
        What was not the same for all variants.
    notes : list of str
        What a reader has to know, that included.
    """

    plan: Plan
    config: dict[str, Any]
    runs: dict[str, list[Run]]
    scan: list[Run]
    cost: dict[str, dict[str, float]]
    words: dict[str, dict[str, dict[str, Any]]]
    unfair: list[str]
    notes: list[str]


def gather(plan: Plan, place: Place, config: Mapping[str, Any]) -> Comparison:
    """Read what the runs left.

    Arguments
    ---------
    plan : Plan
        The plan.
    place : Place
        Where it is followed.
    config : mapping
        The control's config.

    Returns
    -------
    Comparison
        Of the runs that are done; the others are named in its notes.
    """
    everything = {
        variant: [full_run(plan, place, variant, seed) for seed in plan.seeds]
        for variant in plan.variants
    }
    runs = {
        variant: [run for run in mine if run.finished]
        for variant, mine in everything.items()
    }
    scan = scan_runs(plan, place, config["number_of_epochs"])
    words = {
        decoder: {
            name: _words(plan, decoder, facts, name, runs)
            for name in plan.test_sets
        }
        for decoder, facts in decodings(plan).items()
    }
    unfair = _unfair(runs)
    notes = [
        f"{run.name}: {run.outcome.get('outcome', 'not trained yet')}"
        for run in chain(scan, *everything.values())
        if not run.finished
    ]
    notes += unfair + _rates_at_the_edge(plan, scan)
    cost = {name: _cost(mine) for name, mine in runs.items() if mine}
    shown = {
        key: config[key]
        for key in (
            "train_splits",
            "valid_splits",
            "number_of_epochs",
            "batch_seconds",
            "average_checkpoints",
        )
    }
    return Comparison(plan, shown, runs, scan, cost, words, unfair, notes)


def _words(
    plan: Plan,
    decoder: str,
    facts: Mapping[str, Any],
    name: str,
    runs: Mapping[str, list[Run]],
) -> dict[str, Any]:
    """Score a set: each variant's rate, and its difference to the control's.

    The draws are of utterances, each with the errors of all seeds together,
    so that trainings with several seeds do not count as more speech.
    """
    reports = {
        variant: {
            run.seed: _report(run, decoder, name)
            for run in mine
            if is_decoded(run, decoder, facts)
        }
        for variant, mine in runs.items()
    }
    _check_same_references(name, reports)
    found: dict[str, Any] = {}
    for variant, by_seed in reports.items():
        if not by_seed:
            continue
        parts = _over_seeds(by_seed.values())
        interval = bootstrap_interval(parts, "utterances", RESAMPLES, _SEED)
        found[variant] = {
            "WER": total(parts).wer,
            "low": interval and interval.low,
            "high": interval and interval.high,
            "by_seed": {seed: r.wer for seed, r in by_seed.items()},
            "errors": {seed: _counts(r) for seed, r in by_seed.items()},
        }
        if variant != plan.control:
            found[variant]["against_control"] = _against(
                reports[plan.control], by_seed
            )
    return found


def _report(run: Run, decoder: str, name: str) -> WerReport:
    folder = run.decoded(decoder)
    said, heard = (
        read_transcripts(folder / f"{side}_{name}.trn").texts
        for side in ("ref", "hyp")
    )
    return score(said, heard)


def _check_same_references(
    name: str, reports: Mapping[str, Mapping[int, WerReport]]
) -> None:
    said = [
        [(u.id, u.reference) for u in report.utterances]
        for by_seed in reports.values()
        for report in by_seed.values()
    ]
    if any(other != said[0] for other in said[1:]):
        raise CompareError(
            f"the runs were decoded on different versions of {name}; delete "
            "their decoded folders and give the same command again"
        )


def _over_seeds(reports: Iterable[WerReport]) -> list[EditCounts]:
    """Counts of each utterance, all seeds together."""
    return [
        total(same)
        for same in zip(*(r.utterances for r in reports), strict=True)
    ]


def _counts(report: WerReport) -> dict[str, int]:
    return {
        "words": report.words,
        "substitutions": report.substitutions,
        "deletions": report.deletions,
        "insertions": report.insertions,
    }


def _against(
    control: Mapping[int, WerReport], mine: Mapping[int, WerReport]
) -> dict[str, Any] | None:
    """Compare with the control on the seeds that both have."""
    seeds = [seed for seed in mine if seed in control]
    if not seeds:
        return None
    before = _over_seeds(control[seed] for seed in seeds)
    after = _over_seeds(mine[seed] for seed in seeds)
    found = paired_bootstrap(before, after, "utterances", RESAMPLES, _SEED)
    was, now = total(before).errors, total(after).errors
    return {
        "seeds": seeds,
        "relative": 100.0 * (now - was) / was if was else None,
        "bootstrap": found and asdict(found),
        "mapsswe": {
            seed: asdict(
                matched_pairs(control[seed].utterances, mine[seed].utterances)
            )
            for seed in seeds
        },
    }


def _cost(runs: list[Run]) -> dict[str, float]:
    described = read_json(runs[0].folder / "model.json")
    speeds = [
        epoch["train_speech_per_second"]
        for run in runs
        for epoch in run.curve()
    ]
    memory = [run.memory for run in runs]
    device = max(peak["device"] for peak in memory)
    return {
        "parameters": described["training"]["parameters"],
        "speech_per_second": statistics.median(speeds),
        "peak_memory": device or max(peak["resident"] for peak in memory),
        "peak_rate": runs[0].outcome["peak_rate"],
    }


def _unfair(runs: Mapping[str, list[Run]]) -> list[str]:
    """Find what was not the same for all variants of one seed."""
    notes = []
    for seed in sorted({run.seed for mine in runs.values() for run in mine}):
        same = [r for mine in runs.values() for r in mine if r.seed == seed]
        orders = {run.outcome["batch_order"] for run in same}
        if len(orders) > 1:
            notes.append(
                f"seed {seed}: NOT FAIR, the variants saw different batches"
            )
        steps = {run.variant: int(run.curve()[-1]["steps"]) for run in same}
        if len(set(steps.values())) > 1:
            shown = ", ".join(f"{name} {n}" for name, n in steps.items())
            notes.append(f"seed {seed}: optimizer steps differ: {shown}")
    return notes


def _rates_at_the_edge(plan: Plan, scan: Sequence[Run]) -> list[str]:
    """Find variants that might do better beyond the grid."""
    notes = []
    for variant in plan.variants:
        mine = [run for run in scan if run.variant == variant]
        if not mine or not all(run.outcome for run in mine):
            continue
        rate = best_rate(plan, variant, mine)
        if rate in (plan.scanned_rates[0], plan.scanned_rates[-1]):
            notes.append(
                f"{variant}: its best rate, {rate:g}, is at the edge of the "
                "grid"
            )
    return notes
