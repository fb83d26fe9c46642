"""The executor: runs the cells of a session in its kernel, while the host answers what they ask.

It has what outlives a single cell, and a single kernel: the broker and the approval behind it, the
variables that were exchanged with the user, the numbers of the steps, and the history from which an
undo plays again. A kernel that was lost is replaced here; so is one that an undo goes back from.
What the cells mean is decided above: the session makes one executor when it starts, its runs carry
out their actions with :meth:`Executor.executing`, and whatever the user does to the kernel between
runs goes through here, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.agent import now, refusal, refused
from kernel_agent.config import Config
from kernel_agent.errors import KernelError, SandboxError, UndoError, UsageError
from kernel_agent.records import (
    Action,
    Budget,
    Calls,
    CellError,
    CellResult,
    Changes,
    Code,
    DataFile,
    Event,
    Given,
    Meter,
    Notice,
    Output,
    OutputDict,
    Step,
    Undone,
    Visit,
    count_text,
    merge,
)
from kernel_agent.safe import at_top, make_private
from kernel_agent.sandbox import hibernating
from kernel_agent.session.aside import Aside
from kernel_agent.session.delegation import Delegation, Scope
from kernel_agent.session.folder import agents_folder
from kernel_agent.session.parts import make_kernel, proxy_of
from kernel_agent.session.undo import History, Played, Replay, play_again
from kernel_agent.session.variables import PUT_SECONDS, Exchange
from kernel_agent.tools import Approval, Broker, Calling, Tool, carry_out, secrets_of

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel, MakeKernel
    from kernel_agent.sandbox import Proxy

STOPPED_UNDO = "nothing was undone: it was stopped"
STOP_S = 0.25  # for a cell to end when the run is stopped; the run does not wait longer for it


class Executor:
    """Runs cells in the kernel of one session, with the host answering.

    Parameters
    ----------
    config
        The settings; those of kernels, limits and guards are read.
    level
        The level that was chosen, never ``auto``.
    folder
        The session's folder; it exists, with the inputs in it.
    files
        The inputs.
    tools
        What cells may call.
    proxy
        The way out to named hosts, for the first kernel; those after it get their own.
    resume
        A hibernated kernel to go on with.
    approval
        Decides on the calls, and knows what untrusted data has entered.
    delegation
        Says whether agents are at work for a cell.
    calling
        Calls a tool; for whoever watches the calls.
    tell
        Told what happens outside a run.
    own_kernel
        What makes the kernels instead of the level.
    """

    def __init__(
        self,
        config: Config,
        *,
        level: str,
        folder: Path,
        files: Sequence[DataFile],
        tools: Sequence[Tool],
        proxy: Proxy | None,
        resume: Path | None,
        approval: Approval,
        delegation: Delegation,
        calling: Calling,
        tell: Callable[[Event], None],
        own_kernel: MakeKernel | None = None,
    ) -> None:
        self._config = config
        self._own_kernel = own_kernel
        self.level = level
        """How its kernels are confined."""
        self._folder = folder
        self._kept = at_top(folder.resolve())  # what lay there before; not what cells made since
        self._files = files
        self._tools = tools
        self._proxy = proxy
        self._resume = resume
        self._approval = approval
        self._delegation = delegation
        self._tell = tell
        self._broker = Broker(
            tools,
            calling=calling,
            admit=approval.call,
            mark=approval.mark,
            secrets=secrets_of(config, os.environ),
        )
        self.kernel: Kernel | None = None
        """The kernel that runs cells now; None until the first is started."""
        self.exchange = Exchange()
        """The variables of the user's that the kernel was given."""
        self.steps = 0
        """Numbers that were used, by steps and by cells of the person's own."""
        self.busy = False
        """Whether a run or an undo is under way."""
        self.stopping = False
        """Whether somebody has asked for its end."""
        self._history = History()
        self._changes: Changes | None = None  # of variables, since the last run
        self._stopped = asyncio.Event()  # the run
        self._left: asyncio.Future[CellResult] | None = None  # a cell that outlived its run
        self._playing: asyncio.Task[Replay] | None = None  # an undo's
        self._own = False  # a cell of the person's own is under way

    # --- kernels ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a kernel, in the place of the one that there was.

        Raises
        ------
        KernelStartError
            It did not start.
        """
        if self.kernel is not None:
            await self.kernel.close()
        if self._delegates:  # before the kernel, which is to see an empty folder there
            make_private(agents_folder(self._folder, self.level), exist_ok=True)
        self.kernel = self._make_kernel(self._proxy, self._resume)
        self._broker.fresh_kernel()
        await self.kernel.start()
        self._history.begin(self._resume)
        gone = await self.exchange.restore(self._set, level=self.level)
        if gone:
            self._tell(Notice(text=f"Pass these in again, they are gone: {', '.join(gone)}."))
        if self._resume is not None:
            self._resume = None  # a kernel that is lost is replaced by a fresh one
            self.steps = self.kernel.steps

    @property
    def sandbox_report(self) -> dict[str, Any]:
        """What the sandbox's self-test found in the running kernel."""
        return dict(self.kernel.sandbox_report) if self.kernel else {}

    @property
    def _delegates(self) -> bool:
        return any(tool.name == "delegate" for tool in self._tools)

    def _make_kernel(self, proxy: Proxy | None, resume: Path | None) -> Kernel:
        return make_kernel(
            self._config,
            level=self.level,
            folder=self._folder.resolve(),
            files=self._files,
            tools=self._tools,
            proxy=proxy,
            resume=resume,
            protected=self._kept,
            own=self._own_kernel,
        )

    async def revive(self, tell: Callable[[Event], None]) -> None:
        """Start a new kernel when the last one was lost, and say what that means.

        Called before every use of the kernel; waits for a cell that outlived its run.

        Raises
        ------
        UsageError
            An undo is under way.
        KernelStartError
            The new kernel did not start.
        """
        if self._playing is not None:
            raise UsageError("an undo is under way")
        await self.left_behind()
        if self.kernel is None or not self.kernel.alive:
            tell(Notice(text="The kernel was lost: a new one was started, all variables are gone."))
            await self.start()
            self._changes = Changes(fresh=True)

    async def left_behind(self) -> None:
        """Wait for a cell that outlived its run."""
        if self._left is not None:
            await asyncio.wait({self._left})
            self._left = None

    async def hibernate(self, folder: Path) -> None:
        """Write the kernel with all its variables to a folder; it has ended then.

        Raises
        ------
        SandboxError
            The level cannot do it, or it failed.
        """
        hibernating(self.level)  # an error where its kernels cannot
        assert self.kernel is not None
        await self.kernel.hibernate(folder)

    async def close(self) -> None:
        """End the kernel, and what was left behind in it."""
        if self.kernel is not None:
            await self.kernel.close()
        if self._left is not None:
            self._left.cancel()
        if self._delegates:
            with suppress(OSError):  # there are agents in it
                agents_folder(self._folder, self.level).rmdir()

    # --- one thing at a time ---------------------------------------------------------------

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Be busy with a run or an undo; called by the runner around each."""
        self.busy, self.stopping = True, False
        try:
            yield
        finally:
            self.busy = False

    def stop(self) -> None:
        """Note that what is under way is to end; an undo and a cell of the person's own end now.

        Called on the session's loop.
        """
        self.stopping = self.busy
        if self._playing is not None:
            self._playing.cancel()
        if self._own:
            self.interrupt()

    def interrupt(self) -> None:
        """End what a run has under way: its questions, its calls, its cell."""
        self._approval.stop()
        self._stopped.set()
        if self.kernel is not None:
            self._interrupting = asyncio.ensure_future(self.kernel.interrupt())

    # --- the actions of a run --------------------------------------------------------------

    def executing(
        self, meter: Meter, tell: Callable[[Event], None]
    ) -> Callable[[Action, int], Awaitable[CellResult]]:
        """Return what carries out an action of a run, within what the run may still spend.

        Parameters
        ----------
        meter
            What the run has spent and may spend.
        tell
            Told of the cells' outputs as they come.
        """
        self._stopped = asyncio.Event()
        self._approval.begin(meter, tell)

        async def execute(action: Action, number: int) -> CellResult:
            left_s = float("inf") if meter.seconds_left is None else meter.seconds_left
            timeout_s = min(self._config.cell_seconds, left_s)
            patience_s = left_s - timeout_s if timeout_s < left_s else 0.0
            if isinstance(action, Calls):
                self._approval.enter(number)
                self._approval.arriving()
                async with Scope() as scope:
                    return await carry_out(
                        action,
                        self._broker,
                        timeout_s=timeout_s,
                        stopping=self._stopped,
                        waited=lambda: meter.waited + min(scope.waited(), patience_s),
                    )
            if not isinstance(action, Code):
                raise UsageError("the format asked for something that cannot be done")
            outputs: list[OutputDict] = []

            def show(output: OutputDict) -> None:
                outputs.append(output)
                tell(Output(number=number, output=output))

            running = self._run_cell(
                action.source,
                number,
                timeout_s=timeout_s,
                on_output=show,
                waited=lambda: meter.waited,
                patience_s=patience_s,
            )
            return await self._until_stopped(running, outputs)

        return execute

    async def _until_stopped(
        self, running: Coroutine[Any, Any, CellResult], outputs: list[OutputDict]
    ) -> CellResult:
        """Wait for a cell, but not much longer than until somebody asks for the end of the run.

        One that does not let itself be interrupted at once is left behind: the next use of the
        kernel waits until it has ended, or the kernel was killed.
        """
        cell = asyncio.ensure_future(running)
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({cell, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not cell.done():
                await asyncio.wait({cell}, timeout=STOP_S)
            while not cell.done() and self._delegation.at_work:  # they end with the cell
                await asyncio.wait({cell}, timeout=STOP_S)
        except asyncio.CancelledError:
            cell.cancel()
            await asyncio.wait({cell})
            raise
        finally:
            stopping.cancel()
        if cell.done():
            return cell.result()
        self._left = cell
        error = CellError(ename="KeyboardInterrupt", evalue="")
        calls, counted = self._broker.take_calls(), self._broker.take_counted()
        return CellResult(
            status="interrupted",
            outputs=tuple(outputs),
            error=error,
            calls=calls,
            counted=counted,
        )

    async def _run_cell(
        self,
        source: str,
        number: int,
        *,
        timeout_s: float,
        on_output: Callable[[OutputDict], None] | None,
        waited: Callable[[], float] = lambda: 0.0,
        patience_s: float = float("inf"),
        is_step: bool = True,
    ) -> CellResult:
        """Run a cell; what it waits for agents and prompts is not its time, up to ``patience_s``.

        Without that bound a thread that always has a prompt under way would stop the clock.
        """
        assert self.kernel is not None
        if self._config.guard_imports is not None:
            reason = refusal(source, self._config.guard_imports)
            if reason:
                return refused(reason)
        recording = self._history.recording(number, source, is_step=is_step)
        self._approval.enter(number, source)
        try:
            async with Scope() as scope:
                result = await self.kernel.execute(
                    source,
                    step=number,
                    timeout_s=timeout_s,
                    waited=lambda: waited() + min(scope.waited(), patience_s),
                    on_output=on_output,
                    on_request=recording.listening(scope.answering(self._answer)),
                )
        finally:
            await self._approval.leave()
            await self._broker.end_cell()
            calls, counted = self._broker.take_calls(), self._broker.take_counted()
        recording.end(result)
        return dataclasses.replace(result, calls=calls, counted=counted)

    async def _answer(self, prompt: str) -> str:
        self._approval.arriving()
        return await self._broker.answer(prompt)

    def note(self, steps: Sequence[Step]) -> None:
        """Count the steps of a run that has ended, and see what they did to given variables."""
        self.steps += len(steps)
        self.exchange.note(steps)

    def take_changes(self) -> Changes | None:
        """Return what has changed of the variables since the last run; called as one begins."""
        changes, self._changes = self._changes, None
        return changes

    def take_visits(self) -> tuple[Visit, ...]:
        """Return what was asked of the network since the last time."""
        return self._proxy.take_visits() if self._proxy else ()

    # --- the person's own ------------------------------------------------------------------

    async def execute(
        self, code: str, *, timeout_s: float | None, tell: Callable[[Event], None]
    ) -> CellResult:
        """Run one cell of the person's own; see :meth:`Session.execute`."""
        await self.revive(tell)
        self.steps += 1
        meter = Meter(Budget(max_steps=None, max_seconds=None))
        if not self.busy:
            self._approval.begin(meter, tell)
        self._own = True
        try:
            result = await self._run_cell(
                code,
                self.steps,
                timeout_s=timeout_s or self._config.cell_seconds,
                on_output=None,
                is_step=False,
                waited=lambda: meter.waited,
            )
        finally:
            self._own = False
        if not self.busy:  # in a run, the next step's report has it
            self._changes = merge(self._changes, result.changes)
        return result

    async def put(self, variables: Mapping[str, Any]) -> tuple[Given, ...]:
        """Set variables in the kernel to values of the user's; see :meth:`Session.put`."""
        given, changes = await self.exchange.put(
            variables, self._set, folder=self._folder, level=self.level, after=self.steps
        )
        self._changes = merge(self._changes, changes)
        return given

    async def _set(self, source: str, names: Sequence[str]) -> CellResult:
        """Run a cell that sets variables of the user's; an undo of later steps plays it again."""
        assert self.kernel is not None
        recording = self._history.recording(self.steps, source, is_step=False, given=names)
        result = await self.kernel.execute(source, step=0, timeout_s=PUT_SECONDS)
        if result.ok:
            recording.end(result)
        return result

    async def take(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables of the kernel; see :meth:`Session.take`."""
        assert self.kernel is not None
        return await self.kernel.get(names)

    # --- back to before a step -------------------------------------------------------------

    @asynccontextmanager
    async def undoing(
        self,
        gone: Sequence[Step],
        reason: str,
        *,
        record: Callable[[Undone], None],
        tell: Callable[[Event], None],
    ) -> AsyncIterator[Undone]:
        """Go over to a new kernel that is as the old one was before some steps.

        What is done within it happens after that, and before the old kernel is ended.

        Parameters
        ----------
        gone
            The steps, in order: the last ones of the session that hold.
        reason
            Why, in a few words.
        record
            Keeps the record in the trace: from then on they are undone.
        tell
            Told what happens.

        Yields
        ------
        Undone
            The record.

        Raises
        ------
        UndoError
            It could not be done, or was stopped: the kernel and the folder are as they were.
        """
        first, last = gone[0].number, gone[-1].number
        resumed, cells = self._history.before(first)
        if cells:
            told = count_text(len(cells), "cell")
            tell(Notice(text=f"Playing {told} again in a new kernel; no tool is called."))
        aside = Aside(self._folder, self._history, first=first, last=last, again=cells)
        await asyncio.to_thread(aside.take)
        proxy = proxy_of(self._config, self._tell, visited=self._approval.visited)
        kernel = self._make_kernel(proxy, resumed)
        self._playing = asyncio.ensure_future(self._play_again(kernel, cells))
        try:
            replay = await self._playing
            undone = Undone(
                run_id=gone[0].run_id,
                first=first,
                last=last,
                reason=reason,
                time=now(),
                files=aside.files,
                cells=self._history.own_cells_from(first),
                given=self.exchange.since(first),
                withdrawn=tuple(s.run_id for s in gone if s.result and s.result.answer),
                differences=replay.differences,
                changes=replay.changes if replay.differences else None,
            )
            record(undone)
        except BaseException as error:
            self._playing.cancel()
            await kernel.close()
            await asyncio.to_thread(aside.put_back)
            if isinstance(error, asyncio.CancelledError) and self.stopping:
                raise UndoError(STOPPED_UNDO) from None
            if isinstance(error, KernelError | SandboxError):
                raise UndoError(f"nothing was undone: {error}") from None
            raise
        finally:
            self._playing = None
        await asyncio.to_thread(aside.settle)
        old, self.kernel, self._proxy = self.kernel, kernel, proxy
        kernel.steps = self.steps  # numbers are not used again
        self._broker.fresh_kernel()
        self._history.go_back(first, replay.played, resumed)
        self.exchange.go_back(first)
        self._changes = None
        try:
            yield undone
        finally:
            if old is not None:
                await old.close()

    async def _play_again(self, kernel: Kernel, cells: Sequence[Played]) -> Replay:
        if self.stopping:
            raise UndoError(STOPPED_UNDO)
        await kernel.start()
        return await play_again(
            kernel,
            cells,
            timeout_s=self._config.cell_seconds,
            folder=str(self._folder.resolve()),
        )
