"""A recording encoded in blocks equals the whole encoded at once."""

import pytest
import torch

from mala_asr.models import ATTENTIONS
from mala_asr.models.blocks import encode_in_blocks, stretches
from mala_asr.models.frontend import FRONTENDS
from tests.models.test_streaming import KNOBS, build

TOLERANCE = 1e-4


def whole(model, wave):
    feats, frames = model.features(wave[None], torch.tensor([len(wave)]))
    return model.ctc_log_probs(model.encode(feats, frames)[0])


def difference(model, wave, size):
    with torch.no_grad():
        blocks = model.ctc_log_probs(encode_in_blocks(model, wave, size))
        expected = whole(model, wave)
    assert blocks.shape == expected.shape
    return (blocks - expected).abs().max()


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_blocks_equal_the_whole(attention, frontend):
    model = build(attention=attention, frontend=frontend)
    wave = torch.randn(50_001)
    for size in (3, 32, 1000):
        assert difference(model, wave, size) <= TOLERANCE


@pytest.mark.parametrize("size", [1, 7, 64])
def test_blocks_with_every_knob(size):
    model = build(attention_options=KNOBS)
    assert difference(model, torch.randn(30_000), size) <= TOLERANCE


@pytest.mark.parametrize("samples", [1, 159, 160, 255, 256, 257, 700])
def test_recordings_of_a_frame_or_two(samples):
    model = build()
    assert difference(model, 0.1 * torch.randn(samples), 4) <= TOLERANCE


def test_the_floor_is_below_the_loudest_moment_of_all():
    model = build(top_db=30.0)
    wave = 0.01 * torch.randn(40_000)
    wave[30_000:31_000] *= 100  # heard after the blocks of the quiet part
    assert difference(model, wave, 8) <= TOLERANCE
    with torch.no_grad():
        unfloored = whole(build(top_db=None), wave)
    assert (unfloored - whole(model, wave)).abs().max() > 0.1


def test_blocks_may_be_changed_while_they_are_gone_over():
    x = torch.randn(1, 50, 3)
    original = x.clone()
    for part in stretches(x, 4, 9):
        end = part.window.shape[1] - part.right
        assert torch.equal(part.window[:, part.left : end], part.frames)
        first = part.start - part.left
        window = original[:, first : first + part.window.shape[1]]
        assert torch.equal(part.window, window)
        part.frames.zero_()
    assert not x.any()
