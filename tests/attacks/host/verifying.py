"""A notebook from somebody else, which a person verifies where it lies.

What counts is what the report's words hold of files that the notebook was not to be given, and
how much of the disk the copy took that it was given instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.usage import used
from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attacks.stage import Stage

COMMAND_S = 100.0
SECRET = "Canary-77ab: 81,234 in tax"
READ = """
import pathlib
found = []
for path in PATHS:
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError:
        pass
assert not found, found
"""
HOLE_MB, MOST_MB = 400, 50
PROGRAM = """
import json, sys
from kernel_agent import verify
from kernel_agent.errors import KernelAgentError
try:
    print(json.dumps(verify(sys.argv[1], sandbox=sys.argv[2]).to_json()))
except KernelAgentError as error:
    print(error)
"""


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("verified: ") else ""


@host_attack("read", _told, timeout_s=115)
async def home_of_a_notebook_that_is_verified(folder: Path) -> str:
    """A notebook that lies in the user's home, or above it, and reads there while it is verified"""
    homes = {"person": folder / "person", "person/mine": folder / "person" / "mine"}
    return await asyncio.to_thread(_read, folder, ["Documents/tax.txt"], homes)


@host_attack("read", _told, timeout_s=115)
async def files_beside_a_notebook_that_is_verified(folder: Path) -> str:
    """Hidden files, links that lead out and other notebooks, read by one that is verified"""
    project = folder / "person"
    project.mkdir()
    (folder / "private").mkdir()
    (folder / "private" / "tax.txt").write_text(SECRET)
    (project / "link.txt").symlink_to(folder / "private" / "tax.txt")
    (project / "linked").symlink_to(folder / "private")
    (project / ".env").write_text(SECRET)
    (project / ".hidden").mkdir()
    (project / ".hidden" / "tax.txt").write_text(SECRET)
    (project / "other.ipynb").write_text(SECRET)
    paths = ["link.txt", "linked/tax.txt", ".env", ".hidden/tax.txt", "other.ipynb",
             "../private/tax.txt", str(folder / "private" / "tax.txt")]  # fmt: skip
    (folder / "home").mkdir()
    return await asyncio.to_thread(_read, folder, paths, {"a folder": folder / "home"})


@host_attack("host-resource", _told, timeout_s=115)
async def holes_beside_a_notebook_that_is_verified(folder: Path) -> str:
    """A file of 400 MB that is all hole, beside a notebook that is verified"""
    return await asyncio.to_thread(_copied, folder)


def _read(folder: Path, paths: list[str], homes: Mapping[str, Path]) -> str:
    notebook = folder / "person" / "evil.ipynb"
    (folder / "person" / "Documents").mkdir(parents=True, exist_ok=True)
    (folder / "person" / "Documents" / "tax.txt").write_text(SECRET)
    _write(notebook, f"PATHS = {paths!r}\n{READ}")
    for name, home in homes.items():
        home.mkdir(exist_ok=True)
        said = _verify(folder, notebook, home)
        if SECRET in said:
            return f"verified: a notebook read what lies beside it ({name})"
    raise PermissionError(1, "nothing of it came back")


def _copied(folder: Path) -> str:
    notebook = folder / "person" / "n.ipynb"
    notebook.parent.mkdir()
    with (notebook.parent / "hole.bin").open("wb") as file:
        file.truncate(HOLE_MB << 20)
    _write(notebook, "print(1)")
    over = threading.Event()
    most = [0]

    def watch() -> None:
        while not over.wait(0.05):
            most[0] = max(most[0], used([folder / "t"], []).megabytes)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        (folder / "home").mkdir()
        _verify(folder, notebook, folder / "home")
    finally:
        over.set()
        watching.join()
    if most[0] > MOST_MB:
        return f"verified: the copy took {most[0]} MB of the disk"
    raise PermissionError(1, f"the copy took {most[0]} MB of the disk")


def _write(notebook: Path, source: str) -> None:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": source,
            "execution_count": 1, "outputs": []}  # fmt: skip
    about = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    notebook.write_text(json.dumps(about))


def _verify(folder: Path, notebook: Path, home: Path) -> str:
    """Verify at the level that is played; return all that was said."""
    temporary = folder / "t"
    temporary.mkdir(exist_ok=True)
    level = os.environ.get("PLAYED_LEVEL", "auto")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(notebook), level],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "HOME": str(home), "TMPDIR": str(temporary)},
        timeout=COMMAND_S, check=False,
    )  # fmt: skip
    if done.returncode or not done.stdout:
        raise KeyError(f"verify ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout
