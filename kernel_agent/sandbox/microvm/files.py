"""Files over the wire, the host's side: sent as they are, received as from an enemy.

What comes from the machine becomes a regular file or a directory beneath the workspace and
nothing else: every part of a path is opened without following links, inputs and hidden paths are
refused, and the number and the size of all files together are bounded.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kernel_agent.sandbox.microvm.guest.wire import (
    BYTES,
    FILE,
    LINK,
    MAKE,
    MAX_PATH,
    MAX_PAYLOAD,
    Wire,
)

MAX_ENTRIES = 20_000  # files and directories that one machine may make
MAX_DEPTH = 32
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """The machine sent a file that it must not: where to, or how large, is in the message."""


class Inbox:
    """Puts what the machine sends beneath a folder.

    Parameters
    ----------
    root
        The workspace.
    refused
        Paths relative to it that the machine must not change.
    max_bytes
        For all files together.
    """

    def __init__(self, root: Path, *, refused: tuple[str, ...], max_bytes: int) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._refused = {tuple(Path(name).parts) for name in refused}
        self._max_bytes = max_bytes
        self._sizes: dict[tuple[str, ...], int] = {}
        self._total = 0
        self._parts: tuple[str, ...] = ()
        self._folder = -1
        self._file: BinaryIO | None = None
        self._name = f".{os.getpid()}.incoming"

    def begin(self, path: bytes) -> None:
        """Take a file; its content follows by :meth:`write`, up to :meth:`end`."""
        self.drop()
        parts = self._check(path)
        self._count(parts, 0)
        self._folder = self._open_folder(parts[:-1])
        self._parts = parts
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._name, flags, 0o644, dir_fd=self._folder), "wb")

    def write(self, content: bytes) -> None:
        """Take a part of the file; without a file begun, it is dropped."""
        if self._file is not None:
            self._count(self._parts, self._sizes[self._parts] + len(content))
            self._file.write(content)

    def end(self) -> None:
        """Move the complete file to its place in one step."""
        if self._file is None:
            return
        self._file.flush()
        with self._unreachable():
            try:
                os.rename(
                    self._name, self._parts[-1], src_dir_fd=self._folder, dst_dir_fd=self._folder
                )
            except OSError:  # a directory is in the way, or the name is too long
                self.drop()
                raise
        self._file.close()
        self._file = None
        os.close(self._folder)

    def drop(self) -> None:
        """Drop a file that was begun and not ended."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._forget(self._parts)
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
            os.close(self._folder)

    def make(self, path: bytes) -> None:
        """Make a directory."""
        parts = self._check(path)
        self._count(parts, 0)
        os.close(self._open_folder(parts))

    def remove(self, path: bytes) -> None:
        """Remove a regular file, or a directory that is empty; anything else stays.

        Of a file that is still being sent, the rest is dropped.
        """
        parts = self._check(path)
        if self._file is not None and parts == self._parts:
            self.drop()
        self._forget(parts)
        with contextlib.suppress(OSError, Refused):
            folder = self._open_folder(parts[:-1], make=False)
            try:
                mode = os.lstat(parts[-1], dir_fd=folder).st_mode
                if stat.S_ISREG(mode):
                    os.unlink(parts[-1], dir_fd=folder)
                elif stat.S_ISDIR(mode):
                    os.rmdir(parts[-1], dir_fd=folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        """Drop an unfinished file, and close the folder."""
        self.drop()
        os.close(self._root)

    def _check(self, path: bytes) -> tuple[str, ...]:
        name = os.fsdecode(path)
        parts = tuple(name.split("/"))
        if len(path) > MAX_PATH or len(parts) > MAX_DEPTH or "\0" in name:
            raise Refused(f"a path of {len(path)} bytes")
        if not all(parts) or {".", ".."} & set(parts) or self._name in parts:
            raise Refused(f"the path {name!r}")
        if any(parts[: len(refused)] == refused for refused in self._refused):
            raise Refused(f"{name!r}, which is not the machine's to change")
        if any(refused[: len(parts)] == parts for refused in self._refused):
            raise Refused(f"{name!r}, which holds what is not the machine's to change")
        return parts

    def _count(self, parts: tuple[str, ...], size: int) -> None:
        self._total += size - self._sizes.get(parts, 0)
        self._sizes[parts] = size
        if len(self._sizes) > MAX_ENTRIES:
            self._forget(parts)
            raise Refused(f"more than {MAX_ENTRIES} files")
        if self._total > self._max_bytes:
            self.drop()
            raise Refused(f"files of more than {self._max_bytes} bytes")

    def _forget(self, parts: tuple[str, ...]) -> None:
        self._total -= self._sizes.pop(parts, 0)

    def _open_folder(self, parts: tuple[str, ...], *, make: bool = True) -> int:
        folder = os.dup(self._root)
        for part in parts:
            with self._unreachable():
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=folder)
                try:
                    below = os.open(part, _DIRECTORY, dir_fd=folder)
                finally:
                    os.close(folder)
            folder = below
        return folder

    @contextlib.contextmanager
    def _unreachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Refused(f"a path that cannot be used: {error.strerror}") from None


def sendable(root: Path, hidden: tuple[Path, ...]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield a folder's entries that go into the machine: directories, regular files, links."""
    for at, folders, names in os.walk(root):
        folders[:] = [name for name in sorted(folders) if Path(at, name) not in hidden]
        for name in [*folders, *sorted(names)]:
            path = Path(at, name)
            if path not in hidden:
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.lstat()


def size_of(roots: tuple[Path, ...], hidden: tuple[Path, ...]) -> int:
    """Return the bytes of all regular files that :func:`send` would send."""
    total = 0
    for root in roots:
        found = sendable(root, hidden) if root.is_dir() else [(root, root.stat())]
        total += sum(about.st_size for _, about in found if stat.S_ISREG(about.st_mode))
    return total


def send(wire: Wire, root: Path, *, at: Path, hidden: tuple[Path, ...] = ()) -> None:
    """Send a file, or a folder with all that is in it, to the path ``at`` in the machine."""
    if not root.is_dir():
        send_file(wire, root, at=at)
        return
    wire.send(MAKE, os.fsencode(at))
    for path, about in sendable(root, hidden):
        there = at / path.relative_to(root)
        if stat.S_ISDIR(about.st_mode):
            wire.send(MAKE, os.fsencode(there))
        elif stat.S_ISLNK(about.st_mode):
            wire.send(LINK, b"%s\0%s" % (os.fsencode(there), os.fsencode(path.readlink())))
        elif stat.S_ISREG(about.st_mode):
            send_file(wire, path, at=there)


def send_file(wire: Wire, path: Path, *, at: Path) -> None:
    """Send one file, as old as it is here: Python compares that with what it has compiled."""
    with path.open("rb") as content:
        wire.send(FILE, b"%s\0%d" % (os.fsencode(at), os.fstat(content.fileno()).st_mtime_ns))
        while part := content.read(MAX_PAYLOAD):
            wire.send(BYTES, part)
        wire.send(BYTES)


def send_bytes(wire: Wire, content: bytes, *, at: Path) -> None:
    """Send a file that exists only here."""
    wire.send(FILE, os.fsencode(at))
    if content:
        wire.send(BYTES, content)
    wire.send(BYTES)
