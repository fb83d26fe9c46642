"""The executor: runs a session's cells in its kernel while the host answers their calls.

What the cells mean is decided above: the session makes one executor when it starts, its runs carry
out their actions with :meth:`Executor.carry_out`, and so does a person's own cell between them.
Which kernel that is, :mod:`.kernels` knows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from kernel_agent.agent import refusal, refuse_cell
from kernel_agent.config import SETTINGS
from kernel_agent.errors import UsageError
from kernel_agent.records import (
    Action,
    Budget,
    Calls,
    CellError,
    CellResult,
    Code,
    Event,
    Meter,
    Output,
    OutputDict,
    settle_answer,
)
from kernel_agent.session.delegation.scope import CurrentRun, Scope
from kernel_agent.session.kernels import Kernels
from kernel_agent.session.parts import Parts
from kernel_agent.tools import Broker, Origin, carry_out, secrets_of

STOP_S = 0.25  # for a cell to end when the run is stopped; the run does not wait longer for it
INTERRUPTED = CellError(ename="KeyboardInterrupt", evalue="")


class Executor:
    """Runs cells in the kernel of one session, with the host answering.

    Parameters
    ----------
    parts
        What the session is made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._config = parts.config
        self._approval = parts.approval
        self._stop = parts.stop
        self._broker = Broker(
            parts.tools,
            calling=parts.telemetry.call,
            admit=parts.approval.call,
            mark=parts.approval.mark,
            secrets=secrets_of(parts.config, os.environ),
        )
        self.kernels = Kernels(parts, self._broker)
        """The kernel in which cells run, and those before it."""
        self._library = parts.library
        self.busy = False
        """Whether a run or an undo is under way."""
        self._run: CurrentRun | None = None

    # --- one thing at a time ---------------------------------------------------------------

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Mark the session as busy with a run or an undo; called by the runner around each."""
        self.busy = True
        self._stop.clear()
        try:
            yield
        finally:
            self.busy = False

    @contextmanager
    def within(self, run: CurrentRun) -> Iterator[None]:
        """Carry out the actions of a run, within what it may still spend, until it ends."""
        self._approval.begin(run.meter, run.tell)
        self._run = run
        try:
            with self._stop.calling(self._interrupt):
                yield
        finally:
            self._run = None

    def _interrupt(self) -> None:
        """End the kernel's running cell, if any; the stop signal does the rest."""
        if self.kernels.now is not None:
            self._interrupting = asyncio.ensure_future(self.kernels.now.interrupt())

    # --- the actions of a run --------------------------------------------------------------

    async def carry_out(self, action: Action, number: int) -> CellResult:
        """Carry out an action of the run under way as step ``number``."""
        assert self._run is not None
        meter = self._run.meter
        left_s = float("inf") if meter.seconds_left is None else meter.seconds_left
        timeout_s = min(self._config.cell_seconds, left_s)
        # Without that bound a thread that always has a prompt under way would stop the clock.
        patience_s = left_s - timeout_s if timeout_s < left_s else 0.0
        scope = Scope(self._current_run)
        if isinstance(action, Calls):
            self._approval.enter(number)
            async with scope:
                return await carry_out(
                    action,
                    self._broker,
                    timeout_s=timeout_s,
                    stop=self._stop,
                    origin=Origin(known=self._approval.known, cell=scope),
                    waited=lambda: meter.waited + min(scope.waited(), patience_s),
                )
        if not isinstance(action, Code):
            raise UsageError("the format asked for something that cannot be done")
        if self._stop.is_set:  # since the loop looked: nothing would interrupt the cell any more
            return CellResult(status="interrupted", error=INTERRUPTED)
        outputs: list[OutputDict] = []
        tell = self._run.tell

        def show(output: OutputDict) -> None:
            outputs.append(output)
            tell(Output(number=number, output=output))

        running = self._run_cell(
            action.source,
            number,
            scope,
            timeout_s=timeout_s,
            on_output=show,
            waited=lambda: meter.waited + min(scope.waited(), patience_s),
        )
        result = await self._until_stopped(running, scope, outputs)
        of_cell = timeout_s >= self._config.cell_seconds
        return _name_limit(result, "cell_seconds" if of_cell else "max_seconds")

    def _current_run(self) -> CurrentRun | None:
        return self._run

    async def _until_stopped(
        self, running: Coroutine[Any, Any, CellResult], scope: Scope, outputs: list[OutputDict]
    ) -> CellResult:
        """Wait for a cell, but not much longer than until somebody asks for the end of the run.

        One that does not let itself be interrupted at once is left behind: the next use of the
        kernel waits until it has ended, or the kernel was killed.
        """
        cell = asyncio.ensure_future(running)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({cell, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not cell.done():
                await asyncio.wait({cell}, timeout=STOP_S)
            while not cell.done() and (scope.agents or scope.over):  # which ends them
                await asyncio.wait({cell}, timeout=STOP_S)
        except asyncio.CancelledError:
            cell.cancel()
            await asyncio.wait({cell})
            raise
        finally:
            stopping.cancel()
        if cell.done():
            return cell.result()
        self.kernels.left = cell
        self._approval.give_up()
        return settle_answer(
            CellResult(
                status="interrupted",
                outputs=tuple(outputs),
                error=INTERRUPTED,
                calls=self._broker.take_calls(),
                counted=self._broker.take_counted(),
            )
        )

    async def _run_cell(
        self,
        source: str,
        number: int,
        scope: Scope,
        *,
        timeout_s: float,
        on_output: Callable[[OutputDict], None] | None,
        waited: Callable[[], float],
        is_step: bool = True,
    ) -> CellResult:
        """Run a cell; waiting for agents, prompts and people does not count as its time."""
        kernel = self.kernels.now
        assert kernel is not None
        if self._config.guard_imports is not None:
            reason = refusal(source, self._config.guard_imports)
            if reason:
                return refuse_cell(reason)
        recording = self.kernels.history.recording(number, source, is_step=is_step)
        self._approval.enter(number, source)

        async def answer(prompt: str) -> str:
            origin = Origin(known=self._approval.known, cell=scope)
            return await self._broker.answer(prompt, origin)

        library = self._library
        library.begin_cell()
        try:
            async with scope:
                result = await kernel.execute(
                    source,
                    step=number,
                    timeout_s=timeout_s,
                    waited=waited,
                    on_output=on_output,
                    on_request=recording.listening(scope.answering(answer)),
                )
        finally:
            library.end_cell()
            await self._approval.leave()
            await self._broker.end_cell()
            calls, counted = self._broker.take_calls(), self._broker.take_counted()
        recording.end(result)
        return settle_answer(dataclasses.replace(result, calls=calls, counted=counted))

    # --- the person's own ------------------------------------------------------------------

    async def execute(
        self, code: str, *, timeout_s: float | None, tell: Callable[[Event], None]
    ) -> CellResult:
        """Run one cell of the person's own; see :meth:`Session.execute`."""
        kernels = self.kernels
        await kernels.revive(tell)
        number = next(kernels.numbers())
        meter = Meter(Budget(max_steps=None, max_seconds=None))
        alone = not self.busy  # in a run, the run's stop and its questions are the cell's, too
        if alone:
            self._stop.clear()
            self._approval.begin(meter, tell)
        scope = Scope(self._current_run)
        with self._stop.calling(self._interrupt) if alone else nullcontext():
            result = await self._run_cell(
                code,
                number,
                scope,
                timeout_s=timeout_s or self._config.cell_seconds,
                on_output=None,
                waited=lambda: meter.waited + scope.waited(),
                is_step=False,
            )
        if not self.busy:  # in a run, the next step's report has it
            kernels.note_changes(result.changes)
        return result


def _name_limit(result: CellResult, setting: str) -> CellResult:
    """Return the result of a cell with the limit that ended it, if one did, and its option."""
    if result.status != "timeout" and not result.limit:
        return result
    error = result.error
    if result.status == "dead" and error is not None:
        told = f"{error.evalue}: {SETTINGS[setting].flag} raises it"
        error = dataclasses.replace(error, evalue=told)
    return dataclasses.replace(result, limit=setting, error=error)
