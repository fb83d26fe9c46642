"""Client of this process's reaper, which is started with the first kernel."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from kernel_agent.sandbox.launcher import reaper

PATIENCE_S = 1.0


class ReaperClient:
    """Starts the reaper and writes kernels' directories to its pipe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._host = 0

    def watch(self, directory: Path) -> None:
        """Put a kernel's private directory under the reaper's watch."""
        self._tell(b"+", directory)

    def forget(self, directory: Path) -> None:
        """Withdraw a directory that is cleaned up already."""
        self._tell(b"-", directory)

    def _tell(self, sign: bytes, directory: Path) -> None:
        line = sign + os.fsencode(directory) + b"\0"
        with self._lock:
            for _ in range(2):  # it may have been killed: then there is a new one
                pipe = self._ensure_started().stdin
                assert pipe is not None
                try:
                    os.write(pipe.fileno(), line)
                except BrokenPipeError:
                    self._process = None
                else:
                    return

    def _ensure_started(self) -> subprocess.Popen[bytes]:
        # A fork of this process needs another reaper.
        if self._process is None or self._host != os.getpid():
            folders = {os.path.realpath(tempfile.gettempdir()), "/tmp"}
            self._host = os.getpid()
            self._process = subprocess.Popen(  # noqa: S603 - our own file
                [sys.executable, "-I", "-S", reaper.__file__, str(self._host), *sorted(folders)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
            atexit.register(_dismiss, self._process, self._host)
        return self._process


def _dismiss(process: subprocess.Popen[bytes], host: int) -> None:
    """End the reaper together with this process: nothing is left to undo."""
    if os.getpid() == host and process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)


reaper_client = ReaperClient()
