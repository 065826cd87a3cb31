"""What is told about a pair of files, as text and as JSON."""

import json
import re
from typing import Any

import pytest

from mala_asr.scoring import (
    ScoringError,
    Transcripts,
    analysis_record,
    analysis_text,
    analyze,
    score,
)
from mala_asr.scoring.groups import duration_name, find_confusions, worst
from tests.scoring.random_pairs import random_pairs

SAID = {"ann-1": "the cat sat", "ann-2": "hello", "ben-1": "one two"}
HEARD = {"ann-1": "the bat sat", "ann-2": "hello you", "ben-1": "one two"}


def files(**facts: Any) -> tuple[Transcripts, Transcripts]:
    return Transcripts("csv", SAID, **facts), Transcripts("trn", HEARD)


def test_the_whole_text() -> None:
    assert analysis_text(analyze(*files()), by=["speaker"], top=1) == (
        "%WER 33.33 [ 2 / 6, 1 ins, 0 del, 1 sub ]\n"
        "%SER 66.67 [ 2 / 3 ]\n"
        "Scored 3 sentences, 0 not present in hyp.\n"
        "%CER 21.74 [ 5 / 23, 4 ins, 0 del, 1 sub ]\n"
        "%MER 28.57, %WIL 40.48\n"
        "WER 95% confidence: 0.00 to 100.00 over 3 utterances (few, so too "
        "narrow), 0.00 to 50.00 over 2 speakers (few, so too narrow); "
        "bootstrap, 1000 resamples, seed 0\n"
        "Normalization: none (words as written); edit costs: substitution 1, "
        "deletion 1, insertion 1\n"
        "\n"
        "By speaker:\n"
        "speaker  sentences  words    WER           95%  ins  del  sub\n"
        "ann              2      4  50.00  33.33-100.00    1    0    1\n"
        "ben              1      2   0.00           n/a    0    0    0\n"
        "\n"
        "Utterances with most errors:\n"
        "ann-2, %WER 100.00 [ 1 / 1, 1 ins, 0 del, 0 sub ]\n"
        "hello ; <eps>\n"
        "  =   ;   I  \n"
        "hello ;  you \n"
        "\n"
        "Most frequent substitutions (said, recognized):\n"
        "cat  bat  1\n"
        "\n"
        "Most frequent deletions:\n"
        "\n"
        "Most frequent insertions:\n"
        "you  1\n"
    )


def test_normalization_is_told_with_the_rate_before() -> None:
    said = Transcripts("trn", {"a": "One, two.", "b": "x"})
    heard = Transcripts("trn", {"a": "one two", "b": "y"})
    text = analysis_text(analyze(said, heard, normalize="basic"))
    assert text.startswith("%WER 33.33 [ 1 / 3,")
    assert "Normalization: basic 1 (NFKC, " in text
    assert "Before normalization: %WER 100.00 [ 3 / 3," in text
    assert "After normalization:  %WER 33.33 [ 1 / 3," in text


def test_what_was_missing_is_counted() -> None:
    said = Transcripts("trn", {"a": "one two", "b": "three"})
    heard = Transcripts("trn", {"a": "one two", "c": "four"})
    empty = analysis_text(analyze(said, heard, missing="empty"))
    assert empty.startswith("%WER 66.67 [ 2 / 3, 1 ins, 1 del, 0 sub ]\n")
    line = "1 not present in hyp, 1 not present in ref.\n"
    assert f"Scored 3 sentences, {line}" in empty
    assert "were counted as empty" in empty
    skip = analysis_text(analyze(said, heard, missing="skip"))
    assert skip.startswith("%WER 0.00 [ 0 / 2,")
    assert f"Scored 1 sentences, {line}" in skip
    assert "were left out" in skip


def test_speakers_from_ids_fields_and_a_pattern() -> None:
    assert analyze(*files()).names["speaker"]["ann-2"] == "ann"
    told = analyze(*files(speakers={"ann-1": "eve"})).names["speaker"]
    assert told == {"ann-1": "eve"}
    pattern = re.compile(r"-(\d)")
    told = analyze(*files(), speaker_pattern=pattern).names["speaker"]
    assert set(told.values()) == {"1", "2"}
    with pytest.raises(ScoringError, match="no speaker in the id 'ann-1'"):
        analyze(*files(), speaker_pattern=re.compile("x"))


@pytest.mark.parametrize(
    "ids", [["a", "b"], ["a-1", "b-1"], ["a-1", "a-2"], ["a-1", "a-2", "b"]]
)
def test_ids_that_tell_no_speaker(ids: list[str]) -> None:
    side = Transcripts("trn", dict.fromkeys(ids, "x"))
    found = analyze(side, side)
    assert {i.unit for i in found.intervals} == {"utterances"}
    with pytest.raises(ScoringError, match="nothing tells the speaker"):
        found.groups("speaker")


@pytest.mark.parametrize("by", ["duration", "set"])
def test_groups_that_no_file_tells(by: str) -> None:
    with pytest.raises(ScoringError, match=f"nothing tells the {by}"):
        analyze(*files()).groups(by)


def test_groups_add_up() -> None:
    said, heard = random_pairs(300, seed=1, speakers=7)
    lengths = {key: number / 9 for number, key in enumerate(said)}
    del lengths["spk0-0"]
    found = analyze(
        Transcripts("csv", said, durations=lengths), Transcripts("trn", heard)
    )
    for by in ("speaker", "duration"):
        groups = found.groups(by)
        assert sum(g.utterances for g in groups) == 300
        assert sum(g.counts.errors for g in groups) == found.report.errors
        assert sum(g.counts.words for g in groups) == found.report.words
    assert [g.name for g in groups] == [
        *("0-2 s", "2-5 s", "5-10 s", "10-15 s", "15-20 s", "20-30 s"),
        *("30- s", "unknown"),
    ]
    rates = [g.counts.wer for g in found.groups("speaker")]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    "seconds, name",
    [(0, "0-2 s"), (1.99, "0-2 s"), (2, "2-5 s"), (1e4, "30- s")],
)
def test_edges_of_durations(seconds: float, name: str) -> None:
    assert duration_name(seconds) == name


def test_speakers_differ_more_than_utterances() -> None:
    """Where speakers are of two kinds, their interval is the wider one."""
    said = {f"s{i % 8}-{i}": "a b c d" for i in range(400)}
    heard = {key: "a b c x" if int(key[1]) < 4 else "a b c d" for key in said}
    found = analyze(Transcripts("trn", said), Transcripts("trn", heard))
    over = {i.unit: i.high - i.low for i in found.intervals}
    assert over["speakers"] > 3 * over["utterances"]


def test_a_comparison() -> None:
    said, heard = random_pairs(300, seed=2, speakers=7)
    better = {
        key: said[key] if number % 2 else heard[key]
        for number, key in enumerate(said)
    }
    sides = [Transcripts("trn", texts) for texts in (said, heard, better)]
    found = analyze(*sides)
    comparison = found.comparison
    assert comparison is not None
    assert comparison.report == score(said, better)
    assert [b.unit for b in comparison.bootstraps] == ["utterances", "speakers"]
    assert all(b.high < 0 for b in comparison.bootstraps)
    assert comparison.bootstraps[0].p_value < 0.01
    assert comparison.matched_pairs.p_value < 0.01
    text = analysis_text(found)
    assert "Second system, compared with the first:\n%WER " in text
    assert "Paired bootstrap over 300 utterances: difference -" in text
    assert "Matched pairs (MAPSSWE): " in text
    assert "few segments" not in text
    assert "300 utterances: " in text
    assert "over 7 speakers (few, so too narrow): " in text


def test_a_comparison_of_few_segments_says_so() -> None:
    said, heard = files()
    text = analysis_text(analyze(said, heard, Transcripts("trn", SAID)))
    assert "few segments, p is rough" in text
    assert "-1.000 errors" in text


def test_no_intervals() -> None:
    found = analyze(*files(), Transcripts("trn", SAID), resamples=0)
    assert found.intervals == found.comparison.bootstraps == []
    text = analysis_text(found, by=["speaker"])
    assert "confidence" not in text
    assert "ootstrap" not in text


def test_no_words_at_all() -> None:
    empty = Transcripts("trn", {"a": "", "b": ""})
    text = analysis_text(analyze(empty, empty), top=3)
    assert text.startswith("%WER n/a [ 0 / 0, 0 ins, 0 del, 0 sub ]\n")
    assert "%MER n/a, %WIL n/a\n" in text
    assert "confidence: n/a (needs two utterances and words)" in text


def test_json_holds_what_the_text_does() -> None:
    said, heard = files()
    found = analyze(said, heard, Transcripts("trn", SAID), normalize="basic")
    record = analysis_record(found, by=["speaker"], top=2, align=True)
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again == record
    assert record["WER"] == found.report.wer
    assert record["CER"] == found.characters.wer
    assert record["edit_costs"]["substitution"] == 1
    assert record["normalization"]["name"] == "basic"
    assert record["normalization"]["before"]["rate"] == found.before.wer
    assert [i["unit"] for i in record["confidence"]["intervals"]] == [
        "utterances",
        "speakers",
    ]
    assert [g["name"] for g in record["groups"]["speaker"]] == ["ann", "ben"]
    assert [u["id"] for u in record["worst"]] == ["ann-2", "ann-1"]
    assert record["confusions"]["substitutions"] == [["cat", "bat", 1]]
    assert record["aligned"][0]["alignment"] == ["the", ["cat", "bat"], "sat"]
    assert record["comparison"]["WER"] == 0.0
    assert record["comparison"]["mapsswe"]["segments"] == 2


def test_worst_and_confusions_agree_with_the_counts() -> None:
    report = score(*random_pairs(200, seed=6))
    first = worst(report.utterances, 5)
    assert first[0].errors == max(u.errors for u in report.utterances)
    assert len(first) == 5
    found = find_confusions(report.utterances)
    assert found.substitutions.total() == report.substitutions
    assert found.deletions.total() == report.deletions
    assert found.insertions.total() == report.insertions
    assert all(said != heard for said, heard in found.substitutions)
