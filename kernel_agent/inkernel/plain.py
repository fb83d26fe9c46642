"""An answer in JSON types, as programs read it: never a ``repr``. Nothing here needs a library.

Numbers of every library are plain numbers, dates are ISO 8601, a table is a list of records, a
Series an object by its labels, a set a sorted list. What is too long stands, wherever it is, as
``{"type": …, "length": …, "first": …}``: its type, its whole length, and its beginning. What has no
form in JSON (a figure, an object) is described in a few words, without its address in memory.

With its type and every row, a value leaves the kernel another way: :mod:`.transfer`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
import pathlib
import re
import sys
import uuid
from collections import Counter, deque
from collections.abc import Collection, Iterable, KeysView, Mapping, ValuesView
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

from .values import figure_of

CHARS = 200_000  # of an answer's JSON
ROWS = 200  # of a table that is not cut; everything is cut to fewer where that is too much
FEWER = (50, 10, 3, 0)
ITEMS = 100_000  # values in an answer: more of them would not fit
TEXT_CHARS = 1_000  # of a text within what is cut
DESCRIBED_CHARS = 10_000  # of an object's own words
DEPTH = 20

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_SEQUENCES = (list, tuple, range, deque, KeysView, ValuesView)


class TooLong(Exception):
    """There is too much of it to be written whole."""


def describe_answer(value: Any) -> dict[str, Any]:
    """Return the name of a value's type, its JSON form, and its rows and columns if it has some."""
    value = unwrap(value)
    shape = getattr(value, "shape", None) if _library(value) in ("pandas", "numpy") else None
    sides = [int(side) for side in shape[:8]] if isinstance(shape, tuple) else []
    described = {"kind": type(value).__name__, "value": as_json(value)}
    return {**described, "shape": sides} if sides else described


def as_json(value: Any) -> Any:
    """Return a value in JSON types, shortened where it is too long; None for a text that is."""
    if isinstance(value, str):
        return str(value) if len(json.dumps(value)) <= CHARS else None
    for most in (ROWS, *FEWER):
        try:
            plain = _Writer(most, whole=most == ROWS).write(value)
            if len(json.dumps(plain, allow_nan=False)) <= CHARS:
                return _named(plain, value)
        except TooLong:
            continue
        except Exception:  # whatever a value of somebody's class raises when it is looked at
            break
    return f"a value of type {type(value).__name__}"


def whole_json(value: Any) -> Any:
    """Return a value in JSON types with everything that it holds."""
    return _named(_Writer(sys.maxsize, whole=True, items=sys.maxsize).write(value), value)


def _named(plain: Any, value: Any) -> Any:
    """Return the name of a number that JSON does not have."""
    fraction = getattr(getattr(value, "dtype", None), "kind", "") == "f"
    if plain is not None or not (fraction or isinstance(value, (float, Decimal))):
        return plain
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def unwrap(value: Any) -> Any:
    """Return what is shown by an object that only shows something: Markdown, a styled table."""
    kind = type(value)
    if kind.__module__ == "IPython.core.display" and kind.__name__ == "Markdown":
        return value.data
    return value.data if _library(value) == "pandas" and kind.__name__ == "Styler" else value


def _library(value: Any) -> str:
    return str(type(value).__module__).partition(".")[0]


def _is_pandas(value: Any, name: str) -> bool:
    """Whether it is pandas' type of this name, or a kind of it."""
    return any(
        cls.__name__ == name and str(cls.__module__).startswith("pandas")
        for cls in type(value).__mro__
    )


def describe_object(value: Any) -> str:
    """Say in words of its own what an object is, or else of which type."""
    kind = type(value)
    if any("__str__" in vars(cls) for cls in kind.__mro__ if cls is not object):
        text = str(value)
        if text.strip() and len(text) <= DESCRIBED_CHARS and not _ADDRESS.search(text):
            return text
    return f"an object of type {kind.__name__}"


class _Writer:
    """Writes one value.

    Parameters
    ----------
    most
        Rows of a table; unless ``whole`` also items of anything else.
    whole
        Whether only tables are cut.
    items
        How many values there may be in it.
    """

    def __init__(self, most: int, *, whole: bool, items: int = ITEMS) -> None:
        self._most, self._whole, self._items = most, whole, items
        self._left = items

    def write(self, value: Any, depth: int = 0) -> Any:  # noqa: PLR0911 - a table
        """Return the value in JSON types.

        Raises
        ------
        TooLong
            It has more than fits.
        """
        self._left -= 1
        if self._left < 0:
            raise TooLong
        if depth > DEPTH:
            return f"a {type(value).__name__} beneath {DEPTH} others"
        if value is None or isinstance(value, (bool, int, float, str)):
            return self._write_single(value)
        if isinstance(value, Mapping):
            return self._write_mapping(value, depth)
        if isinstance(value, (set, frozenset)):
            return self._write_items(value, _sorted(value), depth)
        if isinstance(value, _SEQUENCES):
            return self._write_items(value, value, depth)
        if _library(value) in ("datetime", "decimal", "fractions", "pathlib", "uuid"):
            return _write_known(value)
        if _is_pandas(value, "DataFrame"):
            return self._write_table(value, depth)
        if _is_pandas(value, "Series"):
            return self._write_series(value, depth)
        return self._write_other(value, depth)

    def _write_single(self, value: Any) -> Any:
        """Write a value of Python's own types; one of a kind of them as the plain value it is."""
        if isinstance(value, enum.Enum):
            value = value.value
        if isinstance(value, str):
            cut = not self._whole and len(value) > TEXT_CHARS
            return f"{value[:TEXT_CHARS]}…" if cut else str(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def _write_items(self, value: Collection[Any], items: Iterable[Any], depth: int) -> Any:
        length = len(value)
        kept = self._keep(length)
        written = [self.write(item, depth + 1) for item in islice(items, kept)]
        return written if kept == length else _shorten(value, length, written)

    def _write_mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        kept = self._keep(len(value))
        first = islice(value.items(), kept)
        written = {_key(name): self.write(item, depth + 1) for name, item in first}
        return written if kept == len(value) else _shorten(value, len(value), written)

    def _keep(self, length: int) -> int:
        """Return how many of so many are written."""
        if self._whole and length > self._items:
            raise TooLong
        return length if self._whole else min(length, self._most)

    # --- of libraries ------------------------------------------------------------------------

    def _write_table(self, table: Any, depth: int, *, of: Any = None) -> Any:
        kept = min(len(table), self._most)
        if kept * table.shape[1] > self._items:
            raise TooLong
        top = table.iloc[:kept]
        columns = [*_index_columns(top.index)]
        columns += [(_key(name), top.iloc[:, n]) for n, name in enumerate(top.columns)]
        names = _unique([name for name, _ in columns])
        cells = [[self.write(v, depth + 1) for v in column.tolist()] for _, column in columns]
        records = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
        return (
            records
            if kept == len(table)
            else _shorten(table if of is None else of, len(table), records)
        )

    def _write_series(self, series: Any, depth: int) -> Any:
        """Write a Series by its labels; as a table where they are several, or come twice."""
        if series.index.nlevels > 1 or not series.index.is_unique:
            return self._write_table(series.to_frame(*_name_of(series)), depth, of=series)
        kept = min(len(series), self._most)
        top = series.iloc[:kept]
        pairs = zip(top.index.tolist(), top.tolist(), strict=True)
        written = {_key(label): self.write(item, depth + 1) for label, item in pairs}
        return written if kept == len(series) else _shorten(series, len(series), written)

    def _write_other(self, value: Any, depth: int) -> Any:  # noqa: PLR0911 - a table
        if isinstance(value, enum.Enum):
            return self.write(value.value, depth + 1)
        if (picture := _describe_picture(value)) or isinstance(value, (bytes, bytearray)):
            return picture or f"{len(value):,} bytes"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return self._write_mapping(fields, depth)
        if hasattr(value, "model_dump") and hasattr(type(value), "model_fields"):  # pydantic's
            return self._write_mapping(value.model_dump(), depth)
        if hasattr(value, "to_pandas"):  # a table of another library
            return self.write(value.to_pandas(), depth + 1)
        if hasattr(value, "tolist"):
            return self._write_array(value, depth)
        return None if _is_gap(value) else _write_known(value)

    def _write_array(self, array: Any, depth: int) -> Any:
        """Write an array, an index, or a numpy scalar, which is an array without sides."""
        if (
            getattr(getattr(array, "dtype", None), "kind", "") in ("m", "M")
            and _library(array) == "numpy"
        ):
            array = array.astype(f"{array.dtype.kind}8[us]")
        if not getattr(array, "ndim", 1):
            item = array.item()
            return self.write(float(item) if type(item) is type(array) else item, depth + 1)
        length = len(array)
        kept = min(self._keep(length), length)
        if getattr(array, "size", 0) and kept * (array.size // length) > self._items:
            raise TooLong
        written = [self.write(item, depth + 1) for item in array[:kept].tolist()]
        return written if kept == length else _shorten(array, length, written)


def _name_of(series: Any) -> tuple[str, ...]:
    """Return what a Series without a name is called as a column."""
    return ("value",) if series.name is None else ()


def _shorten(value: Any, length: int, first: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, "length": length, "first": first}


def _write_known(value: Any) -> Any:
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else _float(value)
    if isinstance(value, (pathlib.PurePath, uuid.UUID, complex)):
        return str(value)
    if isinstance(value, dt.timedelta):
        return str(
            dt.timedelta(days=value.days, seconds=value.seconds, microseconds=value.microseconds)
        )
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return describe_object(value)


def _number(value: Decimal) -> Any:
    """Return a decimal as a plain number; to write out 1E+6000000 would take minutes."""
    if not value.is_finite():
        return None
    if abs(value.adjusted()) > 300:
        return str(value)
    whole = value == value.to_integral_value() and value.as_tuple().exponent == 0
    return int(value) if whole else float(value)


def _float(value: Fraction) -> Any:
    try:
        return float(value)
    except OverflowError:
        return str(value)


def _is_gap(value: Any) -> bool:
    return _library(value) == "pandas" and type(value).__name__ in ("NaTType", "NAType")


def _describe_picture(value: Any) -> str:
    """Say what a figure or a picture is; empty text for anything else."""
    if _library(value) == "PIL" and hasattr(value, "getpixel"):
        return f"a picture of {value.width:,} by {value.height:,} pixels"
    figure = figure_of(value)
    if figure is None:
        return ""
    titles = [axes.get_title() for axes in getattr(figure, "axes", ())]
    title = next((f' "{title}",' for title in titles if title), "")
    if not hasattr(figure, "get_size_inches"):
        return f"a figure{title.rstrip(',')}"
    width, height = (round(side * figure.dpi) for side in figure.get_size_inches())
    return f"a figure{title}{' of' if not title else ''} {width:,} by {height:,} pixels"


def _sorted(values: Collection[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=str)


def _key(key: Any) -> str:
    """Return what a key, a label or a column is called in JSON."""
    if isinstance(key, tuple):
        return ", ".join(_key(part) for part in key if part != "")
    if isinstance(key, enum.Enum):
        return _key(key.value)
    if hasattr(key, "isoformat") and not _is_gap(key):
        return str(key.isoformat())
    return str(key.item() if hasattr(key, "item") else key)


def _index_columns(index: Any) -> list[tuple[str, Any]]:
    """Return the levels of an index that says something: not the numbers of rows."""
    numbered = index.nlevels == 1 and index.name is None and index.dtype.kind in "iu"
    if numbered:
        return []
    levels = [index.get_level_values(n) for n in range(index.nlevels)]
    unnamed = ["index"] if len(levels) == 1 else [f"level_{n}" for n in range(len(levels))]
    return [
        (other if level.name is None else _key(level.name), level)
        for level, other in zip(levels, unnamed, strict=True)
    ]


def _unique(names: list[str]) -> list[str]:
    """Return the names, with a number behind those that came before."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        made.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return made
