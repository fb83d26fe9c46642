"""What README shows runs as it is pasted, beside the table that it names and without a model."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.command import run_command

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SCRIPTS = [code for kind, code in BLOCKS if kind == "python" and "model=" not in code]
COMMANDS = [
    line.partition("  #")[0].strip()
    for kind, code in BLOCKS
    for line in code.splitlines()
    if not kind and "kernel-agent run" in line and "--data" in line and "--" in line
]
OFFLINE = [c for c in COMMANDS if "…" not in c and "--model" not in c and "OPENAI" not in c]
MAGICS = [line for kind, code in BLOCKS for line in code.splitlines() if line.startswith("%agent ")]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "KERNEL_AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(ROOT / "example_notebooks/data/sales.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_a_script_and_a_command_without_a_model() -> None:
    assert len(SCRIPTS) == len(OFFLINE) == 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_as_it_is_pasted(
    script: str, beside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script, "README.md", "exec"), scope)
    assert str(scope["run"].status) == "answered"
    assert list(scope["run"].value.columns) == ["region", "total amount"]
    assert "north" in capsys.readouterr().out
    assert scope["run"].notebook.is_relative_to("runs")
    assert [path.name for path in beside.iterdir() if path.is_dir()] == ["runs"]


@pytest.mark.parametrize("command", OFFLINE)
def test_a_command_runs_as_it_is_pasted(command: str, beside: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/kernel-agent"
    done = run_command(beside, *arguments)
    assert done.returncode == 0
    assert "north" in done.stdout


def test_the_questions_of_the_notebook_s_lines_are_answered_without_a_model(beside: Path) -> None:
    """So that who pastes them without a key sees an answer."""
    questions = [re.sub(r"^%agent( -\w \w+| --data \S+)* ", "", line) for line in MAGICS]
    assert "Total amount per month" in questions
    for question in questions:
        assert run_command(beside, "run", question, "--data", "sales.csv").returncode == 0
