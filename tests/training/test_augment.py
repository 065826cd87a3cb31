"""SpecAugment hides what it should, and never touches or uses padding."""

import pytest
import torch

from mala_asr.training.augment import SpecAugment

ALL = {
    "time_masks": 3,
    "time_mask_width": (5, 20),
    "freq_masks": 2,
    "freq_mask_width": (3, 9),
}


def test_padding_stays_as_it_is() -> None:
    torch.manual_seed(0)
    feats = torch.randn(6, 80, 30)
    n_frames = torch.tensor([80, 60, 40, 20, 9, 1])
    out = SpecAugment(**ALL, warp_window=5)(feats, n_frames)
    for i, n in enumerate(n_frames):
        assert torch.equal(out[i, n:], feats[i, n:])
    assert not torch.equal(out, feats)


def test_padding_does_not_change_what_is_drawn() -> None:
    """The same utterances in a longer batch are augmented the same way."""
    feats, n_frames = torch.randn(4, 60, 30), torch.tensor([60, 50, 30, 8])
    padded = torch.nn.functional.pad(feats, (0, 0, 0, 25), value=7.0)
    augment = SpecAugment(**ALL, warp_window=5)
    torch.manual_seed(3)
    alone = augment(feats, n_frames)
    torch.manual_seed(3)
    longer = augment(padded, n_frames)
    for i, n in enumerate(n_frames):
        assert torch.equal(alone[i, :n], longer[i, :n])


def test_masks_have_their_widths() -> None:
    torch.manual_seed(0)
    n_frames = torch.full((200,), 100)
    time_only = SpecAugment(1, (5, 8), 0)
    masked = (time_only(torch.ones(200, 100, 4), n_frames) == 0).all(2).sum(1)
    assert set(masked.tolist()) == {5, 6, 7, 8}
    freq_only = SpecAugment(0, (0, 0), 1, (2, 3))
    masked = (freq_only(torch.ones(200, 100, 30), n_frames) == 0).all(1).sum(1)
    assert set(masked.tolist()) == {2, 3}


def test_masks_reach_both_ends() -> None:
    torch.manual_seed(0)
    augment = SpecAugment(1, (5, 5), 0)
    out = augment(torch.ones(500, 12, 3), torch.full((500,), 12))
    hidden = (out == 0).any(dim=2).any(dim=0)
    assert hidden.all()


def test_a_short_utterance_keeps_most_of_itself() -> None:
    torch.manual_seed(0)
    augment = SpecAugment(2, (0, 50), 0, max_masked=0.1)
    out = augment(torch.ones(100, 40, 3), torch.full((100,), 40))
    assert ((out == 0).all(dim=2).sum(dim=1) <= 8).all()


@pytest.mark.parametrize("frames", [100, 30])
def test_warping_moves_frames_a_little_and_keeps_their_order(
    frames: int,
) -> None:
    torch.manual_seed(0)
    ramp = torch.arange(100.0).view(1, 100, 1).expand(50, 100, 1)
    lengths = torch.full((50,), frames)
    out = SpecAugment(0, (0, 0), 0, (0, 0), warp_window=5)(ramp, lengths)
    inside = out[:, :frames, 0]
    shift = (inside - ramp[:, :frames, 0]).abs()
    assert 0.5 < shift.max() <= 5.0 + 1e-4
    assert (inside.diff(dim=1) > 0).all()
    assert torch.allclose(inside[:, 0], torch.zeros(50))
    assert torch.allclose(inside[:, -1], torch.tensor(frames - 1.0))


def test_too_short_to_warp_is_left_alone() -> None:
    feats = torch.randn(1, 11, 3)
    augment = SpecAugment(0, (0, 0), 0, (0, 0), warp_window=5)
    assert torch.equal(augment(feats, torch.tensor([11])), feats)
