"""Measure a kernel's disk use from outside.

Counted are the blocks of what has a name in its folders (each file once, however many names it
has), and of what has none: files that were removed or never named, which descriptors or mappings
of its processes hold. What lies in memory is :mod:`.memory`'s to count.

A look cannot be made to wait or to use much, whatever is there: folders are walked without
recursion, path or link (:mod:`kernel_agent.safe.walk`), and a folder that a cell has closed
is opened for its owner again. Some of what may be held cannot be looked into by everybody: files
in flight between processes, mappings of removed files, processes that hide themselves. While there
is any of it, what the file system has lost since then counts as theirs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_agent.safe import walk
from kernel_agent.sandbox.memory import processes

ENOUGH = 400_000  # files after which a look ends
MAX_MAPS = 16 << 20  # bytes of a process's list of mappings; a large one has 1 MB
TRIES = 3  # to open a folder that is closed again and again
LASTING = 3  # looks: files are in flight for a moment wherever processes pass them on
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}
_KCMP_FILES = 2
_REMOVED = " (deleted)"


@dataclass(frozen=True, kw_only=True)
class Used:
    """Result of one measurement; ``unseen`` means that something cannot be looked into."""

    megabytes: float
    files: int
    unseen: bool = False

    def or_less(self, other: Used) -> Used:
        """Return the lower one of each figure."""
        return Used(
            megabytes=min(self.megabytes, other.megabytes), files=min(self.files, other.files)
        )


class Disk:
    """The disk as one kernel uses it.

    Parameters
    ----------
    folders
        Where it may write; the first is its workspace.
    process
        Its outermost process, or None.
    """

    def __init__(self, folders: Sequence[Path], process: int | None = None) -> None:
        self._folders = tuple(map(str, folders))
        self._process = process
        self._closed: dict[tuple[int, int], int] | None = None  # at the first look, with their time
        self._known: tuple[float, float] | None = None  # free and used, when all could be seen
        self._lasting = 0

    def look(self, enough_mb: float = float("inf")) -> Used:
        """Measure the present use, until it is more than enough."""
        named, files = self._measure_named(enough := enough_mb * (1 << 20))
        if named > enough:
            return Used(megabytes=named / (1 << 20), files=files)
        held = _Held(self._folders)
        if self._process is not None:
            for pid, tasks in processes(self._process):
                held.look(pid, tasks)
        used = (named + held.bytes) / (1 << 20)
        lost = self._lost_mb(used, unseen=held.unseen)
        return Used(megabytes=used + lost, files=files + held.files, unseen=held.unseen)

    def free_mb(self) -> float:
        """Return the free space on the workspace's file system."""
        try:
            about = os.statvfs(self._folders[0])
        except OSError:
            return 0.0
        return about.f_bfree * about.f_frsize / (1 << 20)

    def _lost_mb(self, used: float, *, unseen: bool) -> float:
        """Return the file system's loss beyond the seen files, since all could be seen."""
        free = self.free_mb()
        if not unseen or self._known is None:
            self._known, self._lasting = (free, used), 0
            return 0.0
        self._lasting += 1
        if self._lasting < LASTING:
            return 0.0
        free_before, used_before = self._known
        return max(0.0, (free_before - free) - (used - used_before))

    # --- what has a name -----------------------------------------------------------------------

    def _measure_named(self, enough: float) -> tuple[int, int]:
        """Return bytes and the number of entries, links not followed."""
        first, self._closed = self._closed is None, self._closed or {}
        used, files = 0, 0
        linked: set[tuple[int, int]] = set()
        for _, entry in self._entries(first=first):
            files += 1
            if files >= ENOUGH or used > enough:
                break
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:  # gone meanwhile
                continue
            if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
                if (about.st_dev, about.st_ino) in linked:
                    continue
                linked.add((about.st_dev, about.st_ino))
            used += about.st_blocks * 512
        return used, files

    def _entries(self, *, first: bool) -> Iterator[tuple[int, os.DirEntry[str]]]:
        def open_closed(name: str, at: int) -> int:
            return self._open_folder(name, at, first=first)

        for folder in self._folders:
            with contextlib.suppress(OSError):
                top = self._open_folder(folder, None, first=False)
                try:
                    yield from walk.entries(top, open_closed)
                finally:
                    os.close(top)

    def _open_folder(self, name: str, at: int | None, *, first: bool) -> int:
        """Open a folder; one that a cell has closed is opened to its owner first.

        One that was closed when the kernel started, and whose mode nobody changed since, stays so.
        """
        assert self._closed is not None
        for _ in range(TRIES):
            found = os.open(
                name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
            try:
                about = os.fstat(found)
                if about.st_mode & 0o500 != 0o500 and os.geteuid() != 0:
                    key = about.st_dev, about.st_ino
                    if first:
                        self._closed[key] = about.st_ctime_ns
                    if self._closed.get(key) != about.st_ctime_ns:
                        Path(f"/proc/self/fd/{found}").chmod(stat.S_IMODE(about.st_mode) | 0o500)
                with contextlib.suppress(PermissionError):
                    return walk.open_inner(".", found)
            finally:
                os.close(found)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)


class _Held:
    """Nameless files that a kernel's processes hold."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._inside = tuple(f"{folder}/" for folder in folders)
        self._sizes: dict[int, int] = {}  # bytes by inode
        self.unseen = False

    @property
    def bytes(self) -> int:
        """Bytes that they use together."""
        return sum(self._sizes.values())

    @property
    def files(self) -> int:
        """Number of files."""
        return len(self._sizes)

    def look(self, pid: int, tasks: Sequence[str]) -> None:
        """Count a process's nameless files; threads may have descriptors of their own."""
        first = ""
        for task in tasks:
            if first and _same_files(int(first), int(task)):
                continue
            try:
                self._descriptors(f"/proc/{pid}/task/{task}")
            except PermissionError:
                self.unseen |= _is_alive(f"/proc/{pid}/task/{task}")
            except OSError:  # it has ended
                continue
            else:
                if not first:
                    first = task
                    self._mappings(pid, task)

    def _descriptors(self, task: str) -> None:
        for name in os.listdir(f"{task}/fd"):  # noqa: PTH208 - text is all that is wanted
            link = f"{task}/fd/{name}"
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                about = os.stat(link)  # noqa: PTH116 - the same
                if stat.S_ISSOCK(about.st_mode):
                    self.unseen |= _in_flight(f"{task}/fdinfo/{name}")
                elif about.st_nlink == 0 and stat.S_ISREG(about.st_mode) and self._is_inside(link):
                    self._sizes[about.st_ino] = about.st_blocks * 512

    def _is_inside(self, link: str) -> bool:
        """Whether a file was in the kernel's folders, and not in memory or readable only."""
        try:
            return self._names_theirs(os.readlink(link))  # noqa: PTH115 - no file's path
        except OSError as error:  # no file that is not theirs has so long a path
            return error.errno == errno.ENAMETOOLONG

    def _names_theirs(self, path: str) -> bool:
        """Whether a path leads into the kernel's folders; gVisor has its own root above them."""
        return any(folder in path for folder in self._inside)

    def _mappings(self, pid: int, task: str) -> None:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/maps", "rb") as file:  # noqa: PTH123
            text = os.fsdecode(file.read(MAX_MAPS))
            self.unseen |= len(text) == MAX_MAPS
            for line in text.splitlines() if _REMOVED in text else ():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and self._names_theirs(fields[5]):
                    self._count_mapped(pid, fields)

    def _count_mapped(self, pid: int, fields: Sequence[str]) -> None:
        inode = int(fields[4])
        if fields[5].endswith(_REMOVED) and inode not in self._sizes:
            try:
                about = os.stat(f"/proc/{pid}/map_files/{fields[0]}")  # noqa: PTH116 - as above
            except PermissionError:  # for root only
                self.unseen = True
            except OSError:
                return
            else:
                self._sizes[inode] = about.st_blocks * 512


def _in_flight(about: str) -> bool:
    """Whether files wait in a socket to be received (SCM_RIGHTS)."""
    try:
        with open(about) as file:  # noqa: PTH123 - hundreds of them
            return any(line.startswith("scm_fds:") and line.split()[1] != "0" for line in file)
    except OSError:
        return False


def _is_alive(task: str) -> bool:
    try:
        with open(f"{task}/stat") as file:  # noqa: PTH123 - as above
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


@cache
def _syscall() -> ctypes._NamedFuncPointer:
    return ctypes.CDLL(None, use_errno=True).syscall


def _same_files(one: int, other: int) -> bool:
    """Whether two threads share their descriptors; kcmp(2), False where nobody knows."""
    number = _KCMP.get(platform.machine())
    return number is not None and _syscall()(number, one, other, _KCMP_FILES, 0, 0) == 0
