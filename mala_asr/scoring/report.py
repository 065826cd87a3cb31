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


def summary_text(
    report: WerReport, without_hypothesis: int = 0, without_reference: int = 0
) -> str:
    """Give the three lines that sum a report up.

    Arguments
    ---------
    report : WerReport
        What `score` returned.
    without_hypothesis : int
        Utterances that the hypotheses lacked.
    without_reference : int
        Utterances that the references lacked; told only where there are any.

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
    unknown = (
        f", {without_reference} not present in ref" if without_reference else ""
    )
    return (
        f"{rate_text(report)}\n"
        f"%SER {percent(report.ser)} "
        f"[ {report.sentence_errors} / {count} ]\n"
        f"Scored {count} sentences, {without_hypothesis} not present in hyp"
        f"{unknown}.\n"
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
    return summary_text(report) + alignments_text(report)


def alignments_text(report: WerReport) -> str:
    """Give the alignment of every utterance.

    Arguments
    ---------
    report : WerReport
        What `score` returned.

    Returns
    -------
    str
        A legend, and per utterance its rate and the lines reference,
        operation and hypothesis, as SpeechBrain writes them.
    """
    lines = [
        _RULE,
        "ALIGNMENTS",
        "",
        "Format:",
        "<utterance-id>, WER DETAILS",
        *alignment_lines(_LEGEND),
    ]
    for utterance in report.utterances:
        lines += [_RULE, f"{utterance.id}, {rate_text(utterance)}"]
        lines += alignment_lines(utterance.alignment())
    return "\n".join(lines) + "\n"


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


def percent(rate: float | None) -> str:
    """Write a rate with two decimals.

    Arguments
    ---------
    rate : float, optional
        In percent.

    Returns
    -------
    str
        The rate; ``n/a`` for None.
    """
    return "n/a" if rate is None else f"{rate:.2f}"


def rate_text(counts: EditCounts, name: str = "WER") -> str:
    """Write a rate and its counts as Kaldi does.

    Arguments
    ---------
    counts : EditCounts
        The counts.
    name : str
        What they are the rate of.

    Returns
    -------
    str
        The line.

    Example
    -------
    >>> rate_text(EditCounts(48, 1, 1, 0))
    '%WER 4.00 [ 2 / 50, 0 ins, 1 del, 1 sub ]'
    """
    return (
        f"%{name} {percent(counts.wer)} [ {counts.errors} / {counts.words}, "
        f"{counts.insertions} ins, {counts.deletions} del, "
        f"{counts.substitutions} sub ]"
    )


def alignment_lines(steps: Iterable[AlignedWord]) -> list[str]:
    """Write an alignment in three lines.

    Arguments
    ---------
    steps : Iterable[AlignedWord]
        What `UtteranceScore.alignment` gives.

    Returns
    -------
    list[str]
        Reference, operation and hypothesis in columns; ``<eps>`` for no
        word.
    """
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
