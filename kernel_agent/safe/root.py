"""Open files in a folder that hostile code can change: beneath it, through no link.

A kernel may do anything in its folder, also while the host looks: put a link to a secret where a
file was, a pipe that blocks its reader, a file of a terabyte that takes no space, a million
files, names that are escape sequences. So the host opens the folder once and everything in it
through that descriptor:

* with ``openat2`` (Linux 5.6) and ``RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV``: the
  operating system refuses the whole path, so there is no moment between looking and opening;
* elsewhere component by component with ``O_NOFOLLOW``, which refuses the same.

What is opened for reading is a regular file (looked at after it was opened, without blocking), and
every read, copy and listing has a bound. Errors are ``OSError`` with a ``strerror`` for a person.

The path of the folder itself is the user's and may lead through links.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BufferedReader, BufferedWriter
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_agent.safe.runtime_dir import FOLDER_MODE
from kernel_agent.safe.sparse import copy_sparse

MAX_ENTRIES = 100_000  # entries of one listing that are looked at
MAX_DEPTH = 40  # folders in folders; each holds a descriptor while it is listed

_TRIES = 8  # a path whose folders are renamed all the time is given up, as is a file under a lease
_OPENAT2 = 437  # the same number on every architecture of Linux but alpha
# linux/openat2.h
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RESOLVE = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL

_TOLD = {
    errno.ELOOP: "it is a link, or the way to it leads through one",
    errno.EXDEV: "it lies outside the folder or on another file system",
    errno.EISDIR: "it is a folder",
    errno.ENXIO: "it is not a regular file but a pipe, socket or device",
    errno.ENAMETOOLONG: "its name is too long",
    errno.EAGAIN: "another program holds it: it cannot be opened now without waiting",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Something in a folder that is not a folder, or is one that could not be listed.

    ``path`` is relative, with ``/``; ``status`` is about the thing itself, never what a link
    points to.
    """

    path: str
    status: os.stat_result

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.status.st_mode)


class Folder:
    """An open folder; a context manager.

    Parameters
    ----------
    path
        The folder.
    openat2
        Whether to use that system call; by default where it works.

    Raises
    ------
    OSError
        It is missing, no folder, or not readable.
    """

    def __init__(self, path: str | Path, *, openat2: bool | None = None) -> None:
        self.path = Path(path)
        self._openat2 = has_openat2() if openat2 is None else openat2
        self._fd = os.open(path, _FOLDER | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the folder. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    # --- reading -------------------------------------------------------------------------------

    def open(self, name: str) -> BufferedReader:
        """Open a regular file for reading; never waits for anybody.

        Raises
        ------
        OSError
            It is missing, not a regular file, or the way to it leaves the folder or has a link;
            ``EAGAIN`` when another program holds a lease on it.
        """
        return os.fdopen(self._regular(name, _READ), "rb")

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """Return the content of a regular file.

        Raises
        ------
        OSError
            As :meth:`open`; also when it is larger than ``max_bytes``, whatever its size claims.
        """
        with self.open(name) as file:
            claimed = os.fstat(file.fileno()).st_size
            data = file.read(max_bytes + 1) if claimed <= max_bytes else b""
            if claimed > max_bytes or len(data) > max_bytes:
                raise _too_large(name, max_bytes)
            return data

    def status(self, name: str) -> os.stat_result:
        """Return the status of an entry itself, even of a link or a pipe.

        Raises
        ------
        OSError
            It is missing, or the way to it leaves the folder or has a link.
        """
        *way, last = _parts(name)
        with self._folder_of(way) as folder:
            return os.stat(last, dir_fd=folder.fd, follow_symlinks=False)

    def copy(self, name: str, target: Path, *, max_bytes: int) -> int:
        """Copy a regular file to a new file outside, holes as holes; return how many bytes it was.

        ``target`` is where hostile code cannot reach. Nothing is left there after an error.

        Raises
        ------
        OSError
            As :meth:`open`; the file is larger than ``max_bytes``; the target cannot be written.
        """
        with self.open(name) as reader, target.open("xb") as writer:
            try:
                size = copy_sparse(reader.fileno(), writer.fileno(), max_bytes=max_bytes)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
        return size

    def files(
        self,
        *,
        wanted: Callable[[str], bool] = lambda _path: True,
        max_entries: int = MAX_ENTRIES,
    ) -> Iterator[Entry]:
        """Yield everything that is not a folder, in order of names, without following links.

        Parameters
        ----------
        wanted
            Asked about the relative path of each entry and folder; what is not wanted is neither
            yielded nor entered.
        max_entries
            Entries that are looked at in all; those beyond it are not seen.
        """
        left = max_entries

        def list_below(folder: Folder, prefix: str, depth: int) -> Iterator[Entry]:
            nonlocal left
            with os.scandir(folder.fd) as scan:
                entries = sorted(islice(scan, left), key=lambda entry: entry.name)
            left -= len(entries)
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if not wanted(path):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it is gone again
                    continue
                if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                    try:
                        inner = folder.folder(entry.name)
                    except OSError:  # not readable, a mount, or something else by now
                        yield Entry(path=path, status=status)
                        continue
                    with inner:
                        yield from list_below(inner, f"{path}/", depth + 1)
                else:
                    yield Entry(path=path, status=status)

        with self._folder_of([]) as top:
            yield from list_below(top, "", 0)

    # --- writing -------------------------------------------------------------------------------

    def create(self, name: str, *, mode: int = 0o666) -> BufferedWriter:
        """Open a new file for writing.

        Raises
        ------
        OSError
            Something of that name is there, a dangling link included, or it cannot be made.
        """
        return os.fdopen(self._open(name, _CREATE, mode), "wb")

    def append(self, name: str, *, mode: int = 0o666) -> BufferedWriter:
        """Open a regular file for appending; it is made when it is not there.

        Raises
        ------
        OSError
            What is there is not a regular file.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        return os.fdopen(self._regular(name, flags, mode), "ab")

    def replace(self, name: str, data: bytes, *, mode: int = 0o666) -> None:
        """Replace a file in one step: nobody sees half of it, and no link there is followed.

        Raises
        ------
        OSError
            It cannot be written. What was there is kept, and nothing else is left behind.
        """
        *way, last = _parts(name)
        with self._folder_of(way) as folder:
            beside = f".{last[:200]}.{secrets.token_hex(4)}"
            try:
                with folder.create(beside, mode=mode) as file:
                    file.write(data)
                os.replace(beside, last, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder.fd)
                raise

    def rewrite(self, name: str, data: bytes) -> None:
        """Put other content into a regular file, which stays the same file.

        A sandbox that hides a file hides that very file: what is moved into its place is seen.
        A reader may see half of it meanwhile.

        Raises
        ------
        OSError
            It is missing, not a regular file, known by another name as well, or there is no room:
            what was there is kept.
        """
        with os.fdopen(self._regular(name, os.O_RDWR | os.O_NONBLOCK), "r+b") as file:
            if os.fstat(file.fileno()).st_nlink != 1:
                raise OSError(errno.EMLINK, "it has another name as well", name)
            os.posix_fallocate(file.fileno(), 0, max(len(data), 1))
            file.write(data)
            file.truncate()

    def rename(self, name: str, new: str) -> None:
        """Give an entry of this very folder another name; what has that name is replaced."""
        (old,), (now,) = _parts(name), _parts(new)
        os.rename(old, now, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a file, link or pipe if it is there."""
        *way, last = _parts(name)
        with suppress(FileNotFoundError), self._folder_of(way) as folder:
            os.unlink(last, dir_fd=folder.fd)

    def link(self, name: str, target: Path) -> None:
        """Make a link that leads to ``target``, which the host will not follow."""
        (last,) = _parts(name)
        os.symlink(target, last, dir_fd=self.fd)

    def folder(self, name: str, *, make: bool = False) -> Folder:
        """Open a folder in this one; with ``make``, make it (0700) when it is not there.

        Raises
        ------
        OSError
            It is not a folder, cannot be listed, or the way to it leaves this one or has a link.
        """
        if make:
            *way, last = _parts(name)
            with suppress(FileExistsError), self._folder_of(way) as above:
                os.mkdir(last, FOLDER_MODE, dir_fd=above.fd)
        return self._of(self._open(name, _FOLDER), name)

    def make(self, name: str) -> Folder:
        """Make a folder (0700) right in this one, and open it.

        Raises
        ------
        FileExistsError
            Something of that name is there, a dangling link included.
        """
        (last,) = _parts(name)
        os.mkdir(last, FOLDER_MODE, dir_fd=self.fd)
        return self.folder(last)

    # --- how -----------------------------------------------------------------------------------

    @property
    def fd(self) -> int:
        """The folder's descriptor.

        Raises
        ------
        ValueError
            The folder was closed.
        """
        if self._fd < 0:
            raise ValueError(f"the folder {self.path} is closed")
        return self._fd

    def _of(self, fd: int, name: str) -> Folder:
        inner = Folder.__new__(Folder)
        inner.path, inner._openat2, inner._fd = self.path / name, self._openat2, fd  # noqa: SLF001 - our own class
        return inner

    def _folder_of(self, way: list[str]) -> Folder:
        return self.folder("/".join(way)) if way else self._of(os.dup(self.fd), "")

    def _regular(self, name: str, flags: int, mode: int = 0) -> int:
        fd = self._open(name, flags, mode)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            raise _error(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO, name)
        return fd

    def _open(self, name: str, flags: int, mode: int = 0) -> int:
        parts = _parts(name)
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            if self._openat2:
                return _openat2(self.fd, "/".join(parts), flags, mode)
            return self._walk(parts, flags, mode)
        except OSError as error:
            number = error.errno or errno.EIO
            if number == errno.ENOTDIR and flags & os.O_DIRECTORY:
                # With both flags a link is reported as "not a directory".
                number = self._link_or(errno.ENOTDIR, parts)
            raise _error(number, name) from None

    def _link_or(self, number: int, parts: list[str]) -> int:
        with suppress(OSError):
            status = os.stat(parts[0], dir_fd=self.fd, follow_symlinks=False)
            return errno.ELOOP if stat.S_ISLNK(status.st_mode) else number
        return number

    def _walk(self, parts: list[str], flags: int, mode: int) -> int:
        """Open component by component; ``O_NOFOLLOW`` is only about the last one of a path."""
        device = os.fstat(self.fd).st_dev
        at = os.dup(self.fd)
        try:
            for part in parts[:-1]:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                os.close(at)
                at = inner
            opened = os.open(parts[-1], flags, mode, dir_fd=at)
        finally:
            os.close(at)
        if os.fstat(opened).st_dev != device:
            os.close(opened)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return opened


def open_file(path: str | Path) -> BufferedReader:
    """Open a regular file that lies in a folder which hostile code may have changed.

    The folder is the user's word; the file's name is not followed when it is a link.

    Raises
    ------
    OSError
        As :meth:`Folder.open`.
    """
    path = Path(path)
    with Folder(path.parent) as folder:
        return folder.open(path.name)


def _parts(name: str) -> list[str]:
    """Return the components of a relative path that goes nowhere but down."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise OSError(errno.EINVAL, "it is not the name of anything in the folder", name)
    return parts


def _too_large(name: str, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", name)


def _error(number: int, name: str) -> OSError:
    return OSError(number, _TOLD.get(number, os.strerror(number)), name)


# --- the system call -----------------------------------------------------------------------------


class _How(ctypes.Structure):
    """The C structure ``struct open_how``."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@cache
def has_openat2() -> bool:
    """Whether the system call works here: a filter may refuse it, an old Linux lacks it."""
    if not sys.platform.startswith("linux") or platform.machine() == "alpha":
        return False
    try:
        here = os.open("/", _FOLDER | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.close(_openat2(here, ".", _FOLDER | os.O_CLOEXEC, 0))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


@cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def _openat2(directory: int, path: str, flags: int, mode: int) -> int:
    how = _How(flags=flags, mode=mode, resolve=_RESOLVE)
    for _ in range(_TRIES):
        opened = _syscall()(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(directory),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if opened >= 0:
            return int(opened)
        number = ctypes.get_errno()
        # EAGAIN: something on the way was renamed meanwhile (without ".." it is rare), or the
        # file is under a lease, whose holder has 45 s to give it back.
        if number not in (errno.EINTR, errno.EAGAIN):
            break
    raise OSError(number, os.strerror(number))
