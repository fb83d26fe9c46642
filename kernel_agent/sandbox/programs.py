"""Find the programs that make a sandbox, only in places that nobody but root can change.

A sandbox is as good as the program that makes it, and ``PATH`` may name a folder that a run or
another program writes to. So bwrap, podman, runsc, QEMU and their helpers are taken from ``PATH``
and the system's directories only where the file, and every folder on the way to it, belongs to
root and is nobody else's to write. Who keeps them elsewhere, in a home or a conda environment,
says so: the variable ``KERNEL_AGENT_PROGRAMS`` names directories that are believed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

VARIABLE = "KERNEL_AGENT_PROGRAMS"
SYSTEM = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def find(name: str, *, only: Sequence[str] = ()) -> str | None:
    """Return the path of a program that may make a sandbox, in one of those folders, or None."""
    return next((path for path, why in _candidates(name, only) if not why), None)


def missing(name: str, package: str = "") -> str:
    """Return the reason why a program was not found: not installed, or in an unsafe place."""
    for path, why in _candidates(name):
        if why:
            return f"{path} is not used: {why}; {VARIABLE} names directories that are believed"
    return f"{package or name} is not installed"


def _candidates(name: str, only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the places of a program of that name, each with the objection to it."""
    for folder in () if only else os.environ.get(VARIABLE, "").split(":"):
        if folder.startswith("/") and (found := shutil.which(name, path=folder)):
            yield found, ""
    for folder in only or (*os.environ.get("PATH", "").split(":"), *SYSTEM):
        if folder.startswith("/") and (found := shutil.which(name, path=folder)):
            yield found, _objection(Path(folder)) or _objection(Path(found))


def _objection(path: Path) -> str:
    """Return the users besides root who could change a file, by its real path."""
    real = Path(os.path.realpath(path))
    for part in (*reversed(real.parents), real):
        try:
            status = part.stat()
        except OSError as error:
            return f"{part}: {error.strerror}"
        if status.st_uid not in _root():
            return f"{part} does not belong to root"
        shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder nobody replaces what root has put there, and that is looked at next.
        if shared and (part == real or not status.st_mode & stat.S_ISVTX):
            return f"{part} may be written by others than root"
    return ""


def _root() -> set[int]:
    """Return root, and its stand-in where this process's user namespace does not have root."""
    if os.geteuid() == 0 or _has_root():
        return {0}
    return {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}


def _has_root() -> bool:
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return any(int(line.split()[0]) == 0 for line in lines)
