"""The CPU's dropout is dropout."""

import pytest
import torch

from mala_asr.models.dropout import Dropout

BIG = 1_000_000  # elements: large enough for the fast path
MEAN_TOLERANCE = 5e-3  # five standard errors of the mean at BIG


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(BIG,), (10, 333, 301)])
def test_the_share_and_the_scale_are_right(p, shape):
    torch.manual_seed(0)
    x = torch.ones(shape)
    out = Dropout(p)(x)
    assert out.shape == x.shape
    zero, kept = out.unique().tolist()
    assert zero == 0.0
    assert kept == pytest.approx(1 / (1 - p), rel=1e-3)
    assert (out == 0).float().mean().item() == pytest.approx(p, abs=2e-3)
    assert out.mean().item() == pytest.approx(
        1.0, abs=MEAN_TOLERANCE * max(1.0, (p / (1 - p)) ** 0.5)
    )


def test_neighbors_are_independent():
    torch.manual_seed(0)
    zero = (Dropout(0.5)(torch.ones(BIG)) == 0).float() - 0.5
    for distance in (1, 2, 3, 4, 8):
        product = (zero[distance:] * zero[:-distance]).mean()
        assert abs(product) < MEAN_TOLERANCE


def test_the_gradient_passes_where_the_value_did():
    x = torch.randn(BIG, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert torch.equal(x.grad == 0, out == 0)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_everything(p):
    x = torch.ones(BIG)
    assert Dropout(p)(x).mean().item() == 1.0 - p


def test_evaluation_changes_nothing_and_seeds_repeat():
    x = torch.ones(BIG)
    layer = Dropout(0.5)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert torch.equal(layer.eval()(x), x)
