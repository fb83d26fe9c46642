"""The session's folder: its place, and the files that runs have made in it.

The folder is the kernel's working directory, so whatever lies in it may have been put there by
hostile code: no link in it is followed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from kernel_agent.records import FILE_NAME
from kernel_agent.safe import FILE_MODE, Folder, Made, make_beneath, make_own
from kernel_agent.sandbox import level_of

NOTEBOOK_NAME = "run.ipynb"
REPLAY_NAME = "replay.py"  # what the notebook imports where tools were called
DATA_NAME = "data"
UNDONE_NAME = "undone"  # where files of steps lie that were undone
AGENTS_NAME = "agents"
RUNS = "runs"  # beneath the working directory
OURS = (FILE_NAME, NOTEBOOK_NAME, REPLAY_NAME, DATA_NAME, UNDONE_NAME, AGENTS_NAME)
MAX_FILES = 1000  # files that are listed

_EMPTY = b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}\n'


def new_folder(title: str) -> Path:
    """Return ``runs/<time>-<title>``, with a number behind it when that is taken."""
    base = Path(RUNS) / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{slug(title)}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def slug(title: str) -> str:
    """Return a title as a part of a folder's name: lower case, digits and dashes."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return words[:40].strip("-") or "run"


def make_agents_folder(out: Path, level: str) -> Made:
    """Make the folder for delegated runs, out of reach of the run that delegates.

    Beneath its own folder, where its kernel sees an empty folder in their place; at the one level
    that confines a kernel and cannot hide anything from it, beside that folder. What is there
    already, a folder of the user's or a link, is left alone: then it is ``agents-2``.

    Raises
    ------
    OSError
        It cannot be made.
    """
    place, name = out, AGENTS_NAME
    if not level_of(level).hides_paths:
        out = out.absolute()
        place, name = out.parent, f"{out.name}.{AGENTS_NAME}"
    with Folder(place) as opened:
        return make_beneath(opened, name)


def hidden_in(out: Path, agents: Made | None) -> list[Path]:
    """Return what a kernel does not see of the session's folder: its records, and its agents'.

    A link called ``agents`` is the user's, and leads to nothing of ours: it stays what it is.
    """
    names = [FILE_NAME, NOTEBOOK_NAME]
    if not (out / AGENTS_NAME).is_symlink():
        names.append(AGENTS_NAME)
    if agents is not None and agents.path.name not in names:
        names.append(agents.path.name)
    return [out / name for name in names]


def hold_place(folder: Path) -> None:
    """Write an empty notebook in the place of the session's; called before its kernel starts.

    A sandbox hides what is there when the kernel starts, and hides it for as long as it stays the
    same file (:func:`kernel_agent.notebook.exporter.rewrite_notebook`).

    Raises
    ------
    OSError
        It cannot be written, or something is there that no session has left.
    """
    with Folder(folder) as opened:
        if _is_empty_place(opened):
            opened.remove(NOTEBOOK_NAME)
        with opened.create(NOTEBOOK_NAME, mode=FILE_MODE) as file:
            file.write(_EMPTY)


def is_taken(folder: Path) -> str:
    """Say which file in an existing folder is in the way of a session's own; empty if none is."""
    with Folder(folder) as opened:
        for name in (FILE_NAME, NOTEBOOK_NAME):
            with suppress(FileNotFoundError):
                opened.status(name)
                if name == FILE_NAME or not _is_empty_place(opened):
                    return name
    return ""


def _is_empty_place(folder: Folder) -> bool:
    """Whether the notebook there is an empty one: that of a session whose host was killed."""
    with suppress(OSError):
        return folder.read(NOTEBOOK_NAME, max_bytes=len(_EMPTY)) == _EMPTY
    return False


def leave_place(folder: Path) -> None:
    """Remove the empty notebook when no run has filled it; called when a session ends."""
    with suppress(OSError), Folder(folder) as opened:
        if _is_empty_place(opened):
            opened.remove(NOTEBOOK_NAME)


def make_folder(folder: Path, title: str) -> Made:
    """Make a folder that :func:`new_folder` has named, or the next one if it is taken by now.

    Sessions that begin side by side never share one.

    Raises
    ------
    OSError
        It cannot be made: ``runs`` may be a link to nowhere.
    """
    while True:
        try:
            return make_own(folder)
        except FileExistsError:
            if not folder.parent.is_dir():
                raise
            folder = new_folder(title)


def files_made(folder: Path, agents: Made | None = None) -> dict[str, int]:
    """Return the files in the folder that are not the session's own, with their time of change.

    Links, pipes and sockets are not files. ``agents`` is the folder of delegated runs.

    Returns
    -------
    dict
        Path relative to the folder -> modification time in nanoseconds.
    """
    ours = {*OURS, agents.path.name} if agents is not None else OURS

    def theirs(path: str) -> bool:
        hidden = path.rsplit("/", maxsplit=1)[-1].startswith(".")
        return not hidden and path not in ours

    try:
        with Folder(folder) as opened:
            files = (entry for entry in opened.files(wanted=theirs) if entry.is_file)
            return {entry.path: entry.status.st_mtime_ns for entry in islice(files, MAX_FILES)}
    except OSError:  # the folder is gone, or not readable any more
        return {}
