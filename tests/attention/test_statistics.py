"""Statistics of keys merge exactly."""

import pytest
import torch

from mala_asr.attention.statistics import KeyStatistics, merge_windows

TOLERANCE = 1e-12  # float64


def make_statistics(frames, rotated=False):
    keys = torch.rand(2, 3, frames, 4, dtype=torch.float64)
    values = torch.randn(2, 3, frames, 5, dtype=torch.float64)
    turned = torch.flip(keys, (-1,)) if rotated else None
    return keys, values, turned


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 4, 9])
def test_a_merge_equals_the_whole(cut, rotated):
    torch.manual_seed(cut)
    keys, values, turned = make_statistics(9, rotated)
    whole = KeyStatistics.of_keys(keys, values, None, turned)
    shown = torch.arange(9) < cut
    parts = [
        KeyStatistics.of_keys(keys, values, mask.expand(2, 3, 9), turned)
        for mask in (shown, ~shown)
    ]
    merged = parts[0].merge(parts[1])
    for got, expected in zip(merged, whole, strict=True):
        assert (got - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7])
def test_windows_equal_statistics_over_their_keys(width):
    torch.manual_seed(width)
    keys = torch.rand(7, 4, 3, dtype=torch.float64)
    values = torch.randn(7, 4, 2, dtype=torch.float64)
    windows = merge_windows(KeyStatistics.of_keys(keys, values), width)
    for chunk in range(7):
        seen = slice(max(chunk - width + 1, 0), chunk + 1)
        expected = KeyStatistics.of_keys(
            keys[seen].flatten(0, 1), values[seen].flatten(0, 1)
        )
        for got, want in zip(windows, expected, strict=True):
            assert (got[chunk] - want).abs().max() <= TOLERANCE


def test_an_empty_set_is_neutral():
    keys, values, _ = make_statistics(6)
    some = KeyStatistics.of_keys(keys, values)
    nothing = KeyStatistics.of_keys(
        keys, values, torch.zeros(2, 3, 6, dtype=torch.bool)
    )
    assert nothing.number.sum() == 0
    for merged in (some.merge(nothing), nothing.merge(some)):
        for got, expected in zip(merged, some, strict=True):
            assert (got - expected).abs().max() <= TOLERANCE
