"""prepare: whole splits become manifests, faults are all named at once."""

import os

import pytest
import soundfile

from mala_asr.data.librispeech import (
    CorpusError,
    find_splits,
    prepare_librispeech,
)
from mala_asr.data.manifest import read_manifest
from tests.data.corpora import write_split

WORDS = {"84-1-0000": "GO ON", "84-1-0001": "STOP", "99-7-0000": "IT'S TRUE"}


@pytest.fixture
def root(tmp_path):
    write_split(tmp_path / "LibriSpeech" / "my split", WORDS)
    return tmp_path


def prepare(root, split="my split"):
    return prepare_librispeech(root, root / "csv", [split])[split]


@pytest.mark.parametrize("inner", ["", "LibriSpeech"])
def test_a_split_becomes_a_manifest(root, inner):
    manifests = prepare_librispeech(root / inner, root / "csv", ["my split"])
    assert manifests == {"my split": root / "csv" / "my split.csv"}
    said = read_manifest(manifests["my split"])
    assert {u.id: u.wrd for u in said} == WORDS
    assert [u.spk_id for u in said] == ["84", "84", "99"]
    for utterance in said:
        assert os.path.isabs(utterance.wav)
        file = soundfile.info(utterance.wav)
        assert utterance.duration == file.duration == 0.5


def test_a_second_run_writes_nothing(root):
    manifest = prepare(root)
    before = {p: p.stat().st_mtime_ns for p in manifest.parent.iterdir()}
    assert prepare(root) == manifest
    assert before == {
        p: p.stat().st_mtime_ns for p in manifest.parent.iterdir()
    }


def test_it_is_redone_when_the_split_or_the_manifest_changed(root):
    manifest = prepare(root)
    write_split(root / "LibriSpeech" / "my split", {"99-7-0001": "NEW"})
    prepare(root)
    assert [u.wrd for u in read_manifest(manifest)][-1] == "NEW"
    whole = manifest.read_text()
    manifest.write_text(whole[:60])
    prepare(root)
    assert manifest.read_text() == whole


def test_a_transcript_that_is_edited_in_place_is_seen(root):
    manifest = prepare(root)
    path = root / "LibriSpeech/my split/84/1/84-1.trans.txt"
    path.write_text(path.read_text().replace("STOP", "HALT"))
    os.utime(path, ns=(1, 1))
    prepare(root)
    assert "HALT" in manifest.read_text()


def test_every_fault_is_named_in_one_line(root):
    split = root / "LibriSpeech" / "my split"
    (split / "84/1/84-1-0000.flac").write_text("no audio")
    soundfile.write(split / "84/1/84-1-0001.flac", [], 16000)
    (split / "99/7/99-7-0000.flac").rename(split / "99/7/99-7-0005.flac")
    with pytest.raises(CorpusError) as caught:
        prepare(root)
    line = str(caught.value)
    assert "\n" not in line
    assert "1 audio file(s) without a transcript" in line
    assert "99-7-0005.flac" in line
    assert "1 transcript(s) without audio: 99-7-0000" in line
    assert "2 unusable audio file(s)" in line
    assert "84-1-0000.flac is not audio" in line
    assert "84-1-0001.flac" in line
    assert not (root / "csv" / "my split.csv").exists()


def test_a_long_list_of_faults_stays_short(root):
    split = root / "LibriSpeech" / "my split"
    write_split(split, {f"7-1-{n:04d}": "X" for n in range(20)})
    (split / "7/1/7-1.trans.txt").unlink()
    with pytest.raises(CorpusError, match="20 audio file.* and 17 more"):
        prepare(root)


@pytest.mark.parametrize(
    "line, fault",
    [
        ("99-7-0000 AGAIN\n", "given twice: 99-7-0000"),
        ("99-7-0003 WORDS\n", "without audio: 99-7-0003"),
    ],
)
def test_faulty_transcripts_are_named(root, line, fault):
    path = root / "LibriSpeech/my split/99/7/99-7.trans.txt"
    path.write_text(path.read_text() + line)
    with pytest.raises(CorpusError, match=fault):
        prepare(root)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"\xef\xbb\xbf99-7-0000 IT IS\n", "IT IS"),
        (b"99-7-0000\tIT IS\r\n", "IT IS"),
        ("99-7-0000 IT\u2028IS".encode(), "IT\u2028IS"),
    ],
)
def test_no_word_is_lost_to_how_a_transcript_is_written(root, content, words):
    path = root / "LibriSpeech/my split/99/7/99-7.trans.txt"
    path.write_bytes(content)
    assert read_manifest(prepare(root))[-1].wrd == words


@pytest.mark.parametrize("split", ["..", ".", "a/b", ""])
def test_a_split_is_a_name(root, split):
    with pytest.raises(CorpusError, match="is not the name of a split"):
        prepare(root, split)


def test_a_name_without_words_is_no_transcript(root):
    path = root / "LibriSpeech/my split/99/7/99-7.trans.txt"
    path.write_text("99-7-0000\n")
    with pytest.raises(CorpusError, match="without a transcript.*99-7-0000"):
        prepare(root)


def test_the_same_name_in_two_folders_is_refused(root):
    split = root / "LibriSpeech" / "my split"
    (split / "85" / "1").mkdir(parents=True)
    soundfile.write(split / "85/1/84-1-0000.flac", [0.0] * 100, 16000)
    with pytest.raises(CorpusError, match="name of another: .*85/1/84-1-0000"):
        prepare(root)


def test_a_missing_split_names_the_closest(root):
    (root / "LibriSpeech" / "dev-clean").mkdir()
    with pytest.raises(CorpusError, match="did you mean dev-clean"):
        prepare(root, "dev-claen")
    with pytest.raises(CorpusError, match="no utterances"):
        prepare(root, "dev-clean")
    with pytest.raises(CorpusError, match="no such data folder"):
        prepare(root / "nowhere")
    with pytest.raises(CorpusError, match="not the name of a split"):
        prepare(root, "../LibriSpeech/dev-clean")


def test_hidden_files_are_left_out(root):
    (root / "LibriSpeech/my split/84/1/._84-1-0000.flac").write_text("x")
    (root / "LibriSpeech/.hidden").mkdir()
    assert len(read_manifest(prepare(root))) == 3
    assert find_splits(root) == ["my split"]
