"""The recipe's script as users start it, on one process and on two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.tone_corpus import SPLITS, arguments, make_tone_corpus

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "recipes" / "LibriSpeech" / "train.py"
CONFIG = REPOSITORY / "hparams" / "mini_librispeech_mala.yaml"


def _run(command: list[object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
    )


def test_a_mistyped_key_is_one_line_and_an_exit_status(tmp_path: Path) -> None:
    done = _run([sys.executable, SCRIPT, CONFIG, "--data_folder=x", "--sede=1"])
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "mala-asr: error: no key 'sede' in the config; did you mean seed?"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path) -> None:
    corpus = make_tone_corpus(tmp_path / "corpus")
    folder = tmp_path / "run"
    options = arguments(
        corpus, folder, distributed_backend="gloo", feature_cache="disk"
    )
    done = _run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            SCRIPT,
            CONFIG,
            *options,
        ]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((folder / "results.json").read_text())
    assert results["tone-test"]["utterances"] == SPLITS["tone-test"]
    log = (folder / "log.txt").read_text()
    assert "x 2 processes" in log
    # Each process keeps random numbers of its own for a resume.
    (newest, *_) = sorted((folder / "save").glob("CKPT+*"), reverse=True)
    assert (newest / "random.ckpt").exists()
    assert (newest / "random.rank1").exists()
