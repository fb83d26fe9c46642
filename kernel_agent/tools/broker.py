"""The broker: answers the kernel's calls of host tools, and alone holds their credentials.

The host's end of the wire that :mod:`kernel_agent.inkernel.rpc` describes. The kernel is hostile:

* nothing that a request holds is executed, imported or unpickled; names are looked up in a fixed
  table, values are decoded by :mod:`kernel_agent.inkernel.values` and checked by pydantic;
* a request that is not well-formed, too large, one too many or not the next one is answered with an
  error and counted; what is refused before it is read costs a glance at its length;
* what it stands for is charged before it is decoded, in a thread where that is not quick, and only
  for a tool that there is (:mod:`kernel_agent.safe.gate`, :mod:`.requests`);
* what is still under way when the cell ends is given up: nothing works for a cell that is over.

Each bound is a constant here. What was called is kept for the trace, within bounds of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from kernel_agent.errors import ToolError
from kernel_agent.inkernel import Room, TooMuch
from kernel_agent.records import Call, HostCall, Json
from kernel_agent.safe import HELD, QUICK_CHARS, Charge, Pot, count, is_quick, one_line
from kernel_agent.tools.caller import (
    CELL_OVER,
    Admit,
    Caller,
    Calling,
    Mark,
    call_plainly,
    leave_unmarked,
    to_the_end,
)
from kernel_agent.tools.definition import ANYWHERE, Origin, Tool
from kernel_agent.tools.recorded import keep_arguments
from kernel_agent.tools.requests import (
    MAX_MESSAGE,
    PREFIX,
    Made,
    Refused,
    Request,
    check,
    json_without,
    keep,
    prepare,
    read,
)
from kernel_agent.tools.secrets import check_tools, without_secrets
from kernel_agent.tools.threads import in_thread

MAX_REQUEST = 32_000_000  # characters of one request
MAX_UNDER_WAY = 160  # requests that wait for their answer; our own kernel has 128
MAX_WEIGHT = 96_000_000  # characters of all requests that wait; one more may come
MAX_CELL_CALLS = 100_000  # calls in one cell

KEPT_CHARS = 20_000  # of the arguments of one call that the trace keeps
KEPT_RESULT = 1_000_000  # of its result, with which its notebook runs again
KEPT_DIRECT = 4_000_000  # of both where the call is the action, and its result the observation
KEPT_CELL_CHARS = 8_000_000  # of all calls of one cell
KEPT_FOR_SMALL = 2_000_000  # of these for results no longer than arguments
LISTED = 10_000  # calls of one cell that are listed; more are counted

T = TypeVar("T")


class Broker:
    """Answers requests from one kernel.

    Parameters
    ----------
    tools
        What may be called.
    calling
        Calls a tool with checked arguments; telemetry puts a span around it.
    admit
        Decides on each call, with its checked arguments by name and where it comes from, before it
        is made. What it does not allow is a ``PermissionError``.
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
        self._secrets = tuple(secrets)
        self._counted: Counter[str] = Counter()
        self._caller = Caller(
            calling=calling or call_plainly,
            admit=admit,
            mark=mark or leave_unmarked,
            secrets=self._secrets,
            counted=self._counted,
        )
        self._last_id = 0  # of the requests of this kernel
        self._waiting: set[asyncio.Task[Any]] = set()  # calls that somebody waits for
        self._under_way = self._weight = 0
        self._pot = Pot()
        self._reading = asyncio.Lock()  # one request after the other, as they came
        self._in_line = 0  # requests that are read or wait for it
        self._begin_cell()

    def _begin_cell(self) -> None:
        self._calls: list[HostCall] = []
        self._counted.clear()
        self._cell_calls = 0
        self._kept = 0

    # --- for the executor ------------------------------------------------------------------

    def fresh_kernel(self) -> None:
        """Expect the requests of another kernel, whose ids begin again."""
        self._last_id = 0

    async def end_cell(self) -> None:
        """Give up requests that are still under way; called when a cell has ended in any way.

        An ``async`` tool is cancelled. A plain function cannot be: it is abandoned, and counted.
        """
        for task in tuple(self._waiting):
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        await self._caller.give_up()

    def take_calls(self) -> tuple[HostCall, ...]:
        """Return the calls since the last time, in the order in which they were asked for."""
        calls, self._calls = tuple(sorted(self._calls, key=lambda call: call.number)), []
        return calls

    def take_counted(self) -> dict[str, int]:
        """Return the counts since the last time, by kind, and begin a new cell's."""
        counted = dict(+self._counted)  # without zeros
        calls = self._calls
        self._begin_cell()
        self._calls = calls
        return counted

    @property
    def refused(self) -> int:
        """Requests of this cell that were not answered by calls."""
        kinds = ("input", "malformed", "too large", "replayed", "flood", "failed")
        return sum(self._counted[kind] for kind in kinds)

    # --- requests --------------------------------------------------------------------------

    async def answer(self, prompt: str, origin: Origin = ANYWHERE) -> str:
        """Answer one request of the kernel; called by the kernel client for each.

        Never raises: every failure is an answer. Cancelling it gives up its calls.

        Parameters
        ----------
        prompt
            The request.
        origin
            Where it comes from.
        """
        weight = len(prompt)
        try:
            self._look(prompt)
        except Refused as refused:
            return self._refusal(refused)
        charge = self._pot.charge(weight)
        HELD.set(charge)
        self._under_way += 1
        self._weight += weight
        try:
            return await self._answer_in_turn([prompt], charge, origin)
        except Refused as refused:
            return self._refusal(refused)
        except Exception as error:  # without an answer the cell would wait until its time is over
            told = without_secrets(f"{type(error).__name__}: {error}", self._secrets)
            why = one_line(told, MAX_MESSAGE)
            return self._refusal(Refused("failed", f"the host could not answer ({why})"))
        finally:
            self._under_way -= 1
            self._weight -= weight
            charge.drop()

    def _refusal(self, refused: Refused) -> str:
        self._counted[refused.kind] += 1
        error = {"type": _TYPES.get(refused.kind, "ValueError"), "message": str(refused)}
        return json.dumps({"id": refused.number, "results": [], "error": error})

    def _look(self, prompt: str) -> None:
        """Refuse requests that a glance shows to be bad."""
        if not prompt.startswith(PREFIX):
            raise Refused("input", "input() is not available: nobody is at the keyboard")
        if len(prompt) > MAX_REQUEST:
            raise Refused("too large", f"the request has more than {MAX_REQUEST:,} characters")
        if self._under_way >= MAX_UNDER_WAY or self._weight > MAX_WEIGHT:
            raise Refused("flood", "too many requests are under way: wait for their answers")

    async def _answer_in_turn(self, prompts: list[str], charge: Charge, origin: Origin) -> str:
        """Read a request, prepare its calls, make them; the cell's end gives up each of the three.

        Parameters
        ----------
        prompts
            The text alone; taken out here, since it may be large, and the calls may take long.
        charge
            What the request takes.
        origin
            Where it comes from.
        """
        prompt = prompts.pop()
        request = self._at_once(prompt)
        if request is None:
            self._in_line += 1
            try:
                request = await self._unless_over(self._take(prompt))
            finally:
                self._in_line -= 1
        del prompt
        if request is None:
            return json.dumps({"results": [], "error": CELL_OVER})
        prepared = self._quickly(request, charge)
        if prepared is None:
            prepared = await self._unless_over(self._prepare(request, charge))
        if prepared is None:
            results = [json.dumps(CELL_OVER)] * len(request.calls)
        else:
            for number, made in enumerate(prepared, request.first_call):
                made.number = number
            results = await asyncio.gather(*(self._begin(made, origin) for made in prepared))
        return f'{{"id": {request.number}, "results": [{", ".join(results)}]}}'

    async def _unless_over(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for a part of an answer; None when the cell ended meanwhile."""
        task = asyncio.ensure_future(work)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        return None if task.cancelled() else task.result()

    def _at_once(self, prompt: str) -> Request | None:
        """Read a quick request at once, if no earlier one is waiting to be read."""
        if len(prompt) > QUICK_CHARS or self._in_line:
            return None
        nodes = _count(prompt)
        return self._next(read(prompt, nodes)) if is_quick(prompt, nodes) else None

    async def _take(self, prompt: str) -> Request:
        """Read a request, or refuse it, in its turn."""
        async with self._reading:
            return self._next(await to_the_end(_read_long, prompt))

    def _next(self, request: Request) -> Request:
        """Number the calls of a request, or refuse it: not the next one, or one call too many."""
        if request.number <= self._last_id:
            raise Refused("replayed", "the request is not the next one", request.number)
        self._last_id = request.number
        self._cell_calls += len(request.calls)
        if self._cell_calls > MAX_CELL_CALLS:
            why = f"a cell may make {MAX_CELL_CALLS:,} calls, and this one made more"
            raise Refused("flood", why, request.number)
        return replace(request, first_call=self._caller.number(len(request.calls)))

    def _preparing(self, request: Request) -> Callable[[Room], list[Made]]:
        chars = self._room_in_trace()
        return partial(prepare, request, self._tools, kept_chars=chars, secrets=self._secrets)

    def _quickly(self, request: Request, charge: Charge) -> list[Made] | None:
        """Decode and check the arguments at once, where that takes a few milliseconds at most."""
        if not request.quick:
            return None
        room = self._pot.room(charge, quick=True)
        try:
            calls = self._preparing(request)(room)
        except TooMuch:
            return None
        self._pot.keep(charge, room)
        return calls

    async def _prepare(self, request: Request, charge: Charge) -> list[Made]:
        """Decode and check the arguments, when there is room for their full size."""
        preparing = self._preparing(request)
        async with self._pot.turn():
            while True:
                room = self._pot.room(charge)
                try:
                    calls = await to_the_end(preparing, room)
                except TooMuch as refused:
                    await self._wait_for_room(request, charge, refused)
                else:
                    self._pot.keep(charge, room)
                    return calls

    async def _wait_for_room(self, request: Request, charge: Charge, refused: TooMuch) -> None:
        try:
            await self._pot.wait_for(charge, refused)
        except TooMuch as never:
            raise Refused("too large", str(never), request.number) from None

    def _begin(self, made: Made, origin: Origin) -> asyncio.Task[str]:
        made.origin = origin
        task = asyncio.ensure_future(self._one(made))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return task

    async def _one(self, made: Made) -> str:
        if made.refused:
            self._counted[made.refused] += 1
        seconds = 0.0
        if made.error is None:
            seconds = await self._caller.make(made)
        if made.error is None:
            await self._write(made)
        self._list(made, seconds)
        if made.error is not None:
            return json.dumps(made.error)
        return f'{{"ok": true, "value": {made.result}}}'

    async def _write(self, made: Made) -> None:
        """Write a result; calls beside it find what room it leaves in the trace."""
        room = self._room_for_result()
        self._kept += room
        try:
            await self._caller.write(made, room)
        finally:
            self._kept -= room

    def _room_in_trace(self) -> int:
        if len(self._calls) >= LISTED:
            return 0
        return min(KEPT_CHARS, max(KEPT_CELL_CHARS - self._kept, 0))

    def _room_for_result(self) -> int:
        small = self._room_in_trace()
        large = KEPT_CELL_CHARS - KEPT_FOR_SMALL - self._kept
        return max(min(KEPT_RESULT, large), small) if small else 0

    async def call(self, call: Call, origin: Origin = ANYWHERE) -> HostCall:
        """Make one call of an action that consists of calls, in the same way as the kernel's.

        Never raises: every failure is in the result. Cancelling it gives up waiting.
        """
        made = Made(name=call.name, tool=self._tools.get(call.name), origin=origin)
        made.number = self._caller.number()
        seconds = 0.0
        with self._caller.failing(made):
            await self._check(made, dict(call.arguments))
            seconds = await self._make(made)
            if made.error is None:
                made.value = await in_thread(_plain, made.value)
                await in_thread(keep, made, KEPT_DIRECT, self._secrets)
        return self._caller.record(made, seconds)

    async def _check(self, made: Made, given: dict[str, Any]) -> None:
        args, kwargs = made.tool.spread(given) if made.tool else ([], given)
        made.arguments = json_without(keep_arguments(args, kwargs, KEPT_DIRECT), self._secrets)
        await in_thread(check, made, args, kwargs, Room(0), self._tools)
        if made.refused:
            self._counted[made.refused] += 1

    async def _make(self, made: Made) -> float:
        work = asyncio.ensure_future(self._caller.make(made))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait((work,))
            raise

    # --- what the trace is told ------------------------------------------------------------

    def _list(self, made: Made, seconds: float) -> None:
        """Keep a call for the trace."""
        call = self._caller.record(made, seconds)
        if len(self._calls) >= LISTED:
            self._counted["not listed"] += 1
        else:
            self._kept += len(json.dumps([call.arguments, call.result]))
            self._calls.append(call)


_TYPES = dict.fromkeys(("input", "flood", "replayed", "failed"), "RuntimeError")


# --- reading ---------------------------------------------------------------------------------


def _count(prompt: str) -> int:
    try:
        return count(prompt)
    except ValueError as error:
        raise Refused("too large", f"the request has {error}") from None


def _read_long(prompt: str) -> Request:
    return read(prompt, _count(prompt))


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
