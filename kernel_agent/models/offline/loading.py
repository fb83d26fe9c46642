"""Reading a file: the cell that loads it, and what its failure teaches.

The first try is the plain pandas reader. What the kernel answers decides about a second one
(another separator, encoding or layout) or ends in one line that a person can act on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath

from kernel_agent.errors import ModelError
from kernel_agent.models.offline.conversation import failure
from kernel_agent.models.offline.schema import Column, Table, read_tables, split_name

_READERS = {
    "csv": "read_csv", "txt": "read_csv", "dat": "read_csv", "tsv": "read_csv", "tab": "read_csv",
    "json": "read_json", "jsonl": "read_json", "ndjson": "read_json", "parquet": "read_parquet",
    "pq": "read_parquet", "feather": "read_feather", "xlsx": "read_excel", "xlsm": "read_excel",
    "xls": "read_excel", "ods": "read_excel",
}  # fmt: skip
_NEEDS = {"read_parquet": "pyarrow", "read_feather": "pyarrow", "read_excel": "openpyxl"}
_PACKED = {"gz", "bz2", "xz", "zip"}
_RESERVED = {"final_answer", "outputs", "overview", "kind_of", "pd", "plt", "np", "json", "ax",
             "fig", "selected", "table", "result", "print", "list", "str", "int", "sum", "min",
             "max", "len", "for", "in", "is", "if", "class", "import", "from", "data"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One action: what the analyst says, and the code it runs."""

    thought: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file is read: the pandas reader and its options."""

    path: str
    reader: str
    options: tuple[str, ...] = ()
    reset_index: bool = False

    def line(self, variable: str) -> str:
        """Return the statement that loads the file into the variable."""
        arguments = ", ".join([quoted(self.path), *self.options])
        tail = ".reset_index()" if self.reset_index else ""
        return f"{variable} = pd.{self.reader}({arguments}){tail}"


def quoted(text: str) -> str:
    """Return text as a double-quoted Python string literal."""
    return json.dumps(text, ensure_ascii=False)


def variable_for(path: str) -> str:
    """Name the variable that a file is loaded into (``data/My cars (1).csv`` -> ``my_cars_1``)."""
    words = split_name(PurePosixPath(path).name.split(".")[0])
    name = "_".join(re.sub(r"[^a-z0-9]", "", w) for w in words).strip("_") or "table"
    name = re.sub(r"_+", "_", name)[:40]
    if not name[0].isalpha():
        name = f"table_{name}"
    return f"{name}_table" if name in _RESERVED else name


@cache
def overview_source() -> str:
    """Return the code that defines ``overview``, as it goes into the first cell."""
    text = Path(__file__).with_name("overview.py").read_text(encoding="utf-8")
    return text.split('"""', 2)[2].strip()


def first_reading(path: str) -> Reading:
    """Choose the reader by the file's ending.

    Raises
    ------
    ModelError
        The ending is of no kind of table that the analyst reads (the caller's fault).
    """
    endings = [e.lower() for e in PurePosixPath(path).name.split(".")[1:]]
    while endings and endings[-1] in _PACKED:
        endings.pop()
    ending = endings[-1] if endings else ""
    reader = _READERS.get(ending)
    if reader is None:
        raise ModelError(
            f"The offline analyst reads tables (CSV, TSV, JSON, Parquet, Excel), and {path} is"
            " not one by its ending; convert it, or configure a model that can look inside:"
            " --model NAME --base-url URL with OPENAI_API_KEY."
        )
    options = ()  # type: tuple[str, ...]
    if ending in ("tsv", "tab"):
        options = ('sep="\\t"',)
    elif ending in ("jsonl", "ndjson"):
        options = ("lines=True",)
    return Reading(path=path, reader=reader, options=options)


def load(path: str, question: str, *, greeting: str, define: bool) -> Generator[Cell, str, Table]:
    """Load a file and look at it; yields cells, is sent observations, returns the table.

    Parameters
    ----------
    path
        Relative to the working directory, as the task names it.
    question
        Goes into the look, so that values it names are found in columns too long to list.
    greeting
        How the first thought begins.
    define
        Whether ``overview`` has yet to be defined in the kernel.

    Raises
    ------
    ModelError
        The file cannot be read as a table (the file's fault).
    """
    variable, reading = variable_for(path), first_reading(path)
    thought = f"{greeting}First I load {path} and look at its columns.".strip()
    for _ in range(4):
        parts = [overview_source()] if define else []
        parts.append(f"{reading.line(variable)}\n{look(variable, question)}\n{variable}.head()")
        observation = yield Cell(thought=thought, code="\n\n\n".join(parts))
        table = read_tables([observation]).get(variable)
        better = _remedy(reading, table, failure(observation))
        if better is None:
            break
        define = table is None  # a failed cell may have stopped before the definition
        if isinstance(better, str):
            head = yield _peek(path, better)
            better = _by_header(reading, head)
        reading, thought = better, _why(better, path)
    if table is None or not table.columns:
        raise ModelError(_unreadable(path, reading, failure(observation)))
    return (yield from _tidied(replace(table, path=path), question))


def look(variable: str, question: str, columns: str = "") -> str:
    """Return the call that prints the overview of a table or of some of its columns."""
    words = " ".join(re.sub(r"[^\w\s.'&/+-]", " ", question.lower()).split())
    return f'overview("{variable}", {variable}{columns}, question={quoted(words[:600])})'


def _remedy(
    reading: Reading, table: Table | None, failed: tuple[str, str] | None
) -> Reading | str | None:
    """Return a better way to read the file, the reason to peek at it, or None."""
    if table is not None:
        return _better_shape(reading, table)
    if failed is None:
        return None
    kind, message = failed
    told = " ".join(reading.options)
    better: Reading | str | None = None
    if reading.reader == "read_csv" and kind == "UnicodeDecodeError" and "encoding" not in told:
        encoding = "utf-16" if "0xff in position 0" in message else "latin-1"
        better = replace(reading, options=(*reading.options, f'encoding="{encoding}"'))
    elif reading.reader == "read_csv" and kind == "ParserError" and "sep" not in told:
        better = message
    elif (
        reading.reader == "read_json" and not told and re.search(r"(Trailing|Extra) data", message)
    ):
        better = replace(reading, options=("lines=True",))
    return better


def _better_shape(reading: Reading, table: Table) -> Reading | None:
    """Return how to read a table again that came out in a wrong shape, or None."""
    text = reading.reader == "read_csv"
    if text and len(table.columns) == 1 and not any("sep" in o for o in reading.options):
        return _separated(reading, table.columns[0].name)
    if table.odd_index and text:
        raise ModelError(
            f"{reading.path} cannot be read as a table: its lines have more fields than its"
            " header names; repair the header and ask again."
        )
    if table.odd_index and not reading.reset_index:
        return replace(reading, reset_index=True)
    return None


def _separated(reading: Reading, header: str) -> Reading | None:
    counts = {sep: header.count(sep) for sep in (";", "\t", "|")}
    sep = max(counts, key=lambda s: counts[s])
    if not counts[sep]:
        return None
    options = [f"sep={quoted(sep)}"]
    if sep == ";":  # written where the comma is the decimal sign
        options.append('decimal=","')
    return replace(reading, options=(*options, *reading.options))


def _peek(path: str, message: str) -> Cell:
    return Cell(
        thought=f"The plain reader failed ({message.strip()}). I look at the first lines as text.",
        code=(
            "from pathlib import Path\n\n"
            f'lines = Path({quoted(path)}).read_text(encoding="utf-8-sig", errors="replace")'
            '.splitlines()\nprint("Header:", lines[0][:2000])'
        ),
    )


def _by_header(reading: Reading, head: str) -> Reading:
    header = re.search(r"^Header: (.*)$", head, re.MULTILINE)
    better = _separated(reading, header[1]) if header else None
    if better is None:
        raise ModelError(
            f"{reading.path} cannot be read as a table: its lines do not all have as many fields"
            " as its header (pandas: ParserError); repair the file and ask again."
        )
    return better


def _why(reading: Reading, path: str) -> str:
    if reading.reset_index:
        return f"{path} keeps a column in its index; I make it an ordinary column."
    return f"That was not how {path} is written; I read it again with {', '.join(reading.options)}."


def _unreadable(path: str, reading: Reading, failed: tuple[str, str] | None) -> str:
    kind, message = failed or ("no rows", "nothing came back")
    if kind in ("ImportError", "ModuleNotFoundError"):
        package = re.search(r"pyarrow|fastparquet|openpyxl|xlrd|odfpy", message)
        name = package[0] if package else _NEEDS.get(reading.reader, "the reader's package")
        return (
            f"Reading {path} needs the package {name}, which is not installed where the kernel"
            f" runs: pip install {name}."
        )
    if kind == "EmptyDataError" or failed is None:
        return f"{path} has no columns to read; give a table with a header line and rows."
    line = " ".join(message.split())[:200]
    return f"{path} cannot be read as a table ({kind}: {line}); check or convert the file."


def _tidied(table: Table, question: str) -> Generator[Cell, str, Table]:
    """Turn text that is really numbers or dates into them, once, and look again."""
    if table.rows == 0:
        raise ModelError(f"{table.path} has a header but no rows; there is nothing to analyse.")
    if all(re.fullmatch(r"-?[\d.,]+", c.name) for c in table.columns) and not table.others:
        raise ModelError(
            f"The first line of {table.path} holds numbers, not column names; add a header line."
        )
    disguised = [c for c in table.columns if c.disguise]
    if not disguised:
        return table
    listed = f"[[{', '.join(quoted(c.name) for c in disguised)}]]"
    code = [_conversion(table.variable, c) for c in disguised]
    told = ", ".join(f"{c.name} ({c.disguise}s)" for c in disguised)
    observation = yield Cell(
        thought=f"Some text stands for something else: {told}. I convert it where all of it fits.",
        code="\n".join([*code, look(table.variable, question, listed)]),
    )
    seen = read_tables([observation]).get(table.variable)
    if seen is None:
        kind, message = failure(observation) or ("Error", "no overview came back")
        raise ModelError(f"Columns of {table.path} could not be converted ({kind}: {message}).")
    return table.merged(seen)


def _conversion(variable: str, column: Column) -> str:
    """Return the lines that convert a column if every value in it can be."""
    target = f"{variable}[{quoted(column.name)}]"
    if column.disguise == "date":
        formats = date_formats(column.sample)
        listed = ", ".join(map(quoted, formats)) + ("," if len(formats) == 1 else "")
        return (
            f"for style in ({listed}):\n"
            f'    dates = pd.to_datetime({target}, format=style, errors="coerce")\n'
            f"    if dates.notna().sum() == {target}.notna().sum():\n"
            f"        {target} = dates\n        break"
        )
    thousands, point = (".", ",") if _decimal_comma(column.sample) else (",", ".")
    whole = rf"(?:\d{{1,3}}(?:[{thousands}]\d{{3}})+|0|[1-9]\d*)"  # 00123 is a code, not a number
    style = rf"[-+]?[$€£¥]? ?{whole}(?:[{point}]\d+)? ?[%€$£]?"
    cleaned = rf'text.str.replace(r"[^\d{point}+-]", "", regex=True)'
    if point == ",":
        cleaned += '.str.replace(",", ".")'
    return (
        f"text = {target}.astype(str).str.strip()\n"
        f'style = r"{style}|[-?.]*|n/?a|nan|<na>|none|null"\n'
        "if text.str.fullmatch(style, case=False).all():\n"
        f'    {target} = pd.to_numeric({cleaned}, errors="coerce")'
    )


def _decimal_comma(sample: str) -> bool:
    """Whether sampled numbers can only be read with the comma as the decimal sign."""
    return bool(re.search(r"\.\d{3},|,(?:\d{1,2}|\d{4,})(?!\d)|\.\d{3}\.", sample))


def date_formats(sample: str) -> tuple[str, ...]:
    """Return the formats that sampled dates may be written in, the likeliest first.

    Examples
    --------
    >>> date_formats("03/04/2021 25/12/2020")
    ('%m/%d/%Y', '%d/%m/%Y')
    >>> date_formats("Jan 1 2000")
    ('%b %d %Y',)
    """
    clock = next((c for c in (" %H:%M:%S", " %H:%M") if _has_clock(sample, c)), "")
    short = re.search(r"\b\d{1,2}([-/.])\d{1,2}\1(\d{4}|\d{2})\b", sample)
    if re.match(r"\d{4}[-/.]", sample):
        sep = sample[4]
        return ("ISO8601",) if sep == "-" else (f"%Y{sep}%m{sep}%d{clock}", f"%Y{sep}%m")
    if short:
        sep, year = short[1], "%Y" if len(short[2]) == 4 else "%y"
        styles = (f"%m{sep}%d{sep}{year}{clock}", f"%d{sep}%m{sep}{year}{clock}")
        return styles[::-1] if sep == "." else styles
    words = re.findall(r"[A-Za-z]+", sample)
    month = "%b" if words and max(map(len, words)) <= 3 else "%B"
    comma = "," if "," in sample else ""
    if re.match(r"\d{1,2} [A-Za-z]", sample):
        return (f"%d {month} %Y",)
    if re.match(r"[A-Za-z]+ \d{1,2}\b", sample):
        return (f"{month} %d{comma} %Y",)
    return (f"{month} %Y",)


def _has_clock(sample: str, style: str) -> bool:
    return bool(re.search(r"\d " + r":".join([r"\d{1,2}"] * style.count("%")) + r"\b", sample))
