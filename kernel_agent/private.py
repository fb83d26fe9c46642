"""What is the user's alone: the folders of runs, and a kernel's private directory on the host.

A kernel's directory holds its sockets, connection file, log and temporary files. There is one for
each kernel, made by whoever starts it: the session, or the provisioner when another application
starts it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PREFIX = "ka-"
SOCKETS = "io"
SOCKET_PATH_MAX = 107  # bytes of a unix socket's path, from struct sockaddr_un

FOLDER_MODE = 0o700
FILE_MODE = 0o600
"""What a run leaves shows what was in the data: nobody else on the machine needs to read it."""


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
    """Make one for a kernel: 0700, and short enough for the path of a socket below it.

    Its name tells whose it is, so that it can be removed when this process was killed.
    """
    prefix = f"{PREFIX}{os.getpid()}-"
    made = tempfile.mkdtemp(prefix=prefix)
    if len(os.fsencode(os.path.realpath(made))) + len(f"/{SOCKETS}/s-10") > SOCKET_PATH_MAX:
        Path(made).rmdir()
        made = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    return Path(os.path.realpath(made))
