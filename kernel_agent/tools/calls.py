"""Calls as an action: the broker is asked directly, and each call is answered.

For formats whose actions are calls rather than code. The calls of one action run side by side;
the result is a :class:`~kernel_agent.records.CellResult` like any cell's, whose ``calls`` are the
answers, in the order in which they were asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernel_agent.records import (
    FINAL_ANSWER,
    Answer,
    Call,
    Calls,
    CellError,
    CellResult,
    CellStatus,
    Final,
    HostCall,
    Json,
    Observation,
    StopSignal,
    agents_notes,
    with_words,
)
from kernel_agent.safe import plain, shorten
from kernel_agent.tools.broker import Broker
from kernel_agent.tools.definition import ANYWHERE, Origin

MIN_CHARS = 200  # that an answer is never shortened below


async def carry_out(
    action: Calls,
    broker: Broker,
    *,
    timeout_s: float,
    stop: StopSignal,
    origin: Origin = ANYWHERE,
    waited: Callable[[], float] = lambda: 0.0,
) -> CellResult:
    """Make the calls of an action, side by side.

    Parameters
    ----------
    action
        What the model asked for. ``final_answer`` among the calls is the answer when all of the
        others succeed.
    broker
        Makes the calls.
    timeout_s
        When the calls that are still running are given up. A plain function cannot be stopped:
        its thread goes on, and its result is dropped.
    stop
        Set when somebody asks for the end of the run.
    origin
        Where the calls come from.
    waited
        Seconds in which a person was waited for; they do not count.
    """
    loop = asyncio.get_running_loop()
    began, before = loop.time(), waited()
    calls = [call for call in action.calls if call.name != FINAL_ANSWER]
    tasks = [asyncio.ensure_future(_answer_call(call, broker, origin)) for call in calls]
    stopped = asyncio.ensure_future(stop.wait())
    pending = set(tasks)
    try:
        while pending and not stopped.done():
            left = timeout_s + (waited() - before) - (loop.time() - began)
            if left <= 0:
                break
            racing: list[asyncio.Future[Any]] = [*pending, stopped]
            await asyncio.wait(racing, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            pending = {task for task in pending if not task.done()}
        status: CellStatus = "ok"
        if pending:
            status = "interrupted" if stopped.done() else "timeout"
        made = [
            task.result() if task.done() else _given_up(call, status, timeout_s)
            for call, task in zip(calls, tasks, strict=True)
        ]
    finally:
        for task in (*tasks, stopped):
            task.cancel()
    return _result(action, made, status, loop.time() - began - (waited() - before))


async def _answer_call(call: Call, broker: Broker, origin: Origin) -> HostCall:
    if call.error:
        return _make_failed(call, f"ValueError: {call.error}")
    return await broker.call(call, origin)


def _given_up(call: Call, status: CellStatus, timeout_s: float) -> HostCall:
    if status == "interrupted":
        return _make_failed(call, "InterruptedError: the run was stopped before the call ended")
    return _make_failed(call, f"TimeoutError: the call took longer than {timeout_s:g} s")


def _make_failed(call: Call, error: str) -> HostCall:
    arguments = {"args": [], "kwargs": dict(call.arguments)}
    return HostCall(name=call.name[:200], arguments=arguments, ok=False, error=error)


def _result(
    action: Calls, made: Sequence[HostCall], status: CellStatus, seconds: float
) -> CellResult:
    failed = [call.error for call in made if not call.ok]
    answers = [call for call in action.calls if call.name == FINAL_ANSWER and not call.error]
    final = answers[-1].arguments if answers and not failed else None
    answer = None if final is None else answer_of(
        Final(answer=final.get("answer"), note=str(final.get("note", "")))
    )  # fmt: skip
    error = None
    if failed:
        kind, _, message = failed[0].partition(": ")
        error = CellError(ename=kind, evalue=message)
        status = "error" if status == "ok" else status
    return CellResult(
        status=status, error=error, seconds=max(seconds, 0.0), answer=answer, calls=tuple(made)
    )


def answer_of(final: Final) -> Answer:
    """Return an answer that a model gave as JSON, or in words."""
    value = final.answer
    return with_words(
        Answer(
            text="", value=value, kind=type(value).__name__, note=final.note,
            in_words=final.in_words,
        )
    )  # fmt: skip


def observe_calls(action: Calls, result: CellResult, *, max_chars: int = 8000) -> Observation:
    """Return the observation of calls: an answer to each, in order.

    Parameters
    ----------
    action, result
        What was asked for, and what :func:`carry_out` gave.
    max_chars
        Upper bound of the whole text, shared out evenly; a long answer takes what short ones
        leave.
    """
    answered = iter(result.calls)
    texts = [_describe_answer(call, result, answered) for call in action.calls]
    room = max_chars - 2 * len(texts)
    parts = list(texts)
    shortest_first = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    for left, n in zip(range(len(texts), 0, -1), shortest_first, strict=True):
        parts[n] = shorten(texts[n], max(room // left, MIN_CHARS), where="ask for less at a time")
        room -= len(parts[n])
    return Observation(
        text="\n\n".join(parts),
        shortened=parts != texts,
        held=f"what {', '.join(call.name for call in action.calls[:10])} gave",
        parts=tuple(parts),
    )


def _describe_answer(call: Call, result: CellResult, answered: Iterator[HostCall]) -> str:
    if call.name == FINAL_ANSWER:
        if result.answer is not None:
            return "The answer was given."
        return call.error or (
            "Not taken as the answer, because another call failed. Look at the error first."
        )
    made = next(answered)
    gave = plain(_json(made.result) if made.ok else made.error)
    return "\n".join(filter(None, (gave, agents_notes((made,)))))


def _json(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
