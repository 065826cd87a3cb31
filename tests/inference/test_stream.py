"""A stream's final words are those of the chunk-masked whole."""

import itertools
import pickle
import random
import resource

import pytest
import torch
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig

from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.decoding.ctc_greedy import ctc_greedy
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.inference.stream import (
    SpeechStream,
    StreamError,
    StreamResult,
    _Words,
)
from mala_asr.models import MalaASR, ModelOptionError
from mala_asr.models.streaming import FeatureStream
from tests.tones import SAMPLE_RATE, ToneModel, texts, tones

FRAME = 0.04


@pytest.fixture(scope="module")
def recognizer(tone_model: ToneModel) -> Recognizer:
    return Recognizer(*tone_model[:2])


@pytest.fixture(scope="module")
def wave() -> torch.Tensor:
    said = texts(8, seed=80)
    silence = torch.zeros(2 * SAMPLE_RATE)
    parts = [part for text in said for part in (tones(text), silence)]
    return torch.cat(parts)[: -SAMPLE_RATE // 3]  # ends within a chunk


@torch.no_grad()
def masked_whole(
    recognizer: Recognizer, wave: torch.Tensor, size: int, left: int | None
) -> str:
    model = recognizer.model
    feats = FeatureStream(model).push(wave[None], True)
    encoded, lengths = model.encode(
        feats, torch.tensor([feats.shape[1]]), DynChunkTrainConfig(size, left)
    )
    log_probs = model.ctc_log_probs(encoded)
    return ctc_greedy(log_probs, lengths, recognizer.tokenizer)[0].text


def run(
    stream: SpeechStream, wave: torch.Tensor, sizes: tuple[int, ...]
) -> list[StreamResult]:
    results, start = [], 0
    for size in itertools.cycle(sizes):
        if start >= len(wave):
            break
        results += stream.push(wave[start : start + size])
        start += size
    return results + stream.finish()


def final_text(results: list[StreamResult]) -> str:
    return " ".join(result.text for result in results if result.final)


@pytest.mark.parametrize("size, left", [(4, None), (16, None), (8, 3), (25, 0)])
@pytest.mark.parametrize("sizes", [(160_000,), (1000, 7, 12345)])
def test_final_words_are_those_of_the_masked_whole(
    recognizer: Recognizer,
    wave: torch.Tensor,
    size: int,
    left: int | None,
    sizes: tuple[int, ...],
) -> None:
    seconds = None if left is None else left * size * FRAME
    stream = SpeechStream(recognizer, size * FRAME, seconds)
    results = run(stream, wave, sizes)
    expected = masked_whole(recognizer, wave, size, left)
    assert len(expected) > 15
    assert final_text(results) == expected
    assert len([result for result in results if result.final]) > 1


def test_one_sample_at_a_time(recognizer: Recognizer) -> None:
    wave = tones("AB C")[:14001]
    whole = run(SpeechStream(recognizer, 0.16), wave, (len(wave),))
    single = run(SpeechStream(recognizer, 0.16), wave, (1,))
    assert final_text(single) == final_text(whole) != ""


def test_what_is_shown_is_not_withdrawn(
    recognizer: Recognizer, wave: torch.Tensor
) -> None:
    shown, final = "", ""
    results = run(SpeechStream(recognizer, 0.32), wave, (4000,))
    for result in results:
        if result.final:
            final = f"{final} {result.text}"
            assert shown.startswith(final) or final.startswith(shown)
            shown = max(shown, final, key=len)
        else:
            assert f"{final} {result.text}".startswith(shown)
            shown = f"{final} {result.text}"
    assert shown == final == " " + final_text(results)


def test_times_grow_and_end_with_the_recording(
    recognizer: Recognizer, wave: torch.Tensor
) -> None:
    results = run(SpeechStream(recognizer, 0.64), wave, (5000,))
    words = [word for r in results if r.final for word in r.words]
    for one, other in itertools.pairwise(words):
        assert 0 <= one.start < one.end <= other.start
    assert words[-1].end <= len(wave) / SAMPLE_RATE
    assert all(0 < word.confidence <= 1 for word in words)
    for result in results:
        assert result.start < result.end <= result.heard + 1e-9


def test_raw_audio_cut_within_a_sample(
    recognizer: Recognizer, wave: torch.Tensor
) -> None:
    pcm = (wave * 32768).round().clamp(-32768, 32767).short()
    data = pcm.numpy().astype("<i2").tobytes()
    stream, results = SpeechStream(recognizer), []
    for start in range(0, len(data), 4097):
        results += stream.push_pcm(data[start : start + 4097])
    results += stream.finish()
    assert final_text(results) == final_text(
        run(SpeechStream(recognizer), pcm.float() / 32768, (30_000,))
    )


@pytest.mark.parametrize("samples", [0, 1, 300, 16000])
def test_silence_and_nothing(recognizer: Recognizer, samples: int) -> None:
    stream = SpeechStream(recognizer)
    results = stream.push(torch.zeros(samples)) + stream.finish()
    assert results == []


def test_a_stream_ends_once(recognizer: Recognizer) -> None:
    stream = SpeechStream(recognizer)
    stream.finish()
    with pytest.raises(StreamError, match="has ended"):
        stream.push(torch.zeros(5))


def test_nan_and_impossible_durations_are_refused(
    recognizer: Recognizer,
) -> None:
    with pytest.raises(StreamError, match="not finite"):
        SpeechStream(recognizer).push(torch.tensor([0.0, float("nan")]))
    with pytest.raises(StreamError, match="chunk is 0 s"):
        SpeechStream(recognizer, chunk=0)
    with pytest.raises(StreamError, match="pause is nan s"):
        SpeechStream(recognizer, pause=float("nan"))
    with pytest.raises(StreamError, match="left context is -1 s"):
        SpeechStream(recognizer, left=-1)


def test_hypermixing_cannot_stream(tone_model: ToneModel) -> None:
    model = MalaASR(**{**tone_model.model.config, "attention": "hypermixing"})
    with pytest.raises(ModelOptionError, match="cannot stream"):
        SpeechStream(Recognizer(model, tone_model.tokenizer))


@pytest.mark.parametrize("kind", ["char", "unigram"])
@pytest.mark.parametrize("seed", range(20))
def test_random_paths_give_the_words_of_the_whole(
    kind: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any labels in any pieces: blanks, repeats, spaces, unknown tokens."""
    folder = tmp_path_factory.mktemp(kind)
    path = train_tokenizer(
        ["CAB BAD DAD", "ADD CAD", "BAD CABBAGE DEAF EGG"] * 9,
        folder,
        kind=kind,
        vocab_size=None if kind == "char" else 17,
    )
    tokenizer = load_tokenizer(path)
    rng = random.Random(seed)
    labels = [0, 0, 0, 3, *range(4, len(tokenizer))]
    frames = [
        label
        for _ in range(300)
        for label in [rng.choice(labels)] * rng.choice([1, 1, 2, 30])
    ]
    model = MalaASR(len(tokenizer), num_encoder_layers=1, ctc_weight=1.0)
    words = _Words(Recognizer(model, tokenizer), pause=0.8, longest=20.0)
    results, start = [], 0
    while start < len(frames):
        part = frames[start : start + rng.randint(1, 40)]
        results += words.push(part, [0.0] * len(part))
        start += len(part)
    results += words.finish(len(frames) * model.frame_shift)
    hot = torch.nn.functional.one_hot(torch.tensor(frames), len(tokenizer))
    (whole,) = ctc_greedy(
        hot[None].float(), torch.tensor([len(frames)]), tokenizer
    )
    assert final_text(results) == whole.text
    final = [result for result in results if result.final]
    longest = max(w.end - w.start for r in final for w in r.words)
    assert all(r.end - r.start < 20.0 + 0.8 + longest for r in final)


@pytest.mark.slow
def test_ten_hours_in_constant_memory(tone_model: ToneModel) -> None:
    """With a tiny model, so that they take a minute."""
    torch.manual_seed(0)
    config = {
        **tone_model.model.config,
        "frontend": "separable8",
        "sample_rate": 8000,
        "n_fft": 256,
        "hop_length": 20,
        "d_model": 16,
        "d_ffn": 16,
        "ctc_weight": 1.0,
        "num_encoder_layers": 1,
    }
    model = MalaASR(**config)
    with torch.no_grad():
        # Words and pauses from a model that has learned nothing.
        model.ctc_head.weight *= 20
    stream = SpeechStream(Recognizer(model, tone_model.tokenizer), chunk=5.12)
    minute = torch.randn(480_000) * torch.linspace(0, 1, 480_000)
    words, sizes, peaks = 0, [], []
    for _ in range(600):
        results = stream.push(minute)
        words += sum(len(r.words) for r in results if r.final)
        sizes.append(len(pickle.dumps(stream.__dict__ | {"model": None})))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert words > 600
    assert max(sizes[300:]) <= max(sizes[:300]) * 1.05
    assert peaks[-1] - peaks[59] < 20 * 1024  # KiB, since the first hour
