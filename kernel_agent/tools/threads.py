"""Plain functions in daemon threads that nobody has to wait for.

asyncio's threads are a few, are waited for when the loop ends, and one that never returns takes a
place for good. A tool may be slow or never return: it gets a daemon thread, and its caller
can give up at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from kernel_agent.safe import HELD

MOST = 1024  # threads at a time in this process, abandoned ones included
_places = threading.Semaphore(MOST)


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function in a thread and wait for it; cancelling gives up waiting.

    Raises
    ------
    BaseException
        What the function raised.
    RuntimeError
        The caller's: too many functions have never returned.
    """
    if not _places.acquire(blocking=False):
        raise RuntimeError(f"{MOST} calls of host tools have not returned: no more are begun")
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()
    charge = HELD.get()
    if charge is not None:  # it works with what was charged, also when it was given up
        charge.hold()

    def settle(value: Any, error: BaseException | None) -> None:
        if charge is not None:
            charge.drop()
        if not outcome.done():
            outcome.set_result((value, error))

    def work() -> None:
        value, failed = None, None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as error:  # SystemExit, too: it is the tool's, not this thread's
            failed = error
        finally:
            _places.release()
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name="kernel-agent-tool", daemon=True).start()
    value, failed = await outcome
    if failed is not None:
        raise failed
    return value
