"""The scores that are measured are those the layers apply."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mala_asr.attention.diagnostics import inspect_linear
from mala_asr.attention.reference import attend
from mala_asr.attention.rotary import rotate
from mala_asr.attention.statistics import feature_map
from mala_asr.models import MalaASR
from mala_asr.models.attention import ModelOptionError, build_attention
from mala_asr.models.inspection import inspect_encoder, softmax_inputs

OUTPUT_TOLERANCE = 1e-5  # of float32 outputs, relative to the largest

SOFTMAX = ("softmax_rope", "softmax_relpos")


def make_model(attention: str = "mala", **options: Any) -> MalaASR:
    torch.manual_seed(0)
    return MalaASR(
        30,
        frontend="separable8",
        attention=attention,
        attention_options=options or None,
        d_model=32,
        num_encoder_layers=2,
        num_decoder_layers=1,
        d_ffn=64,
        kernel_size=7,
    ).eval()


def make_features() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, 150, 80), torch.tensor([150, 70])


@pytest.mark.parametrize("attention", SOFTMAX)
def test_softmax_of_what_is_caught_is_the_layers_output(attention):
    torch.manual_seed(0)
    layer = build_attention(attention, 32, 4, 64, 0.1).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, 23, 32)
    given = softmax_inputs(layer, x)
    logits = given.queries @ given.keys.transpose(-2, -1) * given.scale
    if given.bias is not None:
        rows = torch.arange(23)
        logits = logits + torch.stack([given.bias(b, rows) for b in (0, 1)])
    projected = x @ layer.in_proj_weight.T
    values = projected.unflatten(-1, (4, -1)).chunk(3, dim=-1)[2]
    if layer.vbias is not None:
        values = values + layer.value_bias_weight.view(1, 1, 4, -1)
    heads = logits.softmax(-1) @ values.transpose(1, 2)
    expected = layer.out_proj(heads.transpose(1, 2).flatten(-2))
    got, _ = layer(x, x, x)
    assert (got - expected).abs().max() <= OUTPUT_TOLERANCE * got.abs().max()


@pytest.mark.parametrize("rotary", [False, True])
def test_scores_of_what_is_caught_are_the_layers_output(rotary):
    torch.manual_seed(0)
    layer = build_attention(
        "mala", 32, 4, 64, 0.1, {"sharpness": "learned", "rotary": rotary}
    ).eval()
    x = torch.randn(2, 23, 32)
    q, k, v = layer.project(x, x, x)
    q, k = feature_map(q), feature_map(k)
    turned = (rotate(q), rotate(k)) if rotary else None
    heads = attend(q, k, v, "mala", None, layer.sharpness, turned)
    expected = layer.out_proj(heads.transpose(1, 2).flatten(-2))
    got, _ = layer(x, x, x)
    assert (got - expected).abs().max() <= OUTPUT_TOLERANCE * got.abs().max()


def test_every_layer_is_measured_with_its_own_options():
    model = make_model("mala", sharpness="learned", rotary=True)
    layers = [layer.mha_layer for layer in model.transformer.encoder.layers]
    with torch.no_grad():
        layers[1].raw_sharpness.fill_(2.0)
    given = []
    for layer in layers:
        layer.register_forward_pre_hook(
            lambda layer, args: given.append(args[0])
        )
    feats, n_frames = make_features()
    found = inspect_encoder(model, feats, n_frames)
    assert [(f.layer, f.attention) for f in found] == [(1, "mala"), (2, "mala")]
    visible = torch.arange(19) < torch.tensor([19, 9])[:, None]
    for layer, x, got in zip(layers, given, found, strict=True):
        q, k, _ = layer.project(x, x, x)
        expected = inspect_linear(
            layer.form, q, k, visible.unsqueeze(1), layer.sharpness
        )
        assert got.figures.smallest.shape == (4, 19 + 9)
        assert torch.equal(got.figures.smallest, expected.smallest)


@pytest.mark.parametrize("attention", ["mala", "linear", "inline", *SOFTMAX])
def test_a_batch_is_its_recordings(attention):
    model = make_model(attention)
    feats, n_frames = make_features()
    together = inspect_encoder(model, feats, n_frames)
    alone = [
        inspect_encoder(model, feats[b : b + 1, :n], n_frames[b : b + 1])
        for b, n in enumerate(n_frames.tolist())
    ]
    for number, got in enumerate(together):
        first, second = (found[number].figures for found in alone)
        pooled = first.pool(second)
        assert torch.allclose(got.figures.entropy, pooled.entropy, atol=1e-4)


def test_the_same_queries_and_keys_as_other_attentions():
    feats, n_frames = make_features()
    readings = ["linear", "mala", "inline", "softmax"]
    found = inspect_encoder(make_model(), feats, n_frames, readings)
    assert [f.attention for f in found] == 2 * [
        "mala",
        "linear",
        "inline",
        "softmax",
    ]
    mala, linear, inline, softmax = (f.figures for f in found[:4])
    assert torch.equal(mala.z, linear.z) and torch.equal(mala.z, inline.z)
    assert (linear.nonpositive_share == 0).all()
    assert not torch.allclose(mala.absolute_sum, inline.absolute_sum)
    # Read as mala, a linear model is what a mala model of its weights is.
    twin = make_model("linear")
    read = inspect_encoder(twin, feats, n_frames, ["mala"])[1].figures
    assert torch.equal(read.smallest, mala.smallest)
    assert softmax.z.numel() == 0


def test_softmax_readings_turn_queries_and_keys():
    feats, n_frames = make_features()
    plain, turned = (
        inspect_encoder(model, feats, n_frames, ["softmax"])[1].figures
        for model in (make_model(), make_model("mala", rotary=True))
    )
    # The same weights, and lengths that turning does not change.
    assert torch.allclose(plain.query_norm, turned.query_norm, atol=1e-5)
    assert not torch.allclose(plain.entropy, turned.entropy)


def test_inspecting_leaves_the_model_as_it_was():
    model = make_model()
    feats, n_frames = make_features()
    before = model(feats, n_frames).ctc_log_probs
    inspect_encoder(model, feats, n_frames)
    layers = model.transformer.encoder.layers
    assert not any(layer.mha_layer._forward_pre_hooks for layer in layers)
    assert torch.equal(model(feats, n_frames).ctc_log_probs, before)


@pytest.mark.parametrize(
    "attention, readings, message",
    [
        ("hypermixing", [], "no attention scores"),
        ("mala", ["cosine"], "'cosine'; choose one of mala"),
        ("softmax_rope", ["mala"], "never mapped"),
    ],
)
def test_what_has_no_scores_is_refused(attention, readings, message):
    with pytest.raises(ModelOptionError, match=message):
        inspect_encoder(make_model(attention), *make_features(), readings)
