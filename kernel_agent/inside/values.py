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

Whoever decodes trusts nothing: sizes are checked against the bytes that are there, a picture is
opened as PNG only and with a bound on its pixels, and what is none of this is refused.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import math
from typing import Any

DEPTH_MAX = 50
PIXELS_MAX = 50_000_000
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
    return _encode_library(value)


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
    except (KeyError, TypeError, ValueError, ArithmeticError, OSError, ImportError) as error:
        raise ValueError(f"not a value of kind {str(value['$'])[:40]!r}: {error}") from None


def _decode_typed(name: Any, value: dict[str, Any], depth: int) -> Any:
    if name in _SEQUENCES:
        return _SEQUENCES[name](decode(item, depth) for item in value["items"])
    if name in _TEXT_FORMS:
        return _TEXT_FORMS[name][2](value["text"])
    if name == "dict":
        return {decode(k, depth): decode(v, depth) for k, v in value["items"]}
    return _FORMS[name](value)


# --- numpy, pandas, pillow: only where the value, or its form, is one of theirs --------------


def _encode_library(value: Any) -> Any:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "numpy":
        return _encode_numpy(value)
    if module == "pandas" and kind.__name__ == "DataFrame":
        return {"$": "table", "arrow": _base64(_arrow(value))}
    if module == "pandas" and kind.__name__ == "Series":
        return {"$": "series", "arrow": _base64(_arrow(value.to_frame(value.name or "value")))}
    if module == "pandas" and kind.__name__ == "Timestamp":
        return encode(value.to_pydatetime(warn=False))
    if module == "PIL":
        buffer = io.BytesIO()
        value.save(buffer, format="PNG")
        return {"$": "image", "png": _base64(buffer.getvalue())}
    if module == "matplotlib" and hasattr(value, "savefig"):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png")
        return {"$": "image", "png": _base64(buffer.getvalue())}
    raise TypeError(f"a {kind.__name__} cannot be sent; text, numbers, lists, dicts, tables can")


def _encode_numpy(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.names is None:
        array = np.ascontiguousarray(value).reshape(value.shape)
        return {
            "$": "array",
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "base64": _base64(array.tobytes()),
        }
    if isinstance(value, np.generic) and not value.dtype.hasobject and value.dtype.kind in "biufUS":
        return encode(value.item())
    raise TypeError(f"a numpy {value.dtype} cannot be sent: convert it with tolist()")


def _array(value: dict[str, Any]) -> Any:
    import numpy as np

    dtype = np.dtype(str(value["dtype"]))
    if dtype.hasobject:
        raise ValueError("an array of objects")
    shape = tuple(int(size) for size in value["shape"])
    return (
        np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype).reshape(shape).copy()
    )


def _arrow(table: Any) -> bytes:
    try:
        import pyarrow as pa
    except ImportError:
        raise TypeError("a table can be sent where pyarrow is installed") from None
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
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
        return table.to_pandas()
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


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
