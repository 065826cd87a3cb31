"""The text of a report against the file that SpeechBrain writes."""

import io
import re
from pathlib import Path

from speechbrain.utils.metric_stats import ErrorRateStats

from mala_asr.scoring import (
    read_transcripts,
    score,
    wer_text,
    write_wer_files,
)

# Pairs with one best alignment, so that no scorer has a choice.
REFERENCES = {
    "u1": "the cat sat on the mat",
    "u2": "one two three",
    "u3": "all right",
    "u4": "gone",
}
HYPOTHESES = {
    "u1": "the cap sat on mat",
    "u2": "one two oh three",
    "u3": "all right",
    "u4": "",
}


def speechbrain_file(references: dict, hypotheses: dict) -> str:
    stats = ErrorRateStats()
    stats.append(
        ids=list(references),
        predict=[hypotheses[key].split() for key in references],
        target=[text.split() for text in references.values()],
    )
    stream = io.StringIO()
    stats.write_stats(stream)
    return stream.getvalue()


def test_the_same_file_as_speechbrain() -> None:
    ours = wer_text(score(REFERENCES, HYPOTHESES))
    assert ours == speechbrain_file(REFERENCES, HYPOTHESES)
    assert ours.startswith("%WER 33.33 [ 4 / 12, 1 ins, 2 del, 1 sub ]\n")


def test_no_rate_without_reference_words() -> None:
    text = wer_text(score({"u": ""}, {"u": "oh no"}))
    assert text.startswith("%WER n/a [ 2 / 0, 2 ins, 0 del, 0 sub ]\n")
    # But for the rate, an utterance without words looks as in SpeechBrain.
    theirs = speechbrain_file({"u": ""}, {"u": "oh no"})
    assert text == re.sub(r"%WER [\d.]+ \[ 2", "%WER n/a [ 2", theirs)


def test_empty_utterance_keeps_its_place() -> None:
    references, hypotheses = {"a": "", "b": "x"}, {"a": "", "b": "y"}
    ours = wer_text(score(references, hypotheses))
    theirs = speechbrain_file(references, hypotheses)
    assert ours == theirs.replace("a, %WER 0.00", "a, %WER n/a")


def test_files_of_a_set_can_be_scored_again(tmp_path: Path) -> None:
    report = score(REFERENCES, HYPOTHESES)
    written = write_wer_files(tmp_path, "test-x", report)
    assert written == tmp_path / "wer_test-x.txt"
    assert written.read_text() == wer_text(report)
    again = score(
        read_transcripts(tmp_path / "ref_test-x.trn").texts,
        read_transcripts(tmp_path / "hyp_test-x.trn").texts,
    )
    assert again == report
