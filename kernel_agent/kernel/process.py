"""One kernel from start to end: the process, its private directory, and cells run in it.

The process is started through jupyter_client's ``AsyncKernelManager`` and the ``kernel-agent``
provisioner (where the sandbox is), and driven by :mod:`kernel_agent.kernel.client`. A cell that
takes too long is interrupted and the namespace kept; one that does not let itself be interrupted
costs the kernel. A kernel that ends is noticed within a fraction of a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager

from kernel_agent.errors import KernelDied, KernelError, KernelStartError, SandboxError
from kernel_agent.kernel.client import Cell, KernelClient, first_of, over
from kernel_agent.kernel.local_manager import epitaph_of, last_lines, make_manager
from kernel_agent.kernel.protocol import Access, Folders, Kernel, OnOutput, OnRequest
from kernel_agent.kernel.transfer import (
    GETTING_ANSWER,
    TAKING_ANSWER,
    getting,
    indexing,
    read_answer,
    read_value,
    read_values,
)
from kernel_agent.records import CellError, CellResult, CellStatus, Json
from kernel_agent.safe import clear, one_line, private_directory

START_TIMEOUT_S = 60.0
GREETING_S = 0.5  # a kernel that has not greeted by then is asked, again and again
INTERRUPT_GRACE_S = 3.0  # from an interrupt that the kernel heard of to the kill
SHUTDOWN_GRACE_S = 3.0  # to write what open files hold back; one that computes on is killed then
VALUES_TIMEOUT_S = 60.0  # for a variable to cross
LOST_GRACE = 1 / 60  # of the patience with a start: from a connection's end to the process's own
LIMIT_GRACE_S = 1.0  # from the interrupt to the kill, when a limit is exceeded


class KernelProcess(Kernel):
    """A kernel's process and the host's connections to it: how they begin, go on and end.

    Parameters
    ----------
    cwd
        The directory in which cells run, and which they may change: it belongs to this kernel
        while it runs.
    sandbox
        The level of protection; see :mod:`kernel_agent.sandbox`.
    access
        What it may touch beside that, and what not in there.
    resume
        The folder that :meth:`hibernate` wrote: its kernel goes on, with all variables.
    tools
        Descriptions of the host tools that cells can call (:func:`kernel_agent.tools.specs`).
    python
        The interpreter that cells run in; the host's own by default. It needs ipykernel.
    max_operations
        Turns of loops and calls of its functions after which a cell is ended; a guard against
        mistakes (:mod:`kernel_agent.inkernel.opcount`).
    table_width
        Characters of a line of the tables that pandas prints; the kernel's own default where None.
    """

    poll_s = 0.1  # how often the process is looked at; a dead kernel is noticed within this
    misses = 1  # looks in a row that do not find the process, until it counts as dead
    way_s = 1.0  # that an interrupt may take to the kernel, and word of it back

    def __init__(
        self,
        *,
        cwd: Path,
        sandbox: str = "auto",
        access: Access | None = None,
        resume: Path | None = None,
        tools: Sequence[dict[str, Any]] = (),
        python: str = sys.executable,
        max_operations: int | None = None,
        table_width: int | None = None,
    ) -> None:
        self.cwd = cwd
        self.sandbox = sandbox
        access = access or Access()
        self._grant: dict[str, Any] = {
            "workspace": str(cwd),
            "protected": [str(path) for path in access.protected],
            "hidden": [str(path) for path in access.hidden],
            "readable": [str(path) for path in access.readable],
            "listed": [str(path) for path in access.listed],
            "limits": dict(access.limits),
        }
        self._proxy = access.proxy
        self._resume = resume
        self._python = python
        self._settings: dict[str, Any] = {"tools": list(tools)}
        if max_operations is not None:
            self._settings["max_operations"] = max_operations
        if table_width is not None:
            self._settings["tables"] = {"width": table_width}
        self._directory: Path | None = None
        self._manager: AsyncKernelManager | None = None
        self._client: KernelClient | None = None
        self._died: asyncio.Future[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._lost = ""
        self._running: Cell | None = None
        self._interrupted = False
        self._exit_code: int | None = None
        self._limit = ""
        self.steps = 0
        """The number of the latest cell."""
        self.sandbox_report: dict[str, Any] = {}
        """Findings of the sandbox's self-test when the kernel started."""

    @property
    def alive(self) -> bool:
        """Whether the kernel's process runs."""
        return self._client is not None and self._died is not None and not self._died.done()

    @property
    def pid(self) -> int | None:
        """The process id of the kernel (of its outermost process, in a sandbox)."""
        provisioner = self._manager.provisioner if self._manager else None
        return getattr(provisioner, "pid", None)

    # --- life ------------------------------------------------------------------------------

    async def start(self, *, timeout_s: float | None = None) -> None:
        """Start the process and wait until no output of it can be missed.

        Parameters
        ----------
        timeout_s
            How long it may stay silent; by default as long as its level may take.

        Raises
        ------
        KernelStartError
            When the process ends or stays silent; the message ends with its log's last lines.
        """
        self._died = asyncio.get_running_loop().create_future()
        self._exit_code = None
        self._limit = self._lost = ""
        self._directory = directory = private_directory()
        log = directory / "log"
        try:
            if self._proxy is not None:
                await self._proxy.start(directory / "proxy")
                self._grant["proxy"] = str(directory / "proxy")
            (directory / "agent.json").write_text(json.dumps(self._settings))
            self._manager = manager = self._make_manager(directory)
            await self._launch(manager, log)
            self._connect(manager)
            self._watch = asyncio.create_task(self._watch_process(manager, self.poll_s))
            await self._wait_until_ready(timeout_s or self._patience_s)
            await self._settle()
        except BaseException as error:
            reason = last_lines(log)
            await self.close()
            if isinstance(error, (OSError, KernelDied, TimeoutError)):
                message = f"the kernel did not start: {str(error) or 'no sign of life'}{reason}"
                raise KernelStartError(message) from error
            raise

    def _connect(self, manager: AsyncKernelManager) -> None:
        client = self._client = KernelClient(dict(manager.get_connection_info()))
        client.start()
        self._listening = asyncio.create_task(self._end_when_lost(client))

    async def _launch(self, manager: AsyncKernelManager, log: Path) -> None:
        await manager.start_kernel(cwd=str(self.cwd), env=dict(os.environ), log_path=str(log))

    async def _settle(self) -> None:
        """Prepare the kernel for its first cell: read the self-test's report."""
        self.sandbox_report = self._provisioner.report()
        self.steps = int(self._provisioner.resumed.get("steps", 0))
        self._provisioner.on_limit = self._limit_reached

    def _make_manager(self, directory: Path) -> AsyncKernelManager:
        config = {
            "level": self.sandbox,
            "resume": str(self._resume or ""),
            "grant": {**self._grant, "directory": str(directory)},
        }
        return make_manager(directory, self._python, config)

    @property
    def _patience_s(self) -> float:
        """Seconds that a kernel may stay silent; its provisioner may be another than ours."""
        provisioner = self._manager.provisioner if self._manager else None
        return float(getattr(provisioner, "patience_s", START_TIMEOUT_S))

    @property
    def _provisioner(self) -> Any:
        """Our own, from :mod:`kernel_agent.sandbox`; named by its entry point."""
        assert self._manager is not None
        assert self._manager.provisioner is not None
        return self._manager.provisioner

    async def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._client is not None
        assert self._died is not None
        deadline = time.monotonic() + timeout_s
        await first_of(self._client.welcome, self._died, seconds=min(GREETING_S, timeout_s))
        while not self._client.welcome.done() and time.monotonic() < deadline:
            if self._died.done():
                break
            self._client.ask_for_a_sign()
            await first_of(self._client.welcome, self._died, seconds=GREETING_S)
        if self._died.done():
            raise KernelDied(self.epitaph)
        if not self._client.welcome.done():
            raise TimeoutError(f"nothing heard of it for {timeout_s:g} s")

    async def _watch_process(self, manager: AsyncKernelManager, every_s: float) -> None:
        assert manager.provisioner is not None
        missed = 0
        while missed < self.misses:
            self._exit_code = await manager.provisioner.poll()
            missed = 0 if self._exit_code is None else missed + 1
            await asyncio.sleep(every_s if missed < self.misses else 0)
        self._mark_dead()

    async def _end_when_lost(self, client: KernelClient) -> None:
        """End a kernel that lost one of its connections, over which it is not heard any more."""
        assert self._died is not None
        reason = await client.lost
        await first_of(self._died, seconds=LOST_GRACE * self._patience_s + self.poll_s)
        if not self._died.done():
            self._lost = f"it is not connected to the host any more: {reason}"
            await self.kill()

    def _mark_dead(self) -> None:
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    @property
    def epitaph(self) -> str:
        """The end of the kernel's process in words."""
        given = self._grant["limits"].get("memory_mb")
        return self._limit or self._lost or epitaph_of(self._exit_code, given)

    async def hibernate(self, folder: Path) -> None:
        """Write the kernel to a folder and end it; ``resume`` goes on from there.

        Parameters
        ----------
        folder
            Must not exist. It holds all that the kernel had in memory: it is made private.

        Raises
        ------
        SandboxError
            The level cannot do that (``microvm`` can), or it failed.
        KernelDied
            There is no kernel.
        KernelError
            The caller's: a cell is running.
        """
        if not self.alive:
            raise KernelDied(f"the kernel is gone: {self.epitaph}")
        if self._running is not None:
            raise KernelError("a cell is running: a kernel is hibernated between cells")
        note = {"steps": self.steps, "report": self.sandbox_report}
        if self._listening is not None:
            self._listening.cancel()  # a machine that is being written has no connections
        try:
            await self._provisioner.hibernate(folder, note)
        except SandboxError:
            await self._connect_again()
            raise
        await self.close()

    async def _connect_again(self) -> None:
        """Make new connections to a kernel that has closed the old ones."""
        assert self._manager is not None
        if self._client is not None:
            await self._client.close()
        self._connect(self._manager)
        await self._wait_until_ready(self._patience_s)

    async def restart(self) -> None:
        """Replace the kernel by a fresh one; every variable is gone."""
        await self.close()
        self._resume = None
        await self.start()

    async def close(self) -> None:
        """End the kernel and remove its directory. Safe to call twice, and half-way in a start."""
        manager, client, directory = self._manager, self._client, self._directory
        watching = [task for task in (self._watch, self._listening) if task is not None]
        self._manager = self._client = self._watch = self._listening = self._directory = None
        async with AsyncExitStack() as ending:  # from the last to the first, whatever fails
            if directory is not None:
                ending.push_async_callback(asyncio.to_thread, clear, directory)
            if self._proxy is not None:
                ending.push_async_callback(self._proxy.close)
            if manager is not None and manager.provisioner is not None:
                ending.push_async_callback(self._end, manager)
            if client is not None:
                ending.push_async_callback(client.close)
            for task in watching:
                ending.callback(task.cancel)
            if client is not None and manager and self._died and not self._died.done():
                client.shutdown()
                closely = asyncio.create_task(self._watch_process(manager, self.poll_s / 20))
                ending.callback(closely.cancel)
                await first_of(self._died, seconds=SHUTDOWN_GRACE_S)

    async def _end(self, manager: AsyncKernelManager) -> None:
        assert manager.provisioner is not None
        async with AsyncExitStack() as ending:
            ending.push_async_callback(manager.cleanup_resources)
            ending.push_async_callback(manager.provisioner.wait)
            await manager.provisioner.kill()

    async def _limit_reached(self, reason: str) -> None:
        """Let the cell end before the kernel is killed; called by the provisioner's watchdog."""
        self._limit = reason
        cell, client = self._running, self._client
        if cell is not None and client is not None and self._died is not None:
            client.interrupt()
            await first_of(cell.over, self._died, seconds=LIMIT_GRACE_S)

    async def kill(self) -> None:
        """End the kernel's process group at once; the running cell ends as ``dead``."""
        if self._manager is not None and self._manager.provisioner is not None:
            assert self._died is not None
            await self._manager.provisioner.kill()
            await first_of(self._died, seconds=SHUTDOWN_GRACE_S)
            self._mark_dead()


class KernelSession(KernelProcess):
    """A kernel and its cells, as an async context manager; parameters as of its process.

    Examples
    --------
    >>> async with KernelSession(cwd=Path(".")) as kernel:
    ...     result = await kernel.execute("1 + 1")
    """

    async def execute(
        self,
        code: str,
        *,
        step: int | None = None,
        timeout_s: float | None = None,
        waited: Callable[[], float] = lambda: 0.0,
        on_output: OnOutput | None = None,
        on_request: OnRequest | None = None,
    ) -> CellResult:
        """Run one cell; see :meth:`Kernel.execute`. Magics are allowed."""
        client, died = self._client, self._died
        if client is None or died is None or died.done():
            raise KernelDied(f"the kernel is gone: {self.epitaph}")
        number = step if step is not None else self.steps + 1
        self.steps = max(self.steps, number)
        self._interrupted = False
        started, waited_before = time.monotonic(), waited()

        def seconds() -> float:
            return time.monotonic() - started - (waited() - waited_before)

        def seconds_left() -> float | None:
            return None if timeout_s is None else timeout_s - seconds()

        cell = client.execute(code, step=number, on_output=on_output, on_request=on_request)
        self._running = cell
        try:
            end = await over(cell, died=died, seconds_left=seconds_left)
            if end == "timeout":
                await self._interrupt_or_kill(cell)
        except asyncio.CancelledError:
            # A caller that cancels wants the cell to end, too; the kernel stays usable.
            await asyncio.shield(self._interrupt_or_kill(cell))
            raise
        finally:
            self._running = None
            client.forget(cell)
        if self._limit:
            await self.kill()  # the cell may have ended on the interrupt that came before
        passed = timeout_s if end == "timeout" else None
        return self._result(cell, passed=passed, seconds=seconds())

    # --- values ----------------------------------------------------------------------------

    async def get(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables; see :meth:`Kernel.get`."""
        return await read_values(names, await self._evaluate(getting(names)))

    async def get_answer(self) -> Json:
        """Return the latest answer; see :meth:`Kernel.get_answer`."""
        return read_answer(await self._evaluate(GETTING_ANSWER))

    async def take_answer(self) -> Any:
        """Return the latest answer itself; see :meth:`Kernel.take_answer`."""
        return await read_value(await self._evaluate(TAKING_ANSWER))

    async def index(self, folders: Folders, *, sample: int, seconds: float) -> Any:
        """Look through folders of data; see :meth:`Kernel.index`."""
        return await self._evaluate(indexing(folders, sample, seconds), VALUES_TIMEOUT_S + seconds)

    async def _evaluate(self, expression: str, timeout_s: float = VALUES_TIMEOUT_S) -> Any:
        """Return the display data of an expression: anything, or None."""
        reply = await self._run_ours("", expression=expression, timeout_s=timeout_s)
        expressions = reply.get("user_expressions")
        found = expressions.get("taken") if isinstance(expressions, dict) else None
        return found.get("data") if isinstance(found, dict) else None

    async def _run_ours(
        self, source: str, *, expression: str = "", timeout_s: float = VALUES_TIMEOUT_S
    ) -> dict[str, Any]:
        """Run a cell that nobody sees, and return its reply."""
        if self._client is None or self._died is None or self._died.done():
            raise KernelDied(f"the kernel is gone: {self.epitaph}")
        asked = {"taken": expression} if expression else None
        cell = self._client.execute(source, step=0, silent=True, expressions=asked)
        self._running = cell
        until = time.monotonic() + timeout_s
        try:
            end = await over(cell, died=self._died, seconds_left=lambda: until - time.monotonic())
            if end == "timeout":
                await self._interrupt_or_kill(cell)
        finally:
            self._running = None
            self._client.forget(cell)
        if not cell.over.done() or cell.error is not None:
            reason = f"{cell.error.ename}: {cell.error.evalue}" if cell.error else self.epitaph
            raise KernelError(one_line(reason, 300))
        return cell.reply or {}

    async def interrupt(self) -> None:
        """End the running cell with KeyboardInterrupt; it ends as ``interrupted``.

        A cell that does not end within the grace period costs the kernel.
        """
        cell = self._running
        if cell is not None:
            self._interrupted = True
            await self._interrupt_or_kill(cell)

    async def _interrupt_or_kill(self, cell: Cell) -> None:
        """Interrupt; insist a few times (code may swallow it once); then kill."""
        for _ in range(3):
            if self._client is None or not self.alive or cell.over.done():
                return
            assert self._died is not None
            heard = self._client.interrupt()
            await first_of(cell.over, self._died, heard, seconds=self.way_s)
            await first_of(cell.over, self._died, seconds=INTERRUPT_GRACE_S / 3)
        if cell.over.done() or not self.alive:
            return
        await self.kill()

    def _result(self, cell: Cell, *, passed: float | None, seconds: float) -> CellResult:
        """Return the result of a cell; ``passed`` is the limit of time that it passed, if any."""
        outputs = tuple(cell.collector.outputs())
        status: CellStatus = "ok"
        error = cell.error
        if self._limit:
            status, error = "dead", CellError(ename="KernelDied", evalue=self._limit)
        elif not self.alive and not cell.over.done():
            status = "dead"
            error = CellError(ename="KernelDied", evalue=self._why_ended(passed))
        elif passed is not None:
            status = "timeout"
        elif self._interrupted:
            status = "interrupted"
        elif error is not None:
            status = "error"
        return CellResult(
            status=status,
            outputs=outputs,
            error=error,
            seconds=seconds,
            limit="" if passed is None or self._limit else "cell_seconds",
            answer=cell.collector.answer,
            changes=cell.changes,
        )

    def _why_ended(self, passed: float | None) -> str:
        """Say why the kernel ended with a cell; where that was us, memory is no reason."""
        if passed is not None:
            return (
                f"the cell passed its limit of {passed:g} s, did not let itself be interrupted "
                "and was ended with its kernel"
            )
        if self._interrupted:
            return "the cell did not let itself be interrupted and was ended with its kernel"
        return self.epitaph
