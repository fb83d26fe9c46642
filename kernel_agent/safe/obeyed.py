"""Files that programs (this one too) obey in the folder in which they are started.

Code in a cell may write in its run's folder, and with Jupyter's kernel in the folder of a project.
What it leaves there under such a name acts later and outside the sandbox: with the rights of
anyone who starts a program there. So what has such a name when a kernel is granted a folder, at any
depth, is only readable inside, where the level can see to that, and what a run has made or changed
is named to the user. A walk has a bound; what lies beyond it is not passed over in silence.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from kernel_agent.safe.root import Entry, Folder
from kernel_agent.safe.text import one_line

OBEYED: Mapping[str, tuple[str, ...]] = {
    "kernel-agent": ("kernel-agent.toml",),
    "Jupyter": ("jupyter_*config.py", "jupyter_*config.json", "jupyter_*config.d", ".jupyter"),
    "IPython": ("ipython_*config.py", "ipython_*config.json", ".ipython"),
    "Python": ("sitecustomize.py", "usercustomize.py", "*.pth", "pyvenv.cfg", ".python-version",
               ".venv", "venv"),
    "pytest": ("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"),
    "Python's tools": (
        "pyproject.toml", "setup.py", "uv.toml", "noxfile.py", "mypy.ini", ".mypy.ini", "pylintrc",
        ".pylintrc", ".coveragerc", ".pre-commit-config.yaml", ".pdbrc", "matplotlibrc",
    ),
    "programs that load it": (".env", ".env.*", ".envrc", ".flaskenv", ".netrc", ".tool-versions",
                              "mise.toml", ".mise.toml"),
    "git": (".git", "*.git", ".gitmodules", ".gitattributes", ".hg", "head"),
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
        ".renviron", ".rdata", ".gdbinit", ".lldbinit", ".irbrc", ".pryrc", ".ghci", ".iex.exs",
        ".octaverc", "startup.m", ".htaccess",
    ),
    "JavaScript's tools": (  # each is a program that its tool runs at its start
        "*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", ".eslintrc*", ".babelrc*",
        ".mocharc*", ".pnp.cjs", ".pnp.loader.mjs", ".husky",
    ),
    "build tools": (
        ".cargo", ".mvn", "build.gradle", "build.gradle.kts", "settings.gradle",
        "settings.gradle.kts", ".bazelrc", "flake.nix", "shell.nix", "default.nix", "vagrantfile",
        "rakefile",
    ),
    "Ansible": ("ansible.cfg",),
    "latexmk": ("latexmkrc", ".latexmkrc"),
    "Streamlit": (".streamlit",),
}  # fmt: skip
"""Programs and the names that they obey, in lower case: a file system may ignore case."""

_NAMES = re.compile(
    "|".join(
        f"(?P<by{number}>{'|'.join(map(fnmatch.translate, patterns))})"
        for number, patterns in enumerate(OBEYED.values())
    )
)
_LIBRARIES = {
    "IPython", "PIL", "bs4", "comm", "dateutil", "duckdb", "ipykernel", "ipywidgets", "jinja2",
    "joblib", "jupyter_client", "jupyter_core", "kernel_agent", "lightgbm", "lxml", "matplotlib",
    "matplotlib_inline", "nbformat", "networkx", "numpy", "openpyxl", "packaging", "pandas",
    "plotly", "polars", "psutil", "pyarrow", "pydantic", "pytz", "requests", "scipy", "seaborn",
    "sklearn", "sqlalchemy", "statsmodels", "sympy", "tensorflow", "torch", "tornado", "tqdm",
    "traitlets", "xgboost", "yaml", "zmq",
}  # fmt: skip
_SHADOWS = (sys.stdlib_module_names - {"test", "this"}) | _LIBRARIES
"""Python started there, as for a notebook or by ``python -m``, imports these from the folder."""

_GIT = ("config", "config.worktree", "commondir", "hooks/*", "info/attributes")
_WITHIN: Mapping[str, tuple[str, ...]] = {
    "*.git": (*_GIT, *(f"modules/*/{name}" for name in _GIT), *(f"worktrees/*/{n}" for n in _GIT)),
    "*venv": ("pyvenv.cfg", "bin/*", "*/site-packages/*.pth", "*/site-packages/*customize.py"),
    "node_modules": (".bin/*", ".package-lock.json"),
}
"""What is obeyed within folders that hold much else; of others of such a name everything is."""
_NOT_WITHIN: Mapping[str, tuple[str, ...]] = {
    "*.git": ("*objects/??", "*objects/pack", "*.sample"),
    "*venv": ("lib/*/site-packages/*/*", "include"),
    "node_modules": ("[!.]*",),
}
"""What is not entered there."""

MAX_LOOKED_AT = 20_000  # entries of folders in the folder; it is done while a run ends
MAX_HELD = 500  # paths that are mounted anew for each kernel
UNSEEN = "…"
"""Stands for what was not looked at: at the end of news, or within a folder that is closed."""


@lru_cache(maxsize=8192)
def who_obeys(name: str) -> str:
    """Return the program that obeys a file of this name; empty when none does.

    Examples
    --------
    >>> who_obeys("jupyter_server_config.py"), who_obeys("sales.csv")
    ('Jupyter', '')
    """
    found = _NAMES.match(name.lower())
    return list(OBEYED)[int((found.lastgroup or "by0")[2:])] if found else ""


def _shadowed_module(path: str) -> str:
    """Return Python where a file is imported instead of a library: ``json.py``, or a package."""
    *above, name = path.split("/")
    stem = above[-1] if above and name.startswith("__init__.") else name.partition(".")[0]
    loads = name.endswith((".py", ".so")) or name.partition(".")[2] == "pyc"
    return "Python" if loads and stem in _SHADOWS else ""


def obeyed_in(folder: Path) -> tuple[Path, ...]:
    """Return the files and folders in a folder that have such a name, at any depth; no links.

    Called before a kernel starts, for what it may read there and not change. Those right in the
    folder come first; what lies in one that is returned is not returned beside it.
    """
    found: dict[str, None] = {}

    def enter(path: str) -> bool:
        if not who_obeys(path.rpartition("/")[2]):
            return True
        with suppress(OSError):
            mode = opened.status(path).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                found[path] = None
        return False

    with suppress(OSError), Folder(folder) as opened:  # it is not there, or not readable
        with os.scandir(opened.fd) as scan:
            for entry in scan:
                enter(entry.name)
        for _ in opened.files(wanted=enter, max_entries=MAX_LOOKED_AT):
            pass
    return tuple(folder / path for path in list(found)[:MAX_HELD])


class Watch:
    """Watches for files with such names in a folder that code may write.

    Parameters
    ----------
    folder
        What has such a name there now is no news.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known, _ = _beneath(folder)

    def news(self) -> tuple[str, ...]:
        """Return the files made or changed since the last look, as paths in the folder.

        The last one is :data:`UNSEEN` when there is more in the folder than is looked at.
        """
        before = self._known
        self._known, whole = _beneath(self._folder)
        news = {path for path, state in self._known.items() if before.get(path) != state}
        outermost = (p for p in news if not any(str(above) in news for above in Path(p).parents))
        return (*sorted(outermost), *(() if whole else (UNSEEN,)))


def _beneath(folder: Path) -> tuple[dict[str, tuple[int, int]], bool]:
    """Return what is obeyed in a folder, at any depth, and whether everything was looked at.

    A file with its inode and time of change, as code can set the time at which it was written, but
    not that one; a folder of such a name with its inode: what is in it stands for itself.
    """
    found: dict[str, tuple[int, int]] = {}
    looked_at = 0

    def enter(path: str) -> bool:
        nonlocal looked_at
        looked_at += 1
        if who_obeys(path.rpartition("/")[2]) and not any(_within(path)):
            with suppress(OSError):
                status = opened.status(path)
                if stat.S_ISDIR(status.st_mode):
                    found[path] = (status.st_ino, 0)
        return _is_entered(path)

    with suppress(OSError), Folder(folder) as opened:  # it may be gone by now
        for entry in (*_at_top(opened), *opened.files(wanted=enter, max_entries=MAX_LOOKED_AT)):
            state = entry.status.st_ino, entry.status.st_ctime_ns
            if stat.S_ISDIR(entry.status.st_mode):  # closed to us, another file system, or too deep
                found[f"{entry.path}/{UNSEEN}"] = state
            elif _is_obeyed(entry.path):
                found[entry.path] = state
    return found, looked_at < MAX_LOOKED_AT


def _at_top(opened: Folder) -> Iterator[Entry]:
    """Yield the files right in a folder that are obeyed: they do not hide behind many others."""
    with os.scandir(opened.fd) as scan:
        for entry in scan:
            if _is_obeyed(entry.name) and not entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    yield Entry(path=entry.name, status=opened.status(entry.name))


def _is_obeyed(path: str) -> bool:
    """Whether a program obeys a file: by its name, or as one within a folder of such a name."""
    name = path.rpartition("/")[2]
    for above, inner in _within(path):
        patterns = _of(_WITHIN, above)
        return not patterns or any(fnmatch.fnmatchcase(inner, p) for p in patterns)
    return bool(who_obeys(name) or _shadowed_module(path))


def _is_entered(path: str) -> bool:
    return not any(
        fnmatch.fnmatchcase(inner, pattern)
        for above, inner in _within(path)
        for pattern in _of(_NOT_WITHIN, above)
    )


def _within(path: str) -> Iterator[tuple[str, str]]:
    """Yield the first folder of such a name on the way to a path, and the rest of the way."""
    parts = path.lower().split("/")
    for number, part in enumerate(parts[:-1], start=1):
        if who_obeys(part):
            yield part, "/".join(parts[number:])
            return


def _of(table: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    return next((row for key, row in table.items() if fnmatch.fnmatchcase(name, key)), ())


def obeyed_line(names: Sequence[str]) -> str:
    """Return a line that names new files and the programs that obey them; empty without any.

    The names are a cell's or, from a trace, anybody's.
    """
    names = [str(name) for name in names] if isinstance(names, (list, tuple)) else []
    if not names:
        return ""
    seen = [name for name in names if name != UNSEEN]
    shown = [f"{one_line(path)} ({_by(path)})" for path in seen[:10]]
    more = [f"{len(seen) - 10} more"] if len(seen) > 10 else []
    told = (
        "Code in a cell made what programs obey in the folder in which they are started: "
        f"{', '.join([*shown, *more])}. Look at it before you start one there."
    )
    rest = (
        "The folder holds more than was looked at for files that programs obey; "
        "the rest may have some that are new."
    )
    return " ".join([*([told] if seen else []), *([rest] if UNSEEN in names else [])])


def _by(path: str) -> str:
    parts = path.split("/")
    if parts[-1] == UNSEEN:
        return "nobody could look into it"
    first = next(filter(None, map(who_obeys, parts)), "")
    return first or _shadowed_module(path) or "some program"
