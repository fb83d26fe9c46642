"""Measure a kernel's memory from outside.

Counted is what is its own: pages of its processes, shared memory (each page once), files in memory
without a name (``memfd_create``), and the file systems in memory that only it has, empty files
included. A control group counts the same and more; this is for those who may not make one. Linux:
Documentation/filesystems/proc.rst.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

Resident = dict[int, tuple[int, int]]
IN_MEMORY = ("/tmp", "/dev/shm")
_FILE_KB = 1.6  # what Linux holds for one empty file in memory, measured on 400,000 of them


def memory_mb(
    process: int, places: Iterable[str] = IN_MEMORY, seen: Resident | None = None
) -> float:
    """Return the megabytes that a process and all below it hold; shared pages may count twice.

    ``places`` are where it may have a file system in memory. ``seen`` is a look made already.
    """
    found = seen or resident(process)
    shared = max(sum(pages for _, pages in found.values()), _unnamed_kb(found))
    return (sum(own for own, _ in found.values()) + shared + _file_systems(found, places)) / 1024


def exact_memory_mb(
    process: int, places: Iterable[str] = IN_MEMORY, seen: Resident | None = None
) -> float:
    """Return the same, with each page counted once, also one that a fork shares; slowly.

    It waits for processes that take memory: stop them (:func:`stopped`).
    """
    found = seen or resident(process)
    portions = [_portion(pid, *held) for pid, held in found.items()]
    shared = max(sum(shared for _, shared in portions), _unnamed_kb(found))
    return (sum(own for own, _ in portions) + shared + _file_systems(found, places)) / 1024


@contextlib.contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes meanwhile: none takes more, nor is waited for."""
    signal_all(pids := list(pids), signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those that are left."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def large(process: int, seen: Resident | None = None, share: float = 0.9) -> list[int]:
    """Return the fewest processes below one that hold a share of the whole; largest first."""
    found = seen or resident(process)
    held = {pid: sum(pages) for pid, pages in found.items() if pid != process}
    most: list[int] = []
    for pid in sorted(held, key=lambda pid: held[pid], reverse=True):
        if sum(held[other] for other in most) < share * sum(held.values()):
            most.append(pid)
    return most


def watches(process: int, enough: int) -> int:
    """Return how many descriptors a process and all below it watch by epoll.

    Linux counts them for the user, in all programs together (epoll(7), ``max_user_watches``), and
    a process that gets no more cannot run an event loop. They are counted one by one only where the
    products of a process's epolls and descriptors, which are more, come to ``enough``.
    """
    found, most = dict[int, list[str]](), 0
    for pid, _ in processes(process):
        with contextlib.suppress(OSError):
            targets = dict(_descriptors(pid))
            found[pid] = [one for one, to in targets.items() if to == "anon_inode:[eventpoll]"]
            most += len(found[pid]) * len(targets)
    counts = (_count_watched(pid, name) for pid, names in found.items() for name in names)
    return most if most < enough else sum(counts)


def _descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """Yield a process's descriptors, each with what it leads to; of gVisor's, thousands."""
    for name in os.listdir(folder := f"/proc/{pid}/fd"):  # noqa: PTH208 - as above
        with contextlib.suppress(OSError):  # closed meanwhile
            yield name, os.readlink(f"{folder}/{name}")  # noqa: PTH115


def _count_watched(pid: int, epoll: str) -> int:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/fdinfo/{epoll}").read_bytes().count(b"tfd:")
    return 0


def resident(process: int) -> Resident:
    """Return the kilobytes of own and of shared memory of a process and all below it."""
    found = {}
    for pid, tasks in processes(process):
        with contextlib.suppress(OSError):  # it has ended
            # Of a process whose first thread has ended, the others tell.
            statuses = (dict(_fields(f"/proc/{pid}/task/{task}/status")) for task in tasks)
            fields = next((fields for fields in statuses if "RssAnon" in fields), {})
            found[pid] = (fields.get("RssAnon", 0), fields.get("RssShmem", 0))
    return found


def processes(process: int) -> Iterator[tuple[int, list[str]]]:
    """Yield a process and all below it, each with its threads."""
    waiting = [process]
    while waiting:
        pid = waiting.pop()
        tasks = []
        with contextlib.suppress(OSError):  # it has ended
            tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - thirty times a second
            for task in tasks:
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                    waiting += map(int, file.read().split())
        yield pid, tasks


def _fields(path: str) -> Iterator[tuple[str, int]]:
    with open(path) as lines:  # noqa: PTH123
        for line in lines:
            name, _, value = line.partition(":")
            if value.endswith(" kB\n"):
                yield name, int(value.split()[0])


def _portion(pid: int, own: int, shared: int) -> tuple[int, int]:
    """Return a process's part of its memory: each page divided by those who have it."""
    try:
        fields = dict(_fields(f"/proc/{pid}/smaps_rollup"))
    except OSError:  # it may not be read, its first thread has ended, or all have
        return (own, shared) if Path(f"/proc/{pid}").exists() else (0, 0)
    return fields.get("Pss_Anon", 0), fields.get("Pss_Shmem", 0)


def _unnamed_kb(pids: Resident) -> int:
    """Return the kilobytes of files in memory that only descriptors lead to."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name, target in _descriptors(pid):
                if target.startswith("/memfd:"):
                    with contextlib.suppress(OSError):  # closed meanwhile
                        about = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                        sizes[about.st_dev, about.st_ino] = about.st_blocks // 2
    return sum(sizes.values())


def _file_systems(pids: Resident, places: Iterable[str]) -> int:
    """Return the kilobytes in the file systems for temporary files that the host does not have."""
    used: dict[int, int] = {}
    for pid in pids:
        for place in places:
            with contextlib.suppress(OSError):
                device = os.stat(inside := f"/proc/{pid}/root{place}").st_dev  # noqa: PTH116
                if device not in used and device != os.stat(place).st_dev:  # noqa: PTH116
                    about = os.statvfs(inside)
                    content = (about.f_blocks - about.f_bfree) * about.f_frsize // 1024
                    used[device] = content + int((about.f_files - about.f_ffree) * _FILE_KB)
    return sum(used.values())
