"""What SpeechBrain's checkpoints lack for a training to resume exactly."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from speechbrain.utils.checkpoints import (
    Checkpoint,
    Checkpointer,
    mark_as_loader,
    mark_as_saver,
    register_checkpoint_hooks,
)
from speechbrain.utils.distributed import (
    ddp_barrier,
    get_rank,
    if_main_process,
    run_on_main,
)

from mala_asr.models.checkpoints import CheckpointError, reading_checkpoint

logger = logging.getLogger(__name__)


class AtomicCheckpointer(Checkpointer):
    """A checkpointer whose checkpoints appear whole or not at all.

    SpeechBrain fills a checkpoint's folder in place, so a run killed while it
    saves leaves a newest checkpoint that cannot be loaded. Here the folder is
    filled beside the others and renamed when it is complete.

    Arguments
    ---------
    checkpoints_dir : path
        The folder of the checkpoints.
    **kwargs : dict
        As for SpeechBrain's Checkpointer.

    Example
    -------
    >>> folder = getfixture("tmp_path")
    >>> checkpointer = AtomicCheckpointer(
    ...     folder, {"layer": torch.nn.Linear(2, 2)}
    ... )
    >>> checkpoint = checkpointer.save_checkpoint(meta={"WER": 5.0})
    >>> checkpoint.paramfiles["layer"].exists()
    True
    """

    checkpoints_dir: Path

    def save_checkpoint(
        self,
        meta: Mapping[str, Any] = {},  # noqa: B006 (SpeechBrain's signature)
        end_of_epoch: bool = True,
        name: str | None = None,
        verbosity: int = logging.INFO,
    ) -> Checkpoint | None:
        """Save a checkpoint; the arguments are SpeechBrain's.

        Arguments
        ---------
        meta : mapping
            Facts to keep with it, such as the WER.
        end_of_epoch : bool
            Whether an epoch has just ended.
        name : str, optional
            A name of its own.
        verbosity : int
            Level of the log line.

        Returns
        -------
        Checkpoint or None
            The checkpoint; None on other than the main process.

        Raises
        ------
        CheckpointError
            If it cannot be written, as on a full disk.
        """
        folder = self.checkpoints_dir
        staging = folder / ".partial"
        run_on_main(_make_empty, args=[staging])
        self.checkpoints_dir = staging
        try:
            saved = super().save_checkpoint(
                meta, end_of_epoch, name, verbosity=logging.DEBUG
            )
        except RuntimeError as error:  # of torch, which hides the system's
            reason = " ".join(str(error).split())[:80]
            raise CheckpointError(
                f"cannot write a checkpoint to {folder} ({reason}); make "
                "room there, and the same command resumes from the last one"
            ) from error
        finally:
            self.checkpoints_dir = folder
        ddp_barrier()  # every process has written its files
        if saved is None:
            return None
        target = _unused(folder / saved.path.name)
        os.rename(saved.path, target)
        logger.log(verbosity, "Saved a checkpoint in %s", target)
        files = {k: target / f.name for k, f in saved.paramfiles.items()}
        return Checkpoint(target, saved.meta, files)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint.

        Arguments
        ---------
        checkpoint : Checkpoint
            The checkpoint to go on from.

        Raises
        ------
        CheckpointError
            If it is damaged.
        """
        with reading_checkpoint(checkpoint.path):
            super().load_checkpoint(checkpoint)

    def keep_best(self, count: int, min_key: str) -> None:
        """Delete all but the best checkpoints and the newest one.

        Arguments
        ---------
        count : int
            How many of the best to keep.
        min_key : str
            The fact in their meta data of which lower is better.
        """
        # The main process alone decides: another one may list the folder
        # before the newest checkpoint has got its name.
        run_on_main(self._delete_all_but, args=[count, min_key])

    def _delete_all_but(self, count: int, min_key: str) -> None:
        newest = self.find_checkpoint()
        if newest is None:
            return
        self.delete_checkpoints(
            num_to_keep=count,
            min_keys=[min_key],
            importance_keys=[],
            ckpt_predicate=lambda c: c.path != newest.path,
            verbosity=logging.DEBUG,
        )


def _make_empty(folder: Path) -> None:
    """What a killed or failed saving has left there would only take room."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _unused(path: Path) -> Path:
    """The path, or one that sorts after it if two were saved in a second."""
    candidate, number = path, 0
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}+{number:02d}")
    return candidate


class RandomState:
    """The random generators of this process, as a part of checkpoints.

    Example
    -------
    >>> path = getfixture("tmp_path") / "random.ckpt"
    >>> RandomState().save(path)
    >>> first = torch.rand(1)
    >>> RandomState().load(path, end_of_epoch=True)
    >>> bool(torch.rand(1) == first)
    True
    """

    @mark_as_saver
    def save(self, path: Path) -> None:
        """Write the state; each process writes a file of its own.

        Arguments
        ---------
        path : Path
            The main process's file.
        """
        state = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state()
        torch.save(state, _own_file(path))

    @mark_as_loader
    def load(self, path: Path, end_of_epoch: bool) -> None:
        """Read the state back.

        Arguments
        ---------
        path : Path
            The main process's file.
        end_of_epoch : bool
            Not used; the state is right in either case.
        """
        own = _own_file(path)
        if not own.exists():
            logger.warning(
                "%s has no random state for process %s; it goes on with "
                "another one",
                path.parent,
                get_rank(),
            )
            return
        state = torch.load(own, map_location="cpu", weights_only=True)
        torch.set_rng_state(state["cpu"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])


# Every process has its own state, hence not the main process alone.
register_checkpoint_hooks(RandomState, save_on_main_only=False)


def _own_file(path: Path) -> Path:
    if if_main_process():
        return Path(path)
    return Path(path).with_suffix(f".rank{get_rank()}")
