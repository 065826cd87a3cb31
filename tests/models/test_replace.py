"""A model's layers are the fast ones, and still PyTorch's where they must."""

import torch
from torch import nn

from mala_asr.attention.linear import Linear
from mala_asr.inference.engines import quantize_encoder
from mala_asr.models import MalaASR
from mala_asr.models.dropout import Dropout
from mala_asr.models.replace import use_fast_layers, use_plain_linear


def _model():
    return MalaASR(40, d_model=32, num_encoder_layers=1, d_ffn=64)


def test_a_model_has_no_slow_layers():
    modules = list(_model().modules())
    dropouts = {type(m) for m in modules if isinstance(m, nn.Dropout)}
    assert dropouts == {Dropout}
    assert not any(type(m) is nn.Linear for m in modules)


def test_parameters_stay_the_same_objects():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False)).eval()
    before = dict(net.named_parameters())
    for replace, kind in (
        (use_fast_layers, Linear),
        (use_plain_linear, nn.Linear),
    ):
        replace(net)
        assert all(type(layer) is kind for layer in net)
        assert not any(layer.training for layer in net)
        after = dict(net.named_parameters())
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)
        assert net[1].bias is None


def test_dropout_that_works_in_place_stays():
    net = nn.Sequential(nn.Dropout(0.1, inplace=True))
    use_fast_layers(net)
    assert type(net[0]) is nn.Dropout


def test_quantization_finds_the_layers():
    model = _model().eval()
    feed_forward = model.transformer.encoder.layers[0].ffn_module1
    x = torch.randn(1, 50, 32)
    with torch.no_grad():
        before = feed_forward(x)
        quantize_encoder(model)
        after = feed_forward(x)
    kinds = [type(m).__module__ for m in feed_forward.modules()]
    assert sum("quantized.dynamic" in kind for kind in kinds) == 2
    assert 0 < (after - before).abs().max() < 0.1 * before.abs().max()
