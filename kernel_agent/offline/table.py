"""A table as a first look shows it: the cells that read it, and the columns that they print.

The reader's options come from the file's first lines, which the task tells. The look prints a
Python list for each column. Text that is written like dates is tried in a second cell: it counts as
dates where exactly one style fits all of it.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from kernel_agent.offline.conversation import File

READERS = {
    "csv": "read_csv", "tsv": "read_csv", "tab": "read_csv", "json": "read_json",
    "jsonl": "read_json", "ndjson": "read_json", "parquet": "read_parquet", "pq": "read_parquet",
    "feather": "read_feather", "xlsx": "read_excel", "xlsm": "read_excel", "xls": "read_excel",
}  # fmt: skip
WIDEST = 60  # columns that are looked at: their lines fill an observation
_PACKED = {"gz", "bz2", "xz", "zip"}
_OWN = {"pd", "plt", "ax", "column", "dates", "final_answer", "grouped", "more", "outputs", "result"}
_TAKEN = _OWN | {"leading", "name", "style", "values"} | set(dir(builtins)) | set(keyword.kwlist)
_HEAD = re.compile(r"(\w+): (\d+) rows, (\d+) columns")
_KINDS = {
    "whole": r"U?Int\d+|uint\d+", "number": r"[Ff]loat\d+", "bool": r"bool(ean)?",
    "date": r"datetime64\[.*\]", "text": r"string|str|category",
}  # fmt: skip
_STYLES = {
    r"\d{4}-\d\d(-\d\d)?([ T].*)?": ("ISO8601",),
    r"\d{4}/\d\d?/\d\d?": ("%Y/%m/%d",),
    r"\d{4}\.\d\d?\.\d\d?": ("%Y.%m.%d",),
    r"\d\d?/\d\d?/\d{4}": ("%d/%m/%Y", "%m/%d/%Y"),
    r"\d\d?\.\d\d?\.\d{4}": ("%d.%m.%Y", "%m.%d.%Y"),
    r"\d\d?-\d\d?-\d{4}": ("%d-%m-%Y", "%m-%d-%Y"),
    r"\d\d?/\d\d?/\d\d": ("%d/%m/%y", "%m/%d/%y"),
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column as the look showed it.

    ``kind`` is ``whole`` (numbers without decimals), ``number``, ``bool``, ``date``, ``text`` or
    ``other``; ``low`` and ``high`` are its smallest and largest value as printed. A date has a
    ``style`` where it is written as text, and says by ``finest`` whether it only stands for a year
    or a month. ``doubt`` holds the two styles that both fit.
    """

    name: str
    kind: str
    missing: int = 0
    distinct: int = 0
    low: str = ""
    high: str = ""
    style: str = ""
    finest: str = "day"
    doubt: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name, as stems."""
        return split_words(self.name)

    @property
    def is_measure(self) -> bool:
        """Whether it holds finite numbers."""
        finite = "inf" not in f"{self.low} {self.high}"
        return self.kind in ("whole", "number") and self.distinct > 0 and finite

    @property
    def is_year(self) -> bool:
        """Whether it holds calendar years as whole numbers."""
        years = re.fullmatch(r"[12]\d{3} [12]\d{3}", f"{self.low} {self.high}")
        return self.kind == "whole" and "year" in self.words and bool(years)

    @property
    def is_group(self) -> bool:
        """Whether its values make groups: anything but measured numbers."""
        return self.kind not in ("number", "other") or (self.kind == "number" and self.distinct <= 30)

    @property
    def months(self) -> int:
        """How many calendar months a date spans, the first and the last among them."""
        first, last = ((int(end[:4]), int(end[5:7])) for end in (self.low, self.high))
        return 12 * (last[0] - first[0]) + last[1] - first[1] + 1


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as the look showed it; ``width`` counts its columns, also those not looked at."""

    path: str
    variable: str
    rows: int
    width: int
    columns: tuple[Column, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every column was seen, so that a name that fits one is known to fit no other."""
        return len(self.columns) == self.width

    @property
    def dates(self) -> tuple[Column, ...]:
        """Its columns of dates."""
        return tuple(column for column in self.columns if column.kind == "date")


@lru_cache(maxsize=4096)  # asked for each word of a question and each column
def split_words(text: str) -> tuple[str, ...]:
    """Split a name into the stems of its words, at case changes too.

    Examples
    --------
    >>> split_words("bodyMass_kg (dry)"), split_words("Countries")
    (('body', 'mass', 'kg', 'dry'), ('country',))
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)
    return tuple(stem(word.lower()) for word in re.findall(r"[^\W_]+", spaced))


def stem(word: str) -> str:
    """Return a plain English noun without its plural."""
    if len(word) > 4 and word.endswith("ies"):
        return word if word in ("series", "species", "movies") else word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def quote(text: str) -> str:
    """Return text as a Python string, in double quotes where that needs no escape."""
    written = repr(text)
    plainly = written[0] == "'" and '"' not in written and "\\'" not in written
    return f'"{written[1:-1]}"' if plainly else written


# --- reading a file ----------------------------------------------------------------------------


def is_table(file: File) -> bool:
    """Whether the file is a table by its ending."""
    return bool(_ending(file.path))


def _ending(path: str) -> str:
    endings = [e.lower() for e in PurePosixPath(path).name.split(".")[1:]]
    while endings and endings[-1] in _PACKED:
        endings.pop()
    return endings[-1] if endings and endings[-1] in READERS else ""


def variable_for(path: str) -> str:
    """Name the variable that a file is read into (``data/My cars (1).csv`` -> ``my_cars_1``)."""
    words = re.findall(r"[a-z0-9]+", PurePosixPath(path).name.split(".")[0].lower())
    name = "_".join(words)[:40].strip("_") or "table"
    name = name if name[0].isalpha() else f"table_{name}"
    return f"{name}_table" if name in _TAKEN else name


def read_code(file: File) -> str:
    """Return the statement that reads a file into its variable."""
    ending = _ending(file.path)
    options = [quote(file.path)]
    if ending in ("jsonl", "ndjson"):
        options.append("lines=True")
    elif READERS[ending] == "read_csv":
        options += _csv_options("\t" if ending in ("tsv", "tab") else "", file.lines)
    call = f"{variable_for(file.path)} = pd.{READERS[ending]}({', '.join(options)})"
    return call if READERS[ending] == "read_csv" else f"{call}.rename(columns=str)"


def _csv_options(separator: str, lines: Sequence[str]) -> list[str]:
    """Return how a text is read, by its first lines and what the task says of them."""
    said = lines[0] if lines and lines[0].startswith("(") else ""
    rows = [line for line in lines if line != said and not line.startswith("…")]
    found = [s for s in ";\t|" if rows and all(s in row for row in rows[-3:])]
    separator = separator or (found[0] if found else "")
    options = [f"sep={quote(separator)}"] if separator else []
    if separator == ";" and any(re.search(r";-?\d+,\d", row) for row in rows):
        options.append('decimal=","')
    return options + re.findall(r"skiprows=\d+|encoding=[\"'][\w-]+[\"']", said)


def look_code(variable: str) -> str:
    """Return the code that prints a line for the table and one for each of its columns."""
    most = f".iloc[:, :{WIDEST}]"
    return (
        f'print("{variable}: %d rows, %d columns" % {variable}.shape)\n'
        f"for name, column in {variable}{most}.convert_dtypes().items():\n"
        "    values = column.dropna()\n"
        '    values = values if values.dtype.kind in "iufM" else values.astype(str)\n'
        "    ends = [str(values.min())[:24], str(values.max())[:24]] if len(values) else []\n"
        "    print([name, str(column.dtype), len(column) - len(values), values.nunique(), *ends])"
    )


def dates_code(table: Table) -> str:
    """Return the code that tries which style of dates fits; empty where nothing looks like one."""
    tried = [(c.name, style) for c in table.columns for style in styles_of(c)]
    if not tried:
        return ""
    listed = "".join(f"    ({quote(name)}, {quote(style)}),\n" for name, style in tried)
    return (
        f"for name, style in [\n{listed}]:\n"
        f"    column = {table.variable}[name]\n"
        '    dates = pd.to_datetime(column, format=style, errors="coerce")\n'
        "    if dates.count() == column.count():  # it fits every one\n"
        '        finest = "year" if (dates.dropna().dt.dayofyear == 1).all() else "day"\n'
        '        finest = "month" if finest == "day" and (dates.dropna().dt.day == 1).all()'
        " else finest\n"
        "        print([name, style, finest, str(dates.min()), str(dates.max())])"
    )


def styles_of(column: Column) -> tuple[str, ...]:
    """Return the styles of dates that a column may be written in."""
    if column.kind == "date":
        return ("ISO8601",)
    ends = [end.strip() for end in (column.low, column.high)]
    fits = [s for style, s in _STYLES.items() if all(re.fullmatch(style, end) for end in ends)]
    return fits[0] if column.kind == "text" and fits else ()


# --- reading what was printed ------------------------------------------------------------------


def read_look(observation: str, file: File) -> Table | None:
    """Return the table that a look printed; None where it printed none."""
    variable, columns = variable_for(file.path), []  # type: str, list[Column]
    lines = iter(observation.splitlines())
    head = next((h for line in lines if (h := _HEAD.fullmatch(line)) and h[1] == variable), None)
    if head is None:
        return None
    for line in lines:
        if _HEAD.fullmatch(line):
            break
        if printed := _printed(line):
            columns.append(_column(*printed))
    return Table(
        path=file.path,
        variable=variable,
        rows=int(head[2]),
        width=int(head[3]),
        columns=tuple(columns),
    )


def with_dates(table: Table, observation: str) -> Table:
    """Return a table with the dates that were found, and the doubts."""
    fits: dict[str, list[list[str]]] = {}
    for line in observation.splitlines():
        if printed := _printed(line):
            fits.setdefault(printed[0], []).append(printed[1:])
    return replace(table, columns=tuple(_dated(c, fits.get(c.name, [])) for c in table.columns))


def _dated(column: Column, fits: Sequence[Sequence[str]]) -> Column:
    if len(fits) != 1:
        doubt = " and ".join(fit[0] for fit in fits)
        return replace(column, doubt=doubt, kind="text" if styles_of(column) else column.kind)
    style, finest, low, high = fits[0]
    style = "" if column.kind == "date" else style
    return replace(column, kind="date", style=style, finest=finest, low=low, high=high)


def _column(name: str, dtype: str, missing: int, distinct: int, *ends: str) -> Column:
    low, high = ends or ("", "")
    kind = next((kind for kind, style in _KINDS.items() if re.fullmatch(style, dtype)), "other")
    return Column(name=name, kind=kind, missing=missing, distinct=distinct, low=low, high=high)


def _printed(line: str) -> list[Any]:
    """Return the list that a line is; an empty one for any other line, and for one that was cut."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return list(ast.literal_eval(line)) if line.startswith("[") else []
    return []
