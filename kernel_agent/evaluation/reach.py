"""What a file of tasks reaches beyond its own folder, before any of it is touched.

A file of tasks may come from anybody. Its questions and the tables beside it are what it is for;
what it names elsewhere is read and sent to the model's endpoint, and the code that it names runs on
the host with the user's rights. That is listed here, for a person, and with a fingerprint under
which their answer is kept (:mod:`kernel_agent.safe.trust`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox import writable_folder


@dataclass(frozen=True, kw_only=True)
class Reach:
    """One thing that tasks reach: in words, and the file whose content counts, where it is code."""

    words: str
    code: Path | None = None


def reaches_of(reads: Iterable[str], runs: Iterable[str], folder: Path) -> tuple[Reach, ...]:
    """Return what tasks reach beyond their folder, each once, in their order.

    Parameters
    ----------
    reads
        Paths of the files that they read, absolute, links followed.
    runs
        Modules or files of code, and tools (``NAME=WHAT``).
    folder
        Where the file of tasks lies. A home, or a folder of the system, is nobody's own: there
        everything is beyond it.
    """
    own = _own(folder.resolve())
    beyond = (path for path in reads if not _is_beneath(Path(path), own))
    return (
        *(Reach(words=f"reads {path}") for path in dict.fromkeys(beyond)),
        *map(_code, dict.fromkeys(runs)),
    )


def fingerprint(content: bytes, reaches: Iterable[Reach]) -> bytes:
    """Return what an answer holds for: the file's content, what it reaches, and that code."""
    rows = [(reach.words, _digest(reach.code)) for reach in reaches]
    return json.dumps([hashlib.sha256(content).hexdigest(), rows]).encode("ascii")


def _is_beneath(path: Path, own: Path | None) -> bool:
    """Whether a file is the tasks' own; a hidden one (.env, .git) may be the user's."""
    if own is None or not path.is_relative_to(own):
        return False
    return not any(part.startswith(".") for part in path.relative_to(own).parts)


def _own(folder: Path) -> Path | None:
    try:
        return writable_folder(folder)
    except SandboxError:
        return None


def _code(named: str) -> Reach:
    if "=" in named:
        return Reach(words=f"has the tool {named}")
    if named.endswith(".py"):
        return Reach(words=f"runs {named}", code=Path(named))
    file = _file_of(named)
    found = f" ({file})" if file else ""
    return Reach(words=f"runs the module {named}{found}", code=file)


def _file_of(module: str) -> Path | None:
    """Return the file of a module that is not imported for that, nor is what it lies in."""
    places: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    spec: ModuleSpec | None = None
    names = module.split(".")
    for depth in range(len(names)):
        spec = PathFinder.find_spec(".".join(names[: depth + 1]), places) if places else None
        places = spec.submodule_search_locations if spec else None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def _digest(code: Path | None) -> str:
    if code is None:
        return ""
    with code.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
