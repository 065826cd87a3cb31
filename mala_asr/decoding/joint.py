"""SpeechBrain's joint CTC/attention beam search over our model.

Three things about the host decide how it is driven here. It wants lengths as
fractions of the padded input, and the padding no longer than the longest
utterance. It bounds the steps by the longest utterance of a batch, so a short
one that never ends by itself would come out longer in company than alone:
here each utterance must end by its own last frame. And its encoding of
decoder positions is a table of fixed size.
"""

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from speechbrain.decoders import S2STransformerBeamSearcher, ScorerBuilder
from speechbrain.decoders.scorer import CTCScorer as HostCTCScorer

from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.hypothesis import Hypothesis, spell

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from mala_asr.models import MalaASR

# Positions in the table of SpeechBrain's decoder; bos takes the first.
MAX_POSITIONS = 2500


class JointBeamSearch:
    """Beam search scored by the attention decoder and the CTC head.

    The score of a hypothesis y is the mean over its tokens of
    ``(1 - w) log p_attention(y) + w log p_ctc(y)`` (Watanabe et al., 2017).

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder.
    tokenizer : SentencePieceProcessor
        Turns token ids into text.
    beam_size : int
        Hypotheses kept at each step.
    ctc_weight : float
        The weight w of the CTC score, 0 to below 1.

    Raises
    ------
    DecodingError
        When the model has no decoder or a setting is out of its range.
    """

    def __init__(
        self,
        model: "MalaASR",
        tokenizer: "SentencePieceProcessor",
        beam_size: int = 10,
        ctc_weight: float = 0.4,
    ) -> None:
        if not model.has_decoder:
            raise DecodingError(
                "the model was trained with CTC alone and has no attention "
                "decoder; decode it with ctc_greedy"
            )
        if beam_size < 1:
            raise DecodingError(f"beam size is {beam_size}; give 1 or more")
        if not 0.0 <= ctc_weight < 1.0:
            raise DecodingError(
                f"CTC weight is {ctc_weight}; give 0 to below 1 "
                "(ctc_greedy decodes by CTC alone)"
            )
        self.tokenizer = tokenizer
        self.searcher = _BoundedSearcher(
            blank_index=tokenizer.pad_id(),
            tokens_per_frame=model.ctc_upsampling,
            modules=[model.transformer, model.decoder_head],
            bos_index=tokenizer.bos_id(),
            eos_index=tokenizer.eos_id(),
            min_decode_ratio=0.0,
            max_decode_ratio=float(model.ctc_upsampling),
            beam_size=beam_size,
            scorer=_ctc_scorer(model, tokenizer, ctc_weight),
            using_eos_threshold=False,
            return_topk=True,
            topk=1,
        )

    def __call__(
        self, enc: torch.Tensor, lengths: torch.Tensor
    ) -> list[Hypothesis]:
        """Search the best transcript of each utterance.

        Arguments
        ---------
        enc : torch.Tensor
            Encoder output, (batch, frames, d_model).
        lengths : torch.Tensor
            Valid frames of each utterance, (batch,), one or more.

        Returns
        -------
        list[Hypothesis]
            One per utterance, in order, without frames of the tokens.
        """
        enc = enc[:, : int(lengths.max())]
        tokens, _, scores, _ = self.searcher(enc, lengths / enc.shape[1])
        return [
            self._hypothesis(row, score)
            for row, score in zip(
                tokens[:, 0].tolist(), scores[:, 0].tolist(), strict=True
            )
        ]

    def _hypothesis(self, row: list[int], score: float) -> Hypothesis:
        # The host pads with 0, our blank, and a hypothesis that it had to
        # cut off comes without eos.
        eos, pad = self.tokenizer.eos_id(), self.tokenizer.pad_id()
        tokens = list(takewhile(lambda token: token not in (eos, pad), row))
        return Hypothesis(spell(tokens, self.tokenizer), tokens, score)


class _BoundedSearcher(S2STransformerBeamSearcher):
    """The host's search, made to end by each utterance's own last frame."""

    def __init__(
        self, blank_index: int, tokens_per_frame: int, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.blank_index = blank_index
        self.tokens_per_frame = tokens_per_frame

    def set_n_out(self) -> int:
        """Give the size of the vocabulary; the host asks its own Linear."""
        return self.fc.out_features

    def change_max_decoding_length(
        self, min_decode_steps: int, max_decode_steps: int
    ) -> tuple[int, int]:
        """Allow a token per CTC frame and eos, within the positions' table."""
        return min_decode_steps, min(max_decode_steps + 1, MAX_POSITIONS)

    def forward_step(
        self,
        inp_tokens: torch.Tensor,
        memory: Any,
        enc_states: torch.Tensor,
        enc_lens: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Score the next token: no blank, and only eos after the last frame.

        The host gives each hypothesis so far as a row of `memory`.
        """
        log_probs, memory, attn = super().forward_step(
            inp_tokens, memory, enc_states, enc_lens
        )
        most = (enc_lens * self.tokens_per_frame).clamp(max=MAX_POSITIONS - 1)
        must_end = memory.shape[1] > most
        forbidden = must_end.unsqueeze(1).repeat(1, log_probs.shape[1])
        forbidden[:, self.eos_index] = False
        # The host leaves the blank to the CTC scorer: its -1e20 is taken
        # back a step later, and in a beam wider than the vocabulary an
        # impossible hypothesis wins.
        forbidden[:, self.blank_index] = True
        return log_probs.masked_fill(forbidden, self.minus_inf), memory, attn


class CTCScorer(HostCTCScorer):
    """The host's CTC scorer over `ctc_upsampling` frames an encoder frame.

    The host finds a scorer's weight by the name of its class.
    """

    def reset_mem(self, x: torch.Tensor, enc_lens: torch.Tensor) -> None:
        """Start an utterance; the host counts in encoder frames."""
        super().reset_mem(x, enc_lens * self.ctc_fc.upsampling)


def _ctc_scorer(
    model: "MalaASR", tokenizer: "SentencePieceProcessor", weight: float
) -> ScorerBuilder | None:
    if weight == 0.0:
        return None
    # As a partial scorer it looks only at the attention's best candidates,
    # twice the beam: the whole vocabulary would cost a table of
    # frames x beam x vocabulary at every step.
    scorer = CTCScorer(model.ctc_head, tokenizer.pad_id(), tokenizer.eos_id())
    return ScorerBuilder(
        weights={"ctc": weight},
        partial_scorers=[scorer],
        scorer_beam_scale=2,
    )
