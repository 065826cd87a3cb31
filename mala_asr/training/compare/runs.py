"""The runs of a comparison: which there are, which are done, doing the rest.

    FOLDER/plan.json             what the runs follow
    FOLDER/manifests, tokenizer  what the decoders were checked with
    FOLDER/scan/VARIANT/RATE     short runs, one for each learning rate
    FOLDER/runs/VARIANT/SEED     the runs that are compared

A run is done when its outcome.json is there, and decoded when the done.json of
every decoder says what the plan says. So the same command goes on wherever it
was stopped.
"""

from __future__ import annotations

import json
import logging
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hyperpyyaml.core import recursive_update

from mala_asr.data.files import sha256, write_json
from mala_asr.data.librispeech import split_folder
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.options import NO_LM
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.errors import MalaError
from mala_asr.training.compare.plan import BEST, Plan, as_yaml
from mala_asr.training.compare.worker import DECODED, DONE, MEMORY, OUTCOME
from mala_asr.training.config import (
    build_config,
    describe_config,
    read_config,
)
from mala_asr.training.curve import LearningCurve
from mala_asr.training.settings import check_values
from mala_asr.training.train import get_tokenizer, make_model, read_sets

if TYPE_CHECKING:
    from mala_asr.models.asr import MalaASR

logger = logging.getLogger(__name__)

WORKER = "mala_asr.training.compare.worker"
# A worker that was asked to stop has this many seconds to do it.
_PATIENCE = 60.0


class CompareError(MalaError):
    """A comparison that cannot go on."""


class TimeUp(Exception):
    """The time that a slice of the work was given is over."""


@dataclass(frozen=True)
class Place:
    """Where a comparison works.

    Arguments
    ---------
    folder : Path
        Gets all runs.
    data_folder : str
        Holds the splits.
    feature_folder : str
        Features, shared by all runs.
    device : str, optional
        As for training.
    """

    folder: Path
    data_folder: str
    feature_folder: str
    device: str | None = None


@dataclass(frozen=True)
class Run:
    """One training.

    Arguments
    ---------
    variant : str
        What is trained.
    seed : int
        Its seed.
    rate : float, optional
        Peak learning rate; None for the base's.
    folder : Path
        Its folder.
    epochs : int, optional
        For a scan, the number of its epochs: the first of a whole run, whose
        schedule it follows. (A schedule of its own, which ends at a rate of
        nearly 0, favors low rates.)
    """

    variant: str
    seed: int
    rate: float | None
    folder: Path
    epochs: int | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        if self.epochs is None:
            return f"{self.variant}, seed {self.seed}"
        return f"{self.variant}, scan of rate {self.rate:g}"

    @property
    def outcome(self) -> dict[str, Any]:
        """How it ended; empty while it has not."""
        return read_json(self.folder / OUTCOME)

    @property
    def finished(self) -> bool:
        """Whether it ended with weights that can be used."""
        return self.outcome.get("outcome") == "finished"

    @property
    def memory(self) -> dict[str, int]:
        """The most bytes it held: ``resident`` and ``device``."""
        return read_json(self.folder / MEMORY)

    def curve(self) -> list[dict[str, float]]:
        """Give its epochs, as the training logged them."""
        return LearningCurve(self.folder).read()

    def decoded(self, decoder: str) -> Path:
        """Name the folder of the transcripts by a decoder."""
        return self.folder / DECODED / decoder


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that a worker wrote.

    Arguments
    ---------
    path : Path
        The file.

    Returns
    -------
    dict
        What is in it; nothing where there is no file.

    Raises
    ------
    CompareError
        If it is damaged, as by a disk that was full.
    """
    try:
        return json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise CompareError(
            f"{path} is damaged ({error}); delete it, and the same command "
            "goes on"
        ) from error


def check_models(plan: Plan, data_folder: str) -> dict[str, Any]:
    """Build every variant's config and model, without weights.

    Arguments
    ---------
    plan : Plan
        The plan.
    data_folder : str
        Holds the splits.

    Returns
    -------
    dict
        The control's config, whose data, epochs and schedule are everyone's.

    Raises
    ------
    MalaError
        If one cannot be built, or a split is missing: better now than after
        hours.
    """
    configs = {}
    for variant, hparams in _configs(plan, data_folder):
        check_values(hparams)
        try:
            _without_weights(hparams, hparams["vocab_size"] or 32)
        except MalaError as error:
            raise CompareError(f"variant {variant}: {error}") from error
        configs[variant] = hparams
    shared = configs[plan.control]
    for split in (
        *shared["train_splits"],
        *shared["valid_splits"],
        *plan.test_sets,
        *plan.blind_sets,
    ):
        split_folder(Path(data_folder), split)
    return shared


def check_decoders(plan: Plan, place: Place) -> None:
    """Build every decoder that the plan names, for the models it will serve.

    Arguments
    ---------
    plan : Plan
        The plan, its models checked.
    place : Place
        Where it is followed.

    Raises
    ------
    CompareError
        If a decoder or its language model does not fit a model or the
        tokenizer: better now than after hours.
    """
    configs = [hparams for _, hparams in _configs(plan, place.data_folder)]
    hparams = configs[0] | {"test_splits": []}  # those are the plan's
    sets = read_sets(hparams, place.folder)
    tokenizer = get_tokenizer(hparams, place.folder, sets["train"], saved=False)
    models = [_without_weights(config, len(tokenizer)) for config in configs]
    # That is all in which the models differ for a decoder.
    kinds = {model.has_decoder: model for model in models}
    for name, options in plan.decoders.items():
        for model in kinds.values():
            try:
                Recognizer(model, tokenizer, options)
            except DecodingError as error:
                raise CompareError(f"decoders: {name}: {error}") from error


def _configs(
    plan: Plan, data_folder: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each variant's name and its config, built."""
    for variant in plan.variants:
        values = {**plan.changes(variant), "data_folder": data_folder}
        yield variant, build_config(read_config(plan.base, as_yaml(values)))


def _without_weights(hparams: dict[str, Any], vocab_size: int) -> MalaASR:
    with torch.device("meta"):
        return make_model(hparams, vocab_size)


def scan_runs(plan: Plan, place: Place, epochs: int) -> list[Run]:
    """List the short runs that find the learning rates.

    Arguments
    ---------
    plan : Plan
        The plan.
    place : Place
        Where it is followed.
    epochs : int
        Epochs of a whole run.

    Returns
    -------
    list of Run
        One for each variant and rate.
    """
    if plan.learning_rates is None:
        return []
    short = max(1, round(epochs * plan.learning_rates.fraction))
    return [
        Run(
            variant,
            plan.seeds[0],
            rate,
            place.folder / "scan" / variant / f"{rate:g}",
            short,
        )
        for variant in plan.variants
        for rate in plan.scanned_rates
    ]


def best_rate(plan: Plan, variant: str, scan: Iterable[Run]) -> float | None:
    """Choose the learning rate of a variant.

    Arguments
    ---------
    plan : Plan
        The plan.
    variant : str
        The variant.
    scan : iterable of Run
        What `scan_runs` gave.

    Returns
    -------
    float or None
        The rate with the best last epoch; the only one of a grid of one, and
        None without a grid.

    Raises
    ------
    CompareError
        If no rate led anywhere, or the scan is not done.
    """
    if plan.learning_rates is None:
        return None
    if not plan.scanned_rates:
        return plan.learning_rates.grid[0]
    mine = [run for run in scan if run.variant == variant]
    if not all(run.outcome for run in mine):
        raise CompareError(f"the learning rates of {variant} are not scanned")
    figures = {run.rate: scan_figure(plan, run) for run in mine if run.finished}
    usable = {r: f for r, f in figures.items() if math.isfinite(f)}
    if not usable:
        raise CompareError(
            f"{variant} diverged at every learning rate of the scan; add "
            "lower ones to the grid and give another --output_folder"
        )
    return min(usable, key=lambda rate: usable[rate])


def scan_figure(plan: Plan, run: Run) -> float:
    """Give the figure by which the scan judges a rate.

    Arguments
    ---------
    plan : Plan
        The plan.
    run : Run
        A run of the scan that finished.

    Returns
    -------
    float
        Of the validation set after its last epoch; lower is better.
    """
    assert plan.learning_rates is not None
    return run.curve()[-1][BEST[plan.learning_rates.best]]


def full_run(plan: Plan, place: Place, variant: str, seed: int) -> Run:
    """Describe a run that is compared, its rate still open.

    Arguments
    ---------
    plan : Plan
        The plan.
    place : Place
        Where it is followed.
    variant : str
        The variant.
    seed : int
        The seed.

    Returns
    -------
    Run
        The run.
    """
    folder = place.folder / "runs" / variant / str(seed)
    return Run(variant, seed, None, folder)


def run_overrides(plan: Plan, place: Place, run: Run) -> dict[str, Any]:
    """Put together what a run changes of the base.

    Arguments
    ---------
    plan : Plan
        The plan.
    place : Place
        Where it is followed.
    run : Run
        The run.

    Returns
    -------
    dict
        Keys and values.
    """
    changes = plan.changes(run.variant)
    own: dict[str, Any] = {
        "seed": run.seed,
        "data_folder": place.data_folder,
        "output_folder": str(run.folder),
        "feature_folder": place.feature_folder,
        "test_splits": [],  # decoded afterwards, by the plan's decoders
    }
    if run.rate is not None:
        own["schedule"] = {"peak": run.rate}
    if run.epochs is not None:
        own["keep_checkpoints"] = 1
    recursive_update(changes, own)
    return changes


def work(
    plan: Plan,
    place: Place,
    epochs: int,
    only: Iterable[str] = (),
    deadline: float = math.inf,
) -> None:
    """Do whatever is not done: the scan, then the runs, seed by seed.

    Arguments
    ---------
    plan : Plan
        The plan.
    place : Place
        Where it is followed.
    epochs : int
        Epochs of a whole run.
    only : iterable of str
        Variants to work on; all of them if none is named.
    deadline : float
        When to stop, by `time.monotonic`.

    Raises
    ------
    CompareError
        If a run fails.
    TimeUp
        At the deadline.
    """
    chosen = list(only) or list(plan.variants)
    scan = [
        r for r in scan_runs(plan, place, epochs) if r.variant in set(chosen)
    ]
    for run in scan:
        _train(plan, place, run, deadline)
    for seed in plan.seeds:
        for variant in chosen:
            run = full_run(plan, place, variant, seed)
            rate = best_rate(plan, variant, scan)
            _train(plan, place, Run(variant, seed, rate, run.folder), deadline)
            _decode(plan, place, run, deadline)


def _train(plan: Plan, place: Place, run: Run, deadline: float) -> None:
    if run.outcome:
        return
    logger.info("training %s", run.name)
    job = {
        "task": "train",
        "config": str(plan.base),
        "overrides": run_overrides(plan, place, run),
        "device": place.device,
        "last_epoch": run.epochs,
    }
    _perform(job, run, deadline)


def _decode(plan: Plan, place: Place, run: Run, deadline: float) -> None:
    todo = {
        name: facts
        for name, facts in decodings(plan).items()
        if not is_decoded(run, name, facts)
    }
    if not todo or not run.finished:
        return
    logger.info("decoding %s by %s", run.name, ", ".join(todo))
    job = {
        "task": "decode",
        "config": str(plan.base),
        "overrides": run_overrides(plan, place, run),
        "device": place.device,
        "decoders": todo,
        "test_sets": plan.test_sets,
        "blind_sets": plan.blind_sets,
    }
    _perform(job, run, deadline)


def decodings(plan: Plan) -> dict[str, dict[str, Any]]:
    """Say how each decoder's transcripts are made.

    Arguments
    ---------
    plan : Plan
        The plan.

    Returns
    -------
    dict
        By the decoder's name, its options, the language model's digest and
        the sets: what an earlier decoding must have had to be kept.

    Raises
    ------
    CompareError
        If a language model is missing.
    """
    found = {}
    for name, options in plan.decoders.items():
        lm = options.lm
        if lm is not None and lm != NO_LM and not Path(lm).is_file():
            raise CompareError(
                f"no language model {lm}; make one with `mala-asr train-lm`"
            )
        found[name] = {
            "options": options.settings(),
            "lm": None if lm in (None, NO_LM) else sha256(str(lm)),
            "sets": [*plan.test_sets, *plan.blind_sets],
        }
    return found


def is_decoded(run: Run, decoder: str, facts: Mapping[str, Any]) -> bool:
    """Tell whether a run's transcripts are those that the plan asks for.

    Arguments
    ---------
    run : Run
        The run.
    decoder : str
        The decoder's name.
    facts : mapping
        What `decodings` says of it.

    Returns
    -------
    bool
        Whether they are; the same language model may lie elsewhere.
    """
    done = read_json(run.decoded(decoder) / DONE)
    return all(
        _without_place(done.get(key)) == _without_place(value)
        for key, value in facts.items()
    )


def _without_place(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if key != "lm"}
    return value


def _perform(job: Mapping[str, Any], run: Run, deadline: float) -> None:
    """Have a worker do a job; stop it at the deadline or at Ctrl-C."""
    if time.monotonic() >= deadline:
        raise TimeUp
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER],
        stdin=subprocess.PIPE,
        # Ctrl-C reaches this process alone, which then stops the worker.
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        left = deadline - time.monotonic()
        status = process.wait(None if math.isinf(left) else max(left, 0.0))
    except subprocess.TimeoutExpired as error:
        raise TimeUp from error
    finally:
        _stop(process)
    if status != 0:
        how = f"was killed by signal {-status}" if status < 0 else "failed"
        raise CompareError(
            f"{job['task']} {run.name} {how}; see above and "
            f"{run.folder / 'log.txt'}; the same command goes on from here"
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_same_plan(plan: Plan, folder: Path) -> None:
    """Refuse a folder whose runs follow another plan; note the plan.

    What only adds work (a variant, a seed, a set, a decoder) is no change.

    Arguments
    ---------
    plan : Plan
        The plan.
    folder : Path
        The comparison's folder.

    Raises
    ------
    CompareError
        If it holds runs of another plan; the message names what differs.
    """
    path = folder / "plan.json"
    kept, now = read_json(path), _trained_by(plan)
    changed = [
        f"{part}.{key}" if key else part
        for part in kept
        for key in kept[part]
        if kept[part][key] != now[part].get(key, None)
        # A variant that is left out for now changes no run.
        and not (part == "variants" and key not in now[part])
    ]
    changed += [
        f"{part}.{key}"
        for part in ("base", "overrides")
        for key in now[part]
        if kept and key not in kept[part]
    ]
    if changed:
        raise CompareError(
            f"{folder} holds runs of another plan; {', '.join(changed)} "
            f"{'is' if len(changed) == 1 else 'are'} changed: change back, or "
            "give another --output_folder"
        )
    now["variants"] = {**kept.get("variants", {}), **now["variants"]}
    write_json(path, now)


def _trained_by(plan: Plan) -> dict[str, dict[str, Any]]:
    """What a run follows, as JSON gives it back."""
    rates = plan.learning_rates
    parts = {
        "base": dict(_described(plan.base)),
        "overrides": {
            k: v for k, v in plan.overrides.items() if k != "data_folder"
        },
        "variants": plan.variants,
        "learning_rates": {
            "": None
            if rates is None
            else [rates.grid, rates.fraction, rates.best, plan.seeds[0]]
        },
    }
    return json.loads(json.dumps(parts))


def _described(base: Path) -> Iterator[tuple[str, str]]:
    for entry in re.split(r"^  --", describe_config(base), flags=re.MULTILINE):
        key, _, value = entry.partition(" ")
        if key:
            yield key, " ".join(value.split())
