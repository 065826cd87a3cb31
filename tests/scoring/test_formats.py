"""Reading and writing files of transcripts."""

from pathlib import Path

import pytest

from mala_asr.scoring import ScoringError, read_transcripts, write_trn


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text, file_format, transcripts",
    [
        ("one two (a-1)\n(a-2)\n", "trn", {"a-1": "one two", "a-2": ""}),
        ("a-1 one two\na-2\n", "kaldi", {"a-1": "one two", "a-2": ""}),
        ("one two\n\nthree", "plain", {"1": "one two", "2": "", "3": "three"}),
        ("a-1\tone two\r\na-2 x\r\n", "kaldi", {"a-1": "one two", "a-2": "x"}),
        ("\ufeffu1 ü 日本\n", "kaldi", {"u1": "ü 日本"}),
        # Words, not ids: nothing of the text may get lost.
        ("2 dogs ran\n3 cats sat\n", "plain", {"1": "2 dogs ran"}),
        ("hello world\ngood bye\n", "plain", {"1": "hello world"}),
        ("a-1 one\na-1 two\n", "plain", {"1": "a-1 one", "2": "a-1 two"}),
        ("one (laughs)\ntwo\n", "plain", {"1": "one (laughs)"}),
        ("one\u2028two\x0bthree\n", "plain", {"1": "one\u2028two\x0bthree"}),
    ],
)
def test_detects_the_format(
    tmp_path: Path, text: str, file_format: str, transcripts: dict
) -> None:
    read = read_transcripts(write(tmp_path / "f", text))
    assert read.file_format == file_format
    assert transcripts.items() <= read.texts.items()
    assert len(read.texts) == len(
        text.replace("\r", "").strip("\n").split("\n")
    )


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "1 one two\n2 three\n")
    plain, kaldi = (read_transcripts(path, f) for f in ("auto", "kaldi"))
    assert plain.texts == {"1": "1 one two", "2": "2 three"}
    assert kaldi.texts == {"1": "one two", "2": "three"}


@pytest.mark.parametrize(
    "name, text, file_format",
    [
        ("ref.csv", "ID,wrd\na,x\n", "csv"),
        ("ref.tsv", "ID\twrd\na\tx\n", "csv"),
        ("ref", "ID,duration,wav,spk_id,wrd\na,1,a.wav,s,x\n", "csv"),
        ("ref", '{"id": "a", "text": "x"}\n', "jsonl"),
        ("ref.stm", "rec A ann 0 1 x\n", "stm"),
        ("ref", "rec A ann 0.00 1.00 x\nrec A ann 1.00 2.00\n", "stm"),
        ("ref.ctm", "rec A 0 1 x\n", "ctm"),
        ("ref", ";; words\nrec A 0.00 1.00 x 0.9\n", "ctm"),
        # Counts, and not times.
        ("ref", "u1 has 2 3 cats\n", "kaldi"),
        ("ref", "a, b and c\nd, e and f\n", "plain"),
        ("ref", "{ not json }\n", "plain"),
    ],
)
def test_detects_formats_with_more_than_words(
    tmp_path: Path, name: str, text: str, file_format: str
) -> None:
    read = read_transcripts(write(tmp_path / name, text))
    assert read.file_format == file_format


def test_the_name_of_a_file_is_believed(tmp_path: Path) -> None:
    path = write(tmp_path / "f.trn", "one two\n")
    with pytest.raises(ScoringError, match="line 1: not in the trn format"):
        read_transcripts(path)
    assert read_transcripts(path, "plain").texts == {"1": "one two"}


@pytest.mark.parametrize(
    "content, file_format, said",
    [
        (b"one two\n", "trn", "line 1: not in the trn format"),
        (b"x { a / b } (u)\n", "trn", "line 1: alternatives"),
        (b"a-1 x\nb-1 y\na-1 z\n", "kaldi", "line 3: id 'a-1' a second time"),
        (b"caf\xe9\n", "auto", "not UTF-8"),
        (b"\n", "kaldi", "no transcripts"),
        (b"", "auto", "no transcripts"),
    ],
)
def test_faults_are_named(
    tmp_path: Path, content: bytes, file_format: str, said: str
) -> None:
    with pytest.raises(ScoringError, match=said):
        read_transcripts(write(tmp_path / "f", content), file_format)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match="nowhere.trn: No such file"):
        read_transcripts(tmp_path / "nowhere.trn")


def test_trn_round_trip(tmp_path: Path) -> None:
    transcripts = {"a-1": "one  two", "a-2": "", "ü_3": "日本 (noise) x"}
    write_trn(tmp_path / "f.trn", transcripts)
    read = read_transcripts(tmp_path / "f.trn")
    assert read.file_format == "trn"
    assert read.texts == {**transcripts, "a-1": "one two"}


@pytest.mark.parametrize("key", ["a b", "a(1)", ""])
def test_ids_that_trn_cannot_hold_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ScoringError, match="cannot be an id"):
        write_trn(tmp_path / "f.trn", {key: "x"})
    assert not (tmp_path / "f.trn").exists()
