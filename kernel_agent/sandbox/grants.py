"""Build a kernel's grant, from a session's settings or for another application's kernel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.safe import PREFIX, SOCKETS, notebooks_in, obeyed_in, record_file, walk
from kernel_agent.sandbox.environment import host_python
from kernel_agent.sandbox.levels import Grant, Limits

CODE = Path(__file__).resolve().parent.parent / "inkernel"
MEMORY_SHARE = 0.75
"""Of the machine's memory: what a kernel may use when nothing else is said."""

_NEVER = (
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt",
    "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp",
)  # fmt: skip
"""Directories that are not handed to a kernel as its own, nor those above them."""

_NEVER_BELOW = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")

_UNREADABLE_BELOW = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys")


def read_grant(settings: Mapping[str, Any], command: Sequence[str], directory: Path) -> Grant:
    """Return the grant of a session.

    Parameters
    ----------
    settings
        JSON values: ``workspace``, ``protected``, ``hidden``, ``readable``, ``listed``, ``limits``,
        ``proxy``.
    command
        The kernel's command line; it begins with the interpreter.
    directory
        The private directory of this kernel.
    """

    def paths(name: str) -> tuple[Path, ...]:
        return tuple(Path(path) for path in settings.get(name, ()))

    proxy = settings.get("proxy")
    workspace = writable_folder(Path(settings["workspace"]))
    return Grant(
        python=_interpreter(command),
        code=CODE,
        workspace=workspace,
        sockets=directory / SOCKETS,
        scratch=directory / "tmp",
        files=_needed_files(command, directory),
        protected=paths("protected"),
        hidden=paths("hidden"),
        readable=tuple(Path(os.path.realpath(path)) for path in paths("readable")),
        listed=paths("listed"),
        limits=limits(settings.get("limits", {})),
        own=_has_one_owner(workspace),
        proxy=Path(proxy) if proxy else None,
    )


def _has_one_owner(folder: Path) -> bool:
    """Whether root could give all of a folder to a kernel's user, and give it back as it was."""
    if os.geteuid() != 0:
        return True
    top = walk.open_inner(str(folder), 0)
    try:
        inner = (entry.stat(follow_symlinks=False) for _, entry in walk.entries(top))
        return len({(found.st_uid, found.st_gid) for found in (os.fstat(top), *inner)}) == 1
    finally:
        os.close(top)


def derive(cwd: Path, command: Sequence[str], directory: Path) -> Grant:
    """Return the grant of a kernel that an application starts: only its working directory.

    It is the user's project, so what programs obey there is only to be read, and so are the
    notebooks beside the kernel's own: they say which kernel an application starts.
    """
    workspace = writable_folder(cwd)
    return Grant(
        python=_interpreter(command),
        code=CODE,
        workspace=workspace,
        protected=(*obeyed_in(workspace), *notebooks_in(workspace)),
        sockets=directory / SOCKETS,
        scratch=directory / "tmp",
        files=_needed_files(command, directory),
        limits=limits({}),
        own=False,
    )


def limits(settings: Mapping[str, Any]) -> Limits:
    """Return the limits with these values, the rest by default.

    Raises
    ------
    SandboxError
        The caller's: a limit that does not exist or is not a positive number.
    """
    known = {field.name for field in fields(Limits)}
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        if name not in known or not isinstance(value, int) or value < 1:
            raise SandboxError(f"{name} must be one of {', '.join(sorted(known))}, and at least 1")
    given.setdefault("memory_mb", int(physical_memory_mb() * MEMORY_SHARE))
    return Limits(**given)


def physical_memory_mb() -> int:
    """Return how much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def writable_folder(folder: Path) -> Path:
    """Return a folder that a kernel may have as its own, resolved.

    Raises
    ------
    SandboxError
        The caller's: it is, or holds, a home or a directory of the system.
    """
    real = Path(os.path.realpath(folder))
    home = Path(os.path.realpath(Path("~").expanduser()))
    settings = _settings(home)
    kept = [*map(Path, _NEVER), home, *settings]
    below = [*map(Path, _NEVER_BELOW), *settings]
    # What lies in a private directory is believed by the reaper of a killed host.
    ours = real.name.startswith(PREFIX) and real.parent in _temporary()
    if (
        ours
        or any(own.is_relative_to(real) for own in kept)
        or real.parent == Path("/home")
        or any(real.is_relative_to(top) for top in below)
    ):
        raise SandboxError(
            f"a sandboxed kernel may write in the folder that it is started in, and {real} is not "
            "one for that (it is or holds a home or a directory of the system): start it in a "
            "folder of its own"
        )
    return real


def readable_folder(folder: Path) -> Path:
    """Return a folder of data that a kernel may read, resolved.

    Raises
    ------
    SandboxError
        The caller's: it is, or holds, a home or a directory of the system.
    OSError
        There is no such folder.
    """
    real = folder.resolve(strict=True)
    home = Path(os.path.realpath(Path("~").expanduser()))
    kept = [*map(Path, _NEVER), home, *_settings(home)]
    below = [*map(Path, _UNREADABLE_BELOW), *_settings(home)]
    if any(own.is_relative_to(real) for own in kept) or any(map(real.is_relative_to, below)):
        raise SandboxError(
            f"{folder} is or holds a home or a directory of the system: name a folder of data "
            "beneath it"
        )
    return real


def _settings(home: Path) -> list[Path]:
    """Return the paths of the user's settings, and of the answers about files of others."""
    record = record_file()
    answers = [Path(os.path.realpath(record.parent))] if record else []
    return [home / ".config" / "kernel-agent", *answers]


def _temporary() -> set[Path]:
    return {Path("/tmp"), Path(os.path.realpath(tempfile.gettempdir()))}


def _interpreter(command: Sequence[str]) -> Path:
    return Path(command[0]) if command and Path(command[0]).is_absolute() else host_python()


def _needed_files(command: Sequence[str], directory: Path) -> tuple[Path, ...]:
    """Return the files that the kernel reads: of its private directory, and of its command."""
    ours = [directory / name for name in ("k.json", "agent.json", "selftest.json")]
    named = [Path(word) for word in command[1:] if word.startswith("/")]
    return (*ours, *(path for path in named if path.is_file() and path not in ours))
