"""From a trace file to a notebook file, written whole or not at all.

The notebook itself is made by :func:`kernel_agent.notebook.build.document_of`, which is pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.errors import NotebookError
from kernel_agent.notebook.build import Document, document_of, notebook_of
from kernel_agent.notebook.setup_cell import MARK, REPLAY
from kernel_agent.records import FILE_NAME, Record, read_trace
from kernel_agent.safe import FILE_MODE, Folder, encodable, move_aside

if TYPE_CHECKING:
    import nbformat

MAX_REPLAY = 500_000_000  # bytes

__all__ = [
    "export",
    "notebook_of",
    "prepare_notebooks",
    "rewrite_notebook",
    "write_notebook",
    "write_page",
]


@cache
def prepare_notebooks() -> None:
    """Import the notebook writer, which takes a second, so that the end of a run need not wait.

    Called in a thread of its own while a model thinks, when a run begins.
    """
    from kernel_agent.notebook.library import nbformat

    nbformat.validate(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]  # nbformat is untyped


def export(trace: str | Path, path: str | Path) -> Path:
    """Write the notebook of a trace.

    Parameters
    ----------
    trace
        The trace file, or the run's folder.
    path
        The notebook. It is replaced in one step, so nobody ever sees half of it.

    Returns
    -------
    Path
        Where it was written.

    Raises
    ------
    TraceError
        The trace cannot be read.
    NotebookError
        It holds no run, or the notebook cannot be written there.
    """
    records, target = read_trace(trace), Path(path)
    document = document_of(records, module=_module(target))
    _check_replay(document, target)
    written = write_notebook(document.notebook, target)
    _write_replay(document, target)
    return written


def _module(notebook: Path) -> str:
    """Return the name of the module of replays beside a notebook: its own, but for a run's."""
    stem = re.sub(r"\W+", "_", notebook.stem, flags=re.ASCII).strip("_").lower()
    return REPLAY if notebook.name == "run.ipynb" or not stem else f"{REPLAY}_{stem}"


def _check_replay(document: Document, notebook: Path) -> None:
    """Refuse to replace a file of the user's.

    Raises
    ------
    NotebookError
        A file that no export has written has the name of the module.
    """
    place = notebook.with_name(f"{_module(notebook)}.py")
    if not document.replay or not os.path.lexists(place):
        return
    with suppress(OSError, ValueError), Folder(place.parent) as folder:
        if folder.read(place.name, max_bytes=MAX_REPLAY).startswith(MARK.encode()):
            return
    raise NotebookError(f"cannot write {place}: another file has its place; move it first")


def _write_replay(document: Document, notebook: Path) -> list[Path]:
    """Write the module beside the notebook where the notebook needs it; return its place."""
    if not document.replay:
        return []
    place = notebook.with_name(f"{_module(notebook)}.py")
    return [_put(encodable(document.replay), place, "module", mode=_mode(notebook))]


def write_notebook(notebook: nbformat.NotebookNode, path: str | Path) -> Path:
    """Write a notebook beside its place and move it there; the same notebook gives the same bytes.

    Raises
    ------
    NotebookError
        The folder is missing or not writable, or the disk is full. What was there is kept.
    """
    return _put(_text(notebook), Path(path), "notebook", mode=_mode(Path(path)))


def rewrite_notebook(records: Sequence[Record], path: Path) -> Sequence[Path]:
    """Write a session's notebook into the file that is there, so that it stays hidden from cells.

    Where a cell could remove that file and did, it is put there anew; a folder that it put there
    gets another name. The module of replays is put beside it, whatever a cell has left there.

    Returns
    -------
    sequence of Path
        The notebook, and the module if it needs one.

    Raises
    ------
    NotebookError
        The records hold no run, or as :func:`write_notebook`.
    """
    document = document_of(records)
    written = [path, *_write_replay(document, path)]
    text = _text(document.notebook)
    with suppress(OSError), Folder(path.parent) as folder:
        move_aside(folder, path.name)
        folder.rewrite(path.name, text.encode())
        return written
    _put(text, path, "notebook", mode=FILE_MODE)
    return written


def write_page(page: str, path: str | Path) -> Path:
    """Write the page of a run (:func:`kernel_agent.notebook.page.page_html`) in one step.

    Raises
    ------
    NotebookError
        The folder is missing or not writable, or the disk is full. What was there is kept.
    """
    return _put(page, Path(path), "page", mode=_mode(Path(path)))


def _text(notebook: nbformat.NotebookNode) -> str:
    from kernel_agent.notebook.library import nbformat

    text: str = nbformat.writes(notebook, version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]  # nbformat is untyped
    return f"{text}\n"


def _mode(target: Path) -> int:
    """Return the mode of a file that is asked for: in a run's folder it is the user's alone."""
    return FILE_MODE if os.path.lexists(target.with_name(FILE_NAME)) else 0o666


def _put(text: str, target: Path, what: str, *, mode: int) -> Path:
    if target.is_dir():
        raise NotebookError(f"cannot write the {what} {target}: it is a folder; name a file in it")
    if target.exists() and not target.is_file():
        # Moving a file there would take the device away from everybody, where one may do so.
        raise NotebookError(
            f"cannot write the {what} {target}: it is not a file but a pipe, socket or device"
        )
    try:
        with Folder(target.parent) as folder:
            folder.replace(target.name, text.encode(), mode=mode)
    except OSError as error:
        missing = not target.parent.exists()
        reason = f"there is no folder {target.parent}" if missing else error.strerror
        raise NotebookError(f"cannot write the {what} {target}: {reason}") from None
    return target
