"""Close a session: every part, from the last opened to the first, even when one fails."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kernel_agent.errors import TraceError
from kernel_agent.records import Event, Notice, TraceWriter
from kernel_agent.safe import one_line

Close = Callable[[], Awaitable[object] | None]
REASON_CHARS = 300


class Closing:
    """Close the parts of a session when it ends, in the reverse order of opening.

    Parameters
    ----------
    tell
        Told what could not be closed.
    """

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._opened: list[tuple[str, Close]] = []
        self._made: list[tuple[str, Close]] = []

    def add(self, name: str, close: Close) -> None:
        """Add a part that has just been opened, by a name for people."""
        self._opened.append((name, close))

    def add_made(self, name: str, remove: Close) -> None:
        """Add something to remove if the session does not start."""
        self._made.append((name, remove))

    async def close(self) -> None:
        """Close all that is open.

        Raises
        ------
        BaseException
            What was raised first, once everything else is closed; a cancellation before others.
        """
        self._made.clear()
        _raise_first(await self._end(self._opened))

    async def abandon(self) -> None:
        """Close all that is open and remove what was made, after a start that has failed.

        Raises nothing: what made the start fail is what the caller is to see.
        """
        await self._end(self._opened)
        await self._end(self._made)

    async def _end(self, parts: list[tuple[str, Close]]) -> list[BaseException]:
        failed: list[BaseException] = []
        while parts:
            name, close = parts.pop()
            try:
                closing = close()
                if inspect.isawaitable(closing):
                    await closing
            except BaseException as error:  # the parts before it are closed all the same
                failed.append(error)
                self._report(name, error)
        return failed

    def _report(self, name: str, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        # Not as a warning: Python prints those to stderr by itself, where the notice is shown.
        logging.getLogger("kernel_agent").info("closing the %s failed", name, exc_info=error)
        why = one_line(f"{type(error).__name__}: {error}", REASON_CHARS)
        try:
            self._tell(Notice(text=f"The {name} could not be closed ({why})."))
        except Exception:  # a listener of somebody else's: the rest is closed all the same
            logging.getLogger("kernel_agent").info("telling of it failed", exc_info=True)


def restore(trace: TraceWriter, tell: Callable[[Event], None]) -> None:
    """Write the trace again if its file was changed, and say so.

    Raises
    ------
    TraceError
        It cannot be written.
    """
    if trace.restore():
        changed = "The trace had been changed by code in a cell or another program: "
        tell(Notice(text=f"{changed}it was written again from what the host had recorded."))


def close_trace(trace: TraceWriter, tell: Callable[[Event], None]) -> None:
    """Close the trace as the host knows it: until its kernel's end, a cell's thread may write."""
    with suppress(TraceError):  # its folder is gone
        restore(trace, tell)
    trace.close()


def _raise_first(failed: list[BaseException]) -> None:
    errors = sorted(failed, key=lambda error: isinstance(error, Exception))
    if errors:
        raise errors[0]
