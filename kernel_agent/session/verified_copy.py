"""The copy of a notebook's folder in which it is verified: what its cells may read, and no more.

No link is followed but to a file whose content the notebook names.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import NotebookError, SandboxError
from kernel_agent.notebook import files_made
from kernel_agent.safe import Entry, Folder, copy_known, encodable, one_line, open_file
from kernel_agent.sandbox import readable_folder, writable_folder

if TYPE_CHECKING:
    import nbformat

MAX_FILE_BYTES = 1_000_000_000  # what a run copies; larger inputs it links
MAX_COPY_BYTES = 4_000_000_000
MAX_FILES = 5_000
# Not inputs: our records, other notebooks and their leftovers, environments.
_NOT_COPIED = frozenset(("trace.jsonl", "__pycache__", "node_modules", "venv"))


def own_folder(file: Path) -> Path:
    """Return the folder that the notebook's cells may read a copy of.

    Raises
    ------
    NotebookError
        It holds more than a notebook's inputs: a home, or a directory of the system.
    """
    try:
        return writable_folder(file.resolve().parent)
    except SandboxError:
        raise NotebookError(
            f"the cells of {one_line(str(file), 300)} would see what is in its folder, which is or "
            "holds a home or a directory of the system: put the notebook, with the files that it "
            "needs, into a folder of its own"
        ) from None


def copy_folder(notebook: nbformat.NotebookNode, folder: Path, target: Path) -> list[str]:
    """Copy the files that cells may read; return those left out.

    No link is followed: what it points to may be anywhere. Hidden files, environments, our own
    records and notebooks are no inputs. Where the notebook names its inputs, only they and the
    rest of ``data/`` are: what the run made is made again, as is what any other plainly makes.
    """
    inputs = _inputs(notebook)
    linked = {str(i.get("path")) for i in _listed(notebook) if i.get("kind") == "folder"}
    made = files_made(c.source for c in notebook.cells if c.cell_type == "code")
    left_out: list[str] = []
    room = MAX_COPY_BYTES
    try:
        with Folder(folder) as opened:
            for number, entry in enumerate(opened.files(wanted=may_be_input)):
                if number == MAX_FILES:
                    more = f"everything from {encodable(entry.path)} on"
                    left_out.append(f"{more}: more than {MAX_FILES:,} files")
                    break
                named = inputs is None or entry.path in inputs or entry.path.startswith("data/")
                if not named or entry.path in linked or (inputs is None and entry.path in made):
                    continue
                copied = _copy(opened, entry, target / entry.path, min(MAX_FILE_BYTES, room))
                room -= copied or 0
                if copied is None:
                    left_out.append(encodable(entry.path))
    except OSError as error:
        raise NotebookError(f"cannot read the folder {folder}: {error.strerror}") from None
    linked_out = list(_copy_linked(notebook, folder, target))  # it copies what was too large, too
    return [*(path for path in left_out if not (target / path).exists()), *linked_out]


def _copy_linked(notebook: nbformat.NotebookNode, folder: Path, target: Path) -> Iterator[str]:
    """Copy the files that a run read in folders of data, and those that were linked for their size.

    They lie behind links, which may lead anywhere: a file is copied only where it has the
    fingerprint that the notebook names, so that nobody learns what they did not know.
    """
    for item in _listed(notebook):
        path, digest = str(item.get("path")), str(item.get("sha256"))
        *above, _ = path.split("/")
        if above[:1] != ["data"] or ".." in above or not digest or (target / path).exists():
            continue
        try:
            source = readable_folder((folder / path).parent) / path.rpartition("/")[2]
            with open_file(source.resolve(strict=True)) as file:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                with (target / path).open("xb") as copy:
                    known = copy_known(file, copy, sha256=digest, size=int(item.get("bytes", 0)))
            if not known:
                (target / path).unlink()
                yield f"{encodable(path)} (it has changed since)"
        except (OSError, SandboxError, TypeError, ValueError):
            yield encodable(path)


def changed_inputs(notebook: nbformat.NotebookNode, copy: Path) -> Iterator[str]:
    """Yield the copied inputs that are not as they were for the notebook's run."""
    known = {copy / str(each.get("path")): each.get("sha256") for each in _listed(notebook)}
    for path in sorted(known.keys() & {*copy.rglob("*")}):
        if known[path] and path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != known[path]:
                    yield encodable(path.relative_to(copy).as_posix())


def may_be_input(path: str) -> bool:
    """Whether a file of a notebook's folder may be one that its cells read."""
    name = path.rsplit("/", maxsplit=1)[-1]
    return not (name.startswith(".") or name in _NOT_COPIED or name.endswith(".ipynb"))


def _copy(folder: Folder, entry: Entry, target: Path, max_bytes: int) -> int | None:
    """Copy one file; return its bytes, or None when it is not copied.

    Raises
    ------
    NotebookError
        The copy cannot be written: the disk is full.
    """
    if not entry.is_file or entry.status.st_size > max_bytes:
        return None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        size = folder.copy(entry.path, target, max_bytes=max_bytes)
        target.chmod(entry.status.st_mode & 0o777)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = f"cannot copy {entry.path} to verify: {error.strerror}"
            raise NotebookError(one_line(told, 400)) from None
        return None  # it is not readable, or not the file any more that was listed
    return size


def _inputs(notebook: nbformat.NotebookNode) -> set[str] | None:
    """Return the inputs that an exported notebook names, by path in its folder; else None."""
    ours = notebook.metadata.get("kernel_agent", {})
    if not isinstance(ours, dict) or not isinstance(ours.get("inputs"), list):
        return None
    return {str(item.get("path")) for item in _listed(notebook)} | {str(ours.get("replay"))}


def _listed(notebook: nbformat.NotebookNode) -> list[dict[str, Any]]:
    ours = notebook.metadata.get("kernel_agent", {})
    listed = ours.get("inputs") if isinstance(ours, dict) else None
    return [each for each in listed or () if isinstance(each, dict)]
