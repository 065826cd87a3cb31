"""The demo's steps on a minute of speech."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mala_asr.cli.demo import run_demo
from mala_asr.devices import DeviceError

pytest.importorskip("espeakng_loader")

TINY = {
    "number_of_epochs": 1,
    "model": {"d_model": 64, "num_encoder_layers": 1, "d_ffn": 64},
    "speeds": [1.0],
}


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    hook, root = sys.excepthook, logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    sys.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_missing_device_is_found_before_the_synthesis(
    tmp_path: Path,
) -> None:
    with pytest.raises(DeviceError, match="cuda:99"):
        run_demo(tmp_path, device="cuda:99")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_goes_the_whole_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo output"  # with a space, for the shell
    report = run_demo(folder, minutes=1, **TINY)
    assert "%WER " in report
    assert f"Model folder: {folder / 'model'}" in report
    assert f"--model '{folder / 'model'}' recording.wav" in report
    assert (folder / "model" / "model.safetensors").exists()
    steps = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("mala-asr: ")
    ]
    assert len(steps) == 4

    # Run again, it keeps what is there.
    saved = sorted((folder / "run" / "save").iterdir())
    run_demo(folder, minutes=1, **TINY)
    assert sorted((folder / "run" / "save").iterdir()) == saved
