"""Small corpora in LibriSpeech's layout, for tests."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import soundfile


def write_split(
    folder: Path, words: Mapping[str, str], seconds: float = 0.5
) -> Path:
    """Write audio and transcripts of utterances named speaker-chapter-n."""
    for name, text in words.items():
        speaker, chapter, _ = name.split("-")
        place = folder / speaker / chapter
        place.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(len(text)).normal(0, 0.1, 16000)
        soundfile.write(
            place / f"{name}.flac", noise[: int(seconds * 16000)], 16000
        )
        with open(place / f"{speaker}-{chapter}.trans.txt", "a") as stream:
            stream.write(f"{name} {text}\n")
    return folder
