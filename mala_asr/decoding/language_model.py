"""N-gram language models: which file, over what units, made for whom.

A file of KenLM's names neither its units nor what it belongs to. So beside
`NAME.bin` or `NAME.arpa` of `mala-asr train-lm` there is a `NAME.json`:

    unit         word, or piece of a tokenizer
    order        words or pieces of the longest n-gram
    tokenizer    checksum of the tokenizer that the pieces are of
    vocabulary   the words or pieces

An ARPA file from elsewhere does without: what it holds is read from it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.kenlm_binary import is_binary, write_binary

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

logger = logging.getLogger(__name__)

UNITS = ("word", "piece")
_FORMAT = "mala_asr language model"
_MARKERS = frozenset({"<s>", "</s>", "<unk>", "<UNK>"})

# A language model that shares less than this with the tokenizer is of
# another language, or of the other case.
_LEAST_SHARED = 0.5


@dataclass(frozen=True)
class LanguageModel:
    """An n-gram language model's file and what is known of it.

    Arguments
    ---------
    path : Path
        KenLM binary or ARPA.
    unit : str
        ``word`` or ``piece``.
    order : int
        Units of the longest n-gram.
    vocabulary : list[str]
        The units, without the markers of sentences and the unknown.
    tokenizer : str, optional
        Checksum of the tokenizer that the pieces are of.
    """

    path: Path
    unit: str
    order: int
    vocabulary: list[str]
    tokenizer: str | None = None

    def describe(self, path: Path) -> None:
        """Write what is known of it beside a file.

        Arguments
        ---------
        path : Path
            The language model's file; its name ends in ``.json`` instead.
        """
        facts = {
            "format": _FORMAT,
            "unit": self.unit,
            "order": self.order,
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocabulary,
        }
        text = json.dumps(facts, ensure_ascii=False, indent=0)
        description_path(path).write_text(text + "\n", encoding="utf-8")


def description_path(path: Path) -> Path:
    """Find the description of a language model.

    Arguments
    ---------
    path : Path
        The language model's file.

    Returns
    -------
    Path
        Where its description is, if it has one.

    Example
    -------
    >>> description_path(Path("word.bin")).name
    'word.json'
    """
    return path.with_suffix(".json")


def tokenizer_checksum(tokenizer: SentencePieceProcessor) -> str:
    """Tell tokenizers apart.

    Arguments
    ---------
    tokenizer : SentencePieceProcessor
        The tokenizer.

    Returns
    -------
    str
        SHA-256 of its model.
    """
    return hashlib.sha256(tokenizer.serialized_model_proto()).hexdigest()


def find_language_model(
    path: str | os.PathLike[str], tokenizer: SentencePieceProcessor
) -> LanguageModel:
    """Find out what a language model is, and that it fits a tokenizer.

    Arguments
    ---------
    path : str or os.PathLike
        KenLM binary with its description, or ARPA.
    tokenizer : SentencePieceProcessor
        The tokenizer of the acoustic model.

    Returns
    -------
    LanguageModel
        What is known of it.

    Raises
    ------
    DecodingError
        When there is no such file, it is no language model, or it does not
        belong to the tokenizer.
    """
    path = Path(path)
    if not path.is_file():
        raise DecodingError(
            f"no language model {path}; make one with 'mala-asr train-lm'"
        )
    if description_path(path).is_file():
        found = _read_description(path)
    else:
        found = _read_arpa(path, tokenizer)
    _check_fit(found, tokenizer)
    return found


def pack_language_model(lm: LanguageModel, binary: Path) -> None:
    """Copy a language model with its description, as KenLM's binary.

    Arguments
    ---------
    lm : LanguageModel
        The language model.
    binary : Path
        The file to write; its description goes beside it.

    Raises
    ------
    DecodingError
        When the binary cannot be made.
    """
    if is_binary(lm.path):
        shutil.copyfile(lm.path, binary)
    else:
        write_binary(lm.path, binary)
    lm.describe(binary)


def spellings(
    words: Sequence[str], tokenizer: SentencePieceProcessor
) -> dict[str, list[int]]:
    """Spell words in pieces.

    Arguments
    ---------
    words : Sequence[str]
        The words.
    tokenizer : SentencePieceProcessor
        The tokenizer.

    Returns
    -------
    dict[str, list[int]]
        The token ids of each word that the tokenizer can spell.
    """
    unknown = tokenizer.unk_id()
    spelled = zip(words, tokenizer.encode(list(words)), strict=True)
    return {word: ids for word, ids in spelled if ids and unknown not in ids}


def unit_pieces(tokenizer: SentencePieceProcessor) -> list[str]:
    """List the pieces that a text can have.

    Arguments
    ---------
    tokenizer : SentencePieceProcessor
        The tokenizer.

    Returns
    -------
    list[str]
        Its pieces but blank, bos, eos and unknown.
    """
    return [
        tokenizer.id_to_piece(index)
        for index in range(tokenizer.get_piece_size())
        if not tokenizer.is_control(index) and not tokenizer.is_unknown(index)
    ]


def _read_description(path: Path) -> LanguageModel:
    description = description_path(path)
    try:
        facts = json.loads(description.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT or facts["unit"] not in UNITS:
            raise ValueError("of another program")
        return LanguageModel(
            path,
            facts["unit"],
            int(facts["order"]),
            [str(unit) for unit in facts["vocabulary"]],
            facts["tokenizer"],
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DecodingError(
            f"{description} does not describe a language model ({error}); "
            "make it again with 'mala-asr train-lm'"
        ) from error


def _read_arpa(path: Path, tokenizer: SentencePieceProcessor) -> LanguageModel:
    order, vocabulary = _arpa_header(path)
    pieces = set(unit_pieces(tokenizer))
    # Words, even one-letter ones, are not all pieces of a tokenizer.
    unit = "piece" if pieces.issuperset(vocabulary) else "word"
    return LanguageModel(path, unit, order, vocabulary)


def _arpa_header(path: Path) -> tuple[int, list[str]]:
    """Order and unigrams of an ARPA file."""
    vocabulary, order = [], 0
    try:
        with open(path, encoding="utf-8") as lines:
            for line in _section(lines, "\\data\\"):
                order += line.startswith("ngram ")
            for line in _section(lines, "\\1-grams:", started=True):
                vocabulary.append(line.split()[1])
    except (UnicodeDecodeError, IndexError):
        vocabulary = []
    if not vocabulary:
        raise DecodingError(
            f"{path} is not an ARPA file, and nothing beside it "
            f"({description_path(path).name}) says what it is; give a "
            "language model of 'mala-asr train-lm', or an ARPA file"
        )
    return order, [unit for unit in vocabulary if unit not in _MARKERS]


def _section(
    lines: Iterator[str], title: str, started: bool = False
) -> Iterator[str]:
    """Lines of an ARPA file's section, up to the title of the next."""
    for line in lines:
        text = line.strip()
        if text.startswith("\\"):
            if started:
                return
            started = text == title
        elif started and text:
            yield text


def _check_fit(lm: LanguageModel, tokenizer: SentencePieceProcessor) -> None:
    checksum = tokenizer_checksum(tokenizer)
    if lm.unit == "piece" and lm.tokenizer not in (None, checksum):
        raise DecodingError(
            f"the language model {lm.path} is over the pieces of another "
            "tokenizer than the model's; make one with 'mala-asr train-lm "
            "--unit piece' and the model's tokenizer.model"
        )
    if lm.unit == "piece":
        wanted, known = unit_pieces(tokenizer), set(lm.vocabulary)
    else:
        wanted = lm.vocabulary
        known = set(spellings(lm.vocabulary, tokenizer))
    missing = [unit for unit in wanted if unit not in known]
    if len(missing) > (1 - _LEAST_SHARED) * len(wanted):
        raise DecodingError(
            f"the language model {lm.path} does not belong to the model's "
            f"tokenizer: {len(missing)} of {len(wanted)} {lm.unit}s are "
            f"unknown to the other, such as '{missing[0]}'; train one on "
            "texts like the model's"
        )
    if missing:
        logger.warning(
            "%s: %d of %d %ss are unknown to the other side and cannot be "
            "recognized with it, such as '%s'",
            lm.path,
            len(missing),
            len(wanted),
            lm.unit,
            missing[0],
        )
