"""The best label of each frame, repeats merged and blanks dropped."""

from typing import TYPE_CHECKING

import torch

from mala_asr.decoding.hypothesis import Hypothesis, spell

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


def ctc_greedy(
    log_probs: torch.Tensor,
    lengths: torch.Tensor,
    tokenizer: "SentencePieceProcessor",
) -> list[Hypothesis]:
    """Decode CTC log-probabilities without search.

    Arguments
    ---------
    log_probs : torch.Tensor
        Log-probabilities of the labels, (batch, frames, vocabulary).
    lengths : torch.Tensor
        Valid frames of each utterance, (batch,); later frames are not read.
    tokenizer : SentencePieceProcessor
        Turns token ids into text; its pad is the CTC blank.

    Returns
    -------
    list[Hypothesis]
        One per utterance, in order. The score is the log-probability of the
        best path, the sum over its frames.

    Example
    -------
    >>> class Letters:
    ...     def pad_id(self):
    ...         return 0
    ...     def decode(self, ids):
    ...         return "".join("_AB"[i] for i in ids)
    >>> path = torch.tensor([[1, 1, 0, 1, 2, 2]])
    >>> log_probs = torch.nn.functional.one_hot(path).float().log()
    >>> best, = ctc_greedy(log_probs, torch.tensor([5]), Letters())
    >>> best.text, best.tokens, best.score
    ('AAB', [1, 1, 2], 0.0)
    """
    return collapse(*best_path(log_probs), lengths, tokenizer)


def best_path(log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the best label of each frame.

    Arguments
    ---------
    log_probs : torch.Tensor
        Log-probabilities of the labels, (..., frames, vocabulary).

    Returns
    -------
    scores : torch.Tensor
        Its log-probability, (..., frames).
    path : torch.Tensor
        The label, (..., frames).
    """
    scores, path = log_probs.detach().float().max(dim=-1)
    return scores, path


def collapse(
    scores: torch.Tensor,
    path: torch.Tensor,
    lengths: torch.Tensor,
    tokenizer: "SentencePieceProcessor",
) -> list[Hypothesis]:
    """Merge the repeated labels of best paths and drop their blanks.

    Arguments
    ---------
    scores, path : torch.Tensor
        From `best_path`, (batch, frames).
    lengths, tokenizer
        As for `ctc_greedy`.

    Returns
    -------
    list[Hypothesis]
        As from `ctc_greedy`.
    """
    frame = torch.arange(path.shape[1], device=path.device)
    valid = frame < lengths.to(path.device).unsqueeze(1)
    # No label is -1, so the first frame always counts as a change.
    before = torch.nn.functional.pad(path, (1, 0), value=-1)[:, :-1]
    emitted = valid & (path != before) & (path != tokenizer.pad_id())
    totals = scores.masked_fill(~valid, 0.0).sum(dim=1).tolist()

    hypotheses = []
    for labels, kept, total in zip(
        path.cpu(), emitted.cpu(), totals, strict=True
    ):
        tokens = labels[kept].tolist()
        text = spell(tokens, tokenizer)
        hypotheses.append(Hypothesis(text, tokens, total, {"ctc": total}))
    return hypotheses
