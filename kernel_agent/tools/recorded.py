"""A call's arguments and result as the trace keeps them: readable, exact where small.

The forms are those of :mod:`kernel_agent.inkernel.values`, so a notebook can replay them; a table,
an array or a picture has a ``preview`` beside its data. What is large is described instead:
``{"$": "left out", "type": …, "size": …, "preview": …}``, which nothing can be rebuilt from.
"""

from __future__ import annotations

import json
from typing import Any

from kernel_agent.inkernel import DEPTH_MAX, FORMS, encode
from kernel_agent.records import Json
from kernel_agent.safe import plain, shorten

LEFT_OUT = "left out"
PREVIEW_CHARS = 400
TEXT_CHARS = 4_000  # of the two ends of a text that is too long
DATA_PIXELS = 1_000_000  # of a picture: more are not even written down to be measured
DATA_VALUES = 200_000  # of a table or an array, likewise


class _Room:
    """The number of characters that may still be kept."""

    def __init__(self, chars: int) -> None:
        self.left = chars

    def take(self, value: Json) -> bool:
        """Take a value that is JSON already, if there is room for it."""
        size = len(json.dumps(value))
        if size <= self.left:
            self.left -= size
            return True
        return False


def keep_result(value: Any, max_chars: int) -> Json:
    """Return a value as the trace keeps it, in about so many characters at most.

    Parameters
    ----------
    value
        What a tool was given or gave: any type that crosses the wire, or another one.
    max_chars
        What does not fit is described; a description itself is a few hundred characters.
    """
    return _keep_value(value, _Room(max_chars), 0)


def keep_arguments(args: list[Any], kwargs: dict[str, Any], max_chars: int) -> dict[str, Json]:
    """Return the arguments of a call likewise: ``args`` and ``kwargs`` are always there."""
    room = _Room(max_chars)
    return {"args": _items(args, room, 0), "kwargs": _dict(kwargs, room, 0)}


def _keep_value(value: Any, room: _Room, depth: int) -> Json:
    if depth > DEPTH_MAX:
        return _left_out(value, "nested too deeply")
    if isinstance(value, str):
        if len(value) <= room.left and room.take(value):
            return value
        form = _left_out(value, f"{len(value):,} characters")
        return {**form, "preview": shorten(value, max(min(room.left, TEXT_CHARS), PREVIEW_CHARS))}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = _items(list(value), room, depth)
        kind = type(value).__name__
        return items if isinstance(value, list) else {"$": kind, "items": items}
    if isinstance(value, dict):
        return _dict(value, room, depth)
    return _other(value, room)


def _items(values: list[Any], room: _Room, depth: int) -> list[Json]:
    made: list[Json] = []
    for n, item in enumerate(values):
        room.left -= 2
        if room.left <= 0:
            left = len(values) - n
            made.append({"$": LEFT_OUT, "type": "items", "size": f"{left:,} more items"})
            break
        made.append(_keep_value(item, room, depth + 1))
    return made


def _dict(value: dict[Any, Any], room: _Room, depth: int) -> Json:
    if any(type(key) is not str or key == "$" for key in value):
        return {"$": "dict", "items": _items([list(item) for item in value.items()], room, depth)}
    made: dict[str, Json] = {}
    for n, (key, item) in enumerate(value.items()):
        room.left -= 4
        if len(key) > room.left or not room.take(key):
            more = f"{len(value) - n:,} more entries"
            return {"$": LEFT_OUT, "type": "dict", "size": more, "entries": made}
        made[key] = _keep_value(item, room, depth + 1)
    return made


def _other(value: Any, room: _Room) -> Json:
    """Keep a value of another type as it crosses the wire, with a preview where that is data."""
    if _is_large(value, room.left):
        return _left_out(value, _size(value))
    try:
        form = encode(value)
    except Exception:  # it has no form: the call failed for it, and the trace says what it was
        return _left_out(value, _size(value))
    if isinstance(form, dict) and "$" in form and _is_seen(form["$"]):
        form = {"$": form["$"], "preview": _preview(value), **form}
    if not room.take(form):
        return _left_out(value, _size(value))
    return form


def _is_seen(kind: str) -> bool:
    """Whether values of a kind have a display of their own: a table, an array, a picture."""
    return bool(FORMS[kind].data) and FORMS[kind].kind is None


def _is_large(value: Any, most: int) -> bool:
    """Whether a value is too large for so many characters, before it is encoded and measured."""
    if isinstance(value, (bytes, bytearray)):
        return len(value) > most
    size, weight = getattr(value, "size", 0), getattr(value, "nbytes", 0)
    if isinstance(size, tuple) and len(size) == 2:  # a picture's
        return bool(size[0] * size[1] > DATA_PIXELS)
    return (isinstance(size, int) and size > DATA_VALUES) or (
        isinstance(weight, int) and weight > most
    )


def _left_out(value: Any, size: str) -> dict[str, Json]:
    kind = type(value).__name__[:100]
    return {"$": LEFT_OUT, "type": kind, "size": size, "preview": _preview(value)}


def _size(value: Any) -> str:
    for name in ("shape", "size"):
        told = getattr(value, name, None)
        if isinstance(told, tuple) and all(isinstance(n, int) for n in told):
            return " x ".join(f"{n:,}" for n in told)
    return f"{len(value):,} bytes" if isinstance(value, (bytes, bytearray)) else ""


def _preview(value: Any) -> str:
    """Return the beginning of a value as text, with bounded work."""
    try:
        if isinstance(value, (str, bytes, bytearray)):
            text = str(value[:PREVIEW_CHARS])
        elif type(value).__name__ in ("DataFrame", "Series"):
            text = (value.iloc[:5, :20] if value.ndim == 2 else value.head(5)).to_string()
        elif isinstance(value, (list, tuple, dict, set, frozenset)):
            text = f"{len(value):,} items"
        elif getattr(value, "size", 0) and hasattr(value, "ravel"):
            text = str(value.ravel()[:10]) if value.itemsize <= PREVIEW_CHARS else ""
        else:
            text = str(value)
    except Exception as error:  # a type of the tool's own may raise anything
        text = f"no preview: {type(error).__name__}"
    return plain(text[: 2 * PREVIEW_CHARS])[:PREVIEW_CHARS]
