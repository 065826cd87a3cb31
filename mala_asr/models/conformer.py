"""SpeechBrain's Conformer encoder with its attention swapped.

What differs from the parent: the attention layer is built by name; chunks
reach it as two numbers, not as a (time, time) mask; the convolution never
sees padding; streaming keeps what each module needs instead of replaying
the layer's past; frames stay the last-but-one axis throughout, which spares
the transposes around the convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from speechbrain.lobes.models.transformer.Conformer import (
    ConformerEncoder,
    ConformerEncoderLayer,
    ConformerEncoderStreamingContext,
    ConvolutionModule,
)
from speechbrain.nnet.attention import PositionalwiseFeedForward
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from torch import Tensor, nn
from torch.nn import functional

from mala_asr.attention.depthwise import (
    context_frames,
    convolve,
    convolve_frames,
    convolve_streaming,
)
from mala_asr.attention.linear import linear
from mala_asr.models.attention import build_attention
from mala_asr.models.replace import use_fast_layers


class PaddingExactConvolution(ConvolutionModule):
    """The Conformer's convolution module, blind to padding.

    SpeechBrain's masks after its depthwise convolution, so that what stands
    in the padding leaks into the last frames; this one masks before.
    Parameters are the parent's.

    Arguments
    ---------
    input_size : int
        Channels.
    kernel_size : int
        Width of the depthwise convolution in frames; odd.
    dropout : float
        Dropout at the end.

    Example
    -------
    >>> import torch
    >>> module = PaddingExactConvolution(64, kernel_size=5)
    >>> module(torch.rand(2, 50, 64)).shape
    torch.Size([2, 50, 64])
    """

    def __init__(
        self, input_size: int, kernel_size: int = 31, dropout: float = 0.0
    ) -> None:
        super().__init__(
            input_size, kernel_size, activation=nn.SiLU, dropout=dropout
        )
        context_frames(self.conv)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        dynchunktrain_config: DynChunkTrainConfig | None = None,
    ) -> Tensor:
        """Convolve over time.

        Arguments
        ---------
        x : Tensor
            Shape (batch, time, channels).
        mask : Tensor, optional
            bool, True = padding, shape (batch, time, 1).
        dynchunktrain_config : DynChunkTrainConfig, optional
            Chunks beyond whose end no frame may see.

        Returns
        -------
        Tensor
            Shape of ``x``; undefined where the mask is True.
        """
        chunk_size = None
        if dynchunktrain_config is not None:
            chunk_size = dynchunktrain_config.chunk_size
        out = convolve_frames(self._gated(x), self.conv, mask, chunk_size)
        return self.after_conv(out)

    def forward_within(self, x: Tensor, left: int, right: int) -> Tensor:
        """Convolve a stretch of frames, given those around it.

        Arguments
        ---------
        x : Tensor
            The stretch, with ``left`` and ``right`` frames around it, shape
            (batch, left + time + right, channels).
        left, right : int
            How many frames there are around it: ``context_frames``, or fewer
            at the ends of the recording.

        Returns
        -------
        Tensor
            Shape (batch, time, channels).
        """
        reach = self.context_frames
        out = convolve(self._gated(x), self.conv, reach - left, reach - right)
        return self.after_conv(out)

    @property
    def context_frames(self) -> int:
        """Frames that the convolution sees on either side."""
        return context_frames(self.conv)

    def forward_streaming(
        self, x: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Convolve the next chunk.

        Arguments
        ---------
        x : Tensor
            Shape (batch, time, channels).
        past : Tensor, optional
            What the last call returned; None at the start.

        Returns
        -------
        tuple of Tensor
            The output, shape of ``x``, and what to keep for the next call.
        """
        out, past = convolve_streaming(self._gated(x), self.conv, past)
        return self.after_conv(out), past

    def _gated(self, x: Tensor) -> Tensor:
        pointwise = self.bottleneck[0]
        hidden = linear(
            self.layer_norm(x), pointwise.weight.squeeze(-1), pointwise.bias
        )
        return functional.glu(hidden, dim=-1)


class FeedForward(nn.Module):
    """SpeechBrain's feed-forward network, its frames left where they are.

    SpeechBrain's puts time first for it and back again: the matrix products
    then copy what they read, and add their bias in a pass of its own.

    Arguments
    ---------
    network : PositionalwiseFeedForward
        Whose layers are taken, initial weights included, so that a seed
        begins with the same model as ever.

    Example
    -------
    >>> import torch
    >>> network = PositionalwiseFeedForward(128, input_size=64)
    >>> FeedForward(network)(torch.rand(2, 50, 64)).shape
    torch.Size([2, 50, 64])
    """

    def __init__(self, network: PositionalwiseFeedForward) -> None:
        super().__init__()
        self.ffn = network.ffn

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to every frame.

        Arguments
        ---------
        x : Tensor
            Shape (..., channels).

        Returns
        -------
        Tensor
            Shape of ``x``.
        """
        out: Tensor = self.ffn(x)
        return out


@dataclass
class EncoderLayerStream:
    """What one encoder layer remembers of a stream.

    Arguments
    ---------
    attention : object
        From the attention layer's ``start_stream``.
    convolution_past : Tensor, optional
        Frames kept by the convolution module.
    """

    attention: Any
    convolution_past: Tensor | None = None


class MalaConformerEncoderLayer(ConformerEncoderLayer):
    """A Conformer encoder layer around any attention of this project.

    Arguments
    ---------
    d_model, d_ffn, nhead, kernel_size, dropout
        As in SpeechBrain's layer.
    attention : str
        Name of the attention, see `build_attention`.
    attention_options : dict, optional
        Its options.

    Example
    -------
    >>> import torch
    >>> layer = MalaConformerEncoderLayer(64, 128, 4)
    >>> layer(torch.rand(2, 50, 64))[0].shape
    torch.Size([2, 50, 64])
    """

    mha_layer: Any  # one of several classes with the same calls

    def __init__(
        self,
        d_model: int,
        d_ffn: int,
        nhead: int,
        kernel_size: int = 31,
        dropout: float = 0.0,
        attention: str = "mala",
        attention_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            d_model=d_model,
            d_ffn=d_ffn,
            nhead=nhead,
            kernel_size=kernel_size,
            activation=nn.SiLU,
            dropout=dropout,
            attention_type="RoPEMHA",
        )
        for module in (self.ffn_module1, self.ffn_module2):
            module[1] = FeedForward(module[1])
        self.mha_layer = build_attention(
            attention, d_model, nhead, d_ffn, dropout, attention_options
        )
        self.convolution_module = PaddingExactConvolution(
            d_model, kernel_size, dropout
        )
        use_fast_layers(self)

    def forward(
        self,
        x: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        pos_embs: Tensor | None = None,
        dynchunktrain_config: DynChunkTrainConfig | None = None,
    ) -> tuple[Tensor, None]:
        """Apply the layer; arguments as in SpeechBrain's.

        Arguments
        ---------
        x : Tensor
            Shape (batch, time, d_model).
        src_mask : Tensor, optional
            Frames a frame may not see, (time, time); prefer
            ``dynchunktrain_config``.
        src_key_padding_mask : Tensor, optional
            bool, True = padding, shape (batch, time).
        pos_embs : Tensor, optional
            Given on to the attention.
        dynchunktrain_config : DynChunkTrainConfig, optional
            Chunks that bound both attention and convolution.

        Returns
        -------
        x : Tensor
            Shape (batch, time, d_model).
        None
            In place of attention scores.
        """
        chunks = {}
        if dynchunktrain_config is not None:
            chunks = {
                "chunk_size": dynchunktrain_config.chunk_size,
                "left_chunks": dynchunktrain_config.left_context_size,
            }
        x = torch.add(x, self.ffn_module1(x), alpha=0.5)
        normed = self.norm1(x)
        attended, _ = self.mha_layer(
            normed,
            normed,
            normed,
            attn_mask=src_mask,
            key_padding_mask=src_key_padding_mask,
            pos_embs=pos_embs,
            **chunks,
        )
        x = x + attended
        padding = None
        if src_key_padding_mask is not None:
            padding = src_key_padding_mask.unsqueeze(-1)
        x = x + self.convolution_module(x, padding, dynchunktrain_config)
        x = torch.add(x, self.ffn_module2(x), alpha=0.5)
        return self.norm2(x), None

    def forward_streaming(
        self,
        x: Tensor,
        context: EncoderLayerStream,
        pos_embs: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Apply the layer to the next chunk of a stream.

        Arguments
        ---------
        x : Tensor
            Shape (batch, time, d_model).
        context : EncoderLayerStream
            Changed in place.
        pos_embs : Tensor, optional
            Must be None: the layers know their positions.

        Returns
        -------
        x : Tensor
            Shape (batch, time, d_model).
        None
            In place of attention scores.
        """
        x = torch.add(x, self.ffn_module1(x), alpha=0.5)
        x = x + self.mha_layer.forward_streaming(
            self.norm1(x), context.attention
        )
        convolved, context.convolution_past = (
            self.convolution_module.forward_streaming(
                x, context.convolution_past
            )
        )
        x = x + convolved
        x = torch.add(x, self.ffn_module2(x), alpha=0.5)
        return self.norm2(x), None


class MalaConformerEncoder(ConformerEncoder):
    """A stack of `MalaConformerEncoderLayer`, as SpeechBrain's encoder.

    Arguments
    ---------
    num_layers : int
        Number of layers.
    d_model, d_ffn, nhead, kernel_size, dropout, attention,
    attention_options
        As in `MalaConformerEncoderLayer`.

    Example
    -------
    >>> import torch
    >>> encoder = MalaConformerEncoder(2, 64, 128, 4)
    >>> encoder(torch.rand(2, 50, 64))[0].shape
    torch.Size([2, 50, 64])
    """

    layers: Any  # a ModuleList of MalaConformerEncoderLayer

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        d_ffn: int,
        nhead: int,
        kernel_size: int = 31,
        dropout: float = 0.0,
        attention: str = "mala",
        attention_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            num_layers=0,
            d_model=d_model,
            d_ffn=d_ffn,
            nhead=nhead,
            attention_type="RoPEMHA",
        )
        self.layers = nn.ModuleList(
            MalaConformerEncoderLayer(
                d_model,
                d_ffn,
                nhead,
                kernel_size,
                dropout,
                attention,
                attention_options,
            )
            for _ in range(num_layers)
        )

    def make_streaming_context(
        self, dynchunktrain_config: DynChunkTrainConfig
    ) -> ConformerEncoderStreamingContext:
        """Begin a recording that arrives chunk by chunk.

        Arguments
        ---------
        dynchunktrain_config : DynChunkTrainConfig
            Size of a chunk and how many earlier ones are seen.

        Returns
        -------
        ConformerEncoderStreamingContext
            One `EncoderLayerStream` per layer.
        """
        left_chunks = dynchunktrain_config.left_context_size
        return ConformerEncoderStreamingContext(
            dynchunktrain_config=dynchunktrain_config,
            layers=[
                EncoderLayerStream(layer.mha_layer.start_stream(left_chunks))
                for layer in self.layers
            ],
        )
