"""The operator: linear, InLine and magnitude-aware linear attention.

One line serves them all (see statistics.py for the means, c = d^-1/2):

    z_i = c phi(q_i) . mean phi(k)
    out_i = mean v + gain(z_i) c phi(q_i) mean(phi(k) (v - mean v)^T)

with gain 1/z for linear attention, 1 for InLine attention, 1 + 1/z for
MALA (Fan et al., eq. 8-10, beta = 1 + 1/z and gamma = z/N) and a + 1/z for
MALA with a learned sharpness a. The forms differ only in whose statistics
a query reads: of all keys (`attend_full`), of the chunks around it
(`attend_chunked`), of the past of a stream (`Stream`).

Everything here runs in float32 whatever autocast says: sums over thousands
of keys do not fit float16, and 1/z does not fit bfloat16.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from mala_asr.attention.reference import ATTENTION_KINDS
from mala_asr.attention.rotary import rotate
from mala_asr.attention.statistics import (
    KeyStatistics,
    feature_map,
    merge_windows,
)

# Below this, z counts as "no key answers this query" (relu features): the
# query then reads the mean value. Its square is still a normal float32.
SMALLEST_Z = 1e-18


@dataclass(frozen=True)
class AttentionForm:
    """Which attention to compute.

    Arguments
    ---------
    kind : str
        ``mala``, ``linear`` or ``inline``.
    features : str
        The feature map phi: ``elu1``, ``relu`` or ``exp``.
    rotary : bool
        Whether phi(q) and phi(k) carry rotary positions where they meet;
        z and the mean of phi(k) never do, so that rows still sum to 1.

    Raises
    ------
    ValueError
        If the kind is unknown.

    Example
    -------
    >>> AttentionForm().kind
    'mala'
    """

    kind: str = "mala"
    features: str = "elu1"
    rotary: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ATTENTION_KINDS:
            raise ValueError(
                f"unknown attention {self.kind!r}; choose one of "
                f"{', '.join(ATTENTION_KINDS)}"
            )

    def gain(self, z: Tensor, sharpness: Tensor | None) -> Tensor:
        """Weigh the centred part of the output.

        Arguments
        ---------
        z : Tensor
            The query's magnitude as the keys see it, >= 0, any shape.
        sharpness : Tensor, optional
            MALA's learned factor, broadcastable to z; None is 1.

        Returns
        -------
        Tensor
            Shape of ``z``.
        """
        if self.kind == "inline":
            return torch.ones_like(z)
        inverse = torch.where(
            z > SMALLEST_Z, 1.0 / z.clamp_min(SMALLEST_Z), 0.0
        )
        if self.kind == "linear":
            return inverse
        return inverse + (1.0 if sharpness is None else sharpness)


def in_float32(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Switch autocast off for a region, where it is on.

    Arguments
    ---------
    x : Tensor
        Its device counts.

    Returns
    -------
    ContextManager
        For a ``with``.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device_type=device, enabled=False)
    return contextlib.nullcontext()


def summarize(
    form: AttentionForm,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None = None,
    start: int = 0,
) -> KeyStatistics:
    """Give the statistics of some keys of an attention.

    Arguments
    ---------
    form : AttentionForm
        Which attention.
    keys, values, visible
        As for `attend_full`, in float32 (see `in_float32`).
    start : int
        Position of the first key.

    Returns
    -------
    KeyStatistics
        Those of different keys can be merged.
    """
    phi = feature_map(keys.float(), form.features)
    rotated = rotate(phi, start) if form.rotary else None
    return KeyStatistics.of_keys(phi, values.float(), visible, rotated)


def _map_queries(
    form: AttentionForm, queries: Tensor, start: int
) -> tuple[Tensor, Tensor]:
    """Return phi(q), plain and with positions."""
    phi = feature_map(queries.float(), form.features)
    return phi, rotate(phi, start) if form.rotary else phi


def _read(
    form: AttentionForm,
    phi: tuple[Tensor, Tensor],
    seen: KeyStatistics,
    sharpness: Tensor | None,
) -> Tensor:
    plain, rotated = phi
    # The scale c, where it is one number for each query and not one for each
    # of its channels.
    scale = plain.shape[-1] ** -0.5
    z = scale * (plain @ seen.key_mean.transpose(-2, -1))
    gain = scale * form.gain(z, sharpness)
    return seen.value_mean + (gain * rotated) @ seen.covariance


def attend_summary(
    form: AttentionForm,
    queries: Tensor,
    seen: KeyStatistics,
    start: int = 0,
    sharpness: Tensor | None = None,
) -> Tensor:
    """Let queries see keys of which only the statistics are left.

    Arguments
    ---------
    form : AttentionForm
        Which attention.
    queries : Tensor
        q before the feature map, shape (batch, heads, time, d_key).
    seen : KeyStatistics
        From `summarize`.
    start : int
        Position of the first query.
    sharpness : Tensor, optional
        Learned factor per head, shape (heads, 1, 1).

    Returns
    -------
    Tensor
        Shape (batch, heads, time, d_value), dtype of the queries.

    Example
    -------
    >>> q, k, v = torch.randn(3, 2, 4, 50, 8)
    >>> form = AttentionForm("mala")
    >>> seen = summarize(form, k[..., :30, :], v[..., :30, :]).merge(
    ...     summarize(form, k[..., 30:, :], v[..., 30:, :])
    ... )
    >>> whole = attend_full(form, q, k, v)
    >>> torch.allclose(attend_summary(form, q, seen), whole, atol=1e-5)
    True
    """
    with in_float32(queries):
        phi = _map_queries(form, queries, start)
        return _read(form, phi, seen, sharpness).to(queries.dtype)


def attend_full(
    form: AttentionForm,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None = None,
    sharpness: Tensor | None = None,
) -> Tensor:
    """Let every query see all visible keys; cost linear in time.

    Arguments
    ---------
    form : AttentionForm
        Which attention to compute.
    queries : Tensor
        q before the feature map, shape (batch, heads, time_q, d_key).
    keys : Tensor
        k before the feature map, shape (batch, heads, time_k, d_key).
    values : Tensor
        v, shape (batch, heads, time_k, d_value).
    visible : Tensor, optional
        bool, True = not padding, shape (batch, 1, time_k), broadcastable.
    sharpness : Tensor, optional
        Learned factor per head, shape (heads, 1, 1).

    Returns
    -------
    Tensor
        Shape (batch, heads, time_q, d_value), dtype of the queries; zeros
        where no key is visible.

    Example
    -------
    >>> q, k, v = torch.randn(3, 2, 4, 50, 8)
    >>> attend_full(AttentionForm("mala"), q, k, v).shape
    torch.Size([2, 4, 50, 8])
    """
    with in_float32(queries):
        seen = summarize(form, keys, values, visible)
    return attend_summary(form, queries, seen, sharpness=sharpness)


def attend_chunked(
    form: AttentionForm,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    chunk_size: int,
    left_chunks: int | None = None,
    visible: Tensor | None = None,
    sharpness: Tensor | None = None,
) -> Tensor:
    """Let queries see their own chunk and those to its left.

    The training-time form of streaming (dynamic chunk training, Zhang et
    al., arXiv 2012.05481), in time linear in the length and without a mask.

    Arguments
    ---------
    form : AttentionForm
        Which attention to compute.
    queries, keys : Tensor
        q and k before the feature map, (batch, heads, time, d_key).
    values : Tensor
        v, shape (batch, heads, time, d_value).
    chunk_size : int
        Frames in a chunk, >= 1; the last one may be shorter.
    left_chunks : int, optional
        How many earlier chunks are seen, >= 0; None for all of them.
    visible : Tensor, optional
        bool, True = not padding, shape (batch, 1, time), broadcastable.
    sharpness : Tensor, optional
        Learned factor per head, shape (heads, 1, 1).

    Returns
    -------
    Tensor
        Shape (batch, heads, time, d_value), dtype of the queries.

    Raises
    ------
    ValueError
        If ``chunk_size`` or ``left_chunks`` is out of range.

    Example
    -------
    >>> q, k, v = torch.randn(3, 2, 4, 50, 8)
    >>> attend_chunked(AttentionForm("mala"), q, k, v, 16, 2).shape
    torch.Size([2, 4, 50, 8])
    """
    check_chunks(chunk_size, left_chunks)
    time = queries.shape[-2]
    chunks = -(-time // chunk_size)
    missing = chunks * chunk_size - time
    if visible is None:
        visible = torch.ones(1, 1, time, dtype=torch.bool, device=keys.device)
    shown = functional.pad(visible, (0, missing)).unflatten(
        -1, (chunks, chunk_size)
    )

    def split(x: Tensor) -> Tensor:
        padded = functional.pad(x, (0, 0, 0, missing))
        return padded.unflatten(-2, (chunks, chunk_size))

    with in_float32(queries):
        plain_k = feature_map(keys.float(), form.features)
        rotated_k = split(rotate(plain_k)) if form.rotary else None
        own = KeyStatistics.of_keys(
            split(plain_k), split(values.float()), shown, rotated_k
        )
        width = chunks if left_chunks is None else left_chunks + 1
        seen = merge_windows(own, min(width, chunks))
        plain_q, rotated_q = _map_queries(form, queries, 0)
        if sharpness is not None:
            sharpness = sharpness.unsqueeze(-1)
        out = _read(form, (split(plain_q), split(rotated_q)), seen, sharpness)
        return out.flatten(-3, -2)[..., :time, :].to(queries.dtype)


def check_chunks(chunk_size: int, left_chunks: int | None) -> None:
    """Refuse chunks that do not exist.

    Arguments
    ---------
    chunk_size : int
        Frames in a chunk.
    left_chunks : int, optional
        Earlier chunks seen.

    Raises
    ------
    ValueError
        If ``chunk_size`` < 1 or ``left_chunks`` < 0.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; it must be at least 1")
    if left_chunks is not None and left_chunks < 0:
        raise ValueError(
            f"left_chunks is {left_chunks}; give 0 or more, or None for all"
        )


@dataclass
class Stream:
    """The past of a recording, as one attention layer remembers it.

    With unlimited left context the memory is a single `KeyStatistics`, of
    a size that never grows; with a limited one it is those of the last
    chunks.

    Arguments
    ---------
    form : AttentionForm
        Which attention to compute.
    left_chunks : int, optional
        How many earlier chunks are seen, >= 0; None for all of them.

    Example
    -------
    >>> q, k, v = torch.randn(3, 1, 4, 32, 8)
    >>> form = AttentionForm("mala")
    >>> stream = Stream(form)
    >>> parts = [
    ...     stream.attend(*(x[..., i : i + 16, :] for x in (q, k, v)))
    ...     for i in (0, 16)
    ... ]
    >>> whole = attend_chunked(form, q, k, v, chunk_size=16)
    >>> torch.allclose(torch.cat(parts, dim=-2), whole, atol=1e-5)
    True
    """

    form: AttentionForm
    left_chunks: int | None = None
    frames_seen: int = 0
    past: deque[KeyStatistics] = field(default_factory=deque)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        visible: Tensor | None = None,
        sharpness: Tensor | None = None,
    ) -> Tensor:
        """Take the next chunk in and return its output.

        Arguments
        ---------
        queries, keys, values, visible, sharpness
            Those of the chunk, as for :func:`attend_full`.

        Returns
        -------
        Tensor
            Shape (batch, heads, time, d_value).
        """
        with in_float32(queries):
            seen = own = summarize(
                self.form, keys, values, visible, self.frames_seen
            )
            for earlier in reversed(self.past):
                seen = earlier.merge(seen)
        out = attend_summary(
            self.form, queries, seen, self.frames_seen, sharpness
        )
        self.frames_seen += keys.shape[-2]
        if self.left_chunks is None:
            self.past = deque([seen])
        elif self.left_chunks > 0:
            self.past.append(own)
            while len(self.past) > self.left_chunks:
                self.past.popleft()
        return out
