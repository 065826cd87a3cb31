"""Streaming equals the whole utterance encoded in the same chunks."""

import itertools

import pytest
import torch

from mala_asr.models import ATTENTIONS, MalaASR, ModelOptionError
from mala_asr.models.frontend import FRONTENDS
from mala_asr.models.streaming import (
    DynChunkTrainConfig,
    EncoderStream,
    FeatureStream,
)

LOG_PROB_TOLERANCE = 1e-4
CHUNKED = [name for name in ATTENTIONS if name != "hypermixing"]
KNOBS = {"rotary": True, "gate": True, "lepe_kernel": 5}


def build(**options):
    torch.manual_seed(0)
    return MalaASR(
        40,
        d_model=32,
        num_encoder_layers=2,
        ctc_weight=1.0,
        d_ffn=64,
        kernel_size=15,
        **options,
    ).eval()


def push_in_pieces(stream, whole, sizes):
    parts, start = [], 0
    for size in itertools.cycle(sizes):
        end = start + size
        final = end >= whole.shape[1]
        parts.append(stream.push(whole[:, start:end], final))
        if final:
            return torch.cat(parts, dim=1)
        start = end


def stream_in_pieces(model, feats, chunks, sizes):
    return push_in_pieces(EncoderStream(model, chunks), feats, sizes)


@torch.no_grad()
@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("size, left", [(4, None), (4, 2), (8, 0), (3, 1)])
@pytest.mark.parametrize("attention", CHUNKED)
def test_streaming_equals_the_masked_whole(attention, size, left, frontend):
    model = build(attention=attention, frontend=frontend)
    feats = torch.randn(2, 301, 80)
    frames = torch.tensor([301, 301])
    chunks = DynChunkTrainConfig(size, left)
    whole, _ = model.encode(feats, frames, chunks)
    for sizes in ((7, 31, 2, 50), (301,), (1,)):
        streamed = stream_in_pieces(model, feats, chunks, sizes)
        assert streamed.shape == whole.shape
        difference = model.ctc_log_probs(streamed) - model.ctc_log_probs(whole)
        assert difference.abs().max() <= LOG_PROB_TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("left", [None, 2])
def test_streaming_with_every_knob(left):
    model = build(attention_options=KNOBS)
    feats, frames = torch.randn(1, 301, 80), torch.tensor([301])
    chunks = DynChunkTrainConfig(5, left)
    whole, _ = model.encode(feats, frames, chunks)
    streamed = stream_in_pieces(model, feats, chunks, (13, 40))
    difference = model.ctc_log_probs(streamed) - model.ctc_log_probs(whole)
    assert difference.abs().max() <= LOG_PROB_TOLERANCE


@torch.no_grad()
def test_chunks_hide_the_future():
    model = build()
    feats, frames = torch.randn(1, 301, 80), torch.tensor([301])
    changed = feats.clone()
    changed[:, 200:] += 1.0
    chunks = DynChunkTrainConfig(10)
    one, two = (model.encode(x, frames, chunks)[0] for x in (feats, changed))
    # Frames of the first 4 chunks of 10 read features up to 4 * 10 * 4.
    assert torch.allclose(one[:, :40], two[:, :40], atol=1e-5)
    assert not torch.allclose(one[:, 50:], two[:, 50:], atol=1e-2)


def test_hypermixing_refuses_chunks_and_streams():
    model = build(attention="hypermixing")
    chunks = DynChunkTrainConfig(4)
    with pytest.raises(ModelOptionError, match="no chunks"):
        model.encode(torch.rand(1, 50, 80), torch.tensor([50]), chunks)
    with pytest.raises(ModelOptionError, match="cannot stream"):
        EncoderStream(model, chunks)


def test_impossible_chunks_are_refused():
    with pytest.raises(ValueError, match="chunk_size"):
        EncoderStream(build(), DynChunkTrainConfig(0))


@pytest.mark.parametrize("samples", [1, 100, 256, 257, 4000, 4160])
@pytest.mark.parametrize("sizes", [(1,), (7, 500, 160), (10_000,)])
def test_features_of_pieces_are_those_of_the_whole(samples, sizes):
    model = build(top_db=None)
    wave = torch.randn(2, samples)
    whole, frames = model.features(wave, torch.tensor([samples] * 2))
    pieces = push_in_pieces(FeatureStream(model), wave, sizes)
    assert pieces.shape == whole.shape == (2, frames[0], 80)
    assert torch.allclose(pieces, whole, atol=1e-3)  # in dB


def test_the_floor_of_a_stream_is_below_the_loudest_moment_so_far():
    model = build(top_db=20.0)
    wave = torch.randn(1, 16000)
    wave[:, 4000:8000] = 0.0
    wave[:, 12000:] *= 1000
    whole, _ = model.features(wave, torch.tensor([16000]))
    by_pieces = [
        push_in_pieces(FeatureStream(model), wave, sizes)
        for sizes in [(800,), (16000,)]
    ]
    assert torch.allclose(*by_pieces, atol=1e-3)
    so_far = wave[:, :8000]
    before, _ = model.features(so_far, torch.tensor([8000]))
    quiet = slice(27, 48)  # frames of the silence, far from its ends
    assert torch.allclose(by_pieces[0][:, quiet], before[:, quiet], atol=1.0)
    assert whole[:, quiet].min() > before[:, quiet].max() + 20


def test_an_empty_stream_has_no_frames():
    assert FeatureStream(build()).push(torch.empty(1, 0), True).shape[1] == 0
