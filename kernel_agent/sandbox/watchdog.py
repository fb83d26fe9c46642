"""Looks at what a kernel has written, from outside, and says when it is too much.

A limit on the size of one file says nothing about a thousand of them, and outputs must survive, so
they cannot lie in a file system of limited size.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from kernel_agent.sandbox.levels import Grant

EVERY_S = 0.5
MAX_FILES = 100_000


class Watchdog:
    """Watches the folders of one kernel.

    Parameters
    ----------
    grant
        Its folders and limits. What lies there at the start does not count.
    """

    def __init__(self, grant: Grant) -> None:
        self._folders = (grant.workspace, grant.scratch, grant.sockets)
        self._limit_mb = grant.limits.disk_mb
        self._task: asyncio.Task[None] | None = None

    def start(self, exceeded: Callable[[str], Awaitable[None]]) -> None:
        """Begin to watch; ``exceeded`` is awaited with the reason, once."""
        self._task = asyncio.create_task(self._watch(exceeded))

    def stop(self) -> None:
        """Stop watching; safe from any thread."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def _watch(self, exceeded: Callable[[str], Awaitable[None]]) -> None:
        before_mb, before_files = await asyncio.to_thread(self._used)
        while True:
            await asyncio.sleep(EVERY_S)
            megabytes, files = await asyncio.to_thread(self._used)
            if megabytes - before_mb > self._limit_mb:
                reason = f"disk limit of {self._limit_mb} MB exceeded"
                break
            if files - before_files > MAX_FILES:
                reason = f"limit of {MAX_FILES:,} files exceeded"
                break
        self._task = None  # what follows is not to be cancelled
        await exceeded(reason)

    def _used(self) -> tuple[float, int]:
        """Return megabytes and the number of files, links not followed."""
        used, files = 0, 0
        stop_at = 4 * MAX_FILES
        for folder in map(str, self._folders):
            waiting = [folder]
            while waiting and files < stop_at:
                try:
                    with os.scandir(waiting.pop()) as entries:
                        for entry in entries:
                            files += 1
                            used += entry.stat(follow_symlinks=False).st_blocks * 512
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(entry.path)
                            if files >= stop_at:
                                break
                except OSError:  # gone meanwhile, or closed to us
                    continue
        return used / (1 << 20), files


