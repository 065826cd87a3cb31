"""What is written is what independent readers read."""

import json
from collections.abc import Callable
from pathlib import Path

import pysubs2
import pytest
import webvtt
from praatio import textgrid

from mala_asr.decoding.hypothesis import Hypothesis, Span
from mala_asr.inference.transcript import Recording, Segment, Transcript
from mala_asr.inference.writers import FORMATS, Style
from mala_asr.scoring.formats import read_transcripts
from tests.inference.test_cues import speech

# Two phrases, a second apart.
WORDS = [
    Span("WELL", 0.5, 0.9, 0.5),
    Span("A&B", 0.9, 1.25, 1.0),
    Span("<GO>", 2.5, 2.5, 0.75),
    Span("ON", 3723.004, 3723.5, 0.25),
]


def transcript(words: list[Span], **recording: object) -> Transcript:
    text = " ".join(word.text for word in words)
    duration = words[-1].end + 1.0 if words else 1.0
    hypothesis = Hypothesis(text, [], 0.0, words=words)
    return Transcript(
        Recording(**{"path": "x/a.wav", **recording}),
        duration,
        [Segment(0.0, duration, hypothesis)],
    )


def render(name: str, *style: object, words: list[Span] | None = None) -> str:
    words = WORDS if words is None else words
    return FORMATS[name].render(transcript(words), Style(*style))


def test_txt() -> None:
    assert render("txt") == "WELL A&B <GO> ON\n"


def test_srt_to_the_letter() -> None:
    assert render("srt") == (
        "1\n00:00:00,500 --> 00:00:01,500\nWELL A&B\n\n"
        "2\n00:00:02,500 --> 00:00:03,500\n<GO>\n\n"
        "3\n01:02:03,004 --> 01:02:04,004\nON\n"
    )


def test_vtt_to_the_letter() -> None:
    assert render("vtt") == (
        "WEBVTT\n\n"
        "00:00:00.500 --> 00:00:01.500\nWELL A&amp;B\n\n"
        "00:00:02.500 --> 00:00:03.500\n&lt;GO&gt;\n\n"
        "01:02:03.004 --> 01:02:04.004\nON\n"
    )


def test_vtt_marks_words_inside_a_cue() -> None:
    said = render("vtt", True)
    assert "\nWELL <00:00:00.900>A&amp;B\n" in said


def test_tsv() -> None:
    assert render("tsv") == (
        "start\tend\ttext\n500\t1250\tWELL A&B\n2500\t2500\t<GO>\n"
        "3723004\t3723500\tON\n"
    )
    assert "\n500\t900\tWELL\n900\t1250\tA&B\n" in render("tsv", True)


def test_json() -> None:
    said = json.loads(render("json", True))
    assert said["id"] == "a" and said["file"] == "x/a.wav"
    assert said["text"] == "WELL A&B <GO> ON"
    assert said["duration"] == 3724.5 and said["confidence"] == 0.625
    first = said["segments"][0]
    assert (first["start"], first["end"]) == (0.5, 1.25)
    assert (first["text"], first["confidence"]) == ("WELL A&B", 0.75)
    assert [word["text"] for word in first["words"]] == ["WELL", "A&B"]
    assert first["words"][0]["confidence"] == 0.5
    assert "words" not in json.loads(render("json"))["segments"][0]
    assert "channel" not in said and "start" not in said
    part = transcript(WORDS, start=1.5, stop=4.0, channel=2)
    said = json.loads(FORMATS["json"].render(part, Style()))
    assert said["id"] == "a-ch2"
    assert (said["start"], said["stop"], said["channel"]) == (1.5, 4.0, 2)


def test_ctm_has_channels() -> None:
    part = transcript(WORDS[:1], channel=2)
    assert FORMATS["ctm"].render(part, Style()) == (
        "a 2 0.500 0.400 WELL 0.5000\n"
    )


@pytest.mark.parametrize("name", ["ctm", "trn", "json"])
@pytest.mark.parametrize("recording", ["a", "my (1) call;%20", "x/ä b"])
def test_the_scorer_reads_it(tmp_path: Path, name: str, recording: str) -> None:
    path = tmp_path / f"hyp.{name}"
    words = [WORDS[0], WORDS[3]]
    texts = [
        FORMATS[name].render(transcript(words, name=key), Style())
        for key in (recording, "other-1")
    ]
    path.write_text("".join(texts), encoding="utf-8")
    found = read_transcripts(path, hypothesis=True).texts
    assert list(found.values()) == ["WELL ON", "WELL ON"]
    key = list(found)[0]
    if name == "json" or recording == "a":
        assert key == recording
    else:
        assert not set(" ();") & set(key)


@pytest.mark.parametrize("style", [(), (True,), (False, 11, 1), (True, 30, 3)])
def test_subtitles_in_independent_readers(
    tmp_path: Path, style: tuple[object, ...]
) -> None:
    words = speech(seed=5)
    text = " ".join(word.text for word in words)
    path = tmp_path / "a.srt"
    path.write_text(render("srt", *style, words=words), encoding="utf-8")
    srt = pysubs2.load(str(path), format_="srt")
    path = tmp_path / "a.vtt"
    path.write_text(render("vtt", *style, words=words), encoding="utf-8")
    vtt = webvtt.read(path)
    cues = Style(*style).cues(transcript(words))
    assert len(srt) == len(vtt) == len(cues) > 30
    for cue, one, other in zip(cues, srt, vtt, strict=True):
        lines = [" ".join(w.text for w in line) for line in cue.lines]
        assert one.plaintext.split("\n") == other.text.split("\n") == lines
        assert one.start == round(1000 * cue.start)
        assert other.start_in_seconds == one.start // 1000
        assert one.end > one.start and one.end >= round(1000 * cue.end)
    assert " ".join(s.plaintext for s in srt).split() == text.split()


@pytest.mark.parametrize("words", [speech(seed=6), WORDS, []])
def test_textgrid_in_an_independent_reader(
    tmp_path: Path, words: list[Span]
) -> None:
    path = tmp_path / "a.TextGrid"
    path.write_text(render("textgrid", words=words), encoding="utf-8")
    grid = textgrid.openTextgrid(
        str(path), includeEmptyIntervals=True, reportingMode="error"
    )
    assert grid.tierNames == ("phrases", "words")
    tier = grid.getTier("words").entries
    said = [entry for entry in tier if entry.label]
    assert [entry.label for entry in said] == [word.text for word in words]
    for entry, word in zip(said, words, strict=True):
        assert entry.start == pytest.approx(word.start, abs=0.02)
    phrases = grid.getTier("phrases").entries
    assert " ".join(e.label for e in phrases if e.label) == " ".join(
        word.text for word in words
    )
    for one, other in zip(tier, tier[1:], strict=False):
        assert one.end == other.start


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_said(name: str) -> None:
    said = render(name, words=[])
    assert ("WELL" in said, said.endswith("\n") or not said) == (False, True)


@pytest.mark.parametrize("name", FORMATS)
def test_times_are_asked_for(name: str) -> None:
    untimed = Transcript(
        Recording("a.wav"), 1.0, [Segment(0.0, 1.0, Hypothesis("A", [], 0.0))]
    )
    render: Callable[..., str] = FORMATS[name].render
    if FORMATS[name].timed:
        with pytest.raises(ValueError, match="word_times=True"):
            render(untimed, Style())
    else:
        assert "A" in render(untimed, Style())


def test_segments_lie_one_after_another() -> None:
    parts = [
        Segment(at, at + 5.0, Hypothesis(w.text, [], 0.0, words=[w]))
        for at, w in ((0.0, WORDS[0]), (5.0, WORDS[1]))
    ]
    both = Transcript(Recording("a.wav"), 10.0, parts)
    assert [w.start for w in both.words] == [0.5, 5.9]
    assert both.text == "WELL A&B"
