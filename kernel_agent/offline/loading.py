"""Reading a file: the cell that loads it, and remedies when that fails.

The first try is the plain pandas reader. What the kernel answers decides about a second one
(another separator, encoding or layout) or ends in one line that a person can act on.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from kernel_agent.errors import ModelError
from kernel_agent.offline.cells import Cell, quote
from kernel_agent.offline.conversation import failure
from kernel_agent.offline.looking import closer_look, first_look, look_at
from kernel_agent.offline.printed import look_again, read_tables
from kernel_agent.offline.schema import Table, split_name
from kernel_agent.offline.tidying import decimal_comma, decimal_point, tidy

_READERS = {
    "csv": "read_csv", "txt": "read_csv", "dat": "read_csv", "tsv": "read_csv", "tab": "read_csv",
    "json": "read_json", "jsonl": "read_json", "ndjson": "read_json", "parquet": "read_parquet",
    "pq": "read_parquet", "feather": "read_feather", "xlsx": "read_excel", "xlsm": "read_excel",
    "xls": "read_excel", "ods": "read_excel",
}  # fmt: skip
_NEEDS = {"read_parquet": "pyarrow", "read_feather": "pyarrow", "read_excel": "openpyxl"}
OWN_NEEDS = "which imports pandas, numpy and matplotlib"
_COMMA = 'decimal=","'
_PACKED = {"gz", "bz2", "xz", "zip"}
# What the cells use themselves: a table of such a name would be overwritten.
_RESERVED = set(
    """
    final_answer outputs pd plt np json fig ax image print list str int sum min max len sorted any
    filter map dict for in is if class import from data table name column known values shown counts
    close asked shared question named text style dates selected summary trend top listed parts
    groups matching shares totals pairs numbers result missing count value distinct r strength
    direction change first last group row unknown extreme single names lines workbook mean median
    total written kept words
    """.split()  # noqa: SIM905 - seventy words read better so
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The pandas reader for a file, and its options.

    ``mixed`` says whether cells may hold lists, or numbers beside text.
    """

    path: str
    reader: str
    options: tuple[str, ...] = ()
    reset_index: bool = False
    mixed: bool = False

    def line(self, variable: str) -> str:
        """Return the statement that loads the file into the variable."""
        arguments = ", ".join([quote(self.path), *self.options])
        tail = ".reset_index()" if self.reset_index else ""
        return f"{variable} = pd.{self.reader}({arguments}){tail}"


def variable_for(path: str) -> str:
    """Name the variable that a file is loaded into (``data/My cars (1).csv`` -> ``my_cars_1``)."""
    words = split_name(PurePosixPath(path).name.split(".")[0])
    name = "_".join(re.sub(r"[^a-z0-9]", "", w) for w in words).strip("_") or "table"
    name = re.sub(r"_+", "_", name)[:40]
    if not name[0].isalpha():
        name = f"table_{name}"
    return f"{name}_table" if name in _RESERVED else name


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
    return Reading(path=path, reader=reader, options=options, mixed=reader != "read_csv")


def load(path: str, question: str, *, first: bool) -> Generator[Cell, str, Table]:
    """Load a file and look at it; yields cells, is sent observations, returns the table.

    Parameters
    ----------
    path
        Relative to the working directory, as the task names it.
    question
        Chooses the columns to look at where there are too many for one look.
    first
        Whether pandas has yet to be imported in the kernel.

    Raises
    ------
    ModelError
        The file cannot be read as a table (the file's fault).
    """
    variable, reading = variable_for(path), first_reading(path)
    thought = f"{'First ' if first else ''}I load {path} and look at its columns."
    for _ in range(6):  # encoding, separator, decimal sign, index: each is one more reading
        workbook = path if reading.reader == "read_excel" else ""
        look = first_look(variable, mixed=reading.mixed, workbook=workbook)
        code = f"{reading.line(variable)}\n{look}"
        observation = yield Cell(
            thought=thought, code=f"import pandas as pd\n\n{code}" if first else code
        )
        table, failed = read_tables([observation]).get(variable), failure(observation)
        better = _remedy(reading, table, failed)
        if better is None:
            break
        first = failed is not None  # a failed cell is no part of the notebook's story
        if isinstance(better, str):
            head = yield _peek(path, better)
            better = _by_header(reading, head)
        reading, thought = better, _why(better, path)
    if table is None or failed:
        raise ModelError(_unreadable(path, reading, failed))
    table = replace(table, path=path)
    if not table.complete:
        table = look_again(table, (yield closer_look(table, question)))
    table = yield from tidy(table, comma=_COMMA in reading.options)
    return (yield from _with_words(table, reading))


def _with_words(table: Table, reading: Reading) -> Generator[Cell, str, Table]:
    """Look at the text in place of missing values, and keep it where it is a word like others."""
    columns = [c for c in table.columns if c.kind in ("text", "bool") and c.missing]
    if not columns or reading.reader not in ("read_csv", "read_excel") or table.odd_index:
        return table
    as_written = replace(reading, options=(*reading.options, "dtype=str", "keep_default_na=False"))
    names = ", ".join(quote(c.name) for c in columns)
    code = (
        f"{as_written.line('written')}\n"
        f"for name in [{names}]:\n"
        f'    words = written.loc[{table.variable}[name].isna(), name].fillna("").unique()\n'
        '    print(f"{name!r} has no value where it says:", words.tolist()[:20])'
    )
    thought = "pandas takes words such as NA for no value. I look what is written there."
    table = look_again(table, (yield Cell(thought=thought, code=code)))
    lost = [c for c in table.columns if c.words_lost]
    if not lost:
        return table
    kept = ", ".join(f"{quote(c.name)}: {list(c.words_lost)}" for c in lost)
    code = (
        f"for name, words in {{{kept}}}.items():\n"
        f"    kept = written[name].where(written[name].isin(words))\n"
        f"    {table.variable}[name] = {table.variable}[name].fillna(kept)\n"
        f"{look_at(table.variable, lost)}"
    )
    return look_again(table, (yield Cell(thought="Some are words like the others.", code=code)))


def _remedy(
    reading: Reading, table: Table | None, failed: tuple[str, str] | None
) -> Reading | str | None:
    """Return a better way to read the file, the reason to peek at it, or None."""
    if failed is None:
        return _better_shape(reading, table) if table else None
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
    elif message.startswith("Expected object or value") and "encoding" not in told:
        better = replace(reading, options=(*reading.options, 'encoding="utf-8-sig"'))
    elif "not supported between instances" in message and not reading.mixed:
        better = replace(reading, mixed=True)
    return better


def _better_shape(reading: Reading, table: Table) -> Reading | None:
    """Return how to read a table again that came out in a wrong shape, or None."""
    text = reading.reader == "read_csv"
    if text and len(table.columns) == 1 and not any("sep" in o for o in reading.options):
        return _find_separator(reading, table.columns[0].name)
    if table.odd_index and text:
        raise ModelError(
            f"{reading.path} cannot be read as a table: its lines have more fields than its"
            " header names; repair the header and ask again."
        )
    if table.odd_index and not reading.reset_index:
        return replace(reading, reset_index=True)
    return _other_sign(reading, table) if text else None


def _other_sign(reading: Reading, table: Table) -> Reading | None:
    """Return how to read a table again whose numbers have the other decimal sign, or None.

    What pandas took for a number in the wrong style (1.234 for 1234) shows only by its neighbours.
    """
    samples = [c.sample for c in table.columns if c.disguise == "number"]
    comma, point = any(map(decimal_comma, samples)), any(map(decimal_point, samples))
    numbers = any(c.kind == "number" for c in table.columns)
    if _COMMA in reading.options and point and not comma:
        mixed = numbers and not any("," in s for s in samples)  # some had a decimal comma
        kept = tuple(o for o in reading.options if o != _COMMA)
        return None if mixed else replace(reading, options=kept)
    if _COMMA not in reading.options and comma and not point and numbers:
        return replace(reading, options=(*reading.options, _COMMA))
    return None


def _find_separator(reading: Reading, header: str) -> Reading | None:
    counts = {sep: header.count(sep) for sep in (";", "\t", "|")}
    sep = max(counts, key=lambda s: counts[s])
    if not counts[sep]:
        return None
    options = [f"sep={quote(sep)}"]
    if sep == ";":  # written where the comma is the decimal sign
        options.append(_COMMA)
    return replace(reading, options=(*options, *reading.options))


def _peek(path: str, message: str) -> Cell:
    return Cell(
        thought=f"The plain reader failed ({message.strip()}). I look at the first lines as text.",
        code=(
            "from pathlib import Path\n\n"
            f'lines = Path({quote(path)}).read_text(encoding="utf-8-sig", errors="replace")'
            '.splitlines()\nprint("Header:", lines[0][:2000])'
        ),
    )


def _by_header(reading: Reading, head: str) -> Reading:
    header = re.search(r"^Header: (.*)$", head, re.MULTILINE)
    better = _find_separator(reading, header[1]) if header else None
    if better is None:
        raise ModelError(
            f"{reading.path} cannot be read as a table: its lines do not all have as many fields"
            " as its header (pandas: ParserError); repair the file and ask again."
        )
    return better


def _why(reading: Reading, path: str) -> str:
    if reading.reset_index:
        return f"{path} keeps a column in its index; I make it an ordinary column."
    if reading.mixed and reading.reader == "read_csv":
        return f"A column of {path} mixes numbers and text; I look at such columns as text."
    return f"That was not how {path} is written; I read it again with {', '.join(reading.options)}."


def _unreadable(path: str, reading: Reading, failed: tuple[str, str] | None) -> str:
    kind, message = failed or ("no rows", "nothing came back")
    if kind == "GuardError":
        line = " ".join(message.split())[:200]
        return f"The guard stopped a cell of the offline analyst, {OWN_NEEDS}: {line}"
    if "pandas" in message and kind in ("ImportError", "ModuleNotFoundError"):
        return (
            f"The offline analyst, {OWN_NEEDS}, cannot work in this kernel ({message}): take"
            " another sandbox level than interpreter, or configure a model (--model NAME)."
        )
    if kind in ("ImportError", "ModuleNotFoundError"):
        package = re.search(r"pyarrow|fastparquet|openpyxl|xlrd|odfpy", message)
        name = package[0] if package else _NEEDS.get(reading.reader, "the reader's package")
        return (
            f"Reading {path} needs the package {name}, which is not installed where the kernel"
            f" runs: pip install {name}."
        )
    if kind == "KeyboardInterrupt":
        return (
            f"Reading {path} was interrupted; if that was the limit of a cell, allow it more time"
            " (--cell-seconds)."
        )
    if kind == "EmptyDataError" or failed is None:
        return f"{path} has no columns to read; give a table with a header line and rows."
    line = " ".join(message.split())[:200]
    return f"{path} cannot be read as a table ({kind}: {line}); check or convert the file."
