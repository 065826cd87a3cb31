"""The comparison as users start it: stopped, killed, and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mala_asr.training.run_folder import sole_writer
from tests.training.tone_corpus import SHORT, make_tone_corpus

SCRIPT = Path(__file__).resolve().parents[2] / "recipes/LibriSpeech/compare.py"
PATIENCE = 120.0  # seconds


def write_plan(folder: Path) -> Path:
    """A plan of two variants; every step of a training is saved."""
    overrides = {
        key: YAML(typ="safe").load(text)
        for key, text in SHORT.items()
        if key != "test_splits"
    }
    plan = {
        "base": "mini_librispeech_mala",
        "overrides": {**overrides, "number_of_epochs": 6},
        "variants": {"mala": {}, "linear": {"attention": "linear"}},
        "control": "linear",
        "seeds": [3],
        "learning_rates": {"grid": [0.002]},
        "test_sets": ["tone-test"],
        "blind_sets": ["tone-dev"],
        "decoders": {
            "greedy": {"decoder": "ctc_greedy"},
            "joint": {"decoder": "joint", "beam_size": 2},
        },
    }
    path = folder / "tones.yaml"
    path.write_text(json.dumps(plan))
    return path


class Comparison:
    """Starts the script again and again on one folder."""

    def __init__(self, folder: Path, corpus: Path) -> None:
        folder.mkdir()
        self.output = folder / "out"
        self.command = [
            sys.executable,
            str(SCRIPT),
            str(write_plan(folder)),
            f"--data_folder={corpus}",
            f"--output_folder={self.output}",
        ]

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def finish(self, *options: str) -> str:
        process = self.start(*options)
        out, err = process.communicate()
        assert process.returncode == 0, err[-3000:]
        return out

    def curve(self, variant: str) -> list[dict[str, float]]:
        path = self.output / "runs" / variant / "3" / "learning_curve.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def is_free(folder: Path) -> bool:
    """Whether no worker is left that trains there."""
    try:
        with sole_writer(folder):
            return True
    except Exception:
        return False


@pytest.mark.slow
def test_stopped_and_killed_it_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    corpus = make_tone_corpus(tmp_path / "corpus")
    straight = Comparison(tmp_path / "straight", corpus)
    table = straight.finish()
    assert "| mala | " in table and "p (MAPSSWE)" in table

    broken = Comparison(tmp_path / "broken", corpus)
    run = broken.output / "runs" / "mala" / "3"
    for number, sign in enumerate((signal.SIGINT, signal.SIGKILL), start=1):
        process = broken.start()
        wait_until(lambda count=number: len(broken.curve("mala")) >= 2 * count)
        process.send_signal(sign)
        _, err = process.communicate()
        if sign == signal.SIGINT:
            assert process.returncode == 130
            assert err.endswith("the same command goes on from here\n")
        else:
            assert process.returncode == -sign
        # Neither leaves a worker behind.
        wait_until(lambda: is_free(run))
        assert not (run / "outcome.json").exists()
    # A slice: one variant alone.
    broken.finish("--only", "mala", "--max-hours", "1")
    assert len(broken.curve("mala")) == 6 and not broken.curve("linear")
    broken.finish("--max-hours=1")

    for variant in ("mala", "linear"):
        for one, other in zip(
            straight.curve(variant), broken.curve(variant), strict=True
        ):
            for key in ("train_loss", "valid_loss", "valid_WER", "lr"):
                assert one[key] == other[key], (variant, one["epoch"], key)
        for decoder in ("greedy", "joint"):
            for split in ("tone-test", "tone-dev"):
                name = f"report/hypotheses/{decoder}/{split}/{variant}-3.trn"
                said = (straight.output / name).read_text()
                assert said == (broken.output / name).read_text()

    # All is done: nothing is trained or decoded again.
    before = {p: p.stat().st_mtime_ns for p in broken.output.rglob("*.ckpt")}
    assert before and broken.finish()
    assert before == {
        p: p.stat().st_mtime_ns for p in broken.output.rglob("*.ckpt")
    }
    # And another plan is not mixed up with it.
    process = broken.start("--overrides={batch_seconds: 9}")
    out, err = process.communicate()
    assert process.returncode == 1 and out == ""
    assert "overrides.batch_seconds is changed" in err.splitlines()[-1]
