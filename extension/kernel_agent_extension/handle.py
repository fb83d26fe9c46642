"""A run in a notebook: it goes on by itself; a cell may wait for it, look at it, stop it.

The session's loop is in a thread of its own. A caller waits in ticks of a tenth of a
second, shows what has happened, and can be interrupted: by ``await`` in a cell, which leaves the
kernel free for a button's messages (ipykernel 7.4), or by blocking where nothing can be awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from kernel_agent.errors import UsageError
from kernel_agent.records import Event, ExitStatus, Json, Step, Usage, spent_texts
from kernel_agent.session import Run
from kernel_agent_extension.calls import Calls
from kernel_agent_extension.views import RunView

TICK_S = 0.1
"""Seconds between wake-ups of a waiting cell; they also let it be interrupted (ipykernel #881)."""


class Handle:
    """A run that has been started; :meth:`result` waits for it, and so does ``await``.

    What a run has (``answer``, ``steps``, ``notebook``, …) is waited for, too, when it is read.

    Parameters
    ----------
    task
        What was asked.
    future
        The work on the session's loop; its result is the run.
    stop
        Ends the run; called on any thread.
    show
        The view of the run; it is called on the thread that waits.
    finish
        Called once when the run has ended, on the thread that waits; without a run with the reason.
    cell
        The number of the notebook's cell that asked.
    calls
        Functions of the notebook that the run may call, made here while a cell blocks.
    """

    def __init__(
        self,
        task: str,
        future: Future[Run],
        *,
        events: SimpleQueue[Event | None],
        stop: Callable[[], None],
        show: RunView,
        finish: Callable[[Run | None, str], None],
        cell: int = 0,
        calls: Calls | None = None,
    ) -> None:
        self.task = task
        self._future = future
        self._events = events
        self._stop = stop
        self._show = show
        self._finish: Callable[[Run | None, str], None] | None = finish
        self._began = time.monotonic()
        self._cell = cell
        self._calls = calls or Calls(stop)

    # --- what it came to -------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Run:
        """Wait for the end of the run, and return its result.

        Parameters
        ----------
        timeout
            Seconds; without them as long as it takes. An interrupt stops the run.

        Raises
        ------
        TimeoutError
            The run is not over by then; it goes on.
        UsageError
            The run could not begin, or was stopped before it did.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._calls.attended(lambda: self._events.put(None)):
            while True:
                try:  # all of it: an interrupt may come in the test of the loop as well
                    while not self.done:
                        if until is not None and time.monotonic() > until:
                            went_on = f"the run has not ended after {timeout:g} s; it goes on"
                            raise TimeoutError(went_on)
                        self._pass_on(wait_s=TICK_S)
                        self._calls.work()
                    break
                except KeyboardInterrupt:
                    self.stop()
        return self._finish_run()

    def __await__(self) -> Generator[Any, None, Handle]:
        return self._wait().__await__()

    async def _wait(self) -> Handle:
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: Future[Run]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(over.set)

        self._future.add_done_callback(wake)
        while True:
            try:
                while not self.done:
                    self._pass_on()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(over.wait(), TICK_S)
                break
            except (asyncio.CancelledError, KeyboardInterrupt):  # the kernel was interrupted
                self.stop()
        self._finish_run()
        return self

    def show_again(self) -> bool:
        """Show the live view below the cell that runs now, too, if that is possible."""
        return self._show.show_again()

    def stop(self) -> None:
        """End the run as interrupted, at once; what it did so far is kept."""
        if not self.done:  # else it would end the session's next one
            self._stop()

    @property
    def status(self) -> str:
        """``running``, or how the run ended."""
        return str(self.result().status) if self.done else "running"

    @property
    def answer(self) -> Json:
        """The answer as a value; None without one."""
        return self.result().answer

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.result().text

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps."""
        return self.result().steps

    @property
    def notebook(self) -> Path | None:
        """The notebook of the session so far."""
        return self.result().notebook

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in Run.__dataclass_fields__:
            raise AttributeError(f"a run has no {name!r}")
        return getattr(self.result(), name)

    def __repr__(self) -> str:
        if not self.done:
            return f"<running for {time.monotonic() - self._began:.0f} s: {self.task[:60]}>"
        if self._future.cancelled() or self._future.exception() is not None:
            return f"<not begun: {self.task[:60]}>"
        run = self._future.result()
        steps, seconds = spent_texts(steps=len(run.steps), seconds=run.seconds, usage=Usage())
        return f"<Run {run.run_id}: {run.status}, {steps}, {seconds}>"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - IPython's protocol
        printer.text(repr(self))

    def _ipython_display_(self) -> None:
        """Describe the run; show nothing in the cell that asked, which shows the run itself."""
        import IPython
        from IPython.display import publish_display_data

        ipython: Any = IPython  # untyped in some versions
        shell = ipython.get_ipython()
        plain = getattr(shell, "kernel", None) is None  # a terminal has written `Out[2]:` already
        if plain or shell.execution_count != self._cell:
            publish: Any = publish_display_data
            publish({"text/plain": repr(self)})

    # --- while it lasts --------------------------------------------------------------------

    def _pass_on(self, wait_s: float = 0.0) -> None:
        """Show the events since the last time; wait for the first one at most so long."""
        try:
            event = self._events.get(timeout=wait_s) if wait_s else self._events.get_nowait()
            while True:
                if event is not None:  # else: there is a call to make
                    self._show(event)
                event = self._events.get_nowait()
        except Empty:
            return

    def settle(self) -> None:
        """Finish without a waiting cell; called when a run in the background has ended."""
        with suppress(BaseException):
            self._finish_run()

    def _finish_run(self) -> Run:
        self._pass_on()
        finish, self._finish = self._finish or _nothing, None
        try:
            run = self._future.result()
        except CancelledError:
            finish(None, "stopped before it began")
            raise UsageError("the run was stopped before it began") from None
        except BaseException as error:
            finish(None, str(error))
            raise
        finish(run, "")
        return run


def _nothing(_run: Run | None, _why: str) -> None:
    """Do nothing: the work was done already."""


def is_answered(run: Run | None) -> bool:
    """Whether a run ended with an answer."""
    return run is not None and run.status is ExitStatus.ANSWERED
