"""Choose the level: by its name, or ``auto`` for the best that works here, tried once.

A level that was asked for and does not work is an error, never a downgrade. Where none of those
that ``auto`` may choose works, nothing starts.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, cast

from kernel_agent.errors import SandboxError
from kernel_agent.safe import did_you_mean
from kernel_agent.sandbox.levels import Level, Mechanism, Probe

AUTO = "auto"
UNCONFINED = "none"
REMOTE = "remote"

MODULES = {
    "bubblewrap": "kernel_agent.sandbox.bubblewrap",
    "namespaces": "kernel_agent.sandbox.namespaces",
    "landlock": "kernel_agent.sandbox.landlock",
    "container": "kernel_agent.sandbox.container",
    "gvisor": "kernel_agent.sandbox.gvisor",
    "microvm": "kernel_agent.sandbox.microvm",
    "interpreter": "kernel_agent.sandbox.interpreter",
    REMOTE: "kernel_agent.sandbox.remote",
    "none": "kernel_agent.sandbox.none",
}
"""All levels by name; `auto` tries from the top those that say that it may."""


def mechanism(name: str) -> Mechanism:
    """Return the module of a level; ``remote:NAME`` is that of ``remote``.

    Raises
    ------
    SandboxError
        The caller's: there is no such level.
    """
    level, colon, _ = name.partition(":")
    if level not in MODULES or (colon and level != REMOTE):
        known = ", ".join([AUTO, *MODULES])
        near = did_you_mean(name, [AUTO, *MODULES])
        raise SandboxError(f"there is no sandbox level {name!r}: choose among {known}.{near}")
    return cast("Mechanism", import_module(MODULES[level]))


def level_of(name: str) -> Level:
    """Return the description of a level, without trying it; see :func:`mechanism`."""
    return mechanism(name).LEVEL


def kernelspec_of(name: str) -> str:
    """Return the kernelspec of ``remote:NAME``; empty at other levels."""
    return name.partition(":")[2]


def resuming() -> str:
    """Return the level whose kernels hibernate: a resumed session is at that one."""
    return next(name for name in MODULES if level_of(name).hibernates)


def hibernating(name: str) -> Any:
    """Return the module of a level whose kernels can be hibernated and resumed.

    Raises
    ------
    SandboxError
        The caller's: this level's cannot.
    """
    found = mechanism(name)
    if not found.LEVEL.hibernates:
        raise SandboxError(
            f"a kernel at level {name} cannot be hibernated or resumed: use --sandbox microvm"
        )
    return found


@cache
def probe(name: str) -> Probe:
    """Try a level, once for this process."""
    return mechanism(name).probe(*filter(None, [kernelspec_of(name)]))


def choose(asked: str) -> Level:
    """Return the level to use; called by the session and by the provisioner.

    Parameters
    ----------
    asked
        Its name, or ``auto``.

    Raises
    ------
    SandboxError
        The level does not exist or does not work here, or ``auto`` found none that does, or
        one that it could not try in time: it never goes down for that.
    """
    if asked != AUTO:
        level = level_of(asked)
        tried = probe(asked)
        if not tried.works:
            raise SandboxError(
                f"the sandbox level {asked} does not work here: {tried.reason}. "
                f"{tried.advice}".strip()
            )
        return level
    for name in MODULES:
        level = level_of(name)
        if not level.automatic:
            continue
        tried = probe(name)
        if tried.works:
            return level
        if tried.undecided:  # a cell that keeps the machine busy is not to choose the next one's
            probe.cache_clear()
            raise SandboxError(
                f"whether the sandbox level {name} works here cannot be told now: {tried.reason}. "
                "Try again when the machine is less busy, or name a level with --sandbox"
            )
    reasons = "; ".join(
        f"{name}: {probe(name).reason}" for name in MODULES if level_of(name).automatic
    )
    best = next(name for name in MODULES if level_of(name).automatic)
    raise SandboxError(
        f"no sandbox works on this machine ({reasons}). {probe(best).advice} "
        "Or go on without protection with --sandbox none"
    )
