"""The model: construction, parameters, state dict, SpeechBrain's doors."""

import json

import pytest
import torch
from hyperpyyaml import load_hyperpyyaml
from speechbrain.lobes.models.transformer.TransformerASR import (
    EncoderWrapper,
    TransformerASR,
)

from mala_asr.models import (
    ATTENTIONS,
    MalaASR,
    MalaTransformerASR,
    ModelOptionError,
)

SMALL = {
    "vocab_size": 40,
    "d_model": 32,
    "num_encoder_layers": 2,
    "num_decoder_layers": 1,
    "d_ffn": 64,
    "kernel_size": 15,
}


def run(model):
    tokens = torch.tensor([[1, 5, 6], [1, 7, 8]])
    feats = torch.arange(2 * 60 * 80).reshape(2, 60, 80).sin()
    return model(feats, torch.tensor([60, 40]), tokens)


@pytest.mark.parametrize("frontend", ["conv4", "separable8"])
@pytest.mark.parametrize("ctc_weight", [0.3, 1.0])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_parameter_receives_a_gradient(attention, ctc_weight, frontend):
    """What DistributedDataParallel asks for."""
    model = MalaASR(
        **SMALL, attention=attention, ctc_weight=ctc_weight, frontend=frontend
    )
    out = run(model)
    loss = out.ctc_log_probs.square().sum()
    if ctc_weight == 1.0:
        assert out.decoder_log_probs is None
    else:
        loss = loss + out.decoder_log_probs.square().sum()
    loss.backward()
    unused = [n for n, p in model.named_parameters() if p.grad is None]
    assert unused == []


@torch.no_grad()
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_config_and_state_dict_rebuild_the_model(attention, tmp_path):
    model = MalaASR(**SMALL, attention=attention).eval()
    model.set_feature_statistics(torch.full((80,), 0.3), torch.ones(80) * 2)
    torch.save(model.state_dict(), tmp_path / "model.ckpt")
    config = json.loads(json.dumps(model.config))
    again = MalaASR(**config).eval()
    again.load_state_dict(
        torch.load(tmp_path / "model.ckpt", weights_only=True)
    )
    for got, expected in zip(run(again), run(model), strict=True):
        assert torch.equal(got, expected)


def test_hyperpyyaml_builds_it():
    text = """
    attention: linear
    model: !new:mala_asr.models.MalaASR
        vocab_size: 40
        d_model: 32
        num_encoder_layers: 1
        d_ffn: 64
        ctc_weight: 1.0
        attention: !ref <attention>
        attention_options:
            rotary: True
    """
    model = load_hyperpyyaml(text, "attention: mala")["model"]
    layer = model.transformer.encoder.layers[0].mha_layer
    assert layer.form.kind == "mala"
    assert layer.form.rotary


def test_mala_and_rotary_softmax_have_equally_many_parameters():
    sizes = {
        name: sum(
            p.numel() for p in MalaASR(**SMALL, attention=name).parameters()
        )
        for name in ("mala", "linear", "inline", "softmax_rope")
    }
    assert len(set(sizes.values())) == 1


def test_all_but_the_attention_is_speechbrains_conformer():
    """Parameters have SpeechBrain's names and shapes."""
    shape = {
        "d_model": 32,
        "nhead": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "d_ffn": 64,
    }
    theirs = TransformerASR(
        40,
        640,
        **shape,
        encoder_module="conformer",
        attention_type="RoPEMHA",
        normalize_before=True,
        causal=False,
    ).state_dict()
    ours = MalaTransformerASR(40, 640, "softmax_rope", **shape).state_dict()
    # The host's absolute encoding, which rotary attention never reads.
    theirs.pop("positional_encoding.pe")
    assert {k: v.shape for k, v in ours.items()} == {
        k: v.shape for k, v in theirs.items()
    }


@torch.no_grad()
def test_softmax_control_computes_what_speechbrain_does():
    torch.manual_seed(0)
    shape = {
        "d_model": 32,
        "nhead": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 0,
        "d_ffn": 64,
    }
    for name, host_type in (
        ("softmax_rope", "RoPEMHA"),
        ("softmax_relpos", "RelPosMHAXL"),
    ):
        theirs = TransformerASR(
            40,
            640,
            **shape,
            encoder_module="conformer",
            attention_type=host_type,
            normalize_before=True,
            causal=False,
        ).eval()
        ours = MalaTransformerASR(40, 640, name, **shape).eval()
        ours.load_state_dict(theirs.state_dict(), strict=False)
        src = torch.randn(2, 30, 640)
        assert torch.allclose(ours.encode(src), theirs.encode(src), atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_speechbrains_own_calls_give_the_same(attention):
    model = MalaASR(**SMALL, attention=attention).eval()
    feats, frames = torch.randn(2, 80, 80), torch.tensor([80, 41])
    expected, lengths = model.encode(feats, frames)
    src = model.frontend(model.normalize(feats), frames)
    relative = lengths / src.shape[1]
    wrapped = EncoderWrapper(model.transformer)(src, relative)
    both, decoded = model.transformer(
        src, torch.tensor([[1, 5], [1, 6]]), relative
    )
    for got in (wrapped, both):
        for row, length in enumerate(lengths):
            difference = (got - expected)[row, :length].abs().max()
            assert difference <= 1e-5
    mine = model.decoder_log_probs(
        torch.tensor([[1, 5], [1, 6]]), expected, lengths
    )
    theirs = model.decoder_head(decoded).log_softmax(-1)
    assert torch.allclose(mine, theirs, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["mala", "linear", "inline"])
def test_long_recordings_have_no_cap(attention):
    model = MalaASR(**{**SMALL, "ctc_weight": 1.0}, attention=attention).eval()
    encoded, _ = model.encode(
        torch.randn(1, 20_000, 80), torch.tensor([20_000])
    )
    assert encoded.shape[1] == 5000
    assert torch.isfinite(encoded).all()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"attention": "mamba"}, "mamba.*softmax_rope"),
        ({"frontend": "conv2"}, "conv2.*separable8"),
        ({"ctc_weight": 0.0}, "ctc_weight"),
        ({"ctc_weight": 1.5}, "ctc_weight"),
        ({"num_decoder_layers": 0}, "num_decoder_layers"),
        ({"vocab_size": 4}, "vocab_size"),
        ({"nhead": 5}, "divide"),
        ({"kernel_size": 4}, "odd"),
        ({"num_encoder_layers": 0}, "num_encoder_layers is 0; give a whole"),
        ({"nhead": 0}, "nhead is 0; give a whole"),
        ({"d_model": "wide"}, "d_model is wide; give a whole"),
        ({"hop_length": 0}, "hop_length is 0; give a whole"),
        ({"n_fft": 100}, "n_fft is 100; a window of win_length 32 ms needs"),
        ({"dropout": 1.5}, "dropout is 1.5; give a number from 0"),
        ({"attention_options": {"rotery": True}}, "rotery"),
        (
            {
                "attention": "softmax_rope",
                "attention_options": {"gate": True},
            },
            "no option 'gate'",
        ),
    ],
)
def test_impossible_options_are_refused_by_name(options, words):
    with pytest.raises(ModelOptionError, match=words):
        MalaASR(**{**SMALL, **options})


@torch.no_grad()
def test_decoder_asked_of_a_ctc_model_is_refused():
    model = MalaASR(**{**SMALL, "ctc_weight": 1.0})
    encoded, lengths = model.encode(torch.rand(1, 30, 80), torch.tensor([30]))
    with pytest.raises(ModelOptionError, match="no decoder"):
        model.decoder_log_probs(torch.tensor([[1]]), encoded, lengths)


@torch.no_grad()
def test_ctc_upsampling_gives_more_frames_to_ctc_alone():
    model = MalaASR(**SMALL, ctc_upsampling=2).eval()
    feats, frames = torch.rand(2, 60, 80), torch.tensor([60, 37])
    encoded, lengths = model.encode(feats, frames)
    out = model(feats, frames, torch.tensor([[1, 5], [1, 6]]))
    assert encoded.shape[:2] == (2, 15)
    assert out.ctc_log_probs.shape == (2, 30, 40)
    assert out.lengths.tolist() == [30, 20] == (2 * lengths).tolist()
    assert out.lengths.tolist() == model.ctc_length(frames).tolist()
    assert out.decoder_log_probs.shape == (2, 2, 40)
    with pytest.raises(ModelOptionError, match="ctc_upsampling"):
        MalaASR(**SMALL, ctc_upsampling=0)
