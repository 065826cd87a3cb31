"""The doctor says what is there, what is missing and what to do."""

import json
import sys
from pathlib import Path

import pytest
import soundfile

from mala_asr.cli.main import main
from mala_asr.data import ffmpeg
from mala_asr.inference import doctor

METADATA = """\
Metadata-Version: 2.1
Name: mala_asr
Version: 0.1.0
Provides-Extra: good
Provides-Extra: lacking
Provides-Extra: dev
Requires-Dist: numpy>=1
Requires-Dist: {requirement}
Requires-Dist: soundfile; extra == "good"
Requires-Dist: no-such-package-a; extra == "lacking"
Requires-Dist: no-such-package-b; python_version < "3" and extra == "good"
Requires-Dist: no-such-package-c; extra == "dev"
"""


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, requirement: str
) -> None:
    """Let an installation with these requirements be found first."""
    path = folder / "mala_asr-0.1.0.dist-info" / "METADATA"
    path.parent.mkdir()
    path.write_text(METADATA.format(requirement=requirement))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])


def found(topic: str) -> dict[str, list[str]]:
    statuses: dict[str, list[str]] = {}
    for finding in doctor.examine():
        if finding.topic == topic:
            statuses.setdefault(finding.status, []).append(finding.text)
    return statuses


def test_all_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(tmp_path, monkeypatch, "torch")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for topic in ("system", "packages", "extras", "audio", "devices"):
        assert f"{topic}:\n" in out
    assert "ok       torch " in out and "libsndfile" in out
    assert "cpu, " in out
    assert main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"topic", "status", "text"} == set(printed[0])


@pytest.mark.parametrize(
    "requirement, said",
    [
        ("no-such-package", "no-such-package is not installed; run: pip"),
        ("torch>=99", 'is not >=99; run: pip install "torch>=99"'),
    ],
)
def test_a_package_is_missing_or_too_old(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    requirement: str,
    said: str,
) -> None:
    install(tmp_path, monkeypatch, requirement)
    (failed,) = found("packages")[doctor.FAILED]
    assert said in failed
    assert main(["doctor"]) == 1
    assert f"failed   {failed}" in capsys.readouterr().out


def test_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "torch")
    assert found("extras") == {
        doctor.OK: ["good"],
        doctor.MISSING: [
            "lacking: no-such-package-a is not installed; run: pip install "
            '"mala_asr[lacking]"'
        ],
    }


def test_ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "find_ffmpeg", lambda: None)
    assert "install ffmpeg" in found("audio")[doctor.MISSING][0]
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho ffmpeg version 7.1 and more\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "find_ffmpeg", ffmpeg.find_ffmpeg)
    assert "ffmpeg version 7.1" in found("audio")[doctor.OK]


def test_audio_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no libsndfile")

    monkeypatch.setattr(soundfile, "write", broken)
    assert "no libsndfile" in found("audio")[doctor.FAILED][0]


def test_torch_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch does not load" in found("devices")[doctor.FAILED][0]


def test_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_requirements", lambda: [])
    assert "not installed" in found("packages")[doctor.MISSING][0]
    assert found("extras") == {}
