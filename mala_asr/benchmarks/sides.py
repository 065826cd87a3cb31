"""What the training benchmark compares: each side trains on given batches.

All sides are built from one config of ours, the one that differs from
SpeechBrain's conformer_small in the attention alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import speechbrain as sb
import torch
from sentencepiece import SentencePieceProcessor
from speechbrain.utils.run_opts import RunOptions
from torch.nn.utils.rnn import pad_sequence

from mala_asr.benchmarks.batches import RawBatch
from mala_asr.benchmarks.stock import stock_batch, stock_brain
from mala_asr.benchmarks.stopwatch import Stopwatch
from mala_asr.models.asr import MalaASR
from mala_asr.paths import hparams_file
from mala_asr.training.allocator import keep_freed_memory
from mala_asr.training.config import build_config, read_config
from mala_asr.training.data_pipeline import SpeechBatch
from mala_asr.training.train import make_brain

CONFIG = "librispeech_conformer_small_mala"

STOCK = "speechbrain"
# Our sides by name, each with its front-end.
OURS = {"mala conv4": "conv4", "mala separable8": "separable8"}


class Side(Protocol):
    """Something that trains."""

    parameters: int

    def step(self, number: int) -> float:
        """Train on a batch and give its loss."""
        ...

    def watch(self, watch: Stopwatch) -> None:
        """Have the parts of a step watched."""
        ...


def build_side(name: str, batches: Sequence[RawBatch]) -> Side:
    """Build a side, ready to train.

    Arguments
    ---------
    name : str
        `STOCK` or one of `OURS`.
    batches : sequence of RawBatch
        What it will be asked to train on.

    Returns
    -------
    Side
    """
    if name == STOCK:
        return _Stock(batches)
    return _Ours(OURS[name], batches)


def shared_config(**overrides: Any) -> dict[str, Any]:
    """Build the config that all sides share.

    Arguments
    ---------
    **overrides : Any
        Keys of the config to replace.

    Returns
    -------
    dict
        Its keys with their values; every batch makes an optimizer step.

    Example
    -------
    >>> shared_config()["attention"]
    'mala'
    """
    given = {"data_folder": "none", "grad_accumulation_factor": 1, **overrides}
    text = "\n".join(f"{key}: {value}" for key, value in given.items())
    return build_config(read_config(hparams_file(CONFIG), text))


def build_model(hparams: dict[str, Any], frontend: str = "conv4") -> MalaASR:
    """Build our model of a config.

    Arguments
    ---------
    hparams : dict
        The config.
    frontend : str
        The front-end in place of the config's.

    Returns
    -------
    MalaASR
    """
    return hparams["model"](hparams["vocab_size"], frontend=frontend)


def count_parameters(module: torch.nn.Module) -> int:
    """Count what is trained.

    Arguments
    ---------
    module : torch.nn.Module
        A model.

    Returns
    -------
    int

    Example
    -------
    >>> count_parameters(torch.nn.Linear(2, 3))
    9
    """
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def start(brain: sb.Brain) -> None:
    """Bring a brain to where `fit` calls `fit_batch` for the first time.

    Arguments
    ---------
    brain : sb.Brain
        A brain.
    """
    brain.on_fit_start()
    brain.on_stage_start(sb.Stage.TRAIN, 1)
    brain.modules.train()
    brain.step = 1


class _Stock:
    """SpeechBrain's recipe, from waveforms."""

    def __init__(self, batches: Sequence[RawBatch]) -> None:
        hparams = shared_config()
        self._brain = stock_brain(build_model(hparams).config, hparams)
        self.parameters = count_parameters(self._brain.modules)
        self._batches = [stock_batch(batch) for batch in batches]
        start(self._brain)

    def step(self, number: int) -> float:
        return float(self._brain.fit_batch(self._batches[number]))

    def watch(self, watch: Stopwatch) -> None:
        brain, modules = self._brain, self._brain.modules
        watch.watch(brain.hparams.compute_features, "forward", "features")
        watch.watch(modules.cnn, "forward", "front-end")
        _watch_transformer(watch, modules.transformer)
        watch.watch(modules.ctc_head, "forward", "output layers")
        watch.watch(modules.decoder_head, "forward", "output layers")
        watch.watch(brain, "compute_objectives", "losses")
        watch.watch(brain, "optimizers_step", "optimizer")


class _Ours:
    """This project's training loop, from cached features."""

    def __init__(self, frontend: str, batches: Sequence[RawBatch]) -> None:
        keep_freed_memory()
        self._folder = tempfile.TemporaryDirectory()  # for the run's files
        hparams = shared_config(output_folder=self._folder.name)
        self._model = build_model(hparams, frontend)
        self.parameters = count_parameters(self._model)
        self._batches = [cached_batch(self._model, b) for b in batches]
        self._brain = make_brain(
            hparams,
            Path(self._folder.name),
            self._model,
            SentencePieceProcessor(),  # only validation asks for text
            RunOptions(device="cpu"),
            {},
        )
        self._brain.recipe.schedule.plan(total_steps=100_000)
        start(self._brain)

    def step(self, number: int) -> float:
        return float(self._brain.fit_batch(self._batches[number]))

    def watch(self, watch: Stopwatch) -> None:
        model = self._model
        watch.watch(model.frontend, "forward", "front-end")
        _watch_transformer(watch, model.transformer)
        watch.watch(model.ctc_head, "forward", "output layers")
        assert model.decoder_head is not None
        watch.watch(model.decoder_head, "forward", "output layers")
        watch.watch(self._brain, "utterance_losses", "losses")
        watch.watch(self._brain, "optimizers_step", "optimizer")


def cached_batch(model: MalaASR, batch: RawBatch) -> SpeechBatch:
    """Lay a batch out as our data loader does, from kept features.

    Arguments
    ---------
    model : MalaASR
        Computes the features.
    batch : RawBatch
        Waveforms and tokens.

    Returns
    -------
    SpeechBatch
    """
    n_samples = torch.tensor([len(wave) for wave in batch.waves])
    feats, n_frames = model.features(
        pad_sequence(batch.waves, batch_first=True), n_samples
    )
    return SpeechBatch(
        ids=[str(index) for index in range(len(batch.waves))],
        texts=[""] * len(batch.waves),
        speech=feats,
        lengths=n_frames,
        tokens=pad_sequence(batch.tokens, batch_first=True),
        n_tokens=torch.tensor([len(tokens) for tokens in batch.tokens]),
        seconds=batch.seconds,
    )


def _watch_transformer(watch: Stopwatch, transformer: Any) -> None:
    """Watch what SpeechBrain's Conformer and ours have in common."""
    watch.watch(transformer.decoder, "forward", "decoder")
    for layer in transformer.encoder.layers:
        watch.watch(layer.mha_layer, "forward", "attention")
        watch.watch(layer.convolution_module, "forward", "convolution")
        watch.watch(layer.ffn_module1, "forward", "feed-forward")
        watch.watch(layer.ffn_module2, "forward", "feed-forward")
