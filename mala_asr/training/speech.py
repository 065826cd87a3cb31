"""Where training gets its speech: kept features, or samples read each time."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from speechbrain.utils.distributed import run_on_main
from torch import Tensor

from mala_asr.data.audio import SAMPLE_RATE, change_speed, read_audio
from mala_asr.data.feature_cache import FeatureCache
from mala_asr.data.manifest import Utterance
from mala_asr.training.config import ConfigError

if TYPE_CHECKING:
    from mala_asr.models.asr import MalaASR
    from mala_asr.training.data_pipeline import LoadSpeech

logger = logging.getLogger(__name__)

CACHE_MODES = ("memory", "disk", "none")

# The arguments of MalaASR that its features depend on.
_FEATURE_SETTINGS = (
    "sample_rate",
    "n_mels",
    "n_fft",
    "win_length",
    "hop_length",
    "top_db",
)

# Enough utterances for a mean and a deviation that more would not change.
_STATISTICS_UTTERANCES = 2000


def filled_cache(
    model: MalaASR,
    mode: str,
    folder: str | Path,
    needs: Sequence[tuple[Sequence[Utterance], Sequence[float]]],
) -> FeatureCache | None:
    """Make the store of a model's features and compute what it lacks.

    Arguments
    ---------
    model : MalaASR
        Computes the features.
    mode : str
        ``memory``, ``disk`` or ``none``.
    folder : str or Path
        Where ``disk`` keeps them.
    needs : sequence
        Utterances, and the speeds of each, that it should hold.

    Returns
    -------
    FeatureCache or None
        None for ``none``.

    Raises
    ------
    ConfigError
        For another mode, or features that cannot be kept.
    """
    if mode not in CACHE_MODES:
        raise ConfigError(
            f"feature_cache is {mode!r}; choose one of "
            + ", ".join(CACHE_MODES)
        )
    if mode == "none":
        return None
    if model.sample_rate != SAMPLE_RATE:
        raise ConfigError(
            f"features are kept at {SAMPLE_RATE} Hz only, and the model's "
            f"rate is {model.sample_rate}; add --feature_cache none"
        )
    settings = {name: model.config[name] for name in _FEATURE_SETTINGS}

    def make() -> FeatureCache:
        return FeatureCache(
            partial(_features, model),
            key=json.dumps(settings),
            folder=Path(folder) if mode == "disk" else None,
        )

    def fill(cache: FeatureCache) -> None:
        for utterances, speeds in needs:
            cache.fill(utterances, speeds)

    if mode == "disk":
        # One process computes for all; the others then read what it wrote.
        run_on_main(lambda: fill(make()))
        return make()
    cache = make()
    fill(cache)
    return cache


def speech_loader(model: MalaASR, cache: FeatureCache | None) -> LoadSpeech:
    """Give the function that a `SpeechDataset` loads its speech with.

    Arguments
    ---------
    model : MalaASR
        Its sample rate is used without a cache.
    cache : FeatureCache or None
        The store of features, if there is one.

    Returns
    -------
    callable
        Gives features with a cache, samples without.
    """
    if cache is not None:
        return cache.get
    rate = model.sample_rate
    return lambda utterance, speed: read_speech(utterance, speed, rate)


def read_speech(utterance: Utterance, speed: float, rate: int) -> Tensor:
    """Read an utterance's samples, played at a speed.

    Arguments
    ---------
    utterance : Utterance
        The utterance.
    speed : float
        1.1 is a tenth faster, and higher in pitch.
    rate : int
        Sample rate in Hz.

    Returns
    -------
    torch.Tensor
        (samples,).
    """
    wave = read_audio(
        utterance.wav,
        start=utterance.start,
        stop=utterance.stop,
        sample_rate=rate,
    )
    return change_speed(wave, speed)


def fewest_frames(model: MalaASR, seconds: float, speed: float) -> int:
    """Count the CTC frames that speech has at least.

    Arguments
    ---------
    model : MalaASR
        Its frames.
    seconds : float
        Duration at normal speed.
    speed : float
        How fast it is played.

    Returns
    -------
    int
        Frames that CTC can align tokens with.
    """
    frames = int(seconds / speed * 1000 / model.config["hop_length"])
    return int(model.ctc_length(frames))


def set_statistics(
    model: MalaASR, utterances: Sequence[Utterance], cache: FeatureCache | None
) -> None:
    """Normalize a model's features by the mean and deviation of a corpus.

    Arguments
    ---------
    model : MalaASR
        Gets the statistics.
    utterances : sequence of Utterance
        The corpus; evenly spaced ones stand for a large one.
    cache : FeatureCache or None
        Where its features may be found.
    """
    step = -(-len(utterances) // _STATISTICS_UTTERANCES)
    n_mels = model.config["n_mels"]
    count = 0
    total = torch.zeros(n_mels, dtype=torch.float64)
    squares = torch.zeros(n_mels, dtype=torch.float64)
    for utterance in utterances[::step]:
        if cache is None:
            wave = read_speech(utterance, 1.0, model.sample_rate)
            feats = _features(model, wave).double()
        else:
            feats = cache.get(utterance, 1.0).double()
        count += len(feats)
        total += feats.sum(dim=0)
        squares += feats.square().sum(dim=0)
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=1e-6).sqrt()
    model.set_feature_statistics(mean.float(), std.float())
    logger.info("feature statistics from %d frames", count)


def _features(model: MalaASR, wave: Tensor) -> Tensor:
    feats, _ = model.features(wave.unsqueeze(0), torch.tensor([len(wave)]))
    return feats[0]
