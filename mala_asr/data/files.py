"""Writing files so that an interrupted run leaves none half written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, renamed onto it if all goes well.

    Readers see the old file or the whole new one, never a part of it.

    Arguments
    ---------
    path : str or os.PathLike
        The file to write; its folder is made where it is missing.

    Yields
    ------
    Path
        The temporary file to write.

    Example
    -------
    >>> folder = getfixture("tmp_path")
    >>> with replacing(folder / "new" / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> (folder / "new" / "a.txt").read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        # Cut, so that a long name does not become too long.
        prefix=f".{path.name[:40]}.",
        suffix=path.suffix,
        dir=path.parent,
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; give this one what the umask allows.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(
    path: str | os.PathLike[str], content: Mapping[str, Any] | Sequence[Any]
) -> None:
    """Write a file of JSON, whole or not at all.

    Arguments
    ---------
    path : str or os.PathLike
        The file to write.
    content : Mapping or Sequence
        What goes into it.

    Example
    -------
    >>> path = getfixture("tmp_path") / "a.json"
    >>> write_json(path, {"epochs": 2})
    >>> path.read_text()
    '{\\n  "epochs": 2\\n}\\n'
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Arguments
    ---------
    path : str or os.PathLike
        The file to read.

    Returns
    -------
    str
        64 hexadecimal digits.

    Example
    -------
    >>> path = getfixture("tmp_path") / "empty"
    >>> path.touch()
    >>> sha256(path)[:8]
    'e3b0c442'
    """
    return file_digest(path, "sha256")


def file_digest(path: str | os.PathLike[str], algorithm: str) -> str:
    """The digest of a file's bytes, in hexadecimal.

    Arguments
    ---------
    path : str or os.PathLike
        The file to read.
    algorithm : str
        A name that hashlib knows, such as "md5".

    Returns
    -------
    str
        The digest's hexadecimal digits.

    Example
    -------
    >>> path = getfixture("tmp_path") / "empty"
    >>> path.touch()
    >>> file_digest(path, "md5")[:8]
    'd41d8cd9'
    """
    digest = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
