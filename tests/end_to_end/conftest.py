"""Fixtures of the tests over the whole project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# Recorded speech, shared between checkouts; not part of the repository.
REAL_SPEECH = Path(
    os.environ.get(
        "MALA_REAL_SPEECH", REPOSITORY.parent / "shared" / "real_speech"
    )
)

# Kept as FLAC, these unpack in a moment; the training folders take minutes.
REAL_FOLDERS = ("dev-clean-partial", "test-clean-partial")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def real_speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes of LibriSpeech in its own layout, or a skip."""
    unpack = REAL_SPEECH / "unpack"
    if not unpack.is_file():
        pytest.skip(
            f"no recorded speech in {REAL_SPEECH}; set MALA_REAL_SPEECH"
        )
    destination = tmp_path_factory.mktemp("real_speech")
    subprocess.run(
        [sys.executable, unpack, destination, *REAL_FOLDERS], check=True
    )
    return destination
