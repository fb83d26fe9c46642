"""A call of the host as a person reads it: arguments and result, no data. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_agent.records import HostCall, Json


def asked_text(call: HostCall) -> str:
    """Return a call as it stands in code."""
    return f"{call.name}({_arguments(call.arguments)})"


def result_text(call: HostCall) -> str:
    """Return a call's result, or its error."""
    return _json(describe(call.result)) if call.ok else call.error


def _arguments(given: Json) -> str:
    if not isinstance(given, Mapping):
        return _json(given)
    args, kwargs = given.get("args"), given.get("kwargs")
    if not isinstance(args, Sequence) or not isinstance(kwargs, Mapping):
        return _json(describe(dict(given)))
    named = (f"{name}={_json(describe(value))}" for name, value in kwargs.items())
    return ", ".join([*(_json(describe(value)) for value in args), *named])


def describe(value: Json) -> Json:
    """Describe a value of a trace to a person: a typed form by the name of its type.

    Examples
    --------
    >>> describe([1, {"$": "table", "arrow": "QVJST1cx…"}])
    [1, '<table>']
    """
    if isinstance(value, Mapping):
        kind = value.get("$")
        if kind == "float":
            return value.get("text")
        if kind is not None:
            return f"<{value.get('type', kind) if kind == 'left out' else kind}>"
        return {key: describe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    return value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:2_000]
    except (TypeError, ValueError, RecursionError):
        return "…"
