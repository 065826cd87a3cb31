"""The CTC/attention training objective, one value per utterance.

The loss of a batch is the mean over its utterances of the sum over their
tokens, SpeechBrain's ``batchmean``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mala_asr.models.asr import BLANK_INDEX, BOS_INDEX, EOS_INDEX

# Marks what is not part of a target; no token has it.
PADDING = -100


def ctc_losses(
    log_probs: Tensor, lengths: Tensor, tokens: Tensor, n_tokens: Tensor
) -> Tensor:
    """Negative log-likelihood of each utterance's tokens under CTC.

    Arguments
    ---------
    log_probs : torch.Tensor
        Log-probabilities, (batch, time, vocabulary).
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
    >>> log_probs = torch.zeros(1, 3, 4).log_softmax(-1)
    >>> one = torch.tensor([1])
    >>> loss = ctc_losses(log_probs, torch.tensor([3]), one[None] * 3, one)
    >>> round(float(loss), 3)  # 6 of the 64 paths give the one token
    2.367
    """
    return F.ctc_loss(
        log_probs.float().transpose(0, 1),
        tokens,
        lengths,
        n_tokens,
        blank=BLANK_INDEX,
        reduction="none",
    )


def attention_losses(
    log_probs: Tensor,
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
    log_probs : torch.Tensor
        The decoder's log-probabilities, (batch, tokens + 1, vocabulary).
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
    >>> log_probs = torch.zeros(1, 2, 4).log_softmax(-1)
    >>> one = torch.tensor([1])
    >>> loss = attention_losses(log_probs, one[None] * 3, one)
    >>> round(float(loss), 3)  # 2 log 4: the token and the end
    2.773
    """
    targets = with_eos(tokens, n_tokens)
    classes = log_probs.shape[2]
    # torch spreads its smoothing over all classes, the right one included.
    smoothing = label_smoothing * classes / (classes - 1)
    return F.cross_entropy(
        log_probs.float().transpose(1, 2),
        targets,
        ignore_index=PADDING,
        label_smoothing=smoothing,
        reduction="none",
    ).sum(dim=1)


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
