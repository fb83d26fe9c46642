"""Folders for the user alone: for runs, for kernels (the runtime directory), temporary ones.

A kernel's directory holds its sockets, connection file, log and temporary files. There is one for
each kernel, made by its starter: the session, or the provisioner when another application
starts it. Its record (:mod:`.marks`) tells whose it is, so that it can be removed when that process
was killed. What hostile code has filled is removed by :mod:`.removal` only.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_agent.safe.marks import PREFIX, RECORD, record
from kernel_agent.safe.removal import remove

SOCKETS = "io"
SOCKET_PATH_MAX = 107  # bytes of a unix socket's path, from struct sockaddr_un
LEFT = "left"

_MADE = set[Path]()  # what this process may empty again

FOLDER_MODE = 0o700
FILE_MODE = 0o600
"""A run's files show the data: nobody else on the machine needs to read them."""


def make_private(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder, and the folders above it that are missing, for the user alone.

    Folders that are there keep their mode.

    Raises
    ------
    FileExistsError
        It is there already, and that is not ``exist_ok``; or it is no folder.
    """
    missing = [above for above in folder.parents if not above.exists()]
    for above in reversed(missing):
        above.mkdir(mode=FOLDER_MODE, exist_ok=True)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok)


def private_opener(path: str, flags: int) -> int:
    """Open a file that is made for the user alone; the ``opener`` of :func:`open`."""
    return os.open(path, flags, FILE_MODE)


def private_directory() -> Path:
    """Make a kernel's private directory: 0700, its path short enough for sockets in it."""
    prefix = f"{PREFIX}{os.getpid()}-"
    made = tempfile.mkdtemp(prefix=prefix)
    if len(os.fsencode(os.path.realpath(made))) + len(f"/{SOCKETS}/s-10") > SOCKET_PATH_MAX:
        Path(made).rmdir()
        made = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    record(made, [])
    directory = Path(os.path.realpath(made))
    _MADE.add(directory)
    return directory


def is_made_here(directory: Path) -> bool:
    """Whether this process has made it as a kernel's private directory."""
    return directory in _MADE


def clear(folder: Path) -> None:
    """Remove a folder in which cells could write; never raises.

    What cannot be removed now is logged, and left where the reaper of a later host finds it.
    """
    if remove(folder, last=RECORD):
        return
    where = _hand_over(folder)
    logging.getLogger("kernel_agent").warning(
        "not all of %s could be removed: see %s", folder, where
    )


def _hand_over(folder: Path) -> Path:
    if folder.name.startswith(PREFIX):  # it is found as it is
        return folder
    with suppress(OSError):
        place = private_directory()
        try:
            return folder.rename(place / LEFT)
        except OSError:  # it is on another file system
            clear(place)
    return folder


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Make a folder in which cells may write; remove it at the end, or after this process's."""
    around = private_directory()
    made = around / name
    try:
        made.mkdir(mode=FOLDER_MODE)
        yield made
    finally:
        clear(around)
