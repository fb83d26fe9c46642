"""From a trace file to a notebook file, written whole or not at all.

The notebook itself is made by :func:`kernel_agent.notebook.build.notebook_of`, which is pure.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.errors import NotebookError
from kernel_agent.notebook.build import notebook_of
from kernel_agent.records import FILE_NAME, read_trace
from kernel_agent.safe import FILE_MODE, Folder

if TYPE_CHECKING:
    import nbformat

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
    return write_notebook(notebook_of(read_trace(trace)), path)


def write_notebook(notebook: nbformat.NotebookNode, path: str | Path) -> Path:
    """Write a notebook beside its place and move it there; the same notebook gives the same bytes.

    Raises
    ------
    NotebookError
        The folder is missing or not writable, or the disk is full. What was there is kept.
    """
    return _put(_text(notebook), Path(path), "notebook", mode=_mode(Path(path)))


def rewrite_notebook(notebook: nbformat.NotebookNode, path: Path) -> Path:
    """Write a session's notebook into the file that is there, so that it stays hidden from cells.

    Where a cell could remove that file and did, it is put there anew.

    Raises
    ------
    NotebookError
        As :func:`write_notebook`.
    """
    text = _text(notebook)
    with suppress(OSError), Folder(path.parent) as folder:
        folder.rewrite(path.name, text.encode())
        return path
    return _put(text, path, "notebook", mode=FILE_MODE)


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
