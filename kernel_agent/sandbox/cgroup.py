"""A control group for one kernel, where this process may make one.

Limits of one process (rlimits) say little about a kernel with children; a control group counts
them all. Version 1 offers a hierarchy for memory and one for processes; version 2 one for both, in
which only a group without processes may have limited children, so a place is looked for
among the groups above this process. Linux: Documentation/admin-guide/cgroup-v1, cgroup-v2.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.sandbox.levels import Limits

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Cgroup:
    """Directories below which the processes of one kernel are counted."""

    paths: tuple[str, ...]

    @classmethod
    def plan(cls, name: str, limits: Limits, root: Path = ROOT) -> Cgroup:
        """Return the group that :meth:`make` will make, so that it is removed in any case."""
        return cls(tuple(str(parent / name) for parent, _ in _places(limits, root)))

    @classmethod
    def make(cls, name: str, limits: Limits, root: Path = ROOT) -> Cgroup | None:
        """Make a group with these limits; None where there is no place for it."""
        made: list[str] = []
        for parent, settings in _places(limits, root):
            path = parent / name
            try:
                path.mkdir()
                made.append(str(path))
                for setting, value in settings.items():
                    (path / setting).write_text(str(value))
            except OSError:
                if str(path) in made:
                    made.remove(str(path))
                    path.rmdir()
        return cls(tuple(made)) if made else None


def move(pid: int, paths: Iterable[str]) -> None:
    """Move a process that is just starting into control groups, where they exist.

    It does so itself before it goes on. But Linux takes some 10 ms for a move, most of it waiting:
    begun here, they pass while its interpreter starts.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            (Path(path) / "cgroup.procs").write_text(str(pid))


def _places(limits: Limits, root: Path) -> Iterator[tuple[Path, dict[str, int | str]]]:
    """Yield writable directories, each with the files to write into a new group there."""
    mine = _own_groups()
    memory = limits.memory_mb * (1 << 20) if limits.memory_mb is not None else None
    for controller, settings in (
        ("memory", {"memory.limit_in_bytes": memory}),
        ("pids", {"pids.max": limits.processes}),
    ):
        place = root / controller / mine.get(controller, "").lstrip("/")
        wanted: dict[str, int | str] = {k: v for k, v in settings.items() if v is not None}
        if controller in mine and wanted and os.access(place, os.W_OK):
            yield place, wanted
    if "memory" in mine or "" not in mine:
        return
    place = root / mine[""].lstrip("/")
    for above in (place, *place.parents):
        if not above.is_relative_to(root):
            return
        offered = _words(above / "cgroup.subtree_control")
        if {"memory", "pids"} <= offered and os.access(above / "cgroup.procs", os.W_OK):
            limited: dict[str, int | str] = {"pids.max": limits.processes}
            if memory is not None:
                limited |= {"memory.max": memory, "memory.swap.max": 0}
            yield above, limited
            return


def _own_groups() -> dict[str, str]:
    """Return this process's group by controller; version 2's has the name ''."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()
