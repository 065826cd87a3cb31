"""The linear layer against float64, forward and backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from mala_asr.attention import linear as module
from mala_asr.attention.linear import Linear, linear

OUTPUT_TOLERANCE = 1e-5  # relative to the largest value
GRADIENT_TOLERANCE = 1e-5

needs_onednn = pytest.mark.skipif(
    module._ONEDNN is None, reason="this CPU or this torch has no use for it"
)


def _largest_error(got, wanted):
    error = (got.double() - wanted).abs().max() / wanted.abs().max()
    return error.item()


# Both sides of the limit below which it is PyTorch's own layer, and both
# orders of the weight's gradient.
@pytest.mark.parametrize("features", [(96, 256), (256, 96), (64, 64)])
@pytest.mark.parametrize("shape", [(1300,), (3, 111), (5,), (1, 0)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients(features, shape, bias):
    torch.manual_seed(0)
    layer = Linear(*features, bias=bias)
    x = torch.randn(*shape, features[0], requires_grad=True)
    probe = torch.randn(*shape, features[1])
    inputs = (x, *layer.parameters())
    out = layer(x)
    grads = torch.autograd.grad((out * probe).sum(), inputs)
    exact = [p.detach().double().requires_grad_() for p in inputs]
    wanted = functional.linear(*exact)
    wanted_grads = torch.autograd.grad((wanted * probe).sum(), exact)
    assert out.shape == wanted.shape
    if not out.numel():
        return
    assert _largest_error(out, wanted) <= OUTPUT_TOLERANCE
    for grad, exact_grad in zip(grads, wanted_grads, strict=True):
        assert grad.shape == exact_grad.shape
        assert _largest_error(grad, exact_grad) <= GRADIENT_TOLERANCE


def test_frames_may_lie_in_any_order():
    torch.manual_seed(0)
    x, weight = torch.randn(300, 4, 64).transpose(0, 1), torch.randn(128, 64)
    wanted = x.double() @ weight.double().t()
    assert _largest_error(linear(x, weight), wanted) <= OUTPUT_TOLERANCE


def test_only_what_is_asked_for_gets_a_gradient():
    layer = Linear(128, 128).requires_grad_(False)
    x = torch.randn(200, 128, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None and layer.weight.grad is None
    layer.requires_grad_(True)
    layer(x.detach()).sum().backward()
    assert layer.weight.grad is not None


@needs_onednn
@pytest.mark.filterwarnings("ignore:TF32")
def test_large_products_are_onednns(monkeypatch):
    calls = []
    product = module._product

    def record(*args):
        calls.append(args)
        return product(*args)

    monkeypatch.setattr(module, "_product", record)
    layer = Linear(128, 128)
    layer(torch.randn(200, 128)).sum().backward()
    assert len(calls) == 2  # the input needs no gradient
    layer(torch.randn(2, 128))
    layer.double()(torch.randn(200, 128).double())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(torch.randn(200, 128)).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        layer(torch.randn(200, 128))
    assert len(calls) == 2


def test_compiled_it_is_the_same():
    torch.manual_seed(0)
    layer = nn.Sequential(Linear(128, 128), nn.SiLU())
    compiled = torch.compile(layer, dynamic=True)
    for rows in (200, 3):
        x = torch.randn(rows, 128)
        results = []
        for net in (layer, compiled):
            layer.zero_grad()
            out = net(x)
            out.square().sum().backward()
            results.append((out.detach(), layer[0].weight.grad.clone()))
        for got, wanted in zip(*results, strict=True):
            assert _largest_error(got, wanted.double()) <= OUTPUT_TOLERANCE


@pytest.mark.parametrize("rows", [2, 200])
def test_operations_are_counted(rows):
    with FlopCounterMode(display=False) as counter:
        linear(torch.randn(rows, 128), torch.randn(128, 128))
    assert counter.get_total_flops() == 2 * rows * 128 * 128


def test_an_exported_graph_is_for_any_machine():
    exported = torch.export.export(Linear(128, 128), (torch.randn(200, 128),))
    names = [str(node.target) for node in exported.graph.nodes]
    assert "aten.linear.default" in names
    assert not any("mkldnn" in name for name in names)
