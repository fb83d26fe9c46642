"""Level ``namespaces``: bubblewrap's namespaces without bubblewrap, over the host's file tree.

The launcher makes them itself. Landlock decides which paths of the host's tree may be read, and all
but the kernel's own folders is mounted read-only, modes, times and attributes included; temporary
files, shared memory and terminals are the kernel's own, and where the mount of a fresh ``/proc`` is
allowed (it is not in most containers) so are the processes that it shows.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kernel_agent.sandbox import steps as confine
from kernel_agent.sandbox.environment import MACHINE, at_home_in, host_python
from kernel_agent.sandbox.levels import Grant, Launch, Level, Mounts, Probe
from kernel_agent.sandbox.seccomp import Filter

LEVEL = Level(
    name="namespaces",
    summary="namespaces without a private file tree, Landlock, seccomp",
    covered=(
        "files outside the run's folder", "the run's inputs, trace and notebook", "network",
        "other processes", "keys in the environment", "dangerous system calls",
        "memory", "processes", "disk",
    ),
    not_covered=(
        "errors in the Linux kernel, which is shared with the host",
        "what the run's folder holds: cells may read and change it",
        "sizes, times, attributes and link targets of the host's files, by who knows their path",
        "locks on files that may be read, for which your other programs may wait",
        "what Linux tells of the whole machine (load, memory, mounts), where granted files lie",
        "CPU time beyond the limit of a cell",
        "memory for the moment that it takes to notice, where no control group can be made",
    ),
    claims=(
        "files", "network", "environment", "capabilities", "no_new_privs", "seccomp", "processes",
        "writes", "inputs", "namespaces", "mounts",
    ),
    automatic=True,
)  # fmt: skip

# linux/sched.h: CLONE_NEWNS, …CGROUP, …UTS, …IPC, …PID, …NET; and …USER
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_USER = 0x10000000
SHARED_MEMORY_MB = 256
PROBE_TIMEOUT_S = 10.0
_LATE = f"it did not end within {PROBE_TIMEOUT_S:g} s"


def probe() -> Probe:
    """Make such namespaces around ``true``."""
    if not confine.landlock_version():
        return Probe(works=False, reason="this Linux kernel has no Landlock (it came with 5.13)")
    failed = _try(["proc"]) and _try([])
    if failed:
        return Probe(
            works=False,
            reason=f"namespaces cannot be made ({failed})",
            undecided=failed == _LATE,
            advice="User namespaces are needed: see sysctl user.max_user_namespaces and "
            "kernel.unprivileged_userns_clone, AppArmor's kernel.apparmor_restrict_unprivileged_"
            "userns, or the security options of the container that this runs in.",
        )
    seen = "own" if _own_proc() else "the host's /proc, held back by Landlock"
    return Probe(
        works=True, reason=f"namespaces made ({seen}), Landlock ABI {confine.landlock_version()}"
    )


@cache
def _own_proc() -> bool:
    """Whether a fresh /proc may be mounted."""
    return not _try(["proc"])


@cache
def _try_once(more: tuple[str, ...]) -> str:
    steps = [
        *_new_namespaces(),
        "private",
        "fork",
        *more,
        "terminals",
        "tmpfs",
        "/dev/shm",
        "4096",
        "1777",
        "changeable",
        "/dev/shm",
        "still",
    ]
    command = confine.through(host_python(), steps, ["/usr/bin/true"])
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, env={}, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _LATE
    except OSError as error:
        return f"it does not run: {error}"
    lines = done.stderr.strip().removeprefix("sandbox: ").splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")


def _try(more: list[str]) -> str:
    """Try to make namespaces; return the reason when that fails, else empty."""
    return _try_once(tuple(more))


def mounts(grant: Grant, environment: Mapping[str, str]) -> Mounts:  # noqa: ARG001 - as all levels
    """Return the writable places of the host's file tree."""
    places = (grant.workspace, grant.sockets, grant.scratch, Path("/dev/shm"), Path("/dev/pts"))
    return Mounts(
        writable=tuple(map(str, places)),
        sizes={str(grant.scratch): grant.limits.disk_mb << 20, "/dev/shm": SHARED_MEMORY_MB << 20},
    )


def _new_namespaces() -> list[str]:
    if confine.may(confine.CAP_SYS_ADMIN):
        return ["unshare", str(_NAMESPACES)]
    ids = [str(os.geteuid()), str(os.getegid())]
    return ["unshare", str(_NAMESPACES | _USER), "map", *ids]


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Confine the command in new namespaces."""
    uid = confine.stand_in() if confine.may(confine.CAP_SYS_ADMIN) else None
    cgroup = confine.control_group(grant)
    processes = _own_proc()
    hidden = (*grant.hidden, *(map(Path, MACHINE) if processes else ()))
    steps = [
        "die-with", str(os.getpid()),
        *confine.join_group(cgroup),
        *_new_namespaces(),
        "private",
        "fork",
        *(["proc"] if processes else []),
        *(confine.lend(grant, uid) if uid is not None else []),
        *(confine.uncover(grant) if uid is not None else []),
        "tmpfs", str(grant.scratch), str(grant.limits.disk_mb << 20), "1777",
        "tmpfs", "/dev/shm", str(SHARED_MEMORY_MB << 20), "1777",
        "terminals",
        *confine.unchanging(
            grant.workspace, grant.sockets, grant.scratch, Path("/dev/shm"), Path("/dev/pts")
        ),
        *(word for path in confine.protected_paths(grant) for word in ("readonly", str(path))),
        *(word for path in hidden if path.exists() for word in ("hide", str(path))),
        "folder", str(grant.workspace),
        *(["user", str(uid), str(uid)] if uid is not None else []),
        "powerless",
        "fork",
        *confine.limits(grant.limits),
        "write", "/dev/shm", "device", "/dev/pts", "device", "/dev/ptmx",
        *confine.shared_tree(grant, processes=processes),
        *confine.system_calls(Filter(shared_files=True)),
    ]  # fmt: skip
    return Launch(
        command=confine.through(host_python(), steps, command),
        environment=at_home_in(str(grant.scratch), environment, grant.python),
        undo=confine.undo(grant, uid, cgroup),
    )
