"""Processes around a container runtime: all of them end with the one that was started.

Container runtimes leave processes of their own behind (monitors, file servers) that no process
group holds. In a process namespace the end of its first process is the end of them all. Where that
cannot be made, the process that starts the runtime adopts orphans and ends them; it must then be
asked to end (SIGTERM) rather than killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.sandbox import steps as confine
from kernel_agent.sandbox.environment import host_python

CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# linux/sched.h
_NEW_MOUNTS, _NEW_PROCESSES = 0x00020000, 0x20000000


@dataclass(frozen=True, kw_only=True)
class Own:
    """Steps of the launcher around a runtime, and the signal that ends it."""

    begin: tuple[str, ...]
    rest: tuple[str, ...]
    ended_by: int

    def undo(self, directory: Path) -> tuple[tuple[str, ...], ...]:
        """Return the actions that end a kernel's leftover processes."""
        return () if self.ended_by == signal.SIGKILL else (("end-naming", str(directory)),)


def own_processes() -> Own:
    """Return the steps by which a runtime's processes end together."""
    if confine.may(confine.CAP_SYS_ADMIN):
        return Own(
            begin=("die-with", str(os.getpid())),
            rest=("unshare", str(_NEW_MOUNTS | _NEW_PROCESSES), "private", "fork", "proc", "fork"),
            ended_by=signal.SIGKILL,
        )
    return Own(begin=("adopt", str(os.getpid())), rest=("fork",), ended_by=signal.SIGTERM)


def run_to_end(
    command: Sequence[str], timeout_s: float, variables: Mapping[str, str] | None = None
) -> str:
    """Run a runtime's command to its end; return the reason when it fails, else empty.

    Nothing of it is left when this returns, also after ``timeout_s`` seconds.
    """
    own = own_processes()
    steps = [*own.begin, *own.rest]
    process = subprocess.Popen(  # noqa: S603 - a fixed command
        confine.through(host_python(), steps, command),
        env={**CLEAN, **(variables or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True, cwd="/",
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.send_signal(own.ended_by)
        process.communicate()
        return f"it did not end within {timeout_s:g} s"
    if process.returncode == 0:
        return ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit code {process.returncode}"
