"""Notebooks in a folder that an application's kernel may write: which kernel each one starts.

The notebook of a sandboxed kernel lies in the folder that its cells may write, and its metadata say
which kernel the application starts for it: a plain one, if a cell has its way. So the notebooks
right in the folder are only readable inside, where the level can see to that; the application,
which writes them in place, is outside. At the end those are named that start another kernel than
before. Whether a cell or a person has changed that, nobody can tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kernel_agent.safe.gate import count, read_json
from kernel_agent.safe.root import Folder
from kernel_agent.safe.text import one_line

SUFFIX = ".ipynb"
CHECKPOINTS = ".ipynb_checkpoints"  # what an application goes back to
MAX_NOTEBOOKS = 200
MAX_BYTES = 20_000_000  # of one notebook that is read
MAX_TOTAL = 60_000_000  # of all; half a second
UNREADABLE = "which cannot be read"


def notebooks_in(folder: Path) -> tuple[Path, ...]:
    """Return the notebooks right in a folder, and the folder of their earlier states; no links."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as scan:
        for entry in scan:
            held = entry.name.lower().endswith(SUFFIX) and entry.is_file(follow_symlinks=False)
            if held or (entry.name == CHECKPOINTS and entry.is_dir(follow_symlinks=False)):
                found.append(folder / entry.name)
    return tuple(sorted(found)[:MAX_NOTEBOOKS])


class Notebooks:
    """Watches which kernels the notebooks right in a folder start.

    Parameters
    ----------
    folder
        What its notebooks say now is no news.
    own
        The name of the kernel that runs there: a new notebook of its is none either.
    """

    def __init__(self, folder: Path, own: str) -> None:
        self._folder = folder
        self._own = own
        self._known = dict(_kernels(folder))

    def news(self) -> Mapping[str, str]:
        """Return the notebooks that start another kernel than at the last look, with its name."""
        before = self._known
        self._known = dict(_kernels(self._folder))
        return {
            name: kernel
            for name, kernel in self._known.items()
            if kernel not in (self._own, before.get(name, ""))
        }


def notebooks_line(news: Mapping[str, str]) -> str:
    """Return a line that names notebooks and the kernels that they start now; empty without any."""
    if not news:
        return ""
    first = list(news.items())[:10]
    shown = [f"{one_line(name, 80)} ({one_line(kernel, 40) or 'none'})" for name, kernel in first]
    more = [f"{len(news) - 10} more"] if len(news) > 10 else []
    return (
        "While the sandboxed kernel ran, notebooks in its folder came to name another kernel: "
        f"{', '.join([*shown, *more])}. Unless you chose that, a cell did: look before you run one."
    )


def _kernels(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the notebooks right in a folder, each with its kernel's name, or an empty one."""
    left = MAX_TOTAL
    with suppress(OSError), Folder(folder) as opened:
        for path in notebooks_in(folder):
            if path.name == CHECKPOINTS:
                continue
            try:
                data = opened.read(path.name, max_bytes=min(MAX_BYTES, left))
                left -= len(data)
                yield path.name, _kernel_of(data)
            except (OSError, ValueError, RecursionError):
                yield path.name, UNREADABLE


def _kernel_of(data: bytes) -> str:
    """Return the name of the kernel that a notebook is for.

    Raises
    ------
    ValueError, RecursionError
        It is no notebook, or one that costs too much to read.
    """
    count(data)
    found = read_json(data.decode())
    for name in ("metadata", "kernelspec", "name"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""
