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
opened as PNG only and with a bound on its pixels, a table has flat columns that are not compressed
and a bound on its cells (few bytes can stand for many otherwise), and what is none of this is
refused.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import io
import math
import pathlib
import re
import struct
import uuid
from collections import deque
from collections.abc import KeysView, Mapping, ValuesView
from typing import Any

DEPTH_MAX = 50
PIXELS_MAX = 50_000_000
CELLS_MAX = 50_000_000  # rows times columns of a table
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
    "decimal": (decimal.Decimal, str, decimal.Decimal),
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


def decode(value: Any, depth: int = 0) -> Any:
    """Rebuild what :func:`encode` made.

    Raises
    ------
    ValueError
        It is none of the forms, or does not hold what it says.
    """
    if depth > DEPTH_MAX:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [decode(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: decode(item, depth + 1) for key, item in value.items()}
    try:
        return _decode_typed(value["$"], value, depth + 1)
    except Exception as error:  # what a forged form can make a library raise has no end
        reason = str(error)[:300]
        raise ValueError(f"not a value of kind {str(value['$'])[:40]!r}: {reason}") from None


def _decode_typed(name: Any, value: dict[str, Any], depth: int) -> Any:
    if name in _SEQUENCES:
        return _SEQUENCES[name](decode(item, depth) for item in list(value["items"]))
    if name in _TEXT_FORMS:
        return _TEXT_FORMS[name][2](value["text"])
    if name == "dict":
        return {decode(k, depth): decode(v, depth) for k, v in value["items"]}
    return _FORMS[name](value)


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


def _array(value: dict[str, Any]) -> Any:
    import numpy as np

    if not _DTYPE.fullmatch(str(value["dtype"])):
        raise ValueError("an array of something else than numbers, texts or times")
    dtype = np.dtype(str(value["dtype"]))
    shape = tuple(int(size) for size in value["shape"])
    return (
        np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype).reshape(shape).copy()
    )


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


def _table(value: dict[str, Any]) -> Any:
    import pyarrow as pa

    data = base64.b64decode(value["arrow"], validate=True)
    try:
        for message in pa.ipc.MessageReader.open_stream(data):
            if _compressed(message.metadata.to_pybytes()):
                raise ValueError("a table that is compressed")
        with pa.ipc.open_stream(data) as stream:
            for field in stream.schema:
                _check_flat(field.type, top=True)
            table = stream.read_all()
        if table.num_rows * max(table.num_columns, 1) > CELLS_MAX:
            raise ValueError(f"a table of more than {CELLS_MAX:,} cells")
        table.validate(full=True)
        return table.to_pandas()
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


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


def _series(value: dict[str, Any]) -> Any:
    table = _table(value)
    return table[table.columns[0]]


def _image(value: dict[str, Any]) -> Any:
    from PIL import Image

    data = base64.b64decode(value["png"], validate=True)
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG",))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None
    if image.width * image.height > PIXELS_MAX:
        raise ValueError(f"a picture of {image.width} by {image.height} pixels")
    image.load()
    return image


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_FORMS = {
    "float": lambda value: float(value["text"]),
    "bytes": lambda value: base64.b64decode(value["base64"], validate=True),
    "array": _array,
    "table": _table,
    "series": _series,
    "image": _image,
}
