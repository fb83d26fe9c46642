"""The process beside a machine: it starts QEMU, stands between the two, and ends with either.

To its parent, it is the kernel's process: it ends when the kernel does, with the kernel's exit
code, and killing it ends the machine. It makes the sockets that the connection file names and
passes what comes over them through the wire; it puts the files into the machine, and takes those
that the kernel made out of it. The request to hibernate comes over a socket beside the kernel's.

Nothing has a name that could be left behind: the disk is an unlinked file, the wire and the
monitor are pairs of sockets. QEMU ends when this process does, and this process when its host does.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_agent.safe import copy_sparse, digest_sparse, private_opener
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
    WireError,
)

BOOT_S = 300.0  # on an emulated processor of a busy computer
GUEST_SOCKETS = "/run/kernel"
REPORT = "report.json"
CONTROL = "vm"  # the socket for requests to hibernate, in the kernel's directory of sockets
ENDING = (-signal.SIGABRT, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGTERM)  # of a kernel
MAX_LOG = 256 * 1024  # characters that a machine may write to the log


@dataclass(frozen=True, kw_only=True)
class Start:
    """Task of this process; one JSON object in its argument.

    Parameters
    ----------
    image
        The image's folder.
    accelerator, memory_mb
        As in the image's manifest.
    saved
        Whether to start from the state in the image; else the machine boots.
    resume
        Descriptors of a hibernated machine's disk and state, instead; both are our own copies.
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
    resume: tuple[int, ...] = ()
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
    """Run as the kernel's process; started by :mod:`kernel_agent.sandbox.microvm`."""
    start = Start(**json.loads(argument))
    end_with(start.host)
    try:
        kernel = Kernel(start)
        code = kernel.run()
    except (machine.MachineError, machine.QemuError, WireError, OSError) as error:
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
            self._machine = machine.Machine(
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
        if start.resume:
            disk, state = start.resume
            return disk, state
        saved = os.open(Path(start.image, machine.STATE), os.O_RDONLY) if start.saved else None
        return machine.scratch_file(start.disk_mb, fresh=True), saved

    def run(self) -> int:
        """Set the kernel going and serve it until it ends; return its exit code."""
        try:
            if self._start.resume:
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
        """Handle everything that the machine sends, until its end."""
        for kind, number, payload in self._machine.frames:
            if kind == DATA:
                self._deliver(number, payload)
            elif kind == CLOSE:
                self._drop(number)
            elif kind == NOTE:
                self._on_note(machine.read_note(payload))
            else:
                self._take(kind, payload)

    def _on_note(self, note: dict[str, Any]) -> None:
        if note.get("note") == "exit" and isinstance(code := note.get("code"), int):
            # A signal that ends this process, too: one that stops it would keep the host waiting.
            self._exit_code = code if code in ENDING or 0 <= code <= 255 else 1
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
        """Log the machine's words, up to a limit: the log is a file."""
        text = text[: self._log_left]
        self._log_left -= len(text)
        sys.stderr.write(text)
        sys.stderr.flush()

    # connections -------------------------------------------------------------------------------

    def _listen(self) -> dict[str, socket.socket]:
        connection = json.loads(Path(self._start.connection or "").read_text())
        if connection["transport"] != "ipc":
            raise machine.MachineError("its kernel can only be reached over ipc sockets")
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
                        machine.MachineError,
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
        if not self._quiet.wait(machine.WAKE_S):
            raise machine.MachineError("it did not come to rest")
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
        """Write the parts. What is sealed is what has no name: a cell may see the folder."""
        about: dict[str, Any] = {
            "memory_mb": self._start.memory_mb,
            "accelerator": self._start.accelerator,
            "disk_mb": self._start.disk_mb,
            "workspace": self._start.workspace,
        }
        state = machine.scratch_file(0, fresh=False)
        try:
            self._machine.save(state)
            for name, part in ((machine.STATE, state), (machine.DISK, self._scratch)):
                about[f"{name}_sha256"] = digest_sparse(part, max_bytes=sys.maxsize)
                with open(folder / name, "xb", opener=private_opener) as file:
                    copy_sparse(part, file.fileno(), max_bytes=sys.maxsize)
                    about[f"{name}_bytes"] = os.fstat(file.fileno()).st_blocks * 512
        finally:
            os.close(state)
        return about


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
