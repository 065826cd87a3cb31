"""`mala-asr models` lists what can be used and names what cannot."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mala_asr.cli.main import main
from mala_asr.inference.model_folder import save_model_folder
from mala_asr.inference.pretrained import pretrained_folder
from tests.tones import ToneModel


@pytest.fixture
def models(tone_model: ToneModel, tone_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(tone_folder, tmp_path / "b")
    save_model_folder(
        tmp_path / "x" / "a",
        *tone_model[::2],
        facts={
            "decoding": {"decoder": "joint", "beam_size": 3},
            "results": {"dev": {"WER": 12.345}, "odd": {"WER": None}},
        },
    )
    shutil.copytree(tone_folder, tmp_path / ".hidden" / "c")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "wav2vec2"}')
    return tmp_path


def test_what_a_model_is(
    tone_model: ToneModel, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", str(models)]) == 0
    out, err = capsys.readouterr()
    first, second = out.split("\n\n")
    assert first.startswith(f"{models}/b\n") and not err
    assert second.startswith(f"{models}/x/a\n")
    assert "mala, 1 encoder layers, 1 decoder layers, d_model 64" in first
    count = sum(p.numel() for p in tone_model.model.parameters())
    assert f"{count / 1e6:.2f} M parameters" in first
    assert "16000 Hz, frames of 40 ms" in first
    assert "ctc_greedy" in first and "not evaluated" in first
    assert "joint, beam_size 3" in second
    assert "dev 12.35 %, odd n/a" in second


def test_json(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", str(models)]) == 0
    one, other = json.loads(capsys.readouterr().out)
    assert one["folder"] == f"{models}/b"
    assert other["decoding"] == {"decoder": "joint", "beam_size": 3}
    assert other["results"]["dev"] == 12.345
    assert other["bytes"] > 100_000


def test_here_is_the_default(
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(models / "x")
    assert main(["models"]) == 0
    ours, here = capsys.readouterr().out.split("\n\n")
    assert ours.startswith(f"{pretrained_folder()}\n")
    assert here.startswith("a\n")
    monkeypatch.chdir(pretrained_folder().parent)
    assert main(["models"]) == 0
    assert "\n\n" not in capsys.readouterr().out


def test_a_damaged_model_is_named_and_the_others_listed(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (models / "b" / "tokenizer.model").unlink()
    assert main(["models", str(models)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{models}/x/a\n")
    assert err.count("\n") == 1 and "tokenizer.model is missing" in err


def test_no_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"no model folder in {tmp_path}" in err


def test_the_python_class_costs_nothing_until_used() -> None:
    script = (
        "import sys, mala_asr\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'Transcriber' in dir(mala_asr)\n"
        "from mala_asr.inference.transcriber import Transcriber\n"
        "assert mala_asr.Transcriber is Transcriber\n"
        "assert mala_asr.Recording('x/a.wav').id == 'a'\n"
        "try:\n"
        "    mala_asr.Translator\n"
        "except AttributeError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout == "module 'mala_asr' has no attribute 'Translator'\n", (
        done.stderr
    )
