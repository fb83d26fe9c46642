"""The kernel's process on this machine: start it, and say in words how it ended.

jupyter_client's manager starts it through the ``kernel-agent`` provisioner, where the sandbox is;
the kernelspec is made here and stands nowhere else.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from kernel_agent.safe import SOCKETS
from kernel_agent.sandbox import KERNEL_LAUNCHER

SMALL_MB = 1000  # with 700 pandas does not load on two processors, with 1,000 it does


class _OneSpec(KernelSpecManager):
    """Answers jupyter_client's question for a kernelspec with the one that we start."""

    spec: KernelSpec

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002 - there is only one
        return self.spec


def make_manager(directory: Path, python: str, config: Mapping[str, Any]) -> AsyncKernelManager:
    """Return the manager of a kernel that has not started yet.

    Parameters
    ----------
    directory
        The kernel's private directory: its connection file and sockets go there.
    python
        The interpreter.
    config
        What the provisioner is told.
    """
    specs = _OneSpec()
    specs.spec = KernelSpec(
        argv=[python, "-X", "frozen_modules=on", str(KERNEL_LAUNCHER), "-f", "{connection_file}"],
        display_name="kernel-agent",
        language="python",
        interrupt_mode="message",
        metadata={
            "kernel_provisioner": {"provisioner_name": "kernel-agent", "config": dict(config)}
        },
    )
    return AsyncKernelManager(
        kernel_name="kernel-agent",
        kernel_spec_manager=specs,
        transport="ipc",
        connection_file=str(directory / "k.json"),
        ip=str(directory / SOCKETS / "s"),
    )


def epitaph_of(code: int | None, memory_mb: int | None) -> str:
    """Return how a kernel's process ended, for a person.

    Parameters
    ----------
    code
        Its exit code; None where it was ended before it gave one.
    memory_mb
        The memory that it was given, where that is limited.
    """
    if code is None:
        return "it was ended because it did not answer"
    if code > 128:  # what a process around it says of one that was ended by a signal
        code = 128 - code
    if code >= 0:
        return f"its process ended with exit code {code}{_little_memory(memory_mb)}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
    return f"its process was ended by {name}{hint}{_little_memory(memory_mb)}"


def _little_memory(given: int | None) -> str:
    """Return the hint that memory may be the reason; empty where it is enough."""
    if given is None or given >= SMALL_MB:
        return ""
    return f"; {given} MB of memory may be too little: give it --memory-mb {SMALL_MB} or more"


def last_lines(log: Path, lines: int = 5) -> str:
    """Return the end of a process's log, below a line's end; empty where there is no log."""
    try:
        text = log.read_text(errors="replace").strip()
    except OSError:
        return ""
    return "\n" + "\n".join(text.splitlines()[-lines:]) if text else ""
