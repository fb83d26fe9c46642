"""First look at a run's files: what the model is told of them, and the example of its prompt.

Half of all first turns only look at files. So small text files are told whole, of others the first
lines, of lists in JSON the first objects, of workbooks the first rows of each sheet, of Parquet
files the columns; of many files with the same columns one is told, and the others by name. A
database of SQLite can make much of little, so the sandbox opens it: the model is told how.

A weak model copies the example that it is shown, in the prompt and each time that a reply of its
could not be read. So the example names the run's own file, reads it by the call that reads it,
runs as it stands, and computes no answer.

Only the beginning of a file is read, and of a workbook what its archive says is small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from kernel_agent.formats import LOOK
from kernel_agent.inkernel import Layout, decode_text, header_of, layout_of
from kernel_agent.records import DataFile
from kernel_agent.safe import open_file, plain, size_text, write_unseen

SAMPLE_BYTES = 1 << 16
WHOLE = 2_500
"""Characters up to which a text file is told whole, if it has no more lines than these."""

WHOLE_LINES = 60

MAX_ALL = 12_000
"""Characters of all files together; what follows is told by name and size."""

MAX_SHEETS = 8
MAX_COLUMNS = 50  # of a sheet or a Parquet file
_LINES = 5  # of a longer file, and rows of a sheet
_JSON_LINES = 20  # of a file that is no table and no list of objects
_TITLES = 3  # lines above a header
_MAX_LINE = 300  # characters
_MAX_HEADER = 1_500  # characters of a header: names are asked for
_MAX_NAMES = 2_000  # characters of the names of files that are like another one
_ALIKE = 3  # files with the same columns, from which on one stands for all
_TEXT = {"CSV", "TSV", "JSON", "JSON lines", "text", "other"}
_SHOW_TABLES = """for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
    print(sql)"""
_FIRST_OBJECT = re.compile(r"\s*\[\s*(?=\{)")
_NEXT_OBJECT = re.compile(r"\s*,\s*(?=\{)")
_PLAIN = re.compile(r"[\w./+()=@-][\w ./+()=@-]{0,78}[\w./+()=@-]")  # 80 characters at most


@dataclass(frozen=True, kw_only=True)
class Look:
    """Beginning of one file: its lines as they are told, and how it is read.

    ``notes`` are what a reader has to know (encoding, title lines), ``call`` is the call of pandas
    that reads it; empty where a plain one does not.
    """

    file: DataFile
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    call: str = ""

    @property
    def layout(self) -> tuple[object, ...]:
        """What files that are read alike have in common."""
        read = self.call.replace(_quote(self.file.path), "")
        return (self.file.kind, read, self.notes, self.columns)


def look_at(folder: Path, files: Sequence[DataFile]) -> tuple[Look, ...]:
    """Look at the beginning of each file.

    Parameters
    ----------
    folder
        The session's folder.
    files
        Its inputs.
    """
    return tuple(_look(Path(f.source) if f.linked else folder / f.path, f) for f in files)


def example_of(
    looks: Sequence[Look], *, may_import: Callable[[str], bool] = lambda _name: True
) -> str:
    """Return the source of a first cell that reads a run's first table, or else its first file.

    Parameters
    ----------
    looks
        What :func:`look_at` found; nothing of files that are untrusted, since the prompt is our
        own word. Files with odd or long names are passed over: a name is data.
    may_import
        Whether cells may import a module.
    """
    looks = [look for look in looks if _is_plain(look.file.path)]
    table = next((look for look in looks if look.call and may_import("pandas")), None)
    if table is not None:
        return f"import pandas as pd\n\ndf = pd.{table.call}\ndf.head()"
    if not looks:
        return LOOK if may_import("pandas") else 'print("ready")'
    path = _quote(looks[0].file.path)
    if looks[0].file.kind == "SQLite" and may_import("sqlite3"):
        return f"import sqlite3\n\ndb = {_connect(looks[0].file)}\n{_SHOW_TABLES}"
    is_text = looks[0].file.kind in _TEXT and looks[0].lines and not looks[0].notes
    return f"open({path}).read(500)" if is_text else f'open({path}, "rb").read(100)'


# --- telling -----------------------------------------------------------------------------------


def tell_files(looks: Sequence[Look]) -> str:
    """Return the list of a run's files with their beginnings, as the model is told it.

    Parameters
    ----------
    looks
        What :func:`look_at` found.
    """
    entries, room = [], MAX_ALL
    for look, others in _groups(looks):
        lines = [_line(look.file), *(f"  {line}" for line in look.lines if room > 0)]
        if others:
            lines.append(f"  and {len(others)} more with these columns: {_names(others)}")
        entries.append("\n".join(lines))
        room -= len(entries[-1])
    if room <= 0:
        entries.append("(of the later ones nothing is shown here: look at them yourself)")
    return "\n".join(entries)


def tell_names(files: Sequence[DataFile]) -> str:
    """Return the list of a run's files by name and size, without their beginnings."""
    return "\n".join(_line(file) for file in files)


def _groups(looks: Sequence[Look]) -> Iterator[tuple[Look, list[Look]]]:
    """Yield each file in order, the first of several with the same columns with the others."""
    alike: dict[tuple[object, ...], list[Look]] = {}
    for look in looks:
        alike.setdefault(look.layout, []).append(look)
    for look in looks:
        same = alike[look.layout]
        if not look.columns or len(same) < _ALIKE:
            yield look, []
        elif look is same[0]:
            yield look, same[1:]


def _names(looks: Sequence[Look]) -> str:
    names, room = sorted(_name(look.file.path) for look in looks), _MAX_NAMES
    shown = [name for name in names if (room := room - len(name) - 2) > 0]
    more = f", … {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def _line(file: DataFile) -> str:
    return f"- {_name(file.path)} ({file.kind}, {size_text(file.bytes)})"


def _name(path: str) -> str:
    return path if _is_plain(path) else _quote(path)


def _is_plain(path: str) -> bool:
    """Whether a name is short and of usual characters, all of them seen."""
    return bool(_PLAIN.fullmatch(path)) and write_unseen(path) == path


# --- looking -----------------------------------------------------------------------------------


def _look(path: Path, file: DataFile) -> Look:
    """Look at one file; where it cannot be read there is nothing to tell."""
    try:
        if file.kind == "Excel":
            return _look_at_workbook(path, file)
        if file.kind == "SQLite":
            return Look(file=file, lines=(f"(read-only: {_connect(file)})",))
        if file.kind == "Parquet":
            return _look_at_parquet(path, file)
        return _look_at_text(path, file)
    except Exception:
        return Look(file=file)


def _look_at_text(path: Path, file: DataFile) -> Look:
    with open_file(path) as opened:
        head = opened.read(SAMPLE_BYTES)
    text, encoding = decode_text(head)
    if "\0" in text or not text.strip():
        return Look(file=file)
    notes: tuple[str, ...] = ()
    if encoding:
        notes += (f"not UTF-8; read with encoding={_quote(encoding)}",)
    is_table = file.kind in ("CSV", "TSV")
    layout = layout_of(text, "\t" if file.kind == "TSV" else "") if is_table else None
    if layout is None:
        most = _LINES if is_table or file.kind == "JSON lines" else _JSON_LINES
        objects = _objects(text, file, len(head)) if file.kind == "JSON" else ()
        lines = objects or _beginning(text, file, len(head), most=most)
        call = "" if encoding else _read_json(file, text)
        return Look(file=file, lines=(*_noted(notes), *lines), notes=notes, call=call)
    titles = layout.header - 1
    if titles:
        plural = "lines stand" if titles > 1 else "line stands"
        notes += (f"{titles} {plural} above the header: skiprows={layout.skipped}",)
    return Look(
        file=file,
        lines=(*_noted(notes), *_beginning(text, file, len(head), most=_LINES, titles=titles)),
        notes=notes,
        columns=layout.columns,
        call=_read_csv(file, layout, encoding) if layout.regular else "",
    )


def _read_csv(file: DataFile, layout: Layout, encoding: str) -> str:
    """Return the call of pandas that reads a table written as text."""
    options = [_quote(file.path)]
    options += [f"sep={_quote(layout.delimiter)}"] if layout.delimiter != "," else []
    options += [f"skiprows={layout.skipped}"] if layout.skipped else []
    options += [f"encoding={_quote(encoding)}"] if encoding else []
    return f"read_csv({', '.join(options)})"


def _read_json(file: DataFile, text: str) -> str:
    """Return the call of pandas that reads a list of objects; empty for anything else."""
    path = _quote(file.path)
    if file.kind == "JSON lines":
        return f"read_json({path}, lines=True)"
    return f"read_json({path})" if file.kind == "JSON" and _FIRST_OBJECT.match(text) else ""


def _noted(notes: Sequence[str]) -> tuple[str, ...]:
    return (f"({'; '.join(notes)})",) if notes else ()


def _beginning(
    text: str, file: DataFile, read: int, *, most: int, titles: int = 0
) -> tuple[str, ...]:
    """Return the lines of a small file, or the first of a longer one and how many there are.

    The header is among them, however many lines stand above it.
    """
    lines = plain(text).rstrip("\n").split("\n")
    if file.bytes <= read and len(text) <= WHOLE and len(lines) <= WHOLE_LINES:
        return tuple(lines)
    above, below = lines[: min(titles, _TITLES)], lines[titles : titles + most]
    shown = [_cut(line) for line in above]
    if titles > len(above):
        shown.append(f"… {titles - len(above)} more lines above the header")
    shown += [_cut(line, _MAX_LINE if n else _MAX_HEADER) for n, line in enumerate(below)]
    is_whole = file.bytes <= read
    count = len(lines) if is_whole else round(len(lines) * file.bytes / read)
    if is_whole or len(lines) > most:
        left = count - titles - len(below)
        shown += [f"… {'' if is_whole else 'about '}{left:,} more lines"] if left else []
    else:
        shown.append("… more")
    return tuple(shown)


def _objects(text: str, file: DataFile, read: int) -> tuple[str, ...]:
    """Return the first objects of a list, one a line, and how many follow; empty for other JSON."""
    is_whole = file.bytes <= read
    if is_whole and len(text) <= WHOLE and text.count("\n") < WHOLE_LINES:
        return ()
    found, end = _read_objects(text)
    if not found or (is_whole and text[end:].strip() != "]"):
        return ()
    lines = [plain(json.dumps(each, ensure_ascii=False)) for each in found]
    if is_whole and len(lines) <= WHOLE_LINES and sum(map(len, lines)) <= WHOLE:
        return tuple(lines)
    shown = [_cut(line, _MAX_LINE if n else _MAX_HEADER) for n, line in enumerate(lines[:_LINES])]
    count = len(lines) if is_whole else round(len(lines) * file.bytes / len(text[:end].encode()))
    left = count - len(shown)
    return (*shown, *([f"… {'' if is_whole else 'about '}{left:,} more objects"] if left else []))


def _read_objects(text: str) -> tuple[list[Any], int]:
    """Return the objects at the beginning of a list that are there whole, and where they end."""
    found: list[Any] = []
    end, head = 0, _FIRST_OBJECT.match(text)
    try:
        while head:
            value, end = json.JSONDecoder().raw_decode(text, head.end())
            found.append(value)
            head = _NEXT_OBJECT.match(text, end)
    except (ValueError, RecursionError):
        pass  # of this one the sample has the beginning only
    return found, end


def _cut(line: str, most: int = _MAX_LINE) -> str:
    over = len(line) - most
    return line if over <= 0 else f"{line[:most]}… {over:,} more characters"


def _look_at_workbook(path: Path, file: DataFile) -> Look:
    """Return the first rows of each sheet of an .xlsx file."""
    if path.suffix.lower() == ".xls" or not find_spec("openpyxl"):
        return Look(file=file)
    from openpyxl import load_workbook

    with open_file(path) as opened:
        if not _is_small(opened):
            return Look(file=file)
        workbook = load_workbook(opened, read_only=True, data_only=True)
        titles = [_quote(sheet.title) for sheet in workbook.worksheets]
        sheets = [_rows_of(sheet) for sheet in workbook.worksheets[:MAX_SHEETS]]
    lines: list[str] = []
    for title, rows in zip(titles, sheets, strict=False):
        lines += [f"sheet {title}:", *(_cut("  " + ", ".join(row).rstrip(", ")) for row in rows)]
    if more := titles[MAX_SHEETS:]:
        lines.append(_cut(f"and {len(more)} more sheets: {', '.join(more)}"))
    head = header_of([sum(map(bool, row)) for row in sheets[0]]) if sheets else 0
    skipped = f", skiprows={head}" if head else ""
    return Look(file=file, lines=tuple(lines), call=f"read_excel({_quote(file.path)}{skipped})")


def _connect(file: DataFile) -> str:
    """Return the call that opens a database.

    ``immutable`` because it is, and because one that was in WAL mode could not be opened otherwise:
    the files that belong to it cannot be made beside an input.
    """
    address = f"file:{quote(file.path)}?mode=ro&immutable=1"
    return f"sqlite3.connect({_quote(address)}, uri=True)"


def _rows_of(sheet: Any) -> list[list[str]]:
    """Return the first rows of a sheet as text, and last how many there are."""
    rows = [
        ["" if cell is None else " ".join(plain(str(cell)).split()) for cell in row]
        for row in sheet.iter_rows(max_row=_LINES, max_col=MAX_COLUMNS, values_only=True)
    ]
    below = (sheet.max_row or 0) - len(rows)
    return [*rows, [f"… {below:,} more rows"]] if below > 0 else rows


def _is_small(opened: BinaryIO) -> bool:
    """Whether what a reader of a workbook takes in whole is at most 20 MB, and it has few parts."""
    import zipfile

    with zipfile.ZipFile(opened) as archive:
        parts = archive.infolist()
    whole = sum(part.file_size for part in parts if "/worksheets/sheet" not in part.filename)
    return len(parts) <= 1_000 and whole <= 20_000_000


def _look_at_parquet(path: Path, file: DataFile) -> Look:
    """Return the columns of a Parquet file with their types."""
    if not find_spec("pyarrow"):
        return Look(file=file)
    from pyarrow import parquet

    with open_file(path) as opened, parquet.ParquetFile(opened) as table:
        schema, rows = table.schema_arrow, table.metadata.num_rows
    shown = [f"{_quote(field.name)} {field.type}" for field in list(schema)[:MAX_COLUMNS]]
    more = f", … {len(schema) - len(shown)} more" if len(schema) > len(shown) else ""
    line = f"{rows:,} rows; columns: {', '.join(shown)}{more}"
    return Look(
        file=file,
        lines=(plain(line[: 10 * _MAX_LINE]),),
        columns=tuple(schema.names),
        call=f"read_parquet({_quote(file.path)})",
    )


def _quote(text: str) -> str:
    r"""Return a text as Python writes it, in double quotes where that needs no escape.

    >>> _quote("data/sales.csv"), _quote("\t")
    ('"data/sales.csv"', '"\\t"')
    """
    written = repr(text)
    plainly = written[0] == "'" and '"' not in written
    return f'"{written[1:-1]}"' if plainly else written
