"""Level ``landlock``: Landlock, seccomp and limits alone, for machines without namespaces.

The launcher stays as the parent of everything that the kernel starts, so that what is left of it
ends with it. Started by root it becomes an unprivileged user first: Landlock leaves root its
capabilities.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox import seccomp
from kernel_agent.sandbox import steps as confine
from kernel_agent.sandbox.environment import at_home_in, host_python
from kernel_agent.sandbox.levels import Grant, Launch, Level, Probe

LEVEL = Level(
    name="landlock",
    summary="Landlock and seccomp, without namespaces",
    covered=(
        "files outside the run's folder", "network", "keys in the environment",
        "dangerous system calls", "memory of each process", "processes",
    ),
    not_covered=(
        "errors in the Linux kernel, which is shared with the host",
        "what the run's folder holds, the trace, the notebook and the inputs among it",
        "sizes, times, attributes and link targets of the host's files, by who knows their path",
        "modes, times and attributes of your own files anywhere (unless root started it)",
        "signals to your other processes, with a Linux kernel before 6.12",
        "the processors on which your other processes run, which can be chosen",
        "names of abstract unix sockets of the host, on which a cell may listen",
        "memory for the moment that it takes to notice, where no control group can be made",
        "multiprocessing with locks: shared memory is the host's, so it is closed",
        "locks on files that may be read, for which your other programs may wait",
        "CPU time beyond the limit of a cell",
    ),
    claims=("files", "network", "environment", "capabilities", "no_new_privs", "seccomp", "writes"),
    automatic=True,
    hides_paths=False,
)  # fmt: skip


_KNOWS_EMPTYING = 3  # the version of Landlock, of Linux 6.2, from which it is a right of its own


def probe() -> Probe:
    """Ask the kernel for Landlock's version, and for a way to become another user where needed."""
    version = confine.landlock_version()
    if not version:
        return Probe(
            works=False,
            reason="this Linux kernel has no Landlock",
            advice="It came with Linux 5.13, and must be a security module (lsm= at boot).",
        )
    try:
        seccomp.program(seccomp.Filter())
    except SandboxError as error:
        return Probe(works=False, reason=str(error))
    if os.geteuid() == 0 and not confine.may(confine.CAP_SETUID):
        return Probe(
            works=False,
            reason="this is root without the capability to become another user (CAP_SETUID)",
            advice="Landlock leaves root what root may do: start it as an ordinary user.",
        )
    return Probe(works=True, reason=f"Landlock ABI {version}")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Confine the command, and whatever it starts."""
    uid = confine.stand_in()
    own_tree = uid is not None and confine.may(confine.CAP_SYS_ADMIN)
    cgroup = confine.control_group(grant)
    others = confine.own_tasks() if uid is None else 0
    steps = [
        *confine.join_group(cgroup),
        "adopt", str(os.getpid()),
        *(_reachable(grant, uid) if own_tree and uid is not None else _given(grant, uid)),
        "fork",
        "folder", str(grant.workspace),
        *(["user", str(uid), str(uid)] if uid is not None else []),
        "powerless",
        *confine.limits(grant.limits, others=others),
        *confine.shared_tree(grant, processes=False),
        *confine.system_calls(_filter()),
    ]  # fmt: skip
    return Launch(
        command=confine.through(host_python(), steps, command),
        environment=at_home_in(str(grant.scratch), environment, grant.python),
        ended_by=15,
        undo=confine.undo(grant, uid, cgroup),
    )


def _filter() -> seccomp.Filter:
    keep_contents = confine.landlock_version() < _KNOWS_EMPTYING
    return seccomp.Filter(shared_files=True, shared_processes=True, keep_contents=keep_contents)


def _given(grant: Grant, uid: int | None) -> list[str]:
    """Give the other user the kernel's folders, where root may make no mount namespace."""
    if uid is None:
        return []
    private, workspace = str(grant.sockets.parent), str(grant.workspace)
    return ["give", private, str(uid), *(["give", workspace, str(uid)] if grant.own else [])]


def _reachable(grant: Grant, uid: int) -> list[str]:
    """Enter a mount namespace, as root, in which the other user reaches the granted paths."""
    return [
        "unshare",
        str(0x20000),
        "private",
        *confine.lend(grant, uid),
        *confine.uncover(grant),
        *confine.unchanging(grant.workspace, grant.sockets, grant.scratch),
    ]
