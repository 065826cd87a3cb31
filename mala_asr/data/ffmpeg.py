"""Audio in containers that libsndfile does not read, through ffmpeg.

ffmpeg is a program that people install themselves; without it these files
are refused by a line that says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

# How the containers start: where, with what, and what they are.
_SIGNATURES = (
    (4, b"ftyp", "MP4"),
    (4, b"moov", "QuickTime"),
    (4, b"mdat", "QuickTime"),
    (4, b"wide", "QuickTime"),
    (0, b"\x1aE\xdf\xa3", "WebM or Matroska"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media"),
    (8, b"AVI ", "AVI"),
    (0, b"FLV\x01", "Flash video"),
    (0, b"#!AMR", "AMR"),
    (0, b"\xff\xf1", "AAC"),
    (0, b"\xff\xf9", "AAC"),
)


def container(path: str | os.PathLike[str]) -> str | None:
    """Tell by a file's first bytes whether it is one for ffmpeg.

    Arguments
    ---------
    path : str or os.PathLike
        A file.

    Returns
    -------
    str or None
        What it is; None for anything else.

    Example
    -------
    >>> path = getfixture("tmp_path") / "a.m4a"
    >>> _ = path.write_bytes(b"\\0\\0\\0\\x20ftypM4A ")
    >>> container(path)
    'MP4'
    """
    with open(path, "rb") as stream:
        head = stream.read(16)
    for offset, signature, name in _SIGNATURES:
        if head[offset:].startswith(signature):
            return name
    return None


def find_ffmpeg() -> str | None:
    """Find the program.

    Returns
    -------
    str or None
        Its path; None where it is not installed.
    """
    return shutil.which("ffmpeg")


def decode(
    program: str, path: str | os.PathLike[str], wave: str | os.PathLike[str]
) -> str:
    """Decode the first audio stream of a file.

    Arguments
    ---------
    program : str
        What `find_ffmpeg` gave.
    path : str or os.PathLike
        The file.
    wave : str or os.PathLike
        Where to write it, as W64 of 16 bits at its own rate and channels.

    Returns
    -------
    str
        Why it is not decoded whole, in one line; empty if it is.
    """
    # Names are files even where they look like options or addresses, and
    # what a file refers to is not fetched.
    command = [program, "-nostdin", "-v", "error"]
    command += ["-protocol_whitelist", "file,pipe", "-i", f"file:{path}"]
    command += ["-map", "0:a:0", "-c:a", "pcm_s16le", "-f", "w64", "-y"]
    done = subprocess.run(
        [*command, f"file:{wave}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    first = done.stderr.strip().partition("\n")[0]
    if not first and done.returncode:
        return f"exit status {done.returncode}"
    # Without the part of ffmpeg that speaks and its address in memory.
    return re.sub(r"^\[[^]]*\] ", "", first.strip())
