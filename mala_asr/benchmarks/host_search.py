"""SpeechBrain's joint CTC/attention beam search over our model.

The reference for our own search, in what it finds and in how long it takes.
Three things about the host decide how it is driven here. It wants lengths as
fractions of the padded input, and the padding no longer than the longest
utterance. It bounds the steps by the longest utterance of a batch, so a short
one that never ends by itself would come out longer in company than alone:
here each utterance must end by its own last frame. And its encoding of
decoder positions is a table of fixed size.
"""

from __future__ import annotations

import time
from itertools import takewhile
from typing import Any

import torch
from speechbrain.decoders import S2STransformerBeamSearcher, ScorerBuilder
from speechbrain.decoders.scorer import CTCScorer as HostCTCScorer
from torch import Tensor

from mala_asr.decoding.attention_scores import max_tokens
from mala_asr.models import MalaASR
from mala_asr.models.asr import BLANK_INDEX, BOS_INDEX, EOS_INDEX


class HostBeamSearch:
    """The host's search with the settings of `JointBeamSearch`.

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder, in evaluation mode.
    beam_size : int
        Hypotheses kept at each step.
    ctc_weight : float
        The weight of the CTC score, 0 to below 1.
    n_best : int
        Hypotheses to return, at most the beam size.
    all_tokens : bool
        Whether CTC scores the whole vocabulary in place of the attention's
        best, twice the beam size.
    """

    def __init__(
        self,
        model: MalaASR,
        beam_size: int = 10,
        ctc_weight: float = 0.4,
        n_best: int = 1,
        all_tokens: bool = False,
    ) -> None:
        self._searcher = _BoundedSearcher(
            most_tokens=max_tokens(model),
            tokens_per_frame=model.ctc_upsampling,
            modules=[model.transformer, model.decoder_head],
            bos_index=BOS_INDEX,
            eos_index=EOS_INDEX,
            min_decode_ratio=0.0,
            max_decode_ratio=float(model.ctc_upsampling),
            beam_size=beam_size,
            scorer=_ctc_scorer(model, ctc_weight, all_tokens),
            using_eos_threshold=False,
            return_topk=True,
            topk=n_best,
        )

    @property
    def step_seconds(self) -> list[float]:
        """What each step of the last search took."""
        return self._searcher.step_seconds

    @torch.no_grad()
    def __call__(
        self, enc: Tensor, lengths: Tensor
    ) -> list[list[tuple[list[int], float]]]:
        """Search the best transcripts of each utterance.

        Arguments
        ---------
        enc : Tensor
            Encoder output, (batch, frames, d_model).
        lengths : Tensor
            Valid frames of each utterance, (batch,), one or more.

        Returns
        -------
        list of lists of (list of int, float)
            Tokens and score of each hypothesis, the best first.
        """
        self._searcher.step_seconds = []
        enc = enc[:, : int(lengths.max())]
        tokens, _, scores, _ = self._searcher(enc, lengths / enc.shape[1])
        return [
            [
                (_until_end(row), score)
                for row, score in zip(rows, row_scores, strict=True)
            ]
            for rows, row_scores in zip(
                tokens.tolist(), scores.tolist(), strict=True
            )
        ]


def _until_end(row: list[int]) -> list[int]:
    # The host pads with 0, our blank, and a hypothesis that it had to cut off
    # comes without eos.
    ends = (EOS_INDEX, BLANK_INDEX)
    return list(takewhile(lambda token: token not in ends, row))


class _BoundedSearcher(S2STransformerBeamSearcher):
    """The host's search, made to end by each utterance's own last frame."""

    def __init__(
        self, most_tokens: int, tokens_per_frame: int, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.most_tokens = most_tokens
        self.tokens_per_frame = tokens_per_frame
        self.step_seconds: list[float] = []

    def set_n_out(self) -> int:
        """Give the size of the vocabulary; the host asks its own Linear."""
        return self.fc.out_features

    def change_max_decoding_length(
        self, min_decode_steps: int, max_decode_steps: int
    ) -> tuple[int, int]:
        """Allow a token per CTC frame and eos, within the positions' table."""
        return min_decode_steps, min(max_decode_steps, self.most_tokens) + 1

    def search_step(self, *state: Any) -> Any:
        """Do a step and note what it took."""
        start = time.perf_counter()
        result = super().search_step(*state)
        self.step_seconds.append(time.perf_counter() - start)
        return result

    def forward_step(
        self,
        inp_tokens: Tensor,
        memory: Any,
        enc_states: Tensor,
        enc_lens: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score the next token: no blank, and only eos after the last frame.

        The host gives each hypothesis so far as a row of `memory`.
        """
        log_probs, memory, attn = super().forward_step(
            inp_tokens, memory, enc_states, enc_lens
        )
        most = (enc_lens * self.tokens_per_frame).clamp(max=self.most_tokens)
        must_end = memory.shape[1] > most
        forbidden = must_end.unsqueeze(1).repeat(1, log_probs.shape[1])
        forbidden[:, EOS_INDEX] = False
        # The host leaves the blank to the CTC scorer: its -1e20 is taken
        # back a step later, and in a beam wider than the vocabulary an
        # impossible hypothesis wins.
        forbidden[:, BLANK_INDEX] = True
        return log_probs.masked_fill(forbidden, self.minus_inf), memory, attn


class CTCScorer(HostCTCScorer):
    """The host's CTC scorer over `ctc_upsampling` frames an encoder frame.

    The host finds a scorer's weight by the name of its class.
    """

    def reset_mem(self, x: Tensor, enc_lens: Tensor) -> None:
        """Start an utterance; the host counts in encoder frames."""
        super().reset_mem(x, enc_lens * self.ctc_fc.upsampling)


def _ctc_scorer(
    model: MalaASR, weight: float, all_tokens: bool
) -> ScorerBuilder | None:
    if weight == 0.0:
        return None
    scorer = CTCScorer(model.ctc_head, BLANK_INDEX, EOS_INDEX)
    kind = "full_scorers" if all_tokens else "partial_scorers"
    return ScorerBuilder(
        weights={"ctc": weight}, scorer_beam_scale=2, **{kind: [scorer]}
    )
