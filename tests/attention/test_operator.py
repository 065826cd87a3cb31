"""The fast forms against the float64 oracle: outputs and gradients."""

import itertools

import pytest
import torch
from torch import Tensor

from mala_asr.attention.centred import (
    AttentionForm,
    Stream,
    attend_chunked,
    attend_full,
)
from mala_asr.attention.reference import ATTENTION_KINDS, attend, scores
from mala_asr.attention.rotary import rotate
from mala_asr.attention.statistics import FEATURE_MAPS, feature_map

OUTPUT_TOLERANCE = 1e-5  # relative error of float32 outputs
GRADIENT_TOLERANCE = 1e-4  # relative error of float32 gradients
ROW_SUM_TOLERANCE = 1e-6

BATCH, HEADS, TIME, SIZE = 3, 2, 37, 8
FORMS = [
    AttentionForm(kind, features, rotary)
    for kind, features, rotary in itertools.product(
        ATTENTION_KINDS, FEATURE_MAPS, (False, True)
    )
]
CHUNKINGS = [None, (5, None), (5, 0), (5, 1), (5, 3), (1, 2), (64, None)]


def lengths_of(pattern: str) -> Tensor | None:
    """Valid frames per utterance of each mask pattern."""
    return {
        "none": None,
        "ragged": torch.tensor([37, 20, 6]),
        "one valid frame": torch.tensor([37, 1, 12]),
        "a fully padded row": torch.tensor([37, 0, 12]),
    }[pattern]


PATTERNS = ["none", "ragged", "one valid frame", "a fully padded row"]


def make_inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, BATCH, HEADS, TIME, SIZE)
    return q * 2, k, v + 1.0


def visible_keys(pattern: str) -> Tensor | None:
    lengths = lengths_of(pattern)
    if lengths is None:
        return None
    return (torch.arange(TIME) < lengths[:, None]).unsqueeze(1)


def visible_pairs(
    pattern: str, chunking: tuple[int, int | None] | None
) -> Tensor:
    """The mask that the oracle needs, (batch, 1, time, time)."""
    pairs = torch.ones(BATCH, 1, TIME, TIME, dtype=torch.bool)
    keys = visible_keys(pattern)
    if keys is not None:
        pairs = pairs & keys.unsqueeze(-2)
    if chunking is not None:
        size, left = chunking
        chunk = torch.arange(TIME) // size
        pairs = pairs & (chunk[None, :] <= chunk[:, None])
        if left is not None:
            pairs = pairs & (chunk[None, :] >= chunk[:, None] - left)
    return pairs


def oracle(
    form: AttentionForm,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pairs: Tensor,
    sharpness: Tensor | float = 1.0,
) -> Tensor:
    phi_q, phi_k = (feature_map(x.double(), form.features) for x in (q, k))
    rotated = (rotate(phi_q), rotate(phi_k)) if form.rotary else None
    if isinstance(sharpness, Tensor):
        sharpness = sharpness.double()
    return attend(
        phi_q, phi_k, v.double(), form.kind, pairs, sharpness, rotated
    )


def fast(
    form: AttentionForm,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    chunking: tuple[int, int | None] | None,
    sharpness: Tensor | None = None,
) -> Tensor:
    if chunking is None:
        return attend_full(form, q, k, v, keys, sharpness)
    return attend_chunked(form, q, k, v, *chunking, keys, sharpness)


def relative_error(got: Tensor, expected: Tensor) -> float:
    got, expected = got.detach().double(), expected.detach().double()
    difference = (got - expected).norm()
    return float(difference / expected.norm().clamp_min(1e-30))


def name_of(value: object) -> str:
    if isinstance(value, AttentionForm):
        rotary = "-rotary" if value.rotary else ""
        return f"{value.kind}-{value.features}{rotary}"
    return str(value)


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=name_of)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_outputs_and_gradients_equal_the_oracle(form, pattern, chunking):
    inputs = [x.requires_grad_() for x in make_inputs()]
    twins = [x.detach().double().requires_grad_() for x in inputs]
    pairs = visible_pairs(pattern, chunking)
    keys = visible_keys(pattern)
    got = fast(form, *inputs, keys, chunking)
    expected = oracle(form, *twins, pairs)
    assert relative_error(got, expected) <= OUTPUT_TOLERANCE

    weights = torch.randn(got.shape)
    (got * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    for x, twin in zip(inputs, twins, strict=True):
        assert torch.isfinite(x.grad).all()
        assert relative_error(x.grad, twin.grad) <= GRADIENT_TOLERANCE


@pytest.mark.parametrize("chunking", [None, (5, 1)], ids=name_of)
@pytest.mark.parametrize("rotary", [False, True])
def test_learned_sharpness_equals_the_oracle(rotary, chunking):
    form = AttentionForm("mala", "elu1", rotary)
    q, k, v = make_inputs()
    sharpness = torch.tensor([0.3, 2.5])[:, None, None].requires_grad_()
    twin = sharpness.detach().double().requires_grad_()
    got = fast(form, q, k, v, None, chunking, sharpness)
    expected = oracle(form, q, k, v, visible_pairs("none", chunking), twin)
    assert relative_error(got, expected) <= OUTPUT_TOLERANCE
    got.square().sum().backward()
    expected.square().sum().backward()
    assert relative_error(sharpness.grad, twin.grad) <= GRADIENT_TOLERANCE


@pytest.mark.parametrize("left", [None, 0, 2])
@pytest.mark.parametrize("size", [1, 5, 16])
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_streaming_equals_chunked_and_the_oracle(form, size, left):
    q, k, v = make_inputs()
    stream = Stream(form, left)
    parts = [
        stream.attend(*(x[..., start : start + size, :] for x in (q, k, v)))
        for start in range(0, TIME, size)
    ]
    streamed = torch.cat(parts, dim=-2)
    chunked = attend_chunked(form, q, k, v, size, left)
    expected = oracle(form, q, k, v, visible_pairs("none", (size, left)))
    assert relative_error(streamed, chunked) <= OUTPUT_TOLERANCE
    assert relative_error(streamed, expected) <= OUTPUT_TOLERANCE


def test_the_state_of_a_stream_never_grows():
    q, k, v = torch.randn(3, 1, 2, 8, 4)
    unlimited, limited = Stream(AttentionForm()), Stream(AttentionForm(), 3)
    for _ in range(50):
        unlimited.attend(q, k, v)
        limited.attend(q, k, v)
    assert len(unlimited.past) == 1
    assert len(limited.past) == 3
    assert (unlimited.past[0].number == 400).all()


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_rows_of_the_scores_sum_to_one(form, pattern):
    q, k, _ = make_inputs()
    phi_q, phi_k = (feature_map(x.double(), form.features) for x in (q, k))
    rotated = (rotate(phi_q), rotate(phi_k)) if form.rotary else None
    pairs = visible_pairs(pattern, None)
    rows = scores(phi_q, phi_k, form.kind, pairs, rotated=rotated).sum(-1)
    expected = pairs.any(-1).to(rows).expand_as(rows)
    assert (rows - expected).abs().max() <= ROW_SUM_TOLERANCE
    # The fast form cannot show a row, but applies it to values of 1.
    keys = visible_keys(pattern)
    ones = torch.ones(BATCH, HEADS, TIME, 1)
    applied = attend_full(form, q, k, ones, keys).squeeze(-1)
    assert (applied - expected).abs().max() <= ROW_SUM_TOLERANCE


def test_padding_has_no_influence_whatever_stands_there():
    form = AttentionForm()
    q, k, v = make_inputs()
    keys = visible_keys("ragged")
    clean = attend_full(form, q, k, v, keys)
    k[~keys.expand(BATCH, HEADS, TIME)] = 50.0
    v[~keys.expand(BATCH, HEADS, TIME)] = -1e6
    assert torch.equal(attend_full(form, q, k, v, keys), clean)


def test_a_query_that_no_key_answers_reads_the_mean_value():
    form = AttentionForm("mala", "relu")
    q = (-torch.ones(1, 1, 2, 4)).requires_grad_()
    k, v = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 3)
    out = attend_full(form, q, k, v)
    assert torch.allclose(out, v.mean(-2, keepdim=True).expand_as(out))
    out.sum().backward()
    assert torch.isfinite(q.grad).all()


@pytest.mark.parametrize("size, left", [(0, None), (-1, None), (4, -1)])
def test_impossible_chunks_are_refused(size, left):
    q, k, v = make_inputs()
    with pytest.raises(ValueError, match="chunk"):
        attend_chunked(AttentionForm(), q, k, v, size, left)


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(ValueError, match="softmax.*mala"):
        AttentionForm("softmax")
    with pytest.raises(ValueError, match="gelu.*elu1"):
        feature_map(torch.ones(1), "gelu")
