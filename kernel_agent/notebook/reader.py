"""Read a notebook file of format 4, from any program."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import NotebookError
from kernel_agent.safe import Folder, one_line

if TYPE_CHECKING:
    import nbformat

MAX_BYTES = 200_000_000


def read_runnable(path: str | Path) -> nbformat.NotebookNode:
    """Read a notebook whose cells are to run here.

    Raises
    ------
    NotebookError
        As :func:`read_notebook`, or it is for another language than Python.
    """
    notebook = read_notebook(path)
    language = _read_metadata(notebook, "kernelspec", "language") or _read_metadata(
        notebook, "language_info", "name"
    )
    if language and language.lower() != "python":
        told = one_line(language, 60)
        raise NotebookError(f"{path} is a notebook for {told}, and only Python is run")
    return notebook


def read_notebook(path: str | Path) -> nbformat.NotebookNode:
    """Read and check a notebook.

    Its own metadata may be anything: Jupyter opens a notebook whose ``kernelspec`` has no name.

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
        old = f"{path} has notebook format {content['nbformat']}"
        raise NotebookError(f"{old}: convert it with `jupyter nbconvert --to notebook`")
    if content["nbformat"] != 4:
        raise NotebookError(f"{path} has notebook format {content['nbformat']}, which is unknown")
    if not isinstance(content.get("metadata"), dict):
        raise NotebookError(f"{path} is not a valid notebook: it has no metadata")
    content = _without_early_ids(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cells without an id: fine here
        try:
            notebook: nbformat.NotebookNode = nbformat.from_dict(content)  # type: ignore[no-untyped-call]  # nbformat is untyped
            notebook = nbformat.v4.rwbase.rejoin_lines(notebook)  # type: ignore[no-untyped-call]  # nbformat is untyped
            nbformat.validate({**notebook, "metadata": {}})
        except (nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:
            raise NotebookError(f"{path} is not a valid notebook: {one_line(str(error))}") from None
    return notebook


def _without_early_ids(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out the ids of cells before format 4.5, which has them (JEP 62); some write them."""
    minor, cells = content.get("nbformat_minor"), content.get("cells")
    if not isinstance(minor, int) or minor >= 5 or not isinstance(cells, list):
        return content
    without = [
        {key: cell[key] for key in cell if key != "id"} if isinstance(cell, dict) else cell
        for cell in cells
    ]
    return {**content, "cells": without}


def is_skipped(cell: Any) -> bool:
    """Whether the notebook says that a code cell is not to be run, as nbclient takes it."""
    return cell.cell_type == "code" and "skip-execution" in (cell.metadata.get("tags") or ())


def _read_metadata(notebook: nbformat.NotebookNode, where: str, key: str) -> str:
    """Return a field of the notebook's metadata as text, or empty."""
    about = notebook.metadata.get(where)
    return str(about.get(key) or "") if isinstance(about, dict) else ""
