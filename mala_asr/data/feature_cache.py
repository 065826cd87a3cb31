"""Features computed once and kept, in memory or on disk.

On disk, every process that adds features has two files of its own: `.bin`
with the arrays one after the other, and `.index` with a line for each. Nothing
is ever rewritten, and a line is written after its array, so an interruption
costs at most the last array; processes need no lock. An entry is found by
what its features depend on (file, its size and time, span, speed), so a
changed file is computed anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
import torch
from tqdm import tqdm

from mala_asr.data.audio import AudioError, change_speed, read_audio
from mala_asr.data.files import replacing
from mala_asr.data.manifest import Utterance
from mala_asr.errors import MalaError

# Utterances in flight while filling, for each thread.
_BATCH = 16


class CacheError(MalaError):
    """Features that cannot be kept."""


class FeatureCache:
    """Features of utterances, computed when first asked for.

    Arguments
    ---------
    compute : callable
        From samples (samples,) at 16 kHz to features (frames, features).
    key : str
        Names everything that `compute` depends on; another key is another
        cache.
    folder : str or os.PathLike, optional
        Where to keep them; in memory if it is not given.
    dtype : str
        float16 or float32, as stored; what is returned is always float32.

    Example
    -------
    >>> import soundfile
    >>> folder = getfixture("tmp_path")
    >>> soundfile.write(folder / "a.wav", [0.5] * 16000, 16000)
    >>> said = Utterance("a", 1.0, str(folder / "a.wav"), "spk", "AH")
    >>> cache = FeatureCache(lambda x: x.view(100, 160), "blocks", folder)
    >>> cache.fill([said], speeds=[1.0])
    1
    >>> cache.get(said).shape
    torch.Size([100, 160])
    """

    def __init__(
        self,
        compute: Callable[[torch.Tensor], torch.Tensor],
        key: str,
        folder: str | os.PathLike[str] | None,
        dtype: str = "float16",
    ) -> None:
        self._compute = compute
        self._dtype = np.dtype(dtype)
        self._store: _MemoryStore | _DiskStore
        if folder is None:
            self._store = _MemoryStore()
        else:
            settings = f"{key} {self._dtype}"
            name = hashlib.sha256(settings.encode()).hexdigest()[:16]
            self._store = _DiskStore(Path(folder) / name, settings)

    def get(self, utterance: Utterance, speed: float = 1.0) -> torch.Tensor:
        """The features of one utterance.

        Arguments
        ---------
        utterance : Utterance
            Which one.
        speed : float
            How fast it is played, 1.0 as it is.

        Returns
        -------
        torch.Tensor
            Shape (frames, features), float32.

        Raises
        ------
        AudioError
            If the file cannot be used.
        CacheError
            If the features cannot be kept.
        """
        entry = _entry_key(utterance, speed)
        features = self._store.get(entry)
        if features is None:
            features = self._features(utterance, speed)
            self._store.add(entry, features)
        return torch.from_numpy(features.astype(np.float32))

    def fill(
        self,
        utterances: Iterable[Utterance],
        speeds: Sequence[float] = (1.0,),
        workers: int | None = None,
    ) -> int:
        """Compute what is missing, with a progress bar.

        Arguments
        ---------
        utterances : iterable of Utterance
            For these.
        speeds : sequence of float
            Each at all of these speeds.
        workers : int, optional
            Threads; by default one for each CPU.

        Returns
        -------
        int
            How many were missing.

        Raises
        ------
        AudioError
            If a file cannot be used; what was computed before is kept.
        CacheError
            If the features cannot be kept.
        """
        missing = {
            entry: (utterance, speed)
            for utterance in utterances
            for speed in speeds
            if (entry := _entry_key(utterance, speed)) not in self._store
        }
        if not missing:
            return 0
        threads = workers or os.cpu_count() or 1
        jobs = iter(missing.items())
        with (
            _one_torch_thread(),
            ThreadPoolExecutor(threads) as pool,
            tqdm(total=len(missing), desc="features", unit="utt") as progress,
        ):
            while batch := list(islice(jobs, _BATCH * threads)):
                results = pool.map(lambda job: self._features(*job[1]), batch)
                for (entry, _), features in zip(batch, results, strict=True):
                    self._store.add(entry, features)
                    progress.update()
        return len(missing)

    def _features(self, utterance: Utterance, speed: float) -> np.ndarray:
        samples = read_audio(utterance.wav, utterance.start, utterance.stop)
        with torch.no_grad():
            features = self._compute(change_speed(samples, speed))
        with np.errstate(over="ignore"):  # refused below
            array = features.cpu().numpy().astype(self._dtype)
        if not np.isfinite(array).all():
            raise AudioError(
                f"the features of {utterance.id} ({utterance.wav}) are not "
                f"finite in {self._dtype}; leave it out or keep float32"
            )
        return array


class _one_torch_thread:
    """Torch with one thread an operation: the files are what runs at once."""

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)


def _entry_key(utterance: Utterance, speed: float) -> str:
    """What the features depend on, beside how they are computed."""
    path = os.path.abspath(utterance.wav)
    try:
        stat = os.stat(path)
    except OSError as error:
        raise AudioError(
            f"cannot read {path}, the audio of {utterance.id} "
            f"({error.strerror}); check the manifest"
        ) from error
    parts = (
        path,
        stat.st_size,
        stat.st_mtime_ns,
        utterance.start,
        utterance.stop,
        float(speed),
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


class _MemoryStore:
    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def __contains__(self, entry: str) -> bool:
        return entry in self._arrays

    def get(self, entry: str) -> np.ndarray | None:
        return self._arrays.get(entry)

    def add(self, entry: str, array: np.ndarray) -> None:
        self._arrays[entry] = array


@dataclass(frozen=True)
class _Place:
    """Where an array lies."""

    file: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    crc: int


class _DiskStore:
    def __init__(self, folder: Path, settings: str) -> None:
        self._folder = folder
        self._writer: tuple[int, IO[bytes], IO[bytes]] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / "settings.txt") as temporary:
                temporary.write_text(settings + "\n")
            self._places = {
                entry: place
                for index in sorted(folder.glob("*.index"))
                for entry, place in _read_index(index)
            }
        except OSError as error:
            raise self._failure(error) from error

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_writer": None}

    def __contains__(self, entry: str) -> bool:
        return entry in self._places

    def get(self, entry: str) -> np.ndarray | None:
        place = self._places.get(entry)
        if place is None:
            return None
        dtype = np.dtype(place.dtype)
        size = int(np.prod(place.shape)) * dtype.itemsize
        try:
            with open(self._folder / place.file, "rb") as stream:
                stream.seek(place.offset)
                data = stream.read(size)
        except OSError:
            return None
        # After a power cut a line may have reached the disk before its array.
        if len(data) != size or zlib.crc32(data) != place.crc:
            return None
        return np.frombuffer(data, dtype).reshape(place.shape)

    def add(self, entry: str, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).tobytes()
        try:
            arrays, index = self._files()
            place = _Place(
                file=Path(arrays.name).name,
                offset=arrays.seek(0, os.SEEK_END),
                shape=array.shape,
                dtype=str(array.dtype),
                crc=zlib.crc32(data),
            )
            _write_all(arrays, data)
            _write_all(index, json.dumps([entry, vars(place)]).encode() + b"\n")
        except OSError as error:
            raise self._failure(error) from error
        self._places[entry] = place

    def _files(self) -> tuple[IO[bytes], IO[bytes]]:
        """This process's own two files: a fork must not share them."""
        if self._writer is None or self._writer[0] != os.getpid():
            name = self._folder / uuid.uuid4().hex[:12]
            self._writer = (
                os.getpid(),
                open(f"{name}.bin", "ab", buffering=0),
                open(f"{name}.index", "ab", buffering=0),
            )
        return self._writer[1:]

    def _failure(self, error: OSError) -> CacheError:
        return CacheError(
            f"cannot keep features in {self._folder} ({error.strerror}); "
            "choose a folder with room or keep them in memory"
        )


def _write_all(stream: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


def _read_index(path: Path) -> Iterator[tuple[str, _Place]]:
    for line in path.read_bytes().splitlines():
        try:
            entry, place = json.loads(line)
            yield entry, _Place(**place | {"shape": tuple(place["shape"])})
        except (ValueError, TypeError, KeyError):
            continue  # the line that an interruption cut short
