"""No sandbox, and a kernel that cannot become another user: PR_SET_NO_NEW_PRIVS by setpriv."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from kernel_agent.sandbox import none
from kernel_agent.sandbox.levels import Grant, Launch, Level, Probe

LEVEL = Level(
    name="frozen",
    summary="NOT SANDBOXED, but for programs that change the user",
    covered=("keys in the environment", "programs that run as another user"),
    not_covered=("files", "network", "processes", "memory", "disk", "everything else"),
    statement="NOT SANDBOXED: code written by the model runs with your rights on this machine.",
    confines=False,
)


def probe() -> Probe:
    """Look for the program."""
    found = shutil.which("setpriv")
    return Probe(works=bool(found), reason=found or "setpriv is not installed")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Start the command without the right to gain rights."""
    launch = none.prepare(grant, command, environment)
    kept = [shutil.which("setpriv") or "setpriv", "--no-new-privs", "--", *launch.command]
    return Launch(command=kept, environment=launch.environment)
