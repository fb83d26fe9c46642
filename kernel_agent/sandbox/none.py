"""No sandbox: the kernel has the rights of the user who started it.

What holds even so: a clean environment (no keys of the host), a separate process group, limits
on what one process may use, and an end together with the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kernel_agent.sandbox.environment import search_path
from kernel_agent.sandbox.levels import Grant, Launch, Level, Probe

LEVEL = Level(
    name="none",
    summary="NOT SANDBOXED: the kernel has your rights on this machine",
    covered=("keys in the environment",),
    not_covered=("files", "network", "processes", "memory", "disk", "everything else"),
    statement=(
        "NOT SANDBOXED: code written by the model runs with your rights on this machine "
        "(files, network, processes)."
    ),
    confines=False,
)


def probe() -> Probe:
    """Report that this works wherever Python does."""
    return Probe(works=True, reason="protects nothing")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Start the command as it is."""
    path = search_path(grant.python, *environment.get("PATH", os.defpath).split(":"))
    return Launch(command=command, environment={**environment, "PATH": path})
