"""Index of folders of data: what each file is, and what a table holds. A program of its own.

The kernel starts it before the first cell (:mod:`.folders`), so that what a file does to its reader
ends with this process and not with the kernel. It reads the beginning of each file, writes a line
of JSON for each, and before a file that may be costly the path, so that the kernel knows by which
one it ended. Names decide nothing but the order of the readers: what a file is says its content.

It asks for ``pyarrow`` and ``openpyxl`` where there is a file that needs them; where they are
missing such a file is listed by its name.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from .layout import KINDS, Layout, decode_text, layout_of

HEAD_BYTES = 1 << 14  # that are read of a file of text
MAX_LINES = 24  # of them that are looked at
MAX_COLUMNS = 200
MAX_NAME = 80  # characters of a column's name
MAX_SHEETS = 20  # of a workbook, or tables of a database
SHOWN_ROWS = 2  # that stand in the list
SEARCHED_ROWS = 40  # of a file that can be searched for
OTHER_SHEETS, OTHER_ROWS = 5, 4  # of a workbook, behind the first
MAX_SHOWN = 300  # characters of one
MAX_WHOLE = 20_000_000  # bytes of a workbook beside its sheets, which its reader takes in whole
MAX_PARTS = 1_000  # files in it
MEMORY = 2 << 30  # bytes of address space that this process may take

_PROSE = (".md", ".rst", ".html", ".xml", ".py", ".r", ".sql", ".tex")
_TEXT_KINDS = {"CSV", "TSV", "JSON lines", "JSON", "text"}
_MARKS = (
    (b"PAR1", "Parquet"),
    (b"SQLite format 3\x00", "SQLite"),
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "ZIP"),
    (b"\xd0\xcf\x11\xe0", "Excel"),
    (b"ARROW1", "Feather"),
    (b"\x89HDF", "HDF5"),
    (b"%PDF-", "PDF"),
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_FIRST_OBJECT = re.compile(r"\s*\[?\s*(?=\{)")


@dataclass(frozen=True)
class Table:
    """What is known of a file: its kind, and how its table is laid out.

    ``rows`` is counted, or estimated from the beginning (``about``), or -1. ``shown`` are its first
    rows as text, ``words`` and ``others`` what else may be searched for: title lines, further rows,
    other sheets.
    """

    kind: str
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    skipped: int = 0
    encoding: str = ""
    regular: bool = False
    rows: int = -1
    about: bool = False
    shown: tuple[str, ...] = ()
    words: str = ""
    others: tuple[str, ...] = ()

    @property
    def layout(self) -> list[Any]:
        """What files that are read alike have in common."""
        return [self.kind, self.columns, self.delimiter, self.skipped, self.encoding, self.regular]


def main() -> None:
    """Read what is asked for from standard input, and write a line for each file."""
    asked = json.load(sys.stdin)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = sys.stdout
    for line in lines_of(asked):
        out.write(json.dumps(line) + "\n")
        if "opens" in line:
            out.flush()
    out.write(json.dumps({"end": True}) + "\n")
    out.flush()


def lines_of(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each layout when it is first met, and each file.

    Parameters
    ----------
    asked
        ``folders``: path and paths beneath it that are left out; ``done``: how many files were
        read by a process before this one; ``sample``: characters to search in, of each file.
    """
    layouts: dict[str, int] = {}
    done, sample = int(asked["done"]), int(asked["sample"])
    for number, (path, size) in enumerate(_files(asked["folders"])):
        if number < done:
            continue
        opener = _Opener(path, size)
        if opener.is_costly:
            yield {"opens": [number, path, size]}
        table = opener.look()
        key = json.dumps(table.layout)
        if key not in layouts:
            layouts[key] = len(layouts)
            yield {"layout": [*table.layout, table.shown]}
        searched = " ".join((table.words, *table.shown, *table.others))
        if len(searched) > sample:
            searched = searched[:sample].rpartition(" ")[0]  # no part of a word
        yield {"file": [number, path, size, layouts[key], table.rows, table.about, searched]}


def _files(folders: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield path and size of each file, in the order of names, and what is left out never."""
    for folder in folders:
        left_out = {f"{folder['path']}/{name}" for name in folder["left_out"]}
        waiting = [str(folder["path"])]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as scan:
                    entries = sorted(scan, key=lambda entry: entry.name)
            except OSError:
                continue
            below = []
            for entry in entries:
                if entry.path in left_out or entry.name.startswith("."):
                    continue  # of hidden files only those that hold nothing are not left out
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                        yield entry.path, status.st_size
            waiting += reversed(below)


class _Opener:
    """Looks at one file."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        name = path.rpartition("/")[2].lower()
        self._suffix = name.removesuffix(".gz")[name.removesuffix(".gz").rfind(".") :]
        self._kind = KINDS.get(self._suffix, "other")
        self._head, self._mark = b"", ""
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a hundred thousand times
                self._head = file.read(HEAD_BYTES)
        except OSError:
            self._mark = "not readable"
            return
        self._mark = next((kind for mark, kind in _MARKS if self._head.startswith(mark)), "")
        if self._mark == "Excel" and self._kind != "Excel":
            self._mark = "other"  # an old document of another program

    @property
    def is_costly(self) -> bool:
        """Whether a library reads it."""
        return self._mark in self._readers

    def look(self) -> Table:
        """Return what the file is; where it cannot be read, its kind by its name."""
        try:
            if self._mark in self._readers:
                return self._readers[self._mark]()
            if self._mark or not self._head:
                return Table(kind=self._mark or "empty")
            return self._of_text(self._head)
        except MemoryError:
            return Table(kind=self._kind, words="too large to look into")
        except Exception:  # what a reader of a strange file raises has no end
            return Table(kind=self._kind)

    @property
    def _readers(self) -> Mapping[str, Callable[[], Table]]:
        return {
            "gzip": self._of_packed,
            "Parquet": self._of_parquet,
            "SQLite": self._of_database,
            "ZIP": self._of_archive,
        }

    def _of_packed(self) -> Table:
        with gzip.open(self._path) as unpacked:
            return self._of_text(unpacked.read(HEAD_BYTES), packed="gzip")

    # --- text --------------------------------------------------------------------------------

    def _of_text(self, head: bytes, packed: str = "") -> Table:
        whole = len(head) < HEAD_BYTES
        text, encoding = decode_text(head)
        if "\0" in text:
            return Table(kind="other" if self._kind in _TEXT_KINDS else self._kind)
        kind = self._kind if self._kind in _TEXT_KINDS else "text"
        lines = re.split(r"\r\n|\n|\r", text)
        if kind in ("JSON", "JSON lines"):
            return self._of_json(text, kind, encoding, packed)
        found = None
        if kind in ("CSV", "TSV") or self._suffix not in _PROSE:
            found = self._layout(kind, lines[: MAX_LINES + 1], cut=not whole)
        if found is None or (kind == "text" and not found.regular):
            return Table(
                kind=_packed(kind, packed),
                encoding=encoding,
                shown=tuple(line[:MAX_SHOWN] for line in lines[:SHOWN_ROWS] if line.strip()),
                rows=_counted(lines) if whole and not packed else -1,
            )
        first = found.header
        size = len(head) if packed else self._size
        count = _counted(lines)
        rows = count - first if whole else round(count * size / len(head)) - first
        return Table(
            kind=_packed("CSV" if kind == "text" else kind, packed),
            columns=_names(found.columns),
            delimiter=found.delimiter,
            skipped=found.skipped,
            encoding=encoding,
            regular=found.regular,
            rows=-1 if packed and not whole else max(rows, 0),
            about=not whole,
            shown=tuple(line[:MAX_SHOWN] for line in lines[first : first + SHOWN_ROWS] if line),
            words=" ".join(lines[: first - 1])[:MAX_SHOWN],
            others=tuple(lines[first + SHOWN_ROWS : first + SEARCHED_ROWS]),
        )

    def _layout(self, kind: str, lines: list[str], *, cut: bool) -> Layout | None:
        """Return the layout of a table; of one with a header that is known, by counting alone."""
        known = _known.get((kind, lines[0]))
        whole = lines[:-1] if cut or len(lines) > MAX_LINES else [line for line in lines if line]
        if known and _is_alike(known, whole):
            return known
        text = "\n".join(lines) + ("" if cut or len(lines) > MAX_LINES else "\n")
        found = layout_of(text, "\t" if kind == "TSV" else "")
        if found and found.header == 1 and _is_alike(found, whole):
            _known[kind, lines[0]] = found
        return found

    def _of_json(self, text: str, kind: str, encoding: str, packed: str) -> Table:
        start = _FIRST_OBJECT.match(text)
        columns: tuple[str, ...] = ()
        if start:
            with suppress(ValueError, RecursionError):
                value, _ = json.JSONDecoder().raw_decode(text, start.end())
                columns = _names(value)
        return Table(
            kind=_packed(kind, packed),
            columns=columns,
            encoding=encoding,
            regular=text.lstrip().startswith("[") or kind == "JSON lines",
            shown=(" ".join(text[:MAX_SHOWN].split()),),
        )

    # --- other files, by their libraries -------------------------------------------------------

    def _of_parquet(self) -> Table:
        if not find_spec("pyarrow"):
            return Table(kind="Parquet")
        from pyarrow import parquet

        with parquet.ParquetFile(self._path) as table:
            names, rows = table.schema_arrow.names, table.metadata.num_rows
        return Table(kind="Parquet", columns=_names(names), rows=rows, regular=True)

    def _of_database(self) -> Table:
        import sqlite3
        from urllib.parse import quote

        address = f"file:{quote(self._path)}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            select = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') LIMIT ?"
            tables = [str(name) for (name,) in database.execute(select, (MAX_SHEETS,))]
            shown = []
            for table in tables:
                quoted = table.replace('"', '""')
                rows = database.execute(f'PRAGMA table_info("{quoted}")').fetchall()
                shown.append(f"{table}: {', '.join(str(row[1]) for row in rows)}"[:MAX_SHOWN])
        return Table(kind="SQLite", shown=tuple(shown), words=" ".join(tables))

    def _of_archive(self) -> Table:
        import zipfile

        with zipfile.ZipFile(self._path) as archive:
            parts = archive.infolist()
        if not any(part.filename.startswith("xl/") for part in parts):
            return Table(kind="ZIP")
        whole = sum(part.file_size for part in parts if "/worksheets/sheet" not in part.filename)
        if whole > MAX_WHOLE or len(parts) > MAX_PARTS:
            return Table(kind="Excel", words="too large to look into")
        return self._of_workbook()

    def _of_workbook(self) -> Table:
        if not find_spec("openpyxl"):
            return Table(kind="Excel")
        from openpyxl import load_workbook

        workbook = load_workbook(self._path, read_only=True, data_only=True)
        names = [str(name)[:MAX_NAME] for name in workbook.sheetnames]
        text = io.StringIO()
        for sheet in workbook.worksheets[:1]:
            writer = csv.writer(text, lineterminator="\n")
            for row in sheet.iter_rows(max_row=MAX_LINES, max_col=MAX_COLUMNS, values_only=True):
                filled = [number for number, cell in enumerate(row) if cell is not None]
                writer.writerow(row[: filled[-1] + 1] if filled else ())
        others = [
            " ".join(str(cell) for cell in row if cell is not None)
            for sheet in workbook.worksheets[1 : 1 + OTHER_SHEETS]
            for row in sheet.iter_rows(max_row=OTHER_ROWS, max_col=MAX_COLUMNS, values_only=True)
        ]
        workbook.close()
        lines = text.getvalue().split("\n")
        found = layout_of(text.getvalue() + "\n", ",")
        first = found.header if found else 0
        told = f"sheets: {', '.join(names[:MAX_SHEETS])}"[:MAX_SHOWN]
        return Table(
            kind="Excel",
            columns=_names(found.columns) if found else (),
            skipped=found.skipped if found else 0,
            regular=bool(found),
            shown=(told, *(line[:MAX_SHOWN] for line in lines[first : first + SHOWN_ROWS])),
            words=" ".join(lines[: max(first - 1, 0)])[:MAX_SHOWN],
            others=(*lines[first + SHOWN_ROWS :], *others),
        )


_known: dict[tuple[str, str], Layout] = {}
"""Layouts by kind and first line: folders are full of files of one layout."""


def _is_alike(layout: Layout, lines: Sequence[str]) -> bool:
    """Whether each line has as many cells as the header, and no cell is in quotes."""
    count = len(layout.columns) - 1
    return all(line.count(layout.delimiter) == count and '"' not in line for line in lines)


def _names(columns: Any) -> tuple[str, ...]:
    return tuple(str(name).strip()[:MAX_NAME] for name in list(columns)[:MAX_COLUMNS])


def _packed(kind: str, packed: str) -> str:
    return f"{kind}, {packed}" if packed else kind


def _counted(lines: Sequence[str]) -> int:
    return len(lines) - (lines[-1] == "")
