"""A cell and the notebook that it stands in, which says the kernel that is started for it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from support.application import application
from support.levels import need

HOLDS = ("bubblewrap", "namespaces")  # levels that mount the folder anew
TURN = """
import json, os, pathlib
said = []
for name in ("own.ipynb", ".ipynb_checkpoints/own.ipynb"):
    path = pathlib.Path(name)
    for work in (
        lambda: path.write_text(path.read_text().replace("boxed", "python3")),
        lambda: os.replace("other.txt", path), lambda: path.unlink(), lambda: path.rename("x"),
    ):
        try:
            work()
            said.append("done")
        except OSError:
            said.append("refused")
print(said)
"""
EDIT = """
import pathlib
path = pathlib.Path("own.ipynb")
try:
    path.write_text(path.read_text().replace("boxed", "python3"))
    print("done")
except OSError:
    print("refused")
"""


def notebook(kernel: str, *cells: str) -> str:
    made = [{"cell_type": "code", "source": source, "outputs": []} for source in cells]
    return json.dumps({"cells": made, "metadata": {"kernelspec": {"name": kernel}}, "nbformat": 4})


def prepare(work: Path) -> None:
    (work / ".ipynb_checkpoints").mkdir(parents=True)
    for path in (work / "own.ipynb", work / ".ipynb_checkpoints" / "own.ipynb"):
        path.write_text(notebook("boxed"))
    (work / "other.txt").write_text(notebook("python3"))


@pytest.mark.parametrize("level", HOLDS)
async def test_a_cell_reads_its_notebook_and_does_not_change_it(level: str, tmp_path: Path) -> None:
    need(level)
    work = tmp_path / "work"
    prepare(work)
    async with application(tmp_path, level) as app:
        assert await app.text(TURN) == f"{['refused'] * 8}\n"
        # The application saves as Jupyter Server does: in place.
        (work / "own.ipynb").write_text(notebook("boxed", "a new cell"))
        assert "a new cell" in await app.text("print(open('own.ipynb').read())")
        assert await app.text(EDIT) == "refused\n"
    assert "python3" not in (work / "own.ipynb").read_text()


@pytest.mark.parametrize("level", [*HOLDS, "landlock"])
async def test_where_a_notebook_is_not_held_its_other_kernel_is_named(
    level: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Landlock holds none; a mount ends where a program outside puts another file in its place."""
    need(level)
    work = tmp_path / "work"
    prepare(work)
    caplog.set_level(logging.WARNING)
    async with application(tmp_path, level) as app:
        if level != "landlock":
            (work / "new").write_text(notebook("boxed"))
            (work / "new").replace(work / "own.ipynb")
        said = await app.text(EDIT)
    assert said == "done\n"
    assert "own.ipynb (python3)" in caplog.text
