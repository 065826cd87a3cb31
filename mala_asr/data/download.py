"""Corpora fetched from OpenSLR: resumed, verified, unpacked.

An archive grows in a `.part` file that a later run goes on with; its MD5 is
compared with the one the server publishes; it is unpacked beside its final
place and moved there whole. So a split's folder is there and complete, or not
there.
"""

from __future__ import annotations

import http.client
import logging
import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from mala_asr.data.files import file_digest
from mala_asr.errors import MalaError

logger = logging.getLogger(__name__)

OPENSLR = "https://www.openslr.org/resources"
CHECKSUMS = "md5sum.txt"
_TIMEOUT = 30  # seconds without a byte
_ATTEMPTS = 5
_BLOCK = 1 << 18


class DownloadError(MalaError):
    """A corpus that could not be fetched; what came so far is kept."""


@dataclass(frozen=True)
class Corpus:
    """A corpus of OpenSLR.

    Arguments
    ---------
    number : int
        Its number there (SLR12 is 12).
    splits : tuple of str
        Its splits; each is an archive `<split>.tar.gz`.

    Example
    -------
    >>> CORPORA["mini-librispeech"].splits
    ('train-clean-5', 'dev-clean-2')
    """

    number: int
    splits: tuple[str, ...]


CORPORA = {
    "librispeech": Corpus(
        12,
        (
            "train-clean-100",
            "train-clean-360",
            "train-other-500",
            "dev-clean",
            "dev-other",
            "test-clean",
            "test-other",
        ),
    ),
    "mini-librispeech": Corpus(31, ("train-clean-5", "dev-clean-2")),
}


def download_corpus(
    name: str,
    splits: Sequence[str] | None,
    dest: str | os.PathLike[str],
    base_url: str = OPENSLR,
    keep_archives: bool = False,
) -> Path:
    """Fetch splits of a corpus; those already there are left as they are.

    Arguments
    ---------
    name : str
        librispeech or mini-librispeech.
    splits : sequence of str, optional
        Which splits; all of them if not given.
    dest : str or os.PathLike
        Folder that gets a `LibriSpeech` folder with the splits.
    base_url : str
        OpenSLR, or a mirror of its `resources`.
    keep_archives : bool
        Whether to keep the archives in `dest` once they are unpacked.

    Returns
    -------
    Path
        The LibriSpeech folder.

    Raises
    ------
    DownloadError
        If there is no such split, the transfer does not succeed, or what
        came is not what the server says it is. Running again goes on.

    Example
    -------
    >>> download_corpus("mini-librispeech", ["dev-clean"], "nowhere")
    Traceback (most recent call last):
    ...
    mala_asr.data.download.DownloadError: mini-librispeech has no split \
dev-clean; choose from train-clean-5, dev-clean-2
    """
    if name not in CORPORA:
        raise DownloadError(
            f"no corpus {name!r}; choose one of {', '.join(CORPORA)}"
        )
    corpus = CORPORA[name]
    wanted = list(dict.fromkeys(corpus.splits if splits is None else splits))
    unknown = [split for split in wanted if split not in corpus.splits]
    if unknown:
        raise DownloadError(
            f"{name} has no split {', '.join(unknown)}; "
            f"choose from {', '.join(corpus.splits)}"
        )
    root = Path(dest) / "LibriSpeech"
    missing = [split for split in wanted if not (root / split).is_dir()]
    for split in wanted:
        if split not in missing:
            logger.info("%s is there already", root / split)
    if not missing:
        return root
    url = f"{base_url.rstrip('/')}/{corpus.number}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        checksums = _checksums(f"{url}/{CHECKSUMS}")
        for split in missing:
            _fetch_split(url, split, Path(dest), checksums, keep_archives)
    except OSError as error:  # a full disk, a folder without permission
        raise DownloadError(
            f"cannot write to {dest} ({error.strerror or error}); make room "
            "or choose another folder, then run this again to go on"
        ) from error
    return root


def _checksums(url: str) -> dict[str, str]:
    """MD5 by file name, from the server's list."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            lines = response.read().decode().splitlines()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _unreachable(url, error) from error
    pairs = [line.split() for line in lines]
    return {
        PurePosixPath(pair[1].lstrip("*")).name: pair[0].lower()
        for pair in pairs
        if len(pair) == 2
    }


def _fetch_split(
    url: str,
    split: str,
    dest: Path,
    checksums: dict[str, str],
    keep_archive: bool,
) -> None:
    name = f"{split}.tar.gz"
    if name not in checksums:
        raise DownloadError(
            f"{url}/{CHECKSUMS} has no checksum of {name}; "
            "try another --base-url"
        )
    archive = dest / name
    if not archive.is_file():
        _fetch_verified(f"{url}/{name}", archive, checksums[name])
    elif file_digest(archive, "md5") != checksums[name]:
        raise DownloadError(
            f"{archive} is not the archive that {url} has; move it away and "
            "run this again"
        )
    _unpack(archive, split, dest)
    if not keep_archive:
        archive.unlink()


def _fetch_verified(url: str, archive: Path, checksum: str) -> None:
    part = archive.with_name(archive.name + ".part")
    resumed = part.is_file()
    _fetch(url, part)
    if resumed and file_digest(part, "md5") != checksum:
        # What was kept may be of another version of the file: start over.
        logger.info("%s does not fit what was kept; starting over", url)
        part.unlink()
        _fetch(url, part)
    if file_digest(part, "md5") != checksum:
        part.unlink()
        raise DownloadError(
            f"{url} has another MD5 than {CHECKSUMS} says and was thrown "
            "away; run this again or try another --base-url"
        )
    os.replace(part, archive)


def _fetch(url: str, part: Path) -> None:
    """Bring `part` to the file's full length, in a few attempts."""
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size if part.is_file() else 0
        try:
            _transfer(url, part)
            return
        except urllib.error.HTTPError as error:
            if error.code < 500:  # it will not be otherwise next time
                raise _unreachable(url, error) from error
            failure: Exception = error
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
        ) as error:
            failure = error
        if attempt + 1 < _ATTEMPTS:
            logger.info("%s: %s; trying again", url, failure)
            progressed = part.is_file() and part.stat().st_size > before
            time.sleep(0.1 if progressed else 2**attempt)
    raise _unreachable(url, failure) from failure


def _transfer(url: str, part: Path) -> None:
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing comes after what we have
            return
        raise
    with response:
        # A server without ranges answers 200 and sends it all.
        have = have if response.status == 206 else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with (
            open(part, "ab" if have else "wb") as stream,
            tqdm(
                total=total,
                initial=have,
                desc=part.stem,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
            ) as progress,
        ):
            while block := response.read(_BLOCK):
                stream.write(block)
                progress.update(len(block))
    size = part.stat().st_size
    if total is not None and size < total:
        raise ConnectionError(f"cut off after {size} of {total} bytes")


def _unreachable(url: str, error: Exception) -> DownloadError:
    return DownloadError(
        f"cannot fetch {url} ({error}); what came so far is kept: run this "
        "again to go on, or try another --base-url"
    )


def _unpack(archive: Path, split: str, dest: Path) -> None:
    """Unpack beside the final place, then move the split there whole."""
    logger.info("unpacking %s", archive)
    root = dest / "LibriSpeech"
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=dest) as name:
        folder = Path(name)
        try:
            _extract(archive, folder)
        except (tarfile.TarError, EOFError) as error:
            raise DownloadError(
                f"{archive} is not a tar.gz that can be read ({error}); "
                "delete it and run this again"
            ) from error
        if not (folder / "LibriSpeech" / split).is_dir():
            raise DownloadError(
                f"{archive} holds no LibriSpeech/{split}; delete it and try "
                "another --base-url"
            )
        for path in (folder / "LibriSpeech").iterdir():
            # Every archive holds README.TXT, SPEAKERS.TXT and the like.
            if path.name == split or path.is_file():
                os.replace(path, root / path.name)


def _extract(archive: Path, folder: Path) -> None:
    """Extract regular files and folders, refusing to leave `folder`."""
    size = archive.stat().st_size
    with (
        open(archive, "rb") as stream,
        tarfile.open(fileobj=stream, mode="r:gz") as tar,
        tqdm(
            total=size,
            desc=f"unpacking {archive.name}",
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
        ) as progress,
    ):
        for member in tar:
            progress.update(stream.tell() - progress.n)
            path = folder / member.name
            inside = ".." not in PurePosixPath(member.name).parts
            inside = inside and path.is_relative_to(folder)
            if not inside or not (member.isfile() or member.isdir()):
                raise DownloadError(
                    f"{archive} holds {member.name!r}, which does not belong "
                    "in a corpus; delete it and try another --base-url"
                )
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None  # it is a regular file
            with content, open(path, "wb") as target:
                shutil.copyfileobj(content, target)
