"""The user's data files: check them, fingerprint them, place them for the kernel.

Every file is checked before any is copied, so that a wrong path costs nothing; what is accepted is
said in :mod:`kernel_agent.session.filetypes`. Nothing that could block is ever opened, and nothing
is ever loaded whole. A copy is read-only, and its fingerprint is taken of the bytes that are in it.
It shares its blocks with the file where the file system can do that, whatever its size; else it is
streamed, and a file above a gigabyte is linked instead, and the user is told.

What lies beside a notebook whose cells are run (:class:`Beside`) keeps its place: the cells open it
by the path that stands in them.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from itertools import islice, takewhile
from pathlib import Path

from kernel_agent.errors import InputError
from kernel_agent.inkernel import KINDS
from kernel_agent.records import DataFile, Notice
from kernel_agent.safe import Folder, at_home, make_private, write_unseen
from kernel_agent.session.filetypes import recognise
from kernel_agent.session.folders.scan import Scan, scan

LINK_ABOVE_BYTES = 1 << 30
"""Above this a copy would cost more disk and time than it protects."""

MAX_NAME = 80  # characters of a placed file's name
MAX_MATCHING = 200  # files that a pattern may name
MAX_LOOKED_AT = 200_000  # that it may fit before they are counted

_CHUNK_BYTES = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h


@dataclass(frozen=True, kw_only=True)
class Source:
    """A checked file of the user: its name as given, its real path, and its kind."""

    path: Path
    real: Path
    kind: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A file that keeps its place: ``path`` is relative to ``folder`` and to the run's folder."""

    folder: Path
    path: str


def place(
    paths: Sequence[str | Path | Beside | Scan],
    folder: Path,
    *,
    notice: Callable[[Notice], None],
    link_above: int = LINK_ABOVE_BYTES,
) -> tuple[DataFile, ...]:
    """Check the user's files and put them into ``folder/data/``, read-only.

    Called by the session before its kernel starts. A copy that an earlier call left there is used
    as it is; where there is anything else of that name the file gets another name.

    Parameters
    ----------
    paths
        Files as the user named them; the same file named twice is taken once. Those that keep
        their place are copied there, and left out, with a notice, where that cannot be done.
        Folders, as they were found, are linked.
    folder
        The session's output folder, which is the kernel's working directory.
    notice
        Told about every file that is linked instead of copied.
    link_above
        Size in bytes above which a file is linked.

    Returns
    -------
    tuple of DataFile
        In the order given; ``path`` is relative to ``folder``.

    Raises
    ------
    InputError
        The caller's: one line that says what is wrong with which file and what to do. Nothing
        of this call is left behind.
    """
    beside = [path for path in paths if isinstance(path, Beside)]
    scans = list({path.real: path for path in paths if isinstance(path, Scan)}.values())
    named = [path for path in paths if not isinstance(path, Beside | Scan)]
    sources = list({source.real: source for source in map(check, named)}.values())
    if not (sources or beside or scans):
        return ()
    try:
        make_private(folder, exist_ok=True)
        with Folder(folder) as opened, _data_folder(opened) as (data, is_new):
            placing = _Placing(data, notice=notice, link_above=link_above)
            try:
                placed = [placing.put(source) for source in sources]
                placed += [placing.link_folder(scan) for scan in scans]
                given = {file.path for file in placed}  # goes before what lies beside
                kept = [_keep_place(f, opened, notice) for f in beside if f.path not in given]
                return (*placed, *filter(None, kept))
            except BaseException:
                placing.undo()
                if is_new:
                    with suppress(OSError):  # there is something else in it
                        os.rmdir("data", dir_fd=opened.fd)
                raise
    except OSError as error:
        raise _cannot_place(folder, error) from error


def look_up(path: str | Path) -> tuple[Source | Scan, ...]:
    """Look at what a user names as data: a file, a folder, or a pattern of files.

    Raises
    ------
    InputError
        The caller's: as :func:`check` and :func:`~.folders.scan.scan`; a pattern that fits nothing
        or too much.
    """
    named = at_home(path)
    if str(path).strip() and _is_folder(named):
        return (scan(Path(path)),)
    if any(mark in str(path) for mark in "*?[") and not os.path.lexists(named):
        return tuple(check(found) for found in _matching(named))
    return (check(path),)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _matching(pattern: Path) -> list[Path]:
    """Return the files that a pattern names; hidden ones only where it names them so.

    A link grants nothing that it does not name: what it fits must lie where it begins.
    """
    import glob

    top = Path(*takewhile(lambda part: not glob.has_magic(part), pattern.parts))

    found = glob.iglob(str(pattern), recursive=True)  # noqa: PTH207 - takes any path
    files = sorted(Path(path) for path in islice(found, MAX_LOOKED_AT) if Path(path).is_file())
    if not files:
        told = f"{pattern} fits no file. {_tables_in(pattern.parent)}"
        raise InputError(told.rstrip())
    if len(files) > MAX_MATCHING:
        folder = str(pattern).partition("*")[0].rpartition("/")[0] or "."
        raise InputError(
            f"{pattern} fits {len(files):,} files, and files that are named one by one are copied: "
            f"at most {MAX_MATCHING}. Name the folder, which is not: --data {folder}"
        )
    for path in files:
        if not path.resolve().is_relative_to(top.resolve()):
            raise InputError(f"{path} fits {pattern} by a link out of {top}. Name it by itself.")
    return files


def check(path: str | Path) -> Source:
    """Look at one file of the user without changing or loading it.

    Raises
    ------
    InputError
        The caller's: missing, a directory, unreadable, empty, or not what its name says.
    """
    text = str(path)
    if not text.strip():
        raise InputError("--data was given an empty path. Name a file.")
    if re.match(r"[a-z][a-z0-9+.-]+://", text):
        raise InputError(f"{text} is an address. Download it first and name the local file.")
    try:
        named = at_home(path)
        real = named.resolve(strict=True)
        with _open(real) as file:
            kind = recognise(named, file)
            return Source(path=named, real=real, kind=kind, bytes=os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, RuntimeError) as error:
        raise _cannot_read(Path(path), error) from error


# --- opening, and what to say when that fails ------------------------------------------------


def _open(path: Path) -> BufferedReader:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder: as data of a session it is named by itself.")
    # A pipe blocks until somebody writes to it, and a device has no end: neither is opened.
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{path} is not a regular file but a pipe, socket or device. "
            "Save its content to a file first."
        )
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _cannot_read(path: Path, error: Exception) -> InputError:
    if isinstance(error, PermissionError):
        return InputError(f"{path} cannot be read: permission denied. Check its rights (ls -l).")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        if path.is_symlink():
            return InputError(f"{path} is a link to {path.readlink()}, which does not exist.")
        return InputError(f"{path} does not exist. {_like(path)}".rstrip())
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return InputError(f"{path} cannot be read: {reason}.")


def _like(path: Path) -> str:
    """Suggest in a sentence what the user meant by a path that does not exist."""
    import difflib

    folder = at_home(path).parent
    several = [part for part in str(path).split(",") if Path(part).is_file()]
    if len(several) > 1:
        return f"Name each file by itself: {_options(several)}."
    if not folder.is_dir():
        return f"There is no folder {folder} either."
    names = {name.lower(): name for name in _names(folder)}
    close = difflib.get_close_matches(path.name.lower(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {folder / names[close[0]]}?"
    return _tables_in(folder)


def _options(files: Sequence[str]) -> str:
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    return " ".join(f"--data {file}" for file in files[:5]) + more


def _tables_in(folder: Path) -> str:
    """Return a sentence that names up to five table files of a folder; empty without any."""
    tables = [name for name in _names(folder) if Path(name).suffix.lower() in KINDS]
    if not tables:
        return ""
    more = f" and {len(tables) - 5} more" if len(tables) > 5 else ""
    return f"In {folder} there are: {', '.join(tables[:5])}{more}."


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


# --- putting it there --------------------------------------------------------------------------


@contextmanager
def _data_folder(folder: Folder) -> Iterator[tuple[Folder, bool]]:
    """Open the folder of the data; say whether it was made now."""
    try:
        data, is_new = folder.make("data"), True
    except FileExistsError:
        data, is_new = folder.folder("data"), False
    with data:
        yield data, is_new


class _Placing:
    """Puts files into one folder, and takes them away again when one of them fails."""

    def __init__(
        self, folder: Folder, *, notice: Callable[[Notice], None], link_above: int
    ) -> None:
        self._folder = folder
        self._notice = notice
        self._link_above = link_above
        self._made: list[str] = []
        self._taken: set[str] = set()

    def put(self, source: Source) -> DataFile:
        """Copy one file, or link it where that would cost too much."""
        copied = self._copy(source, only_shared=source.bytes > self._link_above)
        linked = copied is None
        placed, size, digest = copied or self._link(source)
        self._taken.add(placed)
        return DataFile(
            path=f"data/{placed}",
            source=str(source.real),
            bytes=size,
            sha256=digest,
            kind=source.kind,
            linked=linked,
        )

    def link_folder(self, scan: Scan) -> DataFile:
        """Link a folder of data."""
        placed = self._free(scan.real.name, "", scan.real)
        if not self._there(placed):
            self._folder.link(placed, scan.real)
            self._made.append(placed)
        self._taken.add(placed)
        return DataFile(
            path=f"data/{placed}",
            source=str(scan.real),
            bytes=scan.bytes,
            sha256="",
            kind="folder",
            linked=True,
            files=scan.files,
        )

    def undo(self) -> None:
        """Remove the files made by this call; those of an earlier one stay."""
        for name in self._made:
            self._folder.remove(name)

    def _link(self, source: Source) -> tuple[str, int, str]:
        with _open(source.real) as file:
            size, digest = _fingerprint(file)
        placed = self._free(source.path.name, digest, source.real)
        if not self._there(placed):
            self._folder.link(placed, source.real)
            self._made.append(placed)
        line = (
            f"{source.path} is larger than {self._link_above / 2**30:g} GiB: it is linked, "
            "not copied. Do not change it while the run lasts."
        )
        self._notice(Notice(text=line))
        return placed, size, digest

    def _copy(self, source: Source, *, only_shared: bool) -> tuple[str, int, str] | None:
        """Copy one file; its blocks stay shared where the file system can do that.

        Parameters
        ----------
        source
            The file.
        only_shared
            Whether nothing is copied, and None returned, where it cannot.
        """
        part = f".{secrets.token_hex(4)}.part"
        self._made.append(part)
        with _open(source.real) as file, self._folder.create(part) as copy:
            is_shared = _share(file, copy)
            size, digest = (0, "") if is_shared or only_shared else _copy(file, copy)
            os.fchmod(copy.fileno(), 0o444)
        if is_shared:
            with self._folder.open(part) as own:
                size, digest = _fingerprint(own)
        elif only_shared:
            self._folder.remove(part)
            return None
        placed = self._free(source.path.name, digest)
        if not self._there(placed):
            self._folder.rename(part, placed)
            self._made.append(placed)
        self._folder.remove(part)
        return placed, size, digest

    def _free(self, name: str, digest: str, real: Path | None = None) -> str:
        """Return a free name, or one under which the same content was left.

        That is a copy as we make them, or a link if one is to be made: to the same file.
        """
        name = _short_name(name)
        placed, number = name, 1
        while self._there(placed) and not self._left(placed, digest, real):
            number += 1
            placed = f"{Path(name).stem}-{number}{Path(name).suffix}"
        return placed

    def _there(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            self._folder.status(name)
            return True
        return False

    def _left(self, name: str, digest: str, real: Path | None) -> bool:
        if name in self._taken:
            return False
        with suppress(OSError):
            if real is not None and os.readlink(name, dir_fd=self._folder.fd) == str(real):
                return True
            with self._folder.open(name) as file:
                return _is_ours(file) and _fingerprint(file)[1] == digest
        return False


def _short_name(name: str) -> str:
    """Return the name under which a file is placed, and by which the model is told of it.

    A name comes from whoever made the file: nothing in it is unseen, and no story fits into it.
    """
    seen = "".join(c if c.isprintable() and write_unseen(c) == c else "_" for c in name)
    suffix = Path(seen).suffix[: MAX_NAME // 2]
    return seen if len(seen) <= MAX_NAME else seen[: MAX_NAME - len(suffix)] + suffix


def _is_ours(file: BufferedReader) -> bool:
    """Whether a file is as our copies are: the user's, for nobody to write, with one name.

    A cell that ran here before may have made one with the content of an input to come, and given it
    a second name, by which a later cell writes what is to be read-only.
    """
    about = os.fstat(file.fileno())
    return about.st_nlink == 1 and about.st_uid == os.geteuid() and not about.st_mode & 0o222


def _keep_place(
    beside: Beside, folder: Folder, notice: Callable[[Notice], None]
) -> DataFile | None:
    """Copy a file to the same path in the run's folder, as its own: cells may change the copy."""
    *above, name = beside.path.split("/")
    try:
        with Folder(beside.folder) as home, home.open(beside.path) as file:
            for depth in range(len(above)):
                folder.folder("/".join(above[: depth + 1]), make=True).close()
            with folder.create(beside.path) as copy:
                size, digest = _copy(file, copy)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        notice(Notice(text=f"{beside.path} was not copied beside the cells: {error.strerror}."))
        return None
    kind = KINDS.get(Path(name).suffix.lower(), "other")
    real = str(beside.folder / beside.path)
    return DataFile(path=beside.path, source=real, bytes=size, sha256=digest, kind=kind)


def _copy(file: BufferedReader, copy: BufferedWriter) -> tuple[int, str]:
    """Copy in pieces; return how many bytes were written, and their fingerprint."""
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK_BYTES):
        copy.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _share(file: BufferedReader, copy: BufferedWriter) -> bool:
    """Let an empty copy have the blocks of a file (btrfs, XFS); return whether that could be."""
    try:
        fcntl.ioctl(copy.fileno(), _FICLONE, file.fileno())
    except OSError:
        return False
    return True


def _fingerprint(file: BufferedReader) -> tuple[int, str]:
    digest = hashlib.file_digest(file, "sha256")
    return file.tell(), digest.hexdigest()


def _cannot_place(folder: Path, error: OSError) -> InputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return InputError(
            f"The disk that holds {folder} is full. "
            "Free some space or choose another folder with --out."
        )
    return InputError(
        f"The data cannot be copied to {folder}: {error.strerror}. "
        "Choose another folder with --out."
    )
