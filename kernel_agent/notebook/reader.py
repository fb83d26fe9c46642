"""Read a notebook file of format 2, 3 or 4, from any program."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import NotebookError
from kernel_agent.safe import Folder, one_line

if TYPE_CHECKING:
    import nbformat

EARLY_IDS = "its cells have ids, which its format does not know yet: it was read as format 4.5"
MAX_BYTES = 200_000_000
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # JEP 62


def read_runnable(path: str | Path, notes: list[str] | None = None) -> nbformat.NotebookNode:
    """Read a notebook whose cells are to run here.

    Raises
    ------
    NotebookError
        As :func:`read_notebook`, or it is for another language than Python.
    """
    notebook = read_notebook(path, notes)
    language = _read_metadata(notebook, "kernelspec", "language") or _read_metadata(
        notebook, "language_info", "name"
    )
    if language and language.lower() != "python":
        told = one_line(language, 60)
        raise NotebookError(f"{path} is a notebook for {told}, and only Python is run")
    return notebook


def read_notebook(path: str | Path, notes: list[str] | None = None) -> nbformat.NotebookNode:
    """Read and check a notebook; one of an older format is brought to format 4, as Jupyter does.

    Its own metadata may be anything: Jupyter opens a notebook whose ``kernelspec`` has no name.

    Parameters
    ----------
    path
        The file.
    notes
        Takes a line on what had to be mended.

    Raises
    ------
    NotebookError
        In one line: what is wrong with the file.
    """
    from kernel_agent.notebook.library import nbformat

    try:
        with Folder(Path(path).parent) as folder:
            read = folder.read(Path(path).name, max_bytes=MAX_BYTES)
        content = json.loads(read.decode("utf-8-sig"))  # some editors put a byte order mark there
    except OSError as error:
        raise NotebookError(f"cannot read the notebook {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise NotebookError(f"{path} is not a notebook: it is not JSON") from None
    if not isinstance(content, dict) or not isinstance(content.get("nbformat"), int):
        raise NotebookError(f"{path} is JSON, but not a notebook")
    if content["nbformat"] in (2, 3):
        content = _upgrade(content, path)
    if content["nbformat"] != 4:
        raise NotebookError(f"{path} has notebook format {content['nbformat']}, which is unknown")
    if not isinstance(content.get("metadata"), dict):
        raise NotebookError(f"{path} is not a valid notebook: it has no metadata")
    if _has_early_ids(content):
        content = {**content, "cells": _with_sound_ids(content["cells"]), "nbformat_minor": 5}
        if notes is not None:
            notes.append(EARLY_IDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cells without an id: fine here
        try:
            notebook: nbformat.NotebookNode = nbformat.from_dict(content)  # type: ignore[no-untyped-call]  # nbformat is untyped
            notebook = nbformat.v4.rwbase.rejoin_lines(notebook)  # type: ignore[no-untyped-call]  # nbformat is untyped
            nbformat.validate({**notebook, "metadata": {}})
        except (nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:
            raise NotebookError(f"{path} is not a valid notebook: {one_line(str(error))}") from None
    return notebook


def _has_early_ids(content: dict[str, Any]) -> bool:
    """Whether a notebook says that it is older than its cells' ids; some programs write such."""
    minor, cells = content.get("nbformat_minor"), content.get("cells")
    if not isinstance(minor, int) or minor >= 5 or not isinstance(cells, list):
        return False
    return any(isinstance(cell, dict) and "id" in cell for cell in cells)


def _with_sound_ids(cells: list[Any]) -> list[Any]:
    """Return the cells without those ids that format 4.5 does not allow, or that stand twice."""
    seen: set[str] = set()

    def sound(cell: Any) -> Any:
        if not isinstance(cell, dict) or "id" not in cell:
            return cell
        name = cell["id"]
        if isinstance(name, str) and _ID.fullmatch(name) and name not in seen:
            seen.add(name)
            return cell
        return {key: value for key, value in cell.items() if key != "id"}

    return [sound(cell) for cell in cells]


def _upgrade(content: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Return the content of a notebook of format 2 or 3 in format 4."""
    from kernel_agent.notebook.library import nbformat

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            upgraded = nbformat.reads(json.dumps(content), as_version=4)  # type: ignore[no-untyped-call]  # nbformat is untyped
        except Exception as error:  # the converters expect what they read to be right
            why = one_line(f"{type(error).__name__}: {error}")
            raise NotebookError(f"{path} is not a valid notebook: {why}") from None
    return dict(upgraded)


def is_skipped(cell: Any) -> bool:
    """Whether the notebook says that a code cell is not to be run, as nbclient takes it."""
    return cell.cell_type == "code" and "skip-execution" in (cell.metadata.get("tags") or ())


def _read_metadata(notebook: nbformat.NotebookNode, where: str, key: str) -> str:
    """Return a field of the notebook's metadata as text, or empty."""
    about = notebook.metadata.get(where)
    return str(about.get(key) or "") if isinstance(about, dict) else ""
