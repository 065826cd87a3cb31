"""How the attention of trained models behaves on recordings."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from mala_asr.data.audio import AudioError, read_audio
from mala_asr.devices import find_device
from mala_asr.errors import MalaError
from mala_asr.inference.model_folder import load_model_folder
from mala_asr.models import MalaASR
from mala_asr.models.inspection import (
    AttentionFigures,
    check_readings,
    inspect_encoder,
)

OnError = Callable[[str, AudioError], None]


class InspectionError(MalaError):
    """An inspection that has nothing to look at."""


@dataclass(frozen=True)
class ModelFigures:
    """One attention of one model over all recordings.

    Arguments
    ---------
    model : str
        The model folder, as it was given, and whether it is untrained.
    attention : str
        The model's own, or as what its queries and keys were read.
    is_own : bool
        Whether it is the model's own.
    layers : list of AttentionFigures
        Values per head and query, the first layer first.
    """

    model: str
    attention: str
    is_own: bool
    layers: list[AttentionFigures]

    @cached_property
    def whole(self) -> AttentionFigures:
        """The queries of all layers in a row."""
        return self.layers[0].pool(*self.layers[1:])


@dataclass(frozen=True)
class Inspection:
    """What `inspect_files` found.

    Arguments
    ---------
    models : list of ModelFigures
        One for each model and attention.
    seconds : dict of str to float
        The recordings that could be read, and their lengths.
    """

    models: list[ModelFigures] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def inspect_files(
    folders: Sequence[str | os.PathLike[str]],
    paths: Iterable[str | os.PathLike[str]],
    readings: Sequence[str] = (),
    untrained_seed: int | None = None,
    max_queries: int | None = None,
    device: str = "auto",
    on_error: OnError | None = None,
) -> Inspection:
    """Measure the attention of models on recordings, one at a time.

    Arguments
    ---------
    folders : sequence of str or os.PathLike
        Model folders.
    paths : iterable of str or os.PathLike
        Audio files of any rate and number of channels.
    readings : sequence of str
        Read the queries and keys as these attentions too: ``mala``,
        ``linear``, ``inline``, ``softmax``.
    untrained_seed : int, optional
        Show each model beside one of its architecture with weights drawn
        from this seed. Feature normalization stays the trained model's.
    max_queries : int, optional
        Form the scores of so many queries of a recording, evenly spread;
        None for all.
    device : str
        ``auto``, ``cpu``, ``cuda``, ``cuda:1`` ...
    on_error : callable, optional
        Called with a file that cannot be read and the reason; the others go
        on. Without it the error is raised.

    Returns
    -------
    Inspection
        Figures per model, attention, layer, head and query.

    Raises
    ------
    ModelFolderError
        When a folder cannot be used.
    ModelOptionError
        When a model's attention has no scores, or not those of a reading.
    DeviceError
        When there is no such device.
    AudioError
        For a file that cannot be read, unless ``on_error`` is given.
    InspectionError
        When no file could be read.
    """
    place = find_device(device)
    models = _load_models(folders, readings, untrained_seed, place)
    parts: dict[tuple[str, str], dict[int, list[AttentionFigures]]]
    parts = defaultdict(lambda: defaultdict(list))
    result = Inspection()
    rates = {model.sample_rate for model in models.values()}
    for path in [os.fspath(path) for path in paths]:
        try:
            waves = {rate: read_audio(path, sample_rate=rate) for rate in rates}
        except AudioError as error:
            if on_error is None:
                raise
            on_error(path, error)
            continue
        for name, model in models.items():
            wave = waves[model.sample_rate].to(place)
            result.seconds[path] = len(wave) / model.sample_rate
            n_samples = torch.tensor([len(wave)], device=place)
            feats, n_frames = model.features(wave.unsqueeze(0), n_samples)
            for found in inspect_encoder(
                model, feats, n_frames, readings, max_queries
            ):
                parts[name, found.attention][found.layer].append(
                    found.figures.to("cpu")
                )
    if not parts:
        raise InspectionError("no recording could be read; give an audio file")
    for (name, attention), layers in parts.items():
        is_own = attention == models[name].config["attention"]
        pooled = [first.pool(*rest) for first, *rest in layers.values()]
        result.models.append(ModelFigures(name, attention, is_own, pooled))
    return result


def _load_models(
    folders: Sequence[str | os.PathLike[str]],
    readings: Sequence[str],
    untrained_seed: int | None,
    place: torch.device,
) -> dict[str, MalaASR]:
    models: dict[str, MalaASR] = {}
    for folder in dict.fromkeys(os.fspath(folder) for folder in folders):
        trained = load_model_folder(Path(folder)).model
        check_readings(trained.config["attention"], readings)
        models[folder] = trained.to(place)
        if untrained_seed is not None:
            name = f"{folder}, untrained (seed {untrained_seed})"
            models[name] = _draw_anew(trained, untrained_seed).to(place)
    return models


def _draw_anew(trained: MalaASR, seed: int) -> MalaASR:
    """A model of the same architecture that was never trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MalaASR(**trained.config)
    model.set_feature_statistics(trained.feature_mean, trained.feature_std)
    return model.eval()
