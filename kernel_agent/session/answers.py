"""The answer of a run as a value, taken from the kernel that computed it as soon as the run ends.

A text, a number and what else is plain in JSON came with the cell: the kernel is not asked.
Anything else is taken as a variable is (:mod:`kernel_agent.inkernel.values`), within the same
bounds, so that it outlives its kernel. Where that cannot be, the answer in JSON types takes its
place, and a line says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import InputError, KernelAgentError, KernelError
from kernel_agent.records import Answer, Code, Step, StopSignal, plain_answer
from kernel_agent.safe import one_line

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel

PLAIN = frozenset({"str", "bool", "bool_", "NoneType", "text"})
NUMBER = re.compile(r"(?:u?int|float)(?:\d{1,2})?")  # Python's and numpy's, which are such in JSON
WORDS = {str: "a text", list: "a list", dict: "a dict", int: "a number", float: "a number"}


@dataclass(frozen=True, kw_only=True)
class Taken:
    """An answer itself; ``instead`` says why something else is in its place, ``csv`` is a table."""

    value: Any = None
    instead: str = ""
    csv: str = ""


async def take_answer(
    answer: Answer | None, steps: Sequence[Step], kernel: Kernel | None, *, stop: StopSignal
) -> Taken:
    """Return the answer of a run that has just ended, with its type.

    Parameters
    ----------
    answer
        As it was recorded; None for a run without one.
    steps
        The run's.
    kernel
        That of the session.
    stop
        Set when somebody asks for the end: then it is not waited for.
    """
    if answer is None:
        return Taken()
    by_call = not steps or not isinstance(steps[-1].action, Code)
    if by_call or kernel is None or is_whole(answer):
        return Taken(value=plain_answer(answer))
    try:
        return Taken(value=await _take(kernel, stop))
    except KernelAgentError as error:
        csv = error.csv if isinstance(error, InputError) else ""
        return replace(give_plain(answer, one_line(str(error), 300)), csv=csv)


def is_whole(answer: Answer) -> bool:
    """Whether the value that was recorded is the answer itself."""
    if NUMBER.fullmatch(answer.kind):
        return type(answer.value) in (int, float)
    return answer.kind in PLAIN and (answer.value is not None or answer.kind == "NoneType")


def give_plain(answer: Answer | None, reason: str) -> Taken:
    """Return an answer in JSON types in the place of itself, and say why."""
    if answer is None:
        return Taken()
    value = plain_answer(answer)
    what = WORDS.get(type(value), "nothing")
    return Taken(value=value, instead="" if is_whole(answer) else f"{what}, because {reason}")


async def _take(kernel: Kernel, stop: StopSignal) -> Any:
    """Take it, unless somebody asks for the end first: then the kernel is interrupted."""
    taking, stopped = (
        asyncio.ensure_future(kernel.take_answer()),
        asyncio.ensure_future(stop.wait()),
    )
    try:
        await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not taking.done():
            await kernel.interrupt()
            raise KernelError("the run was stopped before it was taken")
        return await taking
    finally:
        taking.cancel()
        stopped.cancel()
