"""An analysis as one HTML page that needs nothing but itself.

Python writes the numbers and words as JSON, and the page's own script shows
them, 50 utterances at a time. A policy in the page allows that script and its
style alone, by their hashes, so nothing that a transcript holds can run, and
nothing is loaded from anywhere.
"""

import base64
import hashlib
import html
import json
import os
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from mala_asr.scoring.analysis import GROUPINGS, Analysis
from mala_asr.scoring.record import (
    analysis_record,
    confusions_record,
    steps_record,
)
from mala_asr.scoring.text import analysis_text

# Confusions of each kind that the page lists.
_CONFUSIONS = 100


def write_page(
    path: str | os.PathLike[str], analysis: Analysis, title: str
) -> None:
    """Write the page.

    Arguments
    ---------
    path : str or os.PathLike
        The file to write.
    analysis : Analysis
        What `analyze` returned.
    title : str
        What was scored.
    """
    Path(path).write_text(page_text(analysis, title), encoding="utf-8")


def page_text(analysis: Analysis, title: str) -> str:
    """Give the page.

    Arguments
    ---------
    analysis : Analysis
        What `analyze` returned.
    title : str
        What was scored.

    Returns
    -------
    str
        HTML: totals with intervals, rates by duration and speaker as plots,
        confusions, and every utterance with its alignment, to be sorted and
        filtered.
    """
    assets = resources.files("mala_asr.scoring") / "assets"
    page, style, script = (
        (assets / f"page.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    told = [name for name in GROUPINGS if analysis.names[name]]
    return Template(page).substitute(
        title=html.escape(title),
        text=html.escape(analysis_text(analysis, by=told)),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=_json(_page_data(analysis, told)),
    )


def _page_data(analysis: Analysis, told: list[str]) -> dict[str, Any]:
    speakers = analysis.names["speaker"]
    scored = {speakers.get(u.id) for u in analysis.report.utterances} - {None}
    return {
        "totals": analysis_record(analysis, by=told),
        "confusions": confusions_record(analysis, _CONFUSIONS),
        "speakers": sorted(filter(None, scored)),
        "rows": _rows(analysis),
    }


def _rows(analysis: Analysis) -> list[list[Any]]:
    """One list an utterance; page.js names its places."""
    speakers = analysis.names["speaker"]
    rows: list[list[Any]] = [
        [
            u.id,
            speakers.get(u.id),
            _rounded(analysis.durations.get(u.id)),
            u.words,
            u.errors,
            steps_record(u),
        ]
        for u in analysis.report.utterances
    ]
    if analysis.comparison is not None:
        others = analysis.comparison.report.utterances
        for row, other in zip(rows, others, strict=True):
            row += [other.errors, steps_record(other)]
    return rows


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in, or open another."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return base64.b64encode(digest).decode("ascii")
