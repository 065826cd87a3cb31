"""CTC prefix scores of many hypotheses at once, without a loop over frames.

The score of a prefix is the log-probability of all transcripts that begin
with it (Watanabe et al., 2017, algorithm 2). With r_n and r_b the forward
log-probabilities that a prefix g has been read after t frames and the last
frame was, or was not, its last token, and x_t the frame's log-probabilities:

    r_n(t) = x_t(last) + log(exp r_n(t-1) + exp before(t-1))
    r_b(t) = x_t(blank) + log(exp r_b(t-1) + exp r_n(t-1))

where `before` is r_n + r_b of g without its last token (r_b alone where that
token is repeated). Two things keep a step cheap:

* The score of g and one token c, log of the sum over t of
  exp before(t-1) p_t(c), asks for no recursion: it is a product of matrices.
  Only the hypotheses that stay in the beam need r_n and r_b.
* Each recursion is linear in probabilities. Divided by the product of its
  factors it is a cumulative sum, in logarithms
  r(t) = X_t + logcumsumexp(before(t-1) - X_{t-1}) with X the cumulative sum
  of x.

X grows to thousands, of which float32 keeps too few digits: all that is
computed from the frames' log-probabilities is float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mala_asr.models.asr import padding_mask

# Below this a probability is as good as zero, and its sum over frames finite.
_MIN_LOG_PROB = -1e4

# Picking candidates out of the vocabulary pays where it has this many times
# as many tokens: a product of matrices costs far less than picking.
_PICKING = 16


class CTCPrefixScorer:
    """The CTC scores of a beam of hypotheses for each utterance of a batch.

    It starts with one empty hypothesis, the first of the beam; the others
    are impossible until `advance` puts something in their place.

    Arguments
    ---------
    log_probs : Tensor
        CTC log-probabilities, (batch, frames, vocabulary).
    lengths : Tensor
        Valid frames, (batch,).
    beam_size : int
        Hypotheses of an utterance.
    blank, eos : int
        Token ids. Eos stands for the end of the transcript.

    Example
    -------
    >>> log_probs = torch.tensor([[[0.5, 0.0, 0.5], [0.2, 0.0, 0.8]]]).log()
    >>> scorer = CTCPrefixScorer(
    ...     log_probs, torch.tensor([2]), beam_size=1, blank=0, eos=1
    ... )
    >>> scorer.scores()[0, 0].exp()  # never, "" and what begins with "2"
    tensor([0.0000, 0.1000, 0.9000], dtype=torch.float64)
    >>> scorer.advance(torch.tensor([[0]]), torch.tensor([[2]]))
    >>> scorer.scores()[0, 0].exp()  # never, "2" and "22"
    tensor([0.0000, 0.9000, 0.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        log_probs: Tensor,
        lengths: Tensor,
        beam_size: int,
        blank: int,
        eos: int,
    ) -> None:
        batch, frames, _ = log_probs.shape
        self._blank, self._eos = blank, eos
        self._lengths = lengths
        # Both (batch, vocabulary, frames); no token is read in padding.
        self._log_probs = (
            log_probs.clamp(min=_MIN_LOG_PROB).transpose(1, 2).contiguous()
        )
        padding = padding_mask(lengths, frames).unsqueeze(1)
        self._probs = self._log_probs.double().exp().masked_fill_(padding, 0.0)
        # (batch, beam, frames + 1): after so many frames.
        self._r_blank = log_probs.new_full(
            (batch, beam_size, frames + 1), -torch.inf, dtype=torch.float64
        )
        self._r_blank[:, 0, 0] = 0.0
        self._r_blank[:, 0, 1:] = self._log_probs[:, blank].double().cumsum(-1)
        self._r_any = self._r_blank.clone()
        # No hypothesis is followed by a blank, so that no token is repeated.
        self._last = lengths.new_full((batch, beam_size), blank)

    def scores(self, candidates: Tensor | None = None) -> Tensor:
        """Score every hypothesis with one more token, or ended.

        Arguments
        ---------
        candidates : Tensor, optional
            The tokens to look at, (batch, beam, candidates), each once; None
            for the whole vocabulary. Eos is always scored.

        Returns
        -------
        Tensor
            Log-probabilities, float64, (batch, beam, vocabulary): of all
            transcripts that begin so, or for eos of the hypothesis itself.
            -inf for the blank; what is no candidate may be left at -inf.
        """
        weights, scale = _scaled(self._r_any[..., :-1])
        vocab_size = self._probs.shape[1]
        if candidates is None or vocab_size < _PICKING * candidates.shape[2]:
            table = (weights @ self._probs.transpose(1, 2)).log_() + scale
        else:
            probs = _rows(self._probs, candidates)
            sums = (probs @ weights.unsqueeze(-1)).squeeze(-1)
            table = sums.new_full((*sums.shape[:2], vocab_size), -torch.inf)
            table.scatter_(2, candidates, sums.log_() + scale)
        # A repeated token asks for a blank between the two.
        last = self._last.unsqueeze(-1)
        weights, scale = _scaled(self._r_blank[..., :-1])
        again = (weights * _rows(self._probs, self._last)).sum(-1, True)
        table.scatter_(2, last, again.log_() + scale)
        table[..., self._blank] = -torch.inf
        end = self._lengths[:, None, None].expand(*last.shape[:2], 1)
        table[..., self._eos] = self._r_any.gather(2, end).squeeze(2)
        return table

    def advance(self, parents: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by some with one more token.

        Arguments
        ---------
        parents : Tensor
            Which hypothesis of its utterance each comes from, (batch, beam).
        tokens : Tensor
            The token that follows, (batch, beam).
        """
        repeated = tokens == self._last.gather(1, parents)
        index = parents.unsqueeze(-1).expand_as(self._r_any)
        before = torch.where(
            repeated.unsqueeze(-1),
            self._r_blank.gather(1, index),
            self._r_any.gather(1, index),
        )
        r_token = _recursion(before, _rows(self._log_probs, tokens))
        blanks = self._log_probs[:, self._blank].unsqueeze(1)
        self._r_blank = _recursion(r_token, blanks)
        self._r_any = torch.logaddexp(r_token, self._r_blank)
        self._last = tokens

    def keep(self, rows: Tensor) -> None:
        """Forget the other utterances.

        Arguments
        ---------
        rows : Tensor
            Indices of the utterances that stay, (rows,).
        """
        self._lengths = self._lengths[rows]
        self._log_probs, self._probs = self._log_probs[rows], self._probs[rows]
        self._r_blank, self._r_any = self._r_blank[rows], self._r_any[rows]
        self._last = self._last[rows]


def _scaled(logs: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities up to a factor that makes the largest 1, and its log."""
    lowest = torch.finfo(logs.dtype).min  # where all are -inf
    scale = logs.amax(-1, keepdim=True).clamp(min=lowest)
    return (logs - scale).exp_(), scale


def _recursion(before: Tensor, log_probs: Tensor) -> Tensor:
    """Solve r(t) = x_t + log(exp r(t-1) + exp before(t-1)), r(0) = -inf."""
    log_probs = log_probs.double()
    total = log_probs.cumsum(-1)
    r = total + (before[..., :-1] - (total - log_probs)).logcumsumexp(-1)
    return torch.nn.functional.pad(r, (1, 0), value=-torch.inf)


def _rows(table: Tensor, tokens: Tensor) -> Tensor:
    """Take the tokens' rows of a table (batch, vocabulary, frames)."""
    batch = torch.arange(table.shape[0], device=table.device)
    return table[batch.view(-1, *[1] * (tokens.dim() - 1)), tokens]
