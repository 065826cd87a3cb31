"""An interrupted training ends as one that was never stopped."""

from pathlib import Path

import pytest
import torch

from mala_asr.training.schedules import CosineSchedule
from tests.training.toy import ToyTraining


class Interrupted(Exception):
    """Stands for a kill."""


def _weights(training: ToyTraining) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in training.model.state_dict().items()}


def _record_losses(training: ToyTraining) -> list[float]:
    """Keep every training loss, step by step."""
    losses: list[float] = []
    fit_batch = training.brain.fit_batch

    def recording(batch):
        loss = fit_batch(batch)
        losses.append(float(loss))
        return loss

    training.brain.fit_batch = recording
    return losses


def _interrupt_before(training: ToyTraining, step: int) -> None:
    fit_batch = training.brain.fit_batch
    count = 0

    def stopping(batch):
        nonlocal count
        count += 1
        if count == step:
            raise Interrupted
        return fit_batch(batch)

    training.brain.fit_batch = stopping


# In the first epoch, between two, and where gradients are accumulated.
@pytest.mark.parametrize("stop, factor", [(3, 1), (6, 1), (8, 2)])
def test_interrupted_equals_straight(
    tmp_path: Path, stop: int, factor: int
) -> None:
    options = {"grad_accumulation_factor": factor, "ckpt_interval_steps": 1}
    straight = ToyTraining(tmp_path / "a", epochs=2, **options)
    expected = _record_losses(straight)
    straight.fit()
    assert len(expected) == 2 * len(straight.train_loader) > stop

    first = ToyTraining(tmp_path / "b", epochs=2, **options)
    losses = _record_losses(first)
    _interrupt_before(first, stop)
    with pytest.raises(Interrupted):
        first.fit()

    second = ToyTraining(tmp_path / "b", epochs=2, **options)
    resumed = _record_losses(second)
    torch.manual_seed(99)  # the saved state has to win
    second.brain.fit(second.counter, second.train_loader, second.valid_loader)

    # The steps after the last checkpoint are made again.
    assert losses == expected[: len(losses)]
    assert resumed == expected[-len(resumed) :]
    assert 0 < len(resumed) < len(expected)
    for name, value in _weights(straight).items():
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_stopped_early_is_the_beginning_of_the_whole(tmp_path: Path) -> None:
    # A schedule that depends on the number of epochs.
    recipe = {"schedule": CosineSchedule(peak=0.01, warmup_steps=1)}
    straight = ToyTraining(tmp_path / "a", epochs=2, recipe=recipe)
    expected = _record_losses(straight)
    straight.fit()

    first = ToyTraining(tmp_path / "b", epochs=2, recipe=recipe)
    begun = _record_losses(first)
    first.fit(last_epoch=1)
    assert begun == expected[: len(expected) // 2]

    second = ToyTraining(tmp_path / "b", epochs=2, recipe=recipe)
    rest = _record_losses(second)
    second.fit()
    assert begun + rest == expected


def test_epochs_differ_from_each_other(tmp_path: Path) -> None:
    training = ToyTraining(tmp_path, epochs=1)
    seen = []
    for epoch in (1, 2, 1):
        training.batches.set_epoch(epoch)
        seen.append(
            [
                (utterance.id, training.train_data.speed(utterance))
                for batch in training.batches._batches
                for utterance in [training.train_data.utterances[batch[0]]]
            ]
        )
    assert seen[0] == seen[2] != seen[1]


def test_a_kill_while_saving_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    training = ToyTraining(tmp_path, epochs=1)
    training.fit()
    checkpointer = training.brain.checkpointer
    before = checkpointer.find_checkpoint().path

    def killed(path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise Interrupted

    checkpointer.custom_save_hooks["optimizer"] = lambda _, path: killed(path)
    with pytest.raises(Interrupted):
        checkpointer.save_checkpoint()
    assert checkpointer.find_checkpoint().path == before
    assert len(checkpointer.list_checkpoints()) == 1

    again = ToyTraining(tmp_path, epochs=1)
    again.brain.on_fit_start()
    for name, value in _weights(training).items():
        assert torch.equal(value, again.model.state_dict()[name])
