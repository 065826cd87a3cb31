"""Reading the weights that a training left behind, without touching them."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from speechbrain.utils.checkpoints import (
    Checkpoint,
    Checkpointer,
    average_checkpoints,
)
from torch import Tensor

from mala_asr.errors import MalaError


class CheckpointError(MalaError):
    """No usable checkpoint where one was expected."""


def load_averaged(
    save_folder: str | Path, count: int = 1, min_key: str = "WER"
) -> tuple[dict[str, Tensor], list[str]]:
    """Average the weights of the best checkpoints.

    Arguments
    ---------
    save_folder : str or Path
        The run's ``save`` folder; it is only read.
    count : int
        How many of the best to average, at most.
    min_key : str
        The figure in a checkpoint's meta data by which lower is better.

    Returns
    -------
    weights : dict
        State dict of the model.
    names : list of str
        The checkpoints averaged, best first.

    Raises
    ------
    CheckpointError
        If there is no checkpoint with that figure.
    """
    folder = Path(save_folder)
    if not folder.is_dir():
        raise CheckpointError(
            f"no folder {folder}; give the output folder of a training run"
        )
    best: list[Checkpoint] = Checkpointer(folder).find_checkpoints(
        min_key=min_key, max_num_checkpoints=count
    )
    if not best:
        raise CheckpointError(
            f"{folder} holds no checkpoint with a {min_key}; let the "
            "training end at least one epoch"
        )
    try:
        weights = average_checkpoints(best, "model", _load_weights)
    except (
        RuntimeError,
        KeyError,
        OSError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        names = ", ".join(checkpoint.path.name for checkpoint in best)
        raise CheckpointError(
            f"a checkpoint of {folder} is damaged (one of {names}); delete "
            "it and try again"
        ) from error
    return weights, [checkpoint.path.name for checkpoint in best]


def _load_weights(path: Path, map_location: str) -> dict[str, Tensor]:
    return torch.load(path, map_location=map_location, weights_only=True)
