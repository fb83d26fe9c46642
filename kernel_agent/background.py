"""An event loop in a thread of its own, for callers that have none or whose own is busy.

Used by the session's synchronous methods and by front ends that must stay responsive.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kernel-agent", daemon=True
        )
        self._thread.start()

    def result(
        self, work: Coroutine[Any, Any, T], *, on_interrupt: Callable[[], None] | None = None
    ) -> T:
        """Run the coroutine there and wait for it here."""
        future = self.begin(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            if on_interrupt is None:
                future.cancel()
                raise
            on_interrupt()
            return future.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the coroutine there, and return at once with what will hold its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self) -> None:
        """Cancel what is left, stop the loop and wait for the thread."""
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
