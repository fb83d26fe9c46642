"""Requests of a kernel, from text to checked arguments, and the encoding of results.

Nothing here waits and nothing is called. The broker does it at once where it is quick, and in a
thread otherwise (:mod:`kernel_agent.safe.gate`): so all of it takes data and gives data, and counts
first. An unknown tool's arguments are not decoded at all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.errors import ToolError
from kernel_agent.inkernel import Room, TooMuch, decode, encode
from kernel_agent.records import Decision, Json
from kernel_agent.safe import NODE_BYTES, did_you_mean, is_quick, one_line, read_json
from kernel_agent.tools.definition import Origin, Tool
from kernel_agent.tools.recorded import keep_arguments, keep_result
from kernel_agent.tools.secrets import json_text_without, without_secrets

PREFIX = "kernel-agent/1 "
MAX_CALLS = 1_000  # calls in one request
MAX_ID = 2**53
MAX_MESSAGE = 2_000  # characters of an error
MAX_NAMED = 500  # of the names of tools in it
MANY_PROBLEMS = 200  # with the arguments: more are not written down, only counted
QUICK_TEXT = 100_000  # characters of a result that are written at once
QUICK_ITEMS = 100


class Refused(Exception):
    """A request that is not answered by calls."""

    def __init__(self, kind: str, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.number = number


@dataclass(frozen=True)
class Request:
    """A request as it was read: nothing in it is decoded yet."""

    number: int
    calls: list[Any]
    nodes: int
    quick: bool
    first_call: int = 0  # the number of its first call in the session


@dataclass
class Made:
    """A call in progress."""

    name: str
    number: int = 0  # among the session's calls, as they were asked for: they end in any order
    arguments: Json = None
    tool: Tool | None = None
    origin: Origin = field(default_factory=Origin)
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    begun: bool = False
    decision: Decision | None = None
    noted: dict[str, Any] = field(default_factory=dict)
    value: Any = None
    result: str = "null"  # for the wire
    kept: Json = None  # for the trace
    error: dict[str, Json] | None = None
    refused: str = ""  # why it is counted, where it was not made
    failed: BaseException | None = None  # to be described, where it was not made


def read(prompt: str, nodes: int) -> Request:
    """Read a request whose nodes were counted.

    Raises
    ------
    Refused
        It is not well-formed, or has too many calls.
    """
    text = prompt[len(PREFIX) :]
    try:
        request = read_json(text)
        number, calls = request["id"], request["calls"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("malformed", "the request is not well-formed") from None
    if type(number) is not int or not 0 < number < MAX_ID or not isinstance(calls, list):
        raise Refused("malformed", "the request is not well-formed")
    if len(calls) > MAX_CALLS:
        raise Refused("too large", f"a request has at most {MAX_CALLS:,} calls", number)
    return Request(number, calls, nodes, is_quick(text, nodes))


def prepare(
    request: Request,
    tools: Mapping[str, Tool],
    room: Room,
    *,
    kept_chars: int,
    secrets: Sequence[str],
) -> list[Made]:
    """Return the calls of a request with checked arguments, or with the faults of them.

    Parameters
    ----------
    request, tools
        What is asked for, and what there is.
    room
        What the arguments may become, all together.
    kept_chars
        Of each call's arguments that the trace keeps.
    secrets
        What is cut from that.

    Raises
    ------
    TooMuch
        There is no room for them.
    """
    room.take(NODE_BYTES * request.nodes)
    return [_prepare(call, tools, room, kept_chars, secrets) for call in request.calls]


def _prepare(
    call: Any, tools: Mapping[str, Tool], room: Room, kept_chars: int, secrets: Sequence[str]
) -> Made:
    described = call if isinstance(call, dict) else {}
    name = described.get("name")
    made = Made(name=name if isinstance(name, str) else "", tool=None)
    try:
        args, kwargs = _arguments(made, described, tools, room)
    except TooMuch:
        raise
    except ValueError as error:
        made.name, made.tool, made.refused = "", None, "malformed"
        message = str(error)[:MAX_MESSAGE]
        made.error = {"ok": False, "type": "ValueError", "message": message}
        return made
    made.arguments = json_without(keep_arguments(args, kwargs, kept_chars), secrets)
    check(made, args, kwargs, room, tools)
    return made


def _arguments(
    made: Made, described: Mapping[str, Any], tools: Mapping[str, Tool], room: Room
) -> tuple[list[Any], dict[str, Any]]:
    """Find the tool of a call; only where there is one, decode its arguments.

    Raises
    ------
    ValueError
        The call is not well-formed.
    """
    made.tool = tools.get(made.name)
    args, kwargs = described.get("args"), described.get("kwargs")
    if made.tool is not None:
        args, kwargs = decode(args, room), decode(kwargs, room)
    if isinstance(described.get("name"), str) and isinstance(args, list):  # noqa: SIM102 - one each
        if isinstance(kwargs, dict) and all(type(key) is str for key in kwargs):
            return args, kwargs
    raise ValueError("the call is not well-formed")


def _no_tool(name: str, tools: Mapping[str, Tool]) -> str:
    """Say that there is no such tool, and which there are."""
    near = did_you_mean(name[:200], tools)
    there = f" The tools: {one_line(', '.join(tools), MAX_NAMED)}." if tools and not near else ""
    return f"there is no tool {name[:200]!r}.{near}{there}"


_pydantic_is_imported = threading.Event()
"""``sys.modules`` has a module as soon as its import begins: the loop would wait for the rest."""


def check(
    made: Made,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    room: Room,
    tools: Mapping[str, Tool],
) -> None:
    """Check a call's arguments by its tool; faults go to ``refused`` and ``failed``.

    Raises
    ------
    TooMuch
        The check may take long, and the room is for what is quick.
    """
    tool = made.tool
    if tool is None:
        made.refused = "unknown tool"
        made.failed = ToolError(_no_tool(made.name, tools), kind="NameError")
        return
    if tool.checks_at_length or not _pydantic_is_imported.is_set():
        room.library()
    from pydantic import ValidationError

    _pydantic_is_imported.set()
    try:
        made.args, made.kwargs = tool.check(args, kwargs)
    except ValidationError as error:
        made.refused = "wrong arguments"
        made.failed = ToolError(_problems(error, tool), kind="TypeError")
    except BaseException as error:  # a check of the tool's own may raise anything, SystemExit, too
        made.failed = error


def _problems(error: Any, tool: Tool) -> str:
    """Return the problems of the arguments, one after the other, by parameter."""
    count = error.error_count()
    if count > MANY_PROBLEMS:  # to write all of 150,000 down takes half a second in one step
        return f"{count:,} values in the arguments of {tool.name} are not what they should be"

    def where(place: Sequence[int | str]) -> str:
        return ".".join(map(str, (tool.positional(place[0]), *place[1:])))

    problems = (
        f"{where(e['loc'])}: {e['msg']}"
        for e in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return "; ".join(problems)[:MAX_MESSAGE]


# --- results -------------------------------------------------------------------------------------


def is_short(value: Any) -> bool:
    """Whether a result is written in less than a millisecond: a short text, a few plain values."""
    if isinstance(value, (list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return len(value) <= QUICK_ITEMS and all(map(_is_plain, items))
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    if type(value) is str:
        return len(value) <= QUICK_TEXT // QUICK_ITEMS
    return value is None or type(value) in (bool, int, float)


def write(made: Made, *, max_chars: int, kept_chars: int, secrets: Sequence[str]) -> None:
    """Give a call's value its form for the wire and for the trace, without secrets.

    Raises
    ------
    ToolError
        It cannot be sent, or is too large.
    """
    try:
        text = json.dumps(encode(made.value))
    except Exception as error:  # a type of the tool's own may raise anything
        message = f"the result of {made.name} cannot be sent: {text_of(error)}"
        raise ToolError(message, kind="TypeError") from None
    if len(text) > max_chars:
        raise ToolError(
            f"the result of {made.name} is too large to send: {len(text):,} characters of at "
            f"most {max_chars:,}; ask for less",
            kind="ValueError",
        )
    made.result = json_text_without(text, secrets)
    keep(made, kept_chars, secrets)


def keep(made: Made, kept_chars: int, secrets: Sequence[str]) -> None:
    """Note a call's value for the trace."""
    whole = without_secrets(made.value, secrets) if type(made.value) is str else made.value
    made.kept = json_without(keep_result(whole, kept_chars), secrets)


def json_without(made: Json, secrets: Sequence[str]) -> Json:
    """Return JSON without secrets."""
    if not secrets:
        return made
    text = json.dumps(made)
    cut = json_text_without(text, secrets)
    return made if cut == text else json.loads(cut)


def text_of(error: BaseException) -> str:
    """Return an exception's message; one that cannot be asked for it has none. It may be long."""
    try:
        return str(error)[: 50 * MAX_MESSAGE]  # secrets are cut first: half of one is not found
    except Exception as failed:
        return f"(its message could not be read: {type(failed).__name__})"
