"""Speech packed for a machine without a network comes out whole."""

import tarfile
from pathlib import Path

import pytest
import soundfile
import torch

from mala_asr.data.audio import AudioError
from mala_asr.data.librispeech import prepare_librispeech
from mala_asr.data.manifest import read_manifest
from mala_asr.training.compare.bundle import BundleError, main, pack, unpack
from tests.training.tone_corpus import SPLITS, make_tone_corpus

ENOUGH = 2**20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tone_corpus(tmp_path_factory.mktemp("corpus"))


def test_what_is_unpacked_is_the_corpus(corpus: Path, tmp_path: Path) -> None:
    size = pack(corpus, list(SPLITS), tmp_path / "speech.tar", ENOUGH)
    assert size == (tmp_path / "speech.tar").stat().st_size
    assert unpack(tmp_path / "speech.tar", tmp_path / "out") == sum(
        SPLITS.values()
    )
    before, after = (
        prepare_librispeech(folder, tmp_path / name, list(SPLITS))
        for name, folder in (("a", corpus), ("b", tmp_path / "out"))
    )
    for split in SPLITS:
        one, two = read_manifest(before[split]), read_manifest(after[split])
        assert [(u.id, u.duration, u.spk_id, u.wrd) for u in one] == [
            (u.id, u.duration, u.spk_id, u.wrd) for u in two
        ]
    assert not list((tmp_path / "out").rglob("*.opus"))
    # Opus is not exact, but it is the same sound.
    first, second = (
        torch.from_numpy(soundfile.read(read_manifest(m["tone-dev"])[0].wav)[0])
        for m in (before, after)
    )
    assert torch.corrcoef(torch.stack((first, second)))[0, 1] > 0.9


def test_unpacking_again_changes_nothing(corpus: Path, tmp_path: Path) -> None:
    pack(corpus, ["tone-dev"], tmp_path / "speech.tar", ENOUGH)
    unpack(tmp_path / "speech.tar", tmp_path / "out")
    times = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "out").rglob("*.flac")
    }
    unpack(tmp_path / "speech.tar", tmp_path / "out")
    assert len(times) == SPLITS["tone-dev"]
    assert all(p.stat().st_mtime_ns == time for p, time in times.items())


def test_other_opus_files_stay_as_they_are(
    corpus: Path, tmp_path: Path
) -> None:
    pack(corpus, ["tone-dev"], tmp_path / "speech.tar", ENOUGH)
    own = tmp_path / "out" / "own.opus"
    own.parent.mkdir()
    own.write_text("mine")
    assert unpack(tmp_path / "speech.tar", own.parent) == SPLITS["tone-dev"]
    assert own.read_text() == "mine"


def test_half_a_recording_is_not_packed(corpus: Path, tmp_path: Path) -> None:
    whole = next((corpus / "tone-dev").rglob("*.flac")).read_bytes()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "a.flac").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AudioError, match=r"a\.flac is damaged"):
        pack(tmp_path, ["dev"], tmp_path / "speech.tar", ENOUGH)
    assert not (tmp_path / "speech.tar").exists()


def test_too_much_speech_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="tone-dev make .* MiB, more than"):
        pack(corpus, ["tone-dev"], tmp_path / "speech.tar", 1000)
    assert list(tmp_path.iterdir()) == []


def test_other_rates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    soundfile.write(tmp_path / "dev" / "a.wav", [0.0] * 800, 8000)
    with pytest.raises(BundleError, match="8000 Hz and 1 channels"):
        pack(tmp_path, ["dev"], tmp_path / "speech.tar", ENOUGH)


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        tar.add(tmp_path / "secret", "../escaped")
    with pytest.raises(BundleError, match="is no bundle"):
        unpack(tmp_path / "bad.tar", tmp_path / "inner" / "out")
    assert not (tmp_path / "inner" / "escaped").exists()


def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.tar").write_text("no")
    assert main(["unpack", str(tmp_path / "no.tar"), str(tmp_path)]) == 1
    assert main(["pack", str(tmp_path / "x"), str(tmp_path / "y"), "z"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "is no bundle" in lines[0] and "no such data folder" in lines[1]
    assert len(lines) == 2
