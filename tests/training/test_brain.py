"""The loop: rates, clipping, accumulation, and losses that are not finite."""

import logging
from pathlib import Path
from typing import Any

import pytest
import speechbrain as sb
import torch

from mala_asr.data.manifest import Utterance
from mala_asr.training.brain import ASRBrain
from mala_asr.training.data_pipeline import collate
from mala_asr.training.settings import TrainingError
from tests.training.toy import ToyTraining, toy_features

STILL: dict[str, Any] = {
    "model": {"dropout": 0.0},
    "recipe": {
        "augment": None,
        "optimizer": lambda p: torch.optim.SGD(p, lr=0.0),
    },
}


def _started(training: ToyTraining) -> ASRBrain:
    """A brain at the start of an epoch, for single calls."""
    brain = training.brain
    brain.batches_per_epoch = len(training.train_loader)
    brain.on_fit_start()
    brain.on_stage_start(sb.Stage.TRAIN, 1)
    brain.nonfinite_count = 0
    brain.modules.train()
    return brain


def _batch(training: ToyTraining, indices: list[int]):
    return collate([training.train_data[i] for i in indices])


def test_the_rate_is_set_before_the_step(tmp_path: Path) -> None:
    rates: list[float] = []

    class Recording(torch.optim.SGD):
        def step(self, *args: Any, **kwargs: Any) -> None:
            rates.append(self.param_groups[0]["lr"])
            super().step(*args, **kwargs)

    training = ToyTraining(
        tmp_path,
        recipe={"optimizer": lambda p: Recording(p, lr=1.0)},
    )
    training.fit()
    steps = 2 * len(training.train_loader)
    schedule = training.brain.recipe.schedule
    assert rates == [schedule(step) for step in range(1, steps + 1)]
    assert rates[0] == pytest.approx(0.01 / 4)


def test_clipping_covers_every_parameter_group(tmp_path: Path) -> None:
    training = ToyTraining(
        tmp_path,
        max_grad_norm=0.01,
        remove_vector_weight_decay=True,
        **STILL,
    )
    brain = _started(training)
    assert len(brain.optimizer.param_groups) == 2
    norms: list[float] = []
    brain.optimizer.register_step_pre_hook(
        lambda optimizer, *_: norms.append(
            float(
                torch.nn.utils.get_total_norm(
                    [
                        p.grad
                        for group in optimizer.param_groups
                        for p in group["params"]
                    ]
                )
            )
        )
    )
    brain.step = 1
    brain.fit_batch(_batch(training, [0, 1, 2]))
    assert norms == [pytest.approx(0.01, rel=1e-3)]


def test_accumulated_batches_are_one_large_batch(tmp_path: Path) -> None:
    gradients = []
    for name, factor, groups in (
        ("one", 1, [[0, 1, 2, 3]]),
        ("two", 2, [[0, 1], [2, 3]]),
    ):
        training = ToyTraining(
            tmp_path / name, grad_accumulation_factor=factor, **STILL
        )
        brain = _started(training)
        brain.batches_per_epoch = 4
        kept: list[torch.Tensor] = []
        brain.optimizers_step = lambda kept=kept, t=training: kept.extend(
            p.grad.clone() for p in t.model.parameters()
        )
        for brain.step, indices in enumerate(groups, start=1):
            brain.fit_batch(_batch(training, indices))
        gradients.append(kept)
    assert gradients[0] and len(gradients[0]) == len(gradients[1])
    for one, two in zip(*gradients, strict=True):
        assert torch.allclose(one, two, atol=1e-4, rtol=1e-3)


def test_the_last_batches_of_an_epoch_make_a_step(tmp_path: Path) -> None:
    training = ToyTraining(tmp_path, epochs=1, grad_accumulation_factor=4)
    training.fit()
    batches = len(training.train_loader)
    assert batches % 4 != 0
    assert training.brain.optimizer_step == -(-batches // 4)


def _one_bad(utterance: Utterance, speed: float) -> torch.Tensor:
    feats = toy_features(utterance, speed)
    return feats * float("nan") if utterance.id == "u3" else feats


def test_a_bad_utterance_costs_one_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = ToyTraining(tmp_path, epochs=1, load=_one_bad)
    with caplog.at_level(logging.WARNING):
        training.fit()
    named = [r.message for r in caplog.records if "not finite" in r.message]
    assert len(named) == 1
    assert named[0].endswith("utterances: u3")
    brain = training.brain
    assert brain.skipped_steps == 1
    assert brain.optimizer_step == len(training.train_loader) - 1
    for value in training.model.state_dict().values():
        assert torch.isfinite(value).all()


def test_training_stops_past_the_limit(tmp_path: Path) -> None:
    training = ToyTraining(
        tmp_path,
        epochs=1,
        load=lambda u, s: toy_features(u, s) * float("inf"),
        nonfinite_patience=2,
    )
    with pytest.raises(TrainingError, match="3 steps.*learning rate"):
        training.fit()
    assert training.brain.optimizer_step == 0


def test_a_bad_gradient_costs_one_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = ToyTraining(tmp_path)
    brain = _started(training)
    before = {k: v.clone() for k, v in training.model.state_dict().items()}
    weight = training.model.ctc_head.weight
    hook = weight.register_hook(lambda grad: grad * float("inf"))
    brain.step = 1
    with caplog.at_level(logging.WARNING):
        brain.fit_batch(_batch(training, [4, 5]))
    assert "gradient is not finite; utterances: u4, u5" in caplog.text
    for name, value in training.model.state_dict().items():
        assert torch.equal(value, before[name])

    hook.remove()
    brain.step = 2
    brain.fit_batch(_batch(training, [4, 5]))
    assert brain.optimizer_step == 1
    assert not torch.equal(weight, before["ctc_head.weight"])


def test_the_ctc_weight_weighs_the_two_losses(tmp_path: Path) -> None:
    losses = {}
    for weight in (0.2, 0.6, 1.0):
        training = ToyTraining(
            tmp_path / str(weight),
            **STILL | {"recipe": {**STILL["recipe"], "ctc_weight": weight}},
        )
        batch = _batch(training, [0, 1])
        out = training.brain.compute_forward(batch, sb.Stage.VALID)
        losses[weight] = training.brain.utterance_losses(out, batch)
    middle = (losses[0.2] + losses[1.0]) / 2
    assert torch.allclose(losses[0.6], middle, rtol=1e-4)
    assert not torch.allclose(losses[0.2], losses[1.0])


def test_augmentation_is_for_training_only(tmp_path: Path) -> None:
    calls: list[int] = []

    def augment(feats: torch.Tensor, n_frames: torch.Tensor) -> torch.Tensor:
        calls.append(len(n_frames))
        return feats

    training = ToyTraining(tmp_path, recipe={"augment": augment})
    batch = _batch(training, [0, 1])
    training.brain.compute_forward(batch, sb.Stage.VALID)
    assert calls == []
    training.brain.compute_forward(batch, sb.Stage.TRAIN)
    assert calls == [2]


def test_chunks_reach_the_model_in_training(tmp_path: Path) -> None:
    from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig

    outputs = []
    for name, sampler in (
        ("full", None),
        ("chunks", lambda stage: DynChunkTrainConfig(4)),
    ):
        training = ToyTraining(
            tmp_path / name,
            model={"dropout": 0.0},
            recipe={"augment": None, "chunk_sampler": sampler},
        )
        batch = _batch(training, [0, 1])
        out = training.brain.compute_forward(batch, sb.Stage.TRAIN)
        outputs.append(out.ctc_log_probs)
    assert not torch.allclose(*outputs, atol=1e-3)


def test_the_best_checkpoints_and_the_newest_are_kept(tmp_path: Path) -> None:
    training = ToyTraining(tmp_path)
    checkpointer = training.brain.checkpointer
    for epoch, wer in enumerate([50.0, 20.0, 40.0, 30.0, 60.0], start=1):
        checkpointer.save_checkpoint(meta={"WER": wer, "epoch": epoch})
        checkpointer.keep_best(2, "WER")
    kept = {c.meta["WER"] for c in checkpointer.list_checkpoints()}
    assert kept == {20.0, 30.0, 60.0}
