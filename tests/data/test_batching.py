"""Batches of like lengths hold everything once, and not too much."""

import pytest

from mala_asr.data.batching import length_batches

LENGTHS = [100.0, 1.0, 250.0, 90.0, 2.0, 1000.0, 120.0]


@pytest.mark.parametrize(
    "batch_size, sizes", [(4, [3, 2, 1, 1]), (2, [2, 2, 1, 1, 1])]
)
def test_a_batch_is_bounded_in_seconds_and_in_number(batch_size, sizes):
    batches = length_batches(LENGTHS, 300.0, batch_size)
    assert sorted(sum(batches, [])) == list(range(7))
    for batch in batches:
        padded = len(batch) * max(LENGTHS[index] for index in batch)
        assert len(batch) == 1 or padded <= 300.0
    assert [len(batch) for batch in batches] == sizes


def test_without_a_number_seconds_alone_count():
    assert length_batches([1.0] * 50, 25.0) == [
        list(range(25)),
        list(range(25, 50)),
    ]
    assert length_batches([], 25.0) == []
