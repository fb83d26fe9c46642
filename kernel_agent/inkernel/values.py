"""Values on the wire between the kernel and the host: JSON with a few typed forms, never pickle.

Runs on both sides. What JSON has no form for becomes an object whose ``"$"`` names its kind:

=============  ==================================================================================
``float``      ``{"$": "float", "text": "nan"}`` (also infinities)
``bytes``      ``{"$": "bytes", "base64": …}``
``tuple``      ``{"$": "tuple", "items": […]}``; ``set`` and ``frozenset`` likewise
``dict``       ``{"$": "dict", "items": [[key, value], …]}`` when a key is no text, or is ``"$"``
``date``       ``{"$": "date" | "datetime" | "time" | "timedelta" | "decimal", "text": …}``
``array``      ``{"$": "array", "dtype": …, "shape": […], "base64": …}``, no objects
``table``      ``{"$": "table", "arrow": base64 of an Arrow IPC stream}``; ``series`` likewise
``image``      ``{"$": "image", "png": …}``
=============  ==================================================================================

Records go as the plain values that they hold: dataclasses and pydantic's models as dicts, members
of an enum as their values, paths and UUIDs as text. Ranges, views of a dict, an index of pandas and
arrays of objects go as lists.

Whoever decodes trusts nothing: sizes are checked against the bytes that are there, a picture is
opened as PNG only, a table has flat columns that are not compressed, and what is none of this is
refused. What a form stands for is charged to a :class:`~.room.Room` before a library unfolds it,
by the form's own header. One step in C stays short, since nothing else of the program runs
meanwhile: base64 and a table's texts are read in pieces.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import io
import math
import pathlib
import re
import struct
import uuid
from collections import deque
from collections.abc import KeysView, Mapping, ValuesView
from decimal import Decimal
from typing import Any

from .room import Room, TooMuch, check_keys, check_numbers, read_decimal, short

DEPTH_MAX = 50
PIXELS_MAX = 50_000_000
CELLS_MAX = 50_000_000  # rows times columns of a table
COLUMNS_MAX = 20_000
BATCHES_MAX = 100_000  # of a table, times its columns; ours have one
CHUNKS_MAX = 20_000  # of a picture
ENOUGH = 1 << 40  # bytes: for values from somebody who is trusted
PIECE = 1 << 20  # characters of base64 that are read at a time
OBJECTS = 50_000  # values of a table that become objects of Python's at a time
COLUMN_BYTES = 2_000  # what a column costs beside its values, in pandas and Arrow
BATCH_BYTES = 400  # what a column of a batch costs in Arrow
_DTYPE = re.compile(r"[<>|=]?(?:[biufc]\d{1,2}|\?|[SU]\d{1,7}|[mM]8(?:\[\d{0,4}[A-Za-z]{1,2}\])?)")
_TEXT_FORMS: dict[str, tuple[type, Any, Any]] = {
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "timedelta": (
        dt.timedelta,
        lambda value: repr(value.total_seconds()),
        lambda text: dt.timedelta(seconds=float(text)),
    ),
    "decimal": (Decimal, str, read_decimal),
}
_SEQUENCES: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any, depth: int = 0) -> Any:
    """Turn a value into JSON types.

    Raises
    ------
    TypeError
        It has no form here; the message names its type.
    """
    if depth > DEPTH_MAX:
        raise TypeError(f"a value nested more than {DEPTH_MAX} levels deep cannot be sent")
    kind = type(value)
    if value is None or kind in (str, int, bool):
        return value
    if kind is list:
        return [encode(item, depth + 1) for item in value]
    if kind is dict:
        return _encode_dict(value, depth + 1)
    return _encode_typed(value, depth + 1)


def _encode_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if all(type(key) is str and key != "$" for key in value):
        return {key: encode(item, depth) for key, item in value.items()}
    return {"$": "dict", "items": [[encode(k, depth), encode(v, depth)] for k, v in value.items()]}


def _encode_typed(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
    if kind in (bytes, bytearray):
        return {"$": "bytes", "base64": _base64(bytes(value))}
    for name, sequence in _SEQUENCES.items():
        if kind is sequence:
            return {"$": name, "items": [encode(item, depth) for item in value]}
    for name, (form, write, _read) in _TEXT_FORMS.items():
        if kind is form:
            return {"$": name, "text": write(value)}
    return _encode_library(value, depth)


def decode(value: Any, room: Room | None = None, depth: int = 0) -> Any:
    """Rebuild what :func:`encode` made.

    Parameters
    ----------
    value
        JSON types; they are not changed.
    room
        What may be made of it; without one, its sender is trusted.

    Raises
    ------
    ValueError
        It is none of the forms, or does not hold what it says; :class:`~.room.TooMuch` where there
        is no room for it.
    """
    if depth > DEPTH_MAX:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        check_numbers(value)
        return [decode(item, room, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        check_numbers(list(value))
        return {key: decode(item, room, depth + 1) for key, item in value.items()}
    name = value["$"]
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"not a value of kind {name[:40]!r}" if isinstance(name, str) else _NONE)
    try:
        return _decode_typed(name, value, room or Room(ENOUGH), depth + 1)
    except TooMuch:
        raise
    except Exception as error:  # what a forged form can make a library raise has no end
        raise ValueError(f"not a value of kind {name!r}: {str(error)[:300]}") from None


def _decode_typed(name: str, value: dict[str, Any], room: Room, depth: int) -> Any:
    if name in _SEQUENCES:
        items = [decode(item, room, depth) for item in list(value["items"])]
        if name != "tuple":
            check_keys(items)
        return _SEQUENCES[name](items)
    if name in _TEXT_FORMS:
        return _TEXT_FORMS[name][2](short(value["text"]))
    if name == "dict":
        pairs = [(decode(k, room, depth), decode(v, room, depth)) for k, v in value["items"]]
        check_keys([key for key, _ in pairs])
        return dict(pairs)
    return _FORMS[name](value, room)


def _read_base64(text: Any, room: Room) -> bytes:
    if not isinstance(text, str):
        raise ValueError("its base64 is no text")  # noqa: TRY004 - damage, not a type
    room.take(len(text))
    pieces = range(0, len(text), PIECE)
    return b"".join(base64.b64decode(text[at : at + PIECE], validate=True) for at in pieces)


# --- numpy, pandas, pillow: only where the value, or its form, is one of theirs --------------


def _encode_library(value: Any, depth: int) -> Any:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "numpy":
        return _encode_numpy(value, depth)
    if module == "pandas":
        return _encode_pandas(value, depth)
    if module == "PIL" or (module == "matplotlib" and hasattr(value, "savefig")):
        buffer = io.BytesIO()
        (value.save if module == "PIL" else value.savefig)(buffer, format="png")
        return {"$": "image", "png": _base64(buffer.getvalue())}
    return _encode_record(value, depth)


def _encode_pandas(value: Any, depth: int) -> Any:
    kind = type(value).__name__
    if kind == "DataFrame":
        return {"$": "table", "arrow": _base64(_arrow(value))}
    if kind == "Series":
        return {"$": "series", "arrow": _base64(_arrow(value.to_frame(value.name or "value")))}
    if kind in ("NaTType", "NAType"):
        return None
    if kind in ("Timestamp", "Timedelta"):
        in_time = kind == "Timestamp"
        return encode(value.to_pydatetime(warn=False) if in_time else value.to_pytimedelta())
    # An index, a categorical, what `unique()` gives.
    return (
        encode(value.tolist(), depth) if hasattr(value, "tolist") else _encode_record(value, depth)
    )


def _encode_record(value: Any, depth: int) -> Any:
    """Encode what holds plain values under a type of its own."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return encode(value.value, depth)
    if isinstance(value, (pathlib.PurePath, uuid.UUID)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(kind, "model_dump") and hasattr(kind, "model_fields"):  # pydantic's
        value = value.model_dump()
    if isinstance(value, Mapping):
        return _encode_dict(dict(value), depth)
    if isinstance(value, (range, deque, KeysView, ValuesView)):
        return encode(list(value), depth)
    kinds: tuple[Any, ...] = (str, bool, int, float, bytes, tuple, list, set, frozenset)
    for plain in kinds:
        if isinstance(value, plain):
            return encode(plain(value), depth)
    raise TypeError(f"a {kind.__name__} cannot be sent; text, numbers, lists, dicts, tables can")


def _encode_numpy(value: Any, depth: int) -> Any:
    import numpy as np

    if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.names is None:
        array = np.ascontiguousarray(value).reshape(value.shape)
        return {
            "$": "array",
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "base64": _base64(array.tobytes()),
        }
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return encode(value.tolist(), depth)
    if isinstance(value, np.generic) and value.dtype.kind in "biufUS":
        return encode(value.item())
    if isinstance(value, np.generic) and value.dtype.kind in "mM":
        return encode(value.astype(f"{value.dtype.kind}8[us]").item())
    raise TypeError(f"a numpy {value.dtype} cannot be sent: convert it with tolist()")


def _array(value: dict[str, Any], room: Room) -> Any:
    room.library()
    import numpy as np

    if not _DTYPE.fullmatch(short(value["dtype"])):
        raise ValueError("an array of something else than numbers, texts or times")
    dtype = np.dtype(value["dtype"])
    shape = tuple(map(int, value["shape"][:64]))
    data = _read_base64(value["base64"], room)
    room.take(len(data))
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _arrow(table: Any) -> bytes:
    try:
        import pyarrow as pa
    except ImportError:
        raise TypeError(
            "a table can be sent where pyarrow is installed: pip install pyarrow"
        ) from None
    try:
        arrow = pa.Table.from_pandas(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "mixed types"
        raise TypeError(f"the table has a column that Arrow cannot hold: {reason}") from None
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue()


def _table(value: dict[str, Any], room: Room) -> Any:
    room.library()
    import pyarrow as pa

    data = _read_base64(value["arrow"], room)
    try:
        batches = _count_batches(data, room)
        with pa.ipc.open_stream(data) as stream:
            if len(stream.schema) > COLUMNS_MAX or len(stream.schema) * batches > BATCHES_MAX:
                raise ValueError(f"a table of {len(stream.schema):,} columns in {batches:,} parts")
            for field in stream.schema:
                _check_flat(field.type, top=True)
            room.take(len(stream.schema) * (COLUMN_BYTES + batches * BATCH_BYTES))
            table = stream.read_all()
        if table.num_rows * max(table.num_columns, 1) > CELLS_MAX:
            raise ValueError(f"a table of more than {CELLS_MAX:,} cells")
        for column in table.columns:
            room.take(sum(_unfolded(chunk) for chunk in column.chunks))
        table.validate(full=True)
        return _in_pandas(table)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


def _count_batches(data: bytes, room: Room) -> int:
    """Return how many messages an Arrow stream has; each is looked at, and nothing of it read."""
    import pyarrow as pa

    count = 0
    for message in pa.ipc.MessageReader.open_stream(data):
        room.take(BATCH_BYTES)
        count += 1
        if _compressed(message.metadata.to_pybytes()):
            raise ValueError("a table that is compressed")
    return count


def _unfolded(chunk: Any) -> int:  # noqa: PLR0911 - a table
    """Return about how many bytes a column takes in pandas, the two copies of its objects included.

    From types and lengths alone, which a stream states and :meth:`validate` checks afterwards. The
    sizes of objects are CPython's (``sys.getsizeof``), plus the pointers to them.
    """
    from pyarrow import types

    kind, rows = chunk.type, len(chunk)
    if types.is_null(kind):
        return 16 * rows
    if types.is_dictionary(kind):
        return 16 * rows + _unfolded(chunk.dictionary)
    if types.is_struct(kind):
        return 248 * rows + sum(_unfolded(chunk.field(n)) for n in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind):
        return 192 * rows + _unfolded(chunk.values)
    if types.is_decimal(kind):
        return 128 * rows
    if types.is_date(kind) or types.is_time(kind):
        return 64 * rows
    if types.is_primitive(kind):
        return 16 * rows
    return 80 * rows + 4 * _text_bytes(chunk)  # a character may take four bytes in Python's texts


def _text_bytes(chunk: Any) -> int:
    return sum(buffer.size for buffer in chunk.buffers() if buffer is not None)


def _in_pandas(table: Any) -> Any:
    """Return a table in pandas; columns of objects are made of a few rows at a time."""
    import pandas as pd

    objects = sum(_is_of_objects(field.type) for field in table.schema)
    if table.num_rows * objects <= OBJECTS:
        return table.to_pandas()
    rows = max(OBJECTS // objects, 1)
    made = pd.concat([table.slice(at, rows).to_pandas() for at in range(0, table.num_rows, rows)])
    if not _has_index(table):  # a range is stated once, for all of the rows
        index = table.select([]).to_pandas().index
        made.index = index if len(index) == len(made) else pd.RangeIndex(len(made))
    return made


def _is_of_objects(kind: Any) -> bool:
    """Whether pandas makes an object of each value in a column of this type."""
    import pandas as pd
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return int(pd.__version__.partition(".")[0]) < 3  # since then they stay as Arrow has them
    plain = types.is_primitive(kind) and not (types.is_date(kind) or types.is_time(kind))
    return not (plain or types.is_dictionary(kind) or types.is_null(kind))


def _has_index(table: Any) -> bool:
    stated = (table.schema.pandas_metadata or {}).get("index_columns", ())
    return any(isinstance(column, str) for column in stated)


def _check_flat(kind: Any, *, top: bool = False) -> None:
    """Refuse the types whose few bytes can stand for many values.

    A list's length is bounded by its offsets as long as what it holds takes room itself; a
    dictionary within a list is written out once a mention.
    """
    from pyarrow import types

    if (top and types.is_dictionary(kind)) or types.is_list(kind) or types.is_large_list(kind):
        _check_flat(kind.value_type)
    elif types.is_struct(kind) and kind.num_fields:
        for n in range(kind.num_fields):
            _check_flat(kind.field(n).type)
    elif not (
        types.is_primitive(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or (top and types.is_null(kind))
    ):
        raise ValueError(f"a column of type {str(kind)[:60]}")


def _compressed(metadata: bytes) -> bool:
    """Whether the body of an Arrow message is compressed, read from its flatbuffer.

    https://arrow.apache.org/docs/format/Columnar.html; field 3 of a RecordBatch is its
    compression, field 1 of a DictionaryBatch a RecordBatch. pyarrow has no way to ask.
    """
    message = _u32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    if not kind_at or not header_at:
        return False
    kind, batch = metadata[kind_at], header_at + _u32(metadata, header_at)
    if kind == 2:  # a DictionaryBatch
        inner = _field(metadata, batch, 1)
        batch = inner + _u32(metadata, inner)
    return kind in (2, 3) and bool(_field(metadata, batch, 3))


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 for one that is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size, at = struct.unpack_from("<H", data, vtable)[0], 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0
    return table + offset if offset else 0


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _series(value: dict[str, Any], room: Room) -> Any:
    table = _table(value, room)
    return table[table.columns[0]]


def _image(value: dict[str, Any], room: Room) -> Any:
    room.library()
    from PIL import Image

    data = _read_base64(value["png"], room)
    _check_chunks(data)
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG",))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None
    if image.width * image.height > PIXELS_MAX:
        raise ValueError(f"a picture of {image.width} by {image.height} pixels")
    room.take(4 * image.width * image.height)
    image.load()
    return image


def _check_chunks(data: bytes) -> None:
    """Refuse a PNG of countless chunks, or of texts that are packed.

    https://www.w3.org/TR/png-3/#5Chunk-layout: length, name, content, checksum.
    """
    at, count = 8, 0
    while at + 8 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        count += 1
        if count > CHUNKS_MAX or name in (b"zTXt", b"iTXt"):
            raise ValueError("a picture of too many parts, or with packed text")
        at += size + 12


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_FORMS = {
    "float": lambda value, _room: float(short(value["text"])),
    "bytes": lambda value, room: _read_base64(value["base64"], room),
    "array": _array,
    "table": _table,
    "series": _series,
    "image": _image,
}
_KINDS = {"dict", *_SEQUENCES, *_TEXT_FORMS, *_FORMS}
_NONE = "not a value of kind: it names none"
