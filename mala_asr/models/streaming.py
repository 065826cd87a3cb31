"""A recording that arrives bit by bit: the model's streaming form.

Samples go in as they come, through features and front-end; encoder frames
come out, one chunk at a time, as soon as the chunk is complete. They equal
those of the whole utterance encoded with the same chunks, and what is
remembered does not grow (with MALA, whatever the left context).

One thing a stream cannot know: how loud its recording will get. A model with
a floor ``top_db`` below the loudest moment gets one below the loudest moment
so far; a model without has the whole recording's features exactly.
"""

from __future__ import annotations

import torch
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from torch import Tensor

from mala_asr.attention.centred import check_chunks
from mala_asr.models.asr import MalaASR
from mala_asr.models.frontend import ConvFrontEnd4x, SeparableFrontEnd


class FeatureStream:
    """Compute a model's features piece by piece.

    Arguments
    ---------
    model : MalaASR
        Whose features.
    floor : bool
        Whether to apply the model's ``top_db``, below the loudest frame so
        far.

    Example
    -------
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=1, ctc_weight=1.0, top_db=None
    ... )
    >>> wave = torch.randn(1, 4000)
    >>> stream = FeatureStream(model)
    >>> parts = [stream.push(wave[:, :999]), stream.push(wave[:, 999:], True)]
    >>> whole, _ = model.features(wave, torch.tensor([4000]))
    >>> torch.allclose(torch.cat(parts, 1), whole, atol=1e-3)
    True
    """

    def __init__(self, model: MalaASR, floor: bool = True) -> None:
        self.model = model
        self.floor = floor
        self.hop = model.hop_samples
        # A frame reads so many samples on either side of its center, and
        # the samples before them touch no frame that is still to come.
        self.reach = model.config["n_fft"] // 2
        self.context = -(-self.reach // self.hop)
        self.pending: Tensor | None = None
        self.done = 0  # frames of `pending` that are out already
        self.loudest: Tensor | None = None

    @torch.no_grad()
    def push(self, samples: Tensor, final: bool = False) -> Tensor:
        """Take samples in and return the frames they complete.

        Arguments
        ---------
        samples : Tensor
            Shape (batch, samples).
        final : bool
            Whether the recording ends here.

        Returns
        -------
        Tensor
            As from `MalaASR.features`, shape (batch, frames, n_mels); maybe
            no frames.
        """
        if self.pending is not None:
            samples = torch.cat((self.pending, samples), dim=1)
        self.pending = samples
        available = samples.shape[1]
        if final and available:
            ready = available // self.hop + 1
        else:
            ready = max(available - self.reach + self.hop, 0) // self.hop
        if ready <= self.done:
            n_mels = self.model.config["n_mels"]
            return samples.new_zeros(samples.shape[0], 0, n_mels)
        feats = self.model.fbank(samples)[:, self.done : ready]
        start = max(ready - self.context, 0)
        # A copy: a view would keep all the samples alive.
        self.pending = samples[:, start * self.hop :].clone()
        self.done = ready - start
        return self._floored(feats) if self.floor else feats

    def _floored(self, feats: Tensor) -> Tensor:
        loudest = feats.amax(-1, keepdim=True).cummax(1).values
        if self.loudest is not None:
            loudest = torch.maximum(loudest, self.loudest)
        self.loudest = loudest[:, -1:]
        return torch.maximum(feats, loudest - self.model.top_db)


class FrontEndStream:
    """Feed a front-end piece by piece.

    A frame comes out once all that it depends on is there. The first frame
    of a piece's output would see an edge that is not one: each piece is
    preceded by one output frame's worth of input, whose output is dropped.

    Arguments
    ---------
    frontend : nn.Module
        From `build_frontend`.

    Example
    -------
    >>> from mala_asr.models.frontend import build_frontend
    >>> front = build_frontend("conv4", 80).eval()
    >>> feats = torch.rand(1, 101, 80)
    >>> stream = FrontEndStream(front)
    >>> parts = [stream.push(feats[:, :37]), stream.push(feats[:, 37:], True)]
    >>> torch.allclose(torch.cat(parts, 1), front(feats).flatten(2), atol=1e-5)
    True
    """

    def __init__(self, frontend: ConvFrontEnd4x | SeparableFrontEnd) -> None:
        self.frontend = frontend
        self.factor = frontend.subsampling
        self.pending: Tensor | None = None
        self.first = True

    def push(self, feats: Tensor, final: bool = False) -> Tensor:
        """Take features in and return the frames they complete.

        Arguments
        ---------
        feats : Tensor
            Normalized features, shape (batch, frames, n_mels).
        final : bool
            Whether the recording ends here.

        Returns
        -------
        Tensor
            Shape (batch, frames out, output_size); maybe no frames.
        """
        if self.pending is not None:
            feats = torch.cat((self.pending, feats), dim=1)
        drop = 0 if self.first else 1
        available = feats.shape[1]
        # Output i reads inputs up to factor * (i + 1) - 1.
        ready = available // self.factor
        if final:
            ready = -(-available // self.factor)
        self.pending = feats
        if ready <= drop:
            return feats.new_zeros(feats.shape[0], 0, self.frontend.output_size)
        out = self.frontend(feats)[:, drop:ready].flatten(2)
        self.pending = feats[:, (ready - 1) * self.factor :].clone()
        self.first = False
        return out


class EncoderStream:
    """Encode a recording chunk by chunk.

    Arguments
    ---------
    model : MalaASR
        In evaluation mode.
    chunks : DynChunkTrainConfig
        Frames of a chunk, after the front-end, and how many earlier chunks
        are seen (None for all).

    Example
    -------
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=2, ctc_weight=1.0, d_ffn=128
    ... ).eval()
    >>> feats = torch.randn(1, 200, 80)
    >>> stream = EncoderStream(model, DynChunkTrainConfig(8))
    >>> parts = [stream.push(feats[:, :90]), stream.push(feats[:, 90:], True)]
    >>> [part.shape[1] for part in parts]
    [16, 34]
    """

    def __init__(self, model: MalaASR, chunks: DynChunkTrainConfig) -> None:
        check_chunks(chunks.chunk_size, chunks.left_context_size)
        self.model = model
        self.chunk_size = chunks.chunk_size
        self.frontend = FrontEndStream(model.frontend)
        self.context = model.transformer.make_streaming_context(chunks)
        self.pending: Tensor | None = None

    @torch.no_grad()
    def push(self, feats: Tensor, final: bool = False) -> Tensor:
        """Take features in and return the encoder frames they complete.

        Arguments
        ---------
        feats : Tensor
            From `MalaASR.features`, shape (batch, frames, n_mels).
        final : bool
            Whether the recording ends here; its last chunk may be shorter.

        Returns
        -------
        Tensor
            Encoder frames, shape (batch, frames out, d_model): whole
            chunks, maybe none.
        """
        frames = self.frontend.push(self.model.normalize(feats), final)
        if self.pending is not None:
            frames = torch.cat((self.pending, frames), dim=1)
        whole = frames.shape[1] // self.chunk_size * self.chunk_size
        end = frames.shape[1] if final else whole
        encoded = [
            self.model.transformer.encode_streaming(
                frames[:, start : min(start + self.chunk_size, end)],
                self.context,
            )
            for start in range(0, end, self.chunk_size)
        ]
        self.pending = frames[:, end:].clone()
        if not encoded:
            return frames.new_zeros(
                frames.shape[0], 0, self.model.config["d_model"]
            )
        return torch.cat(encoded, dim=1)
