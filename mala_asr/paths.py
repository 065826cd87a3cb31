"""Where the files that ship with the package lie."""

from pathlib import Path

from mala_asr.errors import MalaError

_PACKAGE = Path(__file__).resolve().parent

# An installed copy carries the configs inside the package; a checkout (and an
# editable install of it) keeps them at the top of the repository.
_HPARAMS_FOLDERS = (_PACKAGE / "hparams", _PACKAGE.parent / "hparams")


def hparams_file(name: str) -> Path:
    """Find one of the training configs that ship with the package.

    Arguments
    ---------
    name : str
        File name of the config, with or without ``.yaml``.

    Returns
    -------
    Path
        The config, in the installed package or in the checkout.

    Raises
    ------
    MalaError
        If no config has that name; the message lists those that exist.

    Example
    -------
    >>> hparams_file("demo").name
    'demo.yaml'
    """
    folder = next((f for f in _HPARAMS_FOLDERS if f.is_dir()), None)
    if folder is None:
        raise MalaError(
            "the training configs (hparams/*.yaml) are missing from this "
            "installation; install mala_asr again"
        )
    path = folder / f"{name.removesuffix('.yaml')}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise MalaError(f"no config named {name!r}; choose one of: {known}")
    return path
