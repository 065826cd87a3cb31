"""Streaming equals the whole utterance encoded in the same chunks."""

import itertools

import pytest
import torch

from mala_asr.models import ATTENTIONS, MalaASR, ModelOptionError
from mala_asr.models.frontend import FRONTENDS
from mala_asr.models.streaming import DynChunkTrainConfig, EncoderStream

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


def stream_in_pieces(model, feats, chunks, sizes):
    stream = EncoderStream(model, chunks)
    parts, start = [], 0
    for size in itertools.cycle(sizes):
        end = start + size
        final = end >= feats.shape[1]
        parts.append(stream.push(feats[:, start:end], final))
        if final:
            return torch.cat(parts, dim=1)
        start = end


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
