"""Indexes of earlier sessions, kept in the user's cache folder.

An index is used again where each file of the folders still has its size and its times, and the
kernel is of the same kind. It holds names and first rows, so nobody else may read it; a file that
somebody else could have written counts as none. What is in it is checked as what a kernel says is.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import stat
import zlib
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernel_agent.safe import Folder, make_private

MIN_FILES = 200  # fewer are looked through at once
MAX_KEPT = 20  # indexes; the oldest are forgotten
MAX_BYTES = 64 << 20  # of one
_READERS = ("pyarrow", "openpyxl")


def key_of(states: Sequence[Sequence[str]], *, level: str) -> str:
    """Return the name of what folders hold now, as a kernel looks at them.

    Parameters
    ----------
    states
        Of each folder its path in the session's folder, where it is, and the fingerprint of its
        files' names, sizes and times.
    level
        Level of isolation, whose kernels may have other rights and libraries.
    """
    readers = [name for name in _READERS if find_spec(name)]
    kind = [version("kernel-agent"), platform.python_version(), level, os.geteuid() == 0, readers]
    return hashlib.sha256(json.dumps([kind, states]).encode()).hexdigest()[:40]


def recall(key: str) -> Any:
    """Return an index as a kernel gave it; None where none is kept or it cannot be believed."""
    unreadable = (OSError, EOFError, ValueError, RecursionError, zlib.error)
    with suppress(*unreadable), Folder(_folder()) as folder, folder.open(_name(key)) as file:
        about = os.fstat(file.fileno())
        shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if about.st_uid == os.geteuid() and not shared:
            with gzip.open(file) as unpacked:
                return json.loads(unpacked.read(MAX_BYTES))
    return None


def keep(key: str, bundle: object) -> None:
    """Keep an index, and forget the oldest. Where that cannot be done, it is made again."""
    data = json.dumps(bundle).encode()
    if len(data) >= MAX_BYTES:
        return
    with suppress(OSError):
        make_private(_folder(), exist_ok=True)
        with Folder(_folder()) as folder:
            folder.replace(_name(key), gzip.compress(data, 1), mode=0o600)
        kept = sorted(_folder().glob("*.json.gz"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-MAX_KEPT]:
            path.unlink()


def _folder() -> Path:
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("kernel-agent")) / "indexes"
    if not folder.is_absolute():
        raise FileNotFoundError("a relative folder is one in the working directory")
    return folder


def _name(key: str) -> str:
    return f"{key}.json.gz"
