"""Tables in Markdown, as the benchmarks print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table_head(titles: Sequence[str]) -> str:
    """Write the first two lines of a table.

    Arguments
    ---------
    titles : sequence of str
        Of the columns.

    Returns
    -------
    str
        The lines.

    Example
    -------
    >>> print(table_head(["side", "time"]))
    | side | time |
    |---|---|
    """
    return f"{table_row(titles)}\n{'|---' * len(titles)}|"


def table_row(cells: Iterable[str]) -> str:
    """Write a line of a table.

    Arguments
    ---------
    cells : iterable of str
        One for each column.

    Returns
    -------
    str
        The line.

    Example
    -------
    >>> table_row(["MALA", "0.25 ms"])
    '| MALA | 0.25 ms |'
    """
    return f"| {' | '.join(cells)} |"
