"""Confine this process step by step, then become the command: ``STEP … -- COMMAND …``.

Run by the command lines that :mod:`kernel_agent.sandbox.steps` writes; a step is a word of
:data:`STEPS` and its arguments. The levels write the list: what they do is read from one command
line. Each step is done with the standard library alone, and before any foreign code runs.

A step that fails ends the process: nothing is ever started with less than was asked for.
"""

from __future__ import annotations

import _signal  # what the module signal wraps; its enumerations take 4 ms to import
import ctypes
import errno
import os
import resource
import select
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # its import would double the start-up time
    from collections.abc import Callable

FAILED = 125  # the exit code when a step failed

# linux/prctl.h
PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 2, 4, 22
PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 24, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_MODE_FILTER = 2

# linux/mount.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 32, 4096, 16384, 1 << 18, 1 << 21

# Numbers that are the same on every architecture (Linux 5.13).
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE, OPEN_TREE_CLONE = -100, 0x1000, 0x8000, 1
MOUNT_ATTR_RDONLY, MOUNT_ATTR_IDMAP = 1, 0x00100000
MOVE_MOUNT_F_EMPTY_PATH = 4
CLONE_NEWUSER = 0x10000000
# linux/landlock.h, by ABI: which rights exist
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
IOCTL_DEV = 1 << 15
FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: IOCTL_DEV}
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | IOCTL_DEV
READABLE = EXECUTE | READ_FILE | READ_DIR
LANDLOCK_CONNECT_TCP = 2
DEVICE = READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV

libc = ctypes.CDLL(None, use_errno=True)
rules: list[tuple[int, int]] = []  # open path, rights
ports: list[int] = []  # of the loopback interface that may be connected to


def check(result: int, path: str | None = None) -> int:
    """Raise the errno of a C function that reports a failure."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


# --- processes -----------------------------------------------------------------------------------


def join(cgroup: str) -> None:
    """Move into a control group, if the host has not been faster; ``cgroup`` is its directory."""
    members = f"{cgroup}/cgroup.procs"
    with open(members) as file:
        if str(os.getpid()) in file.read().split():
            return
    with open(members, "w") as file:
        file.write("0")


def unshare(flags: str) -> None:
    """Leave namespaces (``CLONE_NEW…`` flags as a number)."""
    check(libc.unshare(int(flags)))


def map_self(uid: str, gid: str) -> None:
    """Keep the user's own ids in a new user namespace."""
    write_maps("self", setgroups="deny", uid_map=f"{uid} {uid} 1", gid_map=f"{gid} {gid} 1")


def write_maps(process: str, **maps: str) -> None:
    """Set which users of a new user namespace are which outside."""
    for name, text in maps.items():
        with open(f"/proc/{process}/{name}", "w") as file:
            file.write(text)


def die_with(parent: str, *, number: int = _signal.SIGKILL) -> None:
    """Get a signal, SIGKILL for the step, when ``parent``, a process id, ends."""
    check(libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0))
    if os.getppid() != int(parent):
        os._exit(FAILED)


def adopt(parent: str) -> None:
    """Become the parent of orphaned descendants, and end them all when ``parent`` ends."""
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    die_with(parent, number=_signal.SIGTERM)


def fork() -> None:
    """Go on in a child; the parent stays until it ends, and then ends like it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(reading)
        supervise(child)
    os.close(writing)
    check(libc.prctl(PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0))
    if select.select([reading], [], [], 0)[0]:  # the parent had ended before that call
        os._exit(FAILED)
    os.close(reading)


def supervise(child: int) -> None:
    """Wait for the child, reap orphans meanwhile, kill those that are left; never return."""

    def end(_number: int, _frame: object) -> None:
        # Once: it may be asked for by the end of the host and by the reaper.
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        os.kill(child, _signal.SIGKILL)

    _signal.signal(_signal.SIGTERM, end)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    status = next(status for ended, status in iter(os.wait, None) if ended == child)
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    end_children()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _signal.signal(number, _signal.SIG_DFL) if number not in (9, 19) else None
        os.kill(os.getpid(), number)  # without effect for the first process of a namespace
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def end_children() -> None:
    """Kill every child, and those inherited from it, until none is left."""
    while True:
        try:
            with open("/proc/thread-self/children") as file:
                children = file.read().split()
        except OSError:  # no /proc: the end of the namespace ends them
            return
        for child in children:
            os.kill(int(child), _signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def user(uid: str, gid: str) -> None:
    """Become another user for good."""
    unbound()
    parent, number = os.getppid(), ctypes.c_int()
    check(libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0))
    os.setgroups([])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    # Such a change hides /proc/self from oneself, and takes back what `die_with` and `fork` set.
    check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
    die_with(str(parent), number=number.value)


def unbound() -> None:
    """Drop the capability bounding set, as far as this process may."""
    for capability in range(64):  # past the last one it fails
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def powerless() -> None:
    """Give up all capabilities and the way to get any back."""
    unbound()
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    check(libc.capset(header, bytes(24)))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def limit(name: str, value: str) -> None:
    """Set a resource limit, as far as it is not lower already."""
    kind, wanted = getattr(resource, f"RLIMIT_{name}"), int(value)
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(kind, (wanted, wanted))


# --- the file tree -------------------------------------------------------------------------------


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Call mount(2)."""
    names = os.fsencode(source), os.fsencode(target), kind.encode()
    check(libc.mount(*names, flags, data.encode() or None), target)


def private() -> None:
    """Let no change of the file tree out of this mount namespace."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def tmpfs(target: str, size: str, mode: str) -> None:
    """Put an empty file system of so many bytes there."""
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},mode={mode}")


def proc() -> None:
    """Show only the processes of this namespace; where a container masks /proc, that fails."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def terminals() -> None:
    """Mount private pseudo-terminals, apart from the host's."""
    options = "newinstance,ptmxmode=0666,mode=620"
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
    mount("/dev/pts/ptmx", "/dev/ptmx", "", MS_BIND)


def hide(target: str) -> None:
    """Cover a file or a directory with an empty one."""
    if stat.S_ISDIR(os.lstat(target).st_mode):
        tmpfs(target, "0", "0555")
    else:
        mount("/dev/null", target, "", MS_BIND)
    remount(target, MS_NOSUID | MS_NODEV)


def readonly(target: str) -> None:
    """Make a path read-only."""
    mount(target, target, "", MS_BIND | MS_REC)
    remount(target)


def remount(target: str, flags: int = 0) -> None:
    """Make a mount read-only; it keeps the flags that it has."""
    mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags | mount_flags(target))


def mount_flags(target: str) -> int:
    """Return a mount's flags: in a user namespace they may not be dropped."""
    flags = os.statvfs(target).f_flag
    same = MS_NOSUID | MS_NODEV | MS_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
    return flags & same | (MS_RELATIME if flags & os.ST_RELATIME else 0)


def lend(path: str, uid: str, mine: str) -> None:
    """Show a tree to another user as theirs; what they write belongs to its owner on the disk.

    An id-mapped mount (mount_setattr(2), Linux 5.12) over the tree, in this mount namespace. Where
    the file system has none, the directory itself is given away if it is ``mine``; the
    host takes it back.
    """
    owner = os.stat(path)
    try:
        users = user_namespace(f"{owner.st_uid} {uid} 1", f"{owner.st_gid} {uid} 1")
        tree = clone(path, 0)
        attributes = struct.pack("<QQQQ", MOUNT_ATTR_IDMAP, 0, 0, users)
        check(libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes)))
        attach(tree, path)
    except OSError:
        if mine == "1":
            give(path, uid)


def clone(path: str, flags: int) -> int:
    """Return a descriptor of a copy of the mount there, which lies nowhere yet."""
    return check(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(path), OPEN_TREE_CLONE | flags))


def attach(tree: int, path: str) -> None:
    """Attach such a copy at a path."""
    check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(path), MOVE_MOUNT_F_EMPTY_PATH))
    os.close(tree)


changing: list[tuple[str, int]] = []


def changeable(path: str) -> None:
    """Leave a tree out of :func:`still`, as it is now."""
    changing.append((path, clone(path, AT_RECURSIVE | os.O_CLOEXEC)))


def still() -> None:
    """Make every file system read-only, but for the trees that are :func:`changeable`.

    Landlock does not watch modes, times, owners and attributes (landlock(7), Limitations).
    """
    attributes = struct.pack("<QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    check(libc.syscall(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes)))
    for path, tree in changing:
        attach(tree, path)


def give(path: str, uid: str) -> None:
    """Change the owner of a tree that no process of a sandbox changes meanwhile.

    What a kernel before has nested deeper than a path may be long keeps the owner that it has.
    """
    waiting = [path]
    while waiting:
        at = waiting.pop()
        try:
            os.chown(at, int(uid), int(uid), follow_symlinks=False)
            if os.path.isdir(at) and not os.path.islink(at):
                waiting += [entry.path for entry in os.scandir(at)]
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise


user_namespaces: dict[tuple[str, str], int] = {}


def user_namespace(uids: str, gids: str) -> int:
    """Return a descriptor of a user namespace with these maps."""
    if (uids, gids) in user_namespaces:
        return user_namespaces[uids, gids]
    ready, report = os.pipe()
    child = os.fork()
    if not child:
        os.write(report, b"+" if libc.unshare(CLONE_NEWUSER) == 0 else b"-")
        _signal.pause()
    try:
        os.read(ready, 1)
        write_maps(str(child), uid_map=uids, gid_map=gids)
        made = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        user_namespaces[uids, gids] = made
        return made
    finally:
        os.kill(child, _signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(report)


kept: list[tuple[str, int]] = []


def keep(path: str) -> None:
    """Remember what lies at a path, for :func:`cover`."""
    kept.append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))


def cover(top: str) -> None:
    """Replace a directory that only its owner may enter by one with its kept content."""
    tmpfs(top, "1048576", "0755")
    for path, handle in kept:
        if not path.startswith(f"{top}/"):
            continue
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        os.makedirs(path if is_folder else os.path.dirname(path), 0o755, exist_ok=True)
        if not is_folder and not os.path.lexists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o444))
        mount(f"/proc/self/fd/{handle}", path, "", MS_BIND | MS_REC)


# --- the way out ---------------------------------------------------------------------------------


def loopback() -> None:
    """Switch on the loopback interface of a new network namespace."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        # struct ifreq (linux/if.h): SIOCSIFFLAGS with IFF_UP
        fcntl.ioctl(control, 0x8914, struct.pack("16sh22x", b"lo", 1))


def forward(proxy: str, port: str) -> None:
    """Start the process that hands connections to a port in here on to the host's proxy.

    ``proxy`` is a descriptor of the proxy's socket; nobody but that process keeps it.
    """
    import socket

    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    ports.append(int(port))
    if os.fork():
        listener.close()
        os.close(int(proxy))
        return
    check(libc.prctl(PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0))
    os.set_inheritable(listener.fileno(), True)  # noqa: FBT003 - it takes no names
    script = f"{__file__.rpartition('/')[0]}/forward.py"
    arguments = [sys.executable, "-I", "-S", script, str(listener.fileno()), proxy]
    os.execve(sys.executable, arguments, {"PATH": "/usr/bin:/bin"})


# --- what is left --------------------------------------------------------------------------------


def allow(path: str, rights: int) -> None:
    """Add a rule; what does not exist needs none."""
    try:
        rules.append((os.open(path, os.O_PATH | os.O_CLOEXEC), rights))
    except FileNotFoundError:
        return


def landlock() -> None:
    """Forbid every path without a rule; where the kernel can, TCP, signals and abstract sockets."""
    version = check(libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1))
    handled = sum(right for abi, right in FILE_RIGHTS.items() if abi <= version)
    attributes = struct.pack("<QQQ", handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = check(libc.syscall(LANDLOCK_CREATE_RULESET, attributes[:size], size, 0))
    for handle, rights in rules:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= OF_A_FILE  # noqa: PLW2901 - the others are refused for a file
        rule = struct.pack("<Qi", rights & handled, handle)
        check(libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, 0))
        os.close(handle)
    for port in ports if version >= 4 else ():
        rule = struct.pack("<QQ", LANDLOCK_CONNECT_TCP, port)
        check(libc.syscall(LANDLOCK_ADD_RULE, ruleset, 2, rule, 0))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def seccomp(program: str) -> None:
    """Filter system calls from here on; ``program`` is BPF in hexadecimal."""
    code = ctypes.create_string_buffer(bytes.fromhex(program))
    pointer = struct.pack("@HP", len(program) // 16, ctypes.addressof(code))  # struct sock_fprog
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer, 0, 0))


def folder(path: str) -> None:
    """Work in this directory."""
    os.chdir(path)


STEPS: dict[str, Callable[..., None]] = {
    "join": join, "unshare": unshare, "map": map_self, "die-with": die_with, "adopt": adopt,
    "fork": fork, "user": user, "powerless": powerless, "limit": limit, "private": private,
    "tmpfs": tmpfs, "proc": proc, "terminals": terminals, "hide": hide, "readonly": readonly,
    "give": give, "changeable": changeable, "still": still, "lend": lend, "keep": keep,
    "cover": cover, "loopback": loopback, "forward": forward, "landlock": landlock,
    "seccomp": seccomp, "folder": folder,
    # A file or a tree may be read and executed, its names listed, it changed; a device used.
    "read": lambda path: allow(path, READABLE), "list": lambda path: allow(path, READ_DIR),
    "write": lambda path: allow(path, ~IOCTL_DEV),
    "device": lambda path: allow(path, DEVICE),
}  # fmt: skip


def main(arguments: list[str], *, stay: bool = False) -> None:
    """Take the steps, then execute the command, or run it here if it is a script that may stay."""
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        step = STEPS[word]
        given = [next(words) for _ in range(step.__code__.co_argcount)]
        try:
            step(*given)
        except OSError as error:
            fail(f"{word} {' '.join(given)[:200]}".rstrip(), error)
    command = list(words)
    if stay:
        run(command)
        return
    try:
        os.execve(command[0], command, os.environ)
    except OSError as error:
        fail(command[0], error)


def run(command: list[str]) -> None:
    """Run a Python script in this process, as if it had been started with it."""
    if len(os.listdir("/proc/self/task")) != 1:
        # The steps hold for the thread that takes them.
        fail("run", OSError(errno.EBUSY, "the interpreter's start-up files start threads"))
    script, *_ = sys.argv = command
    main_module = sys.modules["__main__"]
    main_module.__file__ = script
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, main_module.__dict__)  # noqa: S102 - our own file


def fail(what: str, error: OSError) -> None:
    """Report an error on the descriptor that becomes the kernel's log, and exit."""
    where = f": {error.filename}" if error.filename else ""
    os.write(2, f"sandbox: {what}: {error.strerror}{where}\n".encode(errors="replace"))
    os._exit(FAILED)
