"""The steps that the levels share, written for the launcher (:mod:`.launcher.confine`).

Each function returns words of the launcher's command line; a level's ``prepare`` is the list of
its steps, in the order in which they are taken.
"""

from __future__ import annotations

import ctypes
import os
import random
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernel_agent.sandbox import environment, seccomp
from kernel_agent.sandbox.cgroup import Cgroup
from kernel_agent.sandbox.environment import (
    DEVICES,
    SETTINGS,
    SYSTEM,
    interpreter_paths,
    outermost,
)
from kernel_agent.sandbox.levels import Grant, Limits

LAUNCHER = Path(__file__).resolve().parent / "launcher" / "confine.py"
KERNEL_LAUNCHER = Path(__file__).resolve().parent.parent / "inkernel" / "launch.py"
UNPRIVILEGED = range(61184, 65520)
"""User ids that systemd sets aside for services without an account (``systemd.exec``,
``DynamicUser=``); they exist also where a container maps only the first 65536."""

PENDING_SIGNALS = 4096
"""Signals that wait, and timers: Linux counts them for the user, who may have some 96,000 of them
(RLIMIT_SIGPENDING, a fraction of the memory) in all programs together."""

CAP_SYS_ADMIN, CAP_SETUID = 21, 7
_MB = 1 << 20


def through(python: Path, steps: Iterable[str], command: Sequence[str]) -> list[str]:
    """Return the command line that takes the steps before the command."""
    return [str(python), "-I", "-S", "-c", _START, str(LAUNCHER.parent), *steps, "--", *command]


def within(steps: Iterable[str], command: Sequence[str]) -> list[str]:
    """Return the command line that takes the steps in the process of a Python script itself.

    Saves the start of an interpreter. Only for our launch script: what runs before the steps is
    the interpreter with its start-up files, nothing else.
    """
    at = command.index(str(KERNEL_LAUNCHER))
    start = [*command[:at], "-c", _START_WITHIN, str(LAUNCHER.parent)]
    return [*start, *steps, "--", *command[at:]]


# Imported and not run as a script, so that Python keeps it compiled.
_START = "import sys; sys.path[:0] = [sys.argv[1]]; import confine; confine.main(sys.argv[2:])"
_START_WITHIN = (
    "import sys; sys.path[0] = sys.argv[1]; import confine; del sys.path[0]; "
    "confine.main(sys.argv[2:], stay=True)"
)


# --- who -----------------------------------------------------------------------------------------


def stand_in() -> int | None:
    """Return a user id for a kernel that root starts, of no other process; None for other users."""
    if os.geteuid() != 0:
        return None
    taken = {status.st_uid for status in _processes()}
    return random.choice([uid for uid in UNPRIVILEGED if uid not in taken])  # noqa: S311 - not secret


def may(capability: int) -> bool:
    """Whether this process has a capability."""
    with Path("/proc/self/status").open() as status:
        mask = next((line.split()[1] for line in status if line.startswith("CapEff")), "0")
    return bool(int(mask, 16) >> capability & 1)


def _processes() -> Iterator[os.stat_result]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                yield entry.stat()
            except OSError:
                continue


def own_tasks() -> int:
    """Return how many tasks this user has: the kernel counts them all, where ids are shared."""
    count, uid = 0, os.getuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    count += sum(1 for _ in os.scandir(f"{entry.path}/task"))
            except OSError:
                continue
    return count


# --- what it may use -----------------------------------------------------------------------------


def limits(asked: Limits, *, others: int = 0) -> list[str]:
    """Set the limits of one process; ``others`` tasks of the same user do not count."""
    values = {
        "CORE": 0,
        "NOFILE": asked.open_files,
        "FSIZE": asked.largest_mb * _MB,
        "NPROC": asked.processes + others,
        "SIGPENDING": PENDING_SIGNALS,
        "MSGQUEUE": 0,
    }
    if asked.memory_mb is not None:
        values["AS"] = asked.memory_mb * _MB
    return [word for name, value in values.items() for word in ("limit", name, str(value))]


def control_group(grant: Grant) -> Cgroup | None:
    """Make a control group for this kernel, where there is a place for one."""
    return Cgroup.make(group_name(grant), grant.limits)


def plan_group(grant: Grant) -> tuple[str, ...]:
    """Return the place of that group, made or not."""
    return Cgroup.plan(group_name(grant), grant.limits).paths


def group_name(grant: Grant) -> str:
    """Return the name of this kernel's control group: it tells whose kernel it is."""
    return f"kernel-agent-{grant.sockets.parent.name}"


def join_group(cgroup: Cgroup | None) -> list[str]:
    """Move into the control group, if there is one."""
    return [word for path in (cgroup.paths if cgroup else ()) for word in ("join", path)]


def system_calls(rules: seccomp.Filter) -> list[str]:
    """Filter the system calls."""
    return ["seccomp", seccomp.program(rules).hex()]


def landlock_version() -> int:
    """Return the version of Landlock's interface, 0 without Landlock."""
    libc = ctypes.CDLL(None)
    return max(0, int(libc.syscall(444, None, 0, 1)))  # landlock_create_ruleset, VERSION


# --- the way out ---------------------------------------------------------------------------------


def forward_proxy(grant: Grant) -> tuple[list[str], tuple[int, ...]]:
    """Let connections to ``PROXY_PORT`` in an empty network reach the host's proxy.

    Returns the steps, and the descriptor of the proxy's socket to pass to the process: so that the
    socket needs no path inside, and nobody but the forwarder has it.
    """
    if grant.proxy is None:
        return [], ()
    descriptor = os.open(grant.proxy, os.O_PATH | os.O_CLOEXEC)
    return ["forward", str(descriptor), str(environment.PROXY_PORT)], (descriptor,)


# --- what it may touch ---------------------------------------------------------------------------


def readable_paths(grant: Grant) -> tuple[Path, ...]:
    """Return the paths that a kernel reads outside its folders: outermost ones that exist."""
    wanted = (
        *interpreter_paths(grant.python),
        LAUNCHER.parent,
        grant.code,
        *grant.files,
        *grant.readable,
    )
    return tuple(path for path in outermost(wanted) if path.exists())


def protected_paths(grant: Grant) -> tuple[Path, ...]:
    """Return the read-only paths in the workspace: inputs, and an environment that lies there."""
    python = [p for p in interpreter_paths(grant.python) if p != grant.workspace]
    inside = [p for p in python if p.is_relative_to(grant.workspace)]
    return tuple(path for path in (*grant.protected, *inside) if path.exists())


def shared_tree(grant: Grant, *, processes: bool) -> list[str]:
    """Return Landlock's rules where the file tree is the host's.

    Parameters
    ----------
    processes
        ``/proc`` shows only the kernel's own processes.
    """
    proc = ["/proc"] if processes else [
        "/proc/self", "/proc/thread-self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat",
        "/proc/uptime", "/proc/loadavg", "/proc/filesystems", "/proc/sys/kernel/osrelease",
        "/proc/sys/vm/overcommit_memory", "/proc/version",
    ]  # fmt: skip
    reads = [*SYSTEM, *SETTINGS, *proc, *map(str, readable_paths(grant))]
    writes = [str(p) for p in (grant.workspace, grant.sockets, grant.scratch)]
    return [
        *(word for path in reads for word in ("read", path)),
        *(word for path in grant.listed for word in ("list", str(path))),
        *(word for path in writes for word in ("write", path)),
        *(word for path in DEVICES for word in ("device", path)),
        "landlock",
    ]


def uncover(grant: Grant) -> list[str]:
    """Make paths below directories that only root may enter reachable for another user.

    In a new mount namespace, each such directory is replaced by one that holds nothing but
    what is granted.
    """
    granted = (grant.workspace, grant.sockets, grant.scratch, *readable_paths(grant))
    tops = {top for path in granted if (top := _find_closed(path)) is not None}
    outer = [top for top in tops if not any(top != t and top.is_relative_to(t) for t in tops)]
    steps = [
        word
        for path in sorted(granted, key=lambda p: len(p.parts))
        if any(path.is_relative_to(top) for top in outer)
        for word in ("keep", str(path))
    ]
    return steps + [word for top in outer for word in ("cover", str(top))]


def unchanging(*changeable: Path) -> list[str]:
    """Make everything read-only but these trees, in a private mount namespace."""
    return [*(word for path in changeable for word in ("changeable", str(path))), "still"]


def _find_closed(path: Path) -> Path | None:
    """Return the first directory above a path that others may not enter."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            return parent
    return None


def lend(grant: Grant, uid: int) -> list[str]:
    """Let the kernel's user write where it may, without changing who owns it on the disk."""
    private = grant.sockets.parent
    return [
        "lend", str(grant.workspace), str(uid), "1" if grant.own else "0",
        "lend", str(private), str(uid), "1",
    ]  # fmt: skip


# --- what is undone ------------------------------------------------------------------------------


def undo(grant: Grant, uid: int | None, cgroup: Cgroup | None) -> tuple[tuple[str, ...], ...]:
    """Return the reaper's actions after the kernel's end (:mod:`.launcher.reaper`)."""
    actions = [("empty", path) for path in (cgroup.paths if cgroup else ())]
    if uid is None or not grant.own:
        return tuple(actions)
    owner = grant.workspace.stat()
    back = ("give-back", str(grant.workspace), str(uid), str(owner.st_uid), str(owner.st_gid))
    return (*actions, back)
