"""Tables: data from a kernel in, HTML that we wrote out. Pure.

A table leaves the kernel as JSON (``table_texts`` in :mod:`kernel_agent.inkernel.display`): the
texts of its index, columns and cells, those in view only. Nothing in it is believed but that it is
text; what does not fit together is no table. The HTML looks like that of pandas, so that notebooks
with either of them compare.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kernel_agent.notebook.markdown import inline
from kernel_agent.records import Wording
from kernel_agent.safe import one_line, plain

MAX_CELLS = 100_000
MAX_LEVELS = 20
MAX_CHARS = 2_000  # of one cell
GAP = "..."
_MISSING = frozenset((GAP, "", "NaN", "nan", "None", "NaT", "<NA>"))
_NUMBER = re.compile(r"[-+\u2212]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?%?|-?inf")

Levels = list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that fits together: levels of columns and index, and rows of texts, gaps included."""

    columns: Levels
    index: Levels
    names: list[str]
    index_names: list[str]
    body: list[list[str]]
    shape: Any
    cut: bool


def render_table(described: Any) -> str | None:
    """Return the HTML of a table as the kernel described it; None for anything else.

    Parameters
    ----------
    described
        ``columns`` and ``index``, each a list of levels, each a list of texts; ``cells``, a list of
        columns of texts; ``column_names`` and ``index_names``, a text for each level;
        ``row_gap`` and ``column_gap``, the place at which rows or columns are left out, or None;
        ``shape``, the rows and columns of the whole table.
    """
    table = read_table(described)
    if table is None:
        return None
    head = "".join(_head(table.columns, table.names, table.index_names))
    lines = "".join(_rows(table.index, table.body))
    written = (
        f'<table border="1" class="dataframe">\n<thead>\n{head}</thead>\n'
        f"<tbody>\n{lines}</tbody>\n</table>\n"
    )
    return f"<div>\n{written}{_size(table.shape) if table.cut else ''}</div>"


def read_table(described: Any) -> Table | None:
    """Return a table as the kernel described it, see :func:`render_table`; None for others."""
    if not isinstance(described, Mapping):
        return None
    columns, index = _levels(described.get("columns")), _levels(described.get("index"))
    cells = described.get("cells")
    names: Any = described.get("column_names")
    index_names: Any = described.get("index_names")
    if columns is None or index is None or not _is_table(cells, columns, index):
        return None
    if not _is_texts(names, len(columns)) or not _is_texts(index_names, len(index)):
        return None
    row_gap, column_gap = described.get("row_gap"), described.get("column_gap")
    rows, width = len(index[0]), len(columns[0])
    if not _is_place(row_gap, rows) or not _is_place(column_gap, width):
        return None
    body = [list(row) for row in zip(*cells, strict=True)] if cells else [[] for _ in range(rows)]
    if row_gap is not None:
        index = [[*level[:row_gap], GAP, *level[row_gap:]] for level in index]
        body.insert(row_gap, [GAP] * width)
    if column_gap is not None:
        columns = [[*level[:column_gap], GAP, *level[column_gap:]] for level in columns]
        body = [[*row[:column_gap], GAP, *row[column_gap:]] for row in body]
    cut = row_gap is not None or column_gap is not None
    return Table(
        columns=columns, index=index, names=names, index_names=index_names, body=body,
        shape=described.get("shape"), cut=cut,
    )  # fmt: skip


def is_numeric(texts: Iterable[str]) -> bool:
    """Whether texts are numbers, gaps and missing values aside."""
    known = [text for text in texts if text.strip() not in _MISSING]
    return bool(known) and all(_NUMBER.fullmatch(text.strip()) for text in known)


def table_markdown(wording: Wording) -> str:
    """Return the rows of an answer as Markdown: text to the left, numbers to the right, its size.

    Names of entries within an entry are indented.
    """
    width = len(wording.rows[0])
    heads = wording.columns or ("",) * width
    sides = ["---:" if n in wording.right else "---" for n in range(width)]
    rows = [[_markdown_cell(text) for text in row] for row in (heads, *wording.rows)]
    lines = [f"| {' | '.join(cells)} |" for cells in (rows[0], sides, *rows[1:])]
    below = ["", inline(wording.below)] if wording.below else []
    return "\n".join([*lines, *below])


def _markdown_cell(text: str) -> str:
    indent = "&nbsp;" * (len(text) - len(text.lstrip(" ")))
    return f"{indent}{inline(one_line(text, MAX_CHARS))}" or " "


_CELL_TAG = re.compile(r"<(th|td)((?: (?:col|row)span=\"\d+\")*)>([^<]*)</(?:th|td)>")
_ROW_TAG = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)


def align_numbers(source: str) -> str:
    """Return the HTML of a table, sanitised before, with its numbers to the right.

    A column is to the right when all of its cells are numbers, with its name; in a table with cells
    that span others each cell is for itself.
    """
    head, mark, body = source.partition("<tbody>")
    rows = [_CELL_TAG.findall(row) for row in _ROW_TAG.findall(body)]
    spans = any(attributes for row in rows for _, attributes, _ in row) or "span=" in head
    widths = {len(row) for row in rows}
    whole = not spans and len(widths) == 1
    right = [is_numeric(html.unescape(text) for _, _, text in column) and column[0][0] == "td"
             for column in zip(*rows, strict=False)] if whole else []  # fmt: skip

    def aligned(row: re.Match[str]) -> str:
        places = iter(range(len(row[0])))

        def cell(found: re.Match[str]) -> str:
            place, (tag, attributes, text) = next(places), found.groups()
            numeric = right[place] if place < len(right) else not whole and is_numeric([text])
            side = "right" if numeric else "left"
            tag = tag if text.strip() else "td"  # a head that says nothing is none
            return f'<{tag}{attributes} style="text-align:{side}">{text}</{tag}>'

        return _CELL_TAG.sub(cell, row[0])

    return _ROW_TAG.sub(aligned, head) + mark + _ROW_TAG.sub(aligned, body)


# --- what is a table -------------------------------------------------------------------------


def _levels(value: Any) -> Levels | None:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LEVELS:
        return None
    length = len(value[0]) if isinstance(value[0], list) else -1
    return value if all(_is_texts(level, length) for level in value) else None


def _is_texts(value: Any, length: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == length
        and all(isinstance(item, str) for item in value)
    )


def _is_table(cells: Any, columns: Levels, index: Levels) -> bool:
    rows, width = len(index[0]), len(columns[0])
    in_bounds = (rows + 1) * (width + 1) <= MAX_CELLS
    return (
        in_bounds
        and isinstance(cells, list)
        and len(cells) == width
        and all(_is_texts(column, rows) for column in cells)
    )


def _is_place(value: Any, length: int) -> bool:
    return value is None or (type(value) is int and 0 <= value <= length)


# --- how it is written -----------------------------------------------------------------------


def _head(columns: Levels, names: Sequence[str], index_names: Sequence[str]) -> Iterator[str]:
    own_row = any(index_names)
    for depth, name in enumerate(names):
        spans = _spans(columns, depth)
        blanks = "".join(_cell("th", "") for _ in index_names[1:])
        title = f"{blanks}{_cell('th', name)}"
        cells = "".join(_cell("th", text, colspan=span) for text, span in spans if span)
        yield f"<tr>\n{title}{cells}</tr>\n"
    if own_row:
        cells = "".join(_cell("th", name) for name in index_names)
        yield f"<tr>\n{cells}{_cell('th', '') * len(columns[0])}</tr>\n"


def _rows(index: Levels, body: Sequence[Sequence[str]]) -> Iterator[str]:
    levels = [_spans(index, depth) for depth in range(len(index))]
    for number, row in enumerate(body):
        heads = [level[number] for level in levels]
        cells = [_cell("th", text, rowspan=span) for text, span in heads if span]
        cells += [_cell("td", text) for text in row]
        yield f"<tr>\n{''.join(cells)}</tr>\n"


def _spans(levels: Levels, depth: int) -> list[tuple[str, int]]:
    """Return each text of a level with how many places it covers; none where another does.

    As in pandas, equal texts below equal ones are written once, but never in the last level.
    """
    level = levels[depth]
    if depth == len(levels) - 1:
        return [(text, 1) for text in level]
    paths = zip(*levels[: depth + 1], strict=True)
    spans: list[tuple[str, int]] = []
    for path, run in groupby(paths):
        length = len(list(run))
        spans += [(path[-1], length), *[("", 0)] * (length - 1)]
    return spans


def _cell(tag: str, text: str, **spans: int) -> str:
    shown = plain(text[:MAX_CHARS]) + ("…" if len(text) > MAX_CHARS else "")
    attributes = "".join(f' {name}="{span}"' for name, span in spans.items() if span > 1)
    return f"<{tag}{attributes}>{html.escape(shown)}</{tag}>\n"


def _size(shape: Any) -> str:
    match shape:
        case [int(rows), int(columns)]:
            return f"<p>{rows} rows × {columns} columns</p>\n"  # noqa: RUF001 - as pandas writes it
    return ""
