"""An inspection in pictures, and as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mala_asr.data.files import replacing
from mala_asr.inference.inspection import Inspection, ModelFigures
from mala_asr.inference.inspection_report import (
    LEGEND,
    MEANINGS,
    SCALING_MEANINGS,
    inspection_record,
    summarize,
    table_rows,
)
from mala_asr.models.inspection import AttentionFigures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORD = "inspection.json"

_DASHES = ("-", "--", ":", "-.")

# More points on a curve of all queries than this are not seen.
_POINTS = 500

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto;
  max-width: 75rem; padding: 0 1rem; }}
img {{ background: white; max-width: 100%; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #8886; padding: 0.2rem 0.6rem;
  text-align: left; white-space: nowrap; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{recordings}</p>
{pictures}
<h2>By layer</h2>
<p>{legend}</p>
<div class="wide">{layers}</div>
<h2>By head</h2>
<details><summary>Every head of every layer</summary>
<div class="wide">{heads}</div></details>
<h2>What was measured</h2>
<dl>{meanings}</dl>
</body>
</html>
"""


def write_files(
    folder: str | os.PathLike[str], inspection: Inspection
) -> list[Path]:
    """Write the record and the pictures.

    Arguments
    ---------
    folder : str or os.PathLike
        Where to; made where it is missing.
    inspection : Inspection
        What `inspect_files` found.

    Returns
    -------
    list of Path
        inspection.json, and one PNG for each picture.
    """
    written = [Path(folder) / RECORD]
    record = inspection_record(inspection)
    with replacing(written[0]) as path:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
    for name, picture in _pictures(inspection).items():
        written.append(Path(folder) / f"{name}.png")
        with replacing(written[-1]) as path:
            path.write_bytes(picture)
    return written


def write_page(
    path: str | os.PathLike[str], inspection: Inspection, title: str
) -> None:
    """Write the page: pictures and tables, with no script.

    Arguments
    ---------
    path : str or os.PathLike
        The file to write.
    inspection : Inspection
        What `inspect_files` found.
    title : str
        What was inspected.
    """
    seconds = inspection.seconds
    pictures = "\n".join(
        f'<h2>{name.capitalize()}</h2><img alt="{name}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        for name, data in _pictures(inspection).items()
    )
    meanings = "".join(
        f"<dt><code>{html.escape(name)}</code></dt><dd>{html.escape(text)}</dd>"
        for name, text in {**MEANINGS, **SCALING_MEANINGS}.items()
    )
    text = _PAGE.format(
        title=html.escape(title),
        recordings=f"{len(seconds)} recordings, "
        f"{sum(seconds.values()):.1f} s of audio.",
        pictures=pictures,
        legend=html.escape(LEGEND),
        layers=_html_table(table_rows(inspection, "layer")),
        heads=_html_table(table_rows(inspection, "head")),
        meanings=meanings,
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    lines = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for tag, row in [("th", rows[0]), *(("td", row) for row in rows[1:])]
    ]
    return "<table><tr>" + "</tr>\n<tr>".join(lines) + "</tr></table>"


def _pictures(inspection: Inspection) -> dict[str, bytes]:
    """Each picture as a PNG."""
    # Figure alone needs no display and leaves no global state behind.
    from matplotlib.figure import Figure

    drawn = {}
    for name, draw in (
        ("positivity", _draw_layers),
        ("concentration", _draw_scaling),
        ("magnitudes", _draw_magnitudes),
    ):
        lines = len(inspection.models)
        figure = Figure(figsize=(14, 4.5 + 0.2 * lines), layout="constrained")
        draw(figure, inspection.models)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left")
        for axes in figure.axes:
            axes.grid(alpha=0.3)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=110)
        drawn[name] = stream.getvalue()
    return drawn


def _styles(
    models: Sequence[ModelFigures],
) -> list[tuple[ModelFigures, dict[str, Any]]]:
    """Each with its label and line: a color an attention, dashes a model."""
    names = list(dict.fromkeys(found.model for found in models))
    attentions = list(dict.fromkeys(found.attention for found in models))
    styled = []
    for found in models:
        reading = "" if found.is_own else "read as "
        label = f"{found.model}: {reading}{found.attention}"
        style = {
            # A dollar would begin a formula, an underscore hide the line.
            "label": " " + label.replace("$", r"\$"),
            "color": f"C{attentions.index(found.attention)}",
            "linestyle": _DASHES[names.index(found.model) % len(_DASHES)],
        }
        styled.append((found, style))
    return styled


def _draw_layers(figure: Figure, models: Sequence[ModelFigures]) -> None:
    """By layer, a dot for each head."""
    panels: list[tuple[str, str, Callable[[Any], float]]] = [
        ("nonpositive_share", "scores A <= 0 (%)", lambda x: 100 * x),
        ("smallest_over_mean", "N min A", float),
        ("absolute_sum", "row sum of |A|", float),
        ("effective_share", "effective keys (% of N)", lambda x: 100 * x),
    ]
    for axes, (name, label, scaled) in zip(
        figure.subplots(1, len(panels)), panels, strict=True
    ):
        for found, style in _styles(models):
            by_head = [getattr(layer, name).mean(-1) for layer in found.layers]
            layers = range(1, len(by_head) + 1)
            means = [scaled(float(heads.mean())) for heads in by_head]
            axes.plot(layers, means, **style)
            for layer, heads in zip(layers, by_head, strict=True):
                axes.plot(
                    [layer] * len(heads),
                    [scaled(value) for value in heads.tolist()],
                    ".",
                    color=style["color"],
                    alpha=0.5,
                )
        axes.set(xlabel="layer", ylabel=label)
        axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_scaling(figure: Figure, models: Sequence[ModelFigures]) -> None:
    """What a longer query does, over all layers."""
    panels = [
        ("rising_pairs", "pairs with p > 1 and p_m > p (%)"),
        ("positive_rows", "rows with positive scores alone (%)"),
        ("growth", "log p_m / log p of pairs still positive"),
    ]
    for axes, (name, label) in zip(
        figure.subplots(1, len(panels)), panels, strict=True
    ):
        times = 1 if name == "growth" else 100
        for found, style in _styles(models):
            points = _curve(found, name, times)
            axes.plot(*zip(*points, strict=True), marker=".", **style)
        axes.set(xlabel="factor a on the query", ylabel=label, xscale="log")
        axes.set_xticks(models[0].whole.factors)
        axes.set_xticklabels([f"{a:g}" for a in models[0].whole.factors])
        axes.minorticks_off()
        if name != "growth":
            axes.set_ylim(-3, 103)


def _curve(
    found: ModelFigures, name: str, times: float
) -> list[tuple[float, float]]:
    # At a = 1 nothing has risen, which says nothing: p_m is p. Where there
    # are no pairs there is no share either.
    return [
        (at["factor"], math.nan if at[name] is None else times * at[name])
        for at in summarize(found.whole)["scaling"]
        if name != "rising_pairs" or at["factor"] > 1
    ]


def _draw_magnitudes(figure: Figure, models: Sequence[ModelFigures]) -> None:
    """Distributions over the queries of all layers and heads."""
    panels: list[tuple[str, str]] = [
        ("query_norm", "length of φ(q), of q for softmax"),
        ("z", "z = c φ(q) · mean φ(k)"),
        ("largest_factor", "a*: a row is positive below it"),
    ]
    for axes, (name, label) in zip(
        figure.subplots(1, len(panels)), panels, strict=True
    ):
        for found, style in _styles(models):
            axes.plot(*_cumulated(found.whole, name), **style)
        axes.set(
            xlabel=label,
            ylabel="share of the queries below (%)",
            xscale="log",
            ylim=(-3, 103),
        )


def _cumulated(
    figures: AttentionFigures, name: str
) -> tuple[list[float], list[float]]:
    """Points of a distribution function; those at 0 and infinity are off."""
    ordered: Tensor = getattr(figures, name).flatten().sort().values
    if not len(ordered):
        return [], []
    places = torch.linspace(0, len(ordered) - 1, min(len(ordered), _POINTS))
    chosen = ordered[places.long()]
    shares = 100 * (places + 1) / len(ordered)
    drawn = chosen.isfinite() & (chosen > 0)
    return chosen[drawn].tolist(), shares[drawn].tolist()
