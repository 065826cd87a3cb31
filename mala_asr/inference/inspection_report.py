"""An inspection in numbers: a table to read, a record to compute with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

import mala_asr
from mala_asr.inference.inspection import Inspection
from mala_asr.models.inspection import AttentionFigures

# What is measured of each query, in the words that go with the numbers.
MEANINGS = {
    "nonpositive_share": "share of the keys with A_ij <= 0",
    "smallest": "min_j A_ij",
    "smallest_over_mean": "N min_j A_ij, the smallest score over the mean one",
    "row_sum": "sum_j A_ij",
    "absolute_sum": "sum_j |A_ij|; above 1 where scores are negative",
    "entropy": "in nats, of |A_ij| / sum_j |A_ij|",
    "effective_keys": "exp(entropy)",
    "effective_share": "effective_keys / N",
    "largest_factor": "the a* below which a phi(q) leaves every score of the "
    "row positive; null: no limit",
    "query_norm": "length of phi(q), of q for softmax",
    "z": "c phi(q) . mean phi(k); null for softmax, which has none",
}
SCALING_MEANINGS = {
    "factor": "a, on phi(q) or on the logits of softmax",
    "positive_rows": "share of the queries whose scores are all positive at a",
    "rising_pairs": "share of the pairs with p > 1 that have p_m > p at a; "
    "pairs of two positive scores, p their ratio and p_m that at a "
    "(the paper's eq. 11-12)",
    "ratio": "geometric mean of p over the pairs still positive at a",
    "scaled_ratio": "geometric mean of p_m over them",
    "growth": "log scaled_ratio / log ratio: 1 for linear attention, a for "
    "softmax",
}

LEGEND = """\
Means over queries. A <= 0: share of the keys whose score is not positive.
N min A: smallest score of a row over its mean score, 1/N. sum |A|: absolute
row sum; rows sum to 1. keys: effective number, exp of the entropy of |A|, as
a share of N. z: median magnitude. a*: median of the factor on the query below
which a row is positive. rows: share of rows that are positive as they are.
p_m > p at a: share of the pairs with p > 1 whose ratio rises when the query is
a times as long. growth at a: log p_m / log p over pairs that stay positive;
linear attention has 1, softmax a.
"""

_COLUMNS = (
    "model",
    "attention",
    "layer",
    "head",
    "A <= 0",
    "N min A",
    "sum abs A",
    "keys",
    "z",
    "a*",
    "rows",
)
_GROWTH_AT = (2.0, 8.0)


def summarize(figures: AttentionFigures) -> dict[str, Any]:
    """Bring figures per query to their distribution.

    Arguments
    ---------
    figures : AttentionFigures
        Of a head, a layer or a model.

    Returns
    -------
    dict
        ``queries``, those whose scores were formed; for each name of
        `MEANINGS` mean, quantiles and extremes over queries (None where it
        is not defined); ``pairs_share``, the share of all pairs of keys
        that have p > 1; ``scaling``, for each factor the names of
        `SCALING_MEANINGS`.
    """
    keys = figures.keys
    every_pair = float((keys * (keys - 1) / 2).sum())
    return {
        "queries": keys.numel(),
        **{name: _distribution(getattr(figures, name)) for name in MEANINGS},
        "pairs_share": _ratio(float(figures.pairs.sum()), every_pair),
        "scaling": [
            _scaling(figures, number) for number in range(len(figures.factors))
        ],
    }


def inspection_record(inspection: Inspection) -> dict[str, Any]:
    """Give all that was measured, for JSON.

    Arguments
    ---------
    inspection : Inspection
        What `inspect_files` found.

    Returns
    -------
    dict
        Every number is finite or None.
    """
    return {
        "mala_asr_version": mala_asr.__version__,
        "recordings": [
            {"path": path, "seconds": seconds}
            for path, seconds in inspection.seconds.items()
        ],
        "meanings": {**MEANINGS, **SCALING_MEANINGS},
        "models": [
            {
                "model": found.model,
                "attention": found.attention,
                "is_own": found.is_own,
                "all": _finite(summarize(found.whole)),
                "layers": [
                    {
                        "all": _finite(summarize(layer)),
                        "heads": [
                            _finite(summarize(layer.of_head(head)))
                            for head in range(len(layer.keys))
                        ],
                    }
                    for layer in found.layers
                ],
            }
            for found in inspection.models
        ],
    }


def table_rows(inspection: Inspection, by: str = "layer") -> list[list[str]]:
    """Give the table, its head first.

    Arguments
    ---------
    inspection : Inspection
        What `inspect_files` found.
    by : str
        A row for each ``model``, ``layer`` or ``head``; sums over layers and
        over heads stand below their parts.

    Returns
    -------
    list of list of str
        Rows of as many cells each.
    """
    factors = [a for a in inspection.models[0].whole.factors if a > 1]
    head = [
        *_COLUMNS,
        *(f"p_m > p at {factor:g}" for factor in factors),
        *(
            f"growth at {factor:g}"
            for factor in factors
            if factor in _GROWTH_AT
        ),
    ]
    body = [
        [found.model, _reading(found.attention, found.is_own), *place, *cells]
        for found in inspection.models
        for place, figures in _parts(found.layers, by)
        for cells in [_cells(summarize(figures))]
    ]
    return [head, *body]


def table_text(inspection: Inspection, by: str = "layer") -> str:
    """Give the table as Markdown that is aligned for a terminal too.

    Arguments
    ---------
    inspection, by
        As for `table_rows`.

    Returns
    -------
    str
        Lines.
    """
    rows = [
        [_one_line(cell) for cell in row] for row in table_rows(inspection, by)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def _reading(attention: str, is_own: bool) -> str:
    return attention if is_own else f"as {attention}"


def _parts(
    layers: list[AttentionFigures], by: str
) -> Iterator[tuple[list[str], AttentionFigures]]:
    for number, layer in enumerate(layers, start=1):
        heads = len(layer.keys)
        if by == "head":
            for head in range(heads):
                yield [str(number), str(head + 1)], layer.of_head(head)
        if by != "model":
            yield [str(number), "all"], layer
    yield ["all", "all"], layers[0].pool(*layers[1:])


def _cells(summary: dict[str, Any]) -> list[str]:
    z = summary["z"]
    scaling = summary["scaling"]
    return [
        _percent(summary["nonpositive_share"]["mean"]),
        f"{summary['smallest_over_mean']['mean']:.2f}",
        f"{summary['absolute_sum']['mean']:.2f}",
        _percent(summary["effective_share"]["mean"]),
        "–" if z is None else f"{z['median']:.2f}",
        _number(summary["largest_factor"]["median"]),
        _percent(scaling[0]["positive_rows"]),
        *(_percent(at["rising_pairs"]) for at in scaling if at["factor"] > 1),
        *(
            _number(at["growth"])
            for at in scaling
            if at["factor"] in _GROWTH_AT
        ),
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return "none" if math.isinf(value) else f"{value:.2f}"


def _one_line(cell: str) -> str:
    return cell.replace("\n", r"\n").replace("|", r"\|")


def _distribution(values: Tensor) -> dict[str, float] | None:
    """Mean, extremes and quantiles, the lower of two neighbors."""
    ordered = values.flatten().sort().values
    if not len(ordered):
        return None
    places = {
        "min": 0.0,
        "p05": 0.05,
        "p25": 0.25,
        "median": 0.5,
        "p75": 0.75,
        "p95": 0.95,
        "max": 1.0,
    }
    return {
        "mean": float(ordered.mean()),
        **{
            name: float(ordered[math.floor(place * (len(ordered) - 1))])
            for name, place in places.items()
        },
    }


def _scaling(figures: AttentionFigures, number: int) -> dict[str, Any]:
    factor = figures.factors[number]
    pairs, kept, before, after = (
        float(total.sum())
        for total in (
            figures.pairs,
            figures.kept_pairs[number],
            figures.log_ratio[number],
            figures.log_scaled_ratio[number],
        )
    )
    # A pair that is positive still has risen, and only such a pair has.
    rising = kept if figures.concentrates and factor > 1 else 0.0
    mean_before, mean_after = _ratio(before, kept), _ratio(after, kept)
    return {
        "factor": factor,
        "positive_rows": float(
            (figures.largest_factor > factor).double().mean()
        ),
        "rising_pairs": _ratio(rising, pairs),
        "ratio": None if mean_before is None else math.exp(mean_before),
        "scaled_ratio": None if mean_after is None else math.exp(mean_after),
        "growth": _ratio(after, before),
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _finite(value: Any) -> Any:
    """JSON has no infinity: None stands for it."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
