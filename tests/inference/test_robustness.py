"""A thousand damaged files and folders: a line for each, never a traceback.

What is damaged, and how, follows from the number of the case alone, so that
one that fails can be had again.
"""

import io
import json
import random
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mala_asr.cli.main import main
from mala_asr.data.files import sha256
from mala_asr.errors import MalaError
from mala_asr.inference import model_folder
from mala_asr.inference.model_folder import load_model_folder
from mala_asr.inference.transcriber import Transcriber
from mala_asr.inference.transcript import Recording
from tests.tones import tones

AUDIO_CASES, FOLDER_CASES = 600, 400
BATCH = 50

WRITERS: dict[str, dict[str, str]] = {
    "a.wav": {},
    "a.flac": {},
    "a.ogg": {},
    "b.ogg": {"subtype": "OPUS"},
    "a.mp3": {},
    "a.aiff": {},
    "a.au": {},
    "a.caf": {},
    "a.w64": {},
    "b.wav": {"subtype": "FLOAT"},
    "c.wav": {"subtype": "IMA_ADPCM"},
}


def cut(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def flip(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def break_head(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(min(64, len(data)))] = rng.choice((0, 1, 127, 255))
    return bytes(data)


def write_number(data: bytearray, rng: random.Random) -> bytes:
    """Put one of the numbers that trouble readers somewhere in the head."""
    number = rng.choice((0, 1, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
    place = rng.randrange(min(60, len(data) - 4))
    order = rng.choice(("little", "big"))
    data[place : place + 4] = number.to_bytes(4, order)
    return bytes(data)


def insert(data: bytearray, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return (
        bytes(data[:place]) + rng.randbytes(rng.randint(1, 99)) + data[place:]
    )


def leave_out(data: bytearray, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return bytes(data[:place] + data[place + rng.randint(1, 99) :])


def noise(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(40)]) + rng.randbytes(500)


MUTATIONS: tuple[Callable[[bytearray, random.Random], bytes], ...] = (
    cut,
    flip,
    break_head,
    write_number,
    insert,
    leave_out,
    noise,
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    return rng.choice(MUTATIONS)(bytearray(data), rng)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("originals")
    wave = np.stack([tones("AB C").numpy()] * 2, axis=1)
    for name, settings in WRITERS.items():
        soundfile.write(folder / name, wave, 16000, **settings)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("first", range(0, AUDIO_CASES, BATCH))
def test_damaged_audio(
    tone_folder: Path, originals: list[Path], tmp_path: Path, first: int
) -> None:
    for case in range(first, first + BATCH):
        rng = random.Random(case)
        source = rng.choice(originals)
        path = tmp_path / f"{case}{source.suffix}"
        path.write_bytes(mutated(source.read_bytes(), rng))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(
            ["transcribe", "--model", str(tone_folder), "--device", "cpu"]
            + ["-f", "json", str(tmp_path)]
        )
    lines = err.getvalue().splitlines()
    assert all(line.startswith("mala-asr: ") for line in lines)
    said = [line for line in lines if line.startswith("mala-asr: error: ")]
    read = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(read) + len(said) == BATCH
    assert status == (1 if said else 0)
    # Most damage is noticed; flipped samples of a WAV cannot be.
    assert read and said
    for line in said:
        assert re.search(rf"{tmp_path}/\d+\.", line), line


@pytest.fixture
def folder(tone_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tone_folder, tmp_path / "model"))


def damage_file(folder: Path, rng: random.Random) -> None:
    path = rng.choice(sorted(folder.iterdir()))
    path.write_bytes(mutated(path.read_bytes(), rng))


def remove_file(folder: Path, rng: random.Random) -> None:
    path = rng.choice(sorted(folder.iterdir()))
    path.unlink()
    if rng.random() < 0.5:
        path.mkdir()


def forge_file(folder: Path, rng: random.Random) -> None:
    """Damage a file and make its checksum right, as an attacker would."""
    path = folder / rng.choice(("model.safetensors", "tokenizer.model"))
    path.write_bytes(mutated(path.read_bytes(), rng))
    sign(folder, json.loads((folder / "config.json").read_text()))


def forge_config(folder: Path, rng: random.Random) -> None:
    """Put a wrong value somewhere into the config, and sign it."""
    config = json.loads((folder / "config.json").read_text())
    part = config["model"] if rng.random() < 0.7 else config
    values = (None, -1, 0, 1, 10**9, 10**30, 0.5, 1e300, "x", [], {}, True)
    part[rng.choice(sorted(part))] = rng.choice(values)
    sign(folder, config)


def sign(folder: Path, config: dict) -> None:
    sums = config.get("sha256")
    if isinstance(sums, dict):
        for name in sums:
            sums[name] = sha256(folder / name)
    config.pop("checksum", None)
    config["checksum"] = model_folder._checksum(config)
    (folder / "config.json").write_text(json.dumps(config))


ATTACKS = (damage_file, remove_file, forge_file, forge_config)


@pytest.mark.parametrize("first", range(0, FOLDER_CASES, BATCH))
def test_damaged_model_folders(
    tone_folder: Path, originals: list[Path], tmp_path: Path, first: int
) -> None:
    refused = 0
    for case in range(first, first + BATCH):
        rng = random.Random(case)
        folder = Path(shutil.copytree(tone_folder, tmp_path / str(case)))
        rng.choice(ATTACKS)(folder, rng)
        try:
            reader = Transcriber(folder, device="cpu", word_times=True)
            (found,) = reader.transcribe([originals[0]])
            assert isinstance(found.text, str)
        except MalaError as error:
            assert "\n" not in str(error)
            refused += 1
    # A changed README, which nothing reads, is not noticed.
    assert refused > BATCH // 2


def test_the_signed_folder_is_taken(folder: Path) -> None:
    sign(folder, json.loads((folder / "config.json").read_text()))
    load_model_folder(folder)


def test_the_kinds_of_bad_audio_that_users_have(
    tone_folder: Path, tmp_path: Path
) -> None:
    wave = tones("AB C").numpy()

    def write(name: str, samples: np.ndarray, rate: int = 16000) -> None:
        soundfile.write(tmp_path / name, samples, rate, subtype="FLOAT")

    write("nan.wav", np.full(8000, np.nan))
    write("inf.wav", np.full(8000, np.inf))
    write("none.wav", np.zeros(0))
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("not audio")
    (tmp_path / "pipe.wav").symlink_to("/dev/null")
    (tmp_path / "gone.wav").symlink_to("nowhere.wav")
    (tmp_path / "folder.wav").mkdir()
    soundfile.write(tmp_path / "cut.flac", wave, 16000)
    data = (tmp_path / "cut.flac").read_bytes()
    (tmp_path / "cut.flac").write_bytes(data[: len(data) // 2])
    write("slow.wav", wave, 3)
    bad = {path.name for path in tmp_path.iterdir()}

    write("silent.wav", np.zeros(16000))
    write("one.wav", np.zeros(1))
    write("eight.wav", np.stack([wave] * 8, axis=1))
    write("loud.wav", 1e30 * wave)
    write("whole.wav", wave)

    failed: dict[str, str] = {}

    def report(recording: Recording, error: MalaError) -> None:
        failed[Path(recording.path).name] = str(error)

    reader = Transcriber(tone_folder, device="cpu")
    found = {
        Path(t.path).name: t.text
        for t in reader.transcribe(sorted(tmp_path.iterdir()), report)
    }
    assert set(failed) == bad
    assert all("\n" not in line and ";" in line for line in failed.values())
    assert found.keys() == {
        "silent.wav",
        "one.wav",
        "eight.wav",
        "loud.wav",
        "whole.wav",
    }
    assert found["whole.wav"] == found["eight.wav"] == "AB C"
