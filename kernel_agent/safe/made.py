"""Folders that the program has made itself: only these does it ever remove.

A name says nothing about that. Who chooses names may choose one that is taken, and a folder may be
moved away and another put in its place: so a folder is known by its inode, which is noted in the
call that makes it and looked at again before anything in it goes.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kernel_agent.safe.root import Folder
from kernel_agent.safe.runtime_dir import clear, make_private


@dataclass(frozen=True, kw_only=True)
class Made:
    """A folder that the program has made.

    Parameters
    ----------
    path
        Where it is.
    identity
        Its device and inode: what else is at that path later is another one's.
    """

    path: Path
    identity: tuple[int, int]

    @property
    def is_there(self) -> bool:
        """Whether that very folder is still at its path."""
        with suppress(OSError):
            return _identity(os.lstat(self.path)) == self.identity
        return False

    def open(self) -> Folder:
        """Open it, through no link in its place.

        Raises
        ------
        OSError
            It is gone, or something else is in its place.
        """
        with Folder(self.path.parent) as above:
            opened = above.folder(self.path.name)
        if _identity(os.fstat(opened.fd)) == self.identity:
            return opened
        opened.close()
        raise OSError(errno.ESTALE, "another folder was put in its place", str(self.path))

    def clear(self) -> None:
        """Remove it with all that is in it; never raises. What was put in its place stays."""
        if self.is_there:
            clear(self.path)

    def leave(self) -> None:
        """Remove it if nothing is in it."""
        if self.is_there:
            with suppress(OSError):
                self.path.rmdir()


def at_home(path: str | Path) -> Path:
    """Return a path whose ``~`` is a home; the ``~`` of a user who is not here stays."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises instead


def make_own(folder: Path) -> Made:
    """Make a folder, and those above it that are missing, for the user alone.

    Raises
    ------
    FileExistsError
        Something of that name is there.
    """
    make_private(folder)
    return Made(path=folder, identity=_identity(os.lstat(folder)))


def make_missing(folder: Path) -> Made | None:
    """Make a folder unless it is there; return it if it was made.

    Raises
    ------
    OSError
        It cannot be made, or what is there is no folder.
    """
    try:
        return make_own(folder)
    except FileExistsError:
        make_private(folder, exist_ok=True)
        return None


def make_beneath(folder: Folder, name: str) -> Made:
    """Make a folder in an open one; with a number behind its name when that is taken.

    Raises
    ------
    OSError
        It cannot be made.
    """
    for number in count(1):
        free = name if number == 1 else f"{name}-{number}"
        with suppress(FileExistsError), folder.make(free) as made:
            return Made(path=folder.path / free, identity=_identity(os.fstat(made.fd)))
    raise AssertionError("numbers never end")


def move_aside(folder: Folder, name: str) -> None:
    """Give a folder that has the place of a file another name, beside it; no link is followed.

    Raises
    ------
    OSError
        It cannot be moved. Nothing that was there is lost.
    """
    if stat.S_ISDIR(folder.status(name).st_mode):
        empty = make_beneath(folder, f"{name}.other")  # only an empty one is replaced by a folder
        folder.rename(name, empty.path.name)


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino
