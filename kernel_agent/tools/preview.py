"""The arguments of a call in the types of JSON, for a person who decides whether it is made. Pure.

What is not in the text is counted in it, in words that begin with "…": of a table or a list beyond
:data:`ITEMS_MAX` items, of bytes beyond :data:`BYTES_MAX`. Nothing is dropped in silence (a key
that looks like another one, the middle of an array), and nothing is used up by being shown.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_agent.records import Json

ITEMS_MAX = 20_000  # of all lists, dicts and cells together: a person reads fewer
BYTES_MAX = 100_000
DEPTH_MAX = 30
BITS_MAX = 13_000  # of a whole number: Python writes no more than 4,300 digits


def readable(arguments: Mapping[str, Any]) -> dict[str, Json]:
    """Return checked arguments as a person can read them."""
    reader = _Reader()
    return {str(name): reader.read(value, DEPTH_MAX) for name, value in arguments.items()}


class _Reader:
    """Reads values until so many items were read."""

    def __init__(self) -> None:
        self._left = ITEMS_MAX

    def read(self, value: Any, depth: int) -> Json:
        match value:
            case None | bool() | str() | float():
                shown: Json = value
            case int():
                shown = int(value) if value.bit_length() <= BITS_MAX else hex(value)
            case bytes() | bytearray():
                shown = _bytes(bytes(value[:BYTES_MAX]), len(value))
            case _ if hasattr(value, "shape"):
                shown = self._table(value)
            case _ if depth == 0:
                shown = "… what is nested deeper is not shown"
            case Mapping():
                shown = self._mapping(value, depth)
            case list() | tuple() | set() | frozenset():
                shown = self._items(value, len(value), depth)
            case Iterator():
                copied = list(copy.copy(value))  # of a list's iterator (Tool.check): its own place
                shown = self._items(copied, len(copied), depth)
            case _:
                shown = self._other(value, depth)
        return shown

    def _items(self, values: Any, count: int, depth: int) -> Json:
        shown: list[Json] = []
        for value in values:
            if self._left <= 0:
                break
            self._left -= 1
            shown.append(self.read(value, depth - 1))
        return shown + _more(count - len(shown), "items")

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Json:
        if not all(type(key) is str for key in value) or len(value) > self._left:
            return self._items(list(value.items()), len(value), depth)  # 1 and "1" are two keys
        self._left -= len(value)
        return {key: self.read(item, depth - 1) for key, item in value.items()}

    def _table(self, value: Any) -> Json:
        """Return the shape of a table or an array, and its first cells."""
        kind = f"<{type(value).__name__} {' x '.join(map(str, value.shape))}>"
        count = value.shape[0] if value.shape else 1
        width = 1
        for size in value.shape[1:]:
            width *= size
        rows = min(count, max(self._left // max(width, 1), 1 if width <= ITEMS_MAX else 0))
        self._left -= rows * width
        if hasattr(value, "to_csv"):
            text = value.head(rows).to_csv()
        elif value.shape:
            text = str(value[:rows].tolist())
        else:
            text = str(value.tolist() if hasattr(value, "tolist") else value)
        return "\n".join([f"{kind} {text}", *_more(count - rows, "rows")])

    def _other(self, value: Any, depth: int) -> Json:
        """Return a record, a date, a path … as pydantic writes it, or as it writes itself."""
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        try:
            plain = to_jsonable_python(value)
        except (PydanticSerializationError, ValueError, RecursionError):
            return _repr(value)
        return self.read(plain, depth - 1)


def _bytes(head: bytes, count: int) -> str:
    return repr(head) + "".join(f" {line}" for line in _more(count - len(head), "bytes"))


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text[:BYTES_MAX] + "".join(_more(len(text) - BYTES_MAX, "characters"))


def _more(count: int, what: str) -> list[Json]:
    return [f"… {count:,} more {what} are not shown"] if count > 0 else []
