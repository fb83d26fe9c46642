"""QEMU: its command line, and its monitor.

The machine has two disks, one port and a source of randomness; no network card, no display, no
USB, no shared folder. Its monitor speaks over a socket that has no name, to the process that
started it. Everything that QEMU opens is passed to it as an open descriptor, so it needs no right
to any file but those of its own package, and it may run as nobody.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QEMU = "qemu-system-x86_64"
FOUND_IN = {"PATH": "/usr/bin:/bin:/usr/local/bin"}
"""Where QEMU and bwrap are looked for, whatever the user's ``PATH`` says."""
KERNEL_LINE = (
    "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off nokaslr rdinit=/init"
)
TCG_LINE = "tsc=reliable no_timer_check"  # the clock of an emulated processor cannot be calibrated
TRANSLATED_MB = 192  # of translated code, which an emulated processor keeps
OVERHEAD_MB = TRANSLATED_MB + 128  # what QEMU needs beside the machine
REPLY_S = 120.0  # the longest that a command to the monitor may take


class QemuError(Exception):
    """QEMU refused something, or is gone."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a machine is made of: descriptors that QEMU inherits.

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
        """All of them."""
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
"""What QEMU runs in where bubblewrap works: a hole in QEMU then finds no files and no network."""


def version() -> str | None:
    """Return QEMU's version, or None where there is no QEMU."""
    try:
        said = subprocess.run(
            [QEMU, "--version"], capture_output=True, text=True, timeout=20, check=True,
            env=FOUND_IN,
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
        """Send a command and return what it returns.

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
