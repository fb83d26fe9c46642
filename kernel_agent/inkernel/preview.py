"""Tables, Series, arrays and long collections as the text that a model reads.

Whole up to a bound; beyond it the first and the last rows. What is left out is counted, never
dropped in silence, and ``outputs[k]`` gets the whole text, up to a second bound. A description has

* ``preview``: the text, of which the first ``heads`` lines are the names of the columns;
* ``left_out``: what the preview lacks, counted in words;
* ``whole`` and ``lacking``: the text for ``outputs[k]``, where it is another, and what even that
  lacks.

The columns of a table stand below each other, two blanks apart. Where that would be mostly blanks
(one long name or text widens a column) there is a bar between them and no blank is added.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from io import StringIO
from itertools import chain, islice
from typing import Any

from IPython.lib.pretty import RepresentationPrinter

WHOLE_ROWS = 60  # a table of so many is shown whole; it is pandas' own bound for a person
FIRST, LAST = 10, 5  # rows of a longer one
WHOLE_COLUMNS = 30
FIRST_COLUMNS, LAST_COLUMNS = 20, 10
CELL_CHARS = 60  # of one cell
WHOLE_ITEMS = 1_000  # of an array or a collection; it is numpy's and IPython's own bound
EDGE_ITEMS = 3  # at each end of each side of a larger array
KEPT_CELLS = 10_000  # of a table, or items of an array, in `outputs[k]`: some 30 ms
KEPT_CHARS = 400_000
KEPT_CELL_CHARS = 200  # of one cell there, or more where the table is small
NAME_CHARS = 60  # of the name of a row or column

COLLECTIONS = (list, tuple, dict, set, frozenset)
GAP = "…"
_SEPARATES = re.compile(r"[,;:]")  # between the names of columns, where they are listed
_UNITS = {"rows": "more row", "columns": "more column", "items": "more item"}


def tell_counts(counts: Mapping[str, int]) -> str:
    """Say what is left out.

    Examples
    --------
    >>> tell_counts({"rows": 1200, "columns": 1, "cells": 2})
    '1,200 more rows, 1 more column, 2 cells shortened'
    """
    told = [
        f"{counts[unit]:,} {noun}{'s' * (counts[unit] != 1)}"
        for unit, noun in _UNITS.items()
        if counts.get(unit)
    ]
    if cells := counts.get("cells"):
        told.append(f"{cells:,} cell{'s' * (cells != 1)} shortened")
    return ", ".join(told)


def quote_name(name: str, most: int = NAME_CHARS) -> str:
    """Return a name, cut where it is long, in quotes where nobody sees how it is spelled.

    Examples
    --------
    >>> quote_name("mass"), quote_name("mass ")
    ('mass', "'mass '")
    """
    name = name if len(name) <= most else f"{name[: most - 1]}{GAP}"
    plain = name and name.isprintable() and name == " ".join(name.split())
    return name if plain else repr(name)


def list_name(name: object) -> str:
    """Return a name that can be told from its neighbours in a list."""
    quoted = quote_name(str(name))
    return (
        repr(quoted) if str(name).startswith(quoted[:-1]) and _SEPARATES.search(quoted) else quoted
    )


def _described(text: str, left_out: dict[str, int], heads: int = 0) -> dict[str, Any]:
    return {"preview": text, "heads": heads, "left_out": tell_counts(left_out)}


def _with_whole(shown: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Add the text for ``outputs[k]`` to a description."""
    whole, lacking = kept["preview"], kept["left_out"]
    if lacking:
        whole += f"\n… {lacking}: not kept here, the value itself has all"
    return {**shown, "whole": whole, "lacking": lacking}


# --- tables ----------------------------------------------------------------------------------


def preview_table(table: Any, *, names: bool = True) -> dict[str, Any]:
    """Return the description of a DataFrame; without ``names``, of a Series as a frame."""
    rows = _ends(len(table), WHOLE_ROWS, FIRST, LAST)
    columns = _ends(table.shape[1], WHOLE_COLUMNS, FIRST_COLUMNS, LAST_COLUMNS)
    shown = _draw(table, rows, columns, CELL_CHARS, names=names)
    return _with_whole(shown, _keep_table(table, names=names)) if shown["left_out"] else shown


def _keep_table(table: Any, *, names: bool) -> dict[str, Any]:
    """Return the description of as much of a table as ``outputs[k]`` gets."""
    columns = _ends(table.shape[1], KEPT_CELLS, KEPT_CELLS // 2, KEPT_CELLS // 2)
    most = max(KEPT_CELLS // max(len(columns), 1), 2)
    while True:
        rows = _ends(len(table), most, most - most // 2, most // 2)
        cells = max(len(rows) * len(columns), 1)
        room = max(10 * KEPT_CHARS // cells, KEPT_CELL_CHARS)  # few are that long: see then
        kept = _draw(table, rows, columns, room, names=names)
        size = len(kept["preview"])
        if size <= KEPT_CHARS or most <= 2:
            return kept
        most = max(most * KEPT_CHARS // size * 9 // 10, 2)


def _ends(count: int, whole: int, first: int, last: int) -> list[int]:
    """Return the positions that are shown."""
    if count <= whole:
        return list(range(count))
    return [*range(first), *range(count - last, count)]


def _draw(
    table: Any, rows: list[int], columns: list[int], cell_chars: int, *, names: bool
) -> dict[str, Any]:
    """Describe the rows and columns at these positions, cells at most so long."""
    view = table.iloc[rows, columns]
    row_gap = _gap(rows) if len(rows) < len(table) else None
    column_gap = _gap(columns) if len(columns) < table.shape[1] else None
    cut = _Cut(cell_chars)
    index = [_labels(view.index.get_level_values(n), cut) for n in range(view.index.nlevels)]
    cells = [[cut(text) for text in column] for column in cell_texts(view, cell_chars)]
    body = [list(row) for row in zip(*index, *cells, strict=True)]
    heads = _heads(view, cut) if names else []
    named = [cut.name(name) for name in view.index.names]
    if any(named):
        heads.append([*named, *[""] * len(columns)])
    heads = [line for line in heads if any(line)]
    if column_gap is not None:
        for line in (*heads, *body):
            line.insert(len(index) + column_gap, GAP)
    lines = _lay_out(heads, body, lefts=len(index))
    if row_gap is not None:
        lines.insert(len(heads) + row_gap, GAP)
    left_out = {
        "rows": len(table) - len(rows),
        "columns": table.shape[1] - len(columns),
        "cells": cut.count,
    }
    return _described("\n".join(lines), left_out, len(heads))


def _gap(positions: list[int]) -> int:
    """Return after how many of the positions others are left out."""
    return next((n for n, at in enumerate(positions) if n != at), len(positions))


def _heads(view: Any, cut: _Cut) -> list[list[str]]:
    """Return a line for each level of the columns, with its name above the index."""
    before = [""] * (view.index.nlevels - 1)
    return [
        [*before, cut.name(view.columns.names[n]), *_labels(view.columns.get_level_values(n), cut)]
        for n in range(view.columns.nlevels)
    ]


def _labels(level: Any, cut: _Cut) -> list[str]:
    missing = level.isna()
    return [
        ("NaT" if level.dtype.kind in "mM" else "NaN") if gone else cut.name(text)
        for text, gone in zip(level.astype(str), missing, strict=True)
    ]


@dataclass
class _Cut:
    """Shortens texts, and counts those that it has shortened."""

    most: int
    count: int = 0

    def __call__(self, text: str) -> str:
        text = text.strip().replace("\n", "\\n")  # of a table within the table
        if len(text) <= self.most:
            return text
        self.count += 1
        return f"{text[: self.most - 1]}{GAP}"

    def name(self, name: object) -> str:
        """Return a name of a row or column, of which each character is to be told."""
        self.count += len(str(name)) > self.most
        return "" if name is None else quote_name(str(name), self.most)


def cell_texts(view: Any, cell_chars: int | None = None) -> list[list[str]]:
    """Return the cells as pandas writes them, a list a column.

    Parameters
    ----------
    view
        The rows and columns.
    cell_chars
        Characters of a cell beyond which it may be cut, anywhere after them; by pandas' option
        where nothing is said.
    """
    import pandas as pd

    most = pd.get_option("display.max_colwidth") if cell_chars is None else cell_chars + 4
    try:
        from pandas.io.formats.format import DataFrameFormatter  # type: ignore[attr-defined]

        with pd.option_context("display.max_colwidth", most):
            formatter = DataFrameFormatter(view, index=True, header=True)
            return [formatter.format_col(n) for n in range(view.shape[1])]
    except Exception:  # not a public part of pandas: another version may have it elsewhere
        return [[str(cell)[:most] for cell in view.iloc[:, n]] for n in range(view.shape[1])]


# --- layout ----------------------------------------------------------------------------------


def _lay_out(heads: list[list[str]], body: list[list[str]], *, lefts: int) -> list[str]:
    """Return the lines of a table: its columns below each other, or with bars between them."""
    lines = [*heads, *body]
    if not lines:
        return []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = len(lines) * (sum(widths) + 2 * len(widths))
    barred = sum(len(text) + 3 for line in lines for text in line)
    if barred * 4 < aligned * 3 and not any("|" in text for line in lines for text in line):
        return [" | ".join(line) for line in lines]
    return [
        "  ".join(
            text.ljust(width) if n < lefts else text.rjust(width)
            for n, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


# --- arrays and collections ------------------------------------------------------------------


def preview_array(array: Any) -> dict[str, Any]:
    """Return the description of a numpy array: as numpy writes it, with what it leaves out."""
    shown = _write_array(array, WHOLE_ITEMS, EDGE_ITEMS)
    if not shown["left_out"]:
        return shown
    edge = max(int(KEPT_CELLS ** (1 / array.ndim)) // 2, EDGE_ITEMS)
    return _with_whole(shown, _write_array(array, KEPT_CELLS, edge))


def _write_array(array: Any, whole: int, edge: int) -> dict[str, Any]:
    import numpy as np

    sides = [min(side, 2 * edge) for side in array.shape]
    left_out = array.size - math.prod(sides) if array.size > whole else 0
    with np.printoptions(threshold=whole, edgeitems=edge, linewidth=120):
        return _described(repr(array), {"items": int(left_out)})


def preview_scalar(value: Any) -> dict[str, Any]:
    """Return the description of a numpy scalar: its value, as it is written in Python."""
    return _described(_scalar_text(value), {})


def _scalar_text(value: Any) -> str:
    text = isinstance(value, (str, bytes))  # of numpy's kinds, too
    return repr(value.item()) if text else str(value)


def preview_collection(items: Any) -> dict[str, Any] | None:
    """Return the description of a list, dict, tuple or set which a model should see otherwise.

    That is one of which IPython shows a part only, or which holds scalars of numpy: what a person
    is shown as ``[np.float64(3.5)]`` is ``[3.5]``. None for any other, and for a subclass.
    """
    if type(items) not in COLLECTIONS:
        return None
    if len(items) > WHOLE_ITEMS:
        return _with_whole(_write_items(items, WHOLE_ITEMS), _write_items(items, KEPT_CELLS))
    if not _holds_scalars(items):
        return None
    text = _pretty(items, WHOLE_ITEMS)
    return _described(text, {}) if len(text) <= KEPT_CHARS else None


def _write_items(items: Any, most: int) -> dict[str, Any]:
    pairs: Iterable[Any] = items.items() if isinstance(items, dict) else items
    text = _pretty(type(items)(islice(pairs, most)), most)
    return _described(text, {"items": max(len(items) - most, 0)})


def _pretty(items: Any, most: int) -> str:
    """Return items as IPython writes them, but for numpy's scalars."""
    stream = StringIO()
    printer = RepresentationPrinter(stream, max_seq_length=most)
    for kind in _scalar_types():
        printer.type_pprinters[kind] = _write_scalar
    printer.pretty(items)
    printer.flush()
    return stream.getvalue()


def _write_scalar(value: Any, printer: RepresentationPrinter, _cycle: object) -> None:
    with printer.group():  # as IPython does for plain ones: lines break at the same places
        printer.text(_scalar_text(value))


def _holds_scalars(items: Any) -> bool:
    """Whether numpy's scalars are among few items, or in what plain collections they are in."""
    scalars = _scalar_types()
    seen, left, count = {id(items)}, [items] if scalars else [], 0
    found = False
    while left and count <= KEPT_CELLS:
        inner = left.pop()
        count += len(inner)
        parts = chain(inner, inner.values()) if type(inner) is dict else inner
        for part in islice(parts, 2 * WHOLE_ITEMS):
            found = found or type(part) in scalars
            if type(part) in COLLECTIONS and id(part) not in seen:
                seen.add(id(part))
                left.append(part)
    return found and count <= KEPT_CELLS


def _scalar_types() -> frozenset[type]:
    """Return numpy's types of numbers, truths and texts, if anybody has imported it.

    A date stays what it is: among other things, it would look like a sum without quotes.
    """
    numpy = sys.modules.get("numpy")
    try:
        return frozenset() if numpy is None else _types_of(numpy)
    except AttributeError:  # half imported, or a module of the user's that has its name
        return frozenset()


@cache
def _types_of(numpy: Any) -> frozenset[type]:
    kinds = (numpy.number, numpy.bool_, numpy.str_, numpy.bytes_)
    return frozenset(
        kind
        for kind in numpy.sctypeDict.values()
        if issubclass(kind, kinds) and kind is not numpy.timedelta64
    )
