"""A table as a first look shows it: the cell that reads and looks, and the columns it prints.

How a file is read follows from its first lines, which the task tells. Text counts as dates where
exactly one style of dates fits all of it. The look prints a Python list for each column.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_READERS = {
    "csv": "read_csv", "tsv": "read_csv", "tab": "read_csv", "json": "read_json",
    "jsonl": "read_json", "ndjson": "read_json", "parquet": "read_parquet", "pq": "read_parquet",
    "feather": "read_feather", "xlsx": "read_excel", "xlsm": "read_excel", "xls": "read_excel",
}  # fmt: skip
_KINDS = {
    "whole": r"U?Int\d+|uint\d+", "number": r"[Ff]loat\d+", "bool": r"bool(ean)?",
    "date": r"datetime64\[.*\]", "text": r"string|str|category",
}  # fmt: skip
_DATED = re.compile(r"\d\d?([-/.])\d\d?\1\d|\d{4}[-/]\d")
_DATES = """\
STYLES = ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m", "%Y/%m/%d",
          "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%m.%d.%Y", "%d-%m-%Y", "%m-%d-%Y"]
for name in data.select_dtypes(["object", "string"]):
    known = data.loc[data[name].notna(), name]
    fits = [pd.to_datetime(known.head(99), format=style, errors="coerce") for style in STYLES]
    fits = [style for style, dates in zip(STYLES, fits) if dates.notna().all()]
    fits = [pd.to_datetime(data[name], format=style, errors="coerce") for style in fits]
    fits = [dates for dates in fits if dates.count() == len(known) > 0]
    if len(fits) == 1:  # one style of dates, and no other, fits every value
        data[name] = fits[0]
"""
_LOOK = """\
print("%d rows, %d columns" % data.shape)
for name, column in data.iloc[:, :60].convert_dtypes().items():
    known = column[column.notna()]
    known = known if known.dtype.kind in "iufM" else known.astype(str)
    ends = [str(known.min())[:24], str(known.max())[:24]] if len(known) else ["", ""]
    print([name, str(column.dtype), int(column.isna().sum()), known.nunique(), *ends])"""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column as the look showed it; ``low`` and ``high`` are its ends as they were printed.

    ``kind`` is ``whole`` (numbers without decimals), ``number``, ``bool``, ``date``, ``text`` or
    ``other``.
    """

    name: str
    kind: str
    missing: int = 0
    distinct: int = 0
    low: str = ""
    high: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name, as stems."""
        return split_words(self.name)

    @property
    def is_measure(self) -> bool:
        """Whether it holds finite numbers."""
        known = self.distinct > 0 and "inf" not in f"{self.low} {self.high}"
        return known and self.kind in ("whole", "number")

    @property
    def is_year(self) -> bool:
        """Whether it holds calendar years as whole numbers."""
        years = re.fullmatch(r"[12]\d{3} [12]\d{3}", f"{self.low} {self.high}")
        return self.kind == "whole" and "year" in self.words and bool(years)

    @property
    def is_group(self) -> bool:
        """Whether its values make groups: anything but measured numbers and lists."""
        return self.kind not in ("number", "other") or (
            self.kind == "number" and self.distinct <= 30
        )

    @property
    def months(self) -> int:
        """How many calendar months a date spans, the first and the last among them."""
        first, last = (12 * int(end[:4]) + int(end[5:7]) for end in (self.low, self.high))
        return last - first + 1

    @property
    def finest(self) -> str:
        """What its dates stand for: a ``year``, a ``month``, or a ``day``."""
        if self.low[5:10] == self.high[5:10] == "01-01" and self.distinct <= self.months // 12 + 1:
            return "year"
        first = self.low[8:10] == self.high[8:10] == "01" and self.distinct <= self.months
        return "month" if first else "day"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as the look showed it; ``width`` counts its columns, also those not looked at."""

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
    """Split a name into the stems of its words, at case changes too (``bodyMass_kg``)."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)
    return tuple(stem(word.lower()) for word in re.findall(r"[^\W_]+", spaced))


def stem(word: str) -> str:
    """Return a plain English noun without its plural (``countries`` -> ``country``)."""
    if word.endswith("ies") and len(word) > 4:
        return word if word in ("series", "species", "movies") else f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes")) and len(word) > 4:
        return word[:-2]
    plural = word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3
    return word[:-1] if plural else word


def quote(text: str) -> str:
    """Return text as a Python string, in double quotes where that needs no escape."""
    written = repr(text)
    plainly = written[0] == "'" and '"' not in written and "\\'" not in written
    return f'"{written[1:-1]}"' if plainly else written


def reader_of(path: str) -> str:
    """Return the reader of pandas for a file by its ending; empty for what is no table."""
    return _READERS.get(re.sub(r"\.(gz|bz2|xz|zip)$", "", path.lower()).rpartition(".")[2], "")


def look_code(path: str, lines: str) -> str:
    """Return the code that reads a file and prints its columns.

    Parameters
    ----------
    path
        Relative to the working directory.
    lines
        Its first lines, and what is said of them, as the task tells it.
    """
    reader, options = reader_of(path), [quote(path)]
    if re.search(r"\.(jsonl|ndjson)\b", path.lower()):
        options.append("lines=True")
    if reader == "read_csv":
        shown = [row for row in lines.split("\n") if row[2:3] not in ("", "(", "…")][-3:]
        found = [s for s in ";\t|" if shown and all(s in row for row in shown)]
        tabs = re.search(r"\.(tsv|tab)\b", path.lower())
        options += [f"sep={quote(sep)}" for sep in (["\t"] if tabs else found[:1])]
        comma = ";" in found and re.search(r"[ ;]-?\d+,\d+(;|$)", lines, re.MULTILINE)
        options += ['decimal=","'] if comma else []
        options += re.findall(r"skiprows=\d+|encoding=[\"'][\w-]+[\"']", lines.partition("\n")[0])
    names = "" if reader == "read_csv" else ".rename(columns=str)"
    dates = _DATES if _DATED.search(lines) or not lines else ""
    return f"import pandas as pd\n\ndata = pd.{reader}({', '.join(options)}){names}\n{dates}{_LOOK}"


def read_look(observation: str) -> Table | None:
    """Return the table that a look printed; None where it printed none."""
    head = re.search(r"^(\d+) rows, (\d+) columns$", observation, re.MULTILINE)
    columns = tuple(map(_column, filter(None, map(_printed, observation.splitlines()))))
    return head and Table(rows=int(head[1]), width=int(head[2]), columns=columns)


def _printed(line: str) -> list[Any]:
    """Return the list that a line is; an empty one for any other line, and for one that was cut."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return list(ast.literal_eval(line)) if line.startswith("[") else []
    return []


def _column(printed: list[Any]) -> Column:
    name, dtype, missing, distinct, low, high = printed
    kind = next((kind for kind, style in _KINDS.items() if re.fullmatch(style, dtype)), "other")
    return Column(name=name, kind=kind, missing=missing, distinct=distinct, low=low, high=high)
