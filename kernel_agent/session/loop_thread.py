"""An event loop in a thread of its own, for callers that have none or whose own is busy.

:class:`Synchronous` is what the session's synchronous methods rest on; front ends that must stay
responsive use :class:`LoopThread` itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kernel_agent.errors import UsageError
from kernel_agent.records import CellResult, Given, Undone

if TYPE_CHECKING:
    from kernel_agent.session.pipeline import FixedCell
    from kernel_agent.session.run import Run

T = TypeVar("T")

SIGNAL_S = 0.5  # the longest until Ctrl-C is noticed
CLOSED = "the session is closed: make a new one"


class LoopThread:
    """An event loop in a thread, for callers that have none."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kernel-agent", daemon=True
        )
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the thread runs in this process: a fork has the object, and not the thread."""
        return self._pid == os.getpid()

    def result(
        self, work: Coroutine[Any, Any, T], *, on_interrupt: Callable[[], None] | None = None
    ) -> T:
        """Run the coroutine there and wait for it here.

        Ctrl-C cancels it, and is raised when it has ended, unless it is to do something else.
        """
        interrupted, future = asyncio.Event(), None
        try:
            future = self.begin(_cancelled_by(interrupted, work))
            return _result(future)
        except KeyboardInterrupt:
            if future is not None and on_interrupt is not None:
                on_interrupt()
                return _result(future)
            self._loop.call_soon_threadsafe(interrupted.set)
            if future is not None:
                _wait(future)
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the coroutine there, and return a future of its result at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self) -> None:
        """Cancel what is left, stop the loop and wait for the thread."""
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _result(future: Future[T]) -> T:
    _wait(future)
    return future.result()


def _wait(future: Future[Any]) -> None:
    """Wait in pieces: a signal that comes as Python begins to wait does not end that wait."""
    while not future.done():
        wait([future], SIGNAL_S)


async def _cancelled_by(interrupted: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work does; when it is cancelled it has ended before this does."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(interrupted.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        if not task.done():
            task.cancel()
    return await task


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Synchronous(ABC):
    """Use a session without an event loop: it gets one in a thread of its own.

    It is started when it is first used, or entered as a context manager; from any thread.
    The methods are those of :class:`~kernel_agent.Session`.
    """

    run: Callable[..., Coroutine[Any, Any, Run]]
    play: Callable[..., Coroutine[Any, Any, Run]]
    execute: Callable[..., Coroutine[Any, Any, CellResult]]
    put: Callable[..., Coroutine[Any, Any, tuple[Given, ...]]]
    take: Callable[..., Coroutine[Any, Any, dict[str, Any]]]
    undo: Callable[..., Coroutine[Any, Any, Undone]]
    hibernate: Callable[..., Coroutine[Any, Any, None]]

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # on which it was started
        self._thread: LoopThread | None = None
        self._starting = threading.Lock()

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it has ended."""

    @abstractmethod
    async def start(self) -> None:
        """Begin; called once, on the loop that all else is called on."""

    @abstractmethod
    async def close(self) -> None:
        """End; may be called when the start has failed."""

    @abstractmethod
    def stop(self) -> None:
        """End what is under way; called from any thread."""

    def close_sync(self) -> None:
        """Close a session that was used synchronously."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_here:  # else the process that was forked closes it
            try:
                thread.result(self.close())
            finally:
                thread.end()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    def __enter__(self) -> Self:
        self._on_own_thread()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close_sync()

    def run_sync(self, task: str, **options: Any) -> Run:
        """Run a task and wait for it; see :meth:`run`. Ctrl-C ends the run as interrupted."""
        return self._wait_for(lambda: self.run(task, **options))

    def play_sync(self, cells: Sequence[FixedCell], title: str, **options: Any) -> Run:
        """Run fixed cells and wait for them; see :meth:`play`."""
        return self._wait_for(lambda: self.play(cells, title, **options))

    def execute_sync(self, code: str, *, timeout_s: float | None = None) -> CellResult:
        """Run one cell and wait for it; see :meth:`execute`. Ctrl-C ends it as interrupted."""
        return self._wait_for(lambda: self.execute(code, timeout_s=timeout_s))

    def undo_sync(self, steps: int = 1, **options: Any) -> Undone:
        """Take the last steps back and wait for it; see :meth:`undo`. Ctrl-C stops it."""
        return self._wait_for(lambda: self.undo(steps, **options))

    def put_sync(self, variables: Mapping[str, Any]) -> tuple[Given, ...]:
        """Put variables and wait for it; see :meth:`put`."""
        return self._wait_for(lambda: self.put(variables))

    def take_sync(self, names: Sequence[str]) -> dict[str, Any]:
        """Take variables and wait for them; see :meth:`take`."""
        return self._wait_for(lambda: self.take(names))

    def hibernate_sync(self, folder: str | Path) -> None:
        """Hibernate and wait for it; see :meth:`hibernate`."""
        self._wait_for(lambda: self.hibernate(folder))

    def _wait_for(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        thread = self._on_own_thread()
        return thread.result(make(), on_interrupt=self.stop)

    def _on_own_thread(self) -> LoopThread:
        with self._starting:
            if self._thread is None:
                self._thread = self._begun()
        if not self._thread.is_here:
            raise UsageError(
                "this session belongs to the process that started it: make one after the fork"
            )
        return self._thread

    def _begun(self) -> LoopThread:
        """Start on a thread of its own."""
        if self.closed:
            raise UsageError(CLOSED)
        if self._loop is not None:
            raise UsageError("this session runs on your event loop: await session.run(…)")
        thread = LoopThread()
        try:
            thread.result(self.start())
        except BaseException:
            try:
                thread.result(self.close())
            finally:
                thread.end()
            raise
        return thread
