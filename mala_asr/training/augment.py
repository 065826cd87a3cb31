"""SpecAugment (arXiv 1904.08779) that never sees padding.

Every position is drawn within the utterance's own frames, and frames past its
end are left as they are, so an utterance is augmented in the same way whatever
it is batched with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class SpecAugment:
    """Time warping, time masks and frequency masks on normalized features.

    Masked values become 0, which is the mean of normalized features.

    Arguments
    ---------
    time_masks : int
        Masks along time for each utterance.
    time_mask_width : sequence of int
        Least and greatest width of a time mask, in frames.
    freq_masks : int
        Masks along frequency for each utterance.
    freq_mask_width : sequence of int
        Least and greatest width of a frequency mask, in channels.
    warp_window : int
        Greatest shift of the time warp, in frames; 0 turns it off.
    max_masked : float
        No single time mask covers more than this fraction of an utterance.

    Raises
    ------
    ValueError
        If a width is not a least and a greatest number.

    Example
    -------
    >>> augment = SpecAugment(time_masks=2, freq_masks=2)
    >>> feats = torch.ones(2, 100, 80)
    >>> out = augment(feats, torch.tensor([100, 60]))
    >>> out.shape, bool((out == 0).any()), bool((out[1, 60:] == 1).all())
    (torch.Size([2, 100, 80]), True, True)
    """

    def __init__(
        self,
        time_masks: int = 2,
        time_mask_width: Sequence[int] = (0, 25),
        freq_masks: int = 2,
        freq_mask_width: Sequence[int] = (0, 27),
        warp_window: int = 0,
        max_masked: float = 1.0,
    ) -> None:
        for name, width in (
            ("time_mask_width", time_mask_width),
            ("freq_mask_width", freq_mask_width),
        ):
            if len(width) != 2 or not 0 <= width[0] <= width[1]:
                raise ValueError(
                    f"{name} is {list(width)}; give the least and the "
                    "greatest width, such as [0, 20]"
                )
        self.time_masks = time_masks
        self.time_mask_width = tuple(time_mask_width)
        self.freq_masks = freq_masks
        self.freq_mask_width = tuple(freq_mask_width)
        self.warp_window = warp_window
        self.max_masked = max_masked

    def __call__(self, feats: Tensor, n_frames: Tensor) -> Tensor:
        """Augment a padded batch.

        Arguments
        ---------
        feats : torch.Tensor
            Normalized features, (batch, time, mels).
        n_frames : torch.Tensor
            Frames of each utterance, (batch,).

        Returns
        -------
        torch.Tensor
            Augmented features of the same shape.
        """
        if self.warp_window > 0:
            feats = _warp(feats, n_frames, self.warp_window)
        batch, time, mels = feats.shape
        limit = (n_frames * self.max_masked).long()
        masked_time = _masks(
            n_frames, time, self.time_masks, self.time_mask_width, limit
        )
        channels = torch.full_like(n_frames, mels)
        masked_freq = _masks(
            channels, mels, self.freq_masks, self.freq_mask_width, channels
        )
        # A time mask never leaves its utterance, but all channels go on.
        valid = torch.arange(time, device=feats.device) < n_frames.unsqueeze(1)
        valid = valid.unsqueeze(2)
        mask = masked_time.unsqueeze(2) | (masked_freq.unsqueeze(1) & valid)
        return feats.masked_fill(mask, 0.0)


def _masks(
    lengths: Tensor,
    size: int,
    count: int,
    width: tuple[int, ...],
    limit: Tensor,
) -> Tensor:
    """Draw `count` masks per row that start anywhere they fit, (batch, size).

    A mask wider than `limit` is cut to it.
    """
    shape = (len(lengths), count)
    device = lengths.device
    widths = torch.randint(width[0], width[1] + 1, shape, device=device)
    widths = torch.minimum(widths, limit.unsqueeze(1))
    room = (lengths.unsqueeze(1) - widths + 1).clamp(min=1)
    starts = (torch.rand(shape, device=device) * room).long()
    positions = torch.arange(size, device=device)
    inside = (positions >= starts.unsqueeze(2)) & (
        positions < (starts + widths).unsqueeze(2)
    )
    return inside.any(dim=1)


def _warp(feats: Tensor, n_frames: Tensor, window: int) -> Tensor:
    """Move a random frame of each utterance by up to `window` frames.

    What lies before and after it is stretched or squeezed linearly; the first
    and last frame stay. Utterances too short for the window are left alone.
    """
    batch, time, mels = feats.shape
    device = feats.device
    last = (n_frames - 1).float()
    room = (n_frames - 2 * window - 2).clamp(min=0).float()
    source = window + 1 + torch.rand(batch, device=device) * room
    shift = (2 * torch.rand(batch, device=device) - 1) * window
    shift = torch.where(room > 0, shift, torch.zeros_like(shift))
    target = source + shift

    frame = torch.arange(time, device=device, dtype=torch.float32)
    frame = frame.expand(batch, time)
    source, target = source.unsqueeze(1), target.unsqueeze(1)
    last = last.unsqueeze(1)
    before = frame * source / target
    after = source + (frame - target) * (last - source) / (
        (last - target).clamp(min=1.0)
    )
    origin = torch.where(frame < target, before, after)
    moved = (frame <= last) & (room > 0).unsqueeze(1)
    origin = torch.where(moved, origin, frame).clamp(0, time - 1)

    left = origin.floor().long()
    right = (left + 1).clamp(max=time - 1)
    share = (origin - left).unsqueeze(2).to(feats.dtype)
    picked = [
        feats.gather(1, index.unsqueeze(2).expand(-1, -1, mels))
        for index in (left, right)
    ]
    return torch.lerp(picked[0], picked[1], share)
