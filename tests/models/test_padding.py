"""An utterance's log-probabilities do not depend on its neighbors."""

import pytest
import torch
from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from torch.nn import functional

from mala_asr.models import ATTENTIONS, MalaASR
from mala_asr.models.frontend import (
    FRONTENDS,
    build_frontend,
    halve,
    halved,
)
from mala_asr.models.streaming import DynChunkTrainConfig

LOG_PROB_TOLERANCE = 1e-4
SAMPLES = torch.tensor([32000, 20000, 801, 80])
CHUNKED = [name for name in ATTENTIONS if name != "hypermixing"]


def build(**options):
    torch.manual_seed(0)
    return MalaASR(
        40,
        d_model=32,
        num_encoder_layers=2,
        num_decoder_layers=1,
        d_ffn=64,
        kernel_size=15,
        **options,
    ).eval()


def make_waves():
    torch.manual_seed(1)
    waves = 0.1 * torch.randn(len(SAMPLES), int(SAMPLES.max()))
    return waves.masked_fill(
        torch.arange(waves.shape[1]) >= SAMPLES[:, None], 0.0
    )


def compare(model, chunks=None):
    """Largest difference between batched and alone, and in the decoder."""
    waves = make_waves()
    tokens = torch.randint(4, 40, (len(SAMPLES), 5))
    feats, frames = model.features(waves, SAMPLES)
    batched = model(feats, frames, tokens, chunks)
    worst = 0.0
    for row, samples in enumerate(SAMPLES):
        one = slice(row, row + 1)
        alone = model(
            *model.features(waves[one, :samples], SAMPLES[one]),
            tokens[one],
            chunks,
        )
        length = int(batched.lengths[row])
        assert alone.ctc_log_probs.shape[1] == length
        for got, expected in (
            (batched.ctc_log_probs[row, :length], alone.ctc_log_probs[0]),
            (batched.decoder_log_probs[row], alone.decoder_log_probs[0]),
        ):
            worst = max(worst, float((got - expected).abs().max()))
    return worst


@torch.no_grad()
@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_alone_equals_batched(attention, frontend):
    model = build(attention=attention, frontend=frontend)
    assert compare(model) <= LOG_PROB_TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {"rotary": True},
        {"gate": True},
        {"lepe_kernel": 5},
        {"sharpness": "learned"},
        {"feature_map": "relu"},
        {"feature_map": "exp"},
    ],
    ids=str,
)
def test_alone_equals_batched_with_every_knob(options):
    model = build(
        frontend="separable8", attention_options=options, ctc_upsampling=2
    )
    assert compare(model) <= LOG_PROB_TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("attention", CHUNKED)
def test_alone_equals_batched_in_chunks(attention):
    model = build(attention=attention)
    chunks = DynChunkTrainConfig(4, 2)
    assert compare(model, chunks) <= LOG_PROB_TOLERANCE


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_gradients_of_the_edges_are_pytorchs(length):
    """Those of SpeechBrain's way: pad by reflection, then convolve."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(2, 3, 3, stride=2)
    image = torch.randn(2, 8, 6, 2)
    weight = torch.randn(1, halved(length), 3, 3)
    found = []
    for name in ("ours", "theirs"):
        x = image.clone().requires_grad_()
        if name == "ours":
            lengths = torch.tensor([8, length])
            out = halve(x, conv, lengths)[1:, : halved(length)]
        else:
            alone = x[1:, :length].permute(0, 3, 2, 1)
            edges = "replicate" if length == 1 else "reflect"
            alone = functional.pad(alone, (1, 1, 0, 0), mode=edges)
            alone = functional.pad(alone, (0, 0, 1, 1), mode="reflect")
            out = functional.conv2d(alone, conv.weight, conv.bias, stride=2)
            out = out.permute(0, 3, 2, 1)
        conv.zero_grad()
        (out * weight).sum().backward()
        found.append((out, x.grad, conv.weight.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


@torch.no_grad()
def test_garbage_in_the_padding_of_features_changes_nothing():
    model = build()
    feats, frames = model.features(make_waves(), SAMPLES)
    clean = model(feats, frames).ctc_log_probs
    dirty = feats.masked_fill(
        (torch.arange(feats.shape[1]) >= frames[:, None])[..., None], 1e3
    )
    got = model(dirty, frames).ctc_log_probs
    for row, length in enumerate(model.encoded_length(frames)):
        difference = (got - clean)[row, :length].abs().max()
        assert difference <= LOG_PROB_TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("frames", [3, 4, 50, 101])
def test_one_utterance_passes_as_through_speechbrains_front_end(frames):
    ours = build_frontend("conv4", 80).eval()
    theirs = ConvolutionFrontEnd(
        (8, 10, 80),
        num_blocks=2,
        num_layers_per_block=1,
        out_channels=(64, 32),
        kernel_sizes=(3, 3),
        strides=(2, 2),
        residuals=(False, False),
    ).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, frames, 80)
    assert torch.allclose(ours(x), theirs(x), atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", FRONTENDS)
@pytest.mark.parametrize("frames", [1, 2, 3, 8, 9, 100])
def test_lengths_are_those_of_the_front_end(name, frames):
    model = build(frontend=name)
    out = model.frontend(torch.rand(1, frames, 80))
    assert out.shape[1] == model.encoded_length(frames)
    assert out.flatten(2).shape[2] == model.frontend.output_size
