"""The first process of the machine: mounts, starts the kernel, and speaks with the host.

It runs as root of the machine; the kernel is an ordinary user (:data:`USER`) without
capabilities, who cannot reach the wire. So what the host hears from here is honest as long as the
machine's own Linux holds; the host does not count on that.

The machine's state is saved once, right after ``ready``. What comes after that differs from kernel
to kernel: the disk for the workspace, the files, the kernel's command, the time, randomness.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .wire import (
    BYTES,
    CHANNELS,
    CLOSE,
    DATA,
    FILE,
    GONE,
    LINK,
    MAKE,
    MAX_PAYLOAD,
    NOTE,
    OPEN,
    Wire,
)

USER = 1000
SCRATCH = "/dev/vdb"
DISK = Path("/run/disk")  # where the scratch disk is mounted
SOCKETS = Path("/run/kernel")
CELL_END = SOCKETS / "end"  # a cell that has ended connects here and waits for the end of it
RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207  # linux/random.h
START_S = 120.0  # how long a kernel may take to make its sockets
MAX_LOG = 64 * 1024  # bytes of the kernel's own output that go to the host's log
MAX_REPORT = 100_000  # bytes of the self-test's report
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Set the machine up, say ``ready``, and serve the host until it is gone."""
    prepare_machine()
    machine = Machine(Wire(open_port()))
    machine.warm_up()
    machine.serve()


# --- the machine itself --------------------------------------------------------------------------


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system; raises OSError with the target's name."""
    done = LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode())
    if done != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def prepare_machine() -> None:
    """Mount what a Linux system has, as far as the first script has not."""
    os.umask(0o022)
    os.environ["PATH"] = "/usr/bin:/bin:/usr/sbin:/sbin"
    for target, kind, options in (
        ("/run", "tmpfs", "mode=755,size=16m"),
        ("/dev/shm", "tmpfs", "mode=1777,size=50%"),
        ("/dev/pts", "devpts", "mode=620,ptmxmode=666"),
    ):
        os.makedirs(target, exist_ok=True)
        mount(kind, target, kind, MS_NOSUID, options)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        with contextlib.suppress(FileExistsError):
            os.symlink(f"/proc/self/{target}", f"/dev/{name}")
    for device in ("null", "zero", "full", "random", "urandom", "tty"):
        with contextlib.suppress(OSError):
            os.chmod(f"/dev/{device}", 0o666)
    socket.sethostname("sandbox")
    loopback_up()


def loopback_up() -> None:
    """Give the machine its own 127.0.0.1: ipykernel and multiprocessing may bind there."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        request = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(probe, 0x8914, request)  # SIOCSIFFLAGS


def open_port() -> int:
    """Find the wire's port by its name, and open it."""
    for entry in Path("/sys/class/virtio-ports").iterdir():
        if (entry / "name").read_text().strip() == "wire":
            return os.open(f"/dev/{entry.name}", os.O_RDWR | os.O_CLOEXEC)
    raise OSError("there is no port named wire")


def add_randomness(seed: bytes) -> None:
    """Mix the host's randomness in, and use it at once: saved states would repeat theirs."""
    with open("/dev/urandom", "wb") as pool:
        fcntl.ioctl(pool, RNDADDENTROPY, struct.pack("ii", len(seed) * 8, len(seed)) + seed)
        fcntl.ioctl(pool, RNDRESEEDCRNG)


def drop_rights() -> None:
    """Become the ordinary user for good; called between fork and exec of what is not trusted."""
    for capability in range(64):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.setsid()


# --- serving the host ----------------------------------------------------------------------------


class Machine:
    """Serves the host's requests. One reader of the wire; a thread for each connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._kernel: subprocess.Popen[bytes]
        self._workspace: Workspace | None = None
        self._file: Any = None  # that is coming, and when it was changed on the host
        self._changed = 0
        self._report: Path | None = None

    def warm_up(self) -> None:
        """Start the Python that becomes the kernel, wait for its imports, tell the host."""
        self._kernel = subprocess.Popen(
            [sys.executable, "-X", "frozen_modules=on", str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=drop_rights,  # noqa: PLW1509 - there is one thread yet
            cwd="/",
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": "/tmp",
                "MPLCONFIGDIR": "/tmp/.matplotlib",
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                "OPENBLAS_NUM_THREADS": "1",
                "LC_ALL": "C.UTF-8",
                "PYTHONHASHSEED": "0",  # as `kernel_agent.sandbox.environment` has it
            },
        )
        assert self._kernel.stdout is not None
        # Not its first line alone: matplotlib says at times that it looks for fonts.
        self._wire.note("ready", warm=b"ready\n" in self._kernel.stdout)

    def serve(self) -> None:
        """Read frames until the host is gone; then the machine ends."""
        for kind, number, payload in self._wire.frames():
            if kind == DATA:
                self._deliver(number, payload)
            elif kind == OPEN:
                self._open(number, payload.decode())
            elif kind == CLOSE:
                self._drop(number)
            elif kind == NOTE:
                self._on_note(json.loads(payload))
            else:
                self._place(kind, payload)
        power_off()

    def _on_note(self, note: dict[str, Any]) -> None:
        if note["note"] == "disk":
            self._set_up(note)
        elif note["note"] == "start":
            self._start(note)
        elif note["note"] == "hibernate":
            self._quiet()
        elif note["note"] == "resume":
            self._resume(note)
        elif note["note"] == "ping":
            self._wire.note("pong")

    # files -------------------------------------------------------------------------------------

    def _set_up(self, note: dict[str, Any]) -> None:
        """Mount the scratch disk: the workspace, the home and /tmp are on it."""
        renew(note)
        DISK.mkdir(parents=True, exist_ok=True)
        mount(SCRATCH, str(DISK), "ext4", MS_NOSUID | MS_NODEV)
        os.system("cp -a /tmp/. /run/disk/tmp 2>/dev/null; rm -rf /run/disk/lost+found")
        for name, mode in (("tmp", 0o1777), ("workspace", 0o755), ("home", 0o755)):
            path = DISK / name
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        bind(DISK / "tmp", Path("/tmp"))
        os.chown(DISK / "home", USER, USER)
        os.chown(DISK / "workspace", USER, USER)
        SOCKETS.mkdir(exist_ok=True)
        os.chown(SOCKETS, USER, USER)
        bind(DISK / "workspace", Path(note["workspace"]))
        self._workspace = Workspace(Path(note["workspace"]), note["kept"])

    def _place(self, kind: int, payload: bytes) -> None:
        """Take a file, directory or link from the host."""
        if kind == BYTES:
            if payload:
                self._file.write(payload)
            else:
                self._file.close()
                os.utime(self._file.name, ns=(self._changed, self._changed))
                self._belongs(Path(self._file.name))
            return
        name, _, about = payload.partition(b"\0")
        path = Path(os.fsdecode(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == FILE:
            self._file = path.open("wb")
            self._changed = int(about or time.time_ns())
        elif kind == MAKE:
            path.mkdir(exist_ok=True)
            self._belongs(path)
        elif kind == LINK:
            path.symlink_to(os.fsdecode(about))

    def _belongs(self, path: Path) -> None:
        """Give the workspace's files to the kernel's user, and remember what the host has."""
        assert self._workspace is not None
        if self._workspace.holds(path):
            os.chown(path, USER, USER)
            self._workspace.know(path)

    def _push(self) -> None:
        if self._workspace is not None:
            self._workspace.push(self._wire)

    # the kernel --------------------------------------------------------------------------------

    def _start(self, note: dict[str, Any]) -> None:
        for name in note["protected"]:
            if os.path.lexists(name):
                bind(Path(name), Path(name))
                mount("", name, "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
        self._report = Path(note["report"])
        self._report.parent.mkdir(parents=True, exist_ok=True)
        os.chown(self._report.parent, USER, USER)
        threading.Thread(target=self._forward_log, daemon=True).start()
        threading.Thread(target=self._serve_cell_ends, daemon=True).start()
        assert self._kernel.stdin is not None
        self._kernel.stdin.write(json.dumps(note["kernel"]).encode() + b"\n")
        self._kernel.stdin.close()
        threading.Thread(target=self._watch_kernel, daemon=True).start()

    def _forward_log(self) -> None:
        assert self._kernel.stdout is not None
        sent = 0
        while part := os.read(self._kernel.stdout.fileno(), 4096):
            if sent < MAX_LOG:
                self._wire.note("log", text=part.decode(errors="replace"))
            sent += len(part)

    def _watch_kernel(self) -> None:
        while (code := self._kernel.poll()) is None:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # everything but this process
        self._push()
        self._wire.note("exit", code=code)
        time.sleep(0.2)
        power_off()

    def _serve_cell_ends(self) -> None:
        """Send the files that a cell has written before its end is announced."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(CELL_END))
            os.chown(CELL_END, USER, USER)
            server.listen(4)
            while True:
                client, _ = server.accept()
                with client:
                    self._push()

    # connections -------------------------------------------------------------------------------

    def _open(self, number: int, channel: str) -> None:
        path = f"{SOCKETS}/s-{CHANNELS.index(channel) + 1}"
        late = time.monotonic() + START_S  # connections wait while the kernel starts
        while not os.path.exists(path) and self._kernel.poll() is None and time.monotonic() < late:
            time.sleep(0.01)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            self._wire.send(CLOSE, number=number)
            return
        self._send_report()
        with self._lock:
            self._connections[number] = connection
        threading.Thread(target=self._read, args=(number, connection), daemon=True).start()

    def _send_report(self) -> None:
        """Send what the kernel's self-test wrote before it made its sockets; once."""
        report, self._report = self._report, None
        if report is None:
            return
        with contextlib.suppress(OSError):
            file = os.open(report, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(file, "rb") as content:
                if stat.S_ISREG(os.fstat(file).st_mode):
                    self._wire.note("report", text=content.read(MAX_REPORT).decode("latin-1"))

    def _read(self, number: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                self._wire.send(DATA, part, number)
        if self._drop(number):
            self._wire.send(CLOSE, number=number)

    def _deliver(self, number: int, payload: bytes) -> None:
        connection = self._connections.get(number)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.sendall(payload)

    def _drop(self, number: int) -> bool:
        with self._lock:
            connection = self._connections.pop(number, None)
        if connection is None:
            return False
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        return True

    # hibernation -------------------------------------------------------------------------------

    def _quiet(self) -> None:
        """Close every connection, so that nothing is half-way when the machine stops."""
        self._push()
        for number in list(self._connections):
            self._drop(number)
        os.sync()
        self._wire.note("quiet")

    def _resume(self, note: dict[str, Any]) -> None:
        renew(note)
        assert self._workspace is not None
        self._workspace.forget()
        self._push()
        self._wire.note("resumed")


def renew(note: dict[str, Any]) -> None:
    """Renew the outdated parts of a saved state: the time, and the randomness."""
    time.clock_settime(time.CLOCK_REALTIME, note["time"])
    add_randomness(bytes.fromhex(note["seed"]))


def bind(source: Path, target: Path) -> None:
    """Make a directory or file appear in another place."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    mount(str(source), str(target), "", MS_BIND)


def power_off() -> None:
    """End the machine."""
    os.sync()
    LIBC.reboot(0x4321FEDC)  # LINUX_REBOOT_CMD_POWER_OFF


class Workspace:
    """The kernel's folder, and a record of the files that the host has already.

    Parameters
    ----------
    root
        The folder.
    kept
        Paths in it, relative, whose changes are not carried out: inputs.
    """

    def __init__(self, root: Path, kept: list[str]) -> None:
        self._root = root
        self._kept = {os.path.normpath(name) for name in kept}
        self._known: dict[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def holds(self, path: Path) -> bool:
        """Tell whether a path is in the folder and not among the inputs."""
        if path == self._root or not path.is_relative_to(self._root):
            return False
        relative = path.relative_to(self._root)
        return not any(relative.is_relative_to(name) for name in self._kept)

    def know(self, path: Path) -> None:
        """Remember a file that came from the host."""
        self._known[str(path.relative_to(self._root))] = mark(path)

    def forget(self) -> None:
        """Treat every file as new: the host may have another folder now."""
        self._known = {}

    def push(self, wire: Wire) -> None:
        """Send the changes since the last time, and the names of removed files."""
        with self._lock:
            found = dict(self._scan())
            for name in sorted(self._known, reverse=True):
                if len(found.get(name, ())) != len(self._known[name]):  # gone, or of another kind
                    wire.send(GONE, os.fsencode(name))
            for name, seen in found.items():
                if self._known.get(name) != seen:
                    self._send(wire, name, seen)
            self._known = found

    def _scan(self) -> Any:
        for at, folders, names in os.walk(self._root):
            inside = os.path.relpath(at, self._root)
            folders[:] = [f for f in folders if os.path.normpath(f"{inside}/{f}") not in self._kept]
            for name in [*folders, *names]:
                relative = os.path.normpath(f"{inside}/{name}")
                with contextlib.suppress(OSError):
                    seen = mark(self._root / relative)
                    if seen and relative not in self._kept:
                        yield relative, seen

    def _send(self, wire: Wire, name: str, seen: tuple[int, ...]) -> None:
        if len(seen) == 1:
            wire.send(MAKE, os.fsencode(name))
            return
        try:
            file = os.open(self._root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # it is gone again
            return
        with open(file, "rb", buffering=0) as content:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return
            wire.send(FILE, os.fsencode(name))
            left = seen[0]  # a file that grows meanwhile is sent again after the next cell
            while left > 0 and (part := content.read(min(left, MAX_PAYLOAD))):
                wire.send(BYTES, part)
                left -= len(part)
            wire.send(BYTES)


def mark(path: Path) -> tuple[int, ...]:
    """Return a mark that differs when a file has changed; empty for links and devices."""
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        return (found.st_ino,)
    if stat.S_ISREG(found.st_mode):
        return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    return ()
