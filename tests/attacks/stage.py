"""The canaries around a sandbox: files, servers, processes. Only the host looks at them.

Everything is on this machine and made here: files in fresh directories, servers on loopback and on
unix sockets, a victim process with the kernel's uid. Each canary has a secret of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self

from attacks.usage import remove

KEY_VARIABLE = "KERNEL_AGENT_CANARY_KEY"
"""The environment variable of the host process that holds the ``environment`` secret."""

_SUBREAPER = 36  # prctl(2), PR_SET_CHILD_SUBREAPER: daemons of a sandbox stay below this process
_IN_OPEN, _EVENT_BYTES = 0x20, 16  # inotify(7); an event of a watched file has no name
_LOCAL_CID = 1  # vsock(7), VMADDR_CID_LOCAL

VICTIM = """
import ctypes, os, sys, time
memory = ctypes.create_string_buffer(os.environ["VICTIM_MEMORY"].encode())
with open(sys.argv[2], "w+") as file:
    os.unlink(sys.argv[2])
    file.write(sys.argv[3]); file.flush()
    print(ctypes.addressof(memory), file.fileno(), flush=True)
    time.sleep(3600)
"""


class NotHere(Exception):
    """This machine lacks what an attack needs; the attack is not run."""


class Stage:
    """The canaries of one level's attacks, as a context manager."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.files: dict[str, Path] = {}
        self.servers: dict[str, Server] = {}
        self.addresses: dict[str, Any] = {}
        self.token = ""
        self.signals = 0
        self.uid: int | None = None
        self.neighbour: Any = None
        self.tool_calls: list[Any] = []
        self.session: Any = None
        self.before: Counter[str] = Counter()
        self.peak: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        self._planted: dict[Path, Any] = {}
        self._watching = 0
        self._own: set[int] = set()
        self._victim: subprocess.Popen[str] | None = None
        self._ending = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # Daemons of a sandbox become children of this process, so that they are counted.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self.root = self._directory("/var/tmp")
        self.secret("environment", os.environ.get(KEY_VARIABLE) or None)
        self._plant_files()
        self._start_servers()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_victim()
        for server in self.servers.values():
            server.close()
        if self._watching:
            os.close(self._watching)
        self._ending.close()

    def _on_signal(self, *_: object) -> None:
        self.signals += 1

    def _directory(self, parent: str) -> Path:
        made = Path(tempfile.mkdtemp(prefix="ka-canary-", dir=parent))
        made.chmod(0o777)  # not its owner but the sandbox is to protect it
        self._ending.callback(remove, made)
        return made

    def secret(self, name: str, value: str | None = None) -> str:
        """Make a canary's secret; return it."""
        self.secrets[name] = value or f"CANARY-{name}-{secrets.token_hex(8)}"
        return self.secrets[name]

    # --- files -----------------------------------------------------------------------------

    def _plant_files(self) -> None:
        self.home = self.root / "home"
        self.workspace = self.root / "run"
        for path in (self.home, self.workspace, self.workspace / "data"):
            path.mkdir()
            path.chmod(0o777)
        self.plant("ssh_key", self.home / ".ssh" / "id_ed25519")
        self.plant("bashrc", self.home / ".bashrc")
        self.plant("startup", self.home / ".ipython/profile_default/startup/00-canary.py", "# {}\n")
        self.plant("shared_tmp", self._directory("/tmp") / "notes.txt")
        self.plant("sibling", self.root / "other-run" / "trace.jsonl")
        if os.access("/dev/shm", os.W_OK):
            self.plant("shared_memory_file", self._directory("/dev/shm") / "segment")
        self.plant("input", self.workspace / "data" / "table.csv", "a,b\n1,{}\n")
        self.plant("trace", self.workspace / "trace.jsonl", '{{"record": "{}"}}\n')
        self.plant("notebook", self.workspace / "run.ipynb", '{{"cells": [], "x": "{}"}}\n')
        self.files["input"].chmod(0o444)

    def plant(self, name: str, path: Path, text: str = "{}\n") -> None:
        """Write a canary file that everybody may read and write."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o777)
        path.write_text(text.format(self.secrets.get(name) or self.secret(name)))
        path.chmod(0o666)
        self.files[name] = path
        self._remember(path)

    def _remember(self, path: Path) -> None:
        self._planted[path] = _state(path)

    def replant(self) -> bool:
        """Put back what an attack changed; return whether anything was.

        What a running kernel does not see of its folder is then another file: it sees that one.
        """
        replanted = False
        for path, state in self._planted.items():
            if _state(path) != state:
                replanted = True
                with contextlib.suppress(OSError):
                    path.chmod(0o666)
                path.unlink(missing_ok=True)
                path.write_bytes(state["content"])
                path.chmod(state["mode"])
                if self.uid is not None and os.getuid() == 0:
                    self._hand_on(path)
        self.remember()
        return replanted

    def _hand_on(self, path: Path) -> None:
        """Give a canary to the kernel's user; in its folder to whom that now belongs."""
        above = path.parent.stat()
        within = self.workspace in path.parents
        user, group = (above.st_uid, above.st_gid) if within else (self.uid or 0, -1)
        os.chown(path, user, group)

    def remember(self) -> None:
        """Take the canary files for what is planted, as they are now."""
        for path in list(self._planted):
            self._remember(path)

    def clear_workspace(self) -> None:
        """Remove what attacks made in the workspace; its canaries stay."""
        kept = {path for path in self._planted if self.workspace in path.parents}
        kept |= {folder for path in kept for folder in path.parents}
        for folder in [f for f in kept if f == self.workspace or self.workspace in f.parents]:
            for path in folder.iterdir() if folder.is_dir() else ():
                if path not in kept:
                    remove(path)

    def changes(self, name: str) -> str:
        """Say what differs in a canary file from what was planted."""
        planted, now = self._planted[self.files[name]], _state(self.files[name])
        return ", ".join(key for key in planted if planted[key] != now.get(key))

    def give_to(self, uid: int) -> None:
        """Make the canary files the kernel's own, so that not their owner protects them."""
        self.uid = uid
        if os.getuid() == 0:
            for path in [p for p in self._planted if self.workspace not in p.parents]:
                os.chown(path, uid, -1)
                os.chown(path.parent, uid, -1)
            for path in self._planted:
                self._remember(path)

    def watch(self, path: Path) -> None:
        """Count from now on who opens a file (inotify(7)), instead of those before."""
        if self._watching:
            os.close(self._watching)
        libc = ctypes.CDLL(None, use_errno=True)
        self._watching = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self._watching, os.fsencode(path), _IN_OPEN) < 0:
            raise NotHere("files cannot be watched here")

    def opened(self) -> int:
        """Return how often the watched file was opened since it is watched."""
        with contextlib.suppress(BlockingIOError):
            return len(os.read(self._watching, 65536)) // _EVENT_BYTES
        return 0

    # --- servers ---------------------------------------------------------------------------

    def _start_servers(self) -> None:
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        name = f"\0ka-canary-{secrets.token_hex(6)}"
        run = self.root / "run-directory"
        run.mkdir()
        run.chmod(0o777)
        places: dict[str, tuple[Any, ...]] = {
            "tcp": (socket.AF_INET, stream, ("127.0.0.1", 0)),
            "tcp_v6": (socket.AF_INET6, stream, ("::1", 0)),
            "udp": (socket.AF_INET, datagram, ("127.0.0.1", 0)),
            "abstract": (socket.AF_UNIX, stream, name),
            "abstract_datagram": (socket.AF_UNIX, datagram, name + "-d"),
            "pathname": (socket.AF_UNIX, stream, str(run / "docker.sock")),
            "notify": (socket.AF_UNIX, datagram, str(run / "notify")),
            "sequenced": (socket.AF_UNIX, socket.SOCK_SEQPACKET, str(run / "bus")),
            "shared_tmp_socket": (
                socket.AF_UNIX, stream, str(self.files["shared_tmp"].parent / "agent.sock"),
            ),
        }  # fmt: skip
        if address := _other_address():
            places["tcp_other"] = (socket.AF_INET, stream, (address, 0))
        if hasattr(socket, "AF_VSOCK"):
            port = 20000 + secrets.randbelow(40000)
            places["vsock"] = (socket.AF_VSOCK, stream, (_LOCAL_CID, port))
        for key, (family, kind, address_) in places.items():
            with contextlib.suppress(OSError):
                server = Server(family, kind, address_, self.secret(f"server_{key}"))
                self.servers[key] = server
                self.addresses[key] = server.address

    # --- processes -------------------------------------------------------------------------

    @property
    def victim(self) -> subprocess.Popen[str]:
        """A process of ours with the kernel's uid; started anew when it has been killed."""
        if self._victim is None or self._victim.poll() is not None:
            self._start_victim()
        assert self._victim is not None
        return self._victim

    def end_victim(self) -> None:
        """End a victim that an attack has changed: the next one gets a new one."""
        if self._victim is not None:
            self._victim.kill()
            self._victim.communicate()
            self._victim = None

    def _start_victim(self) -> None:
        python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
        account: dict[str, Any] = {}
        if os.getuid() == 0:
            account = {"user": self.uid, "group": self.uid, "extra_groups": []}
        file = self.root / "run-directory" / f"file-{secrets.token_hex(4)}"
        names = ("victim_argv", "victim_file", "victim_memory", "victim_environment")
        argv, content, memory, environment = (self.secret(name) for name in names)
        self._victim = subprocess.Popen(
            [python, "-I", "-S", "-c", VICTIM, argv, str(file), content],
            env={"VICTIM_MEMORY": memory, "API_KEY": environment},
            stdout=subprocess.PIPE,
            text=True,
            **account,
        )
        self._own.add(self._victim.pid)
        assert self._victim.stdout is not None
        where, descriptor = self._victim.stdout.readline().split()
        self.addresses |= {
            "victim": self._victim.pid,
            "victim_address": int(where),
            "victim_descriptor": int(descriptor),
            "victim_file_path": str(file),
        }

    def kernel_pids(self) -> list[int]:
        """Return the processes of the sandboxes: all below this one that are not canaries."""
        found, waiting = [], [os.getpid()]
        while waiting:
            found.append(pid := waiting.pop())
            for task in _listed(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    children = Path(f"/proc/{pid}/task/{task}/children").read_text()
                    waiting += set(map(int, children.split())) - self._own
        return sorted(found[1:])

    def look(self) -> Counter[str]:
        """Count what the sandboxes' processes hold that a host can see.

        Descriptors by their kind (``anon_inode:[io_uring]``, the protocol of a socket), namespaces
        that differ from this process's, and roots that do.
        """
        seen: Counter[str] = Counter()
        for pid in self.kernel_pids():
            for descriptor in _listed(f"/proc/{pid}/fd"):
                link = f"/proc/{pid}/fd/{descriptor}"
                with contextlib.suppress(OSError):
                    target = os.readlink(link)
                    if target.startswith("socket:"):
                        kind = os.getxattr(link, "system.sockprotoname").decode().strip("\0")
                        seen[f"socket:{kind}"] += 1
                    else:
                        seen[target] += 1
            for kind in ("user", "mnt", "net", "pid"):
                with contextlib.suppress(OSError):
                    link = os.readlink(f"/proc/{pid}/ns/{kind}")
                    seen[link] = 1
            with contextlib.suppress(OSError):
                mounts = Path(f"/proc/{pid}/mountinfo").read_text()
                seen["token-mount"] += self.token != "" and self.token in mounts
            with contextlib.suppress(OSError):
                seen["root:" + os.readlink(f"/proc/{pid}/root")] += 1
        return seen


class Server:
    """Takes connections or datagrams, keeps what they said, and answers with its secret."""

    def __init__(self, family: int, kind: int, address: Any, secret: str) -> None:
        self._socket = socket.socket(family, kind)
        try:
            self._socket.bind(address)
        except OSError:
            self._socket.close()
            raise
        if isinstance(address, str) and not address.startswith("\0"):
            Path(address).chmod(0o777)
        self._secret = secret.encode()
        self._stream = kind != socket.SOCK_DGRAM
        if self._stream:
            self._socket.listen(16)
        self.address = self._socket.getsockname()
        if isinstance(self.address, bytes):
            self.address = self.address.decode()
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                if not self._stream:
                    data, sender = self._socket.recvfrom(65536)
                    self.heard += data
                    if sender:
                        with contextlib.suppress(OSError):
                            self._socket.sendto(self._secret, sender)
                    continue
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(3)
                self.heard += connection.recv(65536)
                connection.sendall(self._secret)

    def close(self) -> None:
        """Stop serving."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _state(path: Path) -> dict[str, Any]:
    """Return what can be changed of a file; nothing when it is gone."""
    try:
        status = path.lstat()
        content = path.read_bytes()
        extended = sorted(os.listxattr(path))
    except OSError as error:
        return {"there": type(error).__name__, "content": b"", "mode": 0o666}
    return {
        "there": "yes",
        "content": content,
        "mode": status.st_mode & 0o7777,
        "owner": (status.st_uid, status.st_gid),
        "links": status.st_nlink,
        "time": status.st_mtime_ns,
        "extended": extended,
    }


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _other_address() -> str:
    """Return an address of this machine that is not loopback, or nothing. Sends no packet."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # TEST-NET-1 (RFC 5737): connecting UDP sends nothing
        return str(probe.getsockname()[0])
    return ""
