"""mala-asr transcribe in several processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
import torch

from mala_asr.cli.main import main
from mala_asr.inference.processes import ProcessError, Processes
from tests.tones import tones

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
TWO = [*LAUNCH, "--nproc-per-node", "2", "-m", "mala_asr.cli", "transcribe"]


@pytest.fixture
def recordings(tmp_path: Path) -> list[str]:
    paths = []
    for number, text in enumerate(("AB CD", "D", "CAB", "BA", "DAD")):
        path = tmp_path / f"{9 - number}.flac"
        soundfile.write(path, tones(text).numpy(), 16000)
        paths.append(str(path))
    return paths


def environment() -> dict[str, str]:
    # As on a user's machine: torchrun chooses the number of threads.
    return {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}


def in_two(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TWO, "--model", str(folder), "--device", "cpu", *argv],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(),
    )


def alone(folder: Path, *argv: str) -> int:
    model = ["--model", str(folder), "--device", "cpu"]
    return main(["transcribe", *model, *argv])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["txt", "json"])
def test_one_output_in_the_order_of_the_inputs(
    tone_folder: Path,
    recordings: list[str],
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    assert alone(tone_folder, "-f", name, *recordings) == 0
    expected = capsys.readouterr().out
    done = in_two(tone_folder, "-f", name, *recordings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert done.stderr.count("s of audio in") == 1


@pytest.mark.slow
def test_a_bad_file_is_reported_once_and_the_rest_go_on(
    tone_folder: Path,
    recordings: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("not audio")
    # The longest is the first process'. The second is done long before.
    inputs = [recordings[0], str(bad), recordings[1]]
    assert alone(tone_folder, *inputs) == 1
    expected = capsys.readouterr().out
    done = in_two(tone_folder, *inputs)
    assert done.returncode == 1
    assert done.stdout == expected
    assert done.stderr.count(f"error: {bad} is not audio") == 1
    assert done.stderr.count(f"1 of 3 inputs failed: {bad}") == 1


@pytest.mark.slow
def test_what_the_first_refuses_is_said_once(
    tone_folder: Path, recordings: list[str], tmp_path: Path
) -> None:
    done = in_two(tone_folder, "-f", "srt", *recordings)
    assert done.returncode == 1
    assert done.stderr.count("mala-asr: error: srt holds one recording") == 1
    assert "lost another process" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_more_processes_than_recordings(
    tone_folder: Path, recordings: list[str]
) -> None:
    done = in_two(tone_folder, recordings[0])
    assert (done.returncode, done.stdout) == (0, "AB CD\n"), done.stderr


def files(folder: Path) -> list[Path]:
    """All but what a killed process may have begun, which is hidden."""
    return [p for p in folder.iterdir() if not p.name.startswith(".")]


def worker(launcher: int, rank: str) -> int:
    """Process id of a rank below torchrun."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
    for child in children.split():
        environ = Path(f"/proc/{child}/environ").read_text().split("\0")
        if f"RANK={rank}" in environ:
            return int(child)
    raise AssertionError(f"no rank {rank} among {children}")


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds workers in /proc"
)
def test_killed_and_repeated(
    tone_folder: Path, recordings: list[str], tmp_path: Path
) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(200):
        source = recordings[number % len(recordings)]
        shutil.copy(source, many / f"{number:03}.flac")
    out = tmp_path / "out"
    options = ["-f", "txt", "-f", "json", "--batch-size", "1", str(many)]
    command = [*TWO, "--model", str(tone_folder), "--device", "cpu"]
    with subprocess.Popen(
        [*command, "-o", str(out), *options],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        deadline = time.monotonic() + 200
        while not out.exists() or len(files(out)) < 20:
            assert started.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(worker(started.pid, "1"), signal.SIGKILL)
        _, err = started.communicate(timeout=100)
    assert started.returncode == 1
    assert "SIGKILL" in err
    kept = {path: path.stat().st_mtime_ns for path in files(out)}
    assert 20 <= len(kept) < 400

    done = in_two(tone_folder, "-o", str(out), *options, "--skip-existing")
    assert done.returncode == 0, done.stderr
    assert "of 200 recordings are there already" in done.stderr
    assert all(path.stat().st_mtime_ns == kept[path] for path in kept)

    single = tmp_path / "single"
    assert alone(tone_folder, "-o", str(single), *options) == 0
    found, expected = (
        {path.name: path.read_text() for path in files(folder)}
        for folder in (out, single)
    )
    assert len(expected) == 400
    assert found == expected


@pytest.mark.parametrize("argv", [["--stream", "-"], ["-"], ["a.wav", "-"]])
def test_what_cannot_be_shared_out(
    argv: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert alone(Path("none"), *argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "cannot be shared out; start it without torchrun" in err


@pytest.mark.parametrize(
    "rank, count", [("2", "2"), ("-1", "2"), ("0", "0"), ("x", "2")]
)
def test_an_environment_that_makes_no_sense(rank: str, count: str) -> None:
    with pytest.raises(ProcessError, match="start with torchrun"):
        Processes.of_environment({"RANK": rank, "WORLD_SIZE": count})


def test_shares_have_everything_once() -> None:
    for count in (1, 2, 3, 8):
        shares = [
            Processes(rank, count).share(range(7), [0.0] * 7)
            for rank in range(count)
        ]
        assert sorted(sum(shares, [])) == list(range(7))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_shares_take_about_as_long() -> None:
    lengths = [float(n * n % 97) for n in range(100)]
    for count in (2, 3, 8):
        shares = [
            Processes(rank, count).share(range(100), lengths)
            for rank in range(count)
        ]
        assert sorted(sum(shares, [])) == list(range(100))
        assert all(share == sorted(share) for share in shares)
        loads = [sum(lengths[n] for n in share) for share in shares]
        assert max(loads) - min(loads) < 0.02 * sum(lengths) / count


def test_cpus_and_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    threads = [Processes(0, 64, 0, n).threads for n in (1, 2, 3, 16)]
    assert threads == [8, 4, 2, 1]
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    Processes().choose_gpu()
    assert chosen == []
    for rank in range(3):
        Processes(rank, 6, rank, 3).choose_gpu()
    assert chosen == [0, 1, 0]
