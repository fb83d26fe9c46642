"""Files that programs (this one too) obey in the folder in which they are started.

Code in a cell may write in its run's folder, and with Jupyter's kernel in the folder of a project.
What it leaves there under such a name acts later and outside the sandbox: with the rights of
anyone who starts a program there. So what has such a name when a kernel is granted a folder is only
readable inside, where the level can see to that, and what a run has made is named to the user.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kernel_agent.safe.root import Folder
from kernel_agent.safe.text import one_line

OBEYED: Mapping[str, tuple[str, ...]] = {
    "kernel-agent": ("kernel-agent.toml",),
    "Jupyter": ("jupyter_*config.py", "jupyter_*config.json", "jupyter_*config.d", ".jupyter"),
    "IPython": ("ipython_*config.py", "ipython_*config.json", ".ipython"),
    "Python": ("sitecustomize.py", "usercustomize.py", "*.pth", "pyvenv.cfg", ".python-version"),
    "pytest": ("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"),
    "Python's tools": (
        "pyproject.toml", "setup.py", "uv.toml", "noxfile.py", "mypy.ini", ".mypy.ini", "pylintrc",
        ".pylintrc", ".coveragerc", ".pre-commit-config.yaml", ".pdbrc", "matplotlibrc",
    ),
    "programs that load it": (".env", ".env.*", ".envrc", ".flaskenv", ".netrc", ".tool-versions",
                              "mise.toml", ".mise.toml"),
    "git": (".git", ".gitmodules", ".gitattributes", ".hg", "head"),
    "editors": (
        ".vscode", "*.code-workspace", ".idea", ".zed", ".devcontainer", ".devcontainer.json",
        ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".editorconfig",
    ),
    "coding agents": (
        "agents.md", "claude.md", "gemini.md", ".mcp.json", ".claude", ".cursor", ".cursorrules",
        ".windsurfrules", ".github", ".aider.conf.yml", ".codex", ".gemini",
    ),
    "make and the like": (
        "makefile", "gnumakefile", "justfile", ".justfile", "taskfile.yml", "compose.y*ml",
        "docker-compose*.y*ml", "dockerfile",
    ),
    "other interpreters": (
        "package.json", "node_modules", ".npmrc", ".yarnrc", ".yarnrc.yml", ".rprofile",
        ".renviron", ".rdata", ".gdbinit", ".lldbinit", ".irbrc", ".htaccess",
    ),
}  # fmt: skip
"""Programs and the names that they obey, in lower case: a file system may ignore case."""

_NAMES = re.compile(
    "|".join(
        f"(?P<by{number}>{'|'.join(map(fnmatch.translate, patterns))})"
        for number, patterns in enumerate(OBEYED.values())
    )
)
_SHADOWS = sys.stdlib_module_names - {"test", "this"}
"""Python started there, as by ``python -m``, imports these from the folder."""

MAX_LOOKED_AT = 20_000  # entries of folders in the folder; it is done while a run ends


def who_obeys(name: str) -> str:
    """Return the program that obeys a file of this name; empty when none does.

    Examples
    --------
    >>> who_obeys("jupyter_server_config.py"), who_obeys("sales.csv")
    ('Jupyter', '')
    """
    found = _NAMES.match(name.lower())
    return list(OBEYED)[int((found.lastgroup or "by0")[2:])] if found else ""


def _shadowed_module(name: str) -> str:
    stem = name.partition(".")[0]
    return "Python" if name.endswith((".py", ".so")) and stem in _SHADOWS else ""


def at_top(folder: Path) -> tuple[Path, ...]:
    """Return the files and folders right in a folder that have such a name; no links.

    Called before a kernel starts, for what it may read there and not change.
    """
    try:
        with os.scandir(folder) as scan:
            return tuple(
                folder / entry.name
                for entry in scan
                if who_obeys(entry.name)
                and (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False))
            )
    except OSError:  # it is not there, or not readable
        return ()


class Watch:
    """Watches for files with such names in a folder that code may write.

    Parameters
    ----------
    folder
        What has such a name there now is no news.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = _beneath(folder)

    def news(self) -> tuple[str, ...]:
        """Return the files made or changed since the last look, as paths in the folder."""
        before, self._known = self._known, _beneath(self._folder)
        return tuple(sorted(p for p, state in self._known.items() if before.get(p) != state))


def _beneath(folder: Path) -> dict[str, tuple[int, int]]:
    """Return everything with such a name, with its inode and time of change.

    Code can set the time at which a file was written, but not that one.
    """
    found: dict[str, tuple[int, int]] = {}

    def wanted(path: str) -> bool:
        name = path.rpartition("/")[2]
        if not who_obeys(name) and not _shadowed_module(name):
            return True
        with suppress(OSError):
            status = opened.status(path)
            found[path] = (status.st_ino, status.st_ctime_ns)
        return False

    with suppress(OSError), Folder(folder) as opened:  # it may be gone by now
        with os.scandir(opened.fd) as scan:  # first, so that nothing hides behind many files
            for entry in scan:
                wanted(entry.name)
        for _ in opened.files(wanted=wanted, max_entries=MAX_LOOKED_AT):
            pass
    return found


def obeyed_line(names: Sequence[str]) -> str:
    """Return a line that names new files and the programs that obey them; empty without any.

    The names are a cell's or, from a trace, anybody's.
    """
    names = [str(name) for name in names] if isinstance(names, (list, tuple)) else []
    if not names:
        return ""
    shown = [f"{one_line(path)} ({_by(path)})" for path in names[:10]]
    more = [f"{len(names) - 10} more"] if len(names) > 10 else []
    return (
        "Code in a cell made what programs obey in the folder in which they are started: "
        f"{', '.join([*shown, *more])}. Look at it before you start one there."
    )


def _by(path: str) -> str:
    name = path.rpartition("/")[2]
    return who_obeys(name) or _shadowed_module(name) or "some program"
