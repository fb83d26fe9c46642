"""Asking for the end of what is under way: one signal, held by everything that would go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopSignal:
    """Somebody asks for the end of a run, of an undo, or of a cell of the person's own.

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
        """Whether somebody has asked for the end, since the last thing began."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask for the end; asking again tells what is under way by then."""
        self._event.set()
        for end in tuple(self._ends):
            end()

    def clear(self) -> None:
        """Begin anew; called when something begins that may be stopped."""
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
