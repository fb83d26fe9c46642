"""Level ``gvisor``: a kernel of another make between the cells and the host's (runsc).

runsc gets an OCI bundle (github.com/opencontainers/runtime-spec): a root folder of mount points,
the host's interpreter and packages bound read-only, no network, no capabilities, an unprivileged
user. Cells make their system calls to gVisor's application kernel, a Go program that itself runs
in a namespace, a chroot and a seccomp filter; files are opened for it by a second process.

How cells are held depends on what works here, found by trying: ``systrap`` (newer releases),
``ptrace`` (older ones, slow), ``kvm`` last, because where virtualisation is not real it hangs
rather than fails.

All of it runs in a new process namespace where this process may make one, so that nothing
outlives the first process in it, however that ends. What an ordinary user without such a namespace
starts is ended by a process that adopts what is left over.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox import programs
from kernel_agent.sandbox import steps as confine
from kernel_agent.sandbox.cgroup import Cgroup
from kernel_agent.sandbox.environment import at_home_in, host_python
from kernel_agent.sandbox.levels import Grant, Launch, Level, Limits, Probe
from kernel_agent.sandbox.oci import CLEAN, own_processes, run_to_end
from kernel_agent.sandbox.rootfs import Tree, tree

LEVEL = Level(
    name="gvisor",
    summary="a separate application kernel (gVisor), for input that may be hostile",
    covered=(
        "files outside the run's folder", "the run's inputs, trace and notebook", "network",
        "other processes", "keys in the environment",
        "the host's system calls: cells reach gVisor's kernel, not Linux",
        "size of a file, size of temporary files, address space of a process",
    ),
    not_covered=(
        "errors in gVisor itself and in the few calls of Linux that it makes",
        "what the run's folder holds: cells may read and change it (old runsc: its sockets, too)",
        "memory and processes of all cells together where no control group can be made",
        "CPU time beyond the limit of a cell; starting and system calls are several times slower",
        "side channels of the processor",
    ),
    claims=("files", "network", "environment", "capabilities", "processes", "writes", "inputs"),
    shows_opened=False,  # its file server keeps them open
    takes_any_folder=False,
)  # fmt: skip

PLATFORMS = ("systrap", "ptrace", "kvm")
PROBE_TIMEOUT_S = 10.0
OWN_TASKS = 512
"""Threads and traced stubs of runsc itself that count in a control group (about 60 idle)."""
OWN_MEMORY_MB = 256
"""Memory of runsc's own processes (80 MB seen), beside the cells."""
RESERVED_MB = 2048
"""Address space that is set aside and hardly used (1.5 GB seen with pandas, matplotlib and eight
threads); with less, libraries fail while they are loaded."""
_ADVICE = (
    "gVisor needs ptrace or hardware virtualisation, and user namespaces where it is not started "
    "by root: see gvisor.dev/docs/user_guide/install."
)


def probe() -> Probe:
    """Run a program with each platform until one works."""
    runsc = programs.find("runsc")
    if runsc is None:
        return Probe(
            works=False,
            reason=programs.missing("runsc"),
            advice="Install gVisor: apt install runsc, or see gvisor.dev/docs/user_guide/install.",
        )
    if not os.access("/proc/self/ns/user", os.R_OK):
        return Probe(works=False, reason="gVisor needs Linux", advice="")
    found, failures = _platform(runsc)
    if found is None:
        return Probe(works=False, reason="; ".join(failures), advice=_ADVICE)
    rights = "as root" if os.geteuid() == 0 else "rootless"
    return Probe(works=True, reason=f"runsc ran a program {rights}, platform {found}")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Write the bundle; return the launch of runsc with it.

    Raises
    ------
    SandboxError
        The caller's: what is asked for cannot be given at this level.
    """
    runsc = programs.find("runsc")
    platform = _platform(runsc)[0] if runsc else None
    if runsc is None or platform is None:
        raise SandboxError("the sandbox level gvisor does not work here: see kernel-agent doctor")
    if grant.proxy is not None:
        raise SandboxError("the sandbox level gvisor opens no hosts: leave --allow-host out")
    uid = confine.stand_in()
    if uid is not None and not grant.own:
        raise SandboxError(
            "the sandbox level gvisor, started by root, needs a folder that was made for the "
            "kernel: start it as an ordinary user, or choose the level bubblewrap"
        )
    bundle = grant.scratch
    cgroup = Cgroup.make(confine.group_name(grant), _with_its_own(grant.limits))
    written = specification(
        tree(grant, bundle),
        user=uid or 0,
        limits=replace(grant.limits, memory_mb=None) if counts_memory(cgroup) else grant.limits,
        folder=grant.workspace,
        environment=at_home_in("/tmp", environment, grant.python),
        command=command,
    )
    (bundle / "config.json").write_text(json.dumps(written))
    (bundle / "state").mkdir(mode=0o700)
    own = own_processes()
    given = _give(grant, uid) if uid is not None else []
    steps = [*own.begin, *confine.join_group(cgroup), *given, *own.rest]
    return Launch(
        command=confine.through(
            host_python(),
            steps,
            runsc_command(runsc, _flags(runsc), bundle, platform, "run", grant.sockets.parent.name),
        ),
        environment=CLEAN,
        ended_by=own.ended_by,
        undo=(
            *own.undo(grant.sockets.parent),
            # No filter stands before gVisor's own chmod.
            ("unset-ids", str(grant.workspace)),
            *confine.undo(grant, uid, cgroup),
        ),
    )


def runsc_command(
    runsc: str, known: frozenset[str], bundle: Path, platform: str, *what: str
) -> list[str]:
    """Return runsc's command line; ``known`` are the flags that this release has.

    ``what`` is a subcommand and the container's name.
    """
    # Cells make sockets for the host to connect to; they need not connect to any of the host's.
    sockets = ["--host-uds=create"] if "host-uds" in known else ["--fsgofer-host-uds"]
    own = [flag for name, flag in _WHERE_KNOWN.items() if name in known]
    verb, *names = what
    return [
        runsc,
        "--root", str(bundle / "state"),
        *([] if os.geteuid() == 0 else ["--rootless"]),
        f"--platform={platform}", "--network=none", "--ignore-cgroups", *sockets, *own,
        verb, "--bundle", str(bundle), *names,
    ]  # fmt: skip


_WHERE_KNOWN = {
    "overlay2": "--overlay2=none",  # newer releases lay a writable layer over the root by default
    "net-raw": "--net-raw=false",
}


def specification(
    files: Tree,
    *,
    user: int,
    limits: Limits,
    folder: Path,
    environment: Mapping[str, str],
    command: Sequence[str],
) -> dict[str, Any]:
    """Return the bundle's ``config.json`` (OCI runtime specification 1.0).

    Parameters
    ----------
    files
        The file tree.
    user
        The user inside; 0 stands for the ordinary user who started it, the only one that a
        user namespace without further ids has, and has no capability.
    limits
        Set inside, where limits of runsc's own process do not reach.
    folder
        The working directory.
    environment, command
        Of the first process.
    """
    values = {
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.largest_mb << 20,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_CORE": 0,
    }
    if limits.memory_mb is not None:
        values["RLIMIT_AS"] = limits.memory_mb + RESERVED_MB << 20
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": list(command),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": str(folder),
            "capabilities": {},
            "noNewPrivileges": True,
            "rlimits": [
                {"type": name, "soft": value, "hard": value} for name, value in values.items()
            ],
        },
        "root": {"path": str(files.root), "readonly": True},
        "hostname": "sandbox",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            *_mounts(files),
        ],
        "linux": {
            "namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")],
        },
    }


def _mounts(files: Tree) -> Iterator[dict[str, Any]]:
    """Yield the mounts in memory, then those of the host's files."""
    for place, size in files.memory.items():
        options = ["nosuid", "nodev", "mode=1777", f"size={size}"]
        yield {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": options}
    for bind in files.binds:
        options = ["rbind", "nosuid", "nodev", "rw" if bind.writable else "ro"]
        target, source = str(bind.target), str(bind.source)
        yield {"destination": target, "type": "bind", "source": source, "options": options}


def _with_its_own(limits: Limits) -> Limits:
    memory = limits.memory_mb + OWN_MEMORY_MB if limits.memory_mb is not None else None
    return Limits(memory_mb=memory, processes=limits.processes + OWN_TASKS)


def counts_memory(cgroup: Cgroup | None) -> bool:
    """Whether resident memory is limited; address space then need not be, and means less here."""
    names = ("memory.limit_in_bytes", "memory.max")
    return any(
        Path(path, name).exists() for path in (cgroup.paths if cgroup else ()) for name in names
    )


def _give(grant: Grant, uid: int) -> list[str]:
    """Give the folders to the user inside: gVisor's process that opens files does so as root.

    An id-mapped mount (as other levels have) would be no help here, because that process has no
    identity in it.
    """
    for path in grant.files:
        if path.is_file():
            os.chown(path, uid, uid, follow_symlinks=False)
    folders = (grant.workspace, grant.sockets)
    return [word for folder in folders for word in ("give", str(folder), str(uid))]


@cache
def _flags(runsc: str) -> frozenset[str]:
    """Return the names of the flags that this release of runsc knows."""
    done = subprocess.run(  # noqa: S603 - found on the path
        [runsc, "flags"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False,
        env=CLEAN,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    return frozenset(line.split()[0].lstrip("-") for line in lines if line.lstrip().startswith("-"))


@cache
def _platform(runsc: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the first platform with which a program runs, or why none does."""
    failures = []
    for platform in PLATFORMS:
        failed = _try(runsc, platform)
        if not failed:
            return platform, ()
        failures.append(f"{platform}: {failed}")
    return None, tuple(failures)


def _try(runsc: str, platform: str) -> str:
    """Run ``true`` with a platform; return why it failed."""
    with tempfile.TemporaryDirectory(prefix="ka-probe-") as made:
        bundle = Path(os.path.realpath(made))
        for name in ("state", "io", "work", "tree"):
            (bundle / name).mkdir()
        grant = Grant(
            python=host_python(), code=bundle / "work", workspace=bundle / "work",
            sockets=bundle / "io", scratch=bundle / "tree",
        )  # fmt: skip
        spec = specification(
            tree(grant, bundle / "tree"),
            user=65534 if os.geteuid() == 0 else 0,
            limits=Limits(), folder=Path("/"), environment=CLEAN, command=["/usr/bin/true"],
        )  # fmt: skip
        (bundle / "config.json").write_text(json.dumps(spec))
        command = runsc_command(runsc, _flags(runsc), bundle, platform, "run", bundle.name)
        return run_to_end(command, PROBE_TIMEOUT_S)
