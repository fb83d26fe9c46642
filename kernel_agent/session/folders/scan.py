"""Look at a folder that a user names as data: how much is in it, and what is left out of it.

No file is opened and no link followed. A folder that does not answer, as one on a machine that is
gone, is given up after a while.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.errors import InputError, SandboxError
from kernel_agent.records import FILE_NAME, count_text
from kernel_agent.safe import one_line, size_text, who_obeys
from kernel_agent.sandbox import readable_folder

MAX_FILES = 200_000
MAX_LEFT_OUT = 500  # places that are covered for each kernel
MAX_COVERING = 300  # paths that are granted one by one where a level hides none
MAX_COUNTED = 10_000  # files of a folder that is left out
MAX_DEPTH = 64
SILENT_SECONDS = 15.0  # in which nothing of a folder could be read

_HARMLESS = (".ds_store", "._*", ".localized", ".gitkeep", ".keep", ".directory", ".~lock.*")
"""Hidden files of file managers and offices: not listed, and nothing that need be hidden."""
_KEYS = (
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks",
    "*.keystore", "*.kdbx", "*.gpg", "*.pgp", "*.ppk", "credentials*", "secrets.*", "*_secrets.*",
    "service-account*.json", "client_secret*.json", "htpasswd",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A file or folder beneath the folder that is not granted: its path in it, and its files."""

    path: str
    files: int = 1


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A folder of data as it was found.

    Parameters
    ----------
    path, real
        As it was named, and where it is.
    files, bytes
        What is in it, without what is left out.
    folders
        The folders with files in it, relative to it; ``""`` is the folder itself.
    left_out
        What is not granted: hidden files, keys, what programs obey, and the folders of runs.
    links, others
        How many links lead nowhere, and how many pipes, sockets and devices there are.
    state
        A fingerprint of the names, sizes and times of its files.
    """

    path: Path
    real: Path
    files: int
    bytes: int
    folders: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()
    links: int = 0
    others: int = 0
    state: str = ""

    @property
    def line(self) -> str:
        """What there is, and what is left out, in a line for a person."""
        parts = [f"Data: {one_line(str(self.path))}: {self.files:,} files, {size_text(self.bytes)}"]
        if self.left_out:
            shown = [_told(each) for each in self.left_out[:5]]
            more = len(self.left_out) - len(shown)
            parts.append(f"left out: {', '.join(shown)}{f' and {more:,} more' if more else ''}")
        if self.links:
            parts.append(f"not followed: {count_text(self.links, 'link')}")
        return "; ".join(parts)


def _told(each: LeftOut) -> str:
    count = f"more than {MAX_COUNTED:,}" if each.files > MAX_COUNTED else f"{each.files:,}"
    return one_line(each.path, 60) + (f" ({count} files)" if each.files != 1 else "")


def scan(path: Path, *, silent_s: float = SILENT_SECONDS) -> Scan:
    """Look at a folder.

    Parameters
    ----------
    path
        As the user named it.
    silent_s
        Seconds after which a folder of which nothing can be read is given up.

    Raises
    ------
    InputError
        The caller's: it is or holds a home or a directory of the system, has no files or too many,
        has too much to leave out, cannot be read, or does not answer.
    """
    walk = _Walk(path)
    thread = threading.Thread(target=walk.run, name="kernel-agent-scan", daemon=True)
    thread.start()
    seen, since = -1, time.monotonic()
    while thread.is_alive():
        thread.join(0.05 if walk.steps > 10_000 else 0.005)
        if walk.steps != seen:
            seen, since = walk.steps, time.monotonic()
        elif time.monotonic() - since > silent_s:
            raise InputError(
                f"{path} does not answer: nothing of it could be read for {silent_s:g} s. "
                "Is it on a machine that cannot be reached?"
            )
    return walk.result()


def cover(scan: Scan, *, besides: str = "") -> list[Path]:
    """Return the outermost paths of a folder that hold nothing which is left out.

    Parameters
    ----------
    scan
        The folder.
    besides
        A path in it that is left out, too.

    Raises
    ------
    InputError
        There are too many: some of what is left out lies among many files.
    """
    left_out = {each.path for each in scan.left_out} | ({besides} if besides else set())
    opened = {path.rpartition("/")[0] for path in left_out}
    opened |= {str(above) for path in opened for above in Path(path).parents if path}
    opened = {"" if path == "." else path for path in opened}
    if not opened:
        return [scan.real]
    found: list[Path] = []
    for folder in opened | {""}:
        with os.scandir(scan.real / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path not in left_out | opened and not entry.is_symlink():
                    found.append(scan.real / path)
    if len(found) > MAX_COVERING:
        raise InputError(
            f"{scan.path} has much that must be left out, {one_line(min(left_out), 60)} among it, "
            f"and more than {MAX_COVERING} other files and folders beside that. Name a folder "
            "beneath it, another one for the run with --out, or another level with --sandbox."
        )
    return found


class _Walk:
    """The walk through a folder, in a thread of its own: a call of the system may never return."""

    def __init__(self, path: Path) -> None:
        self.steps = 0
        self._path = path
        self._found: Scan | None = None
        self._error: Exception | None = None
        self._files = self._bytes = self._links = self._others = 0
        self._folders: list[str] = []
        self._left_out: list[LeftOut] = []
        self._state = hashlib.sha256()

    def run(self) -> None:
        try:
            self._found = self._walk()
        except Exception as error:
            self._error = error

    def result(self) -> Scan:
        """Return what was found; raises what went wrong."""
        if isinstance(self._error, OSError):
            raise InputError(f"{self._path} cannot be read: {self._error.strerror}.") from None
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def _walk(self) -> Scan:
        try:
            real = readable_folder(self._path.expanduser())
        except SandboxError as error:
            raise InputError(str(error)) from None
        waiting = [""]
        while waiting:
            self._enter(real, waiting.pop(), waiting)
        if not self._files:
            raise InputError(f"{self._path} holds no files. Name a folder with data.")
        return Scan(
            path=self._path,
            real=real,
            files=self._files,
            bytes=self._bytes,
            folders=tuple(self._folders),
            left_out=tuple(sorted(self._left_out, key=lambda each: each.path)),
            links=self._links,
            others=self._others,
            state=self._state.hexdigest(),
        )

    def _enter(self, real: Path, folder: str, waiting: list[str]) -> None:
        try:
            with os.scandir(real / folder if folder else real) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            if not folder:
                raise
            return  # the kernel cannot read it either
        if folder and any(entry.name == FILE_NAME for entry in entries):
            self._leave_out(real, folder)
            return
        files = self._files
        for entry in entries:
            self.steps += 1
            path = f"{folder}/{entry.name}" if folder else entry.name
            with suppress(OSError):  # gone since it was listed
                if entry.is_symlink():
                    self._links += 1
                elif _is_left_out(entry.name):
                    self._leave_out(real, path)
                elif not entry.is_dir(follow_symlinks=False):
                    self._count(entry, path)
                elif path.count("/") < MAX_DEPTH:
                    waiting.append(path)
        if self._files > files:
            self._folders.append(folder)

    def _count(self, entry: os.DirEntry[str], path: str) -> None:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            self._others += 1
            return
        self._files += 1
        self._bytes += status.st_size
        times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        self._state.update(f"{path}\0{times}\0".encode("utf-8", "surrogateescape"))
        if self._files > MAX_FILES:
            raise InputError(
                f"{self._path} holds more than {MAX_FILES:,} files. Name a folder beneath it."
            )

    def _leave_out(self, real: Path, path: str) -> None:
        if _is_harmless(path.rpartition("/")[2]):
            return
        files = 0
        for _, _, names in os.walk(real / path):
            self.steps += 1
            files += len(names)
            if files > MAX_COUNTED:
                break
        is_folder = (real / path).is_dir()
        self._left_out.append(LeftOut(path=path, files=files if is_folder else 1))
        if len(self._left_out) > MAX_LEFT_OUT:
            raise InputError(
                f"{self._path} has more than {MAX_LEFT_OUT} places that must be left out (hidden "
                f"files, keys, earlier runs), {one_line(path, 60)} among them. "
                "Name a folder beneath it."
            )


def _is_left_out(name: str) -> bool:
    lower = name.lower()
    is_key = any(fnmatch.fnmatchcase(lower, pattern) for pattern in _KEYS)
    return name.startswith(".") or is_key or bool(who_obeys(name))


def _is_harmless(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in _HARMLESS)
