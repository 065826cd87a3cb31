"""SentencePiece tokenizers whose special ids are the model's.

Ids 0 to 3 are the CTC blank, the start and the end of a sentence, and the
unknown; text is segmented as it is written, so decoding an encoded transcript
gives the transcript.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import os
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import sentencepiece

from mala_asr.data.files import replacing, sha256, write_json
from mala_asr.data.manifest import read_manifest
from mala_asr.errors import MalaError

logger = logging.getLogger(__name__)

SPECIAL_PIECES = ("<blank>", "<s>", "</s>", "<unk>")
KINDS = ("char", "unigram", "bpe")
MODEL_NAME = "tokenizer.model"


class TokenizerError(MalaError):
    """A tokenizer that cannot be trained, loaded or used with a model."""


def read_texts(path: str | os.PathLike[str]) -> list[str]:
    """The transcripts of a manifest, or the lines of a text file.

    Arguments
    ---------
    path : str or os.PathLike
        A manifest if the name ends in .csv, plain text otherwise, packed
        if the name ends in .gz.

    Returns
    -------
    list of str
        One text for each utterance or line.

    Raises
    ------
    TokenizerError
        If the text file cannot be read.
    ManifestError
        If the manifest cannot.

    Example
    -------
    >>> path = getfixture("tmp_path") / "text.txt"
    >>> _ = path.write_text("GO ON" + chr(10) + "STOP" + chr(10))
    >>> read_texts(path)
    ['GO ON', 'STOP']
    """
    if Path(path).suffix == ".csv":
        return [utterance.wrd for utterance in read_manifest(path)]
    try:
        data = Path(path).read_bytes()
        if Path(path).suffix == ".gz":
            data = gzip.decompress(data)
        # "utf-8-sig" drops the mark that some editors put at the start.
        return data.decode("utf-8-sig").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"cannot read the text {path} ({error}); give a manifest (.csv) "
            "or a text file in UTF-8"
        ) from error


def train_tokenizer(
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    vocab_size: int | None = None,
    kind: str = "unigram",
) -> Path:
    """Train a tokenizer, check it and write `<folder>/tokenizer.model`.

    One that was trained on the same texts with the same settings is kept.

    Arguments
    ---------
    texts : iterable of str
        The training transcripts.
    folder : str or os.PathLike
        Where the tokenizer goes.
    vocab_size : int, optional
        Number of pieces, the four special ones included. Only a char
        tokenizer can do without: it then has every character of the texts.
    kind : str
        char, unigram or bpe.

    Returns
    -------
    Path
        The SentencePiece model.

    Raises
    ------
    TokenizerError
        If there is no text, the corpus does not allow that many pieces or
        needs more, or some text does not survive encoding and decoding.

    Example
    -------
    >>> texts = ["THE CAT SAT", "THE DOG RAN"]
    >>> path = train_tokenizer(texts, getfixture("tmp_path"), kind="char")
    >>> tokenizer = load_tokenizer(path)
    >>> tokenizer.decode(tokenizer.encode("THE RAT"))
    'THE RAT'
    """
    if kind not in KINDS:
        raise TokenizerError(
            f"no tokenizer of kind {kind!r}; choose one of {', '.join(KINDS)}"
        )
    texts = [words for text in texts if (words := " ".join(text.split()))]
    if not texts:
        raise TokenizerError(
            "no text to train a tokenizer on; give transcripts"
        )
    model, stamp = Path(folder) / MODEL_NAME, Path(folder) / "tokenizer.json"
    settings = _settings(texts, vocab_size, kind)
    if _is_current(model, stamp, settings):
        logger.info("%s is up to date", model)
        return model
    proto = _train(texts, _checked_size(texts, vocab_size, kind), kind)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=proto)
    _check_round_trip(tokenizer, texts)
    with replacing(model) as temporary:
        temporary.write_bytes(proto)
    write_json(stamp, settings | {"model": sha256(model)})
    logger.info("%s: %d pieces", model, tokenizer.get_piece_size())
    return model


def load_tokenizer(
    path: str | os.PathLike[str],
) -> sentencepiece.SentencePieceProcessor:
    """Load a tokenizer and check that its special ids are the model's.

    Arguments
    ---------
    path : str or os.PathLike
        A SentencePiece model written by `train_tokenizer`.

    Returns
    -------
    sentencepiece.SentencePieceProcessor
        The tokenizer.

    Raises
    ------
    TokenizerError
        If it is missing, damaged or has other special ids.

    Example
    -------
    >>> path = train_tokenizer(["GO"], getfixture("tmp_path"), kind="char")
    >>> load_tokenizer(path).id_to_piece(0)
    '<blank>'
    """
    if not os.path.isfile(path):
        raise TokenizerError(
            f"no such tokenizer: {path}; train one with `mala-asr tokenizer`"
        )
    try:
        proto = Path(path).read_bytes()
        if not proto:  # SentencePiece takes nothing for a model
            raise RuntimeError("empty file")
        tokenizer = sentencepiece.SentencePieceProcessor(model_proto=proto)
        pieces = [
            tokenizer.id_to_piece(index)
            for index in range(tokenizer.get_piece_size())
        ]
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"{path} is not a SentencePiece model; train one with "
            "`mala-asr tokenizer`"
        ) from error
    special = pieces[: len(SPECIAL_PIECES)]
    if special != list(SPECIAL_PIECES):
        raise TokenizerError(
            f"{path} starts with the pieces {' '.join(special)}, a model "
            f"needs {' '.join(SPECIAL_PIECES)}; train one with "
            "`mala-asr tokenizer`"
        )
    # The pieces may be there and not be marked as what they are.
    ids = (
        tokenizer.pad_id(),
        tokenizer.bos_id(),
        tokenizer.eos_id(),
        tokenizer.unk_id(),
    )
    if ids != tuple(range(len(SPECIAL_PIECES))):
        raise TokenizerError(
            f"{path} has the special ids {ids}, a model needs 0 to 3; train "
            "one with `mala-asr tokenizer`"
        )
    return tokenizer


def check_vocabulary(
    tokenizer: sentencepiece.SentencePieceProcessor, output_size: int
) -> None:
    """Refuse a tokenizer whose size is not that of the output layer.

    Arguments
    ---------
    tokenizer : sentencepiece.SentencePieceProcessor
        The tokenizer.
    output_size : int
        Outputs of the model.

    Raises
    ------
    TokenizerError
        If the two sizes differ.

    Example
    -------
    >>> path = train_tokenizer(["GO"], getfixture("tmp_path"), kind="char")
    >>> check_vocabulary(load_tokenizer(path), 7)
    """
    pieces = tokenizer.get_piece_size()
    if pieces != output_size:
        raise TokenizerError(
            f"the tokenizer has {pieces} pieces, the model {output_size} "
            f"outputs; set the model's vocabulary size to {pieces} or train "
            f"a tokenizer of {output_size}"
        )


def _settings(
    texts: list[str], vocab_size: int | None, kind: str
) -> dict[str, object]:
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return {
        "texts": digest,
        "vocab_size": vocab_size,
        "kind": kind,
        "sentencepiece": sentencepiece.__version__,
    }


def _is_current(model: Path, stamp: Path, settings: dict[str, object]) -> bool:
    try:
        kept = json.loads(stamp.read_text())
        return bool(kept == settings | {"model": sha256(model)})
    except (OSError, ValueError):
        return False


def _checked_size(texts: list[str], vocab_size: int | None, kind: str) -> int:
    """The size to ask for, once it is neither missing nor too small."""
    characters = {character for text in texts for character in text}
    # SentencePiece writes the space as a piece of its own and puts one
    # before every text.
    least = len(characters - {" "}) + 1 + len(SPECIAL_PIECES)
    if vocab_size is None:
        if kind != "char":
            raise TokenizerError(
                f"a {kind} tokenizer needs a vocabulary size; give one "
                f"above {least}"
            )
        return least
    if vocab_size < least:
        raise TokenizerError(
            f"a vocabulary of {vocab_size} is too small: the texts have "
            f"{least - len(SPECIAL_PIECES)} characters and there are "
            f"{len(SPECIAL_PIECES)} special pieces; give at least {least}"
        )
    if kind == "char" and vocab_size > least:
        raise _too_large(vocab_size, least)
    return vocab_size


def _too_large(vocab_size: int, most: int | None) -> TokenizerError:
    advice = "a smaller one" if most is None else f"{most} or less"
    return TokenizerError(
        f"a vocabulary of {vocab_size} is more than the texts allow; "
        f"give {advice}"
    )


def _train(texts: list[str], vocab_size: int, kind: str) -> bytes:
    model = io.BytesIO()
    longest = max(len(text.encode()) for text in texts)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            character_coverage=1.0,
            normalization_rule_name="identity",
            # Longer lines would be left out without a word.
            max_sentence_length=max(longest, 10) + 1,  # it takes no less
            num_threads=1,  # the same texts give the same pieces
            minloglevel=2,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            pad_piece=SPECIAL_PIECES[0],
            bos_piece=SPECIAL_PIECES[1],
            eos_piece=SPECIAL_PIECES[2],
            unk_piece=SPECIAL_PIECES[3],
        )
    except RuntimeError as error:
        if "too high" not in str(error):
            raise TokenizerError(
                f"SentencePiece cannot train on these texts: "
                f"{' '.join(str(error).split())}"
            ) from error
        limit = re.search(r"<= (\d+)", str(error))
        most = int(limit.group(1)) if limit else None
        raise _too_large(vocab_size, most) from error
    return model.getvalue()


def _check_round_trip(
    tokenizer: sentencepiece.SentencePieceProcessor, texts: list[str]
) -> None:
    unknown = tokenizer.unk_id()
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        if unknown in ids or tokenizer.decode(ids) != text:
            raise TokenizerError(
                f"the tokenizer does not give back the text {text[:60]!r}; "
                "remove its unusual characters"
            )
