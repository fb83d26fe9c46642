"""A table as lines of plain text, with as many of its columns as fit a width. Pure.

A line below the table counts what is not there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

GUTTER = "  "
MAX_CELL = 40  # columns of one cell of a table
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?|nan|NaN|NaT|None|inf|<NA>")


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The texts of a table: headings, rows, and how many rows and columns it really has.

    ``heads`` counts the first columns that name the row; ``gap`` is the place of rows that the
    kernel left out, or None.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    heads: int = 0
    shape: tuple[int, int] | None = None
    gap: int | None = None


def table_lines(cells: Cells, width: int) -> list[str]:
    r"""Return a table as lines: text on the left, numbers on the right, as many columns as fit.

    Examples
    --------
    >>> rows = [["Gentoo", "5,076"], ["Adelie", "701"]]
    >>> print("\n".join(table_lines(Cells(headings=["species", "grams"], rows=rows), 40)))
    species  grams
    Gentoo   5,076
    Adelie     701
    """
    columns = [[heading] for heading in cells.headings]
    for column, texts in zip(columns, zip(*cells.rows, strict=True), strict=False):
        column += [_short(text) for text in texts]
    if cells.gap is not None:
        for column in columns:
            column.insert(cells.gap + 1, "…")
    right = {n for n in range(cells.heads, len(columns)) if _are_numbers(columns[n])}
    drawn = [aligned(column, right=at in right) for at, column in enumerate(columns)]
    sizes = [max(map(cell_len, column), default=0) for column in drawn]
    kept = fitting(sizes, width, at_least=cells.heads + 1)
    lines = [GUTTER.join(row).rstrip() for row in zip(*drawn[:kept], strict=True)]
    return [*lines, *_left_out(cells, kept)]


def _left_out(cells: Cells, kept: int) -> list[str]:
    """Return the line on what of a table is not there."""
    rows, columns = cells.shape or (len(cells.rows), len(cells.headings) - cells.heads)
    more = columns - max(kept - cells.heads, 0)
    told = []
    if more > 0:
        told.append(f"… {more:,} more column{'' if more == 1 else 's'}")
    if rows > len(cells.rows):
        told.append(f"{rows:,} rows in all")
    return [" · ".join(told)] if told else []


def fitting(sizes: Sequence[int], width: int, at_least: int) -> int:
    """Return how many columns of these sizes fit, and not fewer than are wanted."""
    used, kept = -len(GUTTER), 0
    for size in sizes:
        used += len(GUTTER) + size
        if used > width and kept >= at_least:
            break
        kept += 1
    return kept


def _are_numbers(column: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(text) for text in column[1:] if text not in ("", "…"))


def aligned(column: Sequence[str], *, right: bool) -> list[str]:
    """Return the texts of a column, all as wide as its widest."""
    size = max(map(cell_len, column), default=0)
    pads = [" " * (size - cell_len(text)) for text in column]
    return [pad + text if right else text + pad for text, pad in zip(column, pads, strict=True)]


def _short(text: str) -> str:
    """Return a cell in one line, cut before a word where it has several."""
    line = " ".join(text.split())
    if len(line) <= MAX_CELL:
        return line
    cut = line[: MAX_CELL - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"
