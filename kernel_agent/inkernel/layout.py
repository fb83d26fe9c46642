"""Tables written as text: their encoding, separator, header, and the lines above it. Pure.

Read by the host of the files that a user names, and by the kernel of those in a folder.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".tab": "TSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".xlsx": "Excel",
    ".xlsm": "Excel",
    ".xls": "Excel",
    ".txt": "text",
}
"""The kinds that are known by a file's ending; everything else is ``SQLite`` or ``other``."""

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


def decode_text(head: bytes) -> tuple[str, str]:
    r"""Return the beginning of a text file, and its encoding as Python names it; UTF-8 is "".

    >>> decode_text("Zürich".encode("cp1252"))
    ('Zürich', 'cp1252')
    """
    bom = next((name for mark, name in _BOMS if head.startswith(mark)), "")
    for encoding in (bom or "utf-8", "cp1252"):
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
        return text, "" if encoding.startswith("utf-8") else encoding
    return head.decode("latin-1"), "latin-1"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row that is not blank: its first line and its record, counted from 1, and its cells.

    A record takes several lines where a cell holds line breaks; blank lines are records, too.
    """

    line: int
    record: int
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of cells."""
        return len(self.cells)

    @property
    def filled(self) -> int:
        """Number of cells that hold something."""
        return sum(1 for cell in self.cells if cell.strip())


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a table written as text is laid out: its separator, and the line of its header.

    ``skipped`` are the records above it, as pandas counts them; ``regular`` says that no row below
    the header is wider than it: a plain reader gives up there.
    """

    delimiter: str
    header: int
    skipped: int
    columns: tuple[str, ...]
    regular: bool


def layout_of(text: str, delimiter: str = "") -> Layout | None:
    r"""Return the layout of a table from the beginning of its text; None without two columns.

    The header is the first row that is about as filled as the rows below it: a title has one
    filled cell, however many commas follow it.

    >>> layout_of("a;b\n1;2\n").delimiter, layout_of("Sales 2024,,\n\na,b,c\n1,2,3\n4,5,6\n").header
    (';', 3)
    """
    lines = re.split(r"\r\n|\n|\r", text)
    lines = lines[:-1] if len(lines) > 1 else lines  # the last one may be cut
    delimiter = delimiter or _delimiter(lines[:200])
    rows = _rows(lines, delimiter)
    head = header_of([row.filled for row in rows])
    if head is None:
        return None
    return Layout(
        delimiter=delimiter,
        header=rows[head].line,
        skipped=rows[head].record - 1,
        columns=tuple(cell.strip() for cell in rows[head].cells),
        regular=all(row.width <= rows[head].width for row in rows[head:]),
    )


def header_of(filled: Sequence[int]) -> int | None:
    """Return which row is the header, from how many cells of each are filled; None without one.

    >>> header_of([1, 1, 4, 4, 3]), header_of([3, 4, 4]), header_of([1, 1])
    (2, 0, None)
    """
    if not filled:
        return None
    usual = Counter(filled[1:] or filled).most_common(1)[0][0]
    enough = max(2, (usual + 1) // 2)
    return next((n for n, count in enumerate(filled) if count >= enough), None)


def _delimiter(lines: Sequence[str]) -> str:
    """Return the separator under which most lines have the same number of columns."""

    def agreement(delimiter: str) -> int:
        widths = Counter(line.count(delimiter) for line in lines if delimiter in line)
        return max(widths.values(), default=0)

    return max(",;\t|", key=agreement)


def _rows(lines: Sequence[str], delimiter: str) -> list[_Row]:
    """Return the rows that are not blank; none when a cell is too long for the csv module."""
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter)
    rows: list[_Row] = []
    line = 1
    try:
        for record, row in enumerate(reader, 1):
            if any(row):
                rows.append(_Row(line=line, record=record, cells=tuple(row)))
            line = reader.line_num + 1
    except csv.Error:
        return []
    return rows
