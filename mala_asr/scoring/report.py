"""A report as text, in the form that Kaldi and SpeechBrain users know."""

import os
from collections.abc import Iterable
from pathlib import Path

from mala_asr.scoring.formats import write_trn
from mala_asr.scoring.wer import AlignedWord, EditCounts, WerReport

_RULE = "=" * 80
# What the columns of an alignment mean, shown once above them.
_LEGEND = (
    AlignedWord("I", None, "and"),
    AlignedWord("S", "reference", "hypothesis"),
    AlignedWord("=", "on", "on"),
    AlignedWord("=", "the", "the"),
    AlignedWord("S", "first", "third"),
    AlignedWord("D", "line", None),
)


def summary_text(report: WerReport) -> str:
    """Give the three lines that sum a report up.

    Arguments
    ---------
    report : WerReport
        What `score` returned.

    Returns
    -------
    str
        Word and sentence error rates with their counts, and the number of
        utterances; ends in a newline.

    Example
    -------
    >>> from mala_asr.scoring.wer import score
    >>> print(summary_text(score({"a": "one two"}, {"a": "one"})), end="")
    %WER 50.00 [ 1 / 2, 0 ins, 1 del, 0 sub ]
    %SER 100.00 [ 1 / 1 ]
    Scored 1 sentences, 0 not present in hyp.
    """
    count = len(report.utterances)
    return (
        f"{_rate_text(report)}\n"
        f"%SER {_percent(report.ser)} "
        f"[ {report.sentence_errors} / {count} ]\n"
        f"Scored {count} sentences, 0 not present in hyp.\n"
    )


def wer_text(report: WerReport) -> str:
    """Give the summary and the alignment of every utterance.

    Arguments
    ---------
    report : WerReport
        What `score` returned.

    Returns
    -------
    str
        The text of a ``wer_<set>.txt`` file of SpeechBrain: summary, legend,
        and per utterance its rate and the lines reference, operation and
        hypothesis.
    """
    lines = [
        _RULE,
        "ALIGNMENTS",
        "",
        "Format:",
        "<utterance-id>, WER DETAILS",
        *_alignment_lines(_LEGEND),
    ]
    for utterance in report.utterances:
        lines += [_RULE, f"{utterance.id}, {_rate_text(utterance)}"]
        lines += _alignment_lines(utterance.alignment())
    return summary_text(report) + "\n".join(lines) + "\n"


def write_wer_files(
    folder: str | os.PathLike[str], set_name: str, report: WerReport
) -> Path:
    """Write the report on a set and the transcripts behind it.

    Arguments
    ---------
    folder : str or os.PathLike
        An existing folder; gets ``wer_<set>.txt``, ``ref_<set>.trn`` and
        ``hyp_<set>.trn``.
    set_name : str
        Name of the set, such as ``test-clean``.
    report : WerReport
        What `score` returned.

    Returns
    -------
    Path
        The ``wer_<set>.txt`` file.
    """
    folder = Path(folder)
    wer_file = folder / f"wer_{set_name}.txt"
    wer_file.write_text(wer_text(report), encoding="utf-8")
    for side, attribute in (("ref", "reference"), ("hyp", "hypothesis")):
        write_trn(
            folder / f"{side}_{set_name}.trn",
            {u.id: " ".join(getattr(u, attribute)) for u in report.utterances},
        )
    return wer_file


def _percent(rate: float | None) -> str:
    return "n/a" if rate is None else f"{rate:.2f}"


def _rate_text(counts: EditCounts) -> str:
    return (
        f"%WER {_percent(counts.wer)} [ {counts.errors} / {counts.words}, "
        f"{counts.insertions} ins, {counts.deletions} del, "
        f"{counts.substitutions} sub ]"
    )


def _alignment_lines(steps: Iterable[AlignedWord]) -> list[str]:
    columns = [
        (step.reference or "<eps>", step.operation, step.hypothesis or "<eps>")
        for step in steps
    ]
    widths = [max(map(len, column)) for column in columns]
    return [
        " ; ".join(
            cell.center(width) for cell, width in zip(row, widths, strict=True)
        )
        for row in (zip(*columns, strict=True) if columns else [(), (), ()])
    ]
