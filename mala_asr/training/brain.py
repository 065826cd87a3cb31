"""The training loop: what SpeechBrain's Brain does, and what it leaves out.

- The learning rate is set before a step, so the first one is a warmup step.
- Clipping covers every parameter.
- A loss or gradient that is not finite costs one step, not the training: the
  utterances are named, the step is skipped and counted.
- The batches left at the end of an epoch, fewer than are accumulated, make a
  step of their own instead of being thrown away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import speechbrain as sb
import torch
from speechbrain.utils.distributed import ddp_all_reduce
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from speechbrain.utils.run_opts import RunOptions
from torch import Tensor

from mala_asr.decoding.ctc_greedy import ctc_greedy
from mala_asr.models.asr import ASROutput, MalaASR
from mala_asr.scoring.wer import score
from mala_asr.training.checkpoints import AtomicCheckpointer
from mala_asr.training.data_pipeline import SpeechBatch, name_some
from mala_asr.training.objective import (
    attention_losses,
    ctc_losses,
    with_bos,
)
from mala_asr.training.settings import TrainingError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

logger = logging.getLogger(__name__)

# The fact in a checkpoint's meta data by which the best ones are found.
BEST_KEY = "WER"


class NonFiniteError(TrainingError):
    """A training whose numbers were not finite for too many steps."""


class Schedule(Protocol):
    """Gives the learning rate of a step."""

    def plan(self, total_steps: int) -> None:
        """Set the length of the training."""

    def __call__(self, step: int) -> float:
        """Give the learning rate of a step, from 1."""
        ...


class EpochLogger(Protocol):
    """Is told about every epoch, as SpeechBrain's train loggers are."""

    def log_stats(
        self,
        stats_meta: Mapping[str, Any],
        train_stats: Mapping[str, float] | None = None,
        valid_stats: Mapping[str, float] | None = None,
    ) -> None:
        """Add an epoch."""


@dataclass(frozen=True)
class Recipe:
    """What a training is made of, besides model and data.

    Arguments
    ---------
    optimizer : callable
        Makes the optimizer from the parameters.
    schedule : Schedule
        Gives the learning rate of each step.
    ctc_weight : float
        Share of CTC in the loss; the attention decoder has the rest.
    label_smoothing : float
        Of the attention decoder's targets.
    augment : callable, optional
        Applied to normalized features and their lengths, in training only.
    chunk_sampler : callable, optional
        Gives the chunks of a training step for a stage, for instance
        SpeechBrain's DynChunkTrainConfigRandomSampler; full context without.
    keep_checkpoints : int
        How many of the best checkpoints to keep, besides the newest.
    """

    optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Schedule
    ctc_weight: float = 1.0
    label_smoothing: float = 0.0
    augment: Callable[[Tensor, Tensor], Tensor] | None = None
    chunk_sampler: Callable[[sb.Stage], DynChunkTrainConfig | None] | None = (
        None
    )
    keep_checkpoints: int = 5


class ASRBrain(sb.Brain):
    """Trains a `MalaASR`.

    Arguments
    ---------
    model : MalaASR
        The model.
    tokenizer : SentencePieceProcessor
        Turns tokens into text for the validation WER.
    recipe : Recipe
        Optimizer, schedule, losses and augmentation.
    checkpointer : AtomicCheckpointer
        Saves and resumes; the brain adds what belongs to it.
    loggers : sequence of EpochLogger
        Told about every epoch.
    run_opts : RunOptions, optional
        What the command line gave.
    hparams : dict, optional
        Run options that the config gave.
    """

    optimizer_step_limit: int | None

    def __init__(
        self,
        model: MalaASR,
        tokenizer: SentencePieceProcessor,
        recipe: Recipe,
        checkpointer: AtomicCheckpointer,
        loggers: Sequence[EpochLogger] = (),
        run_opts: RunOptions | None = None,
        hparams: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            modules={"model": model},
            opt_class=recipe.optimizer,
            hparams=hparams or {},
            run_opts=run_opts,
            checkpointer=checkpointer,
        )
        if self.optimizer_step_limit is not None:
            # From the command line it comes as text.
            self.optimizer_step_limit = int(self.optimizer_step_limit)
        self.model = model  # as it is, when modules.model is wrapped
        self.tokenizer = tokenizer
        self.recipe = recipe
        self.loggers = list(loggers)
        self.batches_per_epoch = 0
        self.skipped_steps = 0
        self._group_ids: list[str] = []
        self._group_is_bad = False

    # The order of an epoch's calls is that of this file.

    def fit(  # type: ignore[no-untyped-def]
        self,
        epoch_counter,
        train_set,
        valid_set=None,
        last_epoch=None,
        **kwargs,
    ) -> None:
        """Train; the arguments are SpeechBrain's, the sets are loaders.

        Arguments
        ---------
        epoch_counter : EpochCounter
            Counts the epochs.
        train_set : DataLoader
            Training batches.
        valid_set : DataLoader, optional
            Validation batches.
        last_epoch : int, optional
            Where to stop early, on the schedule of the whole training.
        **kwargs : dict
            As for SpeechBrain's Brain.
        """
        self.batches_per_epoch = len(train_set)
        factor = self.grad_accumulation_factor
        steps = -(-self.batches_per_epoch // factor)
        self.recipe.schedule.plan(steps * epoch_counter.limit)
        epoch_counter.limit = last_epoch or epoch_counter.limit
        super().fit(epoch_counter, train_set, valid_set, **kwargs)

    def on_stage_start(self, stage: sb.Stage, epoch: int | None = None) -> None:
        """Start the counters of a stage."""
        self._stage_start = time.perf_counter()
        self._seconds_of_speech = 0.0
        if stage == sb.Stage.TRAIN:
            self.skipped_steps = 0
        else:
            self._losses: list[float] = []
            self._references: dict[str, str] = {}
            self._hypotheses: dict[str, str] = {}

    def fit_batch(self, batch: SpeechBatch) -> Tensor:
        """Do one batch's part of a step, and the step if it is the last.

        Arguments
        ---------
        batch : SpeechBatch
            Utterances to learn from.

        Returns
        -------
        torch.Tensor
            The batch's loss, on the CPU.
        """
        last = self._is_last_of_group(self.step)
        self._group_ids += batch.ids
        self._seconds_of_speech += batch.seconds
        with self.no_sync(not last):
            with self.training_ctx:
                out = self.compute_forward(batch, sb.Stage.TRAIN)
                losses = self.utterance_losses(out, batch.to(self.device))
            loss = losses.mean()
            if self._everywhere(torch.isfinite(loss)):
                share = loss / self._group_size(self.step)
                self.scaler.scale(share).backward()
            else:
                bad = (~torch.isfinite(losses)).nonzero().flatten().tolist()
                self._group_is_bad = True
                self._skip("loss", [batch.ids[index] for index in bad])
        if last:
            self.optimizers_step()
        return loss.detach().cpu()

    def compute_forward(self, batch: SpeechBatch, stage: sb.Stage) -> ASROutput:
        """Run the model.

        Arguments
        ---------
        batch : SpeechBatch
            Features or samples, and tokens.
        stage : sb.Stage
            Augmentation and chunks are for training only.

        Returns
        -------
        ASROutput
            What both heads give.
        """
        batch = batch.to(self.device)
        feats, n_frames = batch.speech, batch.lengths
        if feats.dim() == 2:
            feats, n_frames = self.model.features(feats, n_frames)
        tokens = with_bos(batch.tokens) if self.model.has_decoder else None
        training = stage == sb.Stage.TRAIN
        sampler = self.recipe.chunk_sampler
        return self.modules.model(
            feats,
            n_frames,
            tokens,
            chunks=sampler(stage) if sampler and training else None,
            augment=self.recipe.augment if training else None,
        )

    def utterance_losses(self, out: ASROutput, batch: SpeechBatch) -> Tensor:
        """Weigh the losses of CTC and the decoder.

        Arguments
        ---------
        out : ASROutput
            What the model gave.
        batch : SpeechBatch
            Its targets, on the model's device.

        Returns
        -------
        torch.Tensor
            (batch,).
        """
        weight = self.recipe.ctc_weight
        losses = weight * ctc_losses(
            out.ctc_logits, out.lengths, batch.tokens, batch.n_tokens
        )
        if out.decoder_logits is not None:
            losses = losses + (1.0 - weight) * attention_losses(
                out.decoder_logits,
                batch.tokens,
                batch.n_tokens,
                self.recipe.label_smoothing,
            )
        return losses

    def optimizers_step(self) -> None:
        """Make a step at this step's learning rate, or skip it."""
        if self._group_is_bad:
            self._end_group()
            return
        self.scaler.unscale_(self.optimizer)
        limit = self.max_grad_norm if self.max_grad_norm > 0 else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.modules.parameters(), limit)
        if torch.isfinite(norm):
            rate = self.recipe.schedule(self.optimizer_step + 1)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.scaler.step(self.optimizer)
            self.optimizer_step += 1
        elif self.scaler.is_enabled() and self.scaler.get_scale() > 1.0:
            # Part of fp16: the scaler finds its scale by such overflows.
            logger.debug("fp16 overflow at scale %g", self.scaler.get_scale())
        else:
            self._skip("gradient", self._group_ids)
        self.scaler.update()
        self._end_group()

    def _end_group(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._group_ids = []
        self._group_is_bad = False

    def _is_last_of_group(self, step: int) -> bool:
        """Whether an optimizer step follows the epoch's batch number `step`."""
        whole = step % self.grad_accumulation_factor == 0
        return whole or step == self.batches_per_epoch

    def _group_size(self, step: int) -> int:
        """How many batches make the optimizer step that `step` is part of."""
        factor = self.grad_accumulation_factor
        before = (step - 1) // factor * factor
        return min(factor, max(1, self.batches_per_epoch - before))

    def _everywhere(self, flag: Tensor) -> bool:
        """Whether it holds in every process: they all step, or none does."""
        if not self.distributed_launch:
            return bool(flag)
        flag = flag.to(torch.int32)
        return bool(ddp_all_reduce(flag, torch.distributed.ReduceOp.MIN))

    def _skip(self, what: str, ids: Sequence[str]) -> None:
        self.skipped_steps += 1
        self.nonfinite_count += 1
        logger.warning(
            "step skipped (%d in this epoch): the %s is not finite; "
            "utterances: %s",
            self.skipped_steps,
            what,
            name_some(ids) or "of another process",
        )
        if self.nonfinite_count > self.nonfinite_patience:
            raise NonFiniteError(
                f"stopped: the {what} was not finite in "
                f"{self.nonfinite_count} steps of one epoch; lower the "
                "learning rate, look at the utterances named in log.txt, or "
                "raise --nonfinite_patience; the checkpoints are kept"
            )

    def _should_save_intra_epoch_ckpt(
        self, last_ckpt_time: float, steps_since_ckpt: int
    ) -> bool:
        # Gradients are not saved, so a checkpoint has to follow a step.
        if not self._is_last_of_group(self.step):
            return False
        return bool(
            super()._should_save_intra_epoch_ckpt(
                last_ckpt_time, steps_since_ckpt
            )
        )

    @torch.no_grad()
    def evaluate_batch(self, batch: SpeechBatch, stage: sb.Stage) -> Tensor:
        """Compute losses and decode by CTC greedy.

        Arguments
        ---------
        batch : SpeechBatch
            Utterances to recognize.
        stage : sb.Stage
            The stage.

        Returns
        -------
        torch.Tensor
            The batch's mean loss.
        """
        with self.evaluation_ctx:
            out = self.compute_forward(batch, stage)
            losses = self.utterance_losses(out, batch.to(self.device))
        found = ctc_greedy(out.ctc_log_probs, out.lengths, self.tokenizer)
        self._losses += losses[torch.isfinite(losses)].tolist()
        self._references.update(zip(batch.ids, batch.texts, strict=True))
        self._hypotheses.update(
            zip(batch.ids, (h.text for h in found), strict=True)
        )
        return losses.mean().cpu()

    def on_stage_end(
        self, stage: sb.Stage, stage_loss: float, epoch: int | None = None
    ) -> None:
        """Log an epoch and save a checkpoint after its validation."""
        seconds = time.perf_counter() - self._stage_start
        if stage == sb.Stage.TRAIN:
            self._train_stats = {
                "loss": float(stage_loss),
                "seconds": seconds,
                "speech_per_second": self._seconds_of_speech / seconds,
                "skipped_steps": self.skipped_steps,
            }
            return
        # Each utterance counts once here, whatever batch it was in.
        loss = sum(self._losses) / max(1, len(self._losses))
        report = score(self._references, self._hypotheses)
        wer = 100.0 if report.wer is None else report.wer
        steps = self.optimizer_step
        rate = self.recipe.schedule(max(1, steps))
        for train_logger in self.loggers:
            train_logger.log_stats(
                {"epoch": epoch, "steps": steps, "lr": rate},
                train_stats=self._train_stats,
                valid_stats={"loss": loss, BEST_KEY: wer, "seconds": seconds},
            )
        self.checkpointer.save_checkpoint(
            meta={BEST_KEY: float(wer), "epoch": epoch}
        )
        self.checkpointer.keep_best(self.recipe.keep_checkpoints, BEST_KEY)
