"""Values on the wire between the kernel and the host: JSON with a few typed forms, never pickle.

Runs on both sides. What JSON has no form for becomes an object whose ``"$"`` names its kind:

=============  ==================================================================================
``float``      ``{"$": "float", "text": "nan"}`` (also infinities)
``bytes``      ``{"$": "bytes", "base64": …}``
``tuple``      ``{"$": "tuple", "items": […]}``; ``set`` and ``frozenset`` likewise
``dict``       ``{"$": "dict", "items": [[key, value], …]}`` when a key is no text, or is ``"$"``
``date``       ``{"$": "date" | "datetime" | "time" | "timedelta", "text": …}``; ``decimal`` and
               ``fraction`` likewise
``array``      ``{"$": "array", "dtype": …, "shape": […], "base64": …}``, no objects
``table``      ``{"$": "table", "arrow": base64 of an Arrow IPC stream, "frame": …}``: index, labels
               and attrs (:mod:`.frames`); ``series`` likewise
``image``      ``{"$": "image", "png": …}``
=============  ==================================================================================

Records go as the plain values that they hold: dataclasses and pydantic's models as dicts, members
of an enum as their values, paths and UUIDs as text. Ranges, views of a dict, an index of pandas and
arrays of objects go as lists.

The decoder trusts nothing: sizes are checked against the bytes that are there, a picture is
opened as PNG only, a table has flat columns that are not compressed and metadata that nobody reads
(:mod:`.schemas`), and everything else is refused. What a form stands for is charged to a
:class:`~.room.Room` before a library unfolds it, by the form's own header. One step in C stays
short, since nothing else of the program runs meanwhile: base64 and a table's texts are read in
pieces.
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
from collections.abc import Callable, KeysView, Mapping, ValuesView
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from .room import Room, TooMuch, check_keys, check_numbers, read_decimal, read_fraction, short
from .tables import read_table, write_table

DEPTH_MAX = 50
PIXELS_MAX = 50_000_000
CHUNKS_MAX = 20_000  # of a picture
ENOUGH = 1 << 40  # bytes: for values from somebody who is trusted
PIECE = 1 << 20  # characters of base64 that are read at a time
_DTYPE = re.compile(r"[<>|=]?(?:[biufc]\d{1,2}|\?|[SU]\d{1,7}|[mM]8(?:\[\d{0,4}[A-Za-z]{1,2}\])?)")


class Form(NamedTuple):
    """The wire form of one kind of value, and the source that sets a variable to one.

    Parameters
    ----------
    decode
        Rebuilds a value from its object: with what room there is, at what depth.
    kind
        The type whose values are written so; None where a library's are.
    encode
        Returns what stands beside the name.
    source
        Python source of the value: ``{text}`` and ``{items}`` are what the object has, ``{file}``
        is a file with its data, ``{dtype}`` and ``{shape}`` an array's.
    imports
        What the source needs.
    data
        Where the object has its data, in base64.
    suffix
        Of the file.
    """

    decode: Callable[[dict[str, Any], Room, int], Any]
    kind: type | None = None
    encode: Callable[[Any, int], dict[str, Any]] = lambda _value, _depth: {}
    source: str = ""
    imports: tuple[str, ...] = ()
    data: str = ""
    suffix: str = ""


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
    if kind is float and math.isfinite(value):
        return value
    if kind in _NAMES:
        name = _NAMES[kind]
        return {"$": name, **FORMS[name].encode(value, depth)}
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
    if not isinstance(name, str) or name not in FORMS:
        raise ValueError(f"not a value of kind {name[:40]!r}" if isinstance(name, str) else _NONE)
    try:
        return FORMS[name].decode(value, room or Room(ENOUGH), depth + 1)
    except TooMuch:
        raise
    except Exception as error:  # what a forged form can make a library raise has no end
        raise ValueError(f"not a value of kind {name!r}: {str(error)[:300]}") from None


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
    figure = figure_of(value)
    if module == "PIL" or figure is not None:
        buffer = io.BytesIO()
        (value.save if figure is None else figure.savefig)(buffer, format="png")
        return {"$": "image", "png": _base64(buffer.getvalue())}
    return _encode_record(value, depth)


def figure_of(value: Any) -> Any:
    """Return the figure that a value is, or that it is drawn in; None for anything else."""
    if type(value).__module__.partition(".")[0] not in ("matplotlib", "seaborn"):
        return None
    if hasattr(value, "savefig"):
        return value
    return value.get_figure() if hasattr(value, "get_figure") else None


def _encode_pandas(value: Any, depth: int) -> Any:
    kind = type(value).__name__
    if kind == "DataFrame":
        return {"$": "table", **_encode_table(value, depth)}
    if kind == "Series":
        return {"$": "series", **_encode_table(value.to_frame(value.name), depth)}
    if kind in ("NaTType", "NAType"):
        return None
    if kind in ("Timestamp", "Timedelta"):
        in_time = kind == "Timestamp"
        return encode(value.to_pydatetime(warn=False) if in_time else value.to_pytimedelta())
    # An index, a categorical, what `unique()` gives.
    return (
        encode(value.tolist(), depth) if hasattr(value, "tolist") else _encode_record(value, depth)
    )


def _encode_table(table: Any, depth: int) -> dict[str, Any]:
    arrow, frame = write_table(table, lambda value: encode(value, depth + 1))
    return {"arrow": _base64(arrow), "frame": frame}


def _encode_record(value: Any, depth: int) -> Any:
    """Encode a value of another type (a record, an enum, a path) as the plain values in it."""
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

    if isinstance(value, np.ndarray) and value.dtype.kind not in "OTV" and not np.ma.isMA(value):
        array = np.ascontiguousarray(value).reshape(value.shape)
        return {
            "$": "array",
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "base64": _base64(array.tobytes()),
        }
    if isinstance(value, np.ndarray) and value.dtype.kind in "OT":
        return encode(value.tolist(), depth)
    if isinstance(value, np.generic) and value.dtype.kind in "biufUS":
        return encode(float(value) if value.dtype.char == "g" else value.item())
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


def _table(value: dict[str, Any], room: Room, depth: int) -> Any:
    room.library()
    data = _read_base64(value["arrow"], room)
    return read_table(data, value.get("frame", {}), room, lambda item: decode(item, room, depth))


def _series(value: dict[str, Any], room: Room, depth: int) -> Any:
    return _table(value, room, depth).iloc[:, 0]


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


# --- the table -----------------------------------------------------------------------------


def _as_text(
    kind: type, write: Callable[[Any], str], read: Callable[[str], Any], source: str, *imports: str
) -> Form:
    return Form(
        kind=kind,
        encode=lambda value, _depth: {"text": write(value)},
        decode=lambda value, _room, _depth: read(short(value["text"])),
        source=source,
        imports=imports,
    )


def _as_items(kind: type) -> Form:
    def read(value: dict[str, Any], room: Room, depth: int) -> Any:
        items = [decode(item, room, depth) for item in list(value["items"])]
        if kind is not tuple:
            check_keys(items)
        return kind(items)

    return Form(
        kind=kind,
        encode=lambda value, depth: {"items": [encode(item, depth) for item in value]},
        decode=read,
        source=f"{kind.__name__}([{{items}}])",
    )


def _read_dict(value: dict[str, Any], room: Room, depth: int) -> dict[Any, Any]:
    pairs = [(decode(k, room, depth), decode(v, room, depth)) for k, v in value["items"]]
    check_keys([key for key, _ in pairs])
    return dict(pairs)


_TABLE = "pa.ipc.open_stream(pa.OSFile({file})).read_all().to_pandas()"
_TABLE_IMPORTS = ("import pandas as pd", "import pyarrow as pa")
FORMS: dict[str, Form] = {
    "float": _as_text(float, repr, float, "float({text})"),
    "datetime": _as_text(
        dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat,
        "datetime.datetime.fromisoformat({text})", "import datetime",
    ),
    "date": _as_text(
        dt.date, dt.date.isoformat, dt.date.fromisoformat,
        "datetime.date.fromisoformat({text})", "import datetime",
    ),
    "time": _as_text(
        dt.time, dt.time.isoformat, dt.time.fromisoformat,
        "datetime.time.fromisoformat({text})", "import datetime",
    ),
    "timedelta": _as_text(
        dt.timedelta,
        lambda value: repr(value.total_seconds()),
        lambda text: dt.timedelta(seconds=float(text)),
        "datetime.timedelta(seconds=float({text}))", "import datetime",
    ),
    "decimal": _as_text(
        Decimal, str, read_decimal, "Decimal({text})", "from decimal import Decimal"
    ),
    "fraction": _as_text(
        Fraction, str, read_fraction, "Fraction({text})", "from fractions import Fraction"
    ),
    "tuple": _as_items(tuple),
    "set": _as_items(set),
    "frozenset": _as_items(frozenset),
    "dict": Form(decode=_read_dict, source="{{{items}}}"),
    "bytes": Form(
        kind=bytes,
        encode=lambda value, _depth: {"base64": _base64(bytes(value))},
        decode=lambda value, room, _depth: _read_base64(value["base64"], room),
        source="Path({file}).read_bytes()",
        imports=("from pathlib import Path",),
        data="base64",
        suffix="bin",
    ),
    "array": Form(
        decode=lambda value, room, _depth: _array(value, room),
        source='np.fromfile({file}, "{dtype}").reshape({shape})',
        imports=("import numpy as np",),
        data="base64",
        suffix="bin",
    ),
    "table": Form(
        decode=_table,
        source=_TABLE,
        imports=_TABLE_IMPORTS,
        data="arrow",
        suffix="arrow",
    ),
    "series": Form(
        decode=_series,
        source=f"{_TABLE}.iloc[:, 0]",
        imports=_TABLE_IMPORTS,
        data="arrow",
        suffix="arrow",
    ),
    "image": Form(
        decode=lambda value, room, _depth: _image(value, room),
        source="Image.open({file})",
        imports=("from PIL import Image",),
        data="png",
        suffix="png",
    ),
}  # fmt: skip
"""The kinds by name: the wire reads them here, and what writes cells and traces does, too."""

_NAMES = {form.kind: name for name, form in FORMS.items() if form.kind} | {bytearray: "bytes"}
_NONE = "not a value of kind: it names none"
