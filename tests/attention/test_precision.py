"""Long recordings and half precision."""

import pytest
import torch

from mala_asr.attention.centred import AttentionForm, attend_full
from mala_asr.attention.layer import LinearAttention
from mala_asr.attention.reference import attend
from mala_asr.attention.statistics import feature_map

HALF_TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3}
LONG_TOLERANCE = 1e-5
KINDS = ["mala", "linear", "inline"]


def first_queries_exactly(kind, q, k, v, number=16):
    """Explicit float64 scores of a few queries over all keys."""
    phi_q = feature_map(q[..., :number, :].double())
    phi_k = feature_map(k.double())
    return attend(phi_q, phi_k, v.double(), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_100000_frames_in_float32(kind):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 100_000, 16)
    out = attend_full(AttentionForm(kind), q, k, v)
    assert torch.isfinite(out).all()
    expected = first_queries_exactly(kind, q, k, v)
    error = (out[..., :16, :] - expected).norm() / expected.norm()
    assert error <= LONG_TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dtype, frames", [(torch.bfloat16, 100_000), (torch.float16, 10_000)]
)
def test_half_precision_inputs_stay_finite_and_right(kind, dtype, frames):
    torch.manual_seed(0)
    q, k, v = (3 * torch.randn(3, 1, 1, frames, 16)).to(dtype)
    out = attend_full(AttentionForm(kind), q, k, v)
    assert out.dtype == dtype
    assert torch.isfinite(out).all()
    expected = first_queries_exactly(kind, q, k, v)
    error = (out[..., :16, :].double() - expected).norm() / expected.norm()
    assert error <= HALF_TOLERANCE[dtype]


def test_autocast_does_not_reach_the_statistics():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 500, 16)
    plain = attend_full(AttentionForm(), q, k, v)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = attend_full(AttentionForm(), q, k, v)
    assert torch.equal(plain, cast)


def test_elu1_does_not_cancel_in_bfloat16():
    x = torch.tensor([-8.0, -20.0], dtype=torch.bfloat16)
    phi = feature_map(x, "elu1")
    assert (phi > 0).all()
    assert torch.allclose(phi.float(), x.float().exp(), rtol=1e-2)


def test_extreme_queries_give_finite_gradients():
    layer = LinearAttention(16, 2)
    x = (200 * torch.randn(1, 50, 16)).requires_grad_()
    out, _ = layer(x, x, x)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(x.grad).all()
