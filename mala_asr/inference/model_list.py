"""Model folders, found and described."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mala_asr.inference.model_folder import (
    CONFIG,
    FORMAT,
    LM,
    load_model_folder,
)


@dataclass(frozen=True)
class ModelDescription:
    """What a user may want to know of a model before using it.

    Arguments
    ---------
    folder : str
        The model folder.
    attention : str
        Name of the encoder's attention.
    encoder_layers : int
        Layers of the encoder.
    decoder_layers : int
        Layers of the attention decoder; 0 where there is none.
    d_model : int
        Width of the model.
    parameters : int
        Numbers that were learned.
    tokens : int
        Size of the vocabulary.
    frame_ms : float
        Milliseconds of a frame that CTC labels.
    sample_rate : int
        In Hz.
    language_model : bool
        Whether the folder has one.
    decoding : dict
        The decoder and its options.
    results : dict
        Word error rate in percent by test set.
    bytes : int
        Size of the folder's files.
    version : str
        The mala_asr that wrote it.
    """

    folder: str
    attention: str
    encoder_layers: int
    decoder_layers: int
    d_model: int
    parameters: int
    tokens: int
    frame_ms: float
    sample_rate: int
    language_model: bool
    decoding: dict[str, Any]
    results: dict[str, Any]
    bytes: int
    version: str


def find_model_folders(root: str | os.PathLike[str]) -> Iterator[Path]:
    """Search for model folders.

    Arguments
    ---------
    root : str or os.PathLike
        Where to search, to its depth; hidden folders are left out.

    Yields
    ------
    Path
        A folder with the ``config.json`` of a model, whole or not.
    """
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith("."))
        if CONFIG in files and _is_ours(Path(folder) / CONFIG):
            names.clear()
            yield Path(folder)


def describe_model(folder: str | os.PathLike[str]) -> ModelDescription:
    """Load a model folder and describe it.

    Arguments
    ---------
    folder : str or os.PathLike
        The folder.

    Returns
    -------
    ModelDescription
        The description.

    Raises
    ------
    ModelFolderError
        When the folder cannot be used.
    TokenizerError
        When its tokenizer cannot be.
    """
    loaded = load_model_folder(folder)
    config, settings = loaded.config, loaded.model.config
    results = config.get("results")
    return ModelDescription(
        folder=str(folder),
        attention=settings["attention"],
        encoder_layers=settings["num_encoder_layers"],
        decoder_layers=(
            settings["num_decoder_layers"] if loaded.model.has_decoder else 0
        ),
        d_model=settings["d_model"],
        parameters=sum(p.numel() for p in loaded.model.parameters()),
        tokens=settings["vocab_size"],
        frame_ms=round(1000 * loaded.model.frame_shift, 3),
        sample_rate=settings["sample_rate"],
        language_model=LM in config["sha256"],
        decoding=loaded.decoding({}).given(),
        results={
            name: totals.get("WER")
            for name, totals in (
                results.items() if isinstance(results, dict) else ()
            )
            if isinstance(totals, dict)
        },
        bytes=sum(p.stat().st_size for p in loaded.folder.iterdir()),
        version=str(config.get("mala_asr_version")),
    )


def _is_ours(path: Path) -> bool:
    try:
        return f'"{FORMAT}"'.encode() in path.read_bytes()
    except OSError:
        return False
