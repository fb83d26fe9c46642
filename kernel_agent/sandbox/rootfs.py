"""File tree of a kernel with a separate root folder, for the levels that run a container.

The folder holds mount points and links only; what lies in them is bound from the host. So the
interpreter, its packages and the system's programs are the host's own, read-only and without an
image, and everything that is not named here does not exist inside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.sandbox.environment import SETTINGS, SYSTEM, font_list
from kernel_agent.sandbox.levels import Grant
from kernel_agent.sandbox.steps import readable_paths

SHARED_MEMORY_MB = 256
FONTS = Path("/opt/matplotlib")
"""Path inside of the host's list of fonts; matplotlib's own folder must be writable."""


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A file or directory of the host, and its path inside."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A root folder, the paths bound into it, and the sizes of its parts in memory.

    ``memory`` names file systems in memory by their place: bytes, in the order of mounting.
    """

    root: Path
    binds: tuple[Bind, ...]
    memory: Mapping[str, int]


def tree(grant: Grant, folder: Path) -> Tree:
    """Make the root folder in ``folder``, which is empty and the host's alone.

    Raises
    ------
    OSError
        The folder cannot be filled.
    """
    root, nothing = folder / "root", folder / "nothing"
    for directory in (root, nothing):
        directory.mkdir(mode=0o755)
    no_file = folder / "no-file"
    no_file.touch()
    no_file.chmod(0o000)
    binds = tuple(
        sorted(
            {bind.target: bind for bind in _binds(grant, nothing, no_file)}.values(),
            key=lambda bind: len(bind.target.parts),
        )
    )
    memory = {"/tmp": grant.limits.disk_mb << 20, "/dev/shm": SHARED_MEMORY_MB << 20}
    _fill(root, binds)
    return Tree(root=root, binds=binds, memory=memory)


def _binds(grant: Grant, nothing: Path, no_file: Path) -> Iterable[Bind]:
    """Yield the binds; of two with one target the later counts."""
    for name in (*SYSTEM, *SETTINGS):
        path = Path(name)
        linked_directory = path.is_symlink() and name in SYSTEM
        if path.exists() and not linked_directory and not name.startswith("/sys/"):
            yield Bind(source=path.resolve(), target=path)
    for path in readable_paths(grant):
        yield Bind(source=path, target=path)
    for path in (grant.workspace, grant.sockets):
        yield Bind(source=path, target=path, writable=True)
    for path in grant.protected:
        if path.exists():
            yield Bind(source=path, target=path)
    for path in grant.hidden:
        if path.exists():
            yield Bind(source=nothing if path.is_dir() else no_file, target=path)
    fonts = font_list(os.environ)
    if fonts is not None and os.access(fonts, os.R_OK):
        yield Bind(source=fonts, target=FONTS / fonts.name)


def _fill(root: Path, binds: Iterable[Bind]) -> None:
    """Make the system's links, the places to mount on, and the names of two users."""
    for name in ("proc", "sys", "dev", "tmp", "run", "etc"):
        (root / name).mkdir(mode=0o755)
    (root / "tmp").chmod(0o1777)  # a runtime gives what it mounts there the same mode
    for name in SYSTEM:
        if Path(name).is_symlink():
            (root / name[1:]).symlink_to(Path(name).readlink())
    me, group = os.geteuid(), os.getegid()
    (root / "etc/passwd").write_text(
        f"root:x:0:0::/:/bin/sh\nkernel:x:{me or 65534}:{group or 65534}::/tmp:/bin/sh\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nkernel:x:{group or 65534}:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost sandbox\n")
    done: list[Path] = [Path("/tmp"), Path("/dev")]
    for bind in binds:
        if any(bind.target.is_relative_to(place) for place in done):
            continue
        inside = root / bind.target.relative_to("/")
        if stat.S_ISDIR(bind.source.stat().st_mode):
            inside.mkdir(mode=0o755, parents=True, exist_ok=True)
            done.append(bind.target)
        else:
            inside.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            inside.touch()
