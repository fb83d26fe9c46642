"""End with the host: a kernel must not outlive the process that started it.

ipykernel polls its parent once a second and then leaves its files behind. A pidfd tells at once,
and the private directory with the sockets goes too.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import threading
from pathlib import Path


def end_with_parent(parent: str, directory: Path) -> None:
    """Watch the process ``parent`` (a pid as text, empty for none) from a daemon thread.

    When it ends, ``directory`` is removed and this process group is killed.
    """
    if not parent.isdigit() or not hasattr(os, "pidfd_open"):
        return
    pid = int(parent)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # it is gone already, or lives in another pid namespace
        if os.getppid() == 1:
            _leave(directory)
        return
    threading.Thread(
        target=_wait_and_leave, args=(pidfd, directory), name="kernel-agent-watch", daemon=True
    ).start()


def _wait_and_leave(pidfd: int, directory: Path) -> None:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll()
    _leave(directory)


def _leave(directory: Path) -> None:
    # Only a directory that the host made for this kernel: it holds agent.json.
    try:
        if (directory / "agent.json").is_file():
            shutil.rmtree(directory, ignore_errors=True)
    finally:  # folders nested too deep for it are left; this process never is
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
