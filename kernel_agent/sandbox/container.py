"""Level ``container``: a container by podman, without an image.

Its root is a folder of mount points. The host's interpreter and packages are bound read-only, so
nothing is downloaded and nothing has to be kept up to date. podman gives the namespaces, an empty
set of capabilities, a read-only root and
limits; inside, the launcher adds Landlock and the system call filter of the other levels before the
command runs. As root, the kernel's user is one that no other process has; an ordinary user needs
podman's own set-uid helpers and a range of ids in ``/etc/subuid``.

docker is not used: anyone who may reach its daemon has the rights of root on the host.

podman's own state lies in the kernel's private directory, so that neither the containers of a user
nor podman's settings are touched, and nothing is left when the directory is removed.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox import programs
from kernel_agent.sandbox import steps as confine
from kernel_agent.sandbox.environment import MACHINE, at_home_in, host_python
from kernel_agent.sandbox.launcher import reaper
from kernel_agent.sandbox.levels import Grant, Launch, Level, Limits, Probe
from kernel_agent.sandbox.oci import CLEAN, own_processes, run_to_end
from kernel_agent.sandbox.rootfs import Bind, Tree, tree
from kernel_agent.sandbox.seccomp import Filter

LEVEL = Level(
    name="container",
    summary="a container (podman), for trusted work only",
    covered=(
        "files outside the run's folder", "the run's inputs, trace and notebook", "network",
        "other processes", "keys in the environment", "dangerous system calls",
        "size of a file, size of temporary files, processes",
        "memory and processes of all cells together, where podman may make a control group (root)",
    ),
    not_covered=(
        "errors in the Linux kernel, which is shared with the host: escapes are documented",
        "errors in podman and its runtime, which act with more rights than the cells",
        "memory of all cells together for an ordinary user without control groups",
        "what the run's folder holds: cells may read and change it",
        "unix sockets in the run's folder and in folders of data: cells may connect",
        "locks on files that may be read, for which your other programs may wait",
        "what Linux tells of the whole machine (load, memory), and where the granted files lie",
        "CPU time beyond the limit of a cell",
    ),
    claims=(
        "files", "network", "environment", "capabilities", "no_new_privs", "seccomp", "processes",
        "writes", "inputs", "namespaces",
    ),
)  # fmt: skip

RUNTIMES = ("crun", "runc")
"""Runtimes to try: the machine's control groups decide (crun refuses mixed versions)."""
PROBE_TIMEOUT_S = 20.0
CGROUPS = Path("/sys/fs/cgroup")
_ADVICE_ROOT = "podman needs a runtime: apt install crun runc, or dnf install crun runc."
_ADVICE_USER = (
    "An ordinary user needs newuidmap (apt install uidmap) and a range of ids in /etc/subuid and "
    "/etc/subgid; see podman's guide for rootless use. If the runtime fails: apt install crun runc."
)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """podman, and the runtime with which it works here."""

    podman: str
    runtime: str


def probe() -> Probe:
    """Run a program in such a container, with each runtime until one works."""
    podman = programs.find("podman")
    if podman is None:
        return Probe(
            works=False,
            reason=programs.missing("podman"),
            advice="Install it: apt install podman runc, or dnf install podman.",
        )
    engine, failures = _engine(podman)
    if engine is None:
        advice = _ADVICE_ROOT if os.geteuid() == 0 else _ADVICE_USER
        return Probe(works=False, reason="; ".join(failures), advice=advice)
    rights = "as root" if os.geteuid() == 0 else "rootless, without control groups"
    return Probe(works=True, reason=f"podman ran a program {rights}, runtime {engine.runtime}")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Make the root folder; return the launch of podman with it.

    Raises
    ------
    SandboxError
        The caller's: what is asked for cannot be given at this level.
    """
    podman = programs.find("podman")
    engine = _engine(podman)[0] if podman else None
    if engine is None:
        raise SandboxError(
            "the sandbox level container does not work here: see kernel-agent doctor"
        )
    if grant.proxy is not None:
        raise SandboxError("the sandbox level container opens no hosts: leave --allow-host out")
    if not confine.landlock_version():
        raise SandboxError("the sandbox level container needs Landlock (Linux 5.13)")
    uid = confine.stand_in()
    name = confine.group_name(grant)
    folder = grant.scratch
    state = folder / "podman"
    state.mkdir(mode=0o700)
    own = own_processes()
    lent = _lend(grant, uid) if uid is not None else []
    home = at_home_in("/tmp", environment, grant.python)
    arguments = podman_command(
        engine,
        tree(grant, folder),
        state=state,
        name=name,
        user=uid,
        limits=grant.limits,
        folder=grant.workspace,
        command=_inside(grant, home, command),
    )
    return Launch(
        command=confine.through(host_python(), [*own.begin, *own.rest, *lent], arguments),
        environment={**CLEAN, "HOME": str(state), "XDG_RUNTIME_DIR": str(state)},
        ended_by=own.ended_by,
        undo=(
            *own.undo(grant.sockets.parent),
            *_groups(name if uid is not None else None),
            *confine.undo(grant, uid, None),
        ),
    )


def podman_command(
    engine: Engine,
    files: Tree,
    *,
    state: Path,
    name: str,
    user: int | None,
    limits: Limits,
    folder: Path,
    command: Sequence[str],
) -> list[str]:
    """Return podman's command line.

    Parameters
    ----------
    engine
        podman and its runtime.
    files
        The file tree.
    state
        A directory of podman's own.
    name
        Of the container and its control group.
    user
        The user inside, when root starts it; None for an ordinary user, who is the same inside.
    limits
        Limits of one process; with ``user``, of all together.
    folder
        The working directory.
    command
        The first process.
    """
    as_root = user is not None
    values = {
        "nofile": limits.open_files,
        "fsize": limits.largest_mb << 20,
        # Of an ordinary user it would count processes outside too: the launcher sets it inside.
        **({"nproc": limits.processes} if as_root else {}),
        "core": 0,
    }
    return [
        engine.podman,
        "--root", str(state / "root"), "--runroot", str(state / "run"),
        "--tmpdir", str(state / "tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
        "--events-backend", "none", "--log-level", "error", "--runtime", engine.runtime,
        "--runtime-flag", f"root={state / 'runtime'}",  # root's would lie in /run, and stay there
        "run", "--rm", "--name", name, "--hostname", "sandbox", "--no-hosts", "--passwd=false",
        "--network", "none", "--ipc", "none", "--cap-drop", "all",
        "--security-opt", "no-new-privileges", "--security-opt", f"mask={':'.join(MACHINE)}",
        "--read-only", "--read-only-tmpfs=false",
        "--log-driver", "none", "--sig-proxy=false", "--stop-timeout", "0", "--unsetenv-all",
        *(["--user", f"{user}:{user}"] if as_root else ["--userns", "keep-id"]),
        *(_group_flags(name, limits) if as_root else ["--pids-limit", "0"]),
        *(w for limit, n in values.items() for w in ("--ulimit", f"{limit}={n}:{n}")),
        *(w for place, size in files.memory.items()
          for w in ("--tmpfs", f"{place}:rw,nosuid,nodev,notmpcopyup,size={size},mode=1777")),
        *(w for bind in files.binds for w in ("--mount", _mount(bind))),
        "--workdir", str(folder),
        "--rootfs", str(files.root),
        *command,
    ]  # fmt: skip


def _group_flags(name: str, limits: Limits) -> list[str]:
    """Return the limits of all processes together, for a control group of this name."""
    flags = ["--pids-limit", str(limits.processes), "--cgroup-parent", f"/{name}"]
    if limits.memory_mb is not None:
        flags += [f"--memory={limits.memory_mb}m", f"--memory-swap={limits.memory_mb}m"]
    return flags


def _mount(bind: Bind) -> str:
    """Return an argument of ``--mount``; its fields are those of a line of CSV."""
    fields = (
        "type=bind",
        f"source={bind.source}",
        f"target={bind.target}",
        f"ro={str(not bind.writable).lower()}",
    )
    return ",".join('"' + f.replace('"', '""') + '"' if set(f) & set('",\n') else f for f in fields)


def _inside(grant: Grant, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """Return the container's command: the launcher with the steps to take inside."""
    writable = (str(grant.workspace), str(grant.sockets), "/tmp", "/dev/shm")
    steps = [
        "powerless",
        "fork",
        *confine.limits(grant.limits),
        "read", "/",
        *(word for path in writable for word in ("write", path)),
        "device", "/dev",
        "landlock",
        *confine.system_calls(Filter()),
    ]  # fmt: skip
    given = [f"{name}={value}" for name, value in environment.items()]
    # podman adds variables, which the first process would show.
    return ["/usr/bin/env", "-i", *given, *confine.through(grant.python, steps, command)]


def _lend(grant: Grant, uid: int) -> list[str]:
    """Let the kernel's user write in its folders, and read the files that it starts with."""
    for path in grant.files:
        if path.is_file():
            os.chown(path, uid, uid, follow_symlinks=False)
    return [
        "lend", str(grant.workspace), str(uid), "1" if grant.own else "0",
        "lend", str(grant.sockets), str(uid), "1",
    ]  # fmt: skip


def _groups(name: str | None) -> tuple[tuple[str, ...], ...]:
    """Return the actions that remove podman's control groups, in every hierarchy."""
    if name is None:
        return ()
    hierarchies = [CGROUPS, *(path for path in CGROUPS.iterdir() if path.is_dir())]
    return tuple(("empty", str(path / name)) for path in hierarchies)


@cache
def _engine(podman: str) -> tuple[Engine | None, tuple[str, ...]]:
    """Return podman with the first runtime with which a program runs, or why none does."""
    failures = []
    for runtime in RUNTIMES:
        found = programs.find(runtime)
        if found is None:
            failures.append(programs.missing(runtime))
            continue
        failed = _try(engine := Engine(podman=podman, runtime=found))
        if not failed:
            return engine, ()
        failures.append(f"{runtime}: {failed}")
    return None, tuple(failures)


def _try(engine: Engine) -> str:
    """Run ``true`` in a container; return why it failed."""
    name = f"kernel-agent-{secrets.token_hex(6)}"
    with tempfile.TemporaryDirectory(prefix="ka-probe-", ignore_cleanup_errors=True) as made:
        folder = Path(os.path.realpath(made))
        for part in ("io", "work", "tree", "podman"):
            (folder / part).mkdir()
        grant = Grant(
            python=host_python(), code=folder / "work", workspace=folder / "work",
            sockets=folder / "io", scratch=folder / "tree",
        )  # fmt: skip
        command = podman_command(
            engine,
            tree(grant, folder / "tree"),
            state=folder / "podman",
            name=name,
            user=65534 if os.geteuid() == 0 else None,
            limits=grant.limits,
            folder=Path("/"),
            command=["/usr/bin/true"],
        )
        state = str(folder / "podman")
        failed = run_to_end(command, PROBE_TIMEOUT_S, {"HOME": state, "XDG_RUNTIME_DIR": state})
    reaper.undo([list(action) for action in _groups(name if os.geteuid() == 0 else None)])
    return failed
