"""Put the files that a run read beside its notebook, so that it runs again elsewhere."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kernel_agent.errors import NotebookError
from kernel_agent.records import DataFile, Record, runs_of
from kernel_agent.safe import Folder, copy_known, one_line, open_file, who_obeys


def copy_read(records: Sequence[Record], beside: Path, folder: Path) -> list[str]:
    """Copy the inputs of a session, and of its folders the files that were read.

    A file is copied where its content is that of the run, and not otherwise: the notebook would
    show something else.

    Parameters
    ----------
    records
        The session's records.
    beside
        The session's folder, which holds its inputs.
    folder
        The notebook's folder.

    Returns
    -------
    list of str
        The files that were left out, each with the reason.

    Raises
    ------
    NotebookError
        The copies cannot be written: the disk is full, or something else has their place.
    """
    left_out = []
    for file in _files(records):
        try:
            reason = _copy(file, beside, folder)
        except OSError as error:
            raise NotebookError(
                f"cannot copy {one_line(file.path)} to {folder}: {error.strerror}"
            ) from None
        left_out += [f"{one_line(file.path)} ({reason})"] if reason else []
    return left_out


def copy_in_place(records: Sequence[Record], folder: Path) -> list[str]:
    """Put what a session read into its own folder, in the place of the links to it.

    Called when the session has ended; raises, and returns, as :func:`copy_read`.
    """
    linked = {f.path for run in runs_of(records) for f in run.start.data if f.linked}
    with Folder(folder) as opened:
        for path in linked:
            with suppress(OSError):
                if stat.S_ISLNK(opened.status(path).st_mode):
                    opened.remove(path)
    return copy_read(records, folder, folder)


def _files(records: Sequence[Record]) -> Iterator[DataFile]:
    """Yield each file once; a later state of it is not the one that is wanted first."""
    found: dict[str, DataFile] = {}
    for run in runs_of(records):
        given = (file for each in run.given for file in each.files)
        for file in (*run.start.data, *given, *run.read):
            found.setdefault(file.path, file)
    yield from (file for file in found.values() if not file.is_folder)


def _copy(file: DataFile, beside: Path, folder: Path) -> str:
    """Copy one file; return why it was not."""
    *above, name = file.path.split("/")
    if not file.sha256:
        return "its content is not known"
    if above[:1] != ["data"] or any(map(who_obeys, (*above, name))):
        return "it is no file of data/"  # a trace may be anybody's
    source = Path(file.source) if file.linked else beside / file.path
    try:
        opened = open_file(source)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "it is no file"
    with opened, Folder(folder) as place:
        for depth in range(len(above)):
            place.folder("/".join(above[: depth + 1]), make=True).close()
        try:
            copy = place.create(file.path)
        except FileExistsError:
            return "" if _has(place, file) else "another file has its place"
        with copy:
            if copy_known(opened, copy, sha256=file.sha256, size=file.bytes):
                return ""
        place.remove(file.path)
    return "it has changed since the run"


def _has(place: Folder, file: DataFile) -> bool:
    with suppress(OSError), place.open(file.path) as found:
        return hashlib.file_digest(found, "sha256").hexdigest() == file.sha256
    return False
