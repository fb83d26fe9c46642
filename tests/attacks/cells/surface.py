"""Attacks that reach for kernel interfaces known for their bugs. The host looks at descriptors,
namespaces and mounts of the sandbox's processes, not at what a call returned."""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import socket
import struct
import termios
import time
from pathlib import Path

from attacks.cells.prelude import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    call,
    in_user_namespace,
    keep,
    libc,
    stay,
)
from attacks.score import held, returned
from attacks.stage import Stage
from attacks.words import Report, attack


@attack("kernel-surface", held("user:"))
def user_namespace(c):
    """A user namespace by unshare: root's powers over much of the kernel"""

    def make():
        in_user_namespace()
        return "root of an own namespace"

    return stay(make)


@attack("kernel-surface", held("user:"))
def user_namespace_by_clone(c):
    """A user namespace by clone"""
    pid = call("clone", CLONE_NEWUSER | 17, 0, 0, 0, 0)
    if pid == 0:
        time.sleep(3)
        os._exit(0)
    return f"child {pid}"


@attack("kernel-surface", held("user:"))
def user_namespace_by_clone3(c):
    """A user namespace by clone3, whose flags a system-call filter cannot read"""
    arguments = ctypes.create_string_buffer(
        struct.pack("11Q", CLONE_NEWUSER, 0, 0, 0, 17, *[0] * 6)
    )
    pid = call("clone3", arguments, 88)
    if pid == 0:
        time.sleep(3)
        os._exit(0)
    return f"child {pid}"


@attack("kernel-surface", held("net:", "mnt:", "pid:"))
def other_namespaces(c):
    """Mount, network and pid namespaces, by way of a user namespace"""

    def make():
        in_user_namespace(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID)
        return "own namespaces"

    return stay(make)


@attack(
    "kernel-surface",
    held("net:", "mnt:"),
    no_control="entering a namespace of another process needs CAP_SYS_ADMIN over it",
)
def enter_namespaces(c):
    """Entering the namespaces of pid 1 or of a foreign process (setns)"""

    def enter():
        refused = "nothing to enter"
        for pid in (1, c.host_pid):
            for kind in ("user", "mnt", "net"):
                try:
                    call("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)
                    return f"entered {kind} of {pid}"
                except OSError as error:
                    refused = str(error)
        raise PermissionError(1, refused)

    return stay(enter)


@attack("kernel-surface", held("token-mount"))
def mount(c):
    """Mounting a file system, also as root of an own namespace"""

    def make():
        with contextlib.suppress(OSError):
            in_user_namespace(CLONE_NEWNS)
        os.makedirs("mnt", exist_ok=True)
        call("mount", c.token.encode(), b"mnt", b"tmpfs", 0, None)
        return "mounted"

    return stay(make)


@attack("kernel-surface", held("token-mount"))
def mount_by_newer_calls(c):
    """Mounting by fsopen, fsmount and move_mount"""

    def make():
        with contextlib.suppress(OSError):
            in_user_namespace(CLONE_NEWNS)
        os.makedirs("mnt2", exist_ok=True)
        context = call("fsopen", b"tmpfs", 0)
        call("fsconfig", context, 1, b"source", c.token.encode(), 0)
        call("fsconfig", context, 6, None, None, 0)
        mounted = call("fsmount", context, 0, 0)
        call("move_mount", mounted, b"", -100, b"mnt2", 4)
        return "mounted"

    return stay(make)


@attack("kernel-surface", held("mnt:", "anon_inode:[fscontext]"))
def file_system_context(c):
    """Opening a file system's configuration (fsopen, a source of several escapes)"""

    def make():
        with contextlib.suppress(OSError):
            in_user_namespace(CLONE_NEWNS)
        return keep(call("fsopen", b"ext4" if os.getuid() == 0 else b"tmpfs", 0))

    return stay(make)


def _rooted(stage: Stage, report: Report) -> str:
    roots = [seen for seen in stage.look() if seen.startswith("root:") and stage.token in seen]
    return "a process has another root folder" if roots else ""


@attack("kernel-surface", _rooted)
def chroot(c):
    """Changing the root folder"""

    def make():
        with contextlib.suppress(OSError):
            in_user_namespace()
        os.makedirs(f"jail-{c.token}", exist_ok=True)
        call("chroot", f"jail-{c.token}".encode())
        return "changed"

    return stay(make)


@attack("kernel-surface", held("anon_inode:[io_uring]"))
def io_uring(c):
    """io_uring"""
    return keep(call("io_uring_setup", 4, ctypes.create_string_buffer(120)))


@attack(
    "kernel-surface",
    held("anon_inode:bpf"),
    no_control="unprivileged bpf is off in most kernels (kernel.unprivileged_bpf_disabled)",
)
def bpf(c):
    """A bpf map or program"""
    attributes = ctypes.create_string_buffer(struct.pack("IIIII", 2, 4, 8, 1, 0).ljust(120, b"\0"))
    return keep(call("bpf", 0, attributes, 120))


@attack("kernel-surface", held("anon_inode:[perf_event]"))
def performance_events(c):
    """perf_event_open, for oneself"""
    flags = 1 | 1 << 5 | 1 << 6  # disabled, exclude_kernel, exclude_hv
    attributes = ctypes.create_string_buffer(
        struct.pack("IIQQQQQ", 1, 112, 1, 0, 0, 0, flags).ljust(112, b"\0")
    )
    return keep(call("perf_event_open", attributes, 0, -1, -1, 0))


@attack("kernel-surface", held("anon_inode:[userfaultfd]"))
def userfaultfd(c):
    """userfaultfd, which makes races in the kernel easy to win"""
    return keep(call("userfaultfd", 0o2000000 | 1))  # O_CLOEXEC | UFFD_USER_MODE_ONLY


@attack("kernel-surface", held("anon_inode:[fanotify]"))
def fanotify(c):
    """fanotify, which watches a whole file system"""
    return keep(call("fanotify_init", 0x200, 0))  # FAN_REPORT_FID: allowed to anybody


@attack(
    "kernel-surface",
    returned("crypto"),
    before=lambda stage: _nonce(stage),
    no_control="not every kernel has AF_ALG",
)
def crypto_sockets(c):
    """AF_ALG, the kernel's cryptography: its digest of a nonce is the proof"""
    s = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0)
    s.bind(("hash", "sha256"))
    operation, _ = s.accept()
    operation.sendall(c.nonce.encode())
    return operation.recv(32).hex()


def _nonce(stage: Stage) -> dict[str, object]:
    stage.secret("crypto", hashlib.sha256(stage.token.encode()).hexdigest())
    return {"nonce": stage.token}


@attack(
    "kernel-surface",
    returned("privileges"),
    before=lambda stage: {"secret": stage.secret("privileges")},
)
def gain_rights_by_execution(c):
    """Whether set-user-id programs still gain rights, or capabilities are left"""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    if status.get("NoNewPrivs", "1") == "1" and int(status["CapEff"], 16) == 0:
        raise PermissionError(1, "NoNewPrivs is set and no capability is held")
    return c.secret


@attack(
    "kernel-surface", lambda stage, report: _typed(stage, report), before=lambda s: _terminal(s)
)
def type_into_the_terminal(c):
    """Typing commands into the host's terminal (TIOCSTI)"""
    paths = [c.terminal, "/dev/tty", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"]
    refused = "no terminal"
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
            for character in f"{c.token}\n".encode():
                fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([character]))
            return "typed"
        except OSError as error:
            refused = str(error)

    # A terminal can be taken as one's own by a process that has none.
    def take():
        os.setsid()
        descriptor = os.open(c.terminal, os.O_RDWR)
        fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
        for character in f"{c.token}\n".encode():
            fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([character]))
        return "typed"

    try:
        return stay(take)
    except OSError as error:
        raise PermissionError(1, f"{refused}; {error}") from None


def _terminal(stage: Stage) -> dict[str, object]:
    import pty

    stage.main, side = pty.openpty()  # type: ignore[attr-defined]
    stage._ending.callback(os.close, stage.main)  # type: ignore[attr-defined]
    stage._ending.callback(os.close, side)
    stage.side = side  # type: ignore[attr-defined]
    if os.getuid() == 0 and stage.uid is not None:
        os.fchown(side, stage.uid, -1)
    return {"terminal": os.ttyname(side)}


def _typed(stage: Stage, report: Report) -> str:
    import select

    ready = select.select([stage.side], [], [], 0.1)[0]  # type: ignore[attr-defined]
    if ready and stage.token.encode() in os.read(stage.side, 1000):  # type: ignore[attr-defined]
        return "typed into a terminal of the host"
    return ""


def _personality(stage: Stage, report: Report) -> str:
    for pid in stage.kernel_pids():
        with contextlib.suppress(OSError):
            if int(Path(f"/proc/{pid}/personality").read_text(), 16) & 0x0400000:
                return "a process runs with READ_IMPLIES_EXEC"
    return ""


@attack("kernel-surface", _personality)
def personality(c):
    """Switching protections of memory off (personality)"""
    return stay(lambda: call("personality", 0x0400000))


@attack("kernel-surface", held("/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/loop", "/dev/vhost"))
def devices(c):
    """Device files: kvm, fuse, tun, loop, vhost, uinput"""
    opened = []
    for path in ("kvm", "fuse", "net/tun", "loop-control", "vhost-vsock", "vsock", "uinput", "rtc"):
        with contextlib.suppress(OSError):
            opened.append(keep(os.open(f"/dev/{path}", os.O_RDWR)))
    if not opened:
        raise PermissionError(13, "no device could be opened")
    return ", ".join(opened)


def _debugfs(stage: Stage, report: Report) -> str:
    return "kernel pointers or tracing came back" if "TRACING" in report.text else ""


@attack("kernel-surface", _debugfs, no_control="tracefs and kernel addresses belong to root")
def kernel_addresses(c):
    """Kernel addresses and tracing (/proc/kallsyms, tracefs, debugfs)"""
    loot = []
    with contextlib.suppress(OSError):
        line = Path("/proc/kallsyms").read_text().partition("\n")[0]
        if line and int(line.split()[0], 16):
            loot.append("TRACING: kallsyms has addresses")
    for path in ("/sys/kernel/tracing/trace_marker", "/sys/kernel/debug/tracing/trace_marker"):
        with contextlib.suppress(OSError):
            Path(path).write_text(c.token)
            loot.append(f"TRACING: {path}")
    if not loot:
        raise PermissionError(13, "no addresses, no tracing")
    return loot


@attack(
    "kernel-surface",
    lambda stage, report: "a module was loaded" if stage.token in _modules() else "",
    no_control="loading modules is root's",
)
def load_a_module(c):
    """Loading a kernel module"""
    call("init_module", b"", 0, b"")


def _modules() -> str:
    try:
        return Path("/proc/modules").read_text()
    except OSError:
        return ""


def _foreign_calls(stage: Stage, report: Report) -> str:
    return "a 32-bit system call was made" if stage.secrets["foreign"] in report.text else ""


@attack(
    "kernel-surface",
    _foreign_calls,
    before=lambda stage: {"secret": stage.secret("foreign")},
    own_kernel=True,
    no_control="the kernel may be built without 32-bit system calls",
)
def foreign_system_calls(c):
    """32-bit system calls, past a filter that only knows the 64-bit ones"""
    import mmap
    import platform

    if platform.machine() != "x86_64":
        raise OSError(95, "written for x86_64")
    child = os.fork()
    if child == 0:
        # mov eax, 20 (getpid in the 32-bit table); int 0x80; ret
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(
            ctypes.addressof(ctypes.c_char.from_buffer(memory))
        )
        os._exit(0 if function() == os.getpid() else 1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise PermissionError(1, f"ended by signal {os.WTERMSIG(status)}")
    if os.WEXITSTATUS(status) != 0:
        raise PermissionError(38, "the call was refused")
    return c.secret


@attack(
    "kernel-surface",
    lambda stage, report: _foreign_calls(stage, report),
    before=lambda stage: {"secret": stage.secret("foreign")},
    no_control="the kernel may be built without x32 system calls",
)
def x32_system_calls(c):
    """x32 system calls, past a filter that only knows the 64-bit numbers"""
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.syscall(0x40000000 + 39) == os.getpid() else 1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise PermissionError(1, f"ended by signal {os.WTERMSIG(status)}")
    if os.WEXITSTATUS(status) != 0:
        raise PermissionError(38, "the call was refused")
    return c.secret
