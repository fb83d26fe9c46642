"""The broker: answers the kernel's calls of host tools, and alone holds what they need.

The host's end of the wire that :mod:`kernel_agent.inside.host` describes. The kernel is hostile:
a request that is not well-formed is answered with an error and counted; nothing that a request
holds is executed, imported or unpickled; names are looked up in a fixed table.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from kernel_agent.errors import ToolError
from kernel_agent.records import Call, HostCall, Json
from kernel_agent.tools.tool import Tool

PREFIX = "kernel-agent/1 "
MAX_REQUEST = 32_000_000  # characters of one request
MAX_RESULT = 32_000_000  # characters of one reply
MAX_CALLS = 10_000  # calls in one request
SIDE_BY_SIDE = 16  # calls of one request that run at the same time


Calling = Callable[[Tool, list[Any], dict[str, Any]], Awaitable[Any]]

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
        Calls a tool; for whoever watches the calls.
    """

    def __init__(self, tools: Sequence[Tool], *, calling: Calling | None = None) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._calling = calling or _call
        self._calls: list[HostCall] = []
        self._count = 0
        self._places = asyncio.Semaphore(SIDE_BY_SIDE)
        self.refused = 0
        """Requests that were not well-formed."""

    def take_calls(self) -> tuple[HostCall, ...]:
        """Return the calls since the last time, in the order of their answers."""
        calls, self._calls = tuple(self._calls), []
        return calls

    async def answer(self, prompt: str) -> str:
        """Answer one request of the kernel; called by the kernel client for each.

        Never raises: whatever goes wrong is an answer.
        """
        try:
            number, calls = _read(prompt)
        except ValueError as error:
            self.refused += 1
            return json.dumps({"id": None, "results": [], "error": str(error)})
        results = await asyncio.gather(*(self._one(call) for call in calls))
        reply = json.dumps({"id": number, "results": results})
        if len(reply) > MAX_RESULT:
            too_long = {
                "ok": False, "type": "ValueError", "message": "the result is too long to send",
            }  # fmt: skip
            reply = json.dumps({"id": number, "results": [too_long] * len(calls)})
        return reply

    async def call(self, call: Call) -> HostCall:
        """Make one call for an action that is calls; as the kernel's calls are made.

        Never raises: whatever goes wrong is in the result. Cancelling it gives up waiting.
        """
        kwargs = dict(call.arguments)
        _, made = await self._made(call.name, [], kwargs)
        return made

    async def _one(self, call: Any) -> dict[str, Json]:
        result, made = await self._made(*_parts(call))
        self._calls.append(made)
        return result

    async def _made(
        self, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Json], HostCall]:
        self._count += 1
        number, began = self._count, time.monotonic()
        noted: dict[str, Any] = {}
        _NOTED.set(noted)
        async with self._places:
            result = await self._call(name, args, kwargs)
        made = HostCall(
            name=name[:200],
            arguments={"args": args, "kwargs": kwargs},
            ok=result["ok"],
            result=result.get("value"),
            error="" if result["ok"] else f"{result['type']}: {result['message']}",
            seconds=time.monotonic() - began,
            number=number,
            untrusted=name in self._tools and self._tools[name].untrusted,
        )
        return result, dataclasses.replace(made, **noted)

    async def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Json]:
        try:
            result = await self._calling(self._tool(name), args, kwargs)
            return {"ok": True, "value": _plain(result)}
        except ToolError as error:
            return {"ok": False, "type": error.kind, "message": str(error)}
        except Exception as error:  # a tool may raise anything; the kernel is told
            return {"ok": False, "type": _kind(error), "message": _message(error)}

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            raise ToolError(f"there is no tool {name!r}", kind="NameError")
        return self._tools[name]


async def _call(tool: Tool, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return await tool.call(args, kwargs)


def _read(prompt: str) -> tuple[int, list[Any]]:
    if len(prompt) > MAX_REQUEST:
        raise ValueError("the request is too long")
    if not prompt.startswith(PREFIX):
        raise ValueError("input() is not available: nobody is at the keyboard")
    try:
        request = json.loads(prompt[len(PREFIX) :])
        number, calls = request["id"], request["calls"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the request is not well-formed") from None
    if not isinstance(number, int) or not isinstance(calls, list) or len(calls) > MAX_CALLS:
        raise ValueError("the request is not well-formed")
    return number, calls


def _parts(call: Any) -> tuple[str, list[Any], dict[str, Any]]:
    described = call if isinstance(call, dict) else {}
    name, args, kwargs = (described.get(k) for k in ("name", "args", "kwargs"))
    return (
        name if isinstance(name, str) else "",
        args if isinstance(args, list) else [],
        kwargs if isinstance(kwargs, dict) else {},
    )


def _plain(value: Any) -> Json:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    if type(value).__name__ == "DataFrame" and hasattr(value, "to_json"):
        return json.loads(value.to_json(orient="records", date_format="iso"))
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        value = value.tolist()
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise ToolError(f"the tool's result has no JSON form: {error}", kind="TypeError") from None


def _kind(error: Exception) -> str:
    return "TypeError" if type(error).__name__ == "ValidationError" else type(error).__name__


def _message(error: Exception) -> str:
    if hasattr(error, "errors") and type(error).__name__ == "ValidationError":
        problems = (
            f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()
        )
        return "; ".join(problems)
    return str(error)[:2000]
