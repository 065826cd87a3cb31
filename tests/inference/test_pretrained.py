"""The model that comes with the package, used without naming it."""

import json
import re
from pathlib import Path

import pytest
import safetensors.torch
import soundfile
import torch

from mala_asr import Transcriber
from mala_asr.cli.main import main
from mala_asr.inference.model_folder import load_model_folder
from mala_asr.inference.pretrained import PRETRAINED, pretrained_folder
from tests.tones import tones

MOST_BYTES = 12_000_000


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = tmp_path / "recording.wav"
    soundfile.write(path, tones("AB CD").numpy(), 16000)
    return str(path)


def test_it_is_small_and_stored_in_half_precision() -> None:
    folder = pretrained_folder()
    assert sum(p.stat().st_size for p in folder.iterdir()) <= MOST_BYTES
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    model = load_model_folder(PRETRAINED).model
    for name, weight in model.named_parameters():
        assert stored[name].dtype == torch.float16
        assert weight.dtype == torch.float32
        assert weight.isfinite().all() and weight.any()


def test_its_card_tells_what_was_measured() -> None:
    folder = pretrained_folder()
    config = json.loads((folder / "config.json").read_text())
    card = (folder / "README.md").read_text()
    decoder = config["decoding"]["decoder"]
    assert set(config["results"]) == {"heldout-dev-clean", "test-other-partial"}
    for name, totals in config["results"].items():
        row = re.search(rf"^\| {name} \|.*$", card, re.MULTILINE)
        assert row is not None
        assert f"{totals['WER']:.2f}" in row[0]
        assert totals["decoder"] == decoder and decoder in row[0]
    assert "CC BY 4.0" in card
    assert f"| hours | {config['training']['hours']} |" in card


def test_transcribe_without_a_model(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcribe", "--device", "cpu", recording]) == 0
    unnamed, err = capsys.readouterr()
    rate = load_model_folder(PRETRAINED).config["results"]["heldout-dev-clean"]
    (line,) = (part for part in err.splitlines() if "no --model" in part)
    assert f"{rate['WER']:.1f} % on heldout-dev-clean" in line
    assert str(pretrained_folder() / "README.md") in line
    named = ["transcribe", "--model", PRETRAINED, "--device", "cpu", recording]
    assert main(named) == 0
    assert capsys.readouterr().out == unnamed
    (transcript,) = Transcriber(device="cpu").transcribe([recording])
    assert f"{transcript.text}\n" == unnamed


def test_a_folder_of_that_name_wins(
    tone_folder: Path,
    recording: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / PRETRAINED).symlink_to(tone_folder)
    monkeypatch.chdir(tmp_path)
    named = ["transcribe", "--model", PRETRAINED, "--device", "cpu", recording]
    assert main(named) == 0
    assert capsys.readouterr().out == "AB CD\n"


def test_it_can_be_exported_further(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = tmp_path / "float32"
    assert main(["export", PRETRAINED, str(dest)]) == 0
    ours, theirs = load_model_folder(PRETRAINED), load_model_folder(dest)
    for (_, a), (_, b) in zip(
        ours.model.state_dict().items(),
        theirs.model.state_dict().items(),
        strict=True,
    ):
        assert torch.equal(a, b)
    assert theirs.config["results"] == ours.config["results"]
