"""The one way from speech to hypotheses.

Validation during training, the report on the test sets and the transcription
of files all call this class, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch

from mala_asr.decoding.alignment import with_path_times, with_times
from mala_asr.decoding.ctc_greedy import best_path, collapse
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.hypothesis import Hypothesis
from mala_asr.decoding.joint import JointBeamSearch
from mala_asr.decoding.options import DecodingOptions
from mala_asr.models.blocks import BLOCK_FRAMES, encode_in_blocks

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from mala_asr.models import MalaASR

# A GPU takes larger blocks, or it would idle.
_GPU_BLOCKS = 32

# Frames whose log-probabilities are held at a time where that is possible.
_BLOCK_FRAMES = 2048

Search = Callable[[torch.Tensor, torch.Tensor], list[Hypothesis]]


class Encoded(NamedTuple):
    """A batch of utterances as the encoder gives them.

    Arguments
    ---------
    states : torch.Tensor
        Encoder output, (batch, frames, d_model).
    lengths : torch.Tensor
        Valid frames of each, (batch,).
    seconds : list[float]
        Length of the audio of each.
    """

    states: torch.Tensor
    lengths: torch.Tensor
    seconds: list[float]


class Recognizer:
    """A model, its tokenizer and a decoder.

    Arguments
    ---------
    model : MalaASR
        The model; it is read, never changed, and decoded in evaluation mode.
    tokenizer : SentencePieceProcessor
        The tokenizer that the model was trained with.
    options : DecodingOptions, optional
        The decoder; ``ctc_greedy`` if None.
    word_times : bool
        Whether hypotheses come with the times and confidences of their
        tokens and words.

    Raises
    ------
    DecodingError
        When the model cannot be decoded in that way.
    """

    # Whether `encode_long` works a block at a time, in little memory.
    in_blocks = True

    def __init__(
        self,
        model: MalaASR,
        tokenizer: SentencePieceProcessor,
        options: DecodingOptions | None = None,
        word_times: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options or DecodingOptions()
        self.word_times = word_times
        self._search = _build_search(model, tokenizer, self.options)

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

        Raises
        ------
        DecodingError
            When an utterance has no frames.
        """
        hop = self.model.hop_samples / self.model.sample_rate
        seconds = [count * hop for count in n_frames.tolist()]
        return self.decode(self._encode(feats, n_frames, seconds))

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
        return self.decode(self.encode(waves)) if waves else []

    @torch.no_grad()
    def encode(self, waves: Sequence[torch.Tensor]) -> Encoded:
        """Go half the way, so that several decoders can share it.

        Arguments
        ---------
        waves : Sequence[torch.Tensor]
            Mono samples at the model's rate, (samples,) each; one or more.

        Returns
        -------
        Encoded
            The batch, for `decode` of any recognizer of this model.

        Raises
        ------
        DecodingError
            When a recording has no samples.
        """
        if any(len(wave) == 0 for wave in waves):
            raise DecodingError("a recording without samples; leave it out")
        device = next(self.model.parameters()).device
        n_samples = torch.tensor([len(w) for w in waves], device=device)
        padded = torch.nn.utils.rnn.pad_sequence(
            list(waves), batch_first=True
        ).to(device)
        seconds = [len(wave) / self.model.sample_rate for wave in waves]
        return self._encode(*self.model.features(padded, n_samples), seconds)

    @torch.no_grad()
    def encode_long(self, wave: torch.Tensor) -> Encoded:
        """Encode one recording in blocks.

        Arguments
        ---------
        wave : torch.Tensor
            Mono samples at the model's rate, at least one, (samples,).

        Returns
        -------
        Encoded
            As from `encode` up to rounding, with linear attention in far
            less memory: see `mala_asr.models.blocks`.
        """
        device = next(self.model.parameters()).device
        size = BLOCK_FRAMES * (1 if device.type == "cpu" else _GPU_BLOCKS)
        with _evaluating(self.model):
            states = encode_in_blocks(self.model, wave.to(device), size)
        lengths = torch.tensor([states.shape[1]], device=device)
        seconds = [len(wave) / self.model.sample_rate]
        return Encoded(states, lengths, seconds)

    @torch.no_grad()
    def decode(self, encoded: Encoded) -> list[Hypothesis]:
        """Go the rest of the way.

        Arguments
        ---------
        encoded : Encoded
            What `encode` gave.

        Returns
        -------
        list[Hypothesis]
            One per utterance, in order.
        """
        with _evaluating(self.model):
            if self._search is None:
                return self._greedy(encoded)
            found = self._search(encoded.states, encoded.lengths)
            return self._aligned(found, encoded) if self.word_times else found

    def _encode(
        self,
        feats: torch.Tensor,
        n_frames: torch.Tensor,
        seconds: list[float],
    ) -> Encoded:
        if n_frames.numel() and int(n_frames.min()) < 1:
            raise DecodingError("an utterance without frames; leave it out")
        with _evaluating(self.model):
            return Encoded(*self.model.encode(feats, n_frames), seconds)

    def _greedy(self, encoded: Encoded) -> list[Hypothesis]:
        scores, path = _best_path(self.model, encoded.states)
        counts = encoded.lengths * self.model.ctc_upsampling
        found = collapse(scores, path, counts, self.tokenizer)
        if not self.word_times:
            return found
        return [
            with_path_times(
                hypothesis,
                path[row, :count],
                scores[row, :count],
                self.tokenizer,
                self.model.frame_shift,
                seconds,
            )
            for row, (hypothesis, count, seconds) in enumerate(
                zip(found, counts.tolist(), encoded.seconds, strict=True)
            )
        ]

    def _aligned(
        self, found: Sequence[Hypothesis], encoded: Encoded
    ) -> list[Hypothesis]:
        log_probs = self.model.ctc_log_probs(encoded.states).cpu()
        counts = (encoded.lengths * self.model.ctc_upsampling).tolist()
        return [
            with_times(
                hypothesis,
                log_probs[row, :count],
                self.tokenizer,
                self.model.frame_shift,
                seconds,
            )
            for row, (hypothesis, count, seconds) in enumerate(
                zip(found, counts, encoded.seconds, strict=True)
            )
        ]


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, whatever the mode was."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _best_path(
    model: MalaASR, states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best labels and their scores.

    By blocks: an hour's log-probabilities of a large vocabulary are gigabytes.
    """
    parts = [
        best_path(model.ctc_log_probs(block))
        for block in states.split(_BLOCK_FRAMES, dim=1)
    ]
    scores, path = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    return scores, path


def _build_search(
    model: MalaASR, tokenizer: SentencePieceProcessor, options: DecodingOptions
) -> Search | None:
    """The search of a decoder; None for greedy decoding, which has none."""
    settings = options.settings()
    decoder = settings.pop("decoder")
    if decoder == "ctc_greedy":
        return None
    if decoder == "joint":
        return JointBeamSearch(model, tokenizer, **settings)
    # Its libraries are an extra, which the other decoders do without.
    from mala_asr.decoding.ctc_beam import CTCBeamSearch
    from mala_asr.decoding.rescore import AttentionRescorer

    if decoder == "ctc_beam":
        return CTCBeamSearch(model, tokenizer, **settings)
    n_best, ctc_weight = settings.pop("n_best"), settings.pop("ctc_weight")
    search = CTCBeamSearch(model, tokenizer, **settings)
    return AttentionRescorer(model, search, n_best, ctc_weight)
