"""Learning rates, from the first step on."""

import pytest
import torch
from speechbrain.nnet.schedulers import NoamScheduler

from mala_asr.training.schedules import CosineSchedule, NoamSchedule


def test_the_first_step_is_a_warmup_step() -> None:
    cosine = CosineSchedule(peak=1e-3, warmup_steps=100)
    cosine.plan(1000)
    for schedule in (NoamSchedule(1e-3, 100), cosine):
        assert schedule(1) == pytest.approx(1e-5)
        assert schedule(100) == pytest.approx(1e-3)


def test_noam_is_speechbrains() -> None:
    ours = NoamSchedule(peak=2e-3, warmup_steps=5)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-3)
    theirs = NoamScheduler(lr_initial=2e-3, n_warmup_steps=5)
    for step in range(1, 20):
        _, rate = theirs(optimizer)
        assert ours(step) == pytest.approx(rate)


def test_cosine_falls_to_its_last_fraction() -> None:
    schedule = CosineSchedule(peak=1.0, warmup_steps=10, final_fraction=0.1)
    schedule.plan(110)
    rates = [schedule(step) for step in range(10, 111)]
    assert rates == sorted(rates, reverse=True)
    assert rates[50] == pytest.approx(0.55)
    assert rates[-1] == schedule(10_000) == pytest.approx(0.1)


def test_cosine_must_know_its_length() -> None:
    with pytest.raises(RuntimeError, match="plan"):
        CosineSchedule(peak=1.0, warmup_steps=1)(1)
