"""What sandboxes use of the disk, as the host sees it: a measure that shares nothing with ours.

Blocks, not sizes; what has a name, however deep it lies, and what only processes hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None)
_KCMP_FILES = 2
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove(path: Path) -> None:
    """Remove a tree; both programs follow folders of any depth."""
    subprocess.run(["chmod", "-R", "u+rwX", path], capture_output=True, check=False)
    subprocess.run(["rm", "-rf", path], capture_output=True, check=False)


@dataclass
class Used:
    """Entries with a name, MB of all, MB of the largest file."""

    files: int = 0
    megabytes: int = 0
    largest_mb: int = 0


def used(folders: Sequence[Path], pids: Sequence[int], *, closed: bool = False) -> Used:
    """Measure; with ``closed`` folders that are closed to this user are opened first."""
    sizes: dict[tuple[int, int], int] = {}
    files = 0
    for folder in folders:
        for about in _below(folder, closed=closed):
            files += not stat.S_ISDIR(about.st_mode)
            sizes[about.st_dev, about.st_ino] = about.st_blocks * 512
    named = max(sizes.values(), default=0)
    for key, size in _without_name(folders, pids):
        sizes.setdefault(key, size)
    return Used(files=files, megabytes=sum(sizes.values()) >> 20, largest_mb=named >> 20)


def _below(folder: Path, *, closed: bool) -> Iterator[os.stat_result]:
    """Yield what lies below, down by names and up by "..": no path is too long."""
    try:
        at = os.open(folder, _FOLDER)
    except OSError:
        return
    way: list[list[str]] = []
    waiting: list[str] | None = None
    while True:
        if waiting is None:
            waiting = []
            with contextlib.suppress(OSError), os.scandir(at) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        about = entry.stat(follow_symlinks=False)
                        yield about
                        if stat.S_ISDIR(about.st_mode):
                            waiting.append(entry.name)
        if waiting:
            name = waiting.pop()
            with contextlib.suppress(OSError):
                if closed:
                    os.chmod(name, 0o700, dir_fd=at)
                inner = os.open(name, _FOLDER, dir_fd=at)
                os.close(at)
                at = inner
                way.append(waiting)
                waiting = None
            continue
        try:
            above = os.open("..", _FOLDER, dir_fd=at) if way else -1
        except OSError:  # closed, or gone
            above = -1
        os.close(at)
        if above < 0:
            return
        at, waiting = above, way.pop()


def _without_name(
    folders: Sequence[Path], pids: Sequence[int]
) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield inode and bytes of files that only descriptors and mappings lead to."""
    inside = tuple(f"{folder}/" for folder in folders)
    for pid in pids:
        for task in _with_own_descriptors(pid):
            for name in _listed(f"/proc/{pid}/task/{task}/fd"):
                link = f"/proc/{pid}/task/{task}/fd/{name}"
                with contextlib.suppress(OSError):
                    about = os.stat(link)
                    if about.st_nlink == 0 and os.readlink(link).startswith(inside):
                        yield (about.st_dev, about.st_ino), about.st_blocks * 512
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:
            device = os.stat(folders[0]).st_dev
            for line in maps:
                fields = line.split(maxsplit=5)
                place = fields[5].rstrip() if len(fields) == 6 else ""
                if place.startswith(inside) and place.endswith("(deleted)"):
                    start, end = (int(part, 16) for part in fields[0].split("-"))
                    yield (device, int(fields[4])), end - start


def _with_own_descriptors(pid: int) -> Iterator[int]:
    """Yield a process's first thread, and those that do not share its descriptors (kcmp(2))."""
    number = 272 if os.uname().machine == "aarch64" else 312
    for task in map(int, _listed(f"/proc/{pid}/task")):
        if task == pid or _LIBC.syscall(number, pid, task, _KCMP_FILES, 0, 0) != 0:
            yield task


def _listed(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(path)
    return []
