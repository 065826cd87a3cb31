"""flashlight-text and the KenLM inside it, which are an extra."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mala_asr.decoding.errors import DecodingError

_INSTALL = (
    "beam search over CTC and language models need flashlight-text (Python "
    '3.10 to 3.12): pip install "mala_asr[lm]"'
)


def flashlight() -> Any:
    """Load the decoders.

    Returns
    -------
    module
        ``flashlight.lib.text.decoder``.

    Raises
    ------
    DecodingError
        When it is not installed.
    """
    try:
        from flashlight.lib.text import decoder
    except ImportError as error:
        raise DecodingError(_INSTALL) from error
    return decoder


def load_kenlm(path: Path, units: Iterable[str]) -> Any:
    """Load a language model by KenLM.

    Arguments
    ---------
    path : Path
        ARPA, or KenLM's binary.
    units : Iterable[str]
        The words or pieces by their numbers.

    Returns
    -------
    flashlight.lib.text.decoder.kenlm.KenLM
        The language model. Its scores are logarithms to base 10.

    Raises
    ------
    DecodingError
        When KenLM is not installed or cannot read the file.
    """
    try:
        from flashlight.lib.text.decoder.kenlm import KenLM
        from flashlight.lib.text.dictionary import Dictionary
    except ImportError as error:
        raise DecodingError(_INSTALL) from error
    dictionary = Dictionary()
    for unit in units:
        dictionary.add_entry(unit)
    try:
        return KenLM(str(path), dictionary)
    except RuntimeError as error:
        raise DecodingError(
            f"KenLM cannot read {path} ({' '.join(str(error).split())}); "
            "make it again with 'mala-asr train-lm'"
        ) from error
