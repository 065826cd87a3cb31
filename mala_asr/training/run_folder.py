"""What a run folder tells of its weights, and what must fit them."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mala_asr import __version__
from mala_asr.data.files import sha256, write_json
from mala_asr.data.manifest import Utterance
from mala_asr.models.checkpoints import list_checkpoints
from mala_asr.training.settings import TrainingError, decoding_options

if TYPE_CHECKING:
    from mala_asr.models.asr import MalaASR

MODEL_FORMAT = 1


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Make a run folder and keep other trainings out of it.

    Arguments
    ---------
    folder : Path
        The run folder.

    Yields
    ------
    None
        The folder is free again afterwards, however the process ends.

    Raises
    ------
    TrainingError
        If another process trains there.

    Example
    -------
    >>> folder = getfixture("tmp_path") / "run"
    >>> with sole_writer(folder), sole_writer(folder):
    ...     pass
    Traceback (most recent call last):
    ...
    mala_asr.training.settings.TrainingError: another training is writing ...
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrainingError(
                f"another training is writing to {folder}; wait for its end "
                "or give another --output_folder"
            ) from error
        yield


def describe_run(
    hparams: dict[str, Any],
    folder: Path,
    model: MalaASR,
    sets: dict[str, dict[str, list[Utterance]]],
) -> None:
    """Write model.json: what rebuilds the model, and facts for its card.

    Arguments
    ---------
    hparams : dict
        The config.
    folder : Path
        The run folder.
    model : MalaASR
        The model.
    sets : dict
        What `read_sets` gave.
    """
    train_set = chain.from_iterable(sets["train"].values())
    seconds = sum(utterance.duration for utterance in train_set)
    description = {
        "format_version": MODEL_FORMAT,
        "model": model.config,
        "decoding": decoding_options(hparams).settings(),
        "average_checkpoints": hparams["average_checkpoints"],
        "training": {
            "data": list(sets["train"]),
            "hours": round(seconds / 3600, 2),
            "epochs": hparams["number_of_epochs"],
            "parameters": sum(p.numel() for p in model.parameters()),
            "version": __version__,
        },
    }
    write_json(folder / "model.json", description)


def is_resumed(folder: Path) -> bool:
    """Whether a run has weights already.

    Arguments
    ---------
    folder : Path
        The run folder.

    Returns
    -------
    bool
        Whether it holds a checkpoint.

    Raises
    ------
    CheckpointError
        If one of them is damaged.
    """
    save = folder / "save"
    return save.is_dir() and bool(list_checkpoints(save))


def _read_kept(path: Path) -> dict[str, Any]:
    """Read a JSON file that the run wrote when it started."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"cannot read {path}, which tells what is trained here "
            f"({error}); bring it back or give another --output_folder"
        ) from error
    assert isinstance(kept, dict)
    return kept


def check_same_tokenizer(folder: Path, hparams: dict[str, Any]) -> None:
    """Refuse other pieces than the weights are made for.

    Arguments
    ---------
    folder : Path
        The run folder.
    hparams : dict
        The config.

    Raises
    ------
    TrainingError
        If the config asks for other ones, or the run's tokenizer is not
        the one it was trained with.
    """
    path = folder / "tokenizer.json"
    trained = _read_kept(path)
    for key, kept in (("token_type", "kind"), ("vocab_size", "vocab_size")):
        if trained.get(kept) != hparams[key]:
            raise TrainingError(
                f"{folder} holds a training with {key} {trained.get(kept)}, "
                f"not {hparams[key]}; give another --output_folder"
            )
    model = folder / "tokenizer.model"
    present = model.is_file()
    if not present or sha256(model) != trained.get("model"):
        raise TrainingError(
            f"{model} is {'changed' if present else 'missing'}, and the "
            "weights of this run are made for it; bring it back or give "
            "another --output_folder"
        )


def check_same_model(folder: Path, model: MalaASR) -> None:
    """Refuse to go on with weights of another model.

    Arguments
    ---------
    folder : Path
        The run folder.
    model : MalaASR
        The model that the config asks for.

    Raises
    ------
    TrainingError
        If its options are not those of the run.
    """
    path = folder / "model.json"
    trained = _read_kept(path)["model"]
    try:
        with torch.device("meta"):  # newer arguments get their defaults
            trained = type(model)(**trained).config
    except TypeError as error:
        raise TrainingError(
            f"{path} was written by another version of mala_asr ({error}); "
            "give another --output_folder"
        ) from error
    present = json.loads(json.dumps(model.config))
    changed = [
        f"{key} was {trained.get(key)!r}, now {value!r}"
        for key, value in present.items()
        if trained.get(key) != value
    ]
    if changed:
        raise TrainingError(
            f"{folder} holds a training of another model "
            f"({'; '.join(changed)}); give another --output_folder"
        )
