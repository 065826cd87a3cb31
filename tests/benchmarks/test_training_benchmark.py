"""The training benchmark times both loops and reports them side by side."""

import subprocess
import sys
from pathlib import Path

import pytest

from mala_asr.benchmarks import training
from mala_asr.benchmarks.batches import noise_batches
from mala_asr.benchmarks.sides import OURS, STOCK, build_side
from mala_asr.benchmarks.stopwatch import Stopwatch, backward
from mala_asr.benchmarks.training import Measurement, measure, report
from mala_asr.errors import MalaError

ENCODER_PARTS = {"front-end", "attention", "convolution", "feed-forward"}


@pytest.mark.parametrize("name", [STOCK, "mala separable8"])
def test_a_side_learns_and_its_parts_add_up(name: str):
    side = build_side(name, noise_batches(4, 5000)[:1])
    losses = [side.step(0) for _ in range(2)]
    assert losses[0] > 0 and losses[0] != losses[1]

    watch = Stopwatch()
    side.watch(watch)
    watch.start()
    side.step(0)
    spent = watch.stop()
    expected = ENCODER_PARTS | {"decoder", "output layers", "losses"}
    for part in expected:
        assert spent[part] > 0, part
        assert spent[backward(part)] > 0, part
    assert spent["optimizer"] > 0


def test_all_sides_share_their_sizes():
    batches = noise_batches(1, 5000)[:1]
    stock, conv4, separable8 = (
        build_side(name, batches).parameters for name in (STOCK, *OURS)
    )
    # RelPosMHAXL has a projection of positions and two biases in each layer.
    d_model, layers = 144, 12
    relative = layers * (d_model * d_model + 2 * d_model)
    assert stock - conv4 == pytest.approx(relative, abs=layers * 2 * d_model)
    assert abs(separable8 - conv4) < 0.05 * conv4


def test_the_report_compares_with_the_first_side():
    first = Measurement("stock", 2_000_000, [240.0, 240.0], [10.0, 30.0])
    second = Measurement(
        "ours",
        1_000_000,
        [240.0, 240.0],
        [5.0, 10.0],
        {"attention": 1.0, backward("attention"): 2.0, "other": 1.0},
    )
    lines = report([first, second]).splitlines()
    assert "| stock | 2.00 M | 20.00 s | 12.0 | 1.00x (1.00-1.00) |" in lines
    assert "| ours | 1.00 M | 7.50 s | 32.0 | 2.67x (2.00-3.00) |" in lines
    assert "| attention | 1.00 s | 2.00 s | 75 % |" in lines
    assert "| other | 1.00 s | 0.00 s | 25 % |" in lines


def test_a_side_that_dies_is_reported_in_one_line():
    with pytest.raises(MalaError, match="'nonsense' failed: KeyError"):
        measure(noise_batches(1, 50), ["nonsense"], repeats=1)


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]):
    for arguments in (["--seconds", "0"], ["--repeats", "-1"]):
        with pytest.raises(SystemExit) as stop:
            training.main(arguments)
        assert stop.value.code == 2
        assert "above zero" in capsys.readouterr().err


def test_a_missing_corpus_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    missing = tmp_path / "nowhere"
    assert training.main(["--data_folder", str(missing)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("training benchmark: error: no such folder")
    assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_the_whole_benchmark_prints_its_tables():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mala_asr.benchmarks.training",
            *("--seconds", "10", "--repeats", "1"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for name in (STOCK, *OURS):
        assert f"| {name} | 13." in done.stdout or f"| {name} | 12." in (
            done.stdout
        )
        assert f"| {name}: part of a step" in done.stdout
