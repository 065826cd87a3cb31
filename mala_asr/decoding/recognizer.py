"""The one way from speech to hypotheses.

Validation during training, the report on the test sets and the transcription
of files all call this class, so that they cannot disagree.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mala_asr.decoding import DECODERS
from mala_asr.decoding.ctc_greedy import ctc_greedy
from mala_asr.decoding.hypothesis import Hypothesis
from mala_asr.decoding.joint import DecodingError, JointBeamSearch

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from mala_asr.models import MalaASR


class Recognizer:
    """A model, its tokenizer and a decoder.

    Arguments
    ---------
    model : MalaASR
        The model; it is read, never changed, and decoded in evaluation mode.
    tokenizer : SentencePieceProcessor
        The tokenizer that the model was trained with.
    decoder : str
        ``ctc_greedy``, or ``joint``: beam search over the attention decoder
        and the CTC head.
    beam_size : int
        Hypotheses that ``joint`` keeps at each step.
    ctc_weight : float
        Share of the CTC score in ``joint``.

    Raises
    ------
    DecodingError
        When the decoder is unknown or the model cannot serve it.
    """

    def __init__(
        self,
        model: "MalaASR",
        tokenizer: "SentencePieceProcessor",
        decoder: str = "ctc_greedy",
        beam_size: int = 10,
        ctc_weight: float = 0.4,
    ) -> None:
        if decoder not in DECODERS:
            raise DecodingError(
                f"unknown decoder '{decoder}'; choose from "
                + ", ".join(DECODERS)
            )
        self.model = model
        self.tokenizer = tokenizer
        self._search = (
            JointBeamSearch(model, tokenizer, beam_size, ctc_weight)
            if decoder == "joint"
            else self._ctc_greedy
        )

    @torch.no_grad()
    def features(
        self, feats: torch.Tensor, n_frames: torch.Tensor
    ) -> list[Hypothesis]:
        """Decode a padded batch of features.

        Arguments
        ---------
        feats : torch.Tensor
            Log-mel features as ``MalaASR.features`` gives them, not yet
            normalized, (batch, frames, mels).
        n_frames : torch.Tensor
            Valid frames of each utterance, (batch,).

        Returns
        -------
        list[Hypothesis]
            One per utterance, in order.
        """
        training = self.model.training
        self.model.eval()
        try:
            return self._search(*self.model.encode(feats, n_frames))
        finally:
            self.model.train(training)

    @torch.no_grad()
    def waves(self, waves: Sequence[torch.Tensor]) -> list[Hypothesis]:
        """Decode recordings of any lengths as one batch.

        Arguments
        ---------
        waves : Sequence[torch.Tensor]
            Mono samples at the model's rate, (samples,) each.

        Returns
        -------
        list[Hypothesis]
            One per recording, in order.

        Raises
        ------
        DecodingError
            When a recording has no samples.
        """
        if not waves:
            return []
        if any(len(wave) == 0 for wave in waves):
            raise DecodingError("a recording without samples; leave it out")
        device = next(self.model.parameters()).device
        n_samples = torch.tensor([len(w) for w in waves], device=device)
        padded = torch.nn.utils.rnn.pad_sequence(
            list(waves), batch_first=True
        ).to(device)
        return self.features(*self.model.features(padded, n_samples))

    def _ctc_greedy(
        self, enc: torch.Tensor, lengths: torch.Tensor
    ) -> list[Hypothesis]:
        log_probs = self.model.ctc_log_probs(enc)
        ctc_lengths = lengths * self.model.ctc_upsampling
        return ctc_greedy(log_probs, ctc_lengths, self.tokenizer)
