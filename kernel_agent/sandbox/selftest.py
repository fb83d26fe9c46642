"""The self-test's two ends on the host: plant the traps, read the report.

The test itself runs inside (:mod:`kernel_agent.inkernel.selftest`), before any cell, and writes its
report into the directory of the sockets. It is read before any cell, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox.environment import SETTINGS, SYSTEM
from kernel_agent.sandbox.launcher import reaper
from kernel_agent.sandbox.levels import Grant, Level, Mounts
from kernel_agent.sandbox.memory import IN_MEMORY
from kernel_agent.sandbox.steps import readable_paths

ASKED, REPORT = "selftest.json", "report.json"
MAX_BYTES = 100_000
_SET_BY_PROGRAMS = ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "container")


class Plant:
    """Canaries for one kernel's start.

    Parameters
    ----------
    level
        Its claims are what must hold.
    grant, environment
        Of the kernel.
    directory
        Its private directory.
    mounts
        What its mount table may hold, where the level says so.
    """

    def __init__(
        self,
        level: Level,
        grant: Grant,
        environment: Mapping[str, str],
        directory: Path,
        mounts: Mounts | None = None,
    ) -> None:
        self.level = level
        self.report = grant.sockets / REPORT
        canary = directory / "canary"
        canary.write_text(secrets.token_hex())
        canary.chmod(0o644)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)  # noqa: FBT003 - the library's signature
        asked = {
            "claims": level.claims,
            "report": str(self.report),
            "canary": str(canary),
            "foreign": list(_foreign(grant)),
            "namespaces": {name: _namespace(name) for name in _NAMESPACES},
            "mounts": asdict(mounts) if mounts else None,
            "port": self.listener.getsockname()[1],
            "host": [os.getpid(), reaper.born(os.getpid())],
            "environment": sorted({*environment, *_INSIDE, *_SET_BY_PROGRAMS}),
            "unwritable": ["/", "/etc", "/usr", "/usr/local", "/opt", "/var",
                           *home_to_try(Path("~").expanduser(), own_memory=level.hides_paths),
                           str(grant.python.parent), str(grant.code)],
            "protected": [str(path) for path in grant.protected if path.exists()],
            "hidden": [str(path) for path in grant.hidden if path.is_file()],
            "settings": ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
                         "/proc/sysrq-trigger"],
        }  # fmt: skip
        (directory / ASKED).write_text(json.dumps(asked))

    def close(self) -> None:
        """Take the listening socket away."""
        self.listener.close()


_NAMESPACES = ("ipc", "mnt", "net", "uts")
_PERSONAL = (".bashrc", ".profile", ".bash_history", ".gitconfig", ".netrc", ".ssh/id_ed25519",
             ".ssh/id_rsa", ".ssh/authorized_keys")  # fmt: skip


def home_to_try(home: Path, *, own_memory: bool) -> list[str]:
    """Return the home, if a file made at its path inside would be one of the home's.

    ``own_memory``: the level has memory of its own in the place of /tmp. What has the name of a
    home beneath it is then a directory above a folder of the kernel's, and in that memory.
    """
    places = {Path(place) for place in IN_MEMORY}
    above = {home, *home.parents} if own_memory else {home}
    return [] if places & above else [str(home)]


def _namespace(name: str) -> str:
    return str(Path(f"/proc/self/ns/{name}").readlink())


def _foreign(grant: Grant) -> Iterator[tuple[str, int, int, int]]:
    """Yield the host's files that must not be opened: users, temporary files, a home's content.

    By what tells it from another of that name. Nothing is written there, so nothing is left.
    """
    home = Path("~").expanduser()
    places = [Path("/etc/passwd"), Path("/var/tmp"), home, *(home / name for name in _PERSONAL)]
    own = (*readable_paths(grant), grant.workspace, grant.sockets, grant.scratch)
    granted = (*own, *map(Path, SYSTEM), *map(Path, SETTINGS))
    for path in places:
        real = Path(os.path.realpath(path))
        if any(path.is_relative_to(given) or real.is_relative_to(given) for given in granted):
            continue
        with contextlib.suppress(OSError):
            about = path.stat()
            yield str(path), about.st_dev, about.st_ino, about.st_mtime_ns


_INSIDE = (
    "PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "MPLCONFIGDIR", "IPYTHONDIR",
    "JUPYTER_RUNTIME_DIR", "PYTHONDONTWRITEBYTECODE", "JPY_PARENT_PID",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


def read_report(plant: Plant) -> dict[str, Any]:
    """Return the facts, when everything that the level claims holds.

    Raises
    ------
    SandboxError
        It does not, or nothing can be read.
    """
    name = plant.level.name
    try:
        report = json.loads(_read(plant.report))
        holds = report["holds"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(
            f"the self-test of the sandbox ({name}) left no report: {error}"
        ) from None
    try:
        plant.listener.accept()[0].close()
        holds = {**holds, "network": False}
    except OSError:
        pass  # nobody came
    broken = [claim for claim in plant.level.claims if not holds.get(claim)]
    if broken:
        raise SandboxError(
            f"the sandbox ({name}) does not hold what it claims: {', '.join(broken)}"
        )
    return {"level": name, "holds": holds, "facts": report.get("facts", {})}


def _read(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("not a regular file")
        return file.read(MAX_BYTES)
