"""A kernel's private directory on the host: sockets, connection file, log, temporary files.

One for each kernel, made by whoever starts it: the session, or the provisioner when another
application starts it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PREFIX = "ka-"
SOCKETS = "io"
SOCKET_PATH_MAX = 107  # bytes of a unix socket's path, from struct sockaddr_un


def private_directory() -> Path:
    """Make one: 0700, and short enough for the path of a socket below it.

    Its name tells whose it is, so that it can be removed when this process was killed.
    """
    prefix = f"{PREFIX}{os.getpid()}-"
    made = tempfile.mkdtemp(prefix=prefix)
    if len(os.fsencode(os.path.realpath(made))) + len(f"/{SOCKETS}/s-10") > SOCKET_PATH_MAX:
        Path(made).rmdir()
        made = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    return Path(os.path.realpath(made))
