"""From what a user names to the recordings to transcribe."""

from __future__ import annotations

import glob
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from mala_asr.errors import MalaError
from mala_asr.inference.transcript import Recording

logger = logging.getLogger(__name__)

STDIN = "-"
MIX, SPLIT = "mix", "split"

# Endings of files that are taken for audio when a folder is searched. Those
# of the second line take ffmpeg.
SUFFIXES = frozenset(
    ".wav .flac .mp3 .ogg .oga .opus .aif .aiff .aifc .au .snd .caf .w64 .rf64 "
    ".m4a .m4b .mp4 .m4v .mov .webm .mkv .mka .wma .avi .flv .amr .aac "
    ".sph .nist .voc".split()
)


class InputError(MalaError):
    """Something named for transcription that holds no recording."""


def find_recordings(
    named: Iterable[str],
    spool: str | os.PathLike[str],
    on_error: Callable[[str, InputError], None],
) -> list[Recording]:
    """Find the recordings that are named.

    Arguments
    ---------
    named : Iterable[str]
        Files; folders, which are searched to their depth for files whose
        name ends like audio; patterns (``*``, ``?``, ``[...]``, ``**``); or
        ``-`` for the standard input.
    spool : str or os.PathLike
        A folder to keep what the standard input gives; it must last until
        the recordings have been read.
    on_error : Callable[[str, InputError], None]
        Called with a name that leads to no recording, and why; the others
        go on.

    Returns
    -------
    list[Recording]
        In the order in which they are named, those of a folder or pattern
        by name, each once. Their names mirror the tree below a folder or
        pattern, and may be equal: `distinct` is for that. A file that is
        not there is among them, for whoever reads it to say so.
    """
    recordings: list[Recording] = []
    for name in named:
        try:
            recordings += _find(name, Path(spool))
        except InputError as error:
            on_error(name, error)
    return list(_without_repetitions(recordings))


def choose_channels(
    recordings: Iterable[Recording], channel: str
) -> list[Recording]:
    """Choose what to hear of recordings with several channels.

    Arguments
    ---------
    recordings : Iterable[Recording]
        The recordings.
    channel : str
        ``mix`` averages the channels, ``split`` makes a recording of each,
        and a number chooses one; the first is 1.

    Returns
    -------
    list[Recording]
        The recordings, of which those of one channel stay as they are under
        ``split``.
    """
    if channel == MIX:
        return list(recordings)
    if channel != SPLIT:
        return [_of_channel(r, int(channel)) for r in recordings]
    return [part for recording in recordings for part in _split(recording)]


def _find(name: str, spool: Path) -> list[Recording]:
    if name == STDIN:
        return [_from_stdin(spool)]
    if os.path.isdir(name):
        return _in_folder(name, name)
    if not os.path.exists(name) and glob.has_magic(name):
        return _matching(name)
    return [Recording(name)]


def _from_stdin(spool: Path) -> Recording:
    path = spool / "stdin"
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("nothing is piped to '-'; use: ... < recording.wav")
    if path.exists():
        raise InputError("'-' is given twice; the standard input ends once")
    with open(path, "wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    return Recording(str(path), "stdin", source=STDIN)


def _matching(pattern: str) -> list[Recording]:
    # What stands before the first folder with a wildcard.
    parts = Path(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = os.path.join("", *parts[:fixed])
    recordings: list[Recording] = []
    for path in sorted(glob.glob(pattern, recursive=True)):
        if os.path.isdir(path):
            # With `**` the pattern itself goes down to the files.
            if "**" not in pattern:
                recordings += _in_folder(path, root)
        else:
            recordings.append(_below(path, root))
    if not recordings:
        raise InputError(f"no file matches {pattern}; check the pattern")
    return recordings


def _in_folder(folder: str, root: str) -> list[Recording]:
    paths = sorted(_walk(folder, set()))
    audio = [p for p in paths if Path(p).suffix.lower() in SUFFIXES]
    if not audio:
        raise InputError(
            f"{folder} has no audio files; name the files themselves if "
            "their names end otherwise"
        )
    if len(audio) < len(paths):
        logger.info(
            "%s: %d files whose names do not end like audio are left out",
            folder,
            len(paths) - len(audio),
        )
    return [_below(path, root) for path in audio]


def _walk(folder: str, seen: set[str]) -> Iterator[str]:
    """Files at any depth, through links, but not twice and none hidden."""
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(
            f"cannot search {folder}: {error.strerror}; change its mode"
        ) from error
    for entry in entries:
        path = os.path.join(folder, entry)
        if entry.startswith("."):
            continue
        if os.path.isdir(path):
            yield from _walk(path, seen)
        else:
            yield path


def _below(path: str, root: str) -> Recording:
    name = os.path.splitext(os.path.relpath(path, root or "."))[0]
    return Recording(path, Path(name).as_posix())


def _split(recording: Recording) -> list[Recording]:
    # Only here, so that help and usage errors come at once.
    from mala_asr.data.audio import AudioError, audio_info

    try:
        channels = audio_info(recording.path).channels
    except AudioError:
        channels = 1  # whoever reads it will say what is wrong
    if channels == 1:
        return [recording]
    return [_of_channel(recording, n) for n in range(1, channels + 1)]


def _of_channel(recording: Recording, channel: int) -> Recording:
    label = f"{recording.label} (channel {channel})"
    return replace(recording, channel=channel, label=label)


def _without_repetitions(
    recordings: Iterable[Recording],
) -> Iterator[Recording]:
    seen: set[str] = set()
    for recording in recordings:
        path = os.path.abspath(recording.path)
        if path in seen:
            logger.info("%s is named twice and taken once", recording.label)
            continue
        seen.add(path)
        yield recording
