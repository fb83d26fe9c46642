"""The relay of an application's kernel: a process beside it, which ends with its host.

It is a program of its own (:mod:`kernel_agent.adapters.jupyter`, in a room above this one, which
knows its name only): it reads what a hostile kernel sends, which should cost the application
neither time nor memory, and it ends when the pipe to it closes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernel_agent.sandbox.launcher import reaper

PROGRAM = "kernel_agent.adapters.jupyter"
PATIENCE_S = 2.0


class RelayClient:
    """Starts a relay and ends it.

    Parameters
    ----------
    told
        The fields of ``kernel_agent.adapters.jupyter.relay.Told``. There are keys among them, so
        they go through a pipe.
    log
        The file in which it says why it ended.
    """

    def __init__(self, told: dict[str, Any], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - a program of ours
                [sys.executable, "-P", "-m", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                cwd="/",
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: that is noticed
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def undo(self) -> list[str]:
        """What the reaper does when the host is killed."""
        pid = self._process.pid
        return ["end", str(pid), reaper.born(pid), "9"]

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it; what it has taken over from the kernel is sent before."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
