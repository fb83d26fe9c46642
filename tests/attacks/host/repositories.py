"""A project in which a cell of a whole command changes what git and other programs obey.

Afterwards a person stands in a repository one folder down and asks for ``git status``. To be told
which file was made or changed is what the program promises where a level cannot hold it; to run the
cell's command without a word is what it must never come to.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

COMMAND_S = 150.0
PLANT = """
try:
    with open("lib/.git/config", "a") as file:
        file.write(PLANTED)
except OSError:
    pass
"""
MOVE = """
import os
from pathlib import Path
try:
    os.rename("lib", "moved")
    Path("lib/.git").mkdir(parents=True)
    for name in ("objects", "refs"):
        Path("lib/.git", name).mkdir()
    Path("lib/.git/HEAD").write_text("ref: refs/heads/main\\n")
    Path("lib/.git/config").write_text(PLANTED)
except OSError:
    pass
"""


def ran_in_silence(stage: Stage, report: Report) -> str:
    """Tell that git ran the cell's command and that nobody was told of the file."""
    return report.text if report.text.startswith("git ran") else ""


@host_attack("next-command", ran_in_silence, timeout_s=180)
async def repository_one_folder_down(folder: Path) -> str:
    """The configuration of a repository one folder down, edited in place, for `git status`"""
    return await asyncio.to_thread(_next_status, folder, PLANT)


@host_attack("next-command", ran_in_silence, timeout_s=180)
async def repository_in_the_place_of_another(folder: Path) -> str:
    """Another repository put in its place, for `git status`"""
    return await asyncio.to_thread(_next_status, folder, MOVE)


THERE = (
    "lib/.git/config", "lib/.git/modules/inner/config", "app/.vscode/tasks.json", "web/Makefile",
    ".vscode/settings.json", "rust/.cargo/config.toml",
)  # fmt: skip
"""What programs obey and a project holds before."""

MADE = (
    "lib/.git/hooks/post-checkout", "lib/.git/info/attributes", "web/.husky/pre-commit",
    "web/jest.config.js", "web/.pnp.cjs", "book/pandas.py", "book/numpy/__init__.py", "ansible.cfg",
    "paper/latexmkrc", "java/.mvn/extensions.xml", "java/build.gradle",
    "app/.streamlit/config.toml",
    "nix/flake.nix", "r/.ghci", "m/startup.m", "m/.octaverc", "box/Vagrantfile", "x/.bazelrc",
    "x/.iex.exs", "x/.pryrc", "x/.envrc", "deep/a/b/c/d/e/.git/config", "tests/conftest.py",
)  # fmt: skip
CHANGE = """
from pathlib import Path
for path in THERE + MADE:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as file:
            file.write("PLANTED")
    except OSError:
        pass
"""


def changed_in_silence(stage: Stage, report: Report) -> str:
    """Tell what a cell made or changed that programs obey, and that nobody was told of."""
    return report.text if report.text.startswith("nobody was told") else ""


@host_attack("next-command", changed_in_silence, timeout_s=180)
async def what_programs_obey_at_any_depth(folder: Path) -> str:
    """Files that git, editors, build tools and interpreters obey, made or changed at any depth"""
    return await asyncio.to_thread(_change, folder)


def _change(folder: Path) -> str:
    project = folder / "project"
    for path in THERE:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("[core]\n")
    named = set(_run(folder, f"THERE, MADE = {THERE!r}, {MADE!r}\n{CHANGE}"))
    changed = [
        path
        for path in THERE + MADE
        if (project / path).is_file() and "PLANTED" in (project / path).read_text()
    ]
    silent = [p for p in changed if not {p, *map(str, Path(p).parents)} & named]
    if silent:
        return f"nobody was told of {', '.join(silent)}"
    return f"{len(changed)} were made or changed, and named"


def _next_status(folder: Path, cell: str) -> str:
    if shutil.which("git") is None:
        return "git is not here"
    project, canary, home = folder / "project", folder / "canary", folder / "person"
    library = project / "lib"
    library.mkdir(parents=True)
    home.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=library, check=True)
    planted = f'[core]\n\tfsmonitor = "touch {canary}; false"\n'
    named = [path for path in _run(folder, f"PLANTED = {planted!r}\n{cell}") if _is_git(path)]
    subprocess.run(
        ["git", "status"], cwd=library, env={**os.environ, "HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    if not canary.exists():
        return "nothing of the cell's ran"
    return "the person was told" if named else "git ran the cell's command, and nobody was told"


def _is_git(path: str) -> bool:
    return path.startswith("lib/.git")


def _run(folder: Path, cell: str) -> list[str]:
    """Run a cell in the project by the whole command; return the paths that were named."""
    reply = f"```python\n{cell}\nfinal_answer(7)\n```"
    (folder / "replies.jsonl").write_text(json.dumps({"content": reply}) + "\n")
    command = ["run", "How many?", "--model", "scripted:replies.jsonl", "--format", "fenced",
               "--sandbox", os.environ.get("PLAYED_LEVEL", "auto"),
               "--out", "project", "--json"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "kernel_agent", *command], cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the command ended with {done.returncode}: {done.stderr[-300:]}")
    return list(json.loads(done.stdout)["obeyed"])
