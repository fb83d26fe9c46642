"""The process beside a machine: it starts QEMU, stands between the two, and ends with either.

To whoever started it, it is the kernel's process: it ends when the kernel does, with the kernel's
exit code, and killing it ends the machine. It makes the sockets that the connection file names
and passes what comes over them through the wire; it puts the files into the machine, and takes
those that the kernel made out of it. It is told to hibernate over a socket beside the kernel's.

Nothing has a name that could be left behind: the disk is an unlinked file, the wire and the
monitor are pairs of sockets. QEMU ends when this process does, and this process when its host does.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import resource
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_agent.sandbox.microvm import files, machine
from kernel_agent.sandbox.microvm.guest.wire import (
    BYTES,
    CHANNELS,
    CLOSE,
    DATA,
    FILE,
    GONE,
    MAKE,
    NOTE,
    OPEN,
    Wire,
    WireError,
)

BOOT_S = 300.0  # on an emulated processor of a busy computer
WAKE_S = 60.0
GUEST_SOCKETS = "/run/kernel"
REPORT = "report.json"
CONTROL = "vm"  # the socket that is told to hibernate, in the kernel's directory of sockets
STATE, DISK, ABOUT = "state", "disk", "machine.json"  # what a hibernated machine is made of
NOBODY = 65534
MAX_LOG = 256 * 1024  # characters that a machine may write to the log
PR_SET_PDEATHSIG = 1


class MachineError(Exception):
    """The machine did not do what it had to; the message is for the log."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What this process is asked to do; one JSON object in its argument.

    Parameters
    ----------
    image
        The image's folder.
    accelerator, memory_mb
        As in the image's manifest.
    saved
        Whether to start from the state in the image; else the machine boots.
    resume
        The folder of a hibernated machine, instead.
    host
        The process that this one ends with.
    connection
        The kernel's connection file; None to only see that the machine works.
    command, environment
        The kernel's.
    limits
        As :class:`~kernel_agent.sandbox.levels.Limits`.
    """

    image: str
    accelerator: str
    memory_mb: int
    disk_mb: int
    host: int
    saved: bool = True
    resume: str | None = None
    connection: str | None = None
    workspace: str = ""
    sockets: str = ""
    command: tuple[str, ...] = ()
    environment: dict[str, str] | None = None
    limits: dict[str, int] | None = None
    code: str = ""
    files: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the argument."""
        return json.dumps(asdict(self))


def main(argument: str) -> None:
    """Be the kernel's process; called by :mod:`kernel_agent.sandbox.microvm`."""
    start = Start(**json.loads(argument))
    end_with(start.host)
    try:
        kernel = Kernel(start)
        code = kernel.run()
    except (MachineError, machine.QemuError, WireError, OSError) as error:
        sys.stderr.write(f"the machine: {error}\n")
        code = 1
    sys.stderr.flush()
    if code < 0:  # as the kernel ended, so does this
        signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def end_with(host: int) -> None:
    """End this process, and QEMU with it, as soon as the host has ended."""
    try:
        descriptor = os.pidfd_open(host)
    except OSError:
        os._exit(1)

    def wait() -> None:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@functools.cache
def cage_works() -> bool:
    """Tell whether QEMU can be put into a cage: tried as the user that it runs as."""
    own = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(
            [*machine.CAGE, "true"], env=machine.FOUND_IN, check=False, timeout=20,
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
        parts = machine.Parts(
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

        line = machine.arguments(
            parts, memory_mb=memory_mb, accelerator=accelerator, console=console
        )
        self.qemu = subprocess.Popen(
            [*(machine.CAGE if cage_works() else ()), *line],
            stdin=subprocess.DEVNULL,
            stdout=None if console == "stdio" else subprocess.DEVNULL,
            stderr=self._words,
            pass_fds=parts.descriptors,
            preexec_fn=before,  # noqa: PLW1509 - no thread of ours holds a lock in it
            env=machine.FOUND_IN,
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
            self.monitor = machine.Monitor(monitor)
            if state is not None:
                self._wake()
        except machine.QemuError as error:
            raise MachineError(f"{error}{self._last_words()}") from None
        except BaseException:
            self.close()
            raise

    def _last_words(self) -> str:
        """End QEMU and return what it said, as one line."""
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
        """Wait for a note of the machine, while nothing else is expected of it.

        Raises
        ------
        MachineError
            It did not come in time, or the machine ended.
        """
        late = threading.Timer(seconds, self.qemu.kill)
        late.start()
        try:
            for kind, _, payload in self.frames:
                if kind == NOTE and (found := _note(payload)).get("note") == note:
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
        """End QEMU, whatever it is doing."""
        with contextlib.suppress(OSError):
            self.qemu.kill()
        self.qemu.wait()

    def close(self) -> None:
        """End QEMU and let go of everything; nobody may be using the wire any more."""
        self.end()
        for opened in (self._socket, self._monitor_socket, self._words):
            opened.close()


def _note(payload: bytes) -> dict[str, Any]:
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
        mkfs = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin")
        done = subprocess.run(
            [mkfs or "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal",
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
    try:
        it.wait_for("ready", seconds)
        took = time.monotonic() - began
        with (image / STATE).open("wb") as target:
            it.save(target.fileno())
        (image / STATE).chmod(0o600)
        it.monitor.command("quit")
    finally:
        it.close()
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
    try:
        it.wire.note("ping")
        it.wait_for("pong", seconds)
    finally:
        it.close()
    return time.monotonic() - began


class Kernel:
    """A machine with the kernel in it, and the kernel's sockets on this side."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._next = 0
        self._quiet = threading.Event()
        self._exit_code = 1
        self._log_left = MAX_LOG
        self._listeners = self._listen()
        scratch, state = self._disk_and_state()
        try:
            self._machine = Machine(
                Path(start.image), accelerator=start.accelerator, memory_mb=start.memory_mb,
                scratch=scratch, state=state,
            )  # fmt: skip
        finally:
            if state is not None:
                os.close(state)
        self._scratch = scratch
        self._wire = self._machine.wire
        root = Path(start.workspace)
        self._inbox = files.Inbox(
            root,
            refused=tuple(_beneath(root, (*start.protected, *start.hidden))),
            max_bytes=start.disk_mb << 20,
        )

    def _disk_and_state(self) -> tuple[int, int | None]:
        start = self._start
        if start.resume is None:
            state = os.open(Path(start.image, STATE), os.O_RDONLY) if start.saved else None
            return scratch_file(start.disk_mb, fresh=True), state
        folder = Path(start.resume)
        scratch = scratch_file(1, fresh=False)
        with (folder / DISK).open("rb") as disk:
            files.copy_sparse(disk.fileno(), scratch)
        return scratch, os.open(folder / STATE, os.O_RDONLY)

    def run(self) -> int:
        """Set the kernel going and serve it until it ends; return its exit code."""
        try:
            if self._start.resume is not None:
                self._wire.note("resume", **_renewal())
            else:
                if not self._start.saved:
                    self._machine.wait_for("ready", BOOT_S)
                self._set_up()
            for channel, listener in self._listeners.items():
                threading.Thread(target=self._accept, args=(channel, listener), daemon=True).start()
            threading.Thread(target=self._serve_control, daemon=True).start()
            self._serve()
        finally:
            self._inbox.close()
            self._machine.end()
        return self._exit_code

    def _set_up(self) -> None:
        """Give the machine its disk, its files and the kernel's command."""
        start, wire = self._start, self._wire
        root = Path(start.workspace)
        inputs = [
            str(Path(p).relative_to(root)) for p in start.protected if Path(p).is_relative_to(root)
        ]
        wire.note("disk", workspace=start.workspace, kept=inputs, **_renewal())
        files.send(wire, Path(start.code), at=Path(start.code))
        for name in start.files:
            if name == start.connection:
                files.send_bytes(wire, _connection_inside(Path(name)), at=Path(name))
            else:
                files.send_file(wire, Path(name), at=Path(name))
        hidden = tuple(Path(name) for name in start.hidden)
        files.send(wire, root, at=root, hidden=hidden)
        for name in start.readable:
            files.send(wire, Path(name), at=Path(name))
        kernel = {
            "argv": start.command, "environment": start.environment, "cwd": start.workspace,
            "limits": start.limits,
        }  # fmt: skip
        wire.note(
            "start",
            protected=[*start.protected, *start.readable],
            report=str(Path(start.sockets, REPORT)),
            kernel=kernel,
        )

    def _serve(self) -> None:
        """Take what the machine sends until there is no more of it."""
        for kind, number, payload in self._machine.frames:
            if kind == DATA:
                self._deliver(number, payload)
            elif kind == CLOSE:
                self._drop(number)
            elif kind == NOTE:
                self._on_note(_note(payload))
            else:
                self._take(kind, payload)

    def _on_note(self, note: dict[str, Any]) -> None:
        if note.get("note") == "exit" and isinstance(code := note.get("code"), int):
            self._exit_code = code if -64 <= code <= 255 else 1
        elif note.get("note") == "report":
            report = Path(self._start.sockets, REPORT)  # of the self-test; no kernel reaches it
            if not report.exists():
                report.write_text(str(note.get("text")))
        elif note.get("note") == "quiet":
            self._quiet.set()
        elif note.get("note") == "log":
            self._log(str(note.get("text")))

    def _take(self, kind: int, payload: bytes) -> None:
        try:
            if kind == FILE:
                self._inbox.begin(payload)
            elif kind == BYTES and payload:
                self._inbox.write(payload)
            elif kind == BYTES:
                self._inbox.end()
            elif kind == MAKE:
                self._inbox.make(payload)
            elif kind == GONE:
                self._inbox.remove(payload)
        except (files.Refused, OSError) as error:
            self._log(f"not taken from the machine: {error}\n")

    def _log(self, text: str) -> None:
        """Write what the machine says, up to a limit: the log is a file."""
        text = text[: self._log_left]
        self._log_left -= len(text)
        sys.stderr.write(text)
        sys.stderr.flush()

    # connections -------------------------------------------------------------------------------

    def _listen(self) -> dict[str, socket.socket]:
        connection = json.loads(Path(self._start.connection or "").read_text())
        if connection["transport"] != "ipc":
            raise MachineError("its kernel can only be reached over ipc sockets")
        found = {}
        for channel in CHANNELS:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{connection['ip']}-{connection[channel + '_port']}")
            listener.listen(16)
            found[channel] = listener
        return found

    def _accept(self, channel: str, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            with self._lock:
                self._next += 1
                number = self._next
                self._connections[number] = connection
            self._wire.send(OPEN, channel.encode(), number)
            threading.Thread(target=self._read, args=(number, connection), daemon=True).start()

    def _read(self, number: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                self._wire.send(DATA, part, number)
        if self._drop(number):
            with contextlib.suppress(OSError):
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

    def _serve_control(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(Path(self._start.sockets, CONTROL)))
            server.listen(1)
            while True:
                client, _ = server.accept()
                with client, client.makefile("rb") as lines:
                    try:
                        request = json.loads(lines.readline())
                        answer = self._hibernate(Path(request["hibernate"]))
                    except (
                        MachineError,
                        machine.QemuError,
                        OSError,
                        ValueError,
                        KeyError,
                    ) as error:
                        answer = {"error": str(error)}
                    with contextlib.suppress(OSError):
                        client.sendall(json.dumps(answer).encode() + b"\n")
                if "error" not in answer:
                    self._exit_code = 0
                    self._machine.end()  # and so this process
                    return

    def _hibernate(self, folder: Path) -> dict[str, Any]:
        """Save everything into a folder that exists; the machine stops for good."""
        began = time.monotonic()
        self._quiet.clear()
        self._wire.note("hibernate")
        if not self._quiet.wait(WAKE_S):
            raise MachineError("it did not come to rest")
        quiet = time.monotonic()
        try:
            about = self._save(folder)
        except BaseException:
            self._go_on()
            raise
        return {**about, "quiet_s": quiet - began, "save_s": time.monotonic() - quiet}

    def _go_on(self) -> None:
        """Let the machine run on, after it could not be saved; clients connect anew."""
        with contextlib.suppress(machine.QemuError):
            self._machine.monitor.command("cont")
        for number in list(self._connections):
            self._drop(number)

    def _save(self, folder: Path) -> dict[str, Any]:
        state = os.open(folder / STATE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        disk = os.open(folder / DISK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self._machine.save(state)
            files.copy_sparse(self._scratch, disk)
            about = {
                "memory_mb": self._start.memory_mb,
                "accelerator": self._start.accelerator,
                "disk_mb": self._start.disk_mb,
                "workspace": self._start.workspace,
            }
            sizes = {
                "state_bytes": os.fstat(state).st_blocks * 512,
                "disk_bytes": os.fstat(disk).st_blocks * 512,
            }
        finally:
            os.close(state)
            os.close(disk)
        return {**about, **sizes}


def _beneath(root: Path, paths: Sequence[str]) -> list[str]:
    """Return those of the paths that are beneath a folder, relative to it."""
    return [str(Path(p).relative_to(root)) for p in paths if Path(p).is_relative_to(root)]


def _renewal() -> dict[str, Any]:
    return {"time": time.time(), "seed": secrets.token_hex(64)}


def _connection_inside(path: Path) -> bytes:
    """Return the connection file as the kernel sees it: its sockets are the machine's own."""
    connection = json.loads(path.read_text())
    ports = {f"{channel}_port": number for number, channel in enumerate(CHANNELS, 1)}
    return json.dumps({**connection, "ip": f"{GUEST_SOCKETS}/s", **ports}).encode()
