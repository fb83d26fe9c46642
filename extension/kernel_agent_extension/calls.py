"""Functions of the notebook as tools: the code calls them, the notebook's main thread runs them.

A session works on an event loop in a thread, and a function of the notebook may use what belongs to
the main thread: a database's connection, a plot, a lock that a cell has taken. So a call is handed
over as a *job*. Whatever is at work on the main thread does it: the event loop of the notebook's
kernel, also while a cell awaits its run, or a cell that blocks until its run is over.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.tools import Tool

UNMARKED = (
    "--tools {0}: the function {0} is not marked as a tool: write @tool above it "
    "(from kernel_agent import tool) and run its cell again"
)


class Calls:
    """Calls that wait for the main thread.

    Parameters
    ----------
    interrupted
        Told on the main thread that a person has interrupted a call: its run is to end, too.
    """

    def __init__(self, interrupted: Callable[[], None]) -> None:
        self._interrupted = interrupted
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._wakes: list[Callable[[], None]] = []
        self._loop = _running_loop()
        self._context = contextvars.copy_context()

    def belong_here(self) -> None:
        """Let what functions print from now on go below the cell that runs now."""
        self._context = contextvars.copy_context()

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Have a function called on the main thread; cancelling gives up waiting.

        Raises
        ------
        BaseException
            Any error that the function raises.
        """
        job = _Job(lambda: function(*args, **kwargs), self._context)
        self._jobs.put(job)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.work)
        for wake in tuple(self._wakes):
            wake()
        value, error = await asyncio.wrap_future(job.done)
        if error is not None:
            raise error
        return value

    @contextmanager
    def attended(self, wake: Callable[[], None]) -> Iterator[None]:
        """Wake a cell that blocks the main thread when there is work; it calls :meth:`work`."""
        self._wakes.append(wake)
        try:
            yield
        finally:
            self._wakes.remove(wake)

    def work(self) -> None:
        """Do the jobs that wait; called on the main thread."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job.do():
                self._interrupted()


class _Job:
    """One call; ``done`` has its value and its error."""

    def __init__(self, work: Callable[[], Any], context: contextvars.Context) -> None:
        self._work = work
        self._context = context
        self.done: Future[tuple[Any, BaseException | None]] = Future()

    def do(self) -> bool:
        """Make the call, unless nobody waits for it; say whether a person interrupted it."""
        if not self.done.set_running_or_notify_cancel():
            return False
        try:
            with _interruptible():
                value = self._context.copy().run(self._work)
        except Exception as error:
            self.done.set_result((None, error))
        except BaseException as error:  # SystemExit, too: it is the function's, not this kernel's
            name = type(error).__name__
            self.done.set_result((None, ToolError(f"the call ended with {name}", kind=name)))
            return isinstance(error, KeyboardInterrupt)
        else:
            self.done.set_result((value, None))
        return False


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the kernel's interrupt reach a function; while a cell awaits, it would only be noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a terminal: there is none between two lines
        return None


class NotebookTool(Tool):
    """A function of the notebook, called on its main thread.

    An ``async`` one is awaited on the session's loop.

    Parameters
    ----------
    marked
        The function, as ``@tool`` has made it.
    variable
        Its name in the notebook.
    calls
        The way to the main thread.
    """

    def __init__(self, marked: Tool, *, variable: str, calls: Calls) -> None:
        super().__init__(marked.function, effects=marked.effects, untrusted=marked.untrusted)
        self.variable = variable
        self._calls = calls

    async def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the function with arguments that were checked."""
        if self.waits:
            return await self.function(*args, **kwargs)
        return await self._calls.call(self.function, *args, **kwargs)

    def follow(self, space: Mapping[str, Any]) -> bool:
        """Take over the function as the notebook has it now; say whether it can be taken."""
        now = space.get(self.variable)
        if not isinstance(now, Tool) or now.function is self.function:
            return True
        told = (now.spec, now.effects, now.untrusted)
        if told != (self.spec, self.effects, self.untrusted):
            return False
        self.function = now.function
        return True


def tools_named(names: Iterable[str], space: Mapping[str, Any], calls: Calls) -> list[Tool | str]:
    """Return the tools that a line names: functions of the notebook, and what else has a name.

    Raises
    ------
    UsageError
        A function that is not marked, or a name that is close to that of a marked one.
    """
    return [_named(name, space, calls) for name in names]


def _named(name: str, space: Mapping[str, Any], calls: Calls) -> Tool | str:
    found = space.get(name)
    if type(found) is Tool:
        return NotebookTool(found, variable=name, calls=calls)
    if isinstance(found, Tool):
        return found
    if callable(found) and hasattr(found, "__code__"):
        raise UsageError(UNMARKED.format(name))
    if found is None:
        _check_spelling(name, space)
    return name


def _check_spelling(name: str, space: Mapping[str, Any]) -> None:
    import difflib

    marked = [variable for variable, value in space.items() if isinstance(value, Tool)]
    close = difflib.get_close_matches(name, marked, n=1, cutoff=0.75)
    if close:
        raise UsageError(f"There is no tool {name} here. Did you mean {close[0]}?")
