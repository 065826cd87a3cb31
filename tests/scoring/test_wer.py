"""Word error rates against jiwer, SpeechBrain and counts by hand."""

import jiwer
import pytest
from speechbrain.utils.metric_stats import ErrorRateStats

from mala_asr.scoring import ScoringError, character_counts, score
from mala_asr.scoring.wer import total
from tests.scoring.random_pairs import random_pairs


def test_totals_equal_jiwer() -> None:
    references, hypotheses = random_pairs(1000, seed=1)
    report = score(references, hypotheses)
    theirs = jiwer.process_words(
        list(references.values()), list(hypotheses.values())
    )
    assert report.errors > 500
    assert report.wer == pytest.approx(100 * theirs.wer)
    assert report.hits == theirs.hits
    assert report.substitutions == theirs.substitutions
    assert report.deletions == theirs.deletions
    assert report.insertions == theirs.insertions
    assert report.mer == pytest.approx(100 * theirs.mer)
    assert report.wil == pytest.approx(100 * theirs.wil)


def test_characters_equal_jiwer() -> None:
    references, hypotheses = random_pairs(1000, seed=5)
    counts = character_counts(score(references, hypotheses))
    theirs = jiwer.process_characters(
        list(references.values()), list(hypotheses.values())
    )
    assert counts.wer == pytest.approx(100 * theirs.cer)
    assert counts.hits == theirs.hits
    assert counts.substitutions == theirs.substitutions
    assert counts.deletions == theirs.deletions
    assert counts.insertions == theirs.insertions


@pytest.mark.parametrize(
    "reference, hypothesis, mer, wil",
    [
        ("", "", None, None),
        ("", "x", None, None),
        ("x", "", 100, 100),
        ("x y", "x", 50, 50),
        ("x y", "x y", 0, 0),
    ],
)
def test_match_error_rate_and_information_lost(
    reference: str, hypothesis: str, mer: float | None, wil: float | None
) -> None:
    report = score({"u": reference}, {"u": hypothesis})
    assert (report.mer, report.wil) == (mer, wil)


def test_totals_equal_speechbrain() -> None:
    references, hypotheses = random_pairs(300, seed=2)
    report = score(references, hypotheses)
    stats = ErrorRateStats()
    stats.append(
        ids=list(references),
        predict=[text.split() for text in hypotheses.values()],
        target=[text.split() for text in references.values()],
    )
    theirs = stats.summarize()
    assert report.wer == pytest.approx(theirs["WER"])
    assert report.ser == pytest.approx(theirs["SER"])
    assert report.errors == theirs["num_edits"]
    assert report.words == theirs["num_scored_tokens"]
    assert report.sentence_errors == theirs["num_erroneous_sents"]


def test_utterances_add_up_to_the_totals() -> None:
    report = score(*random_pairs(200, seed=3))
    for field in ("hits", "substitutions", "deletions", "insertions"):
        parts = [getattr(u, field) for u in report.utterances]
        assert sum(parts) == getattr(report, field) > 0
        assert getattr(total(report.utterances), field) == sum(parts)


def test_alignment_spells_out_both_sides() -> None:
    for utterance in score(*random_pairs(200, seed=4)).utterances:
        steps = list(utterance.alignment())
        said = [s.reference for s in steps if s.reference is not None]
        heard = [s.hypothesis for s in steps if s.hypothesis is not None]
        assert said == utterance.reference
        assert heard == utterance.hypothesis
        operations = [s.operation for s in steps]
        assert operations.count("=") == utterance.hits
        assert operations.count("S") == utterance.substitutions
        assert operations.count("D") == utterance.deletions
        assert operations.count("I") == utterance.insertions
        assert all(
            (s.operation == "=") == (s.reference == s.hypothesis) for s in steps
        )


@pytest.mark.parametrize(
    "reference, hypothesis, errors, words",
    [
        ("", "", 0, 0),
        ("", "one two", 2, 0),
        ("one two", "", 2, 2),
        ("a", "i", 1, 1),
        ("  one \t two\n", "one two", 0, 2),
        ("One", "one", 1, 1),
    ],
)
def test_edge_cases(
    reference: str, hypothesis: str, errors: int, words: int
) -> None:
    report = score({"u": reference}, {"u": hypothesis})
    assert (report.errors, report.words) == (errors, words)
    assert report.wer == (100 * errors / words if words else None)


def test_pairs_by_id_and_keeps_the_order_of_the_references() -> None:
    report = score({"b": "x y", "a": "z"}, {"a": "z", "b": "x y"})
    assert report.errors == 0
    assert [u.id for u in report.utterances] == ["b", "a"]


@pytest.mark.parametrize(
    "references, hypotheses, said",
    [
        ({"a": "x", "b": "y"}, {"a": "x"}, "no hypothesis, the first is 'b'"),
        ({"a": "x"}, {"a": "x", "c": ""}, "no reference, the first is 'c'"),
    ],
)
def test_ids_on_one_side_only_are_refused(
    references: dict, hypotheses: dict, said: str
) -> None:
    with pytest.raises(ScoringError, match=said):
        score(references, hypotheses)
