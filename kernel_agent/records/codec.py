"""Records from plain JSON: the one place that checks what a trace holds, strictly.

A trace may be damaged or forged. The readers are made from the records' own annotations
(:mod:`kernel_agent.records`), so that what everybody behind them is promised by a type is so: a
number is one that can be computed with, a list of records holds records of that type. Values that
come from a kernel or a model stay plain JSON, whatever they hold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from kernel_agent.records import action, cell, conversation, trace
from kernel_agent.records.conversation import Json

MAX_NUMBER = 1 << 63
MAX_DEPTH = 200
"""Of lists and objects in a value: twice what is taken from a kernel. What reads it recurses."""

Reader: TypeAlias = Callable[[Json], Any]

_TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        conversation.Usage, conversation.ModelWindow, conversation.Image,
        action.Code, action.Call, action.Calls,
        action.Final, cell.CellError, cell.Decision, cell.HostCall, cell.Answer,
        cell.CellResult, cell.Observation, trace.Retry, trace.DataFile, trace.Given, trace.RunStart,
        trace.Step, trace.Visit, trace.RunStop, trace.FormatChange, cell.Variable,
        cell.Changes, trace.Condensation, trace.Undone, cell.Delegated,
    )
}  # fmt: skip


def from_json(value: Json) -> Any:
    """Rebuild what ``records.to_json`` wrote. Unknown fields, of a later version, are dropped.

    Raises
    ------
    ValueError
        The record's type is unknown, a required field is missing, or one is not what its type
        says (a damaged file).
    """
    name = value.get("$") if isinstance(value, dict) else None
    cls = _TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"unknown record type {str(name)[:50]!r}")
    return _record_reader(cls)(value)


@cache
def _record_reader(cls: type) -> Reader:
    hints = get_type_hints(cls)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(cls)}
    missing = dataclasses.MISSING
    needed = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is missing and field.default_factory is missing
    }

    def read(value: Json) -> Any:
        if not isinstance(value, dict) or value.get("$") != cls.__name__:
            raise ValueError(f"it is no {cls.__name__}")
        if not needed <= value.keys():
            raise ValueError(
                f"damaged {cls.__name__} record: it lacks {min(needed - value.keys())}"
            )
        return cls(**{k: _field(cls, k, readers[k], v) for k, v in value.items() if k in readers})

    return read


def _field(cls: type, name: str, reader: Reader, value: Json) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        told = str(error).removeprefix("damaged ")
        raise ValueError(f"damaged {cls.__name__}.{name}: {told}") from None


@cache
def _reader(hint: Any) -> Reader:
    """Return the reader for values of an annotation."""
    origin = get_origin(hint)
    if origin in _GENERIC and hint != dict[str, Any]:
        return _GENERIC[origin](get_args(hint))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _nested(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint)
    return _SIMPLE[hint]


def _nested(cls: type) -> Reader:
    def read(value: Json) -> Any:  # made when it is needed: a record may hold others of its type
        return _record_reader(cls)(value)

    return read


def _one_of(parts: tuple[Any, ...]) -> Reader:
    """Return the reader of an optional value, or of records of several types."""
    kinds = [part for part in parts if part is not NoneType]
    readers = {kind.__name__: _reader(kind) for kind in kinds} if len(kinds) > 1 else {}
    only = _reader(kinds[0])

    def read(value: Json) -> Any:
        if value is None and NoneType in parts:
            return None
        if not readers:
            return only(value)
        name = value.get("$") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in readers:
            raise ValueError(f"it is none of {', '.join(readers)}")
        return readers[name](value)

    return read


def _list_of(parts: tuple[Any, ...]) -> Reader:
    reader = _reader(parts[0])

    def read(value: Json) -> Any:
        if not isinstance(value, list):
            raise ValueError("it is no list")  # noqa: TRY004 - damage, not a type
        return tuple(map(reader, value))

    return read


def _object_of(parts: tuple[Any, ...]) -> Reader:
    if parts[1] is Any:
        return _plain_object
    reader = _reader(parts[1])

    def read(value: Json) -> Any:
        if not isinstance(value, dict):
            raise ValueError("it is no object")  # noqa: TRY004 - damage, not a type
        return {name: reader(item) for name, item in value.items()}

    return read


def _word(allowed: tuple[str, ...]) -> Reader:
    def read(value: Json) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"it is none of {', '.join(allowed)}")
        return value

    return read


def _member(kind: type[StrEnum]) -> Reader:
    known = {member.value: member for member in kind}

    def read(value: Json) -> Any:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{str(value)[:50]!r} is no {kind.__name__}")
        return known[value]

    return read


def _text(value: Json) -> Any:
    if not isinstance(value, str):
        raise ValueError("it is no text")  # noqa: TRY004 - damage, not a type
    return value


def _truth(value: Json) -> Any:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")  # noqa: TRY004 - damage, not a type
    return value


def _count(value: Json) -> Any:
    if type(value) is not int or abs(value) > MAX_NUMBER:
        raise ValueError("it is no whole number that could be")
    return value


def _number(value: Json) -> Any:
    if type(value) not in (int, float) or not abs(value) < MAX_NUMBER or not math.isfinite(value):
        raise ValueError("it is no number that could be")
    return value


def _plain_object(value: Json) -> Any:
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - damage, not a type
    return _plain(value)


def _plain(value: Json) -> Any:
    """Check a value from elsewhere: any JSON that is not nested too deeply for its readers."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        level = [x for item in level for x in (item.values() if isinstance(item, dict) else item)]
    return value


_GENERIC: dict[Any, Callable[[tuple[Any, ...]], Reader]] = {
    Union: _one_of,
    UnionType: _one_of,
    Literal: _word,
    tuple: _list_of,
    Mapping: _object_of,
}
_SIMPLE: dict[Any, Reader] = {
    str: _text, bool: _truth, int: _count, float: _number, Any: _plain,
    dict[str, Any]: _plain_object,
}  # fmt: skip
