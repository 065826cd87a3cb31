"""The hypotheses of one search, reordered by the attention decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from mala_asr.decoding.attention_scores import attention_scores, max_tokens
from mala_asr.decoding.ctc_beam import CTCBeamSearch
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.hypothesis import Hypothesis

if TYPE_CHECKING:
    from mala_asr.models import MalaASR


class AttentionRescorer:
    """Beam search over CTC, its best reordered by the attention decoder.

    With w the weight of CTC, a hypothesis y scores

        (1 - w) log p_attention(y) + w log p_ctc(y) + the rest,

    the rest being what `CTCBeamSearch` adds for the language model and the
    words. All hypotheses of a batch are scored in one pass.

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder, in evaluation mode.
    search : CTCBeamSearch
        The search.
    n_best : int
        Hypotheses of each utterance to reorder.
    ctc_weight : float
        The weight w, 0 to 1.

    Raises
    ------
    DecodingError
        When the model has no decoder.
    """

    def __init__(
        self,
        model: MalaASR,
        search: CTCBeamSearch,
        n_best: int,
        ctc_weight: float,
    ) -> None:
        if not model.has_decoder:
            raise DecodingError(
                "the model was trained with CTC alone and has no attention "
                "decoder to rescore with; decode it with ctc_beam"
            )
        self.model = model
        self.search = search
        self.count = n_best
        self.ctc_weight = ctc_weight

    @torch.no_grad()
    def __call__(
        self, enc: torch.Tensor, lengths: torch.Tensor
    ) -> list[Hypothesis]:
        """Find the best transcript of each utterance.

        Arguments
        ---------
        enc : torch.Tensor
            Encoder output, (batch, frames, d_model).
        lengths : torch.Tensor
            Valid frames of each utterance, (batch,), one or more.

        Returns
        -------
        list[Hypothesis]
            One per utterance, in order; ``scores`` holds ``attention`` as
            well.
        """
        most = max_tokens(self.model)
        found = self.search.n_best(enc, lengths, self.count)
        # Beyond its table of positions the decoder has no opinion.
        placed = [[h for h in row if len(h.tokens) <= most] for row in found]
        scores = attention_scores(
            self.model,
            enc,
            lengths,
            [[h.tokens for h in row] for row in placed],
        )
        return [
            max(map(self._rescored, row, parts), key=lambda h: h.score)
            if row
            else unplaced[0]
            for row, parts, unplaced in zip(placed, scores, found, strict=True)
        ]

    def _rescored(self, hypothesis: Hypothesis, attention: float) -> Hypothesis:
        ctc = hypothesis.scores["ctc"]
        return replace(
            hypothesis,
            score=hypothesis.score + (1 - self.ctc_weight) * (attention - ctc),
            scores={**hypothesis.scores, "attention": attention},
        )
