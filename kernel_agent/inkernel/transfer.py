"""Variables out of the kernel, and into one that shares no folder with its host.

Both ride on cells that our host runs and nobody sees: values out as the display data of a user
expression (https://jupyter-client.readthedocs.io/en/stable/messaging.html#execution-results),
values in as pieces of text. How a value is written is in :mod:`.values`; never a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from IPython.core.getipython import get_ipython

from . import values
from .delegate import form_of
from .plain import unwrap
from .tables import write_csv

ANSWER = "the answer"  # in the place of a variable's name
TAKEN_MIME = "application/vnd.kernel-agent.taken+json"
MAX_CHARS = 200_000_000  # of all values of one taking; the host refuses messages above 256 MB

_shell: Any = get_ipython
_pieces: dict[str, list[str]] = {}


class Taken:
    """The variables of some names, in the form in which the host reads them."""

    def __init__(self, names: Sequence[str], namespace: dict[str, Any]) -> None:
        self._names = names
        self._namespace = namespace

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        room = MAX_CHARS
        found: dict[str, Any] = {}
        for name in self._names:
            if name not in self._namespace:
                found[name] = {"missing": True}
                continue
            try:
                value = values.encode(self._namespace[name])
                size = _size(value)
            except Exception as error:  # there is no end of what libraries raise
                found[name] = {"error": str(error)[:300] or type(error).__name__}
                found[name] |= {"csv": _csv(self._namespace[name])} if name == ANSWER else {}
                continue
            if size > room:
                found[name] = {"error": f"it is too large: {size:,} bytes, at most {MAX_CHARS:,}"}
                continue
            room -= size
            found[name] = {"value": value}
        return {TAKEN_MIME: found}


class Answered:
    """The latest answer, with its type and all of its rows, as it is handed to another kernel."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        try:
            return {TAKEN_MIME: {"value": form_of(self._value)}}
        except TypeError as error:
            return {TAKEN_MIME: {"formless": str(error)[:300]}}
        except (ValueError, RecursionError, OverflowError, MemoryError) as error:
            reason = f"{type(error).__name__}: {error}"
            return {TAKEN_MIME: {"error": reason[:300]}}


def _csv(table: Any) -> str:
    """Return a table as text, where that can be; nothing for what is none."""
    with suppress(Exception):  # no end of those, either
        text = write_csv(table) if type(table).__name__ in ("DataFrame", "Series") else ""
        return text if len(text) <= MAX_CHARS else ""
    return ""


def _size(value: Any) -> int:
    """Return about how long a value is in JSON, without writing it."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        return sum(len(key) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(2 + _size(item) for item in value)
    return len(str(value))


def taken(names: Sequence[str]) -> Taken:
    """Return the variables that the host asks for; called by its user expression."""
    return Taken(names, _shell().user_ns)


def answered() -> Answered:
    """Return the latest answer; called by the host's user expression."""
    return Answered(_shell().kernel_agent_answer.value)


def taken_answer(value: Any) -> Taken:
    """Return an answer as a variable is given."""
    return Taken([ANSWER], {ANSWER: unwrap(value)})


def take_answer() -> Taken:
    """Return the latest answer as a variable is given; called by the host's user expression."""
    return taken_answer(_shell().kernel_agent_answer.value)


def receive(name: str, piece: str) -> None:
    """Keep a piece of a value; called by the host's cells, in order."""
    _pieces.setdefault(name, []).append(piece)


def bind(name: str) -> None:
    """Set the variable whose pieces have all come."""
    _shell().user_ns[name] = values.decode(json.loads("".join(_pieces.pop(name))))
