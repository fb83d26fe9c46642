"""Level ``bubblewrap``: a private file tree and namespaces by bwrap, Landlock and seccomp inside.

bwrap is started with an empty environment, because the first process inside keeps the environment
of the user who started it, for all to read. As root it gets no user namespace: the launcher inside
becomes an unprivileged user that no other process has, before anything else runs. A bwrap that
root starts is otherwise no boundary (``/proc/sys`` stays writable).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernel_agent.sandbox import programs
from kernel_agent.sandbox import steps as confine
from kernel_agent.sandbox.environment import (
    MACHINE,
    SETTINGS,
    SYSTEM,
    at_home_in,
    font_list,
    host_python,
)
from kernel_agent.sandbox.levels import Grant, Launch, Level, Mounts, Probe
from kernel_agent.sandbox.seccomp import Filter

LEVEL = Level(
    name="bubblewrap",
    summary="namespaces and a private file tree (bubblewrap), Landlock, seccomp",
    covered=(
        "files outside the run's folder", "the run's inputs, trace and notebook", "network",
        "other processes", "keys in the environment", "dangerous system calls",
        "memory", "processes", "disk",
    ),
    not_covered=(
        "errors in the Linux kernel, which is shared with the host",
        "what the run's folder holds: cells may read and change it",
        "unix sockets in the run's folder and in folders of data: cells may connect",
        "locks on files that may be read, for which your other programs may wait",
        "what Linux tells of the whole machine (load, memory), and where the granted files lie",
        "CPU time beyond the limit of a cell",
        "memory for the moment that it takes to notice, where no control group can be made",
    ),
    claims=(
        "files", "network", "environment", "capabilities", "no_new_privs", "seccomp", "processes",
        "writes", "inputs", "namespaces", "mounts",
    ),
    automatic=True,
    opens_hosts=True,
)  # fmt: skip

_NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
               "--unshare-cgroup-try")  # fmt: skip
CLEAN = {"PATH": "/usr/bin:/bin"}
PROBE_TIMEOUT_S = 10.0
SHARED_MEMORY_MB = 256


def probe() -> Probe:
    """Start ``true`` in such a sandbox."""
    if not confine.landlock_version():
        return Probe(works=False, reason="this Linux kernel has no Landlock (it came with 5.13)")
    bwrap = programs.find("bwrap")
    if bwrap is None:
        return Probe(
            works=False,
            reason=programs.missing("bwrap"),
            advice="Install it: apt install bubblewrap, or dnf install bubblewrap.",
        )
    as_root = os.geteuid() == 0
    command = [
        bwrap, "--die-with-parent", *([] if as_root else ["--unshare-user"]), *_NAMESPACES,
        "--cap-drop", "ALL", *_system(), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
        "--", "/usr/bin/true",
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=CLEAN, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        late = f"bwrap did not end within {PROBE_TIMEOUT_S:g} s"
        return Probe(works=False, reason=late, undecided=True)
    except OSError as error:
        return Probe(works=False, reason=f"bwrap does not run: {error}")
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return Probe(
            works=False,
            reason=reason[0],
            advice="bubblewrap needs user namespaces: see sysctl user.max_user_namespaces and "
            "kernel.unprivileged_userns_clone, AppArmor's kernel.apparmor_restrict_unprivileged_"
            "userns, or the security options of the container that this runs in.",
        )
    return Probe(works=True, reason=f"bwrap ran, Landlock ABI {confine.landlock_version()}")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Build the file tree, then confine the command in it."""
    uid = confine.stand_in()
    bwrap = programs.find("bwrap")
    assert bwrap is not None, "probed before"
    way_out, descriptors = confine.forward_proxy(grant)
    inner = [
        *(["user", str(uid), str(uid)] if uid is not None else []),
        "folder", str(grant.workspace),  # not by bwrap: as root it may not enter what is lent
        "powerless",
        *confine.limits(grant.limits),
        *way_out,
        "read", "/",
        "write", str(grant.workspace), "write", str(grant.sockets),
        "write", "/tmp", "write", "/dev/shm",
        "device", "/dev",
        "landlock",
        *confine.system_calls(Filter(internet=grant.proxy is not None)),
    ]  # fmt: skip
    arguments = [
        bwrap,
        *_NAMESPACES,
        *(["--unshare-user"] if uid is None else []),
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *(_to_become_another() if uid is not None else []),
        *_tree(grant, environment),
        *("--chdir", "/", "--clearenv"),
        *(
            w
            for item in at_home_in("/tmp", environment, grant.python).items()
            for w in ("--setenv", *item)
        ),
        "--",
        *(
            confine.within(inner, command)
            if str(confine.KERNEL_LAUNCHER) in command
            else confine.through(grant.python, inner, command)
        ),
    ]
    cgroup = confine.control_group(grant)
    steps = confine.join_group(cgroup)
    if uid is not None:
        steps += ["unshare", str(0x20000), "private", *confine.lend(grant, uid)]
    if steps:
        steps = ["die-with", str(os.getpid()), *steps]
        arguments = confine.through(host_python(), steps, arguments)
    return Launch(
        command=arguments,
        environment=CLEAN,
        pass_fds=descriptors,
        undo=confine.undo(grant, uid, cgroup),
    )


def mounts(grant: Grant, environment: Mapping[str, str]) -> Mounts:
    """Return the expected mount table inside: bwrap's mounts, and no more."""
    writable, readable, sizes = [f"/dev/{name}" for name in (*_NODES, "pts")], ["/"], {}
    words, size, closed = iter(_tree(grant, environment)), 0, set()
    for option in words:
        values = [next(words) for _ in range(_VALUES.get(option, 1))]
        place = values[-1]
        if option == "--size":
            size = int(place)
        elif option in ("--bind", "--tmpfs"):
            writable.append(place)
            if size:
                sizes[place], size = size, 0
        elif option in ("--ro-bind", "--proc", "--dev"):
            readable.append(place)
        elif option == "--remount-ro":
            closed.add(place)
    readable += [place for place in writable if place in closed]
    return Mounts(
        writable=tuple(place for place in writable if place not in closed),
        readable=tuple(readable),
        sizes=sizes,
    )


_VALUES = {"--symlink": 2, "--ro-bind": 2, "--bind": 2}  # the others have one
_NODES = ("null", "zero", "full", "random", "urandom", "tty")


def _to_become_another() -> Iterator[str]:
    # Reading anything, too: the interpreter may lie in what is lent to that other user.
    for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_DAC_READ_SEARCH"):
        yield from ("--cap-add", name)


def _system() -> Iterator[str]:
    """Yield the system's programs and libraries as the host has them: merged into /usr or not."""
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)


def _tree(grant: Grant, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield bwrap's options for the file tree inside."""
    yield from _system()
    made = {Path("/tmp"), Path("/dev"), Path("/dev/shm")}
    bound = {Path("/usr")}
    for path in filter(Path.exists, map(Path, SETTINGS)):
        yield from _parents(path, made, bound)
        yield from ("--ro-bind", str(path), str(path))
    yield from ("--proc", "/proc", "--dev", "/dev")
    if os.geteuid() == 0:
        yield from ("--ro-bind", "/proc/sys", "/proc/sys")
    for path in filter(Path.exists, map(Path, MACHINE)):
        yield from ("--ro-bind", "/dev/null", str(path))
    yield from ("--perms", "1777", "--size", str(SHARED_MEMORY_MB << 20), "--tmpfs", "/dev/shm")
    size = str(grant.limits.disk_mb << 20)
    yield from ("--perms", "1777", "--size", size, "--tmpfs", "/tmp")
    binds = [("--ro-bind", path) for path in confine.readable_paths(grant)]
    binds += [("--bind", path) for path in (grant.workspace, grant.sockets)]
    binds += [("--ro-bind", path) for path in confine.protected_paths(grant)]
    for option, path in sorted(binds, key=lambda bind: len(bind[1].parts)):
        yield from _parents(path, made, bound)
        yield from (option, str(path), str(path))
        bound.add(path)
    for path in grant.hidden:
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))
    fonts = font_list(environment)
    if fonts is not None:
        yield from ("--perms", "1777", "--dir", "/tmp/matplotlib")
        yield from ("--ro-bind", str(fonts), f"/tmp/matplotlib/{fonts.name}")
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def _parents(path: Path, made: set[Path], bound: set[Path]) -> Iterator[str]:
    """Make the directories above a path, open to everybody: bwrap's own are for its user only."""
    for parent in reversed(path.parents[:-1]):
        if parent not in made and not any(parent.is_relative_to(there) for there in bound):
            yield from ("--perms", "0755", "--dir", str(parent))
            made.add(parent)
