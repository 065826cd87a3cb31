"""The model that comes with the package, for those who have none yet.

It is a model folder like any other, made by ``mala-asr export`` from a run of
the config that it is called by.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

PRETRAINED = "mini_librispeech_mala"
_FOLDER = Path(__file__).resolve().parents[1] / "pretrained"


def pretrained_folder() -> Path:
    """Give the model folder that comes with the package.

    Returns
    -------
    Path
        The folder.

    Example
    -------
    >>> (pretrained_folder() / "README.md").is_file()
    True
    """
    return _FOLDER / PRETRAINED


def introduction() -> str:
    """Say in a line what may be expected of the package's model.

    Returns
    -------
    str
        Its name, hours of training and word error rates, and where its card
        is.
    """
    folder = pretrained_folder()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rates = ", ".join(
        f"{totals['WER']:.1f} % on {name}"
        for name, totals in config["results"].items()
    )
    return (
        f"{PRETRAINED} of this package, trained on "
        f"{config['training']['hours']} hours of speech; WER {rates}; see "
        f"{folder / 'README.md'}"
    )


def resolve(model: str | os.PathLike[str]) -> Path:
    """Find a model folder by its path, or the package's own by its name.

    Arguments
    ---------
    model : str or os.PathLike
        A path, or `PRETRAINED`; a folder of that name that is there wins.

    Returns
    -------
    Path
        The folder, which need not exist.

    Example
    -------
    >>> resolve("mini_librispeech_mala") == pretrained_folder()
    True
    >>> resolve("models/mini").as_posix()
    'models/mini'
    """
    path = Path(model)
    if os.fspath(model) == PRETRAINED and not path.is_dir():
        return pretrained_folder()
    return path
