"""Figures of the scores against brute force, pair by pair, in float64."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from mala_asr.attention import diagnostics
from mala_asr.attention.centred import AttentionForm, attend_full
from mala_asr.attention.diagnostics import (
    FACTORS,
    AttentionFigures,
    inspect_linear,
    inspect_softmax,
)
from mala_asr.attention.reference import (
    ATTENTION_KINDS,
    score_ratio,
    scores,
)
from mala_asr.attention.rotary import rotate
from mala_asr.attention.statistics import FEATURE_MAPS, feature_map

FIGURE_TOLERANCE = 1e-9  # relative, both sides in float64
ROW_SUM_TOLERANCE = 1e-12
LIMIT_MARGIN = 1e-6  # beside the closed-form limit of a factor
RISE = 1e-9  # p_m above p by so much counts as a rise

BATCH, HEADS, TIME, SIZE = 3, 2, 19, 8
LENGTHS = torch.tensor([19, 11, 2])
VISIBLE = (torch.arange(TIME) < LENGTHS[:, None]).unsqueeze(1)
FORMS = [
    AttentionForm(kind, features, rotary)
    for kind, features, rotary in itertools.product(
        ATTENTION_KINDS, FEATURE_MAPS, (False, True)
    )
]


def name_of(form: AttentionForm) -> str:
    return f"{form.kind}-{form.features}{'-rotary' if form.rotary else ''}"


def make_heads(seed: int = 0, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    q, k = torch.randn(2, BATCH, HEADS, TIME, SIZE) * spread
    return q, k


def rows_at(
    form: AttentionForm,
    q: Tensor,
    k: Tensor,
    factor: float,
    sharpness: Tensor | float = 1.0,
) -> Tensor:
    """The oracle's scores with phi(q) scaled: the definition, in full."""
    phi_q, phi_k = (feature_map(x.double(), form.features) for x in (q, k))
    turned = None
    if form.rotary:
        turned = (factor * rotate(phi_q), rotate(phi_k))
    return scores(
        factor * phi_q, phi_k, form.kind, VISIBLE[:, None], sharpness, turned
    )


def rows_of_padding_removed(rows: Tensor) -> list[list[Tensor]]:
    """For each head, the rows of all utterances, visible keys alone."""
    return [
        [
            rows[b, head, i, : LENGTHS[b]]
            for b in range(BATCH)
            for i in range(int(LENGTHS[b]))
        ]
        for head in range(HEADS)
    ]


def count_pairs(one: list[float], scaled: list[float]) -> tuple[int, ...]:
    """Pairs with p > 1, those still positive, and those with p_m > p."""
    pairs = kept = rising = 0
    for m, n in itertools.permutations(range(len(one)), 2):
        if one[m] > one[n] > 0:
            pairs += 1
            if scaled[m] > 0 and scaled[n] > 0:
                kept += 1
                p, p_m = one[m] / one[n], scaled[m] / scaled[n]
                rising += p_m > p * (1 + RISE)
    return pairs, kept, rising


def close(got: Tensor, expected: list[float]) -> bool:
    return torch.allclose(
        got,
        torch.tensor(expected, dtype=torch.float64),
        rtol=FIGURE_TOLERANCE,
        atol=FIGURE_TOLERANCE,
    )


def check_rows(figures: AttentionFigures, rows: list[list[Tensor]]) -> None:
    """Every figure of a row, one key after the other."""
    for head, of_head in enumerate(rows):
        listed = [row.tolist() for row in of_head]
        sums = [sum(abs(x) for x in row) for row in listed]
        entropy = [
            -sum(
                abs(x) / total * math.log(abs(x) / total) for x in row if x != 0
            )
            for row, total in zip(listed, sums, strict=True)
        ]
        expected = {
            "keys": [len(row) for row in listed],
            "nonpositive_share": [
                sum(x <= 0 for x in row) / len(row) for row in listed
            ],
            "smallest": [min(row) for row in listed],
            "smallest_over_mean": [min(row) * len(row) for row in listed],
            "absolute_sum": sums,
            "entropy": entropy,
            "effective_keys": [math.exp(x) for x in entropy],
            "effective_share": [
                math.exp(x) / len(row)
                for x, row in zip(entropy, listed, strict=True)
            ],
        }
        for name, values in expected.items():
            assert close(getattr(figures, name)[head], values), name
    assert (figures.row_sum - 1).abs().max() <= ROW_SUM_TOLERANCE


def check_pairs(
    figures: AttentionFigures, rows_by_factor: list[list[list[Tensor]]]
) -> None:
    """Count pairs and add up the logarithms of their ratios, one by one."""
    for f, head in itertools.product(range(len(FACTORS)), range(HEADS)):
        plain, scaled = rows_by_factor[0][head], rows_by_factor[f][head]
        for i, (one, at) in enumerate(zip(plain, scaled, strict=True)):
            pairs, kept, rising = count_pairs(one.tolist(), at.tolist())
            assert figures.pairs[head, i] == pairs
            assert figures.kept_pairs[f, head, i] == kept
            # What the module claims: kept pairs are those that rise.
            claimed = kept if figures.concentrates and FACTORS[f] > 1 else 0
            assert rising == claimed
            positive = (one > 0) & (at > 0)
            for name, row in (("log_ratio", one), ("log_scaled_ratio", at)):
                logs = row[positive].log()
                total = (logs[:, None] - logs[None]).abs().sum() / 2
                got = getattr(figures, name)[f, head, i]
                assert close(got, float(total)), name


@pytest.mark.parametrize("spread", [0.3, 2.0])
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_linear_forms_equal_brute_force(form, spread):
    q, k = make_heads(spread=spread)
    figures = inspect_linear(form, q, k, VISIBLE)
    by_factor = [
        rows_of_padding_removed(rows_at(form, q, k, factor))
        for factor in FACTORS
    ]
    check_rows(figures, by_factor[0])
    check_pairs(figures, by_factor)


@pytest.mark.parametrize("rotary", [False, True])
def test_learned_sharpness_equals_brute_force(rotary):
    form = AttentionForm("mala", "elu1", rotary)
    q, k = make_heads()
    sharpness = torch.tensor([0.2, 3.0])[:, None, None]
    figures = inspect_linear(form, q, k, VISIBLE, sharpness)
    by_factor = [
        rows_of_padding_removed(rows_at(form, q, k, factor, sharpness.double()))
        for factor in FACTORS
    ]
    check_rows(figures, by_factor[0])
    check_pairs(figures, by_factor)
    # More sharpness is the same as a larger query: fewer positive rows.
    assert (figures.largest_factor > 1).sum(-1).diff() < 0


def test_softmax_equals_brute_force():
    q, k = make_heads()
    added = torch.randn(BATCH, HEADS, TIME, TIME).double()
    logits = q.double() @ k.double().transpose(-2, -1) * 0.3 + added
    hidden = ~VISIBLE[:, None]
    by_factor = [
        rows_of_padding_removed(
            (factor * logits).masked_fill(hidden, -torch.inf).softmax(-1)
        )
        for factor in FACTORS
    ]
    figures = inspect_softmax(
        q, k, 0.3, VISIBLE, lambda utterance, rows: added[utterance][:, rows]
    )
    check_rows(figures, by_factor[0])
    check_pairs(figures, by_factor)
    assert figures.z.shape == (HEADS, 0)
    assert figures.largest_factor.isinf().all()
    # Exponential growth: p_m = p^a for every pair.
    growth = figures.log_scaled_ratio.sum((1, 2)) / figures.log_ratio.sum(
        (1, 2)
    )
    assert close(growth, list(FACTORS))


@pytest.mark.parametrize("spread", [0.3, 2.0])
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_the_largest_factor_is_where_a_scan_finds_it(form, spread):
    q, k = make_heads(seed=1, spread=spread)
    limit = inspect_linear(form, q, k).largest_factor
    scan = [1e-6, *torch.logspace(-3, 4, 200).tolist()]
    phi_q, phi_k = (feature_map(x.double(), form.features) for x in (q, k))
    turned = (rotate(phi_q), rotate(phi_k))

    def positive(factor: Tensor | float) -> Tensor:
        rotated = (factor * turned[0], turned[1]) if form.rotary else None
        rows = scores(factor * phi_q, phi_k, form.kind, rotated=rotated)
        return (rows > 0).all(-1)

    limits = limit.unflatten(-1, (BATCH, TIME)).transpose(0, 1)
    for factor in scan:
        clear = (limits / factor - 1).abs() > LIMIT_MARGIN
        assert torch.equal(positive(factor)[clear], (limits > factor)[clear])
    finite = limits.isfinite() & (limits > 0)
    at = torch.where(finite, limits, 1.0).unsqueeze(-1)
    assert positive(at * (1 - LIMIT_MARGIN))[finite].all()
    assert not positive(at * (1 + LIMIT_MARGIN))[finite].any()
    if form.kind != "linear" and spread == 2.0:
        assert finite.any()


def test_the_limit_of_mala_in_closed_form():
    """a* = r / (z (1 - r)), r the smallest product over the mean one."""
    q, k = make_heads()
    figures = inspect_linear(AttentionForm(), q, k)
    phi_q, phi_k = (feature_map(x.double()) for x in (q, k))
    products = (phi_q @ phi_k.transpose(-2, -1)).transpose(0, 1).flatten(1, 2)
    ratio = products.amin(-1) / products.mean(-1)
    expected = ratio / (figures.z * (1 - ratio))
    assert torch.allclose(
        figures.largest_factor, expected, rtol=FIGURE_TOLERANCE
    )


@pytest.mark.parametrize("factor", [1.5, 8.0])
def test_ratios_are_those_of_the_papers_equation_12(factor):
    q, k = make_heads(spread=0.3)
    q, k = q[:1, :1], k[:1, :1]
    figures = inspect_linear(AttentionForm(), q, k, factors=(1.0, factor))
    phi_q, phi_k = (feature_map(x.double())[0, 0] for x in (q, k))
    query = phi_q[4] * SIZE**-0.5 / TIME
    ordered = phi_k[(phi_k @ query).argsort()]
    total = kept = 0.0
    for weak, strong in itertools.combinations(ordered, 2):
        before, after = (
            float(score_ratio(query, strong, weak, phi_k, a))
            for a in (1.0, factor)
        )
        # Where a score turned negative the ratio falls below 1.
        if before > 1 and after > 1:
            kept += 1
            total += math.log(after)
    assert kept == figures.kept_pairs[1, 0, 4] > 0
    assert total == pytest.approx(
        float(figures.log_scaled_ratio[1, 0, 4]), rel=FIGURE_TOLERANCE
    )


def test_magnitudes_are_those_the_operator_uses():
    q, k = make_heads()
    figures = inspect_linear(AttentionForm("linear"), q, k, VISIBLE)
    phi_q, phi_k = (feature_map(x.double()) for x in (q, k))
    for b, length in enumerate(LENGTHS.tolist()):
        start = int(LENGTHS[:b].sum())
        for i in range(length):
            norm = phi_q[b, :, i].norm(dim=-1)
            mean = phi_k[b, :, :length].mean(-2)
            z = (phi_q[b, :, i] * mean).sum(-1) * SIZE**-0.5
            assert close(figures.query_norm[:, start + i], norm.tolist())
            assert close(figures.z[:, start + i], z.tolist())


def test_row_sums_are_those_the_fast_form_applies():
    form = AttentionForm("mala", rotary=True)
    q, k = make_heads()
    figures = inspect_linear(form, q, k)
    ones = torch.ones(BATCH, HEADS, TIME, 1)
    applied = attend_full(form, q, k, ones).transpose(0, 1).flatten(1)
    assert torch.allclose(applied.double(), figures.row_sum, atol=1e-6)


def test_padding_does_not_count():
    q, k = make_heads()
    together = inspect_linear(AttentionForm(rotary=True), q, k, VISIBLE)
    alone = [
        inspect_linear(
            AttentionForm(rotary=True), q[b : b + 1, :, :n], k[b : b + 1, :, :n]
        )
        for b, n in enumerate(LENGTHS.tolist())
    ]
    pooled = alone[0].pool(*alone[1:])
    for name, got in vars(together).items():
        if isinstance(got, Tensor):
            expected = getattr(pooled, name)
            assert got.shape[-1] == LENGTHS.sum()
            assert torch.allclose(got, expected, rtol=FIGURE_TOLERANCE), name


def test_scores_are_formed_in_blocks_of_a_fixed_size(monkeypatch):
    q, k = (x[:1] for x in make_heads())
    form = AttentionForm("mala")
    whole = inspect_linear(form, q, k)
    formed = []

    def recorded(*args, **options):
        rows = scores(*args, **options)
        formed.append(rows.numel())
        return rows

    monkeypatch.setattr(diagnostics, "scores", recorded)
    monkeypatch.setattr(diagnostics, "BLOCK_SCORES", HEADS * TIME * 5)
    blocks = inspect_linear(form, q, k)
    assert max(formed) == HEADS * TIME * 5
    assert len(formed) == 2 * -(-TIME // 5)
    for name, got in vars(blocks).items():
        if isinstance(got, Tensor):
            assert torch.allclose(got, getattr(whole, name)), name


def test_some_queries_are_evenly_spread():
    q, k = (x[:1] for x in make_heads())
    whole = inspect_linear(AttentionForm(), q, k)
    some = inspect_linear(AttentionForm(), q, k, max_queries=4)
    frames = [2, 7, 11, 16]
    assert torch.allclose(some.smallest, whole.smallest[:, frames])
    assert torch.allclose(some.log_ratio, whole.log_ratio[..., frames])
    # Magnitudes cost nothing: they are of every query.
    assert torch.equal(some.z, whole.z)
    more = inspect_linear(AttentionForm(), q, k, max_queries=TIME + 1)
    assert torch.equal(more.smallest, whole.smallest)


def test_a_head_is_a_part_of_its_layer():
    figures = inspect_linear(AttentionForm(), *make_heads())
    head = figures.of_head(1)
    assert torch.equal(head.z, figures.z[1:])
    assert torch.equal(head.kept_pairs, figures.kept_pairs[:, 1:])


def test_keys_of_equal_score_make_no_pairs():
    q, k = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 1, 8).expand(1, 1, 4, 8)
    figures = inspect_linear(AttentionForm("linear"), q, k)
    assert (figures.pairs == 0).all()
    assert close(figures.effective_share[0], [1.0] * 4)


def test_a_query_that_no_key_answers_is_uniform():
    q, k = -torch.ones(1, 1, 3, 4), torch.randn(1, 1, 3, 4)
    figures = inspect_linear(AttentionForm("mala", "relu"), q, k)
    assert (figures.z == 0).all()
    assert figures.largest_factor.isinf().all()
    assert close(figures.effective_keys[0], [3.0] * 3)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"factors": (0.5,)}, "at least 1"),
        ({"factors": ()}, "at least 1"),
        ({"max_queries": 0}, "1 or more"),
        ({"visible": torch.ones(BATCH, TIME).bool()}, r"\(3, 1, 19\)"),
        ({"visible": torch.zeros(BATCH, 1, TIME).bool()}, "no frame"),
        ({"keys": torch.zeros(BATCH, HEADS, TIME + 1, SIZE)}, "self-attention"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, message):
    q, k = make_heads()
    with pytest.raises(ValueError, match=message):
        inspect_linear(AttentionForm(), **{"queries": q, "keys": k, **change})
    with pytest.raises(ValueError, match=message):
        inspect_softmax(**{"queries": q, "keys": k, "scale": 1.0, **change})


def test_figures_of_different_attentions_are_not_pooled():
    q, k = make_heads()
    mala = inspect_linear(AttentionForm(), q, k)
    linear = inspect_linear(AttentionForm("linear"), q, k)
    with pytest.raises(ValueError, match="different"):
        mala.pool(linear)
