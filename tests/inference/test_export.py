"""From a run folder to a model folder, reading only."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from speechbrain.utils.checkpoints import Checkpointer

from mala_asr.data.files import sha256
from mala_asr.inference.export import ExportError, commit_of, export_run
from mala_asr.inference.model_folder import (
    ModelFolderError,
    load_model_folder,
)
from mala_asr.models import MalaASR
from mala_asr.models.checkpoints import CheckpointError
from mala_asr.scoring import score
from tests.tones import ToneModel

RATES = {"best": 10.0, "second": 20.0, "worst": 90.0}


@pytest.fixture
def run(tone_model: ToneModel, tmp_path: Path) -> Path:
    """A run folder as a training leaves it, of three checkpoints."""
    folder = tmp_path / "run"
    model = MalaASR(**tone_model.model.config)
    model.load_state_dict(tone_model.model.state_dict())
    checkpointer = Checkpointer(folder / "save", {"model": model})
    for name, rate in RATES.items():
        checkpointer.save_checkpoint(name=name, meta={"WER": rate})
        with torch.no_grad():
            model.ctc_head.bias += 1.0
    shutil.copy(tone_model.tokenizer_path, folder / "tokenizer.model")
    description = {
        "format_version": 1,
        "model": model.config,
        "decoding": {"decoder": "joint", "beam_size": 3, "ctc_weight": 0.5},
        "average_checkpoints": 2,
        "training": {"data": ["synth-train"], "hours": 5.25, "epochs": 40},
    }
    (folder / "model.json").write_text(json.dumps(description))
    report = score({"a": "x y z w"}, {"a": "x y o w"})
    names = ["CKPT+best", "CKPT+second"]
    results = {"test": {**report.summary(), "checkpoints": names}}
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def contents(folder: Path) -> dict[Path, tuple[str, int]]:
    return {
        path: (sha256(path), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_averages_as_the_evaluation_did_and_only_reads(
    run: Path, tone_model: ToneModel
) -> None:
    before = contents(run)
    dest = export_run(run, run.parent / "models" / "tones")
    assert contents(run) == before
    weights = load_model_folder(dest).model.state_dict()
    for name, value in tone_model.model.state_dict().items():
        wanted = value + 0.5 if name == "ctc_head.bias" else value
        torch.testing.assert_close(weights[name], wanted)


def test_the_card_says_what_was_measured(run: Path) -> None:
    card = (export_run(run, run.parent / "tones") / "README.md").read_text()
    assert card.startswith("# tones\n")
    assert "| test | 25.00 | 4 | 1 | 0 | 0 | 1 |" in card
    for line in (
        "| data | synth-train |",
        "| hours | 5.25 |",
        "| epochs | 40 |",
        "| attention | mala |",
    ):
        assert line in card
    assert "mala-asr transcribe --model tones" in card


def test_other_weights_get_no_rates_of_these(run: Path) -> None:
    dest = export_run(run, run.parent / "tones", average=1)
    card = (dest / "README.md").read_text()
    assert "not evaluated" in card
    assert "25.00" not in card
    assert load_model_folder(dest).config["results"] == {}


def test_decoding_travels(run: Path) -> None:
    loaded = load_model_folder(export_run(run, run.parent / "tones"))
    assert loaded.config["decoding"] == {
        "decoder": "joint",
        "beam_size": 3,
        "ctc_weight": 0.5,
    }


def test_the_decoder_is_that_of_the_results(run: Path) -> None:
    path = run / "results.json"
    results = json.loads(path.read_text())
    results["test"] |= {"decoder": "ctc_greedy", "beam_size": 3}
    path.write_text(json.dumps(results))
    loaded = load_model_folder(export_run(run, run.parent / "tones"))
    assert loaded.config["decoding"] == {"decoder": "ctc_greedy"}
    # Of weights that were not evaluated, the training's.
    dest = export_run(run, run.parent / "other", average=1)
    assert load_model_folder(dest).config["decoding"]["decoder"] == "joint"


def test_notes_are_in_the_card(run: Path) -> None:
    dest = export_run(run, run.parent / "tones", notes="Fails on *whispers*.\n")
    card = (dest / "README.md").read_text()
    assert "\n\nFails on *whispers*.\n\n## Results" in card


@pytest.mark.parametrize("name", ["model.json", "tokenizer.model"])
def test_not_a_run(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(ExportError, match=f"{name} is missing"):
        export_run(run, run.parent / "tones")
    assert not (run.parent / "tones").exists()


def test_no_checkpoint_yet(run: Path) -> None:
    shutil.rmtree(run / "save")
    (run / "save").mkdir()
    with pytest.raises(CheckpointError, match="no checkpoint"):
        export_run(run, run.parent / "tones")


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format_version": 2}', "upgrade"),
        ('{"format_version": 1, "decoding": [1]}', "damaged .its decoding"),
        ('{"format_version": 1, "training": 5}', "damaged .its training"),
        ('{"format_version": 1}', "does not describe a model"),
    ],
)
def test_a_damaged_description(run: Path, text: str, said: str) -> None:
    (run / "model.json").write_text(text)
    with pytest.raises((ExportError, ModelFolderError), match=said):
        export_run(run, run.parent / "tones")


def test_damaged_results(run: Path) -> None:
    (run / "results.json").write_text('{"dev-clean": 5}')
    with pytest.raises(ExportError, match="damaged .its dev-clean"):
        export_run(run, run.parent / "tones")


def test_the_commit_of_a_checkout_alone(tmp_path: Path) -> None:
    def git(*argv: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *argv]
        done = subprocess.run(command, check=True, capture_output=True)
        return done.stdout.decode().strip()

    assert commit_of(tmp_path) == {}
    git("init")
    assert commit_of(tmp_path) == {}, "no commit yet"
    (tmp_path / "file").write_text("x")
    git("add", "file")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert commit.startswith(commit_of(tmp_path)["commit"])
    (tmp_path / "file").write_text("y")
    assert commit_of(tmp_path)["commit"].endswith("-dirty")
    (tmp_path / "inside").mkdir()
    assert commit_of(tmp_path / "inside") == {}
