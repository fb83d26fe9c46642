"""Which level: by its name, or ``auto`` for the best that works here. Found by trying, once.

A level that was asked for and does not work is an error, never a downgrade. Where none of those
that ``auto`` may choose works, nothing starts.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, cast

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox.levels import Level, Mechanism, Probe

MODULES = {
    "bubblewrap": "kernel_agent.sandbox.bubblewrap",
    "namespaces": "kernel_agent.sandbox.namespaces",
    "landlock": "kernel_agent.sandbox.landlock",
    "container": "kernel_agent.sandbox.container",
    "gvisor": "kernel_agent.sandbox.gvisor",
    "microvm": "kernel_agent.sandbox.microvm",
    "interpreter": "kernel_agent.kernel.interpreter",
    "remote": "kernel_agent.sandbox.remote",
    "none": "kernel_agent.sandbox.none",
}
"""All levels by name; `auto` tries from the top those that say that it may."""


def mechanism(name: str) -> Mechanism:
    """Return the module of a level.

    Raises
    ------
    SandboxError
        The caller's: there is no such level.
    """
    if name not in MODULES:
        known = ", ".join(["auto", *MODULES])
        raise SandboxError(f"there is no sandbox level {name!r}: choose among {known}")
    return cast("Mechanism", import_module(MODULES[name]))


def hibernating(name: str) -> Any:
    """Return the module of a level whose kernels can be hibernated and resumed.

    Raises
    ------
    SandboxError
        The caller's: this level's cannot.
    """
    found = mechanism(name)
    if not hasattr(found, "hibernate"):
        raise SandboxError(
            f"a kernel at level {name} cannot be hibernated or resumed: use --sandbox microvm"
        )
    return found


@cache
def probe(name: str) -> Probe:
    """Try a level, once for this process."""
    return mechanism(name).probe()


def choose(asked: str) -> Level:
    """Return the level to use; called by the session and by the provisioner.

    Raises
    ------
    SandboxError
        The level does not exist or does not work here, or ``auto`` found none that does, or
        one that it could not try in time: it never goes down for that.
    """
    if asked != "auto":
        level, tried = mechanism(asked).LEVEL, probe(asked)
        if not tried.works:
            raise SandboxError(
                f"the sandbox level {asked} does not work here: {tried.reason}. "
                f"{tried.advice}".strip()
            )
        return level
    for name in MODULES:
        level = mechanism(name).LEVEL
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
        f"{name}: {probe(name).reason}" for name in MODULES if mechanism(name).LEVEL.automatic
    )
    best = next(name for name in MODULES if mechanism(name).LEVEL.automatic)
    raise SandboxError(
        f"no sandbox works on this machine ({reasons}). {probe(best).advice} "
        "Or go on without protection with --sandbox none"
    )
