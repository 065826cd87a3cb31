"""stm segments and ctm words, and which word belongs to which segment."""

from pathlib import Path

import pytest

from mala_asr.scoring import ScoringError, Transcripts, read_transcripts
from mala_asr.scoring.nist import IGNORE

STM = f"""\
;; two channels of one recording
rec A ann 0.0 2.0 <o,f> the cat sat
rec A ben 2.5 4.0 <o,m> on the mat
rec A ann 4.0 5.0 {IGNORE}
rec A ann 6.0 7.0 <o,f>
rec B eve 0.0 2.0 hello world
"""
CTM = """\
rec A 0.4 0.2 cat
rec A 0.1 0.2 the 0.9
rec A 1.9 0.3 sat
rec A 2.2 0.1 um
rec A 2.6 0.2 on NA
rec A 2.9 0.2 the
rec A 3.9 0.3 mat
rec A 4.3 0.3 rubbish
rec A 5.3 0.3 gap
rec A 6.3 0.3 silence
rec A 8.3 0.3 tail
rec B 0.1 0.3 hello
rec B 0.6 0.3 word
"""


@pytest.fixture
def stm(tmp_path: Path) -> Path:
    path = tmp_path / "ref.stm"
    path.write_text(STM)
    return path


def words(folder: Path, text: str, segments: Path) -> Transcripts:
    path = folder / "hyp.ctm"
    path.write_text(text)
    return read_transcripts(path, segments=segments)


def test_segments(stm: Path) -> None:
    found = read_transcripts(stm)
    assert found.texts == {
        "rec_A_0000000-0002000": "the cat sat",
        "rec_A_0002500-0004000": "on the mat",
        "rec_A_0006000-0007000": "",
        "rec_B_0000000-0002000": "hello world",
    }
    assert found.durations["rec_A_0002500-0004000"] == 1.5
    assert [*found.speakers.values()] == ["ann", "ben", "ann", "eve"]
    assert [*found.sets.values()] == ["o,f", "o,m", "o,f"]
    assert found.notes == [
        f"1 of 5 segments are marked {IGNORE} and are not scored"
    ]


def test_words_go_by_their_middle(stm: Path, tmp_path: Path) -> None:
    """ "sat" and "mat" lie mostly outside their segments, as for sclite."""
    found = words(tmp_path, CTM, stm)
    assert found.texts == {
        "rec_A_0000000-0002000": "the cat",
        "rec_A_0002500-0004000": "sat um on the",
        "rec_A_0006000-0007000": "gap silence tail",
        "rec_B_0000000-0002000": "hello word",
    }
    assert found.notes == [
        f"2 recognized words in segments marked {IGNORE} are not scored",
        "4 recognized words lie in no segment; each counts in the next "
        "segment of its recording, or in the last",
    ]


def test_every_word_is_kept_or_told_of(stm: Path, tmp_path: Path) -> None:
    found = words(tmp_path, CTM, stm)
    kept = sum(len(text.split()) for text in found.texts.values())
    assert kept + 2 == CTM.count("\n")


def test_recordings_of_one_side(stm: Path, tmp_path: Path) -> None:
    """They are left for the pairing to refuse, or to count."""
    found = words(tmp_path, "rec B 0.1 0.2 hello\nnew 1 0.1 0.2 oh\n", stm)
    assert found.texts == {"rec_B_0000000-0002000": "hello", "new_1": "oh"}


def test_a_ctm_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "hyp.ctm"
    path.write_text("a-1 1 0.5 0.2 two\na-1 1 0.1 0.2 one\nb-1 1 0 1 x\n")
    assert read_transcripts(path).texts == {"a-1": "one two", "b-1": "x"}


def test_channels_need_segments(tmp_path: Path) -> None:
    path = tmp_path / "hyp.ctm"
    path.write_text(CTM)
    with pytest.raises(ScoringError, match="'rec' has the channels A and B"):
        read_transcripts(path)


def test_overlapping_segments_are_refused(tmp_path: Path) -> None:
    stm = tmp_path / "ref.stm"
    stm.write_text("rec A ann 0 2 x\nrec A ben 1.9 3 y\n")
    assert len(read_transcripts(stm).texts) == 2
    with pytest.raises(ScoringError, match="line 2: the segment overlaps"):
        words(tmp_path, "rec A 0.1 0.2 x\n", stm)


@pytest.mark.parametrize(
    "name, text",
    [
        ("f.stm", "rec A ann 0.0 x y\n"),
        ("f.stm", "rec A ann 2.0 1.0 x\n"),
        ("f.ctm", "rec A 0.0 1.0\n"),
        ("f.ctm", "rec A * * <ALT_BEGIN>\n"),
    ],
)
def test_lines_of_another_format(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ScoringError, match="line 1: not in the"):
        read_transcripts(tmp_path / name)


def test_alternatives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.stm"
    path.write_text("rec A ann 0.0 1.0 { a / b } c\n")
    with pytest.raises(ScoringError, match="alternatives"):
        read_transcripts(path)
