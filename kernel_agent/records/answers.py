"""The wording of an answer: the one place that says a value as a person would write it. Pure.

:func:`word_answer` reads an answer's record and gives a :class:`Wording`: what the answer is, its
whole text, and, for what has rows, the texts of the cells. Terminal, page, panel and notebook draw
it each in its own way and decide nothing about numbers, dates or sizes.

What kernels send is read here as a record has it: a value in JSON types, the name of its type, its
shape. Cells, columns and size are harmless single lines. The text of an answer that *is* text stays
as it was given, because it may be Markdown: who draws it makes it harmless.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

from kernel_agent.records.cell import Answer, CellResult, OutputDict, role_of
from kernel_agent.records.conversation import Json, Plain
from kernel_agent.safe import one_line, plain

ROWS = 20  # of a table, a dict or a list that are worded
COLUMNS = 50
CELL_CHARS = 80  # of a cell in plain text, and of a list in a cell
DEPTH = 2  # of dicts within a dict that are written line by line
WITHIN_NAME = "  "  # before the names of a dict within one
VALUE_CHARS = 2_000  # of a text in a cell, and of a list beside its name
WITHIN = 5  # items of a list or a dict in a list in a cell
ROWS_CHARS = 400  # of rows in a dict that are written out, else they are counted
LINE_CHARS = 100  # of a list that is said in one line
DIGITS = 6  # of a number below a thousand
ANSWER_MIME = "application/vnd.kernel-agent.answer+json"
LOST = "lost answer"
NOTHING = "No value"
MISSING = "—"
IN_WORDS = "In the model's words, not from a cell."
TEXT_KINDS = frozenset({"text", "str"})
NO_VALUES = frozenset({"NoneType", "NaTType", "NAType"})
NO_NUMBERS = {"NaN": "not a number", "Infinity": "infinite", "-Infinity": "minus infinite"}
DATE_KINDS = frozenset({"date", "datetime", "datetime64", "Timestamp"})
YEARS = range(1500, 2200)
MAX_BITS = 256  # of an integer that is written out

WordingKind: TypeAlias = Literal[
    "text", "nothing", "number", "truth", "date", "list", "pairs", "table", "description"
]


@dataclass(frozen=True, kw_only=True)
class Wording:
    """An answer in words.

    Parameters
    ----------
    kind
        ``text`` (as it was given; may be Markdown), ``nothing``, ``number``, ``truth``, ``date``,
        ``list`` (rows of one cell), ``pairs`` (rows of a name and a value), ``table``, or
        ``description`` (of a figure, or of what has no other form).
    text
        All of it as plain text, for where nothing can be drawn.
    columns
        Heads of a table; empty where it has none.
    rows
        The cells that are shown.
    right
        The columns of numbers, which are set to the right.
    size
        How large it really is, and how much of it is shown; empty for a single value.
    """

    kind: WordingKind
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: frozenset[int] = frozenset()
    size: str = ""

    @property
    def below(self) -> str:
        """What stands below its rows: the size of a table, and of what is shown in part."""
        return self.size if self.kind == "table" or "shown" in self.size else ""


def word_answer(answer: Answer, *, rows: int = ROWS) -> Wording:
    r"""Return an answer as a person would write it.

    Parameters
    ----------
    answer
        The record; also one of an older trace, or forged.
    rows
        At most so many rows of what has some.

    Examples
    --------
    >>> word_answer(Answer(text="", value=91219.93250000001, kind="float64")).text
    '91,219.93'
    >>> word_answer(Answer(text="", value={"North": 12, "South": 7.5}, kind="dict")).text
    'North   12\nSouth  7.5'
    """
    value = answer.value
    if value is None:
        nothing = answer.kind in NO_VALUES
        return Wording(kind="nothing", text=NOTHING) if nothing else _as_given(answer)
    if isinstance(value, str):
        return _word_text(answer, value)
    if isinstance(value, (bool, int, float)):
        kind: WordingKind = "truth" if isinstance(value, bool) else "number"
        exact = _DECIMAL.fullmatch(answer.text) if answer.kind == "Decimal" else None
        text = f"{value:,.{len(exact[1])}f}" if exact and type(value) is float else say_value(value)
        return Wording(kind=kind, text=text)
    return _word_many(answer, rows)


def with_words(answer: Answer) -> Answer:
    """Return an answer with the text that a person reads; called where one is recorded."""
    return dataclasses.replace(answer, text=word_answer(answer).text)


def settle_answer(result: CellResult) -> CellResult:
    """Return the result of a cell without an answer where the cell did not run to its end.

    A check that fails after ``final_answer`` keeps the answer from standing. What was displayed
    stays, with a mark by which :func:`lost_answer` knows it.
    """
    if result.ok:
        return result
    outputs = tuple(map(_without_answer, result.outputs))
    return dataclasses.replace(result, answer=None, outputs=outputs)


def _without_answer(output: OutputDict) -> OutputDict:
    data, metadata = output.get("data"), output.get("metadata")
    if not isinstance(data, Mapping) or ANSWER_MIME not in data:
        return output
    kept = {mime: value for mime, value in data.items() if mime != ANSWER_MIME}
    others = metadata if isinstance(metadata, Mapping) else {}
    return {**output, "data": kept, "metadata": {**others, "kernel_agent": {"role": LOST}}}


def lost_answer(result: CellResult) -> bool:
    """Whether a cell called ``final_answer`` and then did not run to its end."""
    return any(role_of(output) == LOST for output in result.outputs)


def answer_note(answer: Answer) -> str:
    """Return what every view shows below an answer: that no cell gave it, or its note."""
    note = plain(answer.note).strip()
    return IN_WORDS if answer.in_words else f"Note: {note}" if note else ""


def plain_answer(answer: Answer) -> Plain:
    """Return an answer in JSON types, as programs read it; its text where it has no other form."""
    if answer.value is None and answer.kind not in NO_VALUES:
        return answer.text
    value: Plain = answer.value
    return value


def _as_given(answer: Answer) -> Wording:
    kind: WordingKind = "text" if answer.kind in TEXT_KINDS else "description"
    return Wording(kind=kind, text=answer.text)


def _word_text(answer: Answer, value: str) -> Wording:
    if answer.kind in TEXT_KINDS:
        return Wording(kind="text", text=value)
    if answer.kind in DATE_KINDS:
        return Wording(kind="date", text=say_value(value))
    if value in NO_NUMBERS or answer.kind.lower().startswith("timedelta"):
        return Wording(kind="number", text=NO_NUMBERS.get(value) or say_value(value))
    return Wording(kind="description", text=value)


# --- what has rows -------------------------------------------------------------------------------


def _word_many(answer: Answer, most: int) -> Wording:
    value, length = _whole_length(answer)
    if isinstance(value, Mapping):
        shown = dict(islice(value.items(), most))
        size = _count(length, len(shown), "entry", "entries")
        return _fill("pairs", (), [*islice(_entries(shown), 2 * most)], size)
    records = [_beginning(record) for record in islice(value, most)]
    columns = _columns_of(answer, records)
    if columns:
        names = columns[:COLUMNS]
        cells = [[record.get(name) for name in names] for record in records]
        across = _across(answer, len(columns))
        size = _table_size(length, across, len(records), len(names))
        named = ["" if n < len(columns) - across and _SAYS_NOTHING.fullmatch(name) else name
                 for n, name in enumerate(names)]  # fmt: skip
        return _fill("table", tuple(named), cells, size)
    if _is_grid(records):
        across = _across(answer, len(records[0]))
        size = _table_size(length, across, len(records), min(len(records[0]), COLUMNS))
        return _fill("table", (), [record[:COLUMNS] for record in records], size)
    if answer.kind == "DataFrame":
        return Wording(kind="table", text="An empty table", size="0 rows")
    return _word_list(records, length)


def _entries(value: Mapping[str, Json], depth: int = 0) -> Iterator[tuple[str, Json]]:
    """Yield the names and values of a dict; those of one within it follow its name, indented."""
    for name, item in value.items():
        if isinstance(item, Mapping) and item and not _is_shortened(item) and depth < DEPTH:
            yield _name(name, depth), ""
            yield from _entries(item, depth + 1)
        else:
            yield _name(name, depth), item


def _name(name: object, depth: int = 0) -> str:
    """Return a name, or the head of a column; a date in it as a person writes it."""
    said = ", ".join(map(_say_moment, str(name).split(", ")))
    return WITHIN_NAME * depth + one_line(said, CELL_CHARS)


def _across(answer: Answer, columns: int) -> int:
    """Return how many columns a table has, without those of its index, which come first."""
    if answer.kind == "DataFrame" and len(answer.shape) == 2:
        return answer.shape[1] or columns
    return max(columns, answer.shape[1] if len(answer.shape) > 1 else 0)


def _whole_length(answer: Answer) -> tuple[Mapping[str, Json] | Sequence[Json], int]:
    """Return the value, or the beginning that was kept of it, with its true length."""
    value = answer.value
    if _is_shortened(value) and answer.kind in (value["type"], "text"):
        return value["first"], max(value["length"], len(value["first"]))
    if not isinstance(value, (Mapping, list, tuple)):
        return [value], 1
    return value, len(value)


def _is_shortened(value: Json) -> bool:
    """Whether it is what stands in the place of something too long: its beginning and length."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {"type", "length", "first"}
        and isinstance(value["type"], str)
        and type(value["length"]) is int
        and isinstance(value["first"], (Mapping, list))
    )


def _beginning(value: Json) -> Json:
    return value["first"] if _is_shortened(value) else value


def _columns_of(answer: Answer, records: Sequence[Json]) -> list[str]:
    """Return the columns of records that have the same; none where they are something else."""
    if not records or not all(isinstance(record, Mapping) for record in records):
        return []
    columns = [str(name) for name in records[0]]
    same = all(list(record) == columns for record in records)
    return columns if same and (answer.kind == "DataFrame" or len(columns) <= COLUMNS) else []


def _is_grid(records: Sequence[Json]) -> bool:
    """Whether these are rows of equal length, of single values."""
    if not records or not all(isinstance(row, (list, tuple)) for row in records):
        return False
    width = len(records[0])
    return width > 0 and all(
        len(row) == width and not any(isinstance(item, (dict, list)) for item in row[:COLUMNS])
        for row in records
    )


def _word_list(items: Sequence[Json], length: int) -> Wording:
    if not length:
        return Wording(kind="list", text="An empty list", size="0 items")
    size = _count(length, len(items), "item", "items")
    cells = [_cell(item) for item in items]
    line = _join(cells)
    if length == len(items) and len(line) <= LINE_CHARS:
        return Wording(kind="list", text=line, rows=tuple((cell,) for cell in cells), size=size)
    return _fill("list", (), [(item,) for item in items], size)


def _join(texts: Sequence[str]) -> str:
    """Return texts in a line, told apart also where they have commas."""
    return (" · " if any("," in text for text in texts) else ", ").join(texts)


def _fill(
    kind: WordingKind, columns: tuple[str, ...], cells: Sequence[Sequence[Json]], size: str
) -> Wording:
    """Word the cells a column at a time, so that the numbers of one have the same decimals."""
    heads = tuple(map(_name, columns))
    most = VALUE_CHARS if kind == "pairs" else CELL_CHARS
    across = [_column(list(column), most) for column in zip(*cells, strict=True)]
    if kind == "pairs" and across:
        across[0] = [str(name) for name, _ in cells]  # indented
    rows = tuple(zip(*across, strict=True))
    numbers = (n for n, column in enumerate(zip(*cells, strict=True)) if _are_numbers(column))
    right = frozenset(n for n in numbers if kind != "list" and (kind != "pairs" or n))
    short = [tuple(one_line(text, CELL_CHARS) for text in row) for row in rows]
    text = "\n".join(_lines(heads, rows if kind == "pairs" else short, right))
    if "shown" in size:
        text += f"\n({size})"
    return Wording(kind=kind, text=text, columns=heads, rows=rows, right=right, size=size)


def _lines(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: frozenset[int]
) -> Iterable[str]:
    every = [heads, *rows] if heads else list(rows)
    if not every:
        return ["Nothing in it"]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]

    def line(row: tuple[str, ...]) -> str:
        cells = zip(row, widths, range(len(row)), strict=True)
        return "  ".join(c.rjust(w) if n in right else c.ljust(w) for c, w, n in cells).rstrip()

    return map(line, every)


def _count(length: int, shown: int, one: str, many: str) -> str:
    counted = f"{length:,} {one if length == 1 else many}"
    return counted if shown >= length else f"{counted}, the first {shown:,} shown"


def _table_size(rows: int, columns: int, shown_rows: int, shown_columns: int) -> str:
    counted = (
        f"{rows:,} row{'' if rows == 1 else 's'}, {columns:,} column{'' if columns == 1 else 's'}"
    )
    if shown_rows < rows and shown_columns < columns:
        return f"{counted}; the first {shown_rows:,} rows and {shown_columns:,} columns shown"
    if shown_columns < columns:
        return f"{counted}; the first {shown_columns:,} columns shown"
    return counted if shown_rows >= rows else f"{counted}; the first {shown_rows:,} shown"


# --- single values -------------------------------------------------------------------------------

_DECIMAL = re.compile(r"(?:Decimal\(')?-?[\d,]{1,20}\.(\d{1,12})(?:'\))?")  # its zeros are meant
_SAYS_NOTHING = re.compile(r"index|level_\d+")  # names that pandas gives an index without one
_DURATION = re.compile(r"(?:(-?\d{1,6}) days?, )?(\d{1,2}):(\d\d):(\d\d(?:\.\d{6})?)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:\.\d+)?(Z|[+-]\d\d:\d\d)?")


def say_value(value: Json) -> str:
    """Return a single value as a person would write it.

    Examples
    --------
    >>> say_value(1234567), say_value(2025), say_value(0.1 + 0.2), say_value(True)
    ('1,234,567', '2025', '0.3', 'Yes')
    >>> say_value("2025-01-01T00:00:00"), say_value("2025-01-01T14:30:00")
    ('2025-01-01', '2025-01-01 14:30')
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int):
        return _whole_number(value)
    if isinstance(value, float):
        return _decimal_number(value)
    return _say_duration(_say_moment(value)) if isinstance(value, str) else _cell(value)


def _whole_number(value: int) -> str:
    """Return an integer with thousands, but for one that may be a year."""
    if value.bit_length() > MAX_BITS:
        return "a number of more than 77 digits"
    return str(value) if value in YEARS else f"{value:,}"


def _decimal_number(value: float) -> str:
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return NO_NUMBERS[name]
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{DIGITS - 1}g}"
    return _strip_zeros(f"{value:,.{_decimals(value)}f}")


def _decimals(value: float) -> int:
    """Return how many decimals a person reads: two behind thousands, else six digits in all."""
    if abs(value) >= 1000 or not value:
        return 2
    return max(DIGITS - 1 - math.floor(math.log10(abs(value))), 2)


def _strip_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _say_moment(text: str, *, midnight: bool = False) -> str:
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    day, minute, second, zone = found.groups()
    if minute == "00:00" and second in (None, ":00") and not zone and not midnight:
        return day
    shown = minute if second in (None, ":00") else f"{minute}{second}"
    return f"{day} {shown}{' UTC' if zone in ('Z', '+00:00') else f' {zone}' if zone else ''}"


def _say_duration(text: str) -> str:
    """Return a duration without the zeros of its fraction; Python counts one below zero upwards."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return text
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    below = -dt.timedelta(days, seconds, hours=hours, minutes=minutes)
    return _strip_zeros(f"minus {below}" if days < 0 else text)


def _cell(value: Json, depth: int = 0, most: int = CELL_CHARS) -> str:
    """Return any value as one harmless line; of rows that have no room, how many."""
    if _is_shortened(value):
        said = f"{value['type']} of {value['length']:,}"
    elif not isinstance(value, (list, tuple, Mapping)):
        said, most = say_value(value), most if depth else VALUE_CHARS
    else:
        said = "…" if depth > 2 else _cell_of_many(value, depth, most) if value else "empty"
    return one_line(said, most)


def _cell_of_many(value: Mapping[str, Json] | Sequence[Json], depth: int, most: int) -> str:
    kept = WITHIN if depth else ROWS
    more = [f"… {len(value):,} in all"] if len(value) > kept else []
    if isinstance(value, Mapping):
        return _join([*_fields(islice(value.items(), kept), depth, most), *more])
    if not all(isinstance(item, Mapping) for item in value):
        return _join([*(_cell(item, depth + 1, most) for item in islice(value, kept)), *more])
    said = "; ".join(" · ".join(_fields(r.items(), depth + 1, most)) for r in islice(value, kept))
    counted = more or len(said) > min(most, ROWS_CHARS)
    return f"{len(value):,} row{'' if len(value) == 1 else 's'}" if counted else said


def _fields(pairs: Iterable[tuple[str, Json]], depth: int, most: int) -> list[str]:
    return [f"{_name(name)}: {_cell(item, depth + 1, most)}" for name, item in pairs]


def _are_numbers(column: Sequence[Json]) -> bool:
    """Whether a column has numbers, and nothing else but gaps."""
    there = [item for item in column if item not in (None, "")]
    return bool(there) and all(map(_is_sane, there))


def _is_sane(value: Json) -> bool:
    """Whether it is a number that can be written out and set among others."""
    if type(value) is int:
        return value.bit_length() <= MAX_BITS
    return type(value) is float and math.isfinite(value)


def _column(values: Sequence[Json], most: int) -> list[str]:
    """Return the texts of a column; numbers of one kind get the same form, and so do dates."""
    there = [item for item in values if item not in (None, "")]
    if there and all(isinstance(item, str) and _MOMENT.fullmatch(item) for item in there):
        timed = any(len(_say_moment(item)) > len("2025-01-01") for item in there)
        return [_say_moment(v, midnight=timed) if v else _cell(v) for v in values]
    if not _are_numbers(values):
        return [_cell(item, most=most) for item in values]
    if all(type(item) is int for item in there) and not all(item in YEARS for item in there):
        return [f"{v:,}" if type(v) is int else _cell(v) for v in values]
    return _aligned(values, there)


def _aligned(values: Sequence[Json], numbers: Sequence[Json]) -> list[str]:
    texts = [say_value(item) for item in numbers]
    largest = max(abs(item) for item in numbers)
    if all(type(item) is int for item in numbers) or any("e" in text for text in texts):
        return [_cell(item) for item in values]
    most = 2 if largest >= 1000 else 4 if largest >= 0.01 else DIGITS
    decimals = min(max(len(text.partition(".")[2]) for text in texts), most)
    return [f"{v:,.{decimals}f}" if type(v) is float else _cell(v) for v in values]
