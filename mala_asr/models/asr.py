"""The whole acoustic model, from samples to log-probabilities.

One module holds features, normalization, front-end, Transformer and output
layers, and remembers the arguments that built it (``config``): what a
training saves is enough to build it again, without any YAML. Lengths are
whole numbers of frames or samples everywhere; SpeechBrain's relative
lengths stay at its own doors.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from speechbrain.lobes.features import Fbank
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from torch import Tensor, nn

from mala_asr.attention.linear import Linear
from mala_asr.models.attention import ModelOptionError
from mala_asr.models.frontend import build_frontend
from mala_asr.models.replace import use_fast_layers
from mala_asr.models.transformer import MalaTransformerASR

BLANK_INDEX, BOS_INDEX, EOS_INDEX, UNK_INDEX = 0, 1, 2, 3
SPECIAL_TOKENS = 4

# Arguments of the model that count something.
_SIZES = (
    "d_model",
    "nhead",
    "num_encoder_layers",
    "d_ffn",
    "kernel_size",
    "sample_rate",
    "n_mels",
    "n_fft",
    "win_length",
    "hop_length",
)

Augmentation = Callable[[Tensor, Tensor], Tensor]


class ASROutput(NamedTuple):
    """What a forward pass gives.

    Arguments
    ---------
    ctc_logits : Tensor
        Scores before the softmax, shape (batch, CTC frames, vocab_size).
    lengths : Tensor
        Valid CTC frames of each utterance in it, shape (batch,).
    decoder_logits : Tensor, optional
        Shape (batch, tokens, vocab_size), where tokens were given.
    """

    ctc_logits: Tensor
    lengths: Tensor
    decoder_logits: Tensor | None

    @property
    def ctc_log_probs(self) -> Tensor:
        """Log-probabilities, the shape of ``ctc_logits``."""
        return self.ctc_logits.float().log_softmax(-1)

    @property
    def decoder_log_probs(self) -> Tensor | None:
        """Log-probabilities, the shape of ``decoder_logits``."""
        if self.decoder_logits is None:
            return None
        return self.decoder_logits.float().log_softmax(-1)


class MalaASR(nn.Module):
    """A CTC/attention Conformer whose encoder attention is chosen by name.

    Arguments
    ---------
    vocab_size : int
        Tokens in the vocabulary, blank, BOS, EOS and unknown included.
    frontend : str
        ``conv4`` (SpeechBrain's, 40 ms frames), ``separable4`` or
        ``separable8`` (light, 40 and 80 ms frames).
    attention : str
        ``mala``, ``linear``, ``inline``, ``softmax_rope``,
        ``softmax_relpos`` or ``hypermixing``.
    attention_options : dict, optional
        Of that attention: ``feature_map``, ``sharpness``,
        ``sharpness_start``, ``rotary``, ``gate``, ``lepe_kernel``,
        ``dropout``.
    d_model, nhead, num_encoder_layers, num_decoder_layers, d_ffn,
    kernel_size, dropout
        As in SpeechBrain's Conformer recipes.
    ctc_weight : float
        Share of CTC in the objective, in (0, 1]; at 1.0 no decoder is
        built.
    ctc_upsampling : int
        CTC frames that each encoder frame gives: 2 lets an encoder of
        80 ms frames spell letters, of which there are 15 a second.
    sample_rate : int
        In Hz.
    n_mels : int
        Mel filters.
    n_fft : int
        Samples of a Fourier transform.
    win_length, hop_length : int
        In milliseconds.
    top_db : float, optional
        How far features may lie below the loudest one of their recording,
        in dB, as in SpeechBrain's Fbank; None for no such floor. A stream
        does not know its loudest moment ahead: without the floor, its
        features are those of the whole recording.

    Raises
    ------
    ModelOptionError
        If an option is out of its range or unknown.

    Example
    -------
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=2, num_decoder_layers=1,
    ...     d_ffn=128,
    ... )
    >>> feats, frames = model.features(
    ...     torch.randn(2, 16000), torch.tensor([16000, 8000])
    ... )
    >>> out = model(feats, frames)
    >>> out.ctc_log_probs.shape, out.lengths
    (torch.Size([2, 26, 30]), tensor([26, 13]))
    """

    feature_mean: Tensor
    feature_std: Tensor

    def __init__(
        self,
        vocab_size: int,
        *,
        frontend: str = "conv4",
        attention: str = "mala",
        attention_options: dict[str, Any] | None = None,
        d_model: int = 144,
        nhead: int = 4,
        num_encoder_layers: int = 12,
        num_decoder_layers: int = 4,
        d_ffn: int = 1024,
        kernel_size: int = 31,
        dropout: float = 0.1,
        ctc_weight: float = 0.3,
        ctc_upsampling: int = 1,
        sample_rate: int = 16000,
        n_mels: int = 80,
        n_fft: int = 512,
        win_length: int = 32,
        hop_length: int = 10,
        top_db: float | None = 80.0,
    ) -> None:
        given = locals()
        super().__init__()
        self.config: dict[str, Any] = {
            name: given[name]
            for name in inspect.signature(type(self)).parameters
        }
        if attention_options is not None:
            self.config["attention_options"] = dict(attention_options)
        self._check_options()
        self.has_decoder = ctc_weight < 1.0
        self.sample_rate = sample_rate
        self.fbank = Fbank(
            sample_rate=sample_rate,
            n_fft=n_fft,
            n_mels=n_mels,
            win_length=win_length,
            hop_length=hop_length,
        )
        # The floor is ours, so that streams can have another.
        self.fbank.compute_fbanks.top_db = math.inf
        self.top_db = math.inf if top_db is None else float(top_db)
        self.hop_samples = round(sample_rate * hop_length / 1000)
        self.register_buffer("feature_mean", torch.zeros(n_mels))
        self.register_buffer("feature_std", torch.ones(n_mels))
        self.frontend = build_frontend(frontend, n_mels, min(dropout, 0.1))
        self.subsampling = self.frontend.subsampling
        # Seconds of a CTC frame.
        self.frame_shift = self.subsampling * hop_length / 1000 / ctc_upsampling
        self.transformer = MalaTransformerASR(
            vocab_size,
            self.frontend.output_size,
            attention,
            attention_options,
            d_model,
            nhead,
            num_encoder_layers,
            num_decoder_layers if self.has_decoder else 0,
            d_ffn,
            kernel_size,
            dropout,
        )
        self.ctc_upsampling = ctc_upsampling
        self.ctc_head = CTCHead(d_model, vocab_size, ctc_upsampling)
        self.decoder_head = (
            nn.Linear(d_model, vocab_size) if self.has_decoder else None
        )
        use_fast_layers(self)

    def _check_options(self) -> None:
        """Refuse what no model can be built from, before building it."""
        config = self.config
        _check_sizes(config)
        vocab_size, nhead = config["vocab_size"], config["nhead"]
        d_model, kernel_size = config["d_model"], config["kernel_size"]
        ctc_weight = config["ctc_weight"]
        ctc_upsampling = config["ctc_upsampling"]
        if not 0.0 < ctc_weight <= 1.0:
            raise ModelOptionError(
                f"ctc_weight is {ctc_weight}; give more than 0, and at most "
                "1 (1 builds no decoder)"
            )
        if ctc_upsampling < 1:
            raise ModelOptionError(
                f"ctc_upsampling is {ctc_upsampling}; give 1 or more"
            )
        if vocab_size <= SPECIAL_TOKENS:
            raise ModelOptionError(
                f"vocab_size is {vocab_size}; blank, BOS, EOS and unknown "
                f"alone are {SPECIAL_TOKENS}"
            )
        if ctc_weight < 1.0 and config["num_decoder_layers"] < 1:
            raise ModelOptionError(
                f"ctc_weight {ctc_weight} needs a decoder; give "
                "num_decoder_layers of at least 1, or ctc_weight 1.0"
            )
        if d_model % nhead:
            raise ModelOptionError(
                f"nhead ({nhead}) must divide d_model ({d_model})"
            )
        if kernel_size % 2 == 0:
            raise ModelOptionError(
                f"kernel_size is {kernel_size}; it must be odd"
            )

    @torch.no_grad()
    def features(
        self, wavs: Tensor, n_samples: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute log-mel filterbanks, not yet normalized.

        Arguments
        ---------
        wavs : Tensor
            Samples in [-1, 1], zero-padded, shape (batch, samples).
        n_samples : Tensor
            Valid samples of each, shape (batch,).

        Returns
        -------
        feats : Tensor
            In dB, shape (batch, frames, n_mels).
        n_frames : Tensor
            Valid frames of each, shape (batch,).
        """
        n_frames = n_samples // self.hop_samples + 1
        feats = self.fbank(wavs)
        loudest = feats.amax((1, 2), keepdim=True)
        return torch.maximum(feats, loudest - self.top_db), n_frames

    def set_feature_statistics(self, mean: Tensor, std: Tensor) -> None:
        """Fix the normalization of the features.

        Arguments
        ---------
        mean, std : Tensor
            Per mel filter over the training data, shape (n_mels,).
        """
        self.feature_mean.copy_(mean)
        self.feature_std.copy_(std)

    def normalize(self, feats: Tensor) -> Tensor:
        """Bring features to zero mean and unit variance over the data.

        Arguments
        ---------
        feats : Tensor
            From :meth:`features`, shape (batch, frames, n_mels).

        Returns
        -------
        Tensor
            Shape of ``feats``.
        """
        return (feats - self.feature_mean) / self.feature_std

    def encoded_length(self, n_frames: Any) -> Any:
        """Count the encoder frames of so many feature frames.

        Arguments
        ---------
        n_frames : int or Tensor
            Feature frames.

        Returns
        -------
        int or Tensor
            Encoder frames.
        """
        return -(-n_frames // self.subsampling)

    def ctc_length(self, n_frames: Any) -> Any:
        """Count the CTC frames of so many feature frames.

        Arguments
        ---------
        n_frames : int or Tensor
            Feature frames.

        Returns
        -------
        int or Tensor
            CTC frames, ``ctc_upsampling`` for each encoder frame.
        """
        return self.encoded_length(n_frames) * self.ctc_upsampling

    def encode(
        self,
        feats: Tensor,
        n_frames: Tensor,
        chunks: DynChunkTrainConfig | None = None,
        augment: Augmentation | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encode features.

        Arguments
        ---------
        feats : Tensor
            From :meth:`features`, shape (batch, frames, n_mels).
        n_frames : Tensor
            Valid frames of each, >= 1, shape (batch,).
        chunks : DynChunkTrainConfig, optional
            Chunks in encoder frames; None for full context.
        augment : callable, optional
            Applied to the normalized features and their lengths.

        Returns
        -------
        encoded : Tensor
            Shape (batch, time, d_model).
        lengths : Tensor
            Valid frames of each, shape (batch,).
        """
        feats = self.normalize(feats)
        if augment is not None:
            feats = augment(feats, n_frames)
        lengths = self.encoded_length(n_frames)
        subsampled = self.frontend(feats, n_frames)
        padding = padding_mask(lengths, subsampled.shape[1])
        encoded = self.transformer.encode_masked(subsampled, padding, chunks)
        return encoded, lengths

    def ctc_log_probs(self, encoded: Tensor) -> Tensor:
        """Score every token at every frame.

        Arguments
        ---------
        encoded : Tensor
            Shape (batch, time, d_model).

        Returns
        -------
        Tensor
            Log-probabilities, shape (batch, time * ctc_upsampling,
            vocab_size).
        """
        return self.ctc_head(encoded).float().log_softmax(-1)

    def decoder_log_probs(
        self, tokens: Tensor, encoded: Tensor, lengths: Tensor
    ) -> Tensor:
        """Score every next token after the true ones before it.

        Arguments
        ---------
        tokens : Tensor
            Ids that begin with BOS, shape (batch, tokens).
        encoded : Tensor
            Shape (batch, time, d_model).
        lengths : Tensor
            Its valid frames, shape (batch,).

        Returns
        -------
        Tensor
            Log-probabilities, shape (batch, tokens, vocab_size).

        Raises
        ------
        ModelOptionError
            If the model has no decoder (ctc_weight 1.0).
        """
        logits = self._decoder_logits(tokens, encoded, lengths)
        return logits.float().log_softmax(-1)

    def _decoder_logits(
        self, tokens: Tensor, encoded: Tensor, lengths: Tensor
    ) -> Tensor:
        if self.decoder_head is None:
            raise ModelOptionError(
                "this model has no decoder (ctc_weight 1.0); decode with CTC"
            )
        decoded = self.transformer.decode_teacher_forced(
            tokens, encoded, padding_mask(lengths, encoded.shape[1])
        )
        logits: Tensor = self.decoder_head(decoded)
        return logits

    def forward(
        self,
        feats: Tensor,
        n_frames: Tensor,
        tokens: Tensor | None = None,
        chunks: DynChunkTrainConfig | None = None,
        augment: Augmentation | None = None,
    ) -> ASROutput:
        """Do all of the above in one call, as training does.

        Arguments
        ---------
        feats, n_frames, chunks, augment
            As for :meth:`encode`.
        tokens : Tensor, optional
            Ids that begin with BOS, shape (batch, tokens).

        Returns
        -------
        ASROutput
            What both heads give, and lengths.
        """
        encoded, lengths = self.encode(feats, n_frames, chunks, augment)
        decoded = None
        if tokens is not None and self.has_decoder:
            decoded = self._decoder_logits(tokens, encoded, lengths)
        return ASROutput(
            self.ctc_head(encoded), lengths * self.ctc_upsampling, decoded
        )


class CTCHead(Linear):
    """The output layer of CTC, one or several frames per encoder frame.

    Arguments
    ---------
    d_model : int
        Channels of the encoder.
    vocab_size : int
        Tokens, the blank included.
    upsampling : int
        Output frames per encoder frame.

    Example
    -------
    >>> CTCHead(64, 30, upsampling=2)(torch.rand(1, 5, 64)).shape
    torch.Size([1, 10, 30])
    """

    def __init__(
        self, d_model: int, vocab_size: int, upsampling: int = 1
    ) -> None:
        super().__init__(d_model, vocab_size * upsampling)
        self.upsampling = upsampling

    def forward(self, encoded: Tensor) -> Tensor:
        """Give logits, shape (batch, time * upsampling, vocab_size).

        Arguments
        ---------
        encoded : Tensor
            Shape (batch, time, d_model).
        """
        logits = super().forward(encoded)
        return logits.unflatten(-1, (self.upsampling, -1)).flatten(1, 2)


def padding_mask(lengths: Tensor, time: int) -> Tensor:
    """Mark the frames beyond each utterance's end.

    Arguments
    ---------
    lengths : Tensor
        Valid frames, shape (batch,).
    time : int
        Frames in the batch.

    Returns
    -------
    Tensor
        bool, True = padding, shape (batch, time).

    Example
    -------
    >>> padding_mask(torch.tensor([2, 3]), 3)
    tensor([[False, False,  True],
            [False, False, False]])
    """
    return torch.arange(time, device=lengths.device) >= lengths[:, None]


def _check_sizes(config: dict[str, Any]) -> None:
    for name in _SIZES:
        size = config[name]
        if not isinstance(size, int) or size < 1:
            raise ModelOptionError(
                f"{name} is {size}; give a whole number above 0"
            )
    dropout = config["dropout"]
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ModelOptionError(
            f"dropout is {dropout}; give a number from 0 up to 1"
        )
    top_db = config["top_db"]
    if top_db is not None and not 0 < top_db < math.inf:
        raise ModelOptionError(
            f"top_db is {top_db}; give a number above 0, or null for no floor"
        )
    samples = config["sample_rate"] * config["win_length"] / 1000
    if config["n_fft"] < samples:
        raise ModelOptionError(
            f"n_fft is {config['n_fft']}; a window of win_length "
            f"{config['win_length']} ms needs at least {samples:g}"
        )
