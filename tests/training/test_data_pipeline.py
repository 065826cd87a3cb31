"""Batches: every utterance once, the right sizes, nothing lost silently."""

import logging
from collections import Counter
from pathlib import Path

import pytest
import torch

from mala_asr.data.manifest import Utterance
from mala_asr.errors import MalaError
from mala_asr.training.data_pipeline import (
    EpochBatches,
    SpeechDataset,
    collate,
    drop_unalignable,
    fixed_loader,
)
from tests.training.toy import toy_features, toy_tokenizer, toy_utterances


@pytest.fixture
def dataset(tmp_path: Path) -> SpeechDataset:
    return SpeechDataset(
        toy_utterances(200),
        toy_tokenizer(tmp_path),
        toy_features,
        speeds=[0.9, 1.0, 1.1],
        seed=3,
    )


def test_an_epoch_has_every_utterance_once(dataset: SpeechDataset) -> None:
    batches = EpochBatches(dataset, batch_seconds=8, num_buckets=5, seed=1)
    for epoch in (1, 2):
        batches.set_epoch(epoch)
        indices = sorted(i for batch in batches._batches for i in batch)
        assert indices == list(range(200))


def test_batches_keep_their_seconds_with_little_padding(
    dataset: SpeechDataset,
) -> None:
    batches = EpochBatches(dataset, batch_seconds=8, num_buckets=5, seed=1)
    durations = [u.duration for u in dataset.utterances]
    padded = [
        len(batch) * max(durations[i] for i in batch)
        for batch in batches._batches
    ]
    assert max(padded) <= 8
    assert sum(padded) < 1.1 * sum(durations)
    # As many batches as the speech needs, and one unfilled in each bucket.
    assert len(padded) <= sum(durations) / 8 * 1.2 + 5


def test_the_epoch_alone_decides_on_speeds(dataset: SpeechDataset) -> None:
    def speeds() -> list[float]:
        return [dataset.speed(u) for u in dataset.utterances]

    batches = EpochBatches(dataset, batch_seconds=8, num_buckets=5, seed=1)
    batches.set_epoch(1)
    first = speeds()
    batches.set_epoch(2)
    second = speeds()
    batches.set_epoch(1)
    assert speeds() == first != second
    assert min(Counter(first).values()) > 40  # of 200, evenly over three


def test_collate_pads_and_counts(dataset: SpeechDataset) -> None:
    examples = [dataset[i] for i in range(4)]
    batch = collate(examples)
    assert batch.ids == [u.id for u in dataset.utterances[:4]]
    assert batch.speech.shape[:2] == (4, int(batch.lengths.max()))
    for i, (utterance, speed, feats, tokens) in enumerate(examples):
        assert torch.equal(batch.speech[i, : len(feats)], feats)
        assert batch.tokens[i, : batch.n_tokens[i]].tolist() == tokens
        assert torch.equal(feats, toy_features(utterance, speed))
    assert batch.seconds == pytest.approx(
        sum(u.duration / s for u, s, _, _ in examples)
    )


def test_a_fixed_loader_leaves_nothing_out(dataset: SpeechDataset) -> None:
    loader = fixed_loader(dataset, batch_seconds=5)
    seen = [name for batch in loader for name in batch.ids]
    assert sorted(seen) == sorted(u.id for u in dataset.utterances)


def test_loaders_leave_the_random_state_alone(dataset: SpeechDataset) -> None:
    before = torch.get_rng_state()
    next(iter(fixed_loader(dataset, batch_seconds=5)))
    assert torch.equal(torch.get_rng_state(), before)


def test_targets_longer_than_their_input_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = toy_tokenizer(tmp_path)

    def said(name: str, text: str) -> Utterance:
        return Utterance(name, 0.05 * tokens(text), "x.wav", "s", text)

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text))

    # With a frame for each token, a repeated one lacks its blank.
    utterances = [said("fits", "ABCD"), said("repeats", "ABBA")]
    utterances.append(Utterance("silent", 1.0, "x.wav", "s", ""))
    with caplog.at_level(logging.WARNING):
        kept = drop_unalignable(
            utterances, tokenizer, lambda seconds: round(seconds / 0.05)
        )
    assert [u.id for u in kept] == ["fits"]
    assert "repeats, silent" in caplog.text
    with pytest.raises(MalaError, match="no training utterance"):
        drop_unalignable(utterances, tokenizer, lambda seconds: 1)
