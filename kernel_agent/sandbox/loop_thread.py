"""An event loop in a thread of its own, for work that strangers cause.

What they make it compute takes its turn with the host's own loop every five milliseconds (Python's
switch between threads), instead of standing before it. The thread keeps no program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class Apart:
    """A running event loop; ended by :meth:`end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine there; cancelling cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def is_here(self) -> bool:
        """Whether the caller runs in this loop's thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """End the loop; what still runs in it is forgotten."""
        self._loop.call_soon_threadsafe(self._loop.stop)
