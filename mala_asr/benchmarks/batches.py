"""The batches of speech that every side of the benchmark trains on.

A batch holds utterances of nearly one length, as dynamic batching makes them.
Only lengths count for speed: without a corpus the audio is noise, and the
tokens are drawn at random in the number that text of that length would have.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mala_asr.data.audio import read_audio
from mala_asr.data.librispeech import prepare_librispeech
from mala_asr.data.manifest import Utterance, read_manifest
from mala_asr.errors import MalaError

SAMPLE_RATE = 16000

# A quarter, a half and three quarters of Mini LibriSpeech's training speech
# lie in utterances shorter than these, in seconds.
TYPICAL_DURATIONS = (12.9, 14.4, 15.4)

# LibriSpeech has 2.7 words a second, and its 5000 unigrams make 1.2 of each.
TOKENS_PER_SECOND = 3.2

# Token ids below this are blank, bos, eos and unk.
FIRST_TOKEN = 4


@dataclass
class RawBatch:
    """Waveforms and their token sequences.

    Arguments
    ---------
    waves : list of Tensor
        One waveform (samples,) at 16 kHz for each utterance.
    tokens : list of Tensor
        Its token ids (n,), int64.

    Example
    -------
    >>> batch = RawBatch([torch.zeros(32000)], [torch.tensor([4, 5])])
    >>> batch.seconds
    2.0
    """

    waves: list[Tensor]
    tokens: list[Tensor]

    @property
    def seconds(self) -> float:
        """Speech in the batch, padding not counted."""
        return sum(len(wave) for wave in self.waves) / SAMPLE_RATE


def noise_batches(
    seconds: float, vocab_size: int, seed: int = 0
) -> list[RawBatch]:
    """Make one batch of noise for each typical duration.

    Arguments
    ---------
    seconds : float
        Audio in each batch.
    vocab_size : int
        Upper end of the token ids.
    seed : int
        The same seed gives the same batches.

    Returns
    -------
    list of RawBatch

    Example
    -------
    >>> [len(batch.waves) for batch in noise_batches(60, 5000)]
    [5, 4, 4]
    """
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for duration in TYPICAL_DURATIONS:
        count = max(1, round(seconds / duration))
        total = round(seconds * SAMPLE_RATE)
        # Lengths within a bucket differ by a few per cent.
        share = 1 + 0.05 * torch.rand(count, generator=generator)
        lengths = (share / share.sum() * total).long().tolist()
        waves = [
            0.1 * torch.randn(length, generator=generator) for length in lengths
        ]
        tokens = [
            _random_tokens(len(wave) / SAMPLE_RATE, vocab_size, generator)
            for wave in waves
        ]
        batches.append(RawBatch(waves, tokens))
    return batches


def corpus_batches(
    data_folder: Path, seconds: float, vocab_size: int, seed: int = 0
) -> list[RawBatch]:
    """Take batches from a corpus at a quarter, half and 3/4 of its speech.

    Arguments
    ---------
    data_folder : Path
        A corpus in LibriSpeech's layout; all of its splits are used.
    seconds : float
        Audio in each batch, to within one utterance.
    vocab_size : int
        Upper end of the token ids.
    seed : int
        Seed of the token ids.

    Returns
    -------
    list of RawBatch

    Raises
    ------
    MalaError
        If the corpus is not whole, or has less speech than one batch.
    """
    utterances = sorted(_utterances(data_folder), key=lambda u: u.duration)
    total = sum(u.duration for u in utterances)
    if total < seconds:
        raise MalaError(
            f"{data_folder} holds {total:.0f} s of speech, a batch needs "
            f"{seconds:.0f} s; lower --seconds"
        )
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for share in (0.25, 0.5, 0.75):
        chosen = _around(utterances, share * total, seconds)
        batches.append(
            RawBatch(
                [read_audio(u.wav, u.start, u.stop) for u in chosen],
                [
                    _random_tokens(u.duration, vocab_size, generator)
                    for u in chosen
                ],
            )
        )
    return batches


def _utterances(data_folder: Path) -> list[Utterance]:
    if not data_folder.is_dir():
        raise MalaError(f"no such folder: {data_folder}")
    nested = data_folder / "LibriSpeech"
    root = nested if nested.is_dir() else data_folder
    splits = sorted(path.name for path in root.iterdir() if path.is_dir())
    with tempfile.TemporaryDirectory() as folder:
        manifests = prepare_librispeech(root, folder, splits)
        return [u for path in manifests.values() for u in read_manifest(path)]


def _around(
    utterances: list[Utterance], middle: float, seconds: float
) -> list[Utterance]:
    """Consecutive utterances, `seconds` long, centred on `middle` seconds."""
    chosen: list[Utterance] = []
    position = taken = 0.0
    last_start = sum(u.duration for u in utterances) - seconds
    start = min(max(0.0, middle - seconds / 2), last_start)
    for utterance in utterances:
        if position >= start and taken < seconds:
            chosen.append(utterance)
            taken += utterance.duration
        position += utterance.duration
    return chosen


def _random_tokens(
    seconds: float, vocab_size: int, generator: torch.Generator
) -> Tensor:
    count = max(1, round(seconds * TOKENS_PER_SECOND))
    return torch.randint(FIRST_TOKEN, vocab_size, (count,), generator=generator)
