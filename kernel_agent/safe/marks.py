"""The owner of a private directory: the record in it, and whether its host has ended.

Standard library only: the reaper (:mod:`kernel_agent.sandbox.launcher.reaper`) uses it by its path.

A process is identified by its number, when it started, and where that number means something: the
machine, its start, and the process namespace. A directory that several containers or machines
share is left alone by those in which its host cannot be seen.
"""

from __future__ import annotations

import os
import re
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # its import would double the start-up time
    from typing import Any

RECORD = "undo.json"
PREFIX = "ka-"
NAME = re.compile(rf"{PREFIX}(\d+)-[a-z0-9_]{{8}}")  # as tempfile.mkdtemp makes them
MAX_RECORD = 1 << 20
YOUNG_S = 60.0  # its record may still be on the way


def born(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty for no process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def here() -> list[str]:
    """Return the scope of a process number: machine, its start, process namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return [os.uname().nodename, file.read().strip(), os.readlink("/proc/self/ns/pid")]
    except OSError:
        return [os.uname().nodename, "", ""]


def record(directory: str | os.PathLike[str], undo: list[list[str]]) -> None:
    """Write a private directory's owner and its undo actions, in one step."""
    import json

    text = json.dumps({"host": [os.getpid(), born(os.getpid())], "where": here(), "undo": undo})
    path = os.path.join(directory, RECORD)
    with open(f"{path}.part", "w") as file:
        file.write(text)
    os.replace(f"{path}.part", path)


def read(folder: int) -> Any:
    """Return the record in an open private directory.

    Raises
    ------
    OSError, ValueError
        There is no record, or it cannot be read.
    """
    import json

    found = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(found, "rb") as file:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise ValueError("it is not a file")
        return json.loads(file.read(MAX_RECORD))


def is_left(path: str) -> bool:
    """Whether this is a private directory of this user, with a host that has ended.

    Ours are recognised by owner, mode (jupyter_client adds the sticky bit) and record; one whose
    host was killed before it wrote that by its name, once it is old, and only if it is empty.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        about = os.fstat(folder)
        if about.st_uid != os.geteuid() or about.st_mode & 0o777 != 0o700:
            return False
        try:
            found = read(folder)
            return _has_ended(found["host"], found["where"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            old = time.time() - about.st_mtime > YOUNG_S
            return old and _never_begun(os.path.basename(path), folder)
    finally:
        os.close(folder)


def _has_ended(host: list[Any], where: list[Any]) -> bool:
    machine, start, namespace = here()
    if where[0] != machine or not start:
        return False
    if where[1] != start:  # the machine was started anew
        return True
    return bool(where[2] == namespace and born(int(host[0])) != host[1])


def _never_begun(name: str, folder: int) -> bool:
    found = NAME.fullmatch(name)
    if found is None or born(int(found[1])):
        return False
    with os.scandir(folder) as entries:
        return not any(entry.name not in (RECORD, f"{RECORD}.part") for entry in entries)
