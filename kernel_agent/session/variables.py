"""Variables between the user and the session's kernel: put, known, taken.

What a variable looks like on its way is in :mod:`kernel_agent.session.given` (in) and
:mod:`kernel_agent.inkernel.values` (out). Two may write: the user in their own process, the agent
in its kernel. So it is remembered with what fingerprint a variable was put, and in which step the
agent changed its copy.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_agent.errors import InputError
from kernel_agent.inkernel import values
from kernel_agent.kernel import setting
from kernel_agent.records import CellResult, Changes, DataFile, Given, Step, merge, source_of
from kernel_agent.safe import one_line
from kernel_agent.sandbox import level_of
from kernel_agent.session.given import check_names, write_down

APART_MAX = 50_000_000  # bytes of a value in JSON for a kernel that does not share the folder
PUT_SECONDS = 120.0

Setting = Callable[[str, Sequence[str]], Awaitable[CellResult]]
"""Runs a cell that sets the named variables."""


class Exchange:
    """The user's variables in a session."""

    def __init__(self) -> None:
        self._put: list[tuple[int, Given]] = []  # in order, each with the last step before it
        self._untold: dict[str, Given] = {}
        self._touched: dict[str, int] = {}  # by the agent: name -> step
        self._apart = False  # the kernel does not see the files

    @property
    def given(self) -> dict[str, Given]:
        """The variable last put under each name that the kernel has."""
        return {given.name: given for _, given in self._put}

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The tables that cells may also read as files."""
        tables = (g for g in self.given.values() if g.type == "DataFrame" and not self._apart)
        return tuple(file for given in tables for file in given.files)

    def take_news(self) -> tuple[Given, ...]:
        """Return the variables that are new to the model, once; called when a run begins."""
        untold, self._untold = tuple(self._untold.values()), {}
        return untold

    def note(self, steps: Iterable[Step]) -> None:
        """Remember which of the given variables a run has changed; called when it has ended."""
        for step in steps:
            changes = step.result.changes if step.result else None
            names = {v.name for v in (*changes.added, *changes.changed)} if changes else set()
            for name in names & set(self.given):
                self._touched[name] = step.number

    async def put(
        self,
        variables: Mapping[str, Any],
        execute: Setting,
        *,
        folder: Path,
        level: str,
        after: int,
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
        self._apart = not level_of(level).shares_folder
        if self._apart:
            changes: Changes | None = None
            for name, value in variables.items():
                changes = merge(changes, await _send(execute, name, value))
        else:
            changes = await _set(execute, made, level=level)
        told = tuple(map(self._describe_replaced, made))
        for given in told:
            self._put.append((after, given))
            self._untold[given.name] = given
        return told, changes

    def _describe_replaced(self, given: Given) -> Given:
        """Describe the value being replaced: an earlier one, or the agent's change of it."""
        known = self.given.get(given.name)
        again = known is not None and known.fingerprint != given.fingerprint
        undone = self._touched.pop(given.name, 0) if known else 0
        return dataclasses.replace(given, again=again, undone=undone)

    def since(self, first: int) -> tuple[str, ...]:
        """Return the variables that were put since step ``first``."""
        return tuple(dict.fromkeys(given.name for after, given in self._put if after >= first))

    def go_back(self, first: int) -> None:
        """Forget puts, and the agent's changes, since step ``first``: they are undone."""
        self._put = [(after, given) for after, given in self._put if after < first]
        given = self.given
        self._untold = {n: g for n, g in self._untold.items() if given.get(n) is g}
        self._touched = {name: step for name, step in self._touched.items() if step < first}

    async def restore(self, execute: Setting, *, level: str) -> Sequence[str]:
        """Set the variables again in a kernel that took the place of one that was lost.

        Returns
        -------
        sequence of str
            Those that are gone: their files were changed, or this kernel sees none.
        """
        known, before = self.given, {given.name: after for after, given in self._put}
        self._put = []
        self._touched.clear()
        self._untold.clear()
        if not level_of(level).shares_folder:
            return list(known)
        gone = []
        for name, given in known.items():
            try:
                await _set(execute, [given], level=level)
                self._put.append((before[name], given))
                self._untold[name] = given
            except InputError:
                gone.append(name)
        return gone


async def _set(execute: Setting, given: Sequence[Given], *, level: str) -> Changes | None:
    """Run the statements that set the variables, as the notebook will."""
    needy = [g.name for g in given if g.source.startswith(("import ", "from "))]
    if needy and not level_of(level).has_packages:
        raise InputError(
            f"{needy[0]} cannot be passed in: --sandbox {level} has no packages, so only short "
            "texts, numbers, lists and dicts can; use another level"
        )
    return await _carried_out(execute, source_of(given), [g.name for g in given])


async def _carried_out(execute: Setting, source: str, names: Sequence[str]) -> Changes | None:
    result = await execute(source, names)
    if not result.ok:
        error = result.error
        reason = f"{error.ename}: {error.evalue}" if error else result.status
        told = ", ".join(names)
        raise InputError(f"{told} could not be set in the kernel: {one_line(reason, 200)}")
    return result.changes


async def _send(execute: Setting, name: str, value: Any) -> Changes | None:
    """Send a value to a kernel that shares no folder with the host."""
    try:
        text = await asyncio.to_thread(lambda: json.dumps(values.encode(value)))
        if len(text) > APART_MAX:
            raise InputError(
                f"{name} is too large for this level: {len(text):,} bytes, at most {APART_MAX:,}; "
                "pass a part of it, or name its file with --data"
            )
    except TypeError as error:
        raise InputError(f"{name} cannot be passed in: {one_line(str(error), 200)}") from None
    changes: Changes | None = None
    for source in setting(name, text):
        changes = merge(changes, await _carried_out(execute, source, [name]))
    return changes
