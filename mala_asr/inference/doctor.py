"""What this installation has, what it lacks, and what to do about it."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

import mala_asr
from mala_asr.data.ffmpeg import find_ffmpeg

# How a finding stands: FAILED is something that the package cannot do
# without.
OK, MISSING, FAILED = "ok", "missing", "failed"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Arguments
    ---------
    topic : str
        What it belongs to: system, packages, extras, audio or devices.
    status : str
        ``ok``; ``missing`` what may be; ``failed`` what may not.
    text : str
        What was found, and the remedy where it is not ok.
    """

    topic: str
    status: str
    text: str


def examine() -> list[Finding]:
    """Look at the installation.

    Returns
    -------
    list[Finding]
        By topic.

    Example
    -------
    >>> examine()[0].topic, examine()[0].text.split()[0]
    ('system', 'mala_asr')
    """
    return [
        Finding(topic, status, text)
        for topic, look in (
            ("system", _system),
            ("packages", _packages),
            ("extras", _extras),
            ("audio", _audio),
            ("devices", _devices),
        )
        for status, text in look()
    ]


_Found = Iterator[tuple[str, str]]


def _system() -> _Found:
    yield OK, f"mala_asr {mala_asr.__version__}"
    yield OK, f"Python {platform.python_version()}"
    yield OK, f"{platform.platform()}, {os.cpu_count()} CPU cores"


def _requirements() -> list[Requirement]:
    try:
        lines = metadata.requires("mala_asr") or []
    except metadata.PackageNotFoundError:
        return []
    return [Requirement(line) for line in lines]


def _applies(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is None or marker.evaluate({"extra": extra})


def _check(requirement: Requirement) -> str:
    """What is wrong with a requirement; empty if nothing is."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is not {requirement.specifier}"
    return ""


def _packages() -> _Found:
    requirements = [r for r in _requirements() if _applies(r, "")]
    if not requirements:
        yield (
            MISSING,
            "mala_asr is not installed, which would tell what it requires; "
            "run: pip install .",
        )
    for requirement in requirements:
        problem = _check(requirement)
        if problem:
            wanted = f"{requirement.name}{requirement.specifier}"
            yield FAILED, f'{problem}; run: pip install "{wanted}"'
        else:
            version = metadata.version(requirement.name)
            yield OK, f"{requirement.name} {version}"


def _extras() -> _Found:
    requirements = _requirements()
    if not requirements:
        return
    names = metadata.metadata("mala_asr").get_all("Provides-Extra") or []
    for extra in sorted(set(names) - {"dev"}):
        problems = [
            problem
            for requirement in requirements
            if requirement.marker is not None
            and _applies(requirement, extra)
            and not _applies(requirement, "")
            and (problem := _check(requirement))
        ]
        if problems:
            remedy = f'run: pip install "mala_asr[{extra}]"'
            yield MISSING, f"{extra}: {', '.join(problems)}; {remedy}"
        else:
            yield OK, extra


def _audio() -> _Found:
    try:
        import numpy
        import soundfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.flac")
            soundfile.write(path, numpy.zeros(800), 16000)
            soundfile.read(path)
        formats = ", ".join(sorted(soundfile.available_formats())).lower()
        version = soundfile.__libsndfile_version__
        yield OK, f"libsndfile {version} reads {formats}"
    except (ImportError, OSError, RuntimeError) as error:
        yield FAILED, f"soundfile does not work ({error}); install it again"
    program = find_ffmpeg()
    if program is None:
        yield (
            MISSING,
            "ffmpeg: m4a, mp4, webm and the like cannot be read; install "
            "ffmpeg with the system's package manager",
        )
        return
    said = subprocess.run(
        [program, "-version"], capture_output=True, text=True, errors="replace"
    ).stdout
    yield OK, " ".join(said.split()[:3]) or program


def _devices() -> _Found:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield FAILED, f"torch does not load ({error}); install it again"
        return
    yield OK, f"cpu, {torch.get_num_threads()} threads"
    if not torch.cuda.is_available():
        built = "for a CPU" if torch.version.cuda is None else "with CUDA"
        yield MISSING, f"cuda: no device; torch is built {built}"
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        memory = about.total_memory / 2**30
        yield OK, f"cuda:{index}, {about.name}, {memory:.0f} GiB"
