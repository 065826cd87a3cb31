"""The script for a machine with a GPU, in its dry mode."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.tone_corpus import make_tone_corpus

SCRIPT = (
    Path(__file__).resolve().parents[2] / "recipes/LibriSpeech/gpu_compare.sh"
)

# The splits that the script carries, and what stands for them here.
STANDS_FOR = {
    "train-clean-5": "tone-train",
    "train-clean-100-extra": "tone-dev",
    "heldout-dev-clean": "tone-dev",
    "test-other-partial": "tone-test",
}


def _run(
    *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
            **environment,
        },
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tones = make_tone_corpus(tmp_path_factory.mktemp("tones"))
    data = tmp_path_factory.mktemp("data")
    for split, source in STANDS_FOR.items():
        shutil.copytree(tones / source, data / split)
    # Ids differ between all splits of a corpus.
    for path in sorted((data / "train-clean-100-extra").rglob("1-2-1*.flac")):
        path.rename(path.with_name(path.name.replace("1-2-1", "1-2-8")))
    (said,) = (data / "train-clean-100-extra").rglob("*.trans.txt")
    said.write_text(said.read_text().replace("1-2-1", "1-2-8"))
    folder = tmp_path_factory.mktemp("bundle")
    done = _run("--dry", "pack", data, folder)
    assert done.returncode == 0, done.stderr
    assert "KiB" in done.stdout.splitlines()[-1]
    return folder


def test_the_bundle_holds_speech(bundle: Path) -> None:
    assert (bundle / "speech.tar").stat().st_size > 10_000
    assert list((bundle / "wheels").iterdir()) == []


def test_wrong_arguments_print_the_usage(tmp_path: Path) -> None:
    for arguments in ((), ("run",), ("pack", "a", "b", "c"), ("bake", "a")):
        done = _run(*arguments)
        assert done.returncode == 2
        assert "gpu_compare.sh [--dry] run BUNDLE OUT" in done.stderr
        assert "set -euo" not in done.stderr
        assert done.stdout == ""


def test_what_is_missing_is_one_line(bundle: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (("pack", tmp_path / "no", tmp_path / "b"), "no such data folder"),
        (("run", tmp_path, tmp_path / "out"), "speech.tar; pack it first"),
    ):
        done = _run(*arguments)
        assert done.returncode == 1
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_slice_that_is_too_short(bundle: Path, tmp_path: Path) -> None:
    done = _run(
        *("--dry", "run", bundle, tmp_path / "out"),
        WORK=str(tmp_path / "work"),
        SLICE_SECONDS="20",
    )
    assert done.returncode == 1
    assert "the slice was over before it began" in done.stderr


@pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="shellcheck is not installed"
)
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(
        ["shellcheck", SCRIPT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_slices_on_two_machines(bundle: Path, tmp_path: Path) -> None:
    """The second one has nothing but the bundle and what the first kept."""
    settings = {"EPOCHS": "1", "WORK": str(tmp_path / "one")}
    done = _run(
        *("--dry", "run", bundle, tmp_path / "out"), VARIANTS="mala", **settings
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "softmax_rope, seed 1986: not trained yet" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "README.md",
        "results.json",
        "learning_curves.png",
        "gpu_compare.tar.gz",
    }

    shutil.copy(tmp_path / "out" / "gpu_compare.tar.gz", bundle)
    settings["WORK"] = str(tmp_path / "two")
    done = _run(
        *("--dry", "run", bundle, tmp_path / "again"),
        VARIANTS="mala softmax_rope",
        **settings,
    )
    (bundle / "gpu_compare.tar.gz").unlink()
    assert done.returncode == 0, done.stderr[-3000:]
    # What the first machine did is not done again.
    assert "training softmax_rope" in done.stderr
    assert "training mala" not in done.stderr
    assert "decoding mala" not in done.stderr
    table = (tmp_path / "again" / "README.md").read_text()
    assert table == done.stdout
    assert table.count("| softmax_rope | ") == 4  # two sets, cost, scan
