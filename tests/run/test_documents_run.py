"""What the documents show runs as it is pasted, beside the tables that they name, without a model.

Of a page the blocks ``console`` and ``python`` run one after another, in one folder and one
namespace, as a reader would run them. One that cannot run offline begins with ``# needs:`` and the
reason: that line is seen by who reads it, and harms nobody who pastes it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.command import environment, run_command

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "example_notebooks/data"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOUND = {page: BLOCK.findall(page.read_text()) for page in PAGES}
NEEDS = {
    "a key",  # of a model's endpoint
    "the network",
    "uv",
    "a collector",
    "a database",
    "QEMU",
    "Jupyter",
    "a cell of such a run",
    "a notebook's cell",
    "a class of yours",
    "the extra smolagents",
}
MAGICS = [
    line
    for blocks in FOUND.values()
    for kind, code in blocks
    for line in code.splitlines()
    if kind == "ipython" and line.startswith("%agent ") and "--tools" not in line
]


def needs(code: str) -> str:
    """Return what a block says that it needs; nothing: it runs here."""
    first = code.partition("\n")[0]
    return first.removeprefix("# needs: ") if first.startswith("# needs: ") else ""


RUNNING = {
    page: [(kind, code) for kind, code in blocks if kind in {"console", "python"}]
    for page, blocks in FOUND.items()
}
QUICK = {"README", "install"}  # what is tried first
HERE = {p: [b for b in blocks if not needs(b[1])] for p, blocks in RUNNING.items()}


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder with what the documents name, and with the clone's folders."""
    (tmp_path / "home/weather").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "KERNEL_AGENT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    there = tmp_path / "there"
    (there / ".venv/bin").mkdir(parents=True)
    program = there / ".venv/bin/kernel-agent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kernel_agent "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    shutil.copy(EXAMPLES / "sales.csv", there)
    shutil.copy(EXAMPLES / "seattle-weather.csv", tmp_path / "home/weather/rain.csv")
    for name in ("example_notebooks", "example_tasks", "example_scripts"):
        shutil.copytree(ROOT / name, there / name)
    with closing(sqlite3.connect(there / "shop.db")) as database:
        database.execute("create table sales (region text, amount real)")
    (there / "data").mkdir()
    shutil.copy(there / "shop.db", there / "data")
    (there / "kernel-agent.toml").write_text("max_steps = 20\n")
    monkeypatch.chdir(there)
    return there


def run_shell(code: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(code: str, scope: dict[str, Any], folder: Path) -> None:
    """Run it as a cell of a notebook is run, and the tests that it defines as pytest runs them."""
    before = set(scope)
    compiled = compile(code, "shown", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    _waited(eval(compiled, scope))
    for name in set(scope) - before:
        if name.startswith("test_"):
            wanted = inspect.signature(scope[name]).parameters
            _waited(scope[name](**({"tmp_path": folder} if "tmp_path" in wanted else {})))


def _waited(value: Any) -> None:
    if inspect.iscoroutine(value):
        asyncio.run(value)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[] if page.stem in QUICK else [pytest.mark.long])
        for page in PAGES
        if HERE[page]
    ],
)
def test_the_blocks_of_a_page_run_as_they_are_pasted(page: Path, beside: Path) -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    for kind, code in HERE[page]:
        if kind == "console":
            run_shell(code)
        else:
            run_python(code, scope, beside / "made")


def test_what_does_not_run_here_says_why() -> None:
    reasons = {needs(code) for blocks in RUNNING.values() for _, code in blocks} - {""}
    assert {each for one in reasons for each in re.split(r", | and ", one)} <= NEEDS


def test_what_a_reader_pastes_has_nothing_to_fill_in() -> None:
    """An ellipsis stands only in a block that says what it needs."""
    assert [code for blocks in HERE.values() for _, code in blocks if "…" in code] == []


def test_no_block_hides_behind_another_kind() -> None:
    """A command or Python that is shown is told to be one, so that it is run."""
    shown = [(page.stem, kind, code) for page, found in FOUND.items() for kind, code in found]
    kinds = {kind for _, kind, _ in shown}
    assert kinds <= {"", "console", "python", "ipython", "toml", "yaml", "json"}
    plain = [(stem, code) for stem, kind, code in shown if kind == ""]
    hidden = re.compile(r"^(kernel-agent |pip |make |import |from \w+ import )", re.MULTILINE)
    assert [stem for stem, code in plain if hidden.search(code)] == []


def test_the_readme_shows_a_script_and_a_command_without_a_model() -> None:
    kinds = [kind for kind, _ in HERE[ROOT / "README.md"]]
    assert {"python", "console"} <= set(kinds)


def test_the_script_of_the_readme_answers(beside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = [code for kind, code in HERE[ROOT / "README.md"] if kind == "python"]
    scope: dict[str, Any] = {"__name__": "__main__"}
    run_python(script, scope, beside)
    assert str(scope["run"].status) == "answered"
    assert list(scope["run"].value.columns) == ["region", "total amount"]
    assert "north" in capsys.readouterr().out
    assert scope["run"].notebook.is_relative_to("runs")


@pytest.mark.long
def test_the_questions_of_the_notebook_s_lines_are_answered_without_a_model(beside: Path) -> None:
    """So that who pastes them without a key sees an answer."""
    questions = {re.sub(r"^%agent( -\w \w+| --data \S+)* ", "", line) for line in MAGICS}
    assert "Total amount per month" in questions
    for question in questions:
        assert run_command(beside, "run", question, "--data", "sales.csv").returncode == 0
