"""What a training can be told, and what it refuses before it starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from speechbrain.utils.distributed import infer_device
from speechbrain.utils.run_opts import RunOptions

from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.errors import DecodingError
from mala_asr.devices import find_device
from mala_asr.errors import MalaError
from mala_asr.training.config import ConfigError

# The least that each whole number of a config may be.
_WHOLE_NUMBERS = {
    "seed": 0,
    "number_of_epochs": 1,
    "num_buckets": 1,
    "num_workers": 0,
    "keep_checkpoints": 1,
    "average_checkpoints": 1,
}
_SECONDS = ("batch_seconds", "eval_batch_seconds")
_SHARES = ("ctc_weight", "label_smoothing")
_SPEEDS = (0.1, 10.0)  # beyond them it is speech no more
_MOST_SEED = 2**32 - 1  # of NumPy
_SPLITS = ("train_splits", "valid_splits", "test_splits")
_FOLDERS = ("data_folder", "output_folder", "feature_folder")

# Objects that a config builds, and whether null may stand in their place.
_OBJECTS = {
    "model": False,
    "opt_class": False,
    "schedule": False,
    "augment": True,
    "chunk_sampler": True,
}

# The same for SpeechBrain's run options, which a config need not have.
_WHOLE_OPTIONS = {
    "grad_accumulation_factor": 1,
    "optimizer_step_limit": 1,
    "nonfinite_patience": 0,
}


class TrainingError(MalaError):
    """A training that cannot start or go on."""


def check_values(hparams: Mapping[str, Any]) -> None:
    """Refuse values of a config that are of the wrong kind or size.

    Arguments
    ---------
    hparams : mapping
        The config, built.

    Raises
    ------
    ConfigError
        For the first of them.

    Example
    -------
    >>> check_values({"number_of_epochs": 1.5, "seed": 1})
    Traceback (most recent call last):
    ...
    mala_asr.training.config.ConfigError: number_of_epochs is 1.5; give a \
whole number of at least 1
    """
    _check_numbers(hparams)
    _check_kinds(hparams)


def _check_numbers(hparams: Mapping[str, Any]) -> None:
    for key, least in _WHOLE_NUMBERS.items():
        _check_whole(key, hparams[key], least)
    for key in _SECONDS:
        if not _is_number(hparams[key]) or hparams[key] <= 0:
            raise ConfigError(f"{key} is {hparams[key]}; give a number above 0")
    for key in _SHARES:
        if not _is_number(hparams[key]) or not 0 <= hparams[key] <= 1:
            raise ConfigError(
                f"{key} is {hparams[key]}; give a number from 0 to 1"
            )
    if hparams["vocab_size"] is not None:
        _check_whole("vocab_size", hparams["vocab_size"], 1)
    if hparams["seed"] > _MOST_SEED:
        raise ConfigError(f"seed is {hparams['seed']}; give up to {_MOST_SEED}")
    speeds, (slow, fast) = list(hparams["speeds"]), _SPEEDS
    if not speeds or not all(
        _is_number(s) and slow <= s <= fast for s in speeds
    ):
        raise ConfigError(
            f"speeds is {speeds}; give numbers from {slow} to {fast}"
        )


def _check_kinds(hparams: Mapping[str, Any]) -> None:
    for key in _SPLITS:
        if not all(isinstance(name, str) for name in hparams[key]):
            raise ConfigError(
                f"{key} is {list(hparams[key])}; write names that look like "
                "numbers in quotes"
            )
    for key in _FOLDERS:
        if hparams[key] is None:
            raise ConfigError(f"{key} has no value; give a folder")
        if not isinstance(hparams[key], str | os.PathLike):
            raise ConfigError(
                f"{key} is {hparams[key]!r}, which is no name of a folder; "
                f"if that is its name, write ./{hparams[key]}"
            )
    for key, optional in _OBJECTS.items():
        value = hparams[key]
        if not callable(value) and not (optional and value is None):
            raise ConfigError(
                f"{key} is {value!r}; change its arguments with "
                f'--{key} "{{NAME: VALUE}}", or write it into a config file'
            )
    try:
        hparams["opt_class"]([torch.nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"opt_class: {error}") from error


def _is_number(value: Any) -> bool:
    is_bool = isinstance(value, bool)  # which Python counts as a number
    return (
        isinstance(value, int | float) and not is_bool and math.isfinite(value)
    )


def _check_whole(name: str, value: Any, least: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(
            f"{name} is {value}; give a whole number of at least {least}"
        )


def check_run_options(
    run_opts: RunOptions, hparams: Mapping[str, Any]
) -> dict[str, Any]:
    """Take the run options out of a config and refuse what cannot work.

    Arguments
    ---------
    run_opts : RunOptions
        What the command line gave.
    hparams : mapping
        The config; SpeechBrain's run options may stand in it as well.

    Returns
    -------
    dict
        The config's run options.

    Raises
    ------
    DeviceError
        For a device that is not there.
    TrainingError
        For half precision on a CPU, DataParallel, and other options that
        cannot work here.
    """
    names = [f.name for f in fields(RunOptions)]
    options = {name: hparams[name] for name in names if name in hparams}

    def chosen(name: str) -> Any:
        given = name in run_opts.overridden_args
        return run_opts[name] if given else options.get(name, run_opts[name])

    device = chosen("device") or infer_device()
    if device == "auto":
        raise TrainingError(
            "--device auto is what a training does without: leave it out"
        )
    find_device(device)
    for name in ("precision", "eval_precision"):
        if device == "cpu" and chosen(name) != "fp32":
            raise TrainingError(
                f"--{name} {chosen(name)} is for GPUs; on a CPU it is far "
                "slower than fp32: leave it out"
            )
    if chosen("data_parallel_backend"):
        raise TrainingError(
            "DataParallel breaks the lengths of a batch; for several GPUs "
            "run: torchrun --nproc_per_node N recipes/LibriSpeech/train.py …"
        )
    if chosen("auto_mix_prec"):
        raise TrainingError(
            "--auto_mix_prec is SpeechBrain's old name; give --precision fp16"
        )
    if chosen("jit") or chosen("jit_module_keys"):
        raise TrainingError(
            "TorchScript cannot compile this model; leave --jit out"
        )
    for name, least in _WHOLE_OPTIONS.items():
        value = chosen(name)
        if str(value).isdecimal():  # some come as text
            value = int(value)
        if value is not None:
            _check_whole(name, value, least)
    if chosen("log_config"):
        raise TrainingError(
            "--log_config is not read here: everything is in the run's "
            "log.txt; leave it out"
        )
    return options


def decoding_options(hparams: Mapping[str, Any]) -> DecodingOptions:
    """Give the part of a config that a `Recognizer` is made with.

    Arguments
    ---------
    hparams : mapping
        The config; its ``decoder_options`` hold the options of one or
        several decoders by the decoder's name.

    Returns
    -------
    DecodingOptions
        Those of the config's decoder.

    Raises
    ------
    ConfigError
        If any decoder is given what it does not know.

    Example
    -------
    >>> decoding_options(
    ...     {"decoder": "joint", "decoder_options": {"joint": {"beam_size": 5}}}
    ... ).settings()
    {'decoder': 'joint', 'beam_size': 5, 'ctc_weight': 0.4}
    """
    try:
        options = {
            name: DecodingOptions.of({**(given or {}), "decoder": name})
            for name, given in hparams["decoder_options"].items()
        }
        decoder = hparams["decoder"]
        chosen = options.get(decoder) or DecodingOptions(decoder)
        chosen.settings()  # or what is missing is found after the training
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"decoder_options is {hparams['decoder_options']!r}; write the "
            'options by decoder, such as "{joint: {beam_size: 10}}"'
        ) from error
    except DecodingError as error:
        raise ConfigError(f"decoder_options: {error}") from error
    return chosen
