"""A small language of tones, and a model that learns it in seconds.

Each letter is a tone, so that a test can ask for the right words instead of
any words.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from sentencepiece import SentencePieceProcessor

from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.models import MalaASR

LETTERS = "ABCD"
SAMPLE_RATE = 16000
LETTER_SECONDS = 0.2
LETTER_FRAMES = 5  # of the encoder, 40 ms each
IGNORED = -100


class ToneModel(NamedTuple):
    """A model that reads tones, its tokenizer and the tokenizer's file."""

    model: MalaASR
    tokenizer: SentencePieceProcessor
    tokenizer_path: Path


def tones(text: str, sample_rate: int = SAMPLE_RATE) -> torch.Tensor:
    """Say a text: a tone for each letter, silence for a space."""
    time = torch.arange(round(LETTER_SECONDS * sample_rate)) / sample_rate
    level = 0.3 * (time / 0.02).clamp(0, 1) * ((0.16 - time) / 0.02).clamp(0, 1)
    parts = [torch.zeros_like(time)]
    for letter in f"{text} ":
        pitch = 300 * 1.5 ** LETTERS.find(letter)
        tone = level * torch.sin(2 * torch.pi * pitch * time)
        parts.append(torch.zeros_like(time) if letter == " " else tone)
    return torch.cat(parts)


def texts(count: int, seed: int) -> list[str]:
    """Draw texts of one to three words."""
    rng = random.Random(seed)
    return [
        " ".join(
            "".join(rng.choices(LETTERS, k=rng.randint(1, 3)))
            for _ in range(rng.randint(1, 3))
        )
        for _ in range(count)
    ]


def train_tone_model(folder: Path, steps: int = 80) -> ToneModel:
    """Train a CTC/attention model on tones."""
    path = train_tokenizer([" ".join(LETTERS)], folder, kind="char")
    tokenizer = load_tokenizer(path)
    torch.manual_seed(0)
    model = MalaASR(
        len(tokenizer),
        d_model=64,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ffn=128,
        kernel_size=7,
        dropout=0.0,
        ctc_weight=0.5,
        n_mels=40,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        loss = _loss(model, tokenizer, texts(8, seed=step), first=step == 0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    return ToneModel(model.eval(), tokenizer, path)


def _loss(
    model: MalaASR,
    tokenizer: SentencePieceProcessor,
    batch: list[str],
    first: bool,
) -> torch.Tensor:
    waves = [tones(text) for text in batch]
    n_samples = torch.tensor([len(wave) for wave in waves])
    feats, n_frames = model.features(_pad(waves), n_samples)
    if first:
        model.set_feature_statistics(feats.mean((0, 1)), feats.std((0, 1)))
    tokens = [torch.tensor(ids) for ids in tokenizer.encode(batch)]
    bos = torch.tensor([tokenizer.bos_id()])
    eos = torch.tensor([tokenizer.eos_id()])
    out = model(feats, n_frames, _pad([torch.cat((bos, t)) for t in tokens]))
    # Where each tone lies is known: the middle of its frames is labeled and
    # the rest is blank, which is learned much sooner than by CTC.
    labels = torch.zeros(out.ctc_log_probs.shape[:2], dtype=torch.long)
    for row, ids in zip(labels, tokens, strict=True):
        row[2 : LETTER_FRAMES * len(ids) : LETTER_FRAMES] = ids
    by_frame = torch.nn.functional.nll_loss(
        out.ctc_log_probs.transpose(1, 2), labels
    )
    by_token = torch.nn.functional.nll_loss(
        out.decoder_log_probs.transpose(1, 2),
        _pad([torch.cat((t, eos)) for t in tokens], IGNORED),
    )
    return by_frame + by_token


def _pad(rows: Sequence[torch.Tensor], value: int = 0) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        list(rows), batch_first=True, padding_value=value
    )
