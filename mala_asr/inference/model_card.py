"""The README of a model folder: what a user should know of the model."""

from collections.abc import Mapping
from typing import Any

import mala_asr

_RESULT_COLUMNS = {
    "WER %": "WER",
    "words": "words",
    "sub": "substitutions",
    "del": "deletions",
    "ins": "insertions",
    "utterances": "utterances",
    "decoder": "decoder",
}


def model_card(
    name: str,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    results: Mapping[str, Mapping[str, Any]],
    notes: str = "",
) -> str:
    """Write a model card in Markdown.

    Arguments
    ---------
    name : str
        The model's name, the title.
    settings : Mapping[str, Any]
        The model's settings, ``MalaASR.config``.
    facts : Mapping[str, Any]
        What to state of its making: parameters, data, hours, commit ...
    results : Mapping[str, Mapping[str, Any]]
        Totals of the word errors by test set, as ``results.json`` has them.
    notes : str
        Markdown to stand before them: what the figures do not say.

    Returns
    -------
    str
        The text of ``README.md``.

    Example
    -------
    >>> card = model_card(
    ...     "tiny", {"attention": "mala"}, {"hours": 5}, {"dev": {"WER": 9.5}}
    ... )
    >>> print(card.split("## Results")[1].split("##")[0].strip())
    | set | WER % |
    |---|---|
    | dev | 9.50 |
    """
    return "\n".join(
        [
            f"# {name}",
            "",
            "A speech recognizer: a Conformer with "
            f"`{settings['attention']}` attention, trained with "
            f"mala_asr {mala_asr.__version__}.",
            "",
            f"    mala-asr transcribe --model {name} recording.wav",
            "",
            *([notes.strip(), ""] if notes.strip() else []),
            "## Results",
            "",
            *_results_table(results),
            "",
            "## Training",
            "",
            *_table(("", ""), list(facts.items())),
            "",
            "## Settings",
            "",
            *_table(("", ""), list(settings.items())),
            "",
        ]
    )


def _results_table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not results:
        return ["These weights were not evaluated."]
    titles = [
        title
        for title, key in _RESULT_COLUMNS.items()
        if any(key in totals for totals in results.values())
    ]
    rows = [
        (name, *(totals.get(_RESULT_COLUMNS[title]) for title in titles))
        for name, totals in results.items()
    ]
    return _table(("set", *titles), rows)


def _table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    return [_row(titles), "|---" * len(titles) + "|", *map(_row, rows)]


def _row(cells: tuple[Any, ...]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: Any) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value).replace("|", "\\|").replace("\n", " ")
