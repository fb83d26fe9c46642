"""A kernel in this process, for tests of tools, prompts and all else that needs *a* kernel.

::

    with Session(model=ScriptedModel([...]), kernel=FakeKernel, tools=[my_tool]) as session:
        run = session.run_sync("What does it cost?")

A cell takes about a millisecond, and starting costs nothing. It is **no sandbox at all**: cells run
in the process of the test, with all that is in its memory, and one that ends the process ends the
test. So ``auto`` never chooses it and no setting does: only who writes ``kernel=FakeKernel`` has
it, and the session says that it is not sandboxed.

What a model sees is as in a real kernel: what is printed, the value of the last line, tracebacks,
``final_answer``, ``outputs[k]``, host tools over the same wire, variables and what changed of them.
What is not there: magics and ``!``, figures that show themselves, what child processes and threads
print, packages of the kernel's own (it has the test's). A cell is interrupted when it comes back to
Python (``time.sleep`` does, for as long as cells run); one that does not costs the kernel, as a
real one that does not let itself be interrupted. ``raise KernelDied("…")`` in a cell plays the loss
of a kernel.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import KernelDied
from kernel_agent.kernel.collect import Collector
from kernel_agent.kernel.protocol import Kernel, OnOutput, OnRequest
from kernel_agent.kernel.transfer import read_answer, read_value, read_values
from kernel_agent.records import CellError, CellResult, CellStatus, Json, OutputDict, read_changes

if TYPE_CHECKING:
    from kernel_agent.inkernel.local import Cells

GRACE_S = 1.0  # from an interrupt to the loss of a kernel that does not notice it


class FakeKernel(Kernel):
    """Runs cells in a thread of this process.

    Parameters
    ----------
    cwd
        The working directory of the cells.
    tools
        Descriptions of the host tools that they can call.
    max_operations
        A cap on what one cell computes.

    Examples
    --------
    >>> async with FakeKernel(cwd=Path(".")) as kernel:
    ...     result = await kernel.execute("1 + 1")
    """

    def __init__(
        self,
        *,
        cwd: Path,
        tools: Sequence[dict[str, Any]] = (),
        max_operations: int | None = None,
    ) -> None:
        self.steps = 0
        self.sandbox_report: dict[str, Any] = {}
        self._made_of = (str(cwd), tools, max_operations)
        self._cells: Cells | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ending = ""  # why the running cell is being ended
        self._over: asyncio.Event | None = None  # set when no cell runs

    @property
    def alive(self) -> bool:
        """Whether cells can be run."""
        return self._cells is not None

    async def start(self) -> None:
        """Make the namespace, and the thread in which its cells run."""
        from kernel_agent.inkernel.local import Cells

        self._cells, self._jobs = Cells(*self._made_of), SimpleQueue()
        worker = threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="fake-kernel")
        worker.start()

    async def close(self) -> None:
        """Release everything; a cell that still runs is interrupted."""
        if self._cells is not None:
            self._cells.interrupt()
        self._lose()

    def _lose(self) -> None:
        self._cells = None
        self._jobs.put(None)

    async def interrupt(self) -> None:
        """End the running cell, or lose the kernel where it does not let itself be interrupted."""
        if self._over is not None and not self._over.is_set():
            self._ending = self._ending or "interrupted"
            await self._interrupt_or_lose(self._over)

    async def _interrupt_or_lose(self, over: asyncio.Event) -> None:
        from kernel_agent.inkernel.local import forget_interrupts

        deadline = time.monotonic() + GRACE_S
        while self._cells is not None and not over.is_set():
            if time.monotonic() > deadline:
                self._lose()
                forget_interrupts()  # its thread may never come back to Python
                over.set()
                return
            self._cells.interrupt()
            await _wait(over, GRACE_S / 10)

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
        """Run one cell; see :meth:`Kernel.execute`."""
        cells = self._there()
        number = step if step is not None else self.steps + 1
        self.steps = max(self.steps, number)
        self._ending, self._over = "", asyncio.Event()
        cell = _Cell(code, number, self._over, on_output, on_request)
        began, waited_before = time.monotonic(), waited()

        def seconds() -> float:
            return time.monotonic() - began - (waited() - waited_before)

        self._jobs.put(lambda: cell.run(cells))
        try:
            while not self._over.is_set():
                left = None if timeout_s is None else timeout_s - seconds()
                if left is not None and left <= 0:
                    self._ending = self._ending or "timeout"
                    await self._interrupt_or_lose(self._over)
                else:
                    await _wait(self._over, left)
        except asyncio.CancelledError:
            await asyncio.shield(self._interrupt_or_lose(self._over))
            raise
        if isinstance(cell.raised, KernelDied):
            self._lose()
        return self._result(cell, seconds())

    def _result(self, cell: _Cell, seconds: float) -> CellResult:
        status: CellStatus = "ok" if cell.raised is None else "error"
        error = cell.error
        if self._cells is None:
            reason = str(cell.raised or "it did not let itself be interrupted")
            status, error = "dead", CellError(ename="KernelDied", evalue=reason)
        elif self._ending and isinstance(cell.raised, KeyboardInterrupt):
            status = "timeout" if self._ending == "timeout" else "interrupted"
        return CellResult(
            status=status,
            outputs=tuple(cell.collector.outputs()),
            error=error,
            seconds=seconds,
            answer=cell.collector.answer,
            changes=None if cell.changes is None else read_changes(cell.changes),
        )

    async def get(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables; see :meth:`Kernel.get`."""
        return await read_values(
            names, await asyncio.to_thread(self._there().take_variables, names)
        )

    async def get_answer(self) -> Json:
        """Return the latest answer; see :meth:`Kernel.get_answer`."""
        return read_answer(await asyncio.to_thread(self._there().get_answer))

    async def take_answer(self) -> Any:
        """Return the latest answer itself; see :meth:`Kernel.take_answer`."""
        return await read_value(await asyncio.to_thread(self._there().take_answer))

    def _there(self) -> Cells:
        if self._cells is None:
            raise KernelDied("the kernel is gone: it was lost or closed")
        return self._cells


class _Cell:
    """One cell: run in the kernel's thread, heard and answered on the event loop."""

    def __init__(
        self,
        source: str,
        number: int,
        over: asyncio.Event,
        on_output: OnOutput | None,
        on_request: OnRequest | None,
    ) -> None:
        self._source, self._number, self._over = source, number, over
        self._on_output, self._on_request = on_output, on_request
        self._loop = asyncio.get_running_loop()
        self._context: Context = copy_context()  # of the caller that runs the cell
        self._tasks: set[asyncio.Task[None]] = set()
        self.collector = Collector(self._show, step=number)
        self.raised: BaseException | None = None
        self.changes: dict[str, Any] | None = None

    @property
    def error(self) -> CellError | None:
        """The cell's exception, as it was put out."""
        shown = self.collector.last_error if self.raised is not None else None
        if shown is None:
            return None
        return CellError(
            ename=shown["ename"], evalue=shown["evalue"], traceback=tuple(shown["traceback"])
        )

    def run(self, cells: Cells) -> None:
        """Run the cell to its end; called in the kernel's thread."""
        cells.channel.ask = None if self._on_request is None else self._ask
        try:
            self.raised = cells.run(self._source, self._number, self.collector.add_message)
            self.changes = cells.changes(self._source)
        except BaseException as error:  # an interrupt that comes late
            self.raised = error
        finally:
            cells.channel.ask = None
            self._soon(self._over.set)

    def _show(self, output: OutputDict) -> None:
        if self._on_output is not None:
            self._soon(self._on_output, dict(output))

    def _ask(self, request: str) -> Future[str]:
        reply: Future[str] = Future()
        self._soon(self._answer, request, reply)
        return reply

    def _answer(self, request: str, reply: Future[str]) -> None:
        async def answer() -> None:
            assert self._on_request is not None
            text = await self._on_request(request)
            if not reply.done():
                reply.set_result(text)

        task = self._loop.create_task(answer(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call something on the loop, in the context of the cell; the loop may be gone."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args, context=self._context)


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({waiting}, timeout=seconds)
    waiting.cancel()
