"""SpeechBrain's TransformerASR around the swapped Conformer encoder."""

from __future__ import annotations

from typing import Any

from speechbrain.dataio.dataio import length_to_mask
from speechbrain.lobes.models.transformer.Transformer import get_lookahead_mask
from speechbrain.lobes.models.transformer.TransformerASR import (
    TransformerASR,
    TransformerASRStreamingContext,
)
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig
from torch import Tensor, nn

from mala_asr.models.conformer import MalaConformerEncoder


class MalaTransformerASR(TransformerASR):
    """TransformerASR whose encoder has the attention of your choice.

    Built as SpeechBrain's rotary variant, which asks for no positional
    tensor in the encoder and has a positional encoding in the decoder; then
    the encoder is replaced. All weights are drawn as SpeechBrain draws
    them, after the swap, so that variants differ in nothing else.

    Arguments
    ---------
    tgt_vocab : int
        Size of the vocabulary.
    input_size : int
        Channels that the front-end gives.
    attention : str
        ``mala``, ``linear``, ``inline``, ``softmax_rope``,
        ``softmax_relpos`` or ``hypermixing``.
    attention_options : dict, optional
        Of that attention, see `build_attention`.
    d_model, nhead, num_encoder_layers, num_decoder_layers, d_ffn,
    kernel_size, dropout
        As in SpeechBrain. The decoder has GELU, as its recipes do.

    Example
    -------
    >>> import torch
    >>> net = MalaTransformerASR(
    ...     30, 640, d_model=64, nhead=4, num_encoder_layers=2,
    ...     num_decoder_layers=1, d_ffn=128,
    ... )
    >>> tokens = torch.randint(4, 30, (2, 7))
    >>> encoded, decoded = net(torch.rand(2, 50, 640), tokens)
    >>> encoded.shape, decoded.shape
    (torch.Size([2, 50, 64]), torch.Size([2, 7, 64]))
    """

    def __init__(
        self,
        tgt_vocab: int,
        input_size: int,
        attention: str = "mala",
        attention_options: dict[str, Any] | None = None,
        d_model: int = 144,
        nhead: int = 4,
        num_encoder_layers: int = 12,
        num_decoder_layers: int = 4,
        d_ffn: int = 1024,
        kernel_size: int = 31,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(
            tgt_vocab=tgt_vocab,
            input_size=input_size,
            d_model=d_model,
            nhead=nhead,
            # At least one layer, or the parent builds no encoder at all.
            num_encoder_layers=1,
            num_decoder_layers=num_decoder_layers,
            d_ffn=d_ffn,
            dropout=dropout,
            activation=nn.GELU,
            normalize_before=True,
            kernel_size=kernel_size,
            encoder_module="conformer",
            positional_encoding=None,
            attention_type="RoPEMHA",
            causal=False,
        )
        self.encoder = MalaConformerEncoder(
            num_encoder_layers,
            d_model,
            d_ffn,
            nhead,
            kernel_size,
            dropout,
            attention,
            attention_options,
        )
        self._init_params()

    def encode(
        self,
        src: Tensor,
        wav_len: Tensor | None = None,
        pad_idx: int = 0,
        dynchunktrain_config: DynChunkTrainConfig | None = None,
    ) -> Tensor:
        """Encode, without the parent's (time, time) mask for chunks.

        Arguments
        ---------
        src : Tensor
            Front-end output, shape (batch, time, input_size).
        wav_len : Tensor, optional
            Relative lengths as SpeechBrain gives them, shape (batch,).
        pad_idx : int
            Part of SpeechBrain's signature; sources have no pad index.
        dynchunktrain_config : DynChunkTrainConfig, optional
            Chunks; None for full context.

        Returns
        -------
        Tensor
            Shape (batch, time, d_model).
        """
        padding = None
        if wav_len is not None:
            frames = (wav_len * src.shape[1]).round()
            padding = ~length_to_mask(frames, max_len=src.shape[1]).bool()
        return self.encode_masked(src, padding, dynchunktrain_config)

    def encode_masked(
        self,
        src: Tensor,
        padding: Tensor | None = None,
        chunks: DynChunkTrainConfig | None = None,
    ) -> Tensor:
        """Encode with an exact padding mask.

        Arguments
        ---------
        src : Tensor
            Front-end output, shape (batch, time, input_size).
        padding : Tensor, optional
            bool, True = padding, shape (batch, time).
        chunks : DynChunkTrainConfig, optional
            Chunks; None for full context.

        Returns
        -------
        Tensor
            Shape (batch, time, d_model).
        """
        encoded, _ = self.encoder(
            self.custom_src_module(src.flatten(2)),
            src_key_padding_mask=padding,
            dynchunktrain_config=chunks,
        )
        return encoded

    def encode_streaming(
        self, src: Tensor, context: TransformerASRStreamingContext
    ) -> Tensor:
        """Encode the next chunk of a stream.

        Arguments
        ---------
        src : Tensor
            Front-end output of the chunk, (batch, time, input_size).
        context : TransformerASRStreamingContext
            From ``make_streaming_context``; changed in place.

        Returns
        -------
        Tensor
            Shape (batch, time, d_model).
        """
        encoded, _ = self.encoder.forward_streaming(
            src=self.custom_src_module(src.flatten(2)),
            context=context.encoder_context,
        )
        return encoded

    def decode_teacher_forced(
        self, tokens: Tensor, encoded: Tensor, padding: Tensor | None = None
    ) -> Tensor:
        """Predict every next token from the true ones before it.

        Arguments
        ---------
        tokens : Tensor
            Token ids that begin with BOS, shape (batch, tokens); what
            follows a target's end has no influence on what precedes it.
        encoded : Tensor
            Encoder output, shape (batch, time, d_model).
        padding : Tensor, optional
            bool, True = padding of ``encoded``, shape (batch, time).

        Returns
        -------
        Tensor
            Shape (batch, tokens, d_model).
        """
        embedded = self.custom_tgt_module(tokens)
        embedded = embedded + self.positional_encoding_decoder(embedded)
        decoded, _, _ = self.decoder(
            tgt=embedded,
            memory=encoded,
            tgt_mask=get_lookahead_mask(tokens),
            memory_key_padding_mask=padding,
        )
        return decoded
