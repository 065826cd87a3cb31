"""An analysis as text, Kaldi's line first."""

from collections.abc import Iterator, Sequence

from mala_asr.scoring.analysis import Analysis, Comparison
from mala_asr.scoring.groups import worst
from mala_asr.scoring.record import confusions_record
from mala_asr.scoring.report import (
    alignment_lines,
    alignments_text,
    percent,
    rate_text,
    summary_text,
)
from mala_asr.scoring.significance import (
    LEVEL,
    Interval,
    MatchedPairs,
    PairedBootstrap,
)
from mala_asr.scoring.wer import EDIT_COSTS

# Fewer segments than this are too few for the normal distribution.
_MANY_SEGMENTS = 50


def analysis_text(
    analysis: Analysis,
    by: Sequence[str] = (),
    top: int = 0,
    align: bool = False,
) -> str:
    """Write an analysis.

    Arguments
    ---------
    analysis : Analysis
        What `analyze` returned.
    by : Sequence[str]
        What to group utterances by, one table each.
    top : int
        How many of the worst utterances and most frequent confusions to show.
    align : bool
        Whether to show every utterance word by word.

    Returns
    -------
    str
        The text, ends in a newline.

    Raises
    ------
    ScoringError
        When the files do not tell a grouping.
    """
    lines = list(_totals(analysis))
    if analysis.comparison is not None:
        lines += _comparison(analysis.comparison)
    for grouping in by:
        lines += _groups(analysis, grouping)
    if top:
        lines += _worst(analysis, top)
        lines += _confusions(analysis, top)
    text = "\n".join(lines) + "\n"
    return text + alignments_text(analysis.report) if align else text


def _totals(analysis: Analysis) -> Iterator[str]:
    report, pairs = analysis.report, analysis.pairs
    yield summary_text(
        report, pairs.without_hypothesis, pairs.without_reference
    ).rstrip("\n")
    if pairs.without_hypothesis or pairs.without_reference:
        did = {"empty": "counted as empty", "skip": "left out"}[pairs.missing]
        yield f"Utterances not present on a side were {did}."
    yield rate_text(analysis.characters, "CER")
    yield f"%MER {percent(report.mer)}, %WIL {percent(report.wil)}"
    if analysis.resamples:
        ranges = ", ".join(_range(i) for i in analysis.intervals)
        ranges = ranges or "n/a (needs two utterances and words)"
        yield (
            f"WER {LEVEL:g}% confidence: {ranges}; bootstrap, "
            f"{analysis.resamples} resamples, seed {analysis.seed}"
        )
    costs = ", ".join(f"{kind} {cost}" for kind, cost in EDIT_COSTS.items())
    yield f"Normalization: {analysis.normalizer.label}; edit costs: {costs}"
    if analysis.before is not None:
        yield f"Before normalization: {rate_text(analysis.before)}"
        yield f"After normalization:  {rate_text(report)}"
    for note in analysis.notes:
        yield f"Note: {note}."


def _range(interval: Interval) -> str:
    return f"{interval.low:.2f} to {interval.high:.2f} over {_units(interval)}"


def _units(interval: Interval) -> str:
    few = " (few, so too narrow)" if interval.few else ""
    return f"{interval.size} {interval.unit}{few}"


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return "p n/a"
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


def _comparison(comparison: Comparison) -> Iterator[str]:
    yield ""
    yield "Second system, compared with the first:"
    yield rate_text(comparison.report)
    if comparison.before is not None:
        yield f"Before normalization: {rate_text(comparison.before)}"
    for found in comparison.bootstraps:
        yield _paired_text(found)
    yield _matched_text(comparison.matched_pairs)


def _paired_text(found: PairedBootstrap) -> str:
    return (
        f"Paired bootstrap over {_units(found)}: difference "
        f"{found.low:+.2f} to {found.high:+.2f} ({LEVEL:g}%), "
        f"{_p_text(found.p_value)}, better in {100 * found.improved:.1f}% "
        "of the resamples"
    )


def _matched_text(found: MatchedPairs) -> str:
    z = "n/a" if found.z is None else f"{found.z:.3f}"
    few = (
        "; few segments, p is rough"
        if found.p_value is not None and found.segments < _MANY_SEGMENTS
        else ""
    )
    return (
        f"Matched pairs (MAPSSWE): {found.segments} segments, mean "
        f"{found.mean:+.3f} errors, Z = {z}, {_p_text(found.p_value)}{few}"
    )


def _groups(analysis: Analysis, by: str) -> list[str]:
    rows = [
        (by, "sentences", "words", "WER", f"{LEVEL:g}%", "ins", "del", "sub")
    ]
    for group in analysis.groups(by):
        bounds = group.interval
        rows.append(
            (
                group.name,
                str(group.utterances),
                str(group.counts.words),
                percent(group.counts.wer),
                f"{bounds.low:.2f}-{bounds.high:.2f}" if bounds else "n/a",
                str(group.counts.insertions),
                str(group.counts.deletions),
                str(group.counts.substitutions),
            )
        )
    return ["", f"By {by}:", *_table(rows, left=1)]


def _worst(analysis: Analysis, top: int) -> Iterator[str]:
    yield ""
    yield "Utterances with most errors:"
    for utterance in worst(analysis.report.utterances, top):
        yield f"{utterance.id}, {rate_text(utterance)}"
        yield from alignment_lines(utterance.alignment())


def _confusions(analysis: Analysis, top: int) -> Iterator[str]:
    for kind, rows in confusions_record(analysis, top).items():
        columns = " (said, recognized)" if kind == "substitutions" else ""
        yield ""
        yield f"Most frequent {kind}{columns}:"
        yield from _table([[*map(str, row)] for row in rows], left=2)


def _table(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Columns of equal width, the first `left` of them flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
