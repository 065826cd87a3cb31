"""Reading the weights that a training left behind, without touching them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import yaml
from speechbrain.utils.checkpoints import (
    CKPT_PREFIX,
    METAFNAME,
    Checkpoint,
    Checkpointer,
    average_checkpoints,
)
from torch import Tensor

from mala_asr.errors import MalaError

# What SpeechBrain writes into the meta data of every checkpoint.
_FACTS = {"unixtime", "end-of-epoch"}


class CheckpointError(MalaError):
    """No usable checkpoint where one was expected."""


@contextmanager
def reading_checkpoint(folder: Path) -> Iterator[None]:
    """Say what to do where a checkpoint turns out to be damaged.

    Arguments
    ---------
    folder : Path
        The checkpoint that is read.

    Yields
    ------
    None

    Raises
    ------
    CheckpointError
        For whatever its bytes make of the reading.
    """
    try:
        yield
    except (OSError, MemoryError, torch.cuda.OutOfMemoryError):
        raise  # the checkpoint may be whole
    except Exception as error:
        reason = " ".join(str(error).split())[:80] or type(error).__name__
        raise CheckpointError(
            f"the checkpoint {folder} is damaged ({reason}); delete this "
            "folder, and the same command goes on with the others"
        ) from error


def list_checkpoints(save_folder: str | Path) -> list[Checkpoint]:
    """List checkpoints whose facts can be read.

    Arguments
    ---------
    save_folder : str or Path
        The run's ``save`` folder; it is only read.

    Returns
    -------
    list of Checkpoint
        In no particular order.

    Raises
    ------
    CheckpointError
        If the facts of one are damaged.
    """
    for path in sorted(Path(save_folder).glob(f"{CKPT_PREFIX}*/{METAFNAME}")):
        with reading_checkpoint(path.parent):
            facts = yaml.safe_load(path.read_text(encoding="utf-8"))
            if not _FACTS <= facts.keys() or not all(
                isinstance(fact, int | float) for fact in facts.values()
            ):
                raise ValueError(f"not the facts of one in {METAFNAME}")
    return Checkpointer(Path(save_folder)).list_checkpoints()


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
        If there is no checkpoint with that figure, or one is damaged.
    """
    folder = Path(save_folder)
    if not folder.is_dir():
        raise CheckpointError(
            f"no folder {folder}; give the output folder of a training run"
        )
    list_checkpoints(folder)
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
    except (RuntimeError, KeyError) as error:
        names = ", ".join(checkpoint.path.name for checkpoint in best)
        raise CheckpointError(
            f"the checkpoints of {folder} do not fit together ({names}): "
            "one of them is damaged; delete it and try again"
        ) from error
    return weights, [checkpoint.path.name for checkpoint in best]


def _load_weights(path: Path, map_location: str) -> dict[str, Tensor]:
    with reading_checkpoint(path.parent):
        return torch.load(path, map_location=map_location, weights_only=True)
