"""A toy training: random features, four letters, a model of one layer."""

import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor
from speechbrain.utils.epoch_loop import EpochCounter
from speechbrain.utils.run_opts import RunOptions

from mala_asr.data.manifest import Utterance
from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.models import MalaASR
from mala_asr.training.augment import SpecAugment
from mala_asr.training.brain import ASRBrain, Recipe
from mala_asr.training.checkpoints import AtomicCheckpointer, RandomState
from mala_asr.training.data_pipeline import (
    EpochBatches,
    SpeechDataset,
    fixed_loader,
    loader_options,
)
from mala_asr.training.schedules import NoamSchedule

N_MELS = 40


def toy_utterances(count: int, prefix: str = "u") -> list[Utterance]:
    """Make utterances of 0.6 to 1.2 s with short texts."""
    rng = random.Random(prefix)
    return [
        Utterance(
            id=f"{prefix}{index}",
            duration=rng.randint(60, 120) / 100,
            wav=f"{prefix}{index}.wav",
            spk_id="s",
            wrd="".join(rng.choices("ABCD", k=rng.randint(2, 5))),
        )
        for index in range(count)
    ]


def toy_features(utterance: Utterance, speed: float) -> torch.Tensor:
    """Give an utterance random features, always the same ones."""
    seed = zlib.crc32(f"{utterance.id} {speed}".encode())
    frames = int(utterance.duration * 100 / speed)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(frames, N_MELS, generator=generator)


def toy_tokenizer(folder: Path) -> SentencePieceProcessor:
    """Train a tokenizer of four letters."""
    return load_tokenizer(train_tokenizer(["A B C D"], folder, kind="char"))


def toy_model(vocab_size: int, **changes: Any) -> MalaASR:
    """Build a small model with dropout, from a fixed seed."""
    torch.manual_seed(1)
    arguments = {
        "d_model": 64,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "d_ffn": 64,
        "kernel_size": 3,
        "n_mels": N_MELS,
        "ctc_weight": 0.6,
    }
    return MalaASR(vocab_size, **arguments | changes)


class ToyTraining:
    """Everything that a training has, around a toy model."""

    def __init__(
        self,
        folder: Path,
        utterances: int = 12,
        epochs: int = 2,
        load: Callable[[Utterance, float], torch.Tensor] = toy_features,
        recipe: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.tokenizer = toy_tokenizer(folder)
        self.model = toy_model(len(self.tokenizer), **model or {})
        self.counter = EpochCounter(epochs)
        arguments = {
            "optimizer": lambda p: torch.optim.AdamW(p, lr=0.0),
            "schedule": NoamSchedule(peak=0.01, warmup_steps=4),
            "ctc_weight": 0.6,
            "augment": SpecAugment(time_mask_width=(0, 10)),
        }
        self.brain = ASRBrain(
            self.model,
            self.tokenizer,
            Recipe(**arguments | (recipe or {})),
            AtomicCheckpointer(
                folder / "save",
                {
                    "model": self.model,
                    "counter": self.counter,
                    "random": RandomState(),
                },
            ),
            run_opts=RunOptions.from_dictionary(
                {"device": "cpu", "noprogressbar": True, **options}
            ),
        )
        self.train_data = SpeechDataset(
            toy_utterances(utterances),
            self.tokenizer,
            load,
            speeds=[0.9, 1.0, 1.1],
            seed=5,
        )
        self.batches = EpochBatches(self.train_data, 3.0, 2, seed=5)
        self.brain.train_sampler = self.batches
        self.train_loader = self.brain.make_dataloader(
            self.train_data,
            stage=_train_stage(),
            batch_sampler=self.batches,
            **loader_options(),
        )
        valid = SpeechDataset(
            toy_utterances(3, "v"), self.tokenizer, toy_features
        )
        self.valid_loader = fixed_loader(valid, 5.0)

    def fit(self, last_epoch: int | None = None) -> None:
        """Train from a fixed seed, or from the newest checkpoint."""
        torch.manual_seed(2)
        self.brain.fit(
            self.counter, self.train_loader, self.valid_loader, last_epoch
        )


def _train_stage() -> Any:
    import speechbrain as sb

    return sb.Stage.TRAIN
