"""The broker: answers the kernel's calls of host tools, and alone holds what they need.

The host's end of the wire that :mod:`kernel_agent.inside.host` describes. The kernel is hostile:

* nothing that a request holds is executed, imported or unpickled; names are looked up in a fixed
  table, values are decoded by :mod:`kernel_agent.inside.values` and checked by pydantic;
* a request that is not well-formed, too large, one too many or not the next one is answered with an
  error and counted; what is refused before it is read costs a glance at its length;
* whatever is still under way when the cell ends is given up: nothing works for a cell that is over.

Each bound is a constant here. What was called is kept for the trace, within bounds of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.decisions import DENIED, denial
from kernel_agent.errors import ToolError
from kernel_agent.inside.values import decode, encode
from kernel_agent.records import Call, Decision, HostCall, Json
from kernel_agent.text import json_items
from kernel_agent.tools.kept import kept, kept_arguments
from kernel_agent.tools.secrets import check_tools, without_secrets
from kernel_agent.tools.tool import Tool

PREFIX = "kernel-agent/1 "
MAX_REQUEST = 32_000_000  # characters of one request
MAX_NODES = 1_000_000  # lists, objects and items in one request: each costs many times its length
MAX_CALLS = 1_000  # calls in one request
MAX_UNDER_WAY = 160  # requests that wait for their answer; our own kernel has 128
MAX_WEIGHT = 96_000_000  # characters of all requests that wait, with NODE_WEIGHT for each node
NODE_WEIGHT = 32
MAX_CELL_CALLS = 100_000  # calls in one cell
MAX_RESULT = 64_000_000  # characters of one call's result
MAX_ID = 2**53

SIDE_BY_SIDE = 128  # calls that run at the same time
GRACE_S = 1.0  # for async tools to end once they are cancelled

KEPT_CHARS = 20_000  # of the arguments, and of the result, that the trace keeps of one call
KEPT_DIRECT = 4_000_000  # the same where the call is the action, and its result the observation
KEPT_CELL_CHARS = 2_000_000  # of all calls of one cell
LISTED = 10_000  # calls of one cell that are listed; more are counted
MAX_MESSAGE = 2_000  # characters of an error

Calling = Callable[[Tool, Sequence[Any], dict[str, Any]], Awaitable[Any]]
Admit = Callable[[Tool, dict[str, Any]], Awaitable[Decision]]
Mark = Callable[[HostCall, Any], HostCall]

_CELL_OVER = {
    "ok": False,
    "type": "RuntimeError",
    "message": "the cell was over before the call was",
}


class _Refused(Exception):
    """A request that is not answered by calls."""

    def __init__(self, kind: str, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.number = number


@dataclass(frozen=True)
class _Request:
    number: int
    calls: list[Any]
    weight: int


@dataclass
class _Made:
    """One call, as far as it has come."""

    name: str
    arguments: Json = None
    tool: Tool | None = None
    begun: bool = False
    decision: Decision | None = None
    noted: dict[str, Any] = field(default_factory=dict)
    value: Any = None
    result: Json = None  # for the wire
    error: Json = None


_NOTED: ContextVar[dict[str, Any]] = ContextVar("noted")


def note(**facts: Any) -> None:
    """Put facts into the record of the call that is being made; called by a tool, before it ends.

    Parameters
    ----------
    facts
        Fields of :class:`~kernel_agent.records.HostCall`.
    """
    noted = _NOTED.get(None)
    if noted is not None:
        noted.update(facts)


class Broker:
    """Answers requests from one kernel.

    Parameters
    ----------
    tools
        What may be called.
    calling
        Calls a tool with checked arguments; for whoever watches the calls.
    admit
        Decides on each call, with its checked arguments by name, before it is made. What it does
        not allow is a ``PermissionError``.
    mark
        Completes the record of each call as soon as it is over, given what the tool returned.
    secrets
        Texts that never go to the kernel or into the trace
        (:func:`~kernel_agent.tools.secrets.secrets_of`).
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        calling: Calling | None = None,
        admit: Admit | None = None,
        mark: Mark | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        check_tools(tools, secrets)
        self._tools = {tool.name: tool for tool in tools}
        self._calling = calling or _call
        self._admit = admit
        self._mark = mark or _unmarked
        self._secrets = tuple(secrets)
        self._places = asyncio.Semaphore(SIDE_BY_SIDE)
        self._number = 0  # of the latest call in this session
        self._last_id = 0  # of the requests of this kernel
        self._waiting: set[asyncio.Task[Json]] = set()  # calls that somebody waits for
        self._working: set[asyncio.Task[None]] = set()  # what does them; may go on for nobody
        self._under_way = self._weight = 0
        self._begin_cell()

    def _begin_cell(self) -> None:
        self._calls: list[HostCall] = []
        self._counted: Counter[str] = Counter()
        self._cell_calls = 0
        self._kept = 0

    # --- for the executor ------------------------------------------------------------------

    def fresh_kernel(self) -> None:
        """Expect the requests of another kernel, whose ids begin again."""
        self._last_id = 0

    async def end_cell(self) -> None:
        """Give up what is still under way; called when a cell is over, however it ended.

        An ``async`` tool is cancelled. A plain function cannot be: it is abandoned, and counted.
        """
        for task in tuple(self._waiting):
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        if self._working:
            _, left = await asyncio.wait(self._working, timeout=GRACE_S)
            self._counted["abandoned"] += len(left)
            self._working -= left
        self._counted += Counter()  # without zeros

    def take_calls(self) -> tuple[HostCall, ...]:
        """Return the calls since the last time, in the order of their answers."""
        calls, self._calls = tuple(self._calls), []
        return calls

    def take_counted(self) -> dict[str, int]:
        """Return what was counted since the last time, by kind; begins a new cell's counting."""
        counted = dict(self._counted)
        calls = self._calls
        self._begin_cell()
        self._calls = calls
        return counted

    @property
    def refused(self) -> int:
        """Requests of this cell that were not answered by calls."""
        kinds = ("input", "malformed", "too large", "replayed", "flood")
        return sum(self._counted[kind] for kind in kinds)

    # --- requests --------------------------------------------------------------------------

    async def answer(self, prompt: str) -> str:
        """Answer one request of the kernel; called by the kernel client for each.

        Never raises: whatever goes wrong is an answer. Cancelling it gives up its calls.
        """
        try:
            request = self._take(prompt)
        except _Refused as refused:
            self._counted[refused.kind] += 1
            error = {"type": _TYPES.get(refused.kind, "ValueError"), "message": str(refused)}
            return json.dumps({"id": refused.number, "results": [], "error": error})
        del prompt  # it may be large, and the calls may take long
        self._under_way += 1
        self._weight += request.weight
        try:
            results = await asyncio.gather(*map(self._begin, request.calls))
        finally:
            self._under_way -= 1
            self._weight -= request.weight
        return json.dumps({"id": request.number, "results": results})

    def _take(self, prompt: str) -> _Request:
        """Read a request, or refuse it; the cheapest looks come first."""
        if not prompt.startswith(PREFIX):
            raise _Refused("input", "input() is not available: nobody is at the keyboard")
        if len(prompt) > MAX_REQUEST:
            raise _Refused("too large", f"the request has more than {MAX_REQUEST:,} characters")
        nodes = json_items(prompt, MAX_NODES)
        if nodes > MAX_NODES:
            raise _Refused(
                "too large",
                f"the request has more than {MAX_NODES:,} items: send an array or a table",
            )
        weight = len(prompt) + NODE_WEIGHT * nodes
        if self._under_way >= MAX_UNDER_WAY or self._weight + weight > MAX_WEIGHT + MAX_REQUEST:
            raise _Refused("flood", "too many requests are under way: wait for their answers")
        number, calls = _read(prompt)
        if number <= self._last_id:
            raise _Refused("replayed", "the request is not the next one", number)
        self._last_id = number
        self._cell_calls += len(calls)
        if self._cell_calls > MAX_CELL_CALLS:
            raise _Refused(
                "flood", f"a cell may make {MAX_CELL_CALLS:,} calls, and this one made more", number
            )
        return _Request(number, calls, weight)

    def _begin(self, call: Any) -> asyncio.Task[Json]:
        task = asyncio.ensure_future(self._one(call))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return task

    async def _one(self, call: Any) -> Json:
        made = _Made(name="")
        room = min(KEPT_CHARS, max(KEPT_CELL_CHARS - self._kept, 0))
        try:
            made.name, args, kwargs = _parts(call)
        except ValueError as error:
            self._counted["malformed"] += 1
            made.error = {"ok": False, "type": "ValueError", "message": str(error)}
            return self._list(made, 0.0, 0)
        seconds = await self._make(made, args, kwargs, room)
        if made.error is None:
            self._encode(made)
        return self._list(made, seconds, room)

    async def call(self, call: Call) -> HostCall:
        """Make one call for an action that is calls; as the kernel's calls are made.

        Never raises: whatever goes wrong is in the result. Cancelling it gives up waiting.
        """
        made = _Made(name=call.name)
        tool = self._tools.get(call.name)
        args, kwargs = tool.spread(call.arguments) if tool else ([], dict(call.arguments))
        work = asyncio.ensure_future(self._make(made, args, kwargs, KEPT_DIRECT))
        try:
            seconds = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait((work,))
            raise
        try:
            made.value = _plain(made.value)
        except ToolError as error:
            made.error = self._error(error)
        return self._host_call(made, seconds, KEPT_DIRECT)

    # --- one call --------------------------------------------------------------------------

    async def _make(self, made: _Made, args: list[Any], kwargs: dict[str, Any], room: int) -> float:
        """Make a call when there is a place for it, and wait for it or for the cell's end."""
        began = time.monotonic()
        work = asyncio.ensure_future(self._work(made, args, kwargs, room))
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            work.cancel()
            _uncancel()
            made.error = dict(_CELL_OVER)
            if made.begun and made.tool is not None and not made.tool.waits:
                self._counted["abandoned"] += 1
        return time.monotonic() - began

    async def _work(self, made: _Made, args: list[Any], kwargs: dict[str, Any], room: int) -> None:
        """Look up, check, ask, call. Raises nothing: no tool may end the host's loop."""
        _NOTED.set(made.noted)
        try:
            async with self._places:
                value = await self._value(made, args, kwargs, room)
        except BaseException as error:
            if made.error is None:
                made.error = self._error(error)
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
        else:
            if made.error is None:  # and nobody has given it up
                made.value = value

    async def _value(self, made: _Made, args: list[Any], kwargs: dict[str, Any], room: int) -> Any:
        made.arguments = self._without_secrets(kept_arguments(args, kwargs, room))
        tool = made.tool = self._tools.get(made.name)
        if tool is None:
            self._counted["unknown tool"] += 1
            raise ToolError(f"there is no tool {made.name[:200]!r}", kind="NameError")
        from pydantic import ValidationError

        try:
            checked_args, checked_kwargs = tool.check(args, kwargs)
        except ValidationError as error:
            self._counted["wrong arguments"] += 1
            raise ToolError(_problems(error, tool), kind="TypeError") from None
        if self._admit is not None:
            given = tool.by_parameter(checked_args, checked_kwargs)
            made.decision = await self._admit(tool, given)
            if not made.decision.allowed:
                self._counted["denied"] += 1
                raise ToolError(denial(f"the call of {made.name}", made.decision), kind=DENIED)
        made.begun = True
        return await self._calling(tool, checked_args, checked_kwargs)

    def _encode(self, made: _Made) -> None:
        """Give the value its form for the wire, without secrets and within the bound."""
        try:
            value = encode(made.value)
            text = json.dumps(value)
        except Exception as error:  # a type of the tool's own may raise anything
            message = f"the result of {made.name} cannot be sent: {_text(error)}"
            made.error = self._error(ToolError(message, kind="TypeError"))
            return
        if len(text) > MAX_RESULT:
            message = (
                f"the result of {made.name} is too large to send: {len(text):,} characters of at "
                f"most {MAX_RESULT:,}; ask for less"
            )
            made.error = self._error(ToolError(message, kind="ValueError"))
            return
        cut = without_secrets(text, self._secrets)
        made.result = value if cut == text else json.loads(cut)

    def _error(self, error: BaseException) -> dict[str, Json]:
        """Describe an exception for the wire: its type, its message, and its arguments if plain."""
        if isinstance(error, ToolError):
            message = without_secrets(str(error), self._secrets)[:MAX_MESSAGE]
            return {"ok": False, "type": error.kind, "message": message}
        message = without_secrets(_text(error), self._secrets)[:MAX_MESSAGE]
        described: dict[str, Json] = {
            "ok": False, "type": type(error).__name__[:200], "message": message,
        }  # fmt: skip
        args = _plain_args(error)
        if args is not None:
            described["args"] = [
                without_secrets(arg, self._secrets) if isinstance(arg, str) else arg for arg in args
            ]
        return described

    # --- what the trace is told ------------------------------------------------------------

    def _list(self, made: _Made, seconds: float, room: int) -> Json:
        """Keep a call for the trace; return its result for the wire."""
        is_listed = len(self._calls) < LISTED
        call = self._host_call(made, seconds, room if is_listed else 0)
        if not is_listed:
            self._counted["not listed"] += 1
        else:
            self._kept += len(json.dumps([call.arguments, call.result]))
            self._calls.append(call)
        return made.error if made.error is not None else {"ok": True, "value": made.result}

    def _host_call(self, made: _Made, seconds: float, room: int) -> HostCall:
        self._number += 1
        error = made.error if isinstance(made.error, dict) else {}
        call = HostCall(
            name=made.name[:200],
            arguments=made.arguments,
            ok=not error,
            result=None if error else self._without_secrets(kept(made.value, room)),
            error=f"{error['type']}: {error['message']}" if error else "",
            seconds=max(seconds - (made.decision.seconds if made.decision else 0.0), 0.0),
            number=self._number,
            decision=made.decision,
            untrusted=made.tool is not None and made.tool.untrusted,
        )
        return self._mark(dataclasses.replace(call, **made.noted), made.value)

    def _without_secrets(self, made: Json) -> Json:
        if not self._secrets:
            return made
        text = json.dumps(made)
        cut = without_secrets(text, self._secrets)
        return made if cut == text else json.loads(cut)


_TYPES = {"input": "RuntimeError", "flood": "RuntimeError", "replayed": "RuntimeError"}


def _unmarked(call: HostCall, _result: Any) -> HostCall:
    return call


async def _call(tool: Tool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return await tool.call(args, kwargs)


# --- reading ---------------------------------------------------------------------------------


def _read(prompt: str) -> tuple[int, list[Any]]:
    try:
        request = json.loads(prompt[len(PREFIX) :])
        number, calls = request["id"], request["calls"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _Refused("malformed", "the request is not well-formed") from None
    if type(number) is not int or not 0 < number < MAX_ID or not isinstance(calls, list):
        raise _Refused("malformed", "the request is not well-formed")
    if len(calls) > MAX_CALLS:
        raise _Refused("too large", f"a request has at most {MAX_CALLS:,} calls", number)
    return number, calls


def _parts(call: Any) -> tuple[str, list[Any], dict[str, Any]]:
    """Read one call of a request.

    Raises
    ------
    ValueError
        It is not well-formed.
    """
    described = call if isinstance(call, dict) else {}
    name = described.get("name")
    args, kwargs = (decode(described.get(key, None)) for key in ("args", "kwargs"))
    named = isinstance(kwargs, dict) and all(type(key) is str for key in kwargs)
    if isinstance(name, str) and isinstance(args, list) and named:
        return name, args, kwargs
    raise ValueError("the call is not well-formed")


# --- writing ---------------------------------------------------------------------------------


def _plain(value: Any) -> Json:
    """Return a value in JSON types alone, for a model that reads it."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    if type(value).__name__ == "DataFrame" and hasattr(value, "to_json"):
        return json.loads(value.to_json(orient="records", date_format="iso"))
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        value = value.tolist()
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise ToolError(f"the tool's result has no JSON form: {error}", kind="TypeError") from None


def _problems(error: Any, tool: Tool) -> str:
    """Return what is wrong with the arguments, one problem after the other, by parameter."""

    def where(place: Sequence[int | str]) -> str:
        first, *rest = place
        return ".".join(map(str, (tool.positional(first), *rest)))

    problems = (
        f"{where(e['loc'])}: {e['msg']}"
        for e in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return "; ".join(problems)[:MAX_MESSAGE]


def _text(error: BaseException) -> str:
    """Return an exception's message; one that cannot be asked for it has none."""
    try:
        return str(error)[:MAX_MESSAGE]
    except Exception as failed:
        return f"(its message could not be read: {type(failed).__name__})"


def _plain_args(error: BaseException) -> list[Json] | None:
    """Return the arguments that an exception was made with, if they are short and plain."""
    args = error.args
    if isinstance(error, OSError) and error.filename is not None:
        args = (error.errno, error.strerror, str(error.filename))
    short = all(
        arg is None
        or type(arg) in (bool, int, float)
        or (type(arg) is str and len(arg) <= MAX_MESSAGE)
        for arg in args
    )
    return list(args) if short and len(args) <= 5 else None


def _is_cancelled() -> bool:
    """Whether somebody cancelled the running task; otherwise the tool raised it itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
