"""Estimating n-gram language models with kaldingram, and measuring them."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.flashlight import load_kenlm
from mala_asr.decoding.kenlm_binary import write_binary
from mala_asr.decoding.language_model import (
    LanguageModel,
    tokenizer_checksum,
    unit_pieces,
)

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# The longest n-gram that flashlight-text's KenLM is built for.
MAX_ORDER = 6


@dataclass(frozen=True)
class Perplexity:
    """How well a language model predicts texts.

    Arguments
    ---------
    units : int
        Words or pieces of the texts.
    unknown : int
        Those among them that the model does not know.
    value : float
        The perplexity of the known ones and the ends of sentences.
    """

    units: int
    unknown: int
    value: float


def train_language_model(
    texts: Iterable[str],
    folder: Path,
    unit: str,
    order: int,
    tokenizer: SentencePieceProcessor | None = None,
) -> LanguageModel:
    """Estimate a Kneser-Ney language model and write its files.

    `<unit>.arpa`, `<unit>.bin` (KenLM's binary of the same) and
    `<unit>.json`, which says what they are.

    Arguments
    ---------
    texts : Iterable[str]
        Sentences.
    folder : Path
        Where the files go.
    unit : str
        ``word``, or ``piece``: of the tokenizer.
    order : int
        Units of the longest n-gram, 2 to 6.
    tokenizer : SentencePieceProcessor, optional
        The acoustic model's; needed for pieces.

    Returns
    -------
    LanguageModel
        The binary and what is known of it.

    Raises
    ------
    DecodingError
        When a library is missing, the order is out of range or there is no
        text.
    """
    if not 2 <= order <= MAX_ORDER:
        raise DecodingError(f"order is {order}; give 2 to {MAX_ORDER}")
    sentences = [
        line for text in texts if (line := units_of(text, unit, tokenizer))
    ]
    if not sentences:
        raise DecodingError("no text to estimate a language model on")
    vocabulary = sorted({token for line in sentences for token in line})
    if tokenizer is not None and unit == "piece":
        # A piece that the texts lack would be impossible.
        unseen = set(unit_pieces(tokenizer)).difference(vocabulary)
        sentences += [[piece] for piece in sorted(unseen)]
        vocabulary = sorted({*vocabulary, *unseen})
    folder.mkdir(parents=True, exist_ok=True)
    arpa, binary = (folder / f"{unit}.{kind}" for kind in ("arpa", "bin"))
    _estimate(sentences, order, arpa)
    write_binary(arpa, binary)
    checksum = None
    if tokenizer is not None and unit == "piece":
        checksum = tokenizer_checksum(tokenizer)
    lm = LanguageModel(binary, unit, order, vocabulary, checksum)
    lm.describe(binary)
    return lm


def units_of(
    text: str, unit: str, tokenizer: SentencePieceProcessor | None
) -> list[str]:
    """Cut a text into what a language model is over.

    Arguments
    ---------
    text : str
        A sentence.
    unit : str
        ``word`` or ``piece``.
    tokenizer : SentencePieceProcessor, optional
        Needed for pieces.

    Returns
    -------
    list[str]
        The words or pieces.

    Example
    -------
    >>> units_of("GO  ON", "word", None)
    ['GO', 'ON']
    """
    if unit == "word":
        return text.split()
    if tokenizer is None:
        raise DecodingError("a language model of pieces needs the tokenizer")
    return [tokenizer.id_to_piece(i) for i in tokenizer.encode(text)]


def perplexity(
    lm: LanguageModel,
    texts: Iterable[str],
    tokenizer: SentencePieceProcessor | None = None,
) -> Perplexity:
    """Measure a language model on texts that it was not estimated on.

    Arguments
    ---------
    lm : LanguageModel
        The language model.
    texts : Iterable[str]
        Sentences.
    tokenizer : SentencePieceProcessor, optional
        Needed for pieces.

    Returns
    -------
    Perplexity
        As SRILM counts: unknown units are left out, ends of sentences are
        in.
    """
    kenlm = load_kenlm(lm.path, [*lm.vocabulary, "<unk>"])
    index = {unit: number for number, unit in enumerate(lm.vocabulary)}
    unknown_index = len(index)
    total, count, unknown, scored = 0.0, 0, 0, 0
    for text in texts:
        units = units_of(text, lm.unit, tokenizer)
        if not units:
            continue
        state = kenlm.start(False)
        for unit in units:
            state, log10 = kenlm.score(state, index.get(unit, unknown_index))
            if unit in index:
                total, scored = total + log10, scored + 1
        count += len(units)
        unknown += sum(unit not in index for unit in units)
        total, scored = total + kenlm.finish(state)[1], scored + 1
    value = 10 ** (-total / scored) if scored else math.nan
    return Perplexity(count, unknown, value)


def _estimate(
    sentences: Sequence[Sequence[str]], order: int, arpa: Path
) -> None:
    try:
        from kaldingram.train import NgramCounts
    except ImportError as error:
        raise DecodingError(
            "estimating a language model needs kaldingram: "
            'pip install "mala_asr[lm]"'
        ) from error
    counts = NgramCounts(order)
    for units in sentences:
        counts.add_raw_counts_from_line(" ".join(units))
    # It reports its own progress, a bar for every step.
    with contextlib.redirect_stderr(io.StringIO()):
        counts.cal_discounting_constants()
        counts.cal_f()
        counts.cal_bow()
        with open(arpa, "w", encoding="utf-8") as file:
            counts.print_as_arpa(file)
