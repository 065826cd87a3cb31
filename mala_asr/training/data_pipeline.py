"""From manifests to padded batches.

Batches hold about the same number of seconds of speech, not of utterances,
and utterances of similar lengths. What an epoch looks like (its batches and
the speed of each utterance) follows from the seed and the epoch's number
alone, so a resumed training sees what an uninterrupted one sees.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from speechbrain.dataio.dataloader import SaveableDataLoader
from speechbrain.dataio.sampler import DynamicBatchSampler
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from mala_asr.data.batching import length_batches
from mala_asr.data.manifest import Utterance
from mala_asr.errors import MalaError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

logger = logging.getLogger(__name__)

# Gives an utterance at a speed: features (frames, mels) or samples (samples,).
LoadSpeech = Callable[[Utterance, float], Tensor]

# How many ids a warning spells out.
_IDS_SHOWN = 5


@dataclass(frozen=True)
class SpeechBatch:
    """A padded batch.

    Arguments
    ---------
    ids : list of str
        The utterances' ids.
    texts : list of str
        What was said.
    speech : torch.Tensor
        Features (batch, frames, mels) or samples (batch, samples).
    lengths : torch.Tensor
        Frames or samples of each utterance, (batch,).
    tokens : torch.Tensor
        Padded tokens of the texts, (batch, tokens).
    n_tokens : torch.Tensor
        Tokens of each text, (batch,).
    seconds : float
        Seconds of speech in the batch.
    """

    ids: list[str]
    texts: list[str]
    speech: Tensor
    lengths: Tensor
    tokens: Tensor
    n_tokens: Tensor
    seconds: float

    def to(self, device: torch.device | str) -> SpeechBatch:
        """Give the batch with its tensors on a device.

        Arguments
        ---------
        device : torch.device or str
            Where the tensors should be.

        Returns
        -------
        SpeechBatch
            The same batch there.
        """
        return self._map(lambda t: t.to(device, non_blocking=True))

    def pin_memory(self) -> SpeechBatch:
        """Give the batch in pinned memory, as DataLoader asks for it.

        Returns
        -------
        SpeechBatch
            The same batch, quicker to copy to a GPU.
        """
        return self._map(Tensor.pin_memory)

    def _map(self, function: Callable[[Tensor], Tensor]) -> SpeechBatch:
        return replace(
            self,
            speech=function(self.speech),
            lengths=function(self.lengths),
            tokens=function(self.tokens),
            n_tokens=function(self.n_tokens),
        )


class SpeechDataset(Dataset):
    """Utterances with their tokens, at a speed drawn for each epoch.

    Arguments
    ---------
    utterances : sequence of Utterance
        The utterances.
    tokenizer : SentencePieceProcessor
        Turns their texts into tokens.
    load : callable
        Gives the speech of an utterance at a speed.
    speeds : sequence of float
        The speeds to choose from.
    seed : int
        Seed of the choice.
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        tokenizer: SentencePieceProcessor,
        load: LoadSpeech,
        speeds: Sequence[float] = (1.0,),
        seed: int = 0,
    ) -> None:
        self.utterances = list(utterances)
        self.tokens: list[list[int]] = tokenizer.encode(
            [utterance.wrd for utterance in self.utterances]
        )
        self.load = load
        self.speeds = list(speeds)
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        """Count the utterances."""
        return len(self.utterances)

    def __getitem__(
        self, index: int
    ) -> tuple[Utterance, float, Tensor, list[int]]:
        """Give an utterance, its speed, speech and tokens."""
        utterance = self.utterances[index]
        speed = self.speed(utterance)
        speech = self.load(utterance, speed)
        return utterance, speed, speech, self.tokens[index]

    def speed(self, utterance: Utterance) -> float:
        """Choose the speed of an utterance in the present epoch.

        Arguments
        ---------
        utterance : Utterance
            One of the utterances.

        Returns
        -------
        float
            Its speed, the same however often it is asked for.
        """
        if len(self.speeds) == 1:
            return self.speeds[0]
        key = f"{self.seed} {self.epoch} {utterance.id}"
        return random.Random(key).choice(self.speeds)


def collate(
    examples: Sequence[tuple[Utterance, float, Tensor, list[int]]],
) -> SpeechBatch:
    """Pad examples into a batch.

    Arguments
    ---------
    examples : sequence
        What `SpeechDataset` gives.

    Returns
    -------
    SpeechBatch
        The batch, in the order of the examples.
    """
    utterances, speeds, speech, tokens = zip(*examples, strict=True)
    return SpeechBatch(
        ids=[utterance.id for utterance in utterances],
        texts=[utterance.wrd for utterance in utterances],
        speech=pad_sequence(list(speech), batch_first=True),
        lengths=torch.tensor([len(s) for s in speech]),
        tokens=pad_sequence(
            [torch.tensor(t, dtype=torch.long) for t in tokens],
            batch_first=True,
        ),
        n_tokens=torch.tensor([len(t) for t in tokens]),
        seconds=sum(
            utterance.duration / speed
            for utterance, speed in zip(utterances, speeds, strict=True)
        ),
    )


class EpochBatches(DynamicBatchSampler):
    """SpeechBrain's dynamic batches, telling the dataset the epoch as well.

    Bucket boundaries are quantiles of the durations, so that buckets are
    equally full whatever the corpus.

    Arguments
    ---------
    dataset : SpeechDataset
        The utterances.
    batch_seconds : float
        Seconds of speech in a batch, padding included.
    num_buckets : int
        Groups of similar durations that a batch is drawn from.
    seed : int
        Seed of the order.
    """

    def __init__(
        self,
        dataset: SpeechDataset,
        batch_seconds: float,
        num_buckets: int,
        seed: int,
    ) -> None:
        durations = [u.duration for u in dataset.utterances]
        shares = torch.linspace(0, 1, num_buckets + 1, dtype=torch.float64)[1:]
        ends = torch.tensor(durations, dtype=torch.float64).quantile(shares)
        super().__init__(
            dataset,
            max_batch_length=batch_seconds,
            lengths_list=durations,
            bucket_boundaries=sorted(set(ends.tolist())),
            seed=seed,
        )

    def set_epoch(self, epoch: int) -> None:
        """Draw the batches and speeds of an epoch.

        Arguments
        ---------
        epoch : int
            Number of the epoch.
        """
        super().set_epoch(epoch)
        self._dataset.epoch = epoch


def fixed_loader(
    dataset: SpeechDataset, batch_seconds: float, **options: object
) -> SaveableDataLoader:
    """Make a loader that gives the same batches each time, leaving none out.

    Arguments
    ---------
    dataset : SpeechDataset
        The utterances.
    batch_seconds : float
        Most seconds in a batch.
    **options : object
        Options of torch's DataLoader.

    Returns
    -------
    SaveableDataLoader
        The loader.
    """
    durations = [utterance.duration for utterance in dataset.utterances]
    return SaveableDataLoader(
        dataset,
        batch_sampler=length_batches(durations, batch_seconds),
        **loader_options(**options),
    )


def loader_options(**options: object) -> dict[str, object]:
    """Complete the options of a DataLoader over a `SpeechDataset`.

    Arguments
    ---------
    **options : object
        Options of torch's DataLoader.

    Returns
    -------
    dict
        With the collation, and a generator of the loader's own: it would
        otherwise draw from the global one, and a resumed run would continue
        with other random numbers than one that was never stopped.
    """
    return {
        "collate_fn": collate,
        "generator": torch.Generator(),
        **options,
    }


def drop_unalignable(
    utterances: Sequence[Utterance],
    tokenizer: SentencePieceProcessor,
    ctc_frames: Callable[[float], int],
) -> list[Utterance]:
    """Leave out training targets that are longer than their input.

    CTC needs a frame for each token, and one more between two equal ones.
    Where there are fewer, the loss is infinite and nothing can be learned.

    Arguments
    ---------
    utterances : sequence of Utterance
        The training utterances.
    tokenizer : SentencePieceProcessor
        Turns their texts into tokens.
    ctc_frames : callable
        Gives the fewest CTC frames that a duration in seconds can have.

    Returns
    -------
    list of Utterance
        Those that can be aligned; the others are named in a warning.

    Raises
    ------
    MalaError
        If none is left.
    """
    kept: list[Utterance] = []
    dropped: list[str] = []
    texts = [utterance.wrd for utterance in utterances]
    encoded = tokenizer.encode(texts)
    for utterance, tokens in zip(utterances, encoded, strict=True):
        repeats = sum(a == b for a, b in zip(tokens, tokens[1:], strict=False))
        enough = ctc_frames(utterance.duration) >= len(tokens) + repeats
        if tokens and enough:
            kept.append(utterance)
        else:
            dropped.append(utterance.id)
    if dropped:
        logger.warning(
            "left out of training, because the text is empty or has more "
            "tokens than the speech has frames: %s",
            name_some(dropped),
        )
    if not kept:
        raise MalaError(
            "no training utterance is long enough for its tokens; use a "
            "larger vocabulary or less subsampling"
        )
    return kept


def name_some(ids: Sequence[str]) -> str:
    """Name the first few ids and count the rest.

    Arguments
    ---------
    ids : sequence of str
        Ids of utterances.

    Returns
    -------
    str
        For a message.

    Example
    -------
    >>> name_some(["a", "b"]), name_some(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = len(ids) - _IDS_SHOWN
    shown = ", ".join(ids[:_IDS_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
