"""Make a call of a host tool: ask, call, and describe it for the wire and the trace.

The broker (:mod:`.broker`) has read and checked what was asked for. A call waits for its place and
for the policy; when its cell ends first, it is given up, and nothing works for a cell that is over.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from kernel_agent.errors import ToolError
from kernel_agent.records import DENIED, Decision, HostCall, Json, denial
from kernel_agent.tools.definition import Origin, Tool
from kernel_agent.tools.requests import MAX_MESSAGE, Made, is_short, text_of, write
from kernel_agent.tools.secrets import without_secrets
from kernel_agent.tools.threads import in_thread

MAX_RESULT = 64_000_000  # characters of one call's result
SIDE_BY_SIDE = 128  # calls that run at the same time
GRACE_S = 1.0  # for async tools to end once they are cancelled

T = TypeVar("T")
Calling = Callable[[Tool, Sequence[Any], dict[str, Any]], Awaitable[Any]]
Admit = Callable[[Tool, dict[str, Any], Origin], Awaitable[Decision]]
Mark = Callable[[HostCall, Any], HostCall]

CELL_OVER = {
    "ok": False,
    "type": "RuntimeError",
    "message": "the cell was over before the call was",
}


async def call_plainly(tool: Tool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a tool without telemetry."""
    return await tool.call(args, kwargs)


def leave_unmarked(call: HostCall, _result: Any) -> HostCall:
    """Return a call's record as it is."""
    return call


class Caller:
    """Makes calls, and describes them.

    Parameters
    ----------
    calling, admit, mark, secrets
        As for the broker.
    counted
        Counts by kind what was denied or abandoned; the broker's.
    """

    def __init__(
        self,
        *,
        calling: Calling,
        admit: Admit | None,
        mark: Mark,
        secrets: Sequence[str],
        counted: Counter[str],
    ) -> None:
        self._calling = calling
        self._admit = admit
        self._mark = mark
        self._secrets = secrets
        self._counted = counted
        self._places = asyncio.Semaphore(SIDE_BY_SIDE)
        self._number = 0  # of the latest call in this session
        self._working: set[asyncio.Task[None]] = set()  # what does calls; may go on for nobody

    def number(self, calls: int = 1) -> int:
        """Return the first number for so many calls, as soon as they are asked for."""
        first = self._number + 1
        self._number += calls
        return first

    async def give_up(self) -> None:
        """Wait a moment for calls of a cell that is over, and count those that go on."""
        if self._working:
            _, left = await asyncio.wait(self._working, timeout=GRACE_S)
            self._counted["abandoned"] += len(left)
            self._working -= left

    async def make(self, made: Made) -> float:
        """Make a call when there is a place for it, and wait for it or for the cell's end."""
        began = time.monotonic()
        work = asyncio.ensure_future(self._work(made))
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            work.cancel()
            _uncancel()
            made.error = dict(CELL_OVER)
            if made.begun and made.tool is not None and not made.tool.waits:
                self._counted["abandoned"] += 1
        return time.monotonic() - began

    async def _work(self, made: Made) -> None:
        """Ask, and call."""
        with self.failing(made):
            async with self._places:
                value = await self._value(made)
            if made.error is None:  # and nobody has given it up
                made.value = value

    @contextmanager
    def failing(self, made: Made) -> Iterator[None]:
        """Turn whatever is raised into the call's error: no tool may end the host's loop.

        Raises
        ------
        asyncio.CancelledError
            Somebody gave the call up.
        """
        try:
            yield
        except BaseException as error:
            if made.error is None:
                made.error = self.describe(error)
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise

    async def _value(self, made: Made) -> Any:
        if made.failed is not None:
            raise made.failed
        tool = made.tool
        assert tool is not None
        if self._admit is not None:
            given = tool.by_parameter(made.args, made.kwargs)
            made.decision = await self._admit(tool, given, made.origin)
            if not made.decision.allowed:
                self._counted["denied"] += 1
                raise ToolError(denial(f"the call of {made.name}", made.decision), kind=DENIED)
        made.begun = True
        args, kwargs, made.args, made.kwargs = made.args, made.kwargs, (), {}
        return await self._calling(tool.within(made.origin, made.noted.update), args, kwargs)

    async def write(self, made: Made, room: int) -> None:
        """Give the value its form for the wire and the trace, without secrets, within bounds."""
        writing = partial(write, made, max_chars=MAX_RESULT, kept_chars=room, secrets=self._secrets)
        try:
            with self.failing(made):
                if is_short(made.value):
                    writing()
                else:
                    await to_the_end(writing)
        except asyncio.CancelledError:
            _uncancel()
            made.error = dict(CELL_OVER)

    def describe(self, error: BaseException) -> dict[str, Json]:
        """Describe an exception for the wire: its type, its message, and its arguments if plain."""
        if isinstance(error, ToolError):
            message = without_secrets(str(error), self._secrets)[:MAX_MESSAGE]
            return {"ok": False, "type": error.kind, "message": message}
        message = without_secrets(text_of(error), self._secrets)[:MAX_MESSAGE]
        described: dict[str, Json] = {
            "ok": False, "type": type(error).__name__[:200], "message": message,
        }  # fmt: skip
        args = _plain_args(error)
        if args is not None:
            described["args"] = [
                without_secrets(arg, self._secrets) if isinstance(arg, str) else arg for arg in args
            ]
        return described

    def record(self, made: Made, seconds: float) -> HostCall:
        """Return the record of a call that is over."""
        error = made.error or {}
        call = HostCall(
            name=made.name[:200],
            arguments=made.arguments,
            ok=not error,
            result=None if error else made.kept,
            error=f"{error['type']}: {error['message']}" if error else "",
            seconds=max(seconds - (made.decision.seconds if made.decision else 0.0), 0.0),
            number=made.number,
            decision=made.decision,
            untrusted=made.tool is not None and made.tool.untrusted,
        )
        return self._mark(dataclasses.replace(call, **made.noted), made.value)


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


async def to_the_end(function: Callable[..., T], *args: Any) -> T:
    """Run a function in a thread, and wait for its end even when cancelled.

    What it takes is taken until then, and is to be counted.
    """
    work = asyncio.ensure_future(in_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,))
        raise
