"""The demo: from nothing to a model that reads voices it never heard."""

import json
import shlex
import statistics
import time
from pathlib import Path

import pytest

from mala_asr.benchmarks.word_times import start_errors
from mala_asr.cli.main import main
from mala_asr.inference.model_folder import load_model_folder

MINUTES = 60.0  # in seconds


@pytest.mark.slow
def test_the_demo_keeps_its_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    demo = ["demo", "--output", str(tmp_path)]
    started = time.monotonic()
    assert main(demo) == 0
    took = time.monotonic() - started
    printed = capsys.readouterr().out

    result = json.loads((tmp_path / "run" / "results.json").read_text())
    found = result["synth-test"]
    assert found["WER"] <= 15.0
    assert took <= 15 * MINUTES
    first_line = (tmp_path / "run" / "wer_synth-test.txt").open().readline()
    assert first_line.strip() in printed

    # The command that it ends with works on any file of the corpus.
    line = next(x for x in printed.splitlines() if "mala-asr transcribe" in x)
    _, *command = shlex.split(line)[:-1]
    files = sorted((tmp_path / "corpus").rglob("synth-test/**/*.flac"))[:2]
    assert main([*command, *map(str, files)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2

    # Its words lie where the synthesizer has put them.
    model = load_model_folder(tmp_path / "model")
    errors = start_errors(model, tmp_path / "corpus" / "LibriSpeech")
    assert len(errors) > 400
    assert statistics.mean(map(abs, errors)) < 0.08  # seconds

    # Run again, it finds everything done and the same words.
    started = time.monotonic()
    assert main(demo) == 0
    assert time.monotonic() - started <= 2 * MINUTES
    again = json.loads((tmp_path / "run" / "results.json").read_text())
    assert again["synth-test"]["WER"] == found["WER"]
