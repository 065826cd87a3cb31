"""Batches of recordings of like length, for whoever goes through them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from mala_asr.data.audio import read_audio
from mala_asr.data.manifest import Utterance


def length_batches(
    durations: Sequence[float],
    batch_seconds: float,
    batch_size: int | None = None,
) -> list[list[int]]:
    """Group recordings by length into batches that are always the same.

    Arguments
    ---------
    durations : sequence of float
        Seconds of each recording.
    batch_seconds : float
        Most seconds in a batch, padding included; a longer recording gets a
        batch of its own.
    batch_size : int, optional
        Most recordings in a batch.

    Returns
    -------
    list of list of int
        Indices of each batch's recordings, the shortest first; every index
        is in one batch.

    Example
    -------
    >>> length_batches([5.0, 1.0, 9.0, 2.0, 30.0], batch_seconds=10)
    [[1, 3], [0], [2], [4]]
    >>> length_batches([5.0, 1.0, 9.0, 2.0, 30.0], 100, batch_size=2)
    [[1, 3], [0, 2], [4]]
    """
    most = len(durations) if batch_size is None else batch_size
    batches: list[list[int]] = []
    for index in sorted(range(len(durations)), key=durations.__getitem__):
        batch = batches[-1] if batches else []
        seconds = durations[index] * (len(batch) + 1)
        if batch and len(batch) < most and seconds <= batch_seconds:
            batch.append(index)
        else:
            batches.append([index])
    return batches


def read_batches(
    utterances: Sequence[Utterance], batch_seconds: float, sample_rate: int
) -> Iterator[tuple[list[Utterance], list[torch.Tensor]]]:
    """Read a set of utterances in batches of like length.

    Arguments
    ---------
    utterances : sequence of Utterance
        The set.
    batch_seconds : float
        Most seconds of speech in a batch, padding included.
    sample_rate : int
        The rate wanted, in Hz.

    Yields
    ------
    utterances : list of Utterance
        Those of the batch.
    waves : list of torch.Tensor
        Their samples, shape (samples,) each.
    """
    durations = [utterance.duration for utterance in utterances]
    for batch in length_batches(durations, batch_seconds):
        chosen = [utterances[index] for index in batch]
        yield (
            chosen,
            [
                read_audio(u.wav, u.start, u.stop, sample_rate=sample_rate)
                for u in chosen
            ],
        )
