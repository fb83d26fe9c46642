"""The kernels of a session, one after another, and the user's variables in them.

It has what outlives a single kernel: the variables that were exchanged with the user, the numbers
of the steps, and the history from which an undo plays again. A kernel that was lost is replaced
here; so is one that an undo goes back from.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import KernelError, SandboxError, UndoError, UsageError
from kernel_agent.records import (
    CellResult,
    Changes,
    Event,
    Given,
    Notice,
    Step,
    Undone,
    Visit,
    count_text,
    merge,
    now,
)
from kernel_agent.safe import Made, obeyed_in
from kernel_agent.sandbox import hibernating
from kernel_agent.session.aside import Aside
from kernel_agent.session.folder import hidden_in, make_agents_folder
from kernel_agent.session.parts import Parts, make_kernel, proxy_of
from kernel_agent.session.undo import History, Played, Replay, play_again
from kernel_agent.session.variables import PUT_SECONDS, Exchange
from kernel_agent.tools import Broker

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel
    from kernel_agent.sandbox import Proxy

STOPPED_UNDO = "nothing was undone: it was stopped"


class Kernels:
    """The kernel of a session, and its replacements.

    Parameters
    ----------
    parts
        What the session is made of.
    broker
        Answers their requests.
    """

    def __init__(self, parts: Parts, broker: Broker) -> None:
        self._parts = parts
        self._broker = broker
        self._proxy = parts.proxy  # the first kernel's; those of an undo get their own
        self._resume = parts.resume
        self._kept = obeyed_in(parts.folder.resolve())  # what lay there before; not what cells made
        self.agents: Made | None = None
        """The folder for delegated runs, where there may be some."""
        self.now: Kernel | None = None
        """The kernel that runs cells now; None until the first is started."""
        self.exchange = Exchange()
        """The variables of the user's that the kernel was given."""
        self.history = History()
        """The cells that the kernels have run."""
        self.steps = 0
        """Numbers that were used, by steps and by cells of the person's own."""
        self.left: asyncio.Future[CellResult] | None = None
        """A cell that outlived its run."""
        self._changes: Changes | None = None  # of variables, since the last run
        self._beneath: tuple[Visit, ...] = ()  # of agents, since the last run
        self._playing: asyncio.Task[Replay] | None = None  # an undo's

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a kernel in place of the previous one.

        Raises
        ------
        KernelStartError
            It did not start.
        """
        if self.now is not None:
            await self.now.close()
        if self._delegates and not (self.agents and self.agents.is_there):
            # Before the kernel, which is to see an empty folder there.
            self.agents = make_agents_folder(self._parts.folder, self._parts.level)
        self.now = self._make(self._proxy, self._resume)
        self._broker.fresh_kernel()
        await self.now.start()
        self.history.begin(self._resume)
        gone = await self.exchange.restore(self._set, level=self._parts.level)
        if gone:
            text = f"Pass these in again, they are gone: {', '.join(gone)}."
            self._parts.tell(Notice(text=text))
        if self._resume is not None:
            self._resume = None  # a kernel that is lost is replaced by a fresh one
            self.steps = self.now.steps

    def _make(self, proxy: Proxy | None, resume: Path | None) -> Kernel:
        return make_kernel(
            self._parts.config,
            level=self._parts.level,
            folder=self._parts.folder.resolve(),
            files=self._parts.files,
            library=self._parts.library,
            tools=self._parts.tools,
            proxy=proxy,
            resume=resume,
            protected=self._kept,
            hidden=hidden_in(self._parts.folder.resolve(), self.agents),
            own=self._parts.own_kernel,
        )

    @property
    def report(self) -> dict[str, Any]:
        """Findings of the sandbox's self-test in the running kernel."""
        return dict(self.now.sandbox_report) if self.now else {}

    @property
    def _delegates(self) -> bool:
        return any(tool.name == "delegate" for tool in self._parts.tools)

    async def revive(self, tell: Callable[[Event], None]) -> None:
        """Start a new kernel when the last one was lost, and report the consequences.

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
        if self.now is None or not self.now.alive:
            tell(Notice(text="The kernel was lost: a new one was started, all variables are gone."))
            await self.start()
            self._changes = Changes(fresh=True)

    async def left_behind(self) -> None:
        """Wait for a cell that outlived its run."""
        if self.left is not None:
            await asyncio.wait({self.left})
            self.left = None

    async def hibernate(self, folder: Path) -> None:
        """Write the kernel with all its variables to a folder; it has ended then.

        Raises
        ------
        SandboxError
            The level cannot do it, or it failed.
        """
        hibernating(self._parts.level)  # an error where its kernels cannot
        assert self.now is not None
        await self.now.hibernate(folder)

    async def close(self) -> None:
        """End the kernel, and any cell left behind in it."""
        try:
            if self.now is not None:
                await self.now.close()
        finally:
            if self.left is not None:
                self.left.cancel()
            if self.agents is not None:
                self.agents.leave()

    # --- variables, and what a run must know of them -----------------------------------------

    async def put(self, variables: Mapping[str, Any]) -> tuple[Given, ...]:
        """Set variables in the kernel to values of the user's; see :meth:`Session.put`."""
        given, changes = await self.exchange.put(
            variables,
            self._set,
            folder=self._parts.folder,
            level=self._parts.level,
            after=self.steps,
        )
        self.note_changes(changes)
        return given

    async def _set(self, source: str, names: Sequence[str]) -> CellResult:
        """Run a cell that sets variables of the user's; an undo of later steps plays it again."""
        assert self.now is not None
        recording = self.history.recording(self.steps, source, is_step=False, given=names)
        result = await self.now.execute(source, step=0, timeout_s=PUT_SECONDS)
        if result.ok:
            recording.end(result)
        return result

    def note_changes(self, changes: Changes | None) -> None:
        """Note changes of the variables between two runs."""
        self._changes = merge(self._changes, changes)

    def take_changes(self) -> Changes | None:
        """Return the changes of the variables since the last run; called as one begins."""
        changes, self._changes = self._changes, None
        return changes

    def note_visits(self, visits: tuple[Visit, ...]) -> None:
        """Note what an agent's cells asked of the network: who gave it the work answers for it."""
        self._beneath += visits

    def take_visits(self) -> tuple[Visit, ...]:
        """Return the network requests since the last time, those of agents among them."""
        beneath, self._beneath = self._beneath, ()
        return added_up((*(self._proxy.take_visits() if self._proxy else ()), *beneath))

    def numbers(self) -> Iterator[int]:
        """Yield numbers that nothing has: for the steps of a run, and the person's own cells."""
        while True:
            self.steps += 1
            yield self.steps

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
        """Switch to a new kernel with the state from before some steps.

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
        parts, stop = self._parts, self._parts.stop
        first, last = gone[0].number, gone[-1].number
        resumed, cells = self.history.before(first)
        if cells:
            told = count_text(len(cells), "cell")
            tell(Notice(text=f"Playing {told} again in a new kernel; no tool is called."))
        kept = self.agents.path.name if self.agents is not None else ""
        aside = Aside(parts.folder, self.history, first=first, last=last, again=cells, kept=kept)
        await asyncio.to_thread(aside.take)
        proxy = proxy_of(parts.config, parts.tell, visited=parts.approval.note_visit)
        kernel = self._make(proxy, resumed)
        self._playing = asyncio.ensure_future(self._play_again(kernel, cells))
        try:
            with stop.calling(self._playing.cancel):
                replay = await self._playing
            undone = self._undone(gone, reason, aside, replay)
            record(undone)
        except BaseException as error:
            self._playing.cancel()
            try:
                await kernel.close()
            finally:
                await asyncio.to_thread(aside.put_back)
            if isinstance(error, asyncio.CancelledError) and stop.is_set:
                raise UndoError(STOPPED_UNDO) from None
            if isinstance(error, KernelError | SandboxError):
                raise UndoError(f"nothing was undone: {error}") from None
            raise
        finally:
            self._playing = None
        await asyncio.to_thread(aside.settle)
        old, self.now, self._proxy = self.now, kernel, proxy
        kernel.steps = self.steps  # numbers are not used again
        self._broker.fresh_kernel()
        self.history.go_back(first, replay.played, resumed)
        self.exchange.go_back(first)
        self._changes = None
        try:
            yield undone
        finally:
            if old is not None:
                await old.close()

    def _undone(self, gone: Sequence[Step], reason: str, aside: Aside, replay: Replay) -> Undone:
        first = gone[0].number
        return Undone(
            run_id=gone[0].run_id,
            first=first,
            last=gone[-1].number,
            reason=reason,
            time=now(),
            files=aside.files,
            cells=self.history.own_cells_from(first),
            given=self.exchange.since(first),
            withdrawn=tuple(s.run_id for s in gone if s.result and s.result.answer),
            differences=replay.differences,
            changes=replay.changes if replay.differences else None,
        )

    async def _play_again(self, kernel: Kernel, cells: Sequence[Played]) -> Replay:
        if self._parts.stop.is_set:
            raise UndoError(STOPPED_UNDO)
        await kernel.start()
        return await play_again(
            kernel,
            cells,
            timeout_s=self._parts.config.cell_seconds,
            folder=str(self._parts.folder.resolve()),
        )


def added_up(visits: Iterable[Visit]) -> tuple[Visit, ...]:
    """Return visits with those of one destination as one, most requests first."""
    found: dict[tuple[str, int, bool], Visit] = {}
    for visit in visits:
        key = (visit.host, visit.port, visit.allowed)
        known = found.get(key) or dataclasses.replace(visit, requests=0, sent=0, received=0)
        found[key] = dataclasses.replace(
            known,
            requests=known.requests + visit.requests,
            sent=known.sent + visit.sent,
            received=known.received + visit.received,
        )
    return tuple(sorted(found.values(), key=lambda visit: -visit.requests))
