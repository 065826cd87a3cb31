"""Epochs in TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speechbrain.utils.distributed import main_process_only

from mala_asr.errors import MalaError


class TensorBoardEpochs:
    """Writes each epoch's figures at that epoch, after a resume as well.

    Arguments
    ---------
    folder : str or Path
        Where the events go.

    Raises
    ------
    MalaError
        If TensorBoard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MalaError(
                "tensorboard is not installed; pip install tensorboard, or "
                "leave out --tensorboard"
            ) from error
        self._writer = SummaryWriter(str(folder))

    @main_process_only
    def log_stats(
        self,
        stats_meta: Mapping[str, Any],
        train_stats: Mapping[str, float] | None = None,
        valid_stats: Mapping[str, float] | None = None,
    ) -> None:
        """Add an epoch.

        Arguments
        ---------
        stats_meta : mapping
            The epoch's number and its learning rate.
        train_stats : mapping, optional
            Training loss and speed.
        valid_stats : mapping, optional
            Validation loss and WER.
        """
        epoch = stats_meta["epoch"]
        groups = {
            "meta": stats_meta,
            "train": train_stats,
            "valid": valid_stats,
        }
        for group, stats in groups.items():
            for name, value in (stats or {}).items():
                self._writer.add_scalar(f"{group}/{name}", value, epoch)
        self._writer.flush()
