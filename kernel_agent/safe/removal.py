"""Remove folders filled by hostile code, in bounded time and memory. Standard library only.

A cell can nest folders a hundred thousand deep, close them, fill them with a million files, give
them names that are no text, and a process that was forgotten can go on doing so meanwhile. So:

* no recursion, no path and no descriptor a level: everything is done by name in an open folder, and
  a folder that is not empty is first moved up to the top, where all are emptied one by one;
* links are removed and never followed, and another file system that is mounted inside is left;
* folders that their owner has closed are opened again;
* names that wait are kept up to a number, what is beyond is found by looking again, and all of it
  ends after some seconds.

``rm -rf --one-file-system`` does nearly the same in a tenth of the lines: not where a file must
stay last, nor where ``rm`` is busybox's, which knows no file systems.

What cannot be removed is left and reported to the caller; nothing is raised. Used by the program
and, by its path, by the reaper (:mod:`kernel_agent.sandbox.launcher.reaper`).
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 20.0
"""A kernel may make 100,000 files, which take one to three seconds; this is for a busy disk."""
MAX_WAITING = 10_000  # names of folders that are kept in memory
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_ONLY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_TO_OWNER = 0o700


def remove(folder: str | os.PathLike[str], *, seconds: float = SECONDS, last: str = "") -> bool:
    """Remove a folder with all that is in it; return whether nothing of it is left.

    Parameters
    ----------
    folder
        A path that nobody hostile can change; a link is not followed.
    seconds
        How long it may take.
    last
        A file in the folder that stays until nothing else does.
    """
    path = os.fspath(folder)
    try:
        top = open_folder(path)
    except OSError:
        return not os.path.lexists(path)
    try:
        _Tree(top, time.monotonic() + seconds, last).empty()
    finally:
        os.close(top)
    try:
        os.rmdir(path)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def open_folder(name: str, at: int | None = None) -> int:
    """Open a folder that may be closed to its owner; refuse a link.

    Raises
    ------
    OSError
        It is not a folder, is gone, or is somebody else's.
    """
    try:
        folder = os.open(name, _FOLDER, dir_fd=at)
    except PermissionError:
        let_in(name, at)
        folder = os.open(name, _FOLDER, dir_fd=at)
    if os.fstat(folder).st_mode & _OPEN_TO_OWNER != _OPEN_TO_OWNER:
        try:
            os.fchmod(folder, _OPEN_TO_OWNER)
        except OSError:  # root needs no mode
            pass
    return folder


def let_in(name: str, at: int | None) -> None:
    """Open a folder to its owner, by a descriptor, so that no link in its place is followed."""
    found = os.open(name, _PATH_ONLY, dir_fd=at)
    try:
        os.chmod(f"/proc/self/fd/{found}", _OPEN_TO_OWNER)
    finally:
        os.close(found)


class _Tree:
    """A tree that is being removed; ``top`` is its open folder."""

    def __init__(self, top: int, until: float, last: str) -> None:
        self._top = top
        self._until = until
        self._last = last
        self._device = os.fstat(top).st_dev
        self._mark = f"left-{os.urandom(6).hex()}-"
        self._moved = 0
        self._gone = 0
        self._waiting: list[str] = []  # folders in the top

    def empty(self) -> None:
        """Empty the top, round by round, until a round removes nothing or time is up."""
        before = -1
        while self._gone > before and self._in_time():
            before = self._gone
            for name in self._names(self._top):
                if name != self._last:
                    self._take(self._top, name)
                    self._empty_waiting()
        if self._last and self._last_is_all():
            self._take(self._top, self._last)

    def _last_is_all(self) -> bool:
        try:
            with os.scandir(self._top) as entries:
                return all(entry.name == self._last for entry in entries)
        except OSError:
            return False

    def _empty_waiting(self) -> None:
        while self._waiting and self._in_time():
            name = self._waiting.pop()
            try:
                folder = open_folder(name, self._top)
            except OSError:
                continue
            try:
                if os.fstat(folder).st_dev == self._device:
                    for inner in self._names(folder):
                        self._take(folder, inner)
            finally:
                os.close(folder)
            self._try_remove(name, self._top)

    def _take(self, folder: int, name: str) -> None:
        """Remove an entry; a folder with something in it waits for its turn in the top."""
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError:
            if not self._try_remove(name, folder):
                self._move_up(name, folder)
        else:
            self._gone += 1

    def _try_remove(self, name: str, folder: int) -> bool:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.ENOTDIR)  # ENOTDIR: a file that stays
        self._gone += 1
        return True

    def _move_up(self, name: str, folder: int) -> None:
        if folder != self._top:
            self._moved += 1
            new = f"{self._mark}{self._moved}"
            try:
                self._rename(name, new, folder)
            except OSError:  # a mount, somebody else's, or the disk is full
                return
            name = new
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(name)

    def _rename(self, name: str, new: str, folder: int) -> None:
        try:
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:  # who moves a folder writes in it, too
            let_in(name, folder)
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=self._top)

    def _names(self, folder: int) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not self._in_time():
                        return
                    yield entry.name
        except OSError:
            return

    def _in_time(self) -> bool:
        return time.monotonic() < self._until
