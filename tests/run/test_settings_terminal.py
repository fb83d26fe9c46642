"""A person in a folder of somebody else: its settings, its tasks, its modules."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from test_approval_terminal import COMMAND, Terminal, environment

FILE = "kernel-agent.toml"
PROMPT = "Use them? [y/n]> "
DENIED = "denied"  # `approve = "always"` holds, and nobody is there to be asked


@pytest.mark.long
def test_its_settings_file_is_named_in_one_line_and_holds_when_the_person_names_it(
    tmp_path: Path,
) -> None:
    (tmp_path / FILE).write_text('approve = "always"\n')
    reply = {"content": "Next.\n```python\nfinal_answer(6 * 7)\n```"}
    (tmp_path / "s.jsonl").write_text(json.dumps(reply) + "\n")

    def run(**named: str) -> str:
        done = subprocess.run(
            [*COMMAND, "run", "x", "--model=scripted:s.jsonl"], cwd=tmp_path, text=True,
            env=environment(HOME=str(tmp_path), **named), stdin=subprocess.DEVNULL,
            capture_output=True, check=False,
        )  # fmt: skip
        return " ".join(done.stdout.split())

    unnamed, named = run(), run(KERNEL_AGENT_CONFIG=FILE)
    assert unnamed.count("kernel-agent.toml in the working directory is not read") == 1
    assert "42" in unnamed
    assert DENIED not in unnamed
    assert DENIED in named
    assert "is not read" not in named


def test_a_file_of_tasks_that_reaches_further_is_asked_about_once(tmp_path: Path) -> None:
    """Without a terminal: one line, exit code 2, and nothing of it was read or run."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    project = tmp_path / "project"
    (tmp_path / "own.csv").write_text("a\n1\n")
    (project / "evil.py").write_text("open('ran', 'w').close()\n")
    task = {"id": "a", "task": "How many rows?", "data": "../own.csv", "tools": "evil.py",
            "answer": 1, "check": "number"}  # fmt: skip
    (project / "t.jsonl").write_text(json.dumps(task))
    words = ("eval", "t.jsonl", "--model", "offline", "--sandbox", "interpreter", "--out", "out")
    home = {"HOME": str(tmp_path / "home")}

    def without() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words], cwd=project, env=environment(**home), text=True,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip

    first = without()
    assert first.returncode == 2
    assert first.stderr.count("\n") == 1
    assert f"reads {tmp_path / 'own.csv'} and 1 more, which needs your word" in first.stderr
    assert not (project / "ran").exists()
    assert not (project / "out").exists()
    with Terminal(project, *words, **home) as asked:
        shown = asked.wait_for(PROMPT)
        asked.type("n\r")
        assert asked.finish() == 2
    assert f"    runs {project / 'evil.py'}" in shown
    assert f"    reads {tmp_path / 'own.csv'}" in shown
    assert "which you have refused" in without().stderr
    assert not (project / "ran").exists()
    (project / "evil.py").write_text("open('ran', 'w').close()\nx = 1\n")
    with Terminal(project, *words, **home) as again:
        again.wait_for(PROMPT)
        again.type("y\r")
        again.finish()
    assert (project / "ran").exists()


# --- modules in the working directory ----------------------------------------------------------


@pytest.mark.parametrize("command", [["show", "."], ["export", "."], ["--version"]])
def test_python_m_imports_none_of_its_modules_from_the_working_directory(
    tmp_path: Path, command: list[str]
) -> None:
    """What Python itself imports before any line of ours is Python's: `python -P -m`."""
    for name in ("json", "typing", "typer", "rich", "dataclasses", "hashlib", "pydantic", "click"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    subprocess.run(
        [*COMMAND, *command], cwd=tmp_path, capture_output=True, check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"},
    )  # fmt: skip
    assert not (tmp_path / "ran").exists()


@pytest.mark.long
def test_a_report_obeys_no_matplotlibrc_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("figure.facecolor: red\n")
    code = (
        "from kernel_agent.evaluation.plots import _figure\n"
        "import os; print(_figure(1, columns=1)[0].get_facecolor()[:3], os.getcwd())"
    )
    done = subprocess.run(
        [*COMMAND[:1], "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env=environment(),
    )  # fmt: skip
    assert done.stdout.split(") ") == ["(1.0, 1.0, 1.0", f"{tmp_path}\n"]
