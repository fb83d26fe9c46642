"""Walk through a tree that hostile code can change, however deep it is. Standard library only.

No recursion, no path, and one descriptor at a time: down by a name in an open folder, up by "..",
which must be the folder that it was. Where folders were moved about meanwhile, the way is found
again from the top by their names. Links are not followed, and other file systems not entered.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_inner(name: str, at: int) -> int:
    """Open a folder in an open one."""
    return os.open(name, _FOLDER, dir_fd=at)


def entries(
    top: int, opened: Callable[[str, int], int] = open_inner
) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yield everything below an open folder, each with the descriptor of the folder that it is in.

    Parameters
    ----------
    top
        The open folder; it stays open.
    opened
        How an inner folder is opened: by its name, in the folder of this descriptor. One for which
        it raises ``OSError`` is left out.
    """
    device = os.fstat(top).st_dev
    at = os.dup(top)
    way: list[_Above] = []
    try:
        waiting = yield from _list(at)
        while True:
            while waiting:
                name = waiting.pop()
                try:
                    inner = opened(name, at)
                except OSError:
                    continue
                if os.fstat(inner).st_dev != device:
                    os.close(inner)
                    continue
                way.append(_Above(at, name, waiting))
                os.close(at)
                at = inner
                waiting = yield from _list(at)
            if not way:
                return
            above = _up(at, way, top)
            os.close(at)
            at, waiting = above, way.pop().waiting
    finally:
        os.close(at)


class _Above:
    """A folder on the way: its identity, the way on from it, and its entries still to see."""

    def __init__(self, folder: int, inner: str, waiting: list[str]) -> None:
        self.identity = _identity(folder)
        self.inner = inner
        self.waiting = waiting


def _identity(folder: int) -> tuple[int, int]:
    about = os.fstat(folder)
    return about.st_dev, about.st_ino


def _up(at: int, way: list[_Above], top: int) -> int:
    """Open the folder above; shortens the way where it cannot be found any more."""
    try:
        above = os.open("..", _FOLDER, dir_fd=at)
    except OSError:
        return _again(way, top)
    if _identity(above) == way[-1].identity:
        return above
    os.close(above)
    return _again(way, top)


def _again(way: list[_Above], top: int) -> int:
    """Find the last folder of the way by the names that lead there."""
    at = os.dup(top)
    for number, above in enumerate(way[:-1], start=1):
        try:
            inner = open_inner(above.inner, at)
        except OSError:
            del way[number:]
            break
        os.close(at)
        at = inner
    return at


def _list(folder: int) -> Generator[tuple[int, os.DirEntry[str]], None, list[str]]:
    """Yield a folder's entries; return the names of the folders among them."""
    inner = []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                yield folder, entry
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
    except OSError:  # it is gone, or closed to us
        pass
    return inner
