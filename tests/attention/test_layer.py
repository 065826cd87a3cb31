"""The layer: SpeechBrain's call contract, masks, options, compilation."""

import pytest
import torch

from mala_asr.attention import LinearAttention

TOLERANCE = 1e-5
OPTIONS = [
    {},
    {"kind": "linear"},
    {"kind": "inline"},
    {"feature_map": "relu"},
    {"feature_map": "exp"},
    {"sharpness": "learned"},
    {"rotary": True},
    {"gate": True},
    {"lepe_kernel": 3},
    {"rotary": True, "gate": True, "lepe_kernel": 5, "sharpness": "learned"},
]
D_MODEL, HEADS, TIME = 16, 2, 24


def build(**options):
    torch.manual_seed(0)
    return LinearAttention(D_MODEL, HEADS, **options).eval()


def make_batch():
    torch.manual_seed(1)
    padding = torch.arange(TIME) >= torch.tensor([TIME, 11])[:, None]
    return torch.randn(2, TIME, D_MODEL), padding


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_utterance_does_not_depend_on_its_neighbors(options):
    layer, (x, padding) = build(**options), make_batch()
    batched, _ = layer(x, x, x, key_padding_mask=padding)
    alone, _ = layer(*[x[1:, :11]] * 3)
    assert torch.allclose(batched[1, :11], alone[0], atol=TOLERANCE)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("left", [None, 0, 1])
def test_a_stream_equals_chunks(options, left):
    layer, (x, _) = build(**options), make_batch()
    whole, _ = layer(x, x, x, chunk_size=7, left_chunks=left)
    stream = layer.start_stream(left)
    parts = [layer.forward_streaming(p, stream) for p in x.split(7, dim=1)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=TOLERANCE)


@pytest.mark.parametrize("options", OPTIONS[:7], ids=str)
def test_a_mask_of_chunks_equals_chunks(options):
    layer, (x, padding) = build(**options), make_batch()
    chunk = torch.arange(TIME) // 7
    forbidden = chunk[None, :] > chunk[:, None]
    expected, _ = layer(
        x, x, x, key_padding_mask=padding, chunk_size=7, left_chunks=None
    )
    as_float = torch.zeros(TIME, TIME).masked_fill(forbidden, -torch.inf)
    for mask in (forbidden, as_float, forbidden.expand(2, TIME, TIME)):
        got, _ = layer(x, x, x, attn_mask=mask, key_padding_mask=padding)
        assert torch.allclose(got, expected, atol=TOLERANCE)


@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)
def test_every_option_changes_the_output(options):
    x, _ = make_batch()
    plain, changed = build(), build(**options)
    changed.load_state_dict(plain.state_dict(), strict=False)
    if "sharpness" in options:
        torch.nn.init.constant_(changed.raw_sharpness, 3.0)
    assert not torch.allclose(changed(x, x, x)[0], plain(x, x, x)[0])


def test_learned_sharpness_starts_as_the_paper_and_learns():
    x, _ = make_batch()
    plain, learned = build(), build(sharpness="learned")
    learned.load_state_dict(plain.state_dict(), strict=False)
    out = learned(x, x, x)[0]
    assert torch.allclose(out, plain(x, x, x)[0], atol=TOLERANCE)
    out.square().sum().backward()
    assert learned.raw_sharpness.grad.abs().min() > 0


def test_sharpness_can_start_close_to_linear_attention():
    x, _ = make_batch()
    linear = build(kind="linear")
    start = build(sharpness="learned", sharpness_start=1e-6)
    start.load_state_dict(linear.state_dict(), strict=False)
    assert torch.allclose(start(x, x, x)[0], linear(x, x, x)[0], atol=1e-5)
    half = build(sharpness="learned", sharpness_start=0.5).sharpness
    assert torch.allclose(half, torch.full_like(half, 0.5))


def test_dropout_is_of_the_output_and_of_training_only():
    x, _ = make_batch()
    layer = build(dropout=0.5)
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    layer.train()
    assert (layer(x, x, x)[0] == 0).float().mean() > 0.3


def test_cross_attention_has_its_own_lengths():
    layer = build()
    query, memory = torch.randn(2, 5, D_MODEL), torch.randn(2, 9, D_MODEL)
    out, weights = layer(query, memory, memory)
    assert out.shape == query.shape
    assert weights is None


@pytest.mark.parametrize("kind", ["mala", "linear", "inline"])
@pytest.mark.parametrize("chunk_size", [None, 8])
def test_no_tensor_grows_with_the_square_of_time(kind, chunk_size):
    layer = build(kind=kind)
    time = 2000
    sizes = []
    x = torch.randn(1, time, D_MODEL, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        layer(x, x, x, chunk_size=chunk_size)[0].sum().backward()
    assert max(sizes) < time * time / 4


@pytest.mark.parametrize(
    "options", [{}, {"kind": "linear"}, OPTIONS[-1]], ids=str
)
def test_exported_with_a_dynamic_length_gives_the_same(options):
    layer, (x, padding) = build(**options), make_batch()

    class Self(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, padding):
            return self.layer(x, x, x, key_padding_mask=padding)[0]

    time = torch.export.Dim("time", min=2, max=100_000)
    program = torch.export.export(
        Self(), (x, padding), dynamic_shapes=({1: time}, {1: time})
    )
    for length in (TIME, 57):
        longer = torch.randn(2, length, D_MODEL)
        pads = torch.arange(length) >= torch.tensor([length, 9])[:, None]
        got = program.module()(longer, pads)
        assert torch.allclose(got, Self()(longer, pads), atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, OPTIONS[-1]], ids=str)
@pytest.mark.parametrize("chunk_size", [None, 8])
def test_compiled_gives_the_same(options, chunk_size):
    layer = build(**options)
    compiled = torch.compile(layer, dynamic=True)
    for length in (TIME, 57):
        x = torch.randn(2, length, D_MODEL)
        got, _ = compiled(x, x, x, chunk_size=chunk_size)
        expected, _ = layer(x, x, x, chunk_size=chunk_size)
        assert torch.allclose(got, expected, atol=TOLERANCE)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"attn_mask": torch.full((TIME, TIME), 0.5)}, "0 and -inf"),
        ({"attn_mask": torch.zeros(TIME)}, "axes"),
        ({"attn_mask": torch.zeros(TIME, TIME).long()}, "bool or float"),
        ({"pos_embs": torch.zeros(1)}, "pos_embs"),
        (
            {"attn_mask": torch.zeros(TIME, TIME) > 0, "chunk_size": 4},
            "not both",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(arguments, words):
    layer, (x, _) = build(), make_batch()
    with pytest.raises(ValueError, match=words):
        layer(x, x, x, **arguments)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"nhead": 3}, "divide"),
        ({"feature_map": "gelu"}, "feature_map"),
        ({"sharpness": "high"}, "sharpness"),
        ({"sharpness": "learned", "kind": "linear"}, "belongs to mala"),
        ({"sharpness": "learned", "sharpness_start": 0.0}, "above 0"),
        ({"sharpness": "learned", "sharpness_start": "1"}, "above 0"),
        ({"sharpness_start": 0.5}, "of a learned sharpness"),
        ({"lepe_kernel": 4}, "odd"),
        ({"d_model": 6, "rotary": True}, "even"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        LinearAttention(**{"d_model": 16, "nhead": 2, **options})
