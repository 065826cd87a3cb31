"""The oracle against the paper's equations, written out loop by loop."""

import pytest
import torch

from mala_asr.attention.reference import score_ratio, scores


def test_unscaled_mala_is_equations_8_to_10():
    torch.manual_seed(0)
    phi_q = torch.rand(3, 4, dtype=torch.float64)
    phi_k = torch.rand(5, 4, dtype=torch.float64)
    got = scores(phi_q, phi_k, "mala", scaled=False)
    for i in range(3):
        products = [float(phi_q[i] @ phi_k[j]) for j in range(5)]
        beta = 1 + 1 / sum(products)
        gamma = sum(products) / 5
        for j in range(5):
            expected = beta * products[j] - gamma
            assert got[i, j].item() == pytest.approx(expected, abs=1e-12)


def test_scaled_mala_is_the_same_with_scaled_products():
    torch.manual_seed(0)
    phi_q = torch.rand(3, 4, dtype=torch.float64)
    phi_k = torch.rand(5, 4, dtype=torch.float64)
    got = scores(phi_q, phi_k, "mala")
    expected = scores(phi_q * 4**-0.5 / 5, phi_k, "mala", scaled=False)
    assert torch.allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("scale", [1.5, 2.0, 8.0])
def test_scaling_the_query_sharpens_positive_pairs(scale):
    """Eq. 12: p_m > p where both scores stay positive."""
    torch.manual_seed(0)
    keys = 0.1 + 0.01 * torch.rand(6, 4, dtype=torch.float64)
    query = 0.1 * torch.rand(4, dtype=torch.float64)
    order = (keys @ query).argsort()
    strong, weak = keys[order[-1]], keys[order[0]]
    before = score_ratio(query, strong, weak, keys, 1.0)
    after = score_ratio(query, strong, weak, keys, scale)
    assert scores((scale * query)[None], keys, scaled=False).min() > 0
    assert after > before > 1


def test_linear_attention_neglects_magnitude_and_mala_does_not():
    torch.manual_seed(0)
    phi_q = torch.rand(1, 4, dtype=torch.float64)
    phi_k = torch.rand(5, 4, dtype=torch.float64)
    for kind, unchanged in (("linear", True), ("mala", False)):
        one = scores(phi_q, phi_k, kind)
        two = scores(2 * phi_q, phi_k, kind)
        assert torch.allclose(one, two, atol=1e-12) is unchanged


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="choose one of"):
        scores(torch.rand(1, 2), torch.rand(3, 2), "softmax")
