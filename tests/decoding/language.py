"""A small language, its tokenizers and its language models, for tests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor

from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.decoding.language_model import LanguageModel
from mala_asr.decoding.ngram import train_language_model

TEXTS = ["AB BA", "AB AB BA", "BA AB", "AB", "A BA", "AB BA AB", "BAB AB"] * 3


def train_letters(folder: Path) -> SentencePieceProcessor:
    return load_tokenizer(train_tokenizer(TEXTS, folder, kind="char"))


def train_pieces(folder: Path) -> SentencePieceProcessor:
    return load_tokenizer(train_tokenizer(TEXTS, folder, 9))


def train_lm(
    folder: Path, unit: str, tokenizer: SentencePieceProcessor
) -> LanguageModel:
    pieces = tokenizer if unit == "piece" else None
    return train_language_model(TEXTS, folder, unit, 3, pieces)


# Stands for a model where log-probabilities are given as they are.
AS_GIVEN: Any = SimpleNamespace(
    ctc_log_probs=lambda log_probs: log_probs, ctc_upsampling=1
)


def spelled_out(path: list[int], size: int, share: float) -> torch.Tensor:
    """Log-probabilities that give a path this share of every frame."""
    one_hot = torch.nn.functional.one_hot(torch.tensor([path]), size)
    return (one_hot * share + (1 - one_hot) * (1 - share) / (size - 1)).log()
