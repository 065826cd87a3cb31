"""A comparison as a table, as JSON, as a plot, and as files to publish."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mala_asr import __version__
from mala_asr.data.files import replacing, write_json
from mala_asr.training.compare.results import RESAMPLES, Comparison
from mala_asr.training.compare.runs import Run, best_rate, is_decoded

_FAIR = "All saw the same batches in the same order. "


def write_report(found: Comparison, facts: dict[str, Any], dest: Path) -> Path:
    """Write table, JSON, learning curves and hypotheses.

    Arguments
    ---------
    found : Comparison
        What was found.
    facts : dict
        What `decodings` says: only transcripts made so are written.
    dest : Path
        A folder; what an earlier report left there is replaced.

    Returns
    -------
    Path
        The table, `README.md`.
    """
    hypotheses = dest / "hypotheses"
    shutil.rmtree(hypotheses, ignore_errors=True)
    for decoder, made in facts.items():
        for run in _all_runs(found):
            if is_decoded(run, decoder, made):
                _copy_hypotheses(run, decoder, made["sets"], hypotheses)
    write_json(dest / "results.json", as_record(found))
    if any(run.curve() for run in _all_runs(found)):
        with replacing(dest / "learning_curves.png") as path:
            draw_curves(found, path)
    table = dest / "README.md"
    with replacing(table) as path:
        path.write_text(as_markdown(found), encoding="utf-8")
    return table


def as_record(found: Comparison) -> dict[str, Any]:
    """Give everything as JSON can hold it.

    Arguments
    ---------
    found : Comparison
        What was found.

    Returns
    -------
    dict
        No place of this machine is in it.
    """
    plan = found.plan
    return {
        "plan": plan.name,
        "version": __version__,
        "base": plan.base.name,
        "overrides": _without_places(plan.overrides),
        "variants": plan.variants,
        "control": plan.control,
        "config": found.config,
        "decoders": {
            name: _decoder_record(options.settings())
            for name, options in plan.decoders.items()
        },
        "bootstrap_resamples": RESAMPLES,
        "cost": found.cost,
        "words": found.words,
        "scan": [
            {
                "variant": run.variant,
                "rate": run.rate,
                "epochs": run.epochs,
                **run.outcome,
                **({"last_epoch": run.curve()[-1]} if run.finished else {}),
            }
            for run in found.scan
            if run.outcome
        ],
        "notes": found.notes,
    }


def as_markdown(found: Comparison) -> str:
    """Give the tables.

    Arguments
    ---------
    found : Comparison
        What was found.

    Returns
    -------
    str
        Markdown.
    """
    plan, config = found.plan, found.config
    parts = [
        f"# {plan.name}",
        f"`python recipes/LibriSpeech/compare.py {plan.name}.yaml`: "
        f"{len(plan.variants)} variants of `{plan.base.name}`, "
        f"{config['number_of_epochs']} epochs of "
        f"{', '.join(config['train_splits'])}, validated on "
        f"{', '.join(config['valid_splits'])}, the average of the "
        f"{config['average_checkpoints']} best checkpoints. "
        + ("" if found.unfair else _FAIR)
        + f"The control is `{plan.control}`.",
    ]
    for decoder, sets in found.words.items():
        settings = _decoder_record(plan.decoders[decoder].settings())
        listed = ", ".join(f"{k} {v}" for k, v in settings.items())
        for name, words in sets.items():
            if words:
                parts += [f"## {name}, {decoder}", listed, _words_table(words)]
    parts += ["## Cost", _cost_table(found)]
    if found.scan:
        parts += ["## Learning rates", _scan_table(found)]
    if found.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in found.notes)]
    parts.append(
        f"Intervals and p are of {RESAMPLES} bootstrap draws of utterances, "
        "all seeds of an utterance together; MAPSSWE is of the first seed."
    )
    return "\n\n".join(parts) + "\n"


def _words_table(words: dict[str, dict[str, Any]]) -> str:
    rows = []
    for variant, row in words.items():
        against = row.get("against_control")
        rows.append(
            [
                variant,
                _percent(row["WER"]),
                f"{_number(row['low'], 1)} to {_number(row['high'], 1)}",
                ", ".join(_number(w, 1) for w in row["by_seed"].values()),
                *(_against_cells(against) if against else ("", "", "")),
            ]
        )
    return _table(
        (
            "variant",
            "WER",
            "95 %",
            "by seed",
            "against control",
            "p",
            "p (MAPSSWE)",
        ),
        rows,
    )


def _against_cells(against: dict[str, Any]) -> tuple[str, str, str]:
    relative, bootstrap = against["relative"], against["bootstrap"]
    first = next(iter(against["mapsswe"].values()))
    return (
        "n/a" if relative is None else f"{relative:+.1f} %",
        _number(bootstrap and bootstrap["p_value"], 4),
        _number(first["p_value"], 4),
    )


def _cost_table(found: Comparison) -> str:
    control = found.cost.get(found.plan.control)
    rows = []
    for variant, cost in found.cost.items():
        more = "n/a"
        if control:
            more = f"{cost['parameters'] - control['parameters']:+,d}"
        rows.append(
            [
                variant,
                f"{cost['peak_rate']:g}",
                f"{cost['parameters']:,d}",
                more,
                f"{cost['speech_per_second']:.0f} s",
                f"{cost['peak_memory'] / 1e9:.2f} GB",
            ]
        )
    return _table(
        (
            "variant",
            "learning rate",
            "parameters",
            "more than the control",
            "speech trained on in a second",
            "peak memory",
        ),
        rows,
    )


def _scan_table(found: Comparison) -> str:
    plan = found.plan
    assert plan.learning_rates is not None
    rows = []
    for variant in plan.variants:
        mine = [run for run in found.scan if run.variant == variant]
        best = None
        if all(run.outcome for run in mine):
            best = best_rate(plan, variant, mine)
        cells = [_scan_cell(run, run.rate == best) for run in mine]
        rows.append([variant, *cells])
    return (
        f"Validation loss and WER after {found.scan[0].epochs} of the "
        f"{found.config['number_of_epochs']} epochs; the best by "
        f"{plan.learning_rates.best} is used.\n\n"
        + _table(["variant", *(f"{r:g}" for r in plan.scanned_rates)], rows)
    )


def _scan_cell(run: Run, best: bool) -> str:
    if not run.finished:
        return str(run.outcome.get("outcome", ""))
    last = run.curve()[-1]
    text = f"{last['valid_loss']:.1f}, {last['valid_WER']:.1f} %"
    return f"**{text}**" if best else text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f} %"


def draw_curves(found: Comparison, path: Path) -> None:
    """Draw the learning curves of all runs into one picture.

    Arguments
    ---------
    found : Comparison
        What was found.
    path : Path
        The PNG to write.
    """
    # Figure alone needs no display and leaves no global state behind.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    losses, errors = figure.subplots(1, 2)
    for number, (variant, runs) in enumerate(found.runs.items()):
        for order, run in enumerate(runs):
            rows = run.curve()
            for axes, key in ((losses, "valid_loss"), (errors, "valid_WER")):
                axes.plot(
                    [row["epoch"] for row in rows],
                    [row[key] for row in rows],
                    color=f"C{number % 10}",
                    linestyle=("-", "--", ":", "-.")[order % 4],
                    label=f"{variant}, seed {run.seed}",
                )
    losses.set(xlabel="epoch", ylabel="valid loss per utterance", yscale="log")
    errors.set(xlabel="epoch", ylabel="valid WER (%), CTC greedy", ylim=0)
    for axes in (losses, errors):
        axes.grid(alpha=0.3)
    errors.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def _all_runs(found: Comparison) -> list[Run]:
    return [run for runs in found.runs.values() for run in runs]


def _copy_hypotheses(
    run: Run, decoder: str, sets: Iterable[str], dest: Path
) -> None:
    """Copy what was recognized; what was said is the corpus's to give."""
    for name in sets:
        target = dest / decoder / name / f"{run.variant}-{run.seed}.trn"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run.decoded(decoder) / f"hyp_{name}.trn", target)


def _without_places(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if not k.endswith("_folder")}


def _decoder_record(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        key: Path(value).name if key == "lm" else value
        for key, value in settings.items()
    }
