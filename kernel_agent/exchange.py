"""Variables between the user and the session's kernel: put in, known to be there, taken out.

What a variable looks like on its way is in :mod:`kernel_agent.given` (in) and
:mod:`kernel_agent.inside.values` (out). Two may write: the user in their own process, the agent in
its kernel. So it is remembered with what fingerprint a variable was put, and in which step the
agent changed its copy.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import InputError, KernelError
from kernel_agent.given import check_names, write_down
from kernel_agent.inside import values
from kernel_agent.records import Changes, DataFile, Given, Step, Variable
from kernel_agent.sandbox.interpreter import InterpreterSession
from kernel_agent.text import one_line
from kernel_agent.variables import source_of

if TYPE_CHECKING:
    from kernel_agent.kernel.session import KernelSession

APART = frozenset({"microvm", "remote"})
"""Levels whose kernels do not see what the host writes into the folder later."""

APART_MAX = 50_000_000  # bytes of a value in JSON that are sent to such a kernel
PUT_SECONDS = 120.0


class Exchange:
    """The variables that a session was given."""

    def __init__(self) -> None:
        self._given: dict[str, Given] = {}
        self._untold: dict[str, Given] = {}
        self._touched: dict[str, int] = {}  # by the agent: name -> step
        self._apart = False  # the kernel does not see the files

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The tables that cells may also read as files."""
        tables = (g for g in self._given.values() if g.type == "DataFrame" and not self._apart)
        return tuple(file for given in tables for file in given.files)

    def told(self) -> tuple[Given, ...]:
        """Return what the model has yet to be told, once; called when a run begins."""
        untold, self._untold = tuple(self._untold.values()), {}
        return untold

    def note(self, steps: Iterable[Step]) -> None:
        """Remember which of the given variables a run has changed; called when it has ended."""
        for step in steps:
            changes = step.result.changes if step.result else None
            names = {v.name for v in (*changes.added, *changes.changed)} if changes else set()
            for name in names & set(self._given):
                self._touched[name] = step.number

    async def put(
        self,
        variables: Mapping[str, Any],
        kernel: KernelSession | InterpreterSession,
        *,
        folder: Path,
        level: str,
    ) -> tuple[tuple[Given, ...], Changes | None]:
        """Write the values down and set them in the kernel; see :meth:`Session.put`.

        Returns
        -------
        tuple
            What was recorded of each, and what changed in the kernel.
        """
        check_names(variables)
        made = [
            await asyncio.to_thread(write_down, name, value, folder)
            for name, value in variables.items()
        ]
        self._apart = level in APART
        if self._apart:
            for name, value in variables.items():
                await _send(kernel, name, value)
            changes: Changes | None = Changes(
                added=tuple(Variable(name=g.name, type=g.type, shape=g.shape) for g in made)
            )
        else:
            changes = await _set(kernel, made, level=level)
        told = tuple(map(self._compared, made))
        for given in told:
            self._given[given.name] = self._untold[given.name] = given
        return told, changes

    def _compared(self, given: Given) -> Given:
        """Say what the value takes the place of: an earlier one, or what the agent made of that."""
        known = self._given.get(given.name)
        again = known is not None and known.fingerprint != given.fingerprint
        undone = self._touched.pop(given.name, 0) if known else 0
        return dataclasses.replace(given, again=again, undone=undone)

    async def restore(
        self, kernel: KernelSession | InterpreterSession, *, level: str
    ) -> Sequence[str]:
        """Set the variables again in a kernel that took the place of one that was lost.

        Returns
        -------
        sequence of str
            Those that are gone: their files were changed, or this kernel sees none.
        """
        known, self._given = self._given, {}
        self._touched.clear()
        self._untold.clear()
        if level in APART:
            return list(known)
        gone = []
        for name, given in known.items():
            try:
                await _set(kernel, [given], level=level)
                self._given[name] = self._untold[name] = given
            except InputError:
                gone.append(name)
        return gone

    async def take(
        self, names: Sequence[str], kernel: KernelSession | InterpreterSession
    ) -> dict[str, Any]:
        """Return variables of the kernel; see :meth:`Session.take`."""
        if isinstance(kernel, InterpreterSession):
            return {name: await _answered(kernel, name) for name in names}
        found = await kernel.take(names)
        return {name: await asyncio.to_thread(_read, name, found[name]) for name in names}


async def _set(
    kernel: KernelSession | InterpreterSession, given: Sequence[Given], *, level: str
) -> Changes | None:
    """Run the statements that set the variables, as the notebook will."""
    if level == "interpreter" and any("import" in g.source for g in given):
        name = next(g.name for g in given if "import" in g.source)
        raise InputError(
            f"{name} cannot be passed in: --sandbox interpreter has no packages, so only text, "
            "numbers, lists and dicts can; use another level"
        )
    result = await kernel.execute(source_of(given), step=0, timeout_s=PUT_SECONDS)
    if not result.ok:
        error = result.error
        reason = f"{error.ename}: {error.evalue}" if error else result.status
        names = ", ".join(g.name for g in given)
        raise InputError(f"{names} could not be set in the kernel: {one_line(reason, 200)}")
    return result.changes


async def _send(kernel: KernelSession | InterpreterSession, name: str, value: Any) -> None:
    """Send a value to a kernel that sees no folder of ours."""
    assert not isinstance(kernel, InterpreterSession)
    try:
        text = await asyncio.to_thread(lambda: json.dumps(values.encode(value)))
        if len(text) > APART_MAX:
            raise InputError(
                f"{name} is too large for this level: {len(text):,} bytes, at most {APART_MAX:,}; "
                "pass a part of it, or name its file with --data"
            )
        await kernel.put(name, text)
    except (TypeError, KernelError) as error:
        raise InputError(f"{name} cannot be passed in: {one_line(str(error), 200)}") from None


def _read(name: str, found: Any) -> Any:
    """Return the value that a kernel claims for a name; it is checked while it is read."""
    if not isinstance(found, dict):
        raise InputError(f"{name} cannot be taken: the kernel gave nothing that can be read")
    if found.get("missing"):
        raise InputError(f"there is no variable {name} in the kernel")
    if "value" not in found:
        reason = one_line(str(found.get("error", "it has no value")), 200)
        raise InputError(f"{name} cannot be taken: {reason}")
    try:
        return values.decode(found["value"])
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{name} cannot be taken: {one_line(str(error), 200)}") from None


async def _answered(kernel: InterpreterSession, name: str) -> Any:
    result = await kernel.execute(f"final_answer({name})", step=0, timeout_s=PUT_SECONDS)
    if not result.ok or result.answer is None:
        raise InputError(f"there is no variable {name} in the kernel")
    if result.answer.value is None and result.answer.kind != "NoneType":
        raise InputError(f"{name} cannot be taken: a {one_line(result.answer.kind, 40)}")
    return result.answer.value
