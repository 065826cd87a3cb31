"""Every side of a benchmark gets the same, realistic batches."""

from pathlib import Path

import pytest
import soundfile
import torch

from mala_asr.benchmarks.batches import (
    FIRST_TOKEN,
    SAMPLE_RATE,
    corpus_batches,
    noise_batches,
)
from mala_asr.errors import MalaError


def write_corpus(root: Path, durations: list[float]) -> None:
    chapter = root / "train" / "7" / "1"
    chapter.mkdir(parents=True)
    lines = []
    for number, seconds in enumerate(durations):
        name = f"7-1-{number:04d}"
        samples = torch.zeros(round(seconds * SAMPLE_RATE)).numpy()
        soundfile.write(chapter / f"{name}.flac", samples, SAMPLE_RATE)
        lines.append(f"{name} GO ON\n")
    (chapter / "7-1.trans.txt").write_text("".join(lines))


def test_noise_fills_the_batch_with_utterances_of_nearly_one_length():
    for batch in noise_batches(240, 5000):
        assert batch.seconds == pytest.approx(240, abs=0.01)
        lengths = [len(wave) for wave in batch.waves]
        assert max(lengths) <= 1.06 * min(lengths)
        assert min(len(tokens) for tokens in batch.tokens) > 30
        tokens = torch.cat(batch.tokens)
        assert FIRST_TOKEN <= tokens.min() and tokens.max() < 5000


def test_the_same_seed_gives_the_same_batches():
    first, second = noise_batches(20, 50), noise_batches(20, 50)
    for a, b in zip(first, second, strict=True):
        assert all(map(torch.equal, a.waves, b.waves))
        assert all(map(torch.equal, a.tokens, b.tokens))
    other = noise_batches(20, 50, seed=1)
    assert not torch.equal(first[0].tokens[0], other[0].tokens[0])


def test_corpus_batches_come_from_its_quarters(tmp_path: Path):
    write_corpus(tmp_path, [1.0] * 16 + [2.0] * 8 + [4.0] * 4)
    batches = corpus_batches(tmp_path, 4.0, 5000)
    assert [
        [len(wave) // SAMPLE_RATE for wave in batch.waves] for batch in batches
    ] == [[1, 1, 1, 1], [2, 2], [4]]


def test_a_corpus_smaller_than_a_batch_is_refused(tmp_path: Path):
    write_corpus(tmp_path, [1.0, 1.0])
    with pytest.raises(MalaError, match="2 s of speech.*--seconds"):
        corpus_batches(tmp_path, 240, 5000)
    with pytest.raises(MalaError, match="no such folder"):
        corpus_batches(tmp_path / "nowhere", 240, 5000)
