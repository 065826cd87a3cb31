"""The attention layer, with SpeechBrain's call contract.

``layer(x, x, x, attn_mask=..., key_padding_mask=...) -> (out, None)``. The
projections have the shapes of SpeechBrain's RoPEMHA (no bias in, bias out),
so that a MALA and a softmax Conformer have equally many parameters. The
extras of the paper's public code, an output gate and LePE (a depthwise
convolution on v), are off unless asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mala_asr.attention.centred import (
    AttentionForm,
    Stream,
    attend_chunked,
    attend_full,
    attend_summary,
    in_float32,
    summarize,
)
from mala_asr.attention.depthwise import (
    context_frames,
    convolve,
    convolve_frames,
    convolve_streaming,
)
from mala_asr.attention.linear import Linear, linear
from mala_asr.attention.reference import attend as attend_explicitly
from mala_asr.attention.rotary import rotate
from mala_asr.attention.statistics import (
    FEATURE_MAPS,
    KeyStatistics,
    feature_map,
)

SHARPNESS = ("fixed", "learned")


@dataclass
class LayerStream:
    """What a layer remembers of a stream: attention, and LePE's past.

    Arguments
    ---------
    attention : Stream
        The statistics of the keys seen so far.
    lepe_past : Tensor, optional
        The last values, for the depthwise convolution.
    """

    attention: Stream
    lepe_past: Tensor | None = None


class LinearAttention(nn.Module):
    """Multi-head MALA, linear or InLine attention.

    Fan et al., "Rectifying Magnitude Neglect in Linear Attention" (ICCV
    2025), with padding, chunks and streaming made exact.

    Arguments
    ---------
    d_model : int
        Channels of input and output.
    nhead : int
        Number of heads; divides ``d_model``.
    kind : str
        ``mala``, ``linear`` or ``inline``.
    feature_map : str
        phi: ``elu1`` (ELU + 1), ``relu`` or ``exp``.
    sharpness : str
        ``fixed``: gain 1 + 1/z, as in the paper. ``learned``: a + 1/z with
        one a >= 0 per head (``mala`` only).
    sharpness_start : float
        Where a learned a starts: at 1 as the paper's MALA, close to 0 as
        plain linear attention.
    rotary : bool
        Rotary positions where phi(q) and phi(k) meet.
    gate : bool
        Multiply the heads by a linear projection of the input before the
        output projection.
    lepe_kernel : int
        Width in frames of a depthwise convolution on v that is added to
        the heads; odd, 0 for none.
    dropout : float
        Dropout on the output. Scores are never formed, so none can be
        dropped.

    Raises
    ------
    ValueError
        If an option is unknown, or combinations make no sense.

    Example
    -------
    >>> layer = LinearAttention(d_model=64, nhead=4)
    >>> x = torch.rand(2, 50, 64)
    >>> out, _ = layer(x, x, x)
    >>> out.shape
    torch.Size([2, 50, 64])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        kind: str = "mala",
        feature_map: str = "elu1",
        sharpness: str = "fixed",
        rotary: bool = False,
        gate: bool = False,
        lepe_kernel: int = 0,
        dropout: float = 0.0,
        sharpness_start: float = 1.0,
    ) -> None:
        super().__init__()
        if d_model % nhead:
            raise ValueError(f"nhead ({nhead}) must divide d_model ({d_model})")
        if feature_map not in FEATURE_MAPS:
            raise ValueError(
                f"unknown feature_map {feature_map!r}; choose one of "
                f"{', '.join(FEATURE_MAPS)}"
            )
        if sharpness not in SHARPNESS:
            raise ValueError(
                f"unknown sharpness {sharpness!r}; choose one of "
                f"{', '.join(SHARPNESS)}"
            )
        if sharpness == "learned" and kind != "mala":
            raise ValueError(
                f"sharpness 'learned' belongs to mala; {kind} has none"
            )
        number = isinstance(sharpness_start, int | float)
        if not number or not 0.0 < sharpness_start < math.inf:
            raise ValueError(
                f"sharpness_start is {sharpness_start}; give a number above 0"
            )
        if sharpness_start != 1.0 and sharpness != "learned":
            raise ValueError("sharpness_start is of a learned sharpness")
        if rotary and d_model // nhead % 2:
            raise ValueError(
                f"rotary positions need an even head size; it is "
                f"{d_model // nhead}"
            )
        self.form = AttentionForm(kind, feature_map, rotary)
        self.nhead = nhead
        self.in_proj = Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = Linear(d_model, d_model)
        self.gate = Linear(d_model, d_model) if gate else None
        self.lepe: nn.Conv1d | None = None
        if lepe_kernel:
            self.lepe = nn.Conv1d(d_model, d_model, lepe_kernel, groups=d_model)
            context_frames(self.lepe)
        self.raw_sharpness: nn.Parameter | None = None
        if sharpness == "learned":
            # softplus of this is where the training starts.
            start = sharpness_start + math.log(-math.expm1(-sharpness_start))
            self.raw_sharpness = nn.Parameter(torch.full((nhead,), start))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights: each projection Xavier-uniform on its own."""
        for weight in self.in_proj.weight.data.chunk(3):
            nn.init.xavier_uniform_(weight)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        if self.gate is not None:
            # An open gate: the layer starts as if it had none.
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.ones_(self.gate.bias)

    @property
    def sharpness(self) -> Tensor | None:
        """The learned factor per head, (nhead, 1, 1); None where fixed."""
        if self.raw_sharpness is None:
            return None
        return functional.softplus(self.raw_sharpness)[:, None, None]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        pos_embs: Tensor | None = None,
        chunk_size: int | None = None,
        left_chunks: int | None = None,
    ) -> tuple[Tensor, None]:
        """Attend from every query to the visible keys.

        Arguments
        ---------
        query : Tensor
            Shape (batch, time_q, d_model).
        key, value : Tensor
            Shape (batch, time_k, d_model).
        attn_mask : Tensor, optional
            Which keys a query may *not* see: bool (True = forbidden) or
            float (0 / -inf), shape (time_q, time_k) or (batch, time_q,
            time_k). Costs memory in time_q x time_k; for chunks give
            ``chunk_size`` instead.
        key_padding_mask : Tensor, optional
            bool, True = padding, shape (batch, time_k). What stands there has
            no influence as long as it is finite: hiding is a product, which
            a NaN or an infinity survives.
        pos_embs : Tensor, optional
            Must be None: positions are the layer's own (``rotary``).
        chunk_size : int, optional
            Frames in a chunk: a query sees its own chunk and earlier ones.
        left_chunks : int, optional
            How many earlier chunks; None for all.

        Returns
        -------
        out : Tensor
            Shape (batch, time_q, d_model).
        None
            In place of the scores, which are never formed.

        Raises
        ------
        ValueError
            If a mask has a bias other than 0 and -inf, or positional
            embeddings are given.
        """
        if pos_embs is not None:
            raise ValueError(
                "linear attention takes no pos_embs; use rotary: true for "
                "positions"
            )
        if key is not query or value is not query:
            if self.lepe is not None and value.shape[1] != query.shape[1]:
                raise ValueError(
                    "lepe_kernel needs as many values as queries; use "
                    "lepe_kernel: 0 for cross-attention"
                )
        if attn_mask is not None and chunk_size is not None:
            raise ValueError("give attn_mask or chunk_size, not both")
        if attn_mask is not None and self.lepe is not None:
            raise ValueError(
                "lepe_kernel cannot follow an arbitrary attn_mask; give "
                "chunk_size instead"
            )
        heads = self.project(query, key, value)
        shown = None
        if key_padding_mask is not None:
            shown = ~key_padding_mask.bool().unsqueeze(1)
        if attn_mask is not None:
            attended = self._attend_masked(heads, attn_mask, shown)
        elif chunk_size is not None:
            attended = attend_chunked(
                self.form,
                *heads,
                chunk_size,
                left_chunks,
                shown,
                self.sharpness,
            )
        else:
            attended = attend_full(self.form, *heads, shown, self.sharpness)
        local = None
        if self.lepe is not None:
            padding = None
            if key_padding_mask is not None:
                padding = key_padding_mask.unsqueeze(-1)
            values = _join_heads(heads[2])
            local = convolve_frames(values, self.lepe, padding, chunk_size)
        return self._output(query, attended, local), None

    def start_stream(self, left_chunks: int | None = None) -> LayerStream:
        """Begin a recording that arrives chunk by chunk.

        Arguments
        ---------
        left_chunks : int, optional
            How many earlier chunks are seen; None for all of them, in a
            memory that never grows.

        Returns
        -------
        LayerStream
            To be passed to :meth:`forward_streaming`, which changes it.
        """
        return LayerStream(Stream(self.form, left_chunks))

    def forward_streaming(self, x: Tensor, stream: LayerStream) -> Tensor:
        """Attend within the next chunk and to its past.

        Arguments
        ---------
        x : Tensor
            The chunk, shape (batch, time, d_model).
        stream : LayerStream
            From :meth:`start_stream`; changed in place.

        Returns
        -------
        Tensor
            Shape of ``x``.
        """
        heads = self.project(x, x, x)
        attended = stream.attention.attend(*heads, sharpness=self.sharpness)
        local = None
        if self.lepe is not None:
            local, stream.lepe_past = convolve_streaming(
                _join_heads(heads[2]), self.lepe, stream.lepe_past
            )
        return self._output(x, attended, local)

    def summarize(self, x: Tensor, start: int = 0) -> KeyStatistics:
        """Give the statistics of the keys of a stretch of frames.

        Arguments
        ---------
        x : Tensor
            Shape (batch, time, d_model).
        start : int
            Position of its first frame.

        Returns
        -------
        KeyStatistics
            Those of all stretches merged are what every query needs.
        """
        keys, values = (self._project_one(x, part) for part in (1, 2))
        with in_float32(x):
            return summarize(self.form, keys, values, start=start)

    def forward_summary(
        self,
        x: Tensor,
        seen: KeyStatistics,
        start: int = 0,
        left: int = 0,
        right: int = 0,
    ) -> Tensor:
        """Attend from a stretch of frames to keys known by their statistics.

        Arguments
        ---------
        x : Tensor
            The stretch, with ``left`` and ``right`` frames around it, shape
            (batch, left + time + right, d_model): LePE's convolution sees
            ``context_frames`` of them, or zeros where there are fewer.
        seen : KeyStatistics
            From :meth:`summarize`.
        start : int
            Position of the stretch's first frame.
        left, right : int
            How many frames there are around it.

        Returns
        -------
        Tensor
            Shape (batch, time, d_model).
        """
        inner = x[:, left : x.shape[1] - right]
        attended = attend_summary(
            self.form, self._project_one(inner, 0), seen, start, self.sharpness
        )
        local = None
        if self.lepe is not None:
            values = _join_heads(self._project_one(x, 2))
            reach = self.context_frames
            local = convolve(values, self.lepe, reach - left, reach - right)
        return self._output(inner, attended, local)

    @property
    def context_frames(self) -> int:
        """Frames that LePE sees on either side; 0 without it."""
        return 0 if self.lepe is None else context_frames(self.lepe)

    def _project_one(self, x: Tensor, part: int) -> Tensor:
        weight = self.in_proj.weight.chunk(3)[part]
        return _split_heads(linear(x, weight), self.nhead)

    def project(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give q, k and v, before the feature map.

        Arguments
        ---------
        query, key, value : Tensor
            As for :meth:`forward`.

        Returns
        -------
        tuple of Tensor
            Each of shape (batch, heads, time, head size).
        """
        if key is query and value is query:
            projected = self.in_proj(query).chunk(3, dim=-1)
            q, k, v = (_split_heads(x, self.nhead) for x in projected)
        else:
            q, k, v = (
                self._project_one(x, part)
                for part, x in enumerate((query, key, value))
            )
        return q, k, v

    def _attend_masked(
        self,
        heads: tuple[Tensor, Tensor, Tensor],
        attn_mask: Tensor,
        shown: Tensor | None,
    ) -> Tensor:
        """Follow an arbitrary mask, by explicit scores."""
        visible = _read_mask(attn_mask)
        if visible.dim() == 3:
            visible = visible.unsqueeze(1)
        if shown is not None:
            visible = visible & shown.unsqueeze(-2)
        q, k = (feature_map(x.float(), self.form.features) for x in heads[:2])
        sharpness = self.sharpness
        out = attend_explicitly(
            q,
            k,
            heads[2].float(),
            self.form.kind,
            visible,
            1.0 if sharpness is None else sharpness,
            (rotate(q), rotate(k)) if self.form.rotary else None,
        )
        return out.to(heads[0].dtype)

    def _output(
        self, x: Tensor, attended: Tensor, local: Tensor | None
    ) -> Tensor:
        out = _join_heads(attended)
        if local is not None:
            out = out + local
        if self.gate is not None:
            out = out * self.gate(x)
        return self.dropout(self.out_proj(out))


def _split_heads(x: Tensor, nhead: int) -> Tensor:
    return x.unflatten(-1, (nhead, -1)).transpose(1, 2)


def _join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(-2)


def _read_mask(attn_mask: Tensor) -> Tensor:
    """Turn a mask of what is forbidden into one of what is visible."""
    if attn_mask.dim() not in (2, 3):
        raise ValueError(
            f"attn_mask has {attn_mask.dim()} axes; give (time, time) or "
            "(batch, time, time)"
        )
    if attn_mask.dtype == torch.bool:
        return ~attn_mask
    if not attn_mask.is_floating_point():
        raise ValueError(
            f"attn_mask is {attn_mask.dtype}; give bool or float (0 / -inf)"
        )
    forbidden = torch.isneginf(attn_mask)
    if not bool(((attn_mask == 0) | forbidden).all()):
        raise ValueError(
            "attn_mask holds values other than 0 and -inf; linear attention "
            "cannot add a bias to scores that it never forms"
        )
    return ~forbidden
