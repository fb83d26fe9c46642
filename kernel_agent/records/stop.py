"""One stop signal, held by everything that would otherwise go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopSignal:
    """A request to end a run, an undo, or a cell of the person's own.

    A session has one, and hands it to all that works for it: the loop looks at it between two
    things that it does, what waits for a model, a cell, a call or a person waits for it, too, and
    what must be told to end is called. Used on the session's event loop;
    :meth:`kernel_agent.Session.stop` sets it from anywhere.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._ends: list[Callable[[], object]] = []

    @property
    def is_set(self) -> bool:
        """Whether the end was asked for since the last thing began."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask for the end; asking again reaches what is under way by then."""
        self._event.set()
        for end in tuple(self._ends):
            end()

    def clear(self) -> None:
        """Reset the signal; called when something begins that may be stopped."""
        self._event.clear()

    async def wait(self) -> object:
        """Wait until somebody asks for the end."""
        return await self._event.wait()

    @contextmanager
    def calling(self, end: Callable[[], object]) -> Iterator[None]:
        """Within it, call ``end`` whenever somebody asks for the end."""
        self._ends.append(end)
        try:
            yield
        finally:
            self._ends.remove(end)
