"""Values and errors between the interpreter and the house, each in the other's form. Pure."""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from kernel_agent.errors import InputError
from kernel_agent.inkernel import describe_answer, encode
from kernel_agent.records import CellError, Json, OutputDict
from kernel_agent.safe import one_line

MAX_CHARS = 1_000_000  # of one stream of one cell, and of a value
_PLAIN = (str, bytes, int, float, date, time, timedelta, Decimal, type(None))


def binds(code: str, name: str) -> bool:
    """Say whether code makes a variable of that name."""
    try:
        nodes = ast.walk(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # running it says so
        return False
    return any(
        isinstance(n, ast.Name) and n.id == name and type(n.ctx) is not ast.Load for n in nodes
    )


def write_value(value: Any) -> str:
    """Return a value as IPython would show it; the interpreter's values are Python's own types."""
    from IPython.lib.pretty import pretty

    if type(value).__name__ == "MontyClassProxy":
        return f"<{value.name} object>"
    try:
        text: str = pretty(value, max_seq_length=1000)  # type: ignore[no-untyped-call]  # IPython is untyped
    except (RecursionError, ValueError):
        return "[a value that is nested too deeply, or too long, to show]"
    return text[:MAX_CHARS]


def text_of(outputs: Iterable[OutputDict]) -> str:
    """Return what ``outputs[step]`` gives for a cell with these outputs."""
    pieces = (
        o["text"]
        if o["output_type"] == "stream"
        else str(o.get("data", {}).get("text/plain", "")) + "\n"
        for o in outputs
    )
    return "".join(pieces)


def form_of(value: Any) -> Json:
    """Return a value in the wire's forms, of which it may have no other than plain ones.

    Raises
    ------
    InputError
        It has none.
    """
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError):
        kind = value.name if type(value).__name__ == "MontyClassProxy" else type(value).__name__
        raise InputError(f"a {one_line(str(kind), 40)} cannot be taken") from None


def describe(value: Any) -> dict[str, Any]:
    """Return a value's description, as kernels give it with an answer."""
    if type(value).__name__ == "MontyClassProxy":
        return {"kind": value.name, "value": f"an object of type {value.name}"}
    return describe_answer(value)


def without_libraries(value: Any) -> Any:
    """Return a tool's result in the interpreter's types: a table as rows, what it lacks as text."""
    if type(value).__name__ == "DataFrame":
        value = value.to_dict("records")
    elif hasattr(value, "tolist"):  # a Series, an array
        value = value.tolist()
    elif hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    elif hasattr(value, "getpixel"):
        value = f"[a picture of {value.width} by {value.height} pixels]"
    if isinstance(value, dict):
        return {without_libraries(key): without_libraries(item) for key, item in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):  # a named tuple becomes a tuple
            return kind(map(without_libraries, value))
    missing = type(value).__name__ in ("NaTType", "NAType")
    return None if missing else value if isinstance(value, _PLAIN) else str(value)


def exception_of(result: Mapping[str, Any]) -> Exception:
    """Return what a host tool raised, under the same name where Python has it."""
    kind, message = str(result["type"]), str(result["message"])
    builtin = getattr(builtins, kind, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        for args in (result.get("args"), [message]):
            if args is not None:
                with contextlib.suppress(TypeError, ValueError):  # some take other arguments
                    return builtin(*args)
    return RuntimeError(f"{kind}: {message}")


def error_of(error: Any) -> CellError:
    """Return what ended a cell."""
    inner = error.exception() if hasattr(error, "exception") else error
    display = error.display() if hasattr(error, "display") else str(error)
    return CellError(
        ename=type(inner).__name__, evalue=str(inner), traceback=tuple(display.split("\n"))
    )
