"""The CTC/attention training objective, one value per utterance.

The loss of a batch is the mean over its utterances of the sum over their
tokens, SpeechBrain's ``batchmean``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mala_asr.models.asr import BLANK_INDEX, BOS_INDEX, EOS_INDEX

# Marks what is not part of a target; no token has it.
PADDING = -100


def ctc_losses(
    logits: Tensor, lengths: Tensor, tokens: Tensor, n_tokens: Tensor
) -> Tensor:
    """Negative log-likelihood of each utterance's tokens under CTC.

    Arguments
    ---------
    logits : torch.Tensor
        Scores before the softmax (log-probabilities are such scores too),
        (batch, time, vocabulary).
    lengths : torch.Tensor
        Frames of each utterance, (batch,).
    tokens : torch.Tensor
        Padded targets, (batch, tokens).
    n_tokens : torch.Tensor
        Tokens of each target, (batch,).

    Returns
    -------
    torch.Tensor
        (batch,); infinite where the target does not fit in the frames.

    Example
    -------
    >>> one = torch.tensor([1])
    >>> loss = ctc_losses(
    ...     torch.zeros(1, 3, 4), torch.tensor([3]), one[None] * 3, one
    ... )
    >>> round(float(loss), 3)  # 6 of the 64 paths give the one token
    2.367
    """
    losses: Tensor = _CTC.apply(logits.float(), lengths, tokens, n_tokens)
    return losses


class _CTC(torch.autograd.Function):
    """Softmax and CTC in one, on the columns of an utterance's own tokens.

    The gradient is the softmax less how often each token is expected at each
    frame (Graves et al., 2006, eq. 16): the sum over paths concerns blank
    and the target's tokens alone, and all other columns need one pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        lengths: Tensor,
        tokens: Tensor,
        n_tokens: Tensor,
    ) -> Tensor:
        log_probs = logits.log_softmax(-1)
        columns = F.pad(tokens, (1, 0), value=BLANK_INDEX).unsqueeze(1)
        columns = columns.expand(-1, logits.shape[1], -1)
        picked = log_probs.gather(2, columns)
        # A token that recurs stands in the column where it occurs first.
        same = tokens.unsqueeze(2) == tokens.unsqueeze(1)
        targets = same.int().argmax(2) + 1
        with torch.enable_grad():
            picked.requires_grad_(ctx.needs_input_grad[0])
            losses = F.ctc_loss(
                picked.transpose(0, 1),
                targets,
                lengths,
                n_tokens,
                reduction="none",
            )
        if picked.requires_grad:
            # PyTorch's is the gradient at the scores before the softmax.
            (slope,) = torch.autograd.grad(
                losses, picked, torch.ones_like(losses)
            )
            frames = torch.arange(logits.shape[1], device=logits.device)
            inside = (frames < lengths.unsqueeze(1)).unsqueeze(2)
            inside = inside.to(logits.dtype)
            expected = (picked.detach().exp() - slope) * inside
            ctx.save_for_backward(log_probs, columns, expected, inside)
        return losses.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        log_probs, columns, expected, inside = ctx.saved_tensors
        grad = grad[:, None, None]
        slope = log_probs.exp().mul_(inside * grad)
        slope.scatter_add_(2, columns, expected * -grad)
        return slope, None, None, None


def attention_losses(
    logits: Tensor,
    tokens: Tensor,
    n_tokens: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of each utterance's tokens and the end of sentence.

    Label smoothing leaves ``1 - label_smoothing`` to the right token and
    shares the rest among the other tokens, so the gradients are those of
    SpeechBrain's ``kldiv_loss`` (the values differ by a constant).

    Arguments
    ---------
    logits : torch.Tensor
        The decoder's scores before the softmax (log-probabilities are such
        scores too), (batch, tokens + 1, vocabulary).
    tokens : torch.Tensor
        Padded targets without the end of sentence, (batch, tokens).
    n_tokens : torch.Tensor
        Tokens of each target, (batch,).
    label_smoothing : float
        Probability taken from the right token.

    Returns
    -------
    torch.Tensor
        (batch,).

    Example
    -------
    >>> one = torch.tensor([1])
    >>> loss = attention_losses(torch.zeros(1, 2, 4), one[None] * 3, one)
    >>> round(float(loss), 3)  # 2 log 4: the token and the end
    2.773
    """
    targets = with_eos(tokens, n_tokens)
    classes = logits.shape[2]
    # torch spreads its smoothing over all classes, the right one included.
    smoothing = label_smoothing * classes / (classes - 1)
    losses = F.cross_entropy(
        logits.float().flatten(0, 1),  # classes last: the fastest layout
        targets.flatten(),
        ignore_index=PADDING,
        label_smoothing=smoothing,
        reduction="none",
    )
    return losses.view_as(targets).sum(dim=1)


def with_bos(tokens: Tensor) -> Tensor:
    """Put the start of sentence before each target: the decoder's input.

    Arguments
    ---------
    tokens : torch.Tensor
        Padded targets, (batch, tokens).

    Returns
    -------
    torch.Tensor
        (batch, tokens + 1).

    Example
    -------
    >>> with_bos(torch.tensor([[7, 8]])).tolist()
    [[1, 7, 8]]
    """
    return F.pad(tokens, (1, 0), value=BOS_INDEX)


def with_eos(tokens: Tensor, n_tokens: Tensor) -> Tensor:
    """Put the end of sentence after each target: what the decoder learns.

    Arguments
    ---------
    tokens : torch.Tensor
        Padded targets, (batch, tokens).
    n_tokens : torch.Tensor
        Tokens of each target, (batch,).

    Returns
    -------
    torch.Tensor
        (batch, tokens + 1), `PADDING` after the end.

    Example
    -------
    >>> with_eos(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1])).tolist()
    [[7, 8, 2], [9, 2, -100]]
    """
    targets = F.pad(tokens, (0, 1))
    position = torch.arange(targets.shape[1], device=tokens.device)
    n_tokens = n_tokens.unsqueeze(1)
    targets = targets.masked_fill(position == n_tokens, EOS_INDEX)
    return targets.masked_fill(position > n_tokens, PADDING)
