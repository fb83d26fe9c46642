"""Watch a kernel's use of memory and disk from outside, and report an excess.

A limit on the size of one file says nothing about a thousand of them, and outputs must survive, so
they cannot lie in a file system of limited size. A limit on the memory of one process says nothing
about a hundred of them, and not everybody may make a control group. Memory is filled in less time
than it takes to ask a cell to stop: the processes that hold most of it are killed at once.

Both are looked at in threads: the event loop may be busy, or not run at all. Neither takes more
than a part of a processor: the more there is to look at, the less often it is. What is free on the
disk tells in between when it is time to look.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable

from kernel_agent.sandbox import memory
from kernel_agent.sandbox.disk import Disk, Used
from kernel_agent.sandbox.levels import Grant

EVERY_S = 0.5
GLANCE_S = 0.1  # how often is looked at what is free
MEMORY_EVERY_S = 0.2
HURRY_S = 0.03
"""How often memory is looked at once a quarter of the limit is used: two processors fill about
100 MB in that time."""
AT_MOST = 0.2  # of one processor for looking at each, however much there is
HURRIED = 0.6  # half of the files that may be are there (25,000 a second), disk or memory fills
MAX_FILES = 100_000
MAX_WATCHES = 100_000
"""Descriptors watched by epoll: a user has 4 % of the memory for all (900,000 with 4 GB)."""
ANSWER_S = 1.0  # how long the event loop may take to begin to end a kernel


class Watchdog:
    """Watches the folders of one kernel.

    Parameters
    ----------
    grant
        Its folders and limits. What lies there at the start does not count, nor does its removal
        make room.
    """

    def __init__(self, grant: Grant) -> None:
        self._folders = (grant.workspace, grant.sockets.parent)
        self._limit_mb = grant.limits.disk_mb
        self._memory_mb = grant.limits.memory_mb
        self._in_memory = (*memory.IN_MEMORY, str(grant.scratch))
        self._stopped = threading.Event()
        self._reported = False

    def start(
        self,
        process: int,
        exceeded: Callable[[str], Awaitable[None]],
        kill: Callable[[], object],
    ) -> None:
        """Begin to watch a process with all below it.

        Parameters
        ----------
        exceeded
            Awaited once, with why, in the event loop that runs now.
        kill
            Called, from another thread, where that loop does not answer: an application that is
            not asynchronous runs it only while it waits for something.
        """
        loop = asyncio.get_running_loop()

        async def end(reason: str, answered: threading.Event) -> None:
            answered.set()
            if not self._reported and not self._stopped.is_set():
                self._reported = True
                await exceeded(reason)

        def report(reason: str) -> None:
            answered = threading.Event()
            ending = end(reason, answered)
            try:
                asyncio.run_coroutine_threadsafe(ending, loop)
            except RuntimeError:  # the loop has ended
                ending.close()
            if not answered.wait(ANSWER_S) and not self._stopped.is_set():
                kill()

        disk = Disk(self._folders, process)
        threading.Thread(target=self._watch_disk, args=(disk, report), daemon=True).start()
        if self._memory_mb:
            arguments = (process, self._memory_mb, report)
            threading.Thread(target=self._watch_memory, args=arguments, daemon=True).start()

    def stop(self) -> None:
        """Stop watching; safe from any thread."""
        self._stopped.set()

    def _watch_disk(self, disk: Disk, report: Callable[[str], None]) -> None:
        began, share = time.thread_time(), AT_MOST
        before = used = last = disk.look()
        while not self._wait(disk, time.thread_time() - began, share, self._room_mb(before, used)):
            began, last = time.thread_time(), used
            used = disk.look(enough_mb=self._limit_mb + before.megabytes)
            before = before.or_less(used)
            if self._room_mb(before, used) < 0:
                report(f"disk limit of {self._limit_mb} MB exceeded")
                return
            if used.files - before.files > MAX_FILES:
                report(f"limit of {MAX_FILES:,} files exceeded")
                return
            hurried = used.files > last.files and used.files - before.files > MAX_FILES // 2
            share = HURRIED if hurried else AT_MOST

    def _room_mb(self, before: Used, used: Used) -> float:
        return self._limit_mb - (used.megabytes - before.megabytes)

    def _wait(self, disk: Disk, cost_s: float, share: float, room_mb: float) -> bool:
        """Wait until it is time to look again; return whether there is nothing to watch any more.

        A look's cost sets the pause; it is shorter when the disk has lost more than there is room.
        """
        free_mb = disk.free_mb()
        earliest = time.monotonic() + cost_s / HURRIED
        latest = time.monotonic() + max(EVERY_S, cost_s / share)
        while (left := latest - time.monotonic()) > 0:
            if self._stopped.wait(min(left, GLANCE_S)):
                return True
            if time.monotonic() > earliest and free_mb - disk.free_mb() > room_mb:
                break
        return self._stopped.is_set()

    def _watch_memory(self, process: int, limit_mb: int, report: Callable[[str], None]) -> None:
        pause_s, used_mb, before_mb = HURRY_S, 0.0, 0.0
        while not self._stopped.wait(pause_s):
            began = time.thread_time()
            # Beside processes that are at work a look takes long: until then it could be too much.
            is_near = used_mb > before_mb and 2 * used_mb - before_mb > limit_mb
            all_now = [pid for pid, _ in memory.processes(process)] if is_near else []
            with memory.stopped(all_now):
                seen, before_mb = memory.resident(process), used_mb
                used_mb = memory.memory_mb(process, self._in_memory, seen)
            if used_mb > limit_mb and self._is_above(process, limit_mb, seen):
                report(f"memory limit of {limit_mb} MB exceeded")
                continue  # until it has ended, those that come after are killed as well
            if memory.watches(process, MAX_WATCHES) > MAX_WATCHES:
                report(f"limit of {MAX_WATCHES:,} watched descriptors exceeded")
                return
            pause_s = HURRY_S if used_mb > limit_mb / 4 else MEMORY_EVERY_S
            share = HURRIED if limit_mb / 4 < used_mb <= limit_mb else AT_MOST
            pause_s = max(pause_s, (time.thread_time() - began) / share)

    def _is_above(self, process: int, limit_mb: int, seen: memory.Resident) -> bool:
        """Whether processes hold more than they may; those that hold most of it are killed."""
        with memory.stopped(seen):
            found = memory.resident(process)
            above = memory.exact_memory_mb(process, self._in_memory, found) > limit_mb
            if above:
                memory.signal_all(memory.large(process, found), signal.SIGKILL)
        return above
