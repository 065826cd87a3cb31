"""The losses against their definitions and SpeechBrain's."""

import itertools
import math

import pytest
import torch
from speechbrain.nnet.losses import kldiv_loss
from torch.nn import functional as F

from mala_asr.training.objective import (
    PADDING,
    attention_losses,
    ctc_losses,
    with_eos,
)


def _collapse(path: tuple[int, ...]) -> list[int]:
    return [label for label, _ in itertools.groupby(path) if label != 0]


def test_ctc_sums_over_the_paths() -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(1, 5, 3).log_softmax(-1)
    target = [1, 1, 2]
    total = sum(
        math.exp(sum(float(log_probs[0, t, s]) for t, s in enumerate(path)))
        for path in itertools.product(range(3), repeat=5)
        if _collapse(path) == target
    )
    loss = ctc_losses(
        log_probs,
        torch.tensor([5]),
        torch.tensor([target]),
        torch.tensor([3]),
    )
    assert float(loss) == pytest.approx(-math.log(total), rel=1e-5)


def test_ctc_gradients_are_pytorchs() -> None:
    """Those of a softmax and PyTorch's loss over the whole vocabulary."""
    torch.manual_seed(0)
    scores = 3 * torch.randn(3, 9, 6)
    lengths = torch.tensor([9, 6, 4])
    # With a token that recurs, and one that nothing is said in.
    tokens = torch.tensor([[3, 3, 5, 3], [4, 5, 0, 0], [0, 0, 0, 0]])
    n_tokens = torch.tensor([4, 2, 0])
    found = []
    for name in ("ours", "theirs"):
        logits = scores.clone().requires_grad_()
        if name == "ours":
            losses = ctc_losses(logits, lengths, tokens, n_tokens)
        else:
            losses = F.ctc_loss(
                logits.log_softmax(-1).transpose(0, 1),
                tokens,
                lengths,
                n_tokens,
                reduction="none",
            )
        (losses * torch.tensor([1.0, 2.0, -0.5])).sum().backward()
        found.append((losses, logits.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=5e-6)


def test_losses_do_not_depend_on_padding() -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(2, 9, 6).log_softmax(-1)
    tokens, n_tokens = torch.tensor([[3, 4, 5], [4, 0, 0]]), [3, 1]
    lengths = [9, 6]
    together = ctc_losses(
        log_probs, torch.tensor(lengths), tokens, torch.tensor(n_tokens)
    )
    decoder = attention_losses(
        log_probs[:, :4], tokens, torch.tensor(n_tokens), 0.1
    )
    for i in range(2):
        one = slice(i, i + 1)
        count = n_tokens[i]
        alone = ctc_losses(
            log_probs[one, : lengths[i]],
            torch.tensor(lengths[one]),
            tokens[one, :count],
            torch.tensor(n_tokens[one]),
        )
        assert torch.allclose(alone, together[one])
        alone = attention_losses(
            log_probs[one, : count + 1],
            tokens[one, :count],
            torch.tensor(n_tokens[one]),
            0.1,
        )
        assert torch.allclose(alone, decoder[one])


def test_a_target_that_does_not_fit_is_infinite() -> None:
    """Not 0, as SpeechBrain's: it has to be noticed."""
    log_probs = torch.zeros(1, 2, 4).log_softmax(-1)
    loss = ctc_losses(
        log_probs,
        torch.tensor([2]),
        torch.tensor([[1, 1]]),
        torch.tensor([2]),
    )
    assert math.isinf(float(loss))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_decoder_gradients_are_speechbrains(smoothing: float) -> None:
    torch.manual_seed(0)
    scores = torch.randn(2, 4, 7)
    tokens, n_tokens = torch.tensor([[3, 4, 5], [6, 0, 0]]), [3, 1]
    gradients = []
    for name in ("ours", "theirs"):
        logits = scores.clone().requires_grad_()
        log_probs = logits.log_softmax(-1)
        if name == "ours":
            losses = attention_losses(
                log_probs, tokens, torch.tensor(n_tokens), smoothing
            )
            loss = losses.mean()
        else:
            targets = with_eos(tokens, torch.tensor(n_tokens))
            loss = kldiv_loss(
                log_probs,
                targets.masked_fill(targets == PADDING, 0),
                length=(torch.tensor(n_tokens) + 1) / 4,
                label_smoothing=smoothing,
                reduction="batchmean",
            )
        loss.backward()
        gradients.append(logits.grad)
    assert torch.allclose(*gradients, atol=1e-6)
