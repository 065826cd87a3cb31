"""The cost benchmarks: what they measure, and what they leave out."""

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from mala_asr.benchmarks import attention, cost, cost_worker, encoder
from mala_asr.benchmarks.cost import (
    COMPILED,
    MALA,
    SIDES,
    Cost,
    Limits,
    draw,
    exponent,
    report,
)
from mala_asr.benchmarks.cost_sides import (
    HYPERMIXING_POSITIONS,
    SINE_POSITIONS,
    build_cost_side,
    count_operations,
    prepare,
)
from mala_asr.benchmarks.cost_worker import added_memory

D_MODEL = 144
EAGER = [side for side in SIDES if side != COMPILED]


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("what", ["attention", "encoder"])
def test_every_side_runs_and_learns(what: str, name: str) -> None:
    side = build_cost_side(what, name, D_MODEL, layers=1)
    prepare(side, D_MODEL, "forward", 40)()
    assert all(p.grad is None for p in side.module.parameters())
    prepare(side, D_MODEL, "step", 40)()
    assert any(p.grad is not None for p in side.module.parameters())


@pytest.mark.parametrize(
    "what, name, longest",
    [
        ("attention", "HyperMixing", HYPERMIXING_POSITIONS),
        ("encoder", "HyperMixing", HYPERMIXING_POSITIONS),
        ("encoder", "regularMHA", SINE_POSITIONS),
    ],
)
def test_positions_end_where_they_are_said_to(
    what: str, name: str, longest: int
) -> None:
    side = build_cost_side(what, name, D_MODEL, layers=1)
    assert side.longest == longest
    side.longest = None
    prepare(side, D_MODEL, "forward", longest)()
    with pytest.raises((RuntimeError, IndexError, AssertionError)):
        prepare(side, D_MODEL, "forward", longest + 1)()


def test_operations_are_counted() -> None:
    frames = 1000
    products = {}
    for name in EAGER:
        side = build_cost_side("attention", name, D_MODEL, layers=1)
        constant, linear, square = count_operations(side, D_MODEL, "forward")
        products[name] = linear, square
        step = count_operations(side, D_MODEL, "step")
        total = constant + linear * frames + square * frames**2
        done = step[0] + step[1] * frames + step[2] * frames**2
        # Two products backward for each one forward.
        assert done == pytest.approx(3 * total, rel=0.1), name
    # Four projections, and softmax's two products of scores.
    projections = 4 * 2 * D_MODEL**2
    assert products["RoPEMHA"] == pytest.approx((projections, 4 * D_MODEL))
    # MALA's statistics cost two products of head size for each frame.
    linear, square = products[MALA]
    assert square == pytest.approx(0.0, abs=1e-3)
    assert linear == pytest.approx(projections + 4 * D_MODEL * 36, rel=0.05)


def test_memory_is_what_a_call_adds_at_its_peak() -> None:
    # In a process of its own, as the benchmark does it: a training that ran
    # in this one may have told glibc to keep what is freed.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = pool.submit(_use_60_then_40_megabytes).result()
    if found["bytes"] is None:
        pytest.skip("this system cannot tell")
    assert found["bytes"] == pytest.approx(60 * 2**20, rel=0.2)
    assert found["seconds"] > 0


def _use_60_then_40_megabytes() -> dict[str, Any]:
    # Above 32 MB glibc always gives memory back; below, it depends on the heap.
    megabyte = 2**18  # floats

    def run() -> None:
        first = torch.ones(60 * megabyte)
        del first
        torch.ones(40 * megabyte)

    added_memory(run)
    # What was freed before does not hide it.
    torch.ones(160 * megabyte)
    return added_memory(run)


def test_memory_is_never_less_than_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = iter([5000, 904])
    monkeypatch.setattr(cost_worker, "reset_peak_memory", lambda: True)
    monkeypatch.setattr(cost_worker, "peak_memory", lambda: next(peaks))
    assert added_memory(lambda: None)["bytes"] == 0


def _costs(side: str, power: float, lengths: list[int]) -> list[Cost]:
    return [
        Cost(
            side,
            D_MODEL,
            kind,
            n,
            [1e-6 * n**power],
            memory=round(1e3 * n**power),
            operations=1e3 * n,
        )
        for kind in cost.KINDS
        for n in lengths
    ]


def test_what_would_be_too_much_is_foretold() -> None:
    lengths = [1000, 2000]
    square = [c for c in _costs("x", 2.0, lengths) if c.kind == "step"]
    # 4 s and 4 GB at 2000 frames, so 36 at 6000.
    assert Limits(40.0, 40.0).reason(square, 6000) == ""
    assert Limits(40.0, 30.0).reason(square, 6000) == "36 s"
    assert Limits(30.0, 30.0).reason(square, 6000) == "36 GB"
    # Without two points nothing is known.
    assert Limits(1e-9, 1e-9).reason(square[:1], 10**9) == ""
    linear = [c for c in _costs("x", 1.0, lengths) if c.kind == "step"]
    assert Limits(1.0, 0.4).reason(linear, 100_000) == ""


def test_exponents_are_those_of_long_inputs() -> None:
    points = [(n, 5.0 + 0.0 * n) for n in (128, 250, 500)]
    points += [(n, 1e-9 * n**1.5) for n in (1000, 4000, 16_000)]
    assert exponent(points) == pytest.approx(1.5)
    assert exponent(points[:4]) is None


def test_the_report() -> None:
    lengths = [250, 1000, 4000]
    costs = _costs(MALA, 1.0, lengths) + _costs("RoPEMHA", 2.0, lengths)
    costs[-1].took.clear()
    costs[-1].left_out = "17 GB"
    text = report(costs, peak=1e10)
    assert "| d=144, forward: time | MALA | RoPEMHA |" in text
    assert "| 250 | 0.25 ms | 62.5 ms, 250x |" in text
    assert "| 4,000 | 4.00 ms | (17 GB) |" in text
    assert "| grows with the power | 1.00 | 2.00 |" in text
    assert "| 1,000 | 1.00 MB | 1,000 MB |" in text
    # 1e6 operations in 1 ms, of 10 GFLOP/s.
    assert "| 1,000 | 10 % | 0 % |" in text


def test_the_plot(tmp_path: Path) -> None:
    draw(_costs(MALA, 1.0, [128, 250]), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "main, options, message",
    [
        (attention.main, ["--lengths", "0"], "a whole number above zero"),
        (attention.main, ["--layers", "3"], "unrecognized arguments"),
        (encoder.main, ["--widths", "100"], "invalid choice"),
        (encoder.main, ["--sides", "BigBird"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_refused(
    main: Any,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(options)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_attention_benchmark(tmp_path: Path) -> None:
    out = _run(
        "mala_asr.benchmarks.attention",
        *("--lengths", "1000", "500", "3001", "--widths", "144"),
        *("--sides", MALA, "RelPosMHAXL", "HyperMixing", "--rounds", "1"),
        *("--max-gigabytes", "0.4", f"--json={tmp_path / 'costs.json'}"),
        f"--plot={tmp_path / 'costs.png'}",
    )
    assert out.count("(positions end at 3,000)") == 4
    assert out.count(" GB)") == 4  # RelPosMHAXL at 3001 frames
    assert (tmp_path / "costs.png").stat().st_size > 10_000
    record = json.loads((tmp_path / "costs.json").read_text())
    assert record["peaks"]["144"] > 1e8
    measured = [c for c in record["costs"] if c["took"]]
    assert len(measured) == 2 * (3 + 2 + 2)
    assert all(c["memory"] > 0 for c in measured)


@pytest.mark.slow
def test_the_encoder_benchmark_compiled() -> None:
    out = _run(
        "mala_asr.benchmarks.encoder",
        *("--lengths", "64", "128", "--widths", "144", "--layers", "1"),
        *("--sides", MALA, COMPILED, "--rounds", "1"),
    )
    assert "layers: 1;" in out
    assert out.count(f"| {MALA} | {COMPILED} |") == 6
