"""QEMU: its command line, its monitor, and a machine as a child process.

The machine has two disks, one port and a source of randomness; no network card, no display, no
USB, no shared folder. Its monitor speaks over a socket that has no name, to the process that
started it. Everything that QEMU opens is passed to it as an open descriptor, so it needs no right
to any file but those of QEMU's package, and it may run as nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_agent.sandbox import programs
from kernel_agent.sandbox.microvm.guest.wire import NOTE, Wire, WireError

QEMU = "qemu-system-x86_64"
FOUND_IN = ("/usr/bin", "/bin", "/usr/local/bin")
"""Folders of QEMU and bwrap, which the cage holds; the user's ``PATH`` is ignored."""
KERNEL_LINE = (
    "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off nokaslr rdinit=/init"
)
TCG_LINE = "tsc=reliable no_timer_check"  # the clock of an emulated processor cannot be calibrated
TRANSLATED_MB = 192  # of translated code, which an emulated processor keeps
OVERHEAD_MB = TRANSLATED_MB + 128  # what QEMU needs beside the machine
WAKE_S = 60.0
REPLY_S = 120.0  # the longest that a command to the monitor may take
NOBODY = 65534
PR_SET_PDEATHSIG = 1
STATE, DISK = "state", "disk"  # what a hibernated machine is made of


class QemuError(Exception):
    """QEMU refused something, or is gone."""


class MachineError(Exception):
    """The machine did not do what it had to; the message is for the log."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts of a machine: descriptors that QEMU inherits.

    ``state`` is where a saved machine is read from; None boots.
    """

    kernel: int
    initrd: int
    root: int
    scratch: int
    wire: int
    monitor: int
    state: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All descriptors of the machine."""
        found = (self.kernel, self.initrd, self.root, self.scratch, self.wire, self.monitor)
        return found if self.state is None else (*found, self.state)


def arguments(parts: Parts, *, memory_mb: int, accelerator: str, console: str) -> list[str]:
    """Return QEMU's command line.

    Parameters
    ----------
    memory_mb
        The machine's memory; a saved state needs the same again.
    accelerator
        ``kvm`` or ``tcg``.
    console
        QEMU's name of the character device for the machine's first words: ``null``, ``stdio``.
    """
    line = KERNEL_LINE if accelerator == "kvm" else f"{KERNEL_LINE} {TCG_LINE}"
    state = [] if parts.state is None else ["-incoming", f"fd:{parts.state}"]
    raw = "if=none,format=raw,file.locking=off"
    return [
        QEMU,
        "-M", "pc,usb=off,vmport=off,smbus=off",
        "-accel", f"tcg,tb-size={TRANSLATED_MB}" if accelerator == "tcg" else "kvm",
        "-cpu", "host" if accelerator == "kvm" else "max",
        "-m", str(memory_mb), "-smp", "1",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-kernel", f"/proc/self/fd/{parts.kernel}", "-initrd", f"/proc/self/fd/{parts.initrd}",
        "-append", line,
        "-chardev", f"{console},id=console", "-serial", "chardev:console",
        "-drive", f"file=/proc/self/fd/{parts.root},id=root,readonly=on,{raw}",
        "-device", "virtio-blk-pci,drive=root",
        "-drive", f"file=/proc/self/fd/{parts.scratch},id=scratch,discard=unmap,{raw}",
        "-device", "virtio-blk-pci,drive=scratch",
        "-object", "rng-builtin,id=random", "-device", "virtio-rng-pci,rng=random",
        "-device", "virtio-serial-pci,max_ports=2",
        "-chardev", f"socket,id=wire,fd={parts.wire}",
        "-device", "virtserialport,chardev=wire,name=wire",
        "-chardev", f"socket,id=monitor,fd={parts.monitor}",
        "-mon", "chardev=monitor,mode=control",
        *state,
    ]  # fmt: skip


CAGE = (
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
    "--proc", "/proc", "--dev", "/dev", "--dev-bind-try", "/dev/kvm", "/dev/kvm",
    "--tmpfs", "/tmp", "--chdir", "/", "--",
)  # fmt: skip
"""QEMU's cage where bubblewrap works: a hole in QEMU then finds no files and no network."""


def find(program: str) -> str:
    """Return the path of QEMU or bwrap, where root alone can change it, or an empty one."""
    return programs.find(program, only=FOUND_IN) or ""


def version() -> str | None:
    """Return QEMU's version, or None where there is no QEMU."""
    try:
        said = subprocess.run(
            [find(QEMU), "--version"], capture_output=True, text=True, timeout=20, check=True,
            env={},
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"version ([\w.]+)", said)
    return found[1] if found else None


class Monitor:
    """QEMU's monitor: one command after the other.

    The protocol is QMP, described in QEMU's ``docs/interop/qmp-spec``.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(REPLY_S)
        self._rest = b""
        self._read()  # its greeting
        self.command("qmp_capabilities")

    def command(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, pass_fds: Sequence[int] = ()
    ) -> Any:
        """Send a command and return its result.

        Raises
        ------
        QemuError
            QEMU refused it, ended, or did not answer in time.
        """
        request = json.dumps({"execute": name, "arguments": arguments or {}}).encode() + b"\n"
        try:
            if pass_fds:
                socket.send_fds(self._socket, [request], list(pass_fds))
            else:
                self._socket.sendall(request)
        except OSError as error:
            raise QemuError(f"{name}: {error}") from None
        while True:
            reply = self._read()
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise QemuError(f"{name}: {reply['error'].get('desc')}")

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            try:
                part = self._socket.recv(65536)
            except OSError as error:
                raise QemuError(f"no answer: {error}") from None
            if not part:
                raise QemuError("QEMU has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        found = json.loads(line)
        return found if isinstance(found, dict) else {}


@functools.cache
def cage_works() -> bool:
    """Whether QEMU can be put into a cage: tried as the user that it runs as."""
    own = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(
            [find(CAGE[0]), *CAGE[1:], "/usr/bin/true"], env={}, check=False, timeout=20,
            stdin=subprocess.DEVNULL, capture_output=True, **own,  # type: ignore[call-overload]
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(done.returncode == 0)


class Machine:
    """QEMU as a child of this process, with the wire and the monitor.

    Parameters
    ----------
    image
        The image's folder.
    scratch
        The descriptor of the second disk.
    state
        The descriptor of a saved state, or None to boot.
    """

    def __init__(
        self,
        image: Path,
        *,
        accelerator: str,
        memory_mb: int,
        scratch: int,
        state: int | None,
        console: str = "null",
    ) -> None:
        ours, theirs = socket.socketpair()
        monitor, their_monitor = socket.socketpair()
        opened = [os.open(image / name, os.O_RDONLY) for name in ("vmlinuz", "initrd", "root.img")]
        parts = Parts(
            kernel=opened[0], initrd=opened[1], root=opened[2], scratch=scratch,
            wire=theirs.fileno(), monitor=their_monitor.fileno(), state=state,
        )  # fmt: skip
        largest = max(os.fstat(scratch).st_size, (memory_mb + 512) << 20)  # a disk, or a state
        own: dict[str, Any] = {}
        if os.geteuid() == 0:
            groups = [Path("/dev/kvm").stat().st_gid] if accelerator == "kvm" else []
            own = {"user": NOBODY, "group": NOBODY, "extra_groups": groups}

        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - QEMU's errors, as long as it is

        def before() -> None:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        line = arguments(parts, memory_mb=memory_mb, accelerator=accelerator, console=console)
        self.qemu = subprocess.Popen(
            [*((find(CAGE[0]), *CAGE[1:]) if cage_works() else ()), find(QEMU), *line[1:]],
            stdin=subprocess.DEVNULL,
            stdout=None if console == "stdio" else subprocess.DEVNULL,
            stderr=self._words,
            pass_fds=parts.descriptors,
            preexec_fn=before,  # noqa: PLW1509 - no thread here holds a lock in it
            env={},
            **own,
        )
        for descriptor in opened:
            os.close(descriptor)
        theirs.close()
        their_monitor.close()
        self._socket, self._monitor_socket = ours, monitor
        self.wire = Wire(ours.fileno())
        self.frames = self.wire.frames()
        try:
            self.monitor = Monitor(monitor)
            if state is not None:
                self._wake()
        except QemuError as error:
            raise MachineError(f"{error}{self._last_words()}") from None
        except BaseException:
            self.close()
            raise

    def _last_words(self) -> str:
        """End QEMU and return its last words, as one line."""
        self.end()
        self._words.seek(0)
        said = self._words.read(4096).decode(errors="replace").split("\n")
        self.close()
        return f": {'; '.join(line for line in said if line)}"

    def _wake(self) -> None:
        deadline = time.monotonic() + WAKE_S
        while (state := self.monitor.command("query-status")["status"]) == "inmigrate":
            if time.monotonic() > deadline:
                raise MachineError(f"the saved state is not loaded after {WAKE_S:g} s")
            time.sleep(0.005)
        if state != "running":
            self.monitor.command("cont")

    def wait_for(self, note: str, seconds: float) -> dict[str, Any]:
        """Wait for a note of the machine, when nothing else is expected from it.

        Raises
        ------
        MachineError
            It did not come in time, or the machine ended.
        """
        late = threading.Timer(seconds, self.qemu.kill)
        late.start()
        try:
            for kind, _, payload in self.frames:
                if kind == NOTE and (found := read_note(payload)).get("note") == note:
                    return found
        finally:
            late.cancel()
        raise MachineError(f"no word ({note}) of it within {seconds:g} s")

    def save(self, target: int) -> None:
        """Stop the machine and write its memory and devices to a file."""
        self.monitor.command("stop")
        self.monitor.command("getfd", {"fdname": "state"}, pass_fds=[target])
        self.monitor.command("migrate-set-parameters", {"max-bandwidth": 1 << 40})
        self.monitor.command("migrate", {"uri": "fd:state"})
        while (now := self.monitor.command("query-migrate").get("status")) != "completed":
            if now in ("failed", "cancelled"):
                raise MachineError("its state could not be saved")
            time.sleep(0.01)

    def end(self) -> None:
        """End QEMU at once."""
        with contextlib.suppress(OSError):
            self.qemu.kill()
        self.qemu.wait()

    def close(self) -> None:
        """End QEMU and close everything; nobody may be using the wire any more."""
        self.end()
        for opened in (self._socket, self._monitor_socket, self._words):
            opened.close()


def read_note(payload: bytes) -> dict[str, Any]:
    """Read a note of the machine.

    Raises
    ------
    WireError
        It is not a JSON object.
    """
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        raise WireError("a note that is not JSON") from None
    if not isinstance(found, dict):
        raise WireError("a note that is not an object")
    return found


def scratch_file(megabytes: int, *, fresh: bool) -> int:
    """Return the descriptor of a disk that has no name: QEMU's user may write it."""
    descriptor = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600)
    os.ftruncate(descriptor, megabytes << 20)
    if fresh:
        done = subprocess.run(
            [programs.find("mkfs.ext4") or "", "-q", "-F", "-m", "0", "-O", "^has_journal",
             "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", f"/proc/self/fd/{descriptor}"],
            capture_output=True, pass_fds=[descriptor], check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise MachineError(f"no disk for it: {done.stderr.decode()[-200:]}")
    if os.geteuid() == 0:
        os.fchown(descriptor, NOBODY, NOBODY)
    return descriptor


def boot(
    image: Path, accelerator: str, memory_mb: int, *, seconds: float, scratch_mb: int
) -> float:
    """Boot a machine and save its state in the image's folder; return the seconds it took.

    Raises
    ------
    MachineError, QemuError
        It did not boot in time, or its state could not be saved.
    """
    began = time.monotonic()
    scratch = scratch_file(scratch_mb, fresh=False)
    try:
        it = Machine(
            image, accelerator=accelerator, memory_mb=memory_mb, scratch=scratch, state=None
        )
    finally:
        os.close(scratch)
    with contextlib.closing(it):
        if not it.wait_for("ready", seconds).get("warm"):
            raise MachineError("its Python ended before it was ready")
        took = time.monotonic() - began
        with (image / STATE).open("wb") as target:
            it.save(target.fileno())
        (image / STATE).chmod(0o600)
        it.monitor.command("quit")
    return took


def wake(image: Path, accelerator: str, memory_mb: int, seconds: float) -> float:
    """Wake a machine from the image's state, hear it answer and end it; return the seconds.

    Raises
    ------
    MachineError, QemuError
        It did not answer in time.
    """
    began = time.monotonic()
    scratch = scratch_file(1, fresh=False)
    with (image / STATE).open("rb") as state:
        it = Machine(
            image, accelerator=accelerator, memory_mb=memory_mb, scratch=scratch,
            state=state.fileno(),
        )  # fmt: skip
    os.close(scratch)
    with contextlib.closing(it):
        it.wire.note("ping")
        it.wait_for("pong", seconds)
    return time.monotonic() - began
