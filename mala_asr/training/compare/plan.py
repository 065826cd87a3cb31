"""The plan of a comparison: what is compared, and what all share.

A plan is plain YAML, read without running anything:

    base: mini_librispeech_mala     # a config of hparams/, or a path
    overrides: {number_of_epochs: 20}               # of every run
    variants:                       # what each one changes
      mala: {}
      softmax: {attention: softmax_rope}
    control: softmax                # p-values are against this one
    seeds: [1986, 1987]
    learning_rates:                 # optional: the scan before the runs
      grid: [0.0004, 0.0008]
      fraction: 0.1                 # of the epochs
      best: loss                    # or WER, on the validation set
    test_sets: [test-clean]
    blind_sets: []                  # folders of audio without transcripts
    decoders:                       # every run is decoded by each
      greedy: {decoder: ctc_greedy}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperpyyaml.core import recursive_update
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.errors import DecodingError
from mala_asr.errors import MalaError
from mala_asr.training.config import (
    ConfigError,
    check_keys,
    config_path,
    read_config,
)

BEST = {"loss": "valid_loss", "WER": "valid_WER"}

# Keys that a variant may not change: data, their order, steps and schedule.
SHARED_KEYS = (
    "seed",
    "data_folder",
    "output_folder",
    "feature_folder",
    "train_splits",
    "valid_splits",
    "test_splits",
    "token_type",
    "vocab_size",
    "batch_seconds",
    "num_buckets",
    "number_of_epochs",
    "grad_accumulation_factor",
    "schedule",
    "average_checkpoints",
    "decoder",
    "decoder_options",
)
# Keys that the comparison sets, so that not even the plan may.
_OWN_KEYS = (
    "seed",
    "output_folder",
    "feature_folder",
    "test_splits",
    "decoder",
    "decoder_options",
)
_KEYS = (
    "base",
    "overrides",
    "variants",
    "control",
    "seeds",
    "learning_rates",
    "test_sets",
    "blind_sets",
    "decoders",
)
# Variants and decoders name folders.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class PlanError(MalaError):
    """A plan that cannot be followed as it is."""


@dataclass(frozen=True)
class LearningRates:
    """The scan that finds the learning rate of each variant.

    Arguments
    ---------
    grid : list of float
        Peak rates to try.
    fraction : float
        Share of the epochs that each is tried for.
    best : str
        ``loss`` or ``WER``: which figure of the validation set decides.
    """

    grid: list[float]
    fraction: float = 0.1
    best: str = "loss"


@dataclass(frozen=True)
class Plan:
    """What is compared, and what all share.

    Arguments
    ---------
    name : str
        Name of the plan's file, without its ending.
    base : Path
        The config that every run starts from.
    overrides : dict
        What every run changes of it.
    variants : dict
        What each variant changes besides, by its name.
    control : str
        The variant that the others are compared with.
    seeds : list of int
        Each variant is trained once with each.
    learning_rates : LearningRates, optional
        The scan; without it the base's rate is everybody's.
    test_sets : list of str
        Splits to decode and score.
    blind_sets : list of str
        Folders of audio to decode alone.
    decoders : dict
        Options of each decoder, by a name of the plan's choosing.
    """

    name: str
    base: Path
    overrides: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    control: str
    seeds: list[int]
    learning_rates: LearningRates | None
    test_sets: list[str]
    blind_sets: list[str]
    decoders: dict[str, DecodingOptions]

    def changes(self, variant: str) -> dict[str, Any]:
        """Put together what a variant changes of the base.

        Arguments
        ---------
        variant : str
            Its name.

        Returns
        -------
        dict
            Keys and values, those that every run changes included.
        """
        merged = deepcopy(self.overrides)
        recursive_update(merged, deepcopy(self.variants[variant]))
        return merged

    @property
    def scanned_rates(self) -> list[float]:
        """The rates that are tried; none where there is no choice."""
        grid = self.learning_rates.grid if self.learning_rates else []
        return grid if len(grid) > 1 else []


def read_plan(
    path: str | Path, overrides: str = "", lm: str | None = None
) -> Plan:
    """Read a plan and check every part of it that needs no data.

    Arguments
    ---------
    path : str or Path
        The plan's file.
    overrides : str
        YAML text whose keys join the plan's ``overrides``.
    lm : str, optional
        Language model of the decoders whose ``lm`` the plan leaves empty.

    Returns
    -------
    Plan
        The plan.

    Raises
    ------
    PlanError
        If it is no plan, or a part of it cannot be followed.
    ConfigError
        If the base or what is changed of it does not fit.

    Example
    -------
    >>> path = getfixture("tmp_path") / "two.yaml"
    >>> _ = path.write_text('''
    ... base: mini_librispeech_mala
    ... variants: {mala: {}, linear: {attention: linear}}
    ... control: linear
    ... seeds: [1]
    ... test_sets: [dev-clean-2]
    ... decoders: {greedy: {decoder: ctc_greedy}}
    ... ''')
    >>> read_plan(path).changes("linear")
    {'attention': 'linear'}
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{path} is not a plan: it is not UTF-8 text"
        ) from error
    values = _load(text, str(path))
    given = _load(overrides, "the overrides") if overrides.strip() else {}
    try:
        check_keys(values, _KEYS, "no key {!r} in a plan")
        plan = _plan(path.stem, values, given, lm)
        _check_changes(plan)
    except (PlanError, ConfigError) as error:
        raise PlanError(f"{path}: {error}") from error
    return plan


def _load(text: str, name: str) -> dict[str, Any]:
    try:
        values = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise PlanError(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise PlanError(f"{name}: not a mapping; write KEY: VALUE lines")
    return values


def _plan(
    name: str,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    lm: str | None,
) -> Plan:
    overrides = _mapping(values, "overrides")
    recursive_update(overrides, dict(given))
    variants = {
        key: _mapping(values["variants"], key)
        for key in _names(values, "variants")
    }
    control = values.get("control")
    if control not in variants:
        raise PlanError(
            f"control is {control!r}; name one of the variants: "
            + ", ".join(variants)
        )
    decoders = _names(values, "decoders")
    return Plan(
        name=name,
        base=config_path(str(_required(values, "base"))),
        overrides=overrides,
        variants=variants,
        control=control,
        seeds=_seeds(values),
        learning_rates=_learning_rates(values),
        test_sets=_list(values, "test_sets", str),
        blind_sets=_list(values, "blind_sets", str, least=0),
        decoders={
            key: _decoder(key, _mapping(values["decoders"], key), lm)
            for key in decoders
        },
    )


def _required(values: Mapping[str, Any], key: str) -> Any:
    if values.get(key) is None:
        raise PlanError(f"{key} is missing; every plan needs it")
    return values[key]


def _mapping(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = values.get(key) or {}
    if not isinstance(value, dict):
        raise PlanError(f"{key} is {value!r}; write it as {{KEY: VALUE}}")
    return dict(value)


def _names(values: Mapping[str, Any], key: str) -> list[str]:
    _required(values, key)
    names = list(_mapping(values, key))
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PlanError(
                f"{key}: {name!r} is to name a folder; use letters, digits, "
                "'_', '-', '.' and '+'"
            )
    return names


def _list(
    values: Mapping[str, Any], key: str, kind: type, least: int = 1
) -> list[Any]:
    found = values.get(key) or []
    right = isinstance(found, list) and all(
        isinstance(item, kind) and not isinstance(item, bool) for item in found
    )
    if not right or len(found) < least or len(set(found)) < len(found):
        what = {str: "names", int: "whole numbers", float: "numbers"}[kind]
        raise PlanError(
            f"{key} is {values.get(key)!r}; write a list of different {what}"
        )
    return found


def _seeds(values: Mapping[str, Any]) -> list[int]:
    seeds = _list(values, "seeds", int)
    if min(seeds) < 0:
        raise PlanError(f"seeds: {min(seeds)} is no seed; give 0 or more")
    return seeds


def _learning_rates(values: Mapping[str, Any]) -> LearningRates | None:
    if values.get("learning_rates") is None:
        return None
    scan = _mapping(values, "learning_rates")
    check_keys(
        scan, ("grid", "fraction", "best"), "learning_rates: no key {!r}"
    )
    rates = LearningRates(
        sorted(_list(scan, "grid", float)),
        scan.get("fraction", LearningRates.fraction),
        scan.get("best", LearningRates.best),
    )
    if not all(0 < rate < math.inf for rate in rates.grid):
        raise PlanError(f"grid is {rates.grid}; give rates above 0")
    fraction = rates.fraction
    if not isinstance(fraction, float | int) or not 0 < fraction <= 1:
        raise PlanError(f"fraction is {fraction!r}; give a share of the epochs")
    if rates.best not in BEST:
        raise PlanError(f"best is {rates.best!r}; choose {' or '.join(BEST)}")
    return rates


def _decoder(
    name: str, options: dict[str, Any], lm: str | None
) -> DecodingOptions:
    if "lm" in options and options["lm"] is None:
        if lm is None:
            raise PlanError(
                f"the decoder {name} needs a language model; add --lm FILE"
            )
        options["lm"] = lm
    try:
        chosen = DecodingOptions.of(options)
        chosen.settings()
    except DecodingError as error:
        raise PlanError(f"decoders: {name}: {error}") from error
    return chosen


def _check_changes(plan: Plan) -> None:
    for key in _OWN_KEYS:
        if key in plan.overrides:
            raise PlanError(
                f"overrides: {key} belongs to the comparison, which sets it "
                "from the plan's other keys; leave it out"
            )
    for name, changes in plan.variants.items():
        for key in changes:
            if key in SHARED_KEYS:
                raise PlanError(
                    f"variants: {name} changes {key}, which all must share; "
                    "put it into overrides"
                )
        # Its keys are those of the base. The data come with the run.
        changes = {"data_folder": "none", **plan.changes(name)}
        read_config(plan.base, as_yaml(changes))


def as_yaml(values: Mapping[str, Any]) -> str:
    """Write values as the text of overrides.

    Arguments
    ---------
    values : mapping
        Keys and values of a config.

    Returns
    -------
    str
        YAML.

    Example
    -------
    >>> as_yaml({"schedule": {"peak": 1e-05}})
    '{"schedule": {"peak": 1e-05}}'
    """
    return json.dumps(values)
