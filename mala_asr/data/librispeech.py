"""Manifests of a corpus in LibriSpeech's layout.

    <split>/<speaker>/<chapter>/<utterance>.flac
    <split>/<speaker>/<chapter>/<speaker>-<chapter>.trans.txt

where a line of a .trans.txt is an utterance's name, a space and its words.
Split names are free. Nothing is filtered and no text is changed: what is wrong
with a split is reported, all of it, in one line.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mala_asr.data.audio import AudioError, audio_info
from mala_asr.data.files import replacing, sha256
from mala_asr.data.manifest import Utterance, write_manifest
from mala_asr.errors import MalaError

logger = logging.getLogger(__name__)

AUDIO_SUFFIXES = (".flac", ".wav")
TRANSCRIPT_SUFFIX = ".trans.txt"

# Part of each stamp: change it when a manifest's contents change.
_FORMAT = 1
_NAMES_SHOWN = 3


class CorpusError(MalaError):
    """A corpus that is missing or not whole."""


def prepare_librispeech(
    data_folder: str | os.PathLike[str],
    save_folder: str | os.PathLike[str],
    splits: Sequence[str],
    workers: int | None = None,
) -> dict[str, Path]:
    """Write one CSV manifest for each split.

    A manifest that was written from the same files is kept as it is.

    Arguments
    ---------
    data_folder : str or os.PathLike
        The folder that holds the splits, or the one that holds its
        `LibriSpeech` folder.
    save_folder : str or os.PathLike
        Where the manifests go.
    splits : sequence of str
        Names of the splits' folders.
    workers : int, optional
        Threads that read the headers; by default one for each CPU.

    Returns
    -------
    dict of str to Path
        The manifest of each split, `<save_folder>/<split>.csv`.

    Raises
    ------
    CorpusError
        If a split is missing, or its audio and transcripts are not whole;
        then no manifest of that split is written.

    Example
    -------
    >>> import soundfile
    >>> root = getfixture("tmp_path")
    >>> chapter = root / "LibriSpeech" / "dev" / "84" / "121"
    >>> chapter.mkdir(parents=True)
    >>> soundfile.write(chapter / "84-121-0000.flac", [0.0] * 16000, 16000)
    >>> _ = (chapter / "84-121.trans.txt").write_text("84-121-0000 GO ON")
    >>> manifests = prepare_librispeech(root, root / "manifests", ["dev"])
    >>> print(manifests["dev"].read_text().splitlines()[1].split(",")[-1])
    GO ON
    """
    roots = {split: split_folder(Path(data_folder), split) for split in splits}
    return {
        split: _prepare_split(root, Path(save_folder) / f"{split}.csv", workers)
        for split, root in roots.items()
    }


def find_splits(data_folder: str | os.PathLike[str]) -> list[str]:
    """Names of the folders that may be splits.

    Arguments
    ---------
    data_folder : str or os.PathLike
        The folder that holds the splits, or the one that holds its
        `LibriSpeech` folder.

    Returns
    -------
    list of str
        Their names, sorted.

    Raises
    ------
    CorpusError
        If there is no such folder or nothing in it.

    Example
    -------
    >>> root = getfixture("tmp_path")
    >>> (root / "LibriSpeech" / "dev-clean").mkdir(parents=True)
    >>> find_splits(root)
    ['dev-clean']
    """
    found = sorted(
        entry.name
        for entry in _parent(Path(data_folder)).iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )
    if not found:
        raise CorpusError(
            f"{data_folder} holds no split; give the folder that holds the "
            "splits, or fetch a corpus with `mala-asr download`"
        )
    return found


def split_folder(data_folder: Path, split: str) -> Path:
    """Find the folder of a split.

    Arguments
    ---------
    data_folder : Path
        The folder that holds the splits, or the one that holds its
        `LibriSpeech` folder.
    split : str
        Its name.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    CorpusError
        If there is none of that name.
    """
    if Path(split).name != split or split in ("", ".."):
        raise CorpusError(
            f"{split!r} is not the name of a split; give the folder's name "
            "alone"
        )
    folder = _parent(data_folder) / split
    if folder.is_dir():
        return folder
    found = find_splits(data_folder)
    close = difflib.get_close_matches(split, found, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise CorpusError(
        f"no split {split} in {data_folder}; {hint}"
        f"found there: {', '.join(found)}"
    )


def _parent(data_folder: Path) -> Path:
    """The folder that holds the splits."""
    if not data_folder.is_dir():
        raise CorpusError(
            f"no such data folder: {data_folder}; give the one that holds "
            "the splits, or fetch a corpus with `mala-asr download`"
        )
    inner = data_folder / "LibriSpeech"
    return inner if inner.is_dir() else data_folder


def _prepare_split(root: Path, manifest: Path, workers: int | None) -> Path:
    listing = _list_split(root)
    stamp = manifest.with_name(f".{manifest.name}.stamp")
    fingerprint = _fingerprint(root, listing)
    if _is_current(manifest, stamp, fingerprint):
        logger.info("%s is up to date", manifest)
        return manifest
    utterances = _utterances(root, listing, workers)
    write_manifest(manifest, utterances)
    with replacing(stamp) as temporary:
        temporary.write_text(
            json.dumps({"files": fingerprint, "manifest": sha256(manifest)})
        )
    hours = sum(utterance.duration for utterance in utterances) / 3600
    logger.info("%s: %d utterances, %.2f h", manifest, len(utterances), hours)
    return manifest


@dataclass
class _Listing:
    audio: dict[str, list[Path]] = field(default_factory=dict)  # by id
    transcripts: list[Path] = field(default_factory=list)
    stats: list[tuple[str, int, int]] = field(default_factory=list)


def _list_split(root: Path) -> _Listing:
    """Every audio file and transcript below `root`, in a fixed order."""
    listing = _Listing()
    for entry in _walk(root):
        path = Path(entry.path)
        if entry.name.endswith(TRANSCRIPT_SUFFIX):
            listing.transcripts.append(path)
        elif path.suffix.lower() in AUDIO_SUFFIXES:
            listing.audio.setdefault(path.stem, []).append(path)
        else:
            continue
        stat = entry.stat()
        listing.stats.append((entry.path, stat.st_size, stat.st_mtime_ns))
    return listing


def _walk(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.name.startswith("."):  # such as macOS's ._name.flac
            continue
        if entry.is_dir():
            yield from _walk(entry.path)
        else:
            yield entry


def _fingerprint(root: Path, listing: _Listing) -> str:
    state = [_FORMAT, str(root.absolute()), sorted(listing.stats)]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _is_current(manifest: Path, stamp: Path, fingerprint: str) -> bool:
    try:
        kept = json.loads(stamp.read_text())
        return kept == {"files": fingerprint, "manifest": sha256(manifest)}
    except (OSError, ValueError):
        return False


def _utterances(
    root: Path, listing: _Listing, workers: int | None
) -> list[Utterance]:
    """The split's utterances by id, or one error that lists its faults."""
    words, faults = _read_transcripts(listing.transcripts)
    audio = listing.audio
    faults["audio file(s) with the name of another"] = [
        str(paths[1]) for paths in audio.values() if len(paths) > 1
    ]
    faults["audio file(s) without a transcript"] = [
        str(audio[name][0]) for name in sorted(audio.keys() - words.keys())
    ]
    faults["transcript(s) without audio"] = sorted(words.keys() - audio.keys())
    names = sorted(audio.keys() & words.keys())
    paths = [audio[name][0].absolute() for name in names]
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        lengths = list(pool.map(_duration, paths))
    faults["unusable audio file(s)"] = [
        length for length in lengths if isinstance(length, str)
    ]
    _refuse_faults(root, faults, empty=not names)
    return [
        Utterance(
            id=name,
            duration=float(length),
            wav=str(path),
            spk_id=path.relative_to(root.absolute()).parts[0],
            wrd=words[name],
        )
        for name, path, length in zip(names, paths, lengths, strict=True)
    ]


def _read_transcripts(
    paths: list[Path],
) -> tuple[dict[str, str], dict[str, list[str]]]:
    words: dict[str, str] = {}
    repeated: list[str] = []
    unreadable: list[str] = []
    for path in paths:
        try:
            # "utf-8-sig" drops the mark that some editors put at the start.
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(f"{path} ({error})")
            continue
        for line in lines:
            fields = line.split(maxsplit=1)
            if fields and fields[0] in words:
                repeated.append(fields[0])
            # A name without words is as good as no transcript.
            if len(fields) == 2:
                words[fields[0]] = fields[1].strip()
    return words, {
        "transcript(s) given twice": repeated,
        "unreadable transcript file(s)": unreadable,
    }


def _duration(path: Path) -> float | str:
    try:
        return audio_info(path).duration
    except AudioError as error:
        return str(error)


def _refuse_faults(
    root: Path, faults: dict[str, list[str]], empty: bool
) -> None:
    parts = []
    for kind, names in faults.items():
        if names:
            more = len(names) - _NAMES_SHOWN
            shown = ", ".join(names[:_NAMES_SHOWN])
            tail = f" and {more} more" if more > 0 else ""
            parts.append(f"{len(names)} {kind}: {shown}{tail}")
    if not parts and empty:
        parts.append(
            "no utterances; its layout must be "
            f"speaker/chapter/*.flac and *{TRANSCRIPT_SUFFIX}"
        )
    if parts:
        raise CorpusError(
            f"{root} is not whole: {'; '.join(parts)}; repair or remove these"
        )
