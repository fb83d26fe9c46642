"""Values on their way between a kernel and its host: code and expressions for each way.

The kernel's side is :mod:`kernel_agent.inkernel.transfer`; how a value is written is in
:mod:`kernel_agent.inkernel.values`. What a kernel claims is checked while it is read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_agent.errors import InputError, KernelError, fault_of
from kernel_agent.inkernel import decode
from kernel_agent.records import Json
from kernel_agent.safe import one_line, room_for

MAX_ANSWER = 32_000_000  # characters; the kernel's own bound is in inkernel/delegate.py
PIECE = 1_000_000  # characters of a value in one message
TAKEN_MIME = "application/vnd.kernel-agent.taken+json"  # as in inkernel/transfer.py

ANSWER = "the answer"  # in the place of a variable's name; as there

_TAKING = "__import__('sys').modules['_kernel_agent_inside.transfer']"


def setting(name: str, text: str) -> list[str]:
    """Return the cells that set a variable in a kernel that shares no folder with the host.

    Parameters
    ----------
    name
        The variable.
    text
        Its value in JSON, as :mod:`kernel_agent.inkernel.values` writes it.
    """
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    cells = [f"{_TAKING}.receive({name!r}, {piece!r})" for piece in pieces]
    return [*cells, f"{_TAKING}.bind({name!r})"]


def getting(names: Sequence[str]) -> str:
    """Return the expression whose display data has the variables of these names."""
    return f"{_TAKING}.taken({list(names)!r})"


async def read_values(names: Sequence[str], bundle: Any) -> dict[str, Any]:
    """Return the variables that a kernel gave.

    Parameters
    ----------
    names
        Those that were asked for.
    bundle
        The display data of :func:`getting`; anything, from a hostile kernel.

    Raises
    ------
    InputError
        There is no such variable, or its value has no form in which it could cross.
    KernelError
        The kernel gave something else.
    """
    found = bundle.get(TAKEN_MIME) if isinstance(bundle, Mapping) else None
    if not isinstance(found, Mapping) or not set(names) <= found.keys():
        raise KernelError("the kernel did not give the variables")
    return {name: await asyncio.to_thread(_read, name, found[name]) for name in names}


TAKING_ANSWER = f"{_TAKING}.take_answer()"
"""The expression whose display data has the latest answer, as a variable is given."""


async def read_value(bundle: Any) -> Any:
    """Return the latest answer that a kernel gave; raises as :func:`read_values` does."""
    return (await read_values([ANSWER], bundle))[ANSWER]


def indexing(folders: Sequence[Mapping[str, Json]], sample: int, seconds: float) -> str:
    """Return the expression whose display data has the index of folders of data."""
    asked = [dict(folder) for folder in folders]
    folders_of = "__import__('importlib').import_module('_kernel_agent_inside.folders')"
    return f"{folders_of}.indexed({asked!r}, {sample!r}, {seconds!r})"


GETTING_ANSWER = f"{_TAKING}.answered()"
"""The expression whose display data has the latest answer."""


def read_answer(bundle: Any) -> Json:
    """Return the latest answer of a kernel in the wire's forms, for another kernel to read.

    Raises
    ------
    InputError
        It has no such form.
    KernelError
        The kernel did not give it, or it is too large.
    """
    found = bundle.get(TAKEN_MIME) if isinstance(bundle, Mapping) else None
    if not isinstance(found, Mapping) or not found.keys() & {"value", "formless", "error"}:
        raise KernelError("the kernel did not give its answer")
    if "formless" in found:
        raise InputError(one_line(str(found["formless"]), 300))
    if "error" in found:
        raise KernelError(one_line(str(found["error"]), 300))
    value: Json = found["value"]
    if len(json.dumps(value)) > MAX_ANSWER:
        raise KernelError("the kernel gave more than an answer may have")
    return value


def _read(name: str, found: Any) -> Any:
    if not isinstance(found, dict):
        raise InputError(f"{name} cannot be taken: the kernel gave nothing that can be read")
    if found.get("missing"):
        raise InputError(f"there is no variable {name} in the kernel")
    if "value" not in found:
        reason = one_line(str(found.get("error", "it has no value")), 200)
        refused = InputError(f"{name} cannot be taken: {reason}")
        refused.csv = csv if isinstance(csv := found.get("csv"), str) else ""
        raise refused
    try:
        return decode(found["value"], room_for(found["value"]))
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{name} cannot be taken: {one_line(fault_of(error), 200)}") from None
