"""Looks at what a kernel uses, from outside, and says when it is too much.

A limit on the size of one file says nothing about a thousand of them, and outputs must survive, so
they cannot lie in a file system of limited size. A limit on the memory of one process says nothing
about a hundred of them, and not everybody may make a control group.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

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
        self._memory_mb = grant.limits.memory_mb
        self._task: asyncio.Task[None] | None = None

    def start(self, process: int, exceeded: Callable[[str], Awaitable[None]]) -> None:
        """Begin to watch a process with all below it; ``exceeded`` is awaited once, with why."""
        self._task = asyncio.create_task(self._watch(process, exceeded))

    def stop(self) -> None:
        """Stop watching; safe from any thread."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def _watch(self, process: int, exceeded: Callable[[str], Awaitable[None]]) -> None:
        before_mb, before_files = await asyncio.to_thread(self._used)
        while True:
            await asyncio.sleep(EVERY_S)
            if self._memory_mb and await asyncio.to_thread(memory_mb, process) > self._memory_mb:
                reason = f"memory limit of {self._memory_mb} MB exceeded"
                break
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


def memory_mb(process: int) -> float:
    """Return what a process and all below it hold of memory that is theirs alone."""
    kilobytes, waiting = 0, [str(process)]
    while waiting:
        pid = waiting.pop()
        try:
            with Path(f"/proc/{pid}/status").open() as status:
                kilobytes += sum(
                    int(line.split()[1])
                    for line in status
                    if line.startswith(("RssAnon:", "RssShmem:"))
                )
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += (task / "children").read_text().split()
        except OSError:  # it has ended
            continue
    return kilobytes / 1024
