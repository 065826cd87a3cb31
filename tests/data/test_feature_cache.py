"""Features are computed once, found again, and never wrong."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch.utils.data import DataLoader

from mala_asr.data.audio import AudioError, change_speed, read_audio
from mala_asr.data.feature_cache import CacheError, FeatureCache
from mala_asr.data.manifest import Utterance


class Blocks:
    """Mean and deviation of every 10 ms; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        frames = samples[: len(samples) // 160 * 160].view(-1, 160)
        return torch.stack([frames.mean(1), frames.std(1)], dim=1)


@pytest.fixture
def said(tmp_path):
    utterances = []
    for index in range(4):
        path = tmp_path / f"{index}.wav"
        samples = np.random.default_rng(index).normal(
            0, 0.1, 8000 + 800 * index
        )
        soundfile.write(path, samples, 16000)
        seconds = len(samples) / 16000
        utterances.append(Utterance(str(index), seconds, str(path), "7", "GO"))
    return utterances


@pytest.fixture(params=["memory", "disk"])
def folder(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "cache"


def expected(utterance: Utterance, speed: float = 1.0) -> torch.Tensor:
    return Blocks()(change_speed(read_audio(utterance.wav), speed))


def test_features_are_those_of_the_audio_at_each_speed(said, folder):
    cache = FeatureCache(Blocks(), "blocks", folder)
    for speed in (0.9, 1.0, 1.1):
        for utterance in said:
            features = cache.get(utterance, speed)
            assert features.dtype == torch.float32
            wanted = expected(utterance, speed)
            assert torch.allclose(features, wanted, atol=2e-4)


def test_float32_is_kept_exactly(said, folder):
    cache = FeatureCache(Blocks(), "blocks", folder, dtype="float32")
    for _ in range(2):
        assert torch.equal(cache.get(said[0]), expected(said[0]))


def test_everything_is_computed_once(said, folder):
    blocks = Blocks()
    cache = FeatureCache(blocks, "blocks", folder)
    cache.get(said[0])
    assert cache.fill(said, speeds=[0.9, 1.0]) == 7
    assert cache.fill(said, speeds=[0.9, 1.0]) == 0
    for utterance in said:
        cache.get(utterance, 0.9)
    assert blocks.calls == 8


def test_what_is_returned_can_be_changed_without_harm(said, folder):
    cache = FeatureCache(Blocks(), "blocks", folder)
    cache.get(said[0]).zero_()
    assert cache.get(said[0]).abs().sum() > 0


def test_spans_of_one_file_are_told_apart(said, folder):
    cache = FeatureCache(Blocks(), "blocks", folder)
    path = said[3].wav
    spans = [
        Utterance("a", 0.2, path, "7", "GO", 0.0, 0.2),
        Utterance("b", 0.2, path, "7", "GO", 0.2, 0.4),
    ]
    cache.fill(spans)
    whole = expected(said[3])
    for utterance, part in zip(spans, (whole[:20], whole[20:40]), strict=True):
        assert torch.allclose(cache.get(utterance), part, atol=2e-4)


def test_a_changed_file_is_computed_anew(said, folder):
    cache = FeatureCache(Blocks(), "blocks", folder)
    cache.get(said[0])
    soundfile.write(said[0].wav, np.full(1600, 0.25), 16000)
    assert torch.allclose(cache.get(said[0])[:, 0], torch.full((10,), 0.25))


def test_another_process_finds_what_was_kept(said, tmp_path):
    FeatureCache(Blocks(), "blocks", tmp_path / "cache").fill(said)
    blocks = Blocks()
    again = FeatureCache(blocks, "blocks", tmp_path / "cache")
    assert again.fill(said) == 0
    assert torch.allclose(again.get(said[1]), expected(said[1]), atol=2e-4)
    assert blocks.calls == 0


def test_another_key_or_type_is_another_cache(said, tmp_path):
    FeatureCache(Blocks(), "blocks", tmp_path / "cache").fill(said)
    for key, dtype in (("other", "float16"), ("blocks", "float32")):
        blocks = Blocks()
        FeatureCache(blocks, key, tmp_path / "cache", dtype).get(said[0])
        assert blocks.calls == 1


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def cut_index(folder: Path) -> None:
    path = only(folder, "*/*.index")
    path.write_bytes(path.read_bytes()[:-20])


def cut_arrays(folder: Path) -> None:
    path = only(folder, "*/*.bin")
    path.write_bytes(path.read_bytes()[:-20])


def zero_arrays(folder: Path) -> None:
    path = only(folder, "*/*.bin")
    path.write_bytes(bytes(path.stat().st_size))


def lose_arrays(folder: Path) -> None:
    only(folder, "*/*.bin").unlink()


@pytest.mark.parametrize(
    "damage", [cut_index, cut_arrays, zero_arrays, lose_arrays]
)
def test_damage_costs_time_but_never_features(said, tmp_path, damage):
    FeatureCache(Blocks(), "blocks", tmp_path / "cache").fill(said, workers=1)
    damage(tmp_path / "cache")
    blocks = Blocks()
    cache = FeatureCache(blocks, "blocks", tmp_path / "cache")
    for _ in range(2):
        for utterance in said:
            wanted = expected(utterance)
            assert torch.allclose(cache.get(utterance), wanted, atol=2e-4)
    whole = damage in (zero_arrays, lose_arrays)
    assert blocks.calls == (len(said) if whole else 1)


def test_an_interrupted_fill_keeps_what_it_had(said, tmp_path):
    bad = Utterance("bad", 1.0, str(tmp_path / "bad.wav"), "7", "GO")
    Path(bad.wav).write_text("no audio")
    cache = FeatureCache(Blocks(), "blocks", tmp_path / "cache")
    with pytest.raises(AudioError, match="bad.wav"):
        cache.fill([*said, bad], workers=1)
    again = FeatureCache(Blocks(), "blocks", tmp_path / "cache")
    assert again.fill(said) == 0


class Dataset(torch.utils.data.Dataset):
    def __init__(self, cache: FeatureCache, said: list[Utterance]) -> None:
        self.cache, self.said = cache, said

    def __len__(self) -> int:
        return len(self.said)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.cache.get(self.said[index])


@pytest.mark.parametrize("filled", [0, 2, 4])
def test_two_workers_read_and_add_at_once(said, tmp_path, filled):
    cache = FeatureCache(Blocks(), "blocks", tmp_path / "cache")
    cache.fill(said[:filled])
    loader = DataLoader(Dataset(cache, said), batch_size=None, num_workers=2)
    for utterance, features in zip(said, loader, strict=True):
        assert torch.allclose(features, expected(utterance), atol=2e-4)
    # What the workers added is there for the next process, from each one.
    again = FeatureCache(Blocks(), "blocks", tmp_path / "cache")
    assert again.fill(said) == 0


def test_a_cache_can_be_sent_to_another_process(said, tmp_path):
    cache = FeatureCache(Blocks(), "blocks", tmp_path / "cache")
    cache.fill(said)
    copy = pickle.loads(pickle.dumps(cache))
    assert torch.equal(copy.get(said[0]), cache.get(said[0]))


def test_features_that_do_not_fit_the_type_are_refused(said):
    cache = FeatureCache(lambda x: x[None] * 1e9, "big", None)
    with pytest.raises(AudioError, match="not finite in float16"):
        cache.get(said[0])


def test_a_missing_file_names_the_utterance(said, folder):
    gone = Utterance("gone", 1.0, "/no/such.wav", "7", "GO")
    with pytest.raises(AudioError, match="/no/such.wav, the audio of gone"):
        FeatureCache(Blocks(), "blocks", folder).fill([gone])


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="choose a folder"):
        FeatureCache(Blocks(), "blocks", tmp_path / "file")


def test_threads_are_given_back_after_filling(said):
    before = torch.get_num_threads()
    FeatureCache(Blocks(), "blocks", None).fill(said)
    assert torch.get_num_threads() == before
