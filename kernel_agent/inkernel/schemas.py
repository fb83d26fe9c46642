"""The schema of an Arrow stream, read by ourselves: Arrow gets one that is written here.

What a kernel calls a schema holds more than types: metadata that pandas turns into classes, paths
and patterns, extension types whose makers read their own text, names that a thousand fields share.
None of it is given to a library. The flatbuffer is walked, each field is charged to a
:class:`~.room.Room`, and what comes out are plain types, made by name from a table of our own:
the only texts of the kernel's in them are names within structs, and time zones that are known.

https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
and ``Message.fbs``, ``Schema.fbs`` of Arrow, by whose field numbers everything is found here.
"""

from __future__ import annotations

import functools
import re
import struct
import sys
import zoneinfo
from collections.abc import Callable
from typing import Any, NamedTuple

from .room import Room

SCHEMA_MAX = 8_000_000  # bytes; 20,000 columns as pandas writes them take 4 million
COLUMNS_MAX = 20_000
FIELDS_MAX = 40_000  # what columns hold counted, too
DEPTH_MAX = 30
NAME_MAX = 10_000  # bytes of a column's name
FIELD_BYTES = 500  # a field in Arrow and the type in Python
_OFFSET = re.compile(r"[+-](?:[01]\d|2[0-3]):[0-5]\d")
_UNITS = ("s", "ms", "us", "ns")
_BEGIN = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # kinds of messages


class Columns(NamedTuple):
    """The columns of a stream as it states them.

    Parameters
    ----------
    names
        What the kernel calls them.
    schema
        Their types, in a schema of our own in which they are called by their numbers.
    batches
        Where the messages with their values begin, in bytes.
    """

    names: list[str]
    schema: Any
    batches: int


def read_columns(data: bytes, room: Room) -> Columns:
    """Return the columns that the first message of an Arrow stream states.

    Raises
    ------
    ValueError
        It is no schema, too large, or has a type whose few bytes can stand for many values;
        :class:`~.room.TooMuch` where there is no room for its fields.
    """
    if data[:4] != _BEGIN:
        raise ValueError("not an Arrow stream")
    size = _u32(data, 4)
    if size > SCHEMA_MAX:
        raise ValueError(f"a table whose schema has {size:,} bytes")
    try:
        names, schema = _Reader(data[8 : 8 + size], room).schema()
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a schema: {error}") from None
    return Columns(names, schema, 8 + size)


def check_batch(metadata: bytes) -> None:
    """Check a message that follows the schema: neither packed nor one that makes others grow.

    Field 3 of a RecordBatch is its compression, field 1 of a DictionaryBatch a RecordBatch and
    field 2 whether it adds to an earlier one: then each batch may hold a copy of all before it.

    Raises
    ------
    ValueError
        It is, or it holds something else than values.
    """
    message = _u32(metadata, 0)
    kind = _number(metadata, message, 1, "B", 0)
    batch = _table(metadata, message, 2)
    if kind == _DICTIONARY:
        if _number(metadata, batch, 2, "?", default=False):
            raise ValueError("a table whose categories come in parts")
        batch = _table(metadata, batch, 1)
    elif kind != _BATCH:
        raise ValueError("a table with parts that are no values")
    if _field(metadata, batch, 3):
        raise ValueError("a table that is compressed")


def check_zone(name: str) -> str:
    """Return a time zone's name: a fixed offset, or one that this machine's tables have.

    Raises
    ------
    ValueError
        It is neither.
    """
    if _OFFSET.fullmatch(name) or name in _zones():
        return name
    raise ValueError(f"a time zone that is not known here: {name[:60]!r}")


@functools.cache
def _zones() -> frozenset[str]:
    """Return the zones by name, without that of this machine: it would tell where it is."""
    return frozenset(zoneinfo.available_timezones() | {"UTC"}) - {"localtime"}


class _Reader:
    """Reads a schema's flatbuffer.

    Parameters
    ----------
    data
        The message; nothing outside it is looked at.
    room
        What its fields are charged to.
    """

    def __init__(self, data: bytes, room: Room) -> None:
        self._data = data
        self._room = room
        self._fields = 0
        self._dictionaries = 0

    def schema(self) -> tuple[list[str], Any]:
        """Return the columns' names, and a schema with their types in which they have numbers."""
        import pyarrow as pa

        message = _u32(self._data, 0)
        if self._of(message, 1, "B", 0) != _SCHEMA:
            raise ValueError("an Arrow stream that does not begin with its schema")
        schema = _table(self._data, message, 2)
        if self._of(schema, 0, "h", 0) != (sys.byteorder == "big"):
            raise ValueError("a table in the byte order of another machine")
        columns = self._tables(schema, 1)
        if len(columns) > COLUMNS_MAX:
            raise ValueError(f"a table of {len(columns):,} columns")
        names = [self._text(column, 0) for column in columns]
        types = [self._column(column) for column in columns]
        return names, pa.schema([(str(n), kind) for n, kind in enumerate(types)])

    def _column(self, field: int) -> Any:
        """Return the type of a column, which alone may be of categories, or of nothing."""
        import pyarrow as pa

        encoding = _table(self._data, field, 4)
        if not encoding:
            return self._type(field, 0, top=True)
        if self._of(encoding, 0, "q", 0) != self._dictionaries:
            raise ValueError("a table whose categories are not in order")
        self._dictionaries += 1
        codes = _table(self._data, encoding, 1)
        index = _integer(self, codes) if codes else pa.int32()
        ordered = self._of(encoding, 2, "?", default=False)
        return pa.dictionary(index, self._type(field, 0), ordered)

    def _type(self, field: int, depth: int, *, top: bool = False) -> Any:
        """Return the type of a field.

        A list's length is bounded by its offsets as long as what it holds takes room itself: so
        none of nothing, and none of categories, which are written out once a mention.
        """
        import pyarrow as pa

        self._fields += 1
        self._room.take(FIELD_BYTES)
        if self._fields > FIELDS_MAX or depth > DEPTH_MAX:
            raise ValueError("a table of countless fields")
        if not top and depth and _field(self._data, field, 4):
            raise ValueError("a column of type list of categories")
        kind, at = self._of(field, 2, "B", 0), _table(self._data, field, 3)
        if kind == 1 and top:
            return pa.null()
        if kind in _NESTED:
            return self._nested(kind, field, depth)
        if kind not in _FLAT:
            raise ValueError(f"a column of type {_REFUSED.get(kind, f'number {kind}')}")
        return _FLAT[kind](self, at)

    def _nested(self, kind: int, field: int, depth: int) -> Any:
        """Return the type of a field that holds others: a struct, or a list of one kind."""
        import pyarrow as pa

        inner = self._tables(field, 5)
        types = [self._type(child, depth + 1) for child in inner]
        if _NESTED[kind] == "struct" and types:
            names = [self._text(child, 0) for child in inner]
            return pa.struct(list(zip(names, types, strict=True)))
        if _NESTED[kind] == "struct" or len(types) != 1:
            raise ValueError(f"a column of type {_NESTED[kind]} of {len(types)} fields")
        return getattr(pa, _NESTED[kind])(types[0])

    def _of(self, table: int, number: int, code: str, default: Any) -> Any:
        return _number(self._data, table, number, code, default)

    def _text(self, table: int, number: int) -> str:
        """Return a text of at most ``NAME_MAX`` bytes; fields may share one, so each is charged."""
        at = _table(self._data, table, number)
        size = _u32(self._data, at) if at else 0
        if size > NAME_MAX:
            raise ValueError(f"a name of {size:,} bytes")
        self._room.take(4 * size)
        return self._data[at + 4 : at + 4 + size].decode()

    def _tables(self, table: int, number: int) -> list[int]:
        """Return where the tables of a vector are."""
        at = _table(self._data, table, number)
        count = _u32(self._data, at) if at else 0
        if count > FIELDS_MAX:
            raise ValueError("a table of countless fields")
        places = range(at + 4, at + 4 + 4 * count, 4)
        return [place + _u32(self._data, place) for place in places]


# --- types, by their numbers in Schema.fbs -------------------------------------------------------


def _integer(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    bits, signed = reader._of(at, 0, "i", 0), reader._of(at, 1, "?", default=False)
    if bits not in (8, 16, 32, 64):
        raise ValueError(f"a column of type integer of {bits} bits")
    return getattr(pa, f"{'int' if signed else 'uint'}{bits}")()


def _floating(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    return (pa.float16, pa.float32, pa.float64)[reader._of(at, 0, "h", 0) & 3]()


def _decimal(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    made = pa.decimal256 if reader._of(at, 2, "i", 128) == 256 else pa.decimal128
    return made(reader._of(at, 0, "i", 0), reader._of(at, 1, "i", 0))


def _date(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    return pa.date64() if reader._of(at, 0, "h", 1) else pa.date32()


def _time(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    unit = _unit(reader, at, 1)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def _timestamp(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    zone = reader._text(at, 1)
    return pa.timestamp(_unit(reader, at, 0), tz=check_zone(zone) if zone else None)


def _duration(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    return pa.duration(_unit(reader, at, 1))


def _interval(reader: _Reader, at: int) -> Any:
    import pyarrow as pa

    if reader._of(at, 0, "h", 0) != 2:
        raise ValueError("a column of type interval of another unit than months, days and time")
    return pa.month_day_nano_interval()


def _unit(reader: _Reader, at: int, default: int) -> str:
    return _UNITS[reader._of(at, 0, "h", default) & 3]


def _plain(name: str) -> Callable[[_Reader, int], Any]:
    def made(_reader: _Reader, _at: int) -> Any:
        import pyarrow as pa

        return getattr(pa, name)()

    return made


_FLAT: dict[int, Callable[[_Reader, int], Any]] = {
    2: _integer, 3: _floating, 4: _plain("binary"), 5: _plain("string"), 6: _plain("bool_"),
    7: _decimal, 8: _date, 9: _time, 10: _timestamp, 11: _interval, 18: _duration,
    19: _plain("large_binary"), 20: _plain("large_string"),
}  # fmt: skip
_NESTED = {12: "list_", 13: "struct", 21: "large_list"}
_REFUSED = {
    1: "null", 14: "union", 15: "fixed_size_binary", 16: "fixed_size_list", 17: "map",
    22: "run_end_encoded", 23: "binary_view", 24: "string_view", 25: "list_view",
    26: "large_list_view",
}  # fmt: skip


# --- a flatbuffer --------------------------------------------------------------------------------


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 for one that is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size, at = struct.unpack_from("<H", data, vtable)[0], 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0
    return table + offset if offset else 0


def _table(data: bytes, table: int, number: int) -> int:
    """Return where a field's table, text or vector is; 0 for one that is not there."""
    at = _field(data, table, number)
    return at + _u32(data, at) if at else 0


def _number(data: bytes, table: int, number: int, code: str, default: Any) -> Any:
    at = _field(data, table, number) if table else 0
    return struct.unpack_from(f"<{code}", data, at)[0] if at else default


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
