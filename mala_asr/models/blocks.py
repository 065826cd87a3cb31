"""A long recording encoded in one pass, a block of frames at a time.

Everything in the encoder but attention looks at a few neighboring frames,
and linear attention asks of the other frames their statistics alone: so each
layer goes over the recording twice, once to gather the statistics and once
to use them, and never holds more than one block of what is wide (the
spectra, the front-end's channels, the feed-forward layers' hidden units).
The result is that of the whole recording at once, up to rounding.

An attention that compares frames with each other (softmax) gets the whole
recording in each layer, and takes the memory that this takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mala_asr.attention import LinearAttention
from mala_asr.models.asr import MalaASR
from mala_asr.models.streaming import FeatureStream, FrontEndStream

# Encoder frames of a block: enough to keep matrix products fast, few enough
# that what a block needs stays in a processor's caches.
BLOCK_FRAMES = 512


class Stretch(NamedTuple):
    """A block of a recording.

    Arguments
    ---------
    start : int
        Its first frame.
    frames : Tensor
        Its frames, a view: shape (batch, time, channels).
    window : Tensor
        A copy of them with the frames around, as they were before the
        blocks were changed: (batch, left + time + right, channels).
    left, right : int
        How many frames there are around.
    """

    start: int
    frames: Tensor
    window: Tensor
    left: int
    right: int


def stretches(x: Tensor, size: int, reach: int) -> Iterator[Stretch]:
    """Go over a recording in blocks, each of which may be changed in place.

    Arguments
    ---------
    x : Tensor
        Shape (batch, time, channels).
    size : int
        Frames of a block.
    reach : int
        Frames wanted on either side; there are fewer at the ends.

    Yields
    ------
    Stretch
        The blocks in order.

    Example
    -------
    >>> x = torch.arange(5.0).view(1, 5, 1)
    >>> for part in stretches(x, 2, 1):
    ...     print(part.window.flatten().tolist(), part.left, part.right)
    ...     _ = part.frames.zero_()
    [0.0, 1.0, 2.0] 0 1
    [1.0, 2.0, 3.0, 4.0] 1 1
    [3.0, 4.0] 1 0
    """
    before = x[:, :0]
    for start in range(0, x.shape[1], size):
        frames = x[:, start : start + size]
        after = x[:, start + size : start + size + reach]
        window = torch.cat((before, frames, after), dim=1)
        left, right = before.shape[1], after.shape[1]
        seen = window[:, : window.shape[1] - right]
        before = seen[:, max(seen.shape[1] - reach, 0) :]
        yield Stretch(start, frames, window, left, right)


@torch.no_grad()
def encode_in_blocks(
    model: MalaASR, wave: Tensor, size: int = BLOCK_FRAMES
) -> Tensor:
    """Encode a recording with full context.

    Arguments
    ---------
    model : MalaASR
        In evaluation mode.
    wave : Tensor
        Samples on the model's device, at least one, shape (samples,).
    size : int
        Encoder frames of a block.

    Returns
    -------
    Tensor
        Encoder frames, shape (1, time, d_model).

    Example
    -------
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=2, ctc_weight=1.0, d_ffn=128
    ... ).eval()
    >>> wave = torch.randn(20_000)
    >>> feats, frames = model.features(wave[None], torch.tensor([20_000]))
    >>> whole, _ = model.encode(feats, frames)
    >>> torch.allclose(encode_in_blocks(model, wave, 7), whole, atol=1e-4)
    True
    """
    x = _subsampled(model, wave, size)
    encoder = model.transformer.encoder
    for layer in encoder.layers:
        _apply_layer(layer, x, size)
    for part in x.split(size, dim=1):
        part.copy_(encoder.norm(part))
    return x


def _subsampled(model: MalaASR, wave: Tensor, size: int) -> Tensor:
    """Give what goes into the encoder's first layer."""
    feats = _features(model, wave, size * model.subsampling)
    time = model.encoded_length(feats.shape[1])
    x = feats.new_empty(1, time, model.config["d_model"])
    front, end = FrontEndStream(model.frontend), 0
    blocks = feats.split(size * model.subsampling, dim=1)
    for number, block in enumerate(blocks, start=1):
        frames = front.push(model.normalize(block), number == len(blocks))
        if frames.shape[1]:
            start, end = end, end + frames.shape[1]
            x[:, start:end] = model.transformer.custom_src_module(frames)
    return x


def _features(model: MalaASR, wave: Tensor, size: int) -> Tensor:
    frames = len(wave) // model.hop_samples + 1
    feats = wave.new_empty(1, frames, model.config["n_mels"])
    stream, end = FeatureStream(model, floor=False), 0
    blocks = wave[None].split(size * model.hop_samples, dim=1)
    for number, block in enumerate(blocks, start=1):
        part = stream.push(block, number == len(blocks))
        start, end = end, end + part.shape[1]
        feats[:, start:end] = part
    return feats.clamp_(min=feats.max() - model.top_db)


def _apply_layer(layer: Any, x: Tensor, size: int) -> None:
    """Apply a `MalaConformerEncoderLayer` in place."""
    for frames in x.split(size, dim=1):
        frames.add_(layer.ffn_module1(frames), alpha=0.5)
    if isinstance(layer.mha_layer, LinearAttention):
        _attend(layer, layer.mha_layer, x, size)
    else:
        normed = layer.norm1(x)
        x.add_(layer.mha_layer(normed, normed, normed)[0])
    module = layer.convolution_module
    for part in stretches(x, size, module.context_frames):
        frames = part.frames
        frames.add_(module.forward_within(part.window, part.left, part.right))
        frames.add_(layer.ffn_module2(frames), alpha=0.5)
        frames.copy_(layer.norm2(frames))


def _attend(
    layer: Any, attention: LinearAttention, x: Tensor, size: int
) -> None:
    seen = None
    for number, frames in enumerate(x.split(size, dim=1)):
        own = attention.summarize(layer.norm1(frames), number * size)
        seen = own if seen is None else seen.merge(own)
    assert seen is not None
    for part in stretches(x, size, attention.context_frames):
        attended = attention.forward_summary(
            layer.norm1(part.window), seen, part.start, part.left, part.right
        )
        part.frames.add_(attended)
