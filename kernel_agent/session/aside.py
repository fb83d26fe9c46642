"""The files of a session while steps are taken back: put aside, and back where they belong.

Files are told apart by their time of change, which code cannot set: what changed last while an
undone cell ran is moved to ``undone/``; what changed last while a remaining cell ran is taken away
until that cell has run again, so that it finds the folder as it did, and is then put back, so that
its content is exactly what it was.

Hostile code has written in the folder: no link is followed, a link itself is moved as what it is.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kernel_agent.errors import UndoError
from kernel_agent.records import FILE_NAME
from kernel_agent.safe import MAX_DEPTH, Folder, one_line
from kernel_agent.session.folder import DATA_NAME, NOTEBOOK_NAME, REPLAY_NAME, UNDONE_NAME
from kernel_agent.session.undo import History, Played

MAX_NAMED = 1000  # files that a record names


class Aside:
    """The files of a folder that are put aside for an undo.

    Parameters
    ----------
    folder
        The session's folder.
    history
        Says in which cell a file changed last.
    first, last
        The cells that are undone.
    again
        Those that are played again.
    kept
        A folder that stays when it is empty: kernels see another one in its place.
    """

    def __init__(
        self,
        folder: Path,
        history: History,
        *,
        first: int,
        last: int,
        again: Sequence[Played],
        kept: str = "",
    ) -> None:
        self._path = folder
        self._history = history
        self._first = first
        self._kept = kept
        self._again = {cell.number for cell in again if cell.can_be_played}
        steps = f"step-{first}" if first == last else f"steps-{first}-{last}"
        self._undone = f"{UNDONE_NAME}/{steps}"
        self._held = f"{UNDONE_NAME}/.held-{secrets.token_hex(4)}"
        self._moved: list[tuple[str, str, int]] = []  # path, where it is now, whose it is
        self._removed: list[str] = []  # folders that were empty, or became so

    @property
    def files(self) -> tuple[str, ...]:
        """Files that the undone cells had made or changed; they are in ``undone/``."""
        return tuple(path for path, _, owner in self._moved if owner >= self._first)[:MAX_NAMED]

    def take(self) -> None:
        """Take away the files of the undone cells and of those that are played again.

        Raises
        ------
        UndoError
            It cannot be moved; what was moved is back in its place.
        """
        try:
            with Folder(self._path) as folder:
                owned = [
                    (entry.path, self._history.owner(entry.path, entry.status.st_ctime_ns))
                    for entry in folder.files(wanted=_may_be_made)
                ]
                made = {
                    path
                    for path, status in _folders(folder)
                    if self._concerns(self._history.owner(path, status.st_ctime_ns))
                }
                for path, owner in owned:
                    if self._concerns(owner):
                        place = self._undone if owner >= self._first else self._held
                        _move(folder, path, f"{place}/{path}")
                        self._moved.append((path, f"{place}/{path}", owner))
                parents = {p for path, _, _ in self._moved for p in _parents(path)}
                self._removed = _remove_empty(folder, (made | parents) - {self._kept})
        except OSError as error:
            self.put_back()
            reason = one_line(f"{error.filename or ''} {error.strerror or error}", 300)
            raise UndoError(f"nothing was undone: a file cannot be put aside ({reason})") from None

    def _concerns(self, owner: int) -> bool:
        return owner >= self._first or owner in self._again

    def put_back(self) -> None:
        """Put everything back where it was; the undo did not happen."""
        self._restore(lambda _owner: True)
        with suppress(OSError), Folder(self._path) as folder:
            for path in reversed(self._removed):
                with suppress(OSError):
                    folder.folder(path, make=True).close()

    def settle(self) -> None:
        """Put back the remaining cells' old files over their new ones; the undo happened."""
        self._restore(lambda owner: owner < self._first)

    def _restore(self, wanted: Callable[[int], bool]) -> None:
        with suppress(OSError), Folder(self._path) as folder:
            for path, place, owner in reversed(self._moved):
                if not wanted(owner):
                    continue
                with suppress(OSError):  # a folder is in its place now, or it is gone
                    _move(folder, place, path)
                    self._history.put_back[path] = (folder.status(path).st_ctime_ns, owner)
            gone = {p for _, place, owner in self._moved if wanted(owner) for p in _parents(place)}
            _remove_empty(folder, gone)


def _may_be_made(path: str) -> bool:
    return path not in (FILE_NAME, NOTEBOOK_NAME, REPLAY_NAME, DATA_NAME, UNDONE_NAME)


def _move(folder: Folder, path: str, to: str) -> None:
    """Move an entry, a link as a link; make folders on the way, whose the one around them is."""
    (*way, name), (*new_way, new_name), whose = path.split("/"), to.split("/"), os.fstat(folder.fd)
    for depth in range(1, len(new_way) + 1):
        with suppress(OSError), folder.folder("/".join(new_way[:depth]), make=True) as made:
            os.fchown(made.fd, whose.st_uid, whose.st_gid)  # root may have lent it to a kernel
    with _inner(folder, way) as source, _inner(folder, new_way) as target:
        os.rename(name, new_name, src_dir_fd=source.fd, dst_dir_fd=target.fd)


def _inner(folder: Folder, way: Sequence[str]) -> Folder:
    return folder.folder("/".join(way)) if way else Folder(folder.path)


def _folders(
    folder: Folder, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the folders in a folder, those deepest first, without following links."""
    with suppress(OSError), os.scandir(folder.fd) as scan:
        for entry in sorted(scan, key=lambda entry: entry.name):
            path = f"{prefix}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode) or not _may_be_made(path) or depth >= MAX_DEPTH:
                continue
            with suppress(OSError), folder.folder(entry.name) as inner:
                yield from _folders(inner, f"{path}/", depth + 1)
            yield path, status


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    yield from ("/".join(parts[:n]) for n in range(1, len(parts)))


def _remove_empty(folder: Folder, paths: set[str]) -> list[str]:
    """Remove and return the empty ones of the folders, the deepest first."""
    removed = []
    for path in sorted(paths, key=lambda path: path.count("/"), reverse=True):
        *way, name = path.split("/")
        with suppress(OSError), _inner(folder, way) as above:
            os.rmdir(name, dir_fd=above.fd)
            removed.append(path)
    return removed
