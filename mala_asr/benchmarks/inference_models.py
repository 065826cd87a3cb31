"""The models of the inference benchmark, made before its sides start."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from mala_asr.benchmarks.inference_sides import GREEDY, STOCK, Folders
from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.inference.export import export_model_folder
from mala_asr.inference.model_folder import (
    ONNX,
    ONNX_INT8,
    TOKENIZER,
    load_model_folder,
    save_model_folder,
)
from mala_asr.models import MalaASR


def prepare_folders(
    sides: Iterable[str], model: Path | None, place: Path
) -> Folders:
    """Make the model folders that the sides need.

    Arguments
    ---------
    sides : iterable of str
        Some of `SIDES`.
    model : Path, optional
        Our model folder; that of an untrained one if None.
    place : Path
        Where to make them.

    Returns
    -------
    Folders
        Where they are.
    """
    chosen = set(sides)
    source = _untrained(place) if model is None else model
    folders = Folders(place / "ours", place / "stock")
    graphs = []
    if chosen & {"ours, ONNX", "ours, ONNX int8"}:
        graphs = [ONNX, ONNX_INT8]
    export_model_folder(source, folders.ours, graphs=graphs)
    for side in chosen & STOCK.keys():
        _save_stock(folders, side)
    return folders


def _untrained(place: Path) -> Path:
    """A model of the sizes of SpeechBrain's conformer_small."""
    alphabet = " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ'")
    path = train_tokenizer([alphabet], place / "tokenizer", kind="char")
    torch.manual_seed(0)
    model = MalaASR(len(load_tokenizer(path)), ctc_weight=1.0)
    return save_model_folder(
        place / "untrained", model, path, {"decoding": GREEDY}
    )


def _save_stock(folders: Folders, side: str) -> None:
    settings = dict(load_model_folder(folders.ours).model.config)
    settings |= {"attention": STOCK[side], "attention_options": {}}
    torch.manual_seed(0)
    save_model_folder(
        folders.stock / side,
        MalaASR(**settings),
        folders.ours / TOKENIZER,
        {"decoding": GREEDY},
    )
