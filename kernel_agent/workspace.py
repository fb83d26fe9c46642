"""The session's folder: where it is, and what the runs have made in it.

The folder is the kernel's working directory, so whatever lies in it may have been put there by
hostile code: no link in it is followed.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from kernel_agent.trace import FILE_NAME

NOTEBOOK_NAME = "run.ipynb"
DATA_NAME = "data"
MAX_FILES = 1000  # files that are listed


def new_folder(title: str) -> Path:
    """Return ``runs/<time>-<title>``, with a number behind it when that is taken."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-") or "run"
    base = Path("runs") / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{slug}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def files_made(folder: Path) -> dict[str, int]:
    """Return the files in the folder that are not the session's own, with their time of change.

    Returns
    -------
    dict
        Path relative to the folder -> modification time in nanoseconds.
    """
    found: dict[str, int] = {}
    for at, folders, names in os.walk(folder, followlinks=False):
        relative = Path(at).relative_to(folder)
        ours = {FILE_NAME, NOTEBOOK_NAME, DATA_NAME} if relative == Path() else set()
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ours]
        for name in sorted(names):
            if name.startswith(".") or name in ours or len(found) >= MAX_FILES:
                continue
            try:
                found[str(relative / name)] = os.lstat(Path(at) / name).st_mtime_ns
            except OSError:  # it is gone again
                continue
    return found
