"""The decoder step by step against one teacher-forced pass."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mala_asr.decoding.cached_decoder import CachedDecoder
from mala_asr.models import MalaASR
from mala_asr.models.asr import BOS_INDEX

VOCAB_SIZE = 11


@pytest.fixture(scope="module")
def model() -> MalaASR:
    torch.manual_seed(0)
    return MalaASR(
        VOCAB_SIZE,
        d_model=64,
        num_encoder_layers=1,
        num_decoder_layers=2,
        d_ffn=64,
        kernel_size=3,
    ).eval()


@torch.no_grad()
def test_step_by_step_is_as_teacher_forced(model: MalaASR) -> None:
    """Hypotheses that branch and die, an utterance that leaves."""
    torch.manual_seed(1)
    enc, lengths = torch.randn(3, 20, 64), torch.tensor([20, 1, 13])
    beam, steps, left = 4, 90, 50
    decoder = CachedDecoder(model, enc, lengths, beam)
    tokens = torch.full((3, beam, 1), BOS_INDEX)
    for step in range(steps):
        found = decoder.step(tokens[..., -1])
        if step % 7 == 0:
            rows = len(lengths)
            expected = model.decoder_log_probs(
                tokens.flatten(0, 1),
                enc.repeat_interleave(beam, 0),
                lengths.repeat_interleave(beam),
            )[:, -1].view(rows, beam, VOCAB_SIZE)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        parents = torch.randint(beam, tokens.shape[:2])
        new = torch.randint(4, VOCAB_SIZE, tokens.shape[:2])
        index = parents.unsqueeze(-1).expand_as(tokens)
        tokens = torch.cat([tokens.gather(1, index), new[..., None]], dim=-1)
        decoder.select(parents)
        if step == left:
            rows = torch.tensor([2, 0])
            decoder.keep(rows)
            enc, lengths, tokens = enc[rows], lengths[rows], tokens[rows]


@torch.no_grad()
def test_a_step_costs_at_most_linearly_more(model: MalaASR) -> None:
    decoder = CachedDecoder(model, torch.randn(1, 5, 64), torch.tensor([5]), 4)
    tokens = torch.full((1, 4), 5)

    def operations(steps: int) -> int:
        with FlopCounterMode(display=False) as counter:
            for _ in range(steps):
                decoder.step(tokens)
                # The worst case: no two hypotheses have anything in common.
                decoder.select(torch.arange(4)[None])
        return counter.get_total_flops()

    first, second, third, fourth = (operations(40) for _ in range(4))
    assert fourth - first <= 4 * (second - first)
    assert fourth <= 4 * first


@torch.no_grad()
def test_a_history_in_common_is_kept_once(model: MalaASR) -> None:
    decoder = CachedDecoder(model, torch.randn(1, 5, 64), torch.tensor([5]), 10)
    tokens = torch.full((1, 10), 5)

    def operations() -> int:
        with FlopCounterMode(display=False) as counter:
            decoder.step(tokens)
        return counter.get_total_flops()

    cost = []
    for _ in range(100):
        cost.append(operations())
        decoder.select(torch.zeros(1, 10, dtype=torch.long))
    # Keys and queries, values and weights: 2 layers of 64 channels.
    for_a_node = 2 * 2 * 2 * 64 * 10
    nodes = (max(cost) - min(cost)) / for_a_node
    assert nodes < 2.5 * 100  # of 1000 that the beam has read
