"""The session's folder: where it is, and what the runs have made in it.

The folder is the kernel's working directory, so whatever lies in it may have been put there by
hostile code: no link in it is followed.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from pathlib import Path

from kernel_agent.beneath import Folder
from kernel_agent.trace import FILE_NAME

NOTEBOOK_NAME = "run.ipynb"
DATA_NAME = "data"
UNDONE_NAME = "undone"  # where files of steps lie that were undone
MAX_FILES = 1000  # files that are listed


def new_folder(title: str) -> Path:
    """Return ``runs/<time>-<title>``, with a number behind it when that is taken."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-") or "run"
    base = Path("runs") / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{slug}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def make_folder(folder: Path, title: str) -> Path:
    """Make a folder that :func:`new_folder` has named, or the next one if it is taken by now.

    Sessions that begin side by side never share one.
    """
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            folder = new_folder(title)
        else:
            return folder


def files_made(folder: Path) -> dict[str, int]:
    """Return the files in the folder that are not the session's own, with their time of change.

    Links, pipes and sockets are not files.

    Returns
    -------
    dict
        Path relative to the folder -> modification time in nanoseconds.
    """

    def theirs(path: str) -> bool:
        hidden = path.rsplit("/", maxsplit=1)[-1].startswith(".")
        return not hidden and path not in (FILE_NAME, NOTEBOOK_NAME, DATA_NAME, UNDONE_NAME)

    try:
        with Folder(folder) as opened:
            files = (entry for entry in opened.files(wanted=theirs) if entry.is_file)
            return {entry.path: entry.status.st_mtime_ns for entry in islice(files, MAX_FILES)}
    except OSError:  # the folder is gone, or not readable any more
        return {}
