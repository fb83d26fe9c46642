"""A person with a project whose settings file sets what only they may, at a terminal or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from test_approval_terminal import COMMAND, Terminal, environment

FILE = "kernel-agent.toml"
UNTRUSTED = 'approve = "always"\nmax_steps = 3\napi_key_env = "X\\u001b[2K"\n'
PROMPT = "Use them? [y/n]> "
DENIED = "denied"  # `approve = "always"` holds, and nobody is there to be asked


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text(UNTRUSTED)
    reply = {"content": "Next.\n```python\nfinal_answer(6 * 7)\n```"}
    (tmp_path / "s.jsonl").write_text(json.dumps(reply) + "\n")
    (tmp_path / "home").mkdir()
    return tmp_path


def words(*more: str) -> list[str]:
    return ["run", "x", "--model=scripted:s.jsonl", *more]


def without_terminal(project: Path, *more: str, **changes: str) -> subprocess.CompletedProcess[str]:
    changes = {"HOME": str(project / "home"), **changes}
    return subprocess.run(
        [*COMMAND, *words(*more)], cwd=project, env=environment(**changes), text=True,
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip


def terminal(project: Path, *more: str) -> Terminal:
    return Terminal(project, *words(*more), HOME=str(project / "home"))


def test_without_a_terminal_nothing_is_sent_and_one_line_says_what_to_do(project: Path) -> None:
    done = without_terminal(project)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "sets api_key_env, approve, which a file in the working directory" in done.stderr
    assert not (project / "runs").exists()
    told = json.loads(without_terminal(project, "--json").stdout)
    assert told["status"] == "usage_error"
    assert "kernel-agent.toml sets" in told["message"]


def test_a_file_that_the_user_names_needs_no_answer(project: Path) -> None:
    done = without_terminal(project, KERNEL_AGENT_CONFIG=FILE)
    assert DENIED in done.stdout


@pytest.mark.long
def test_a_yes_holds_until_the_file_changes_and_what_is_shown_hides_nothing(project: Path) -> None:
    with terminal(project) as first:
        shown = first.wait_for(PROMPT)
        first.type("\r")  # neither yes nor no
        first.wait_for(PROMPT)
        first.type("y\r")
        first.answer("y\r")  # to the cell: approve = "always" holds
        assert first.finish() == 0
    assert 'approve = "always"' in shown
    assert "max_steps" not in shown  # 3 is less than 30
    assert "\x1b[2K" not in shown
    assert "X\\\\x1b[2K" in shown or "X\\u001b[2K" in shown
    assert f"Settings: api_key_env, approve, max_steps from {project / FILE}." in first.seen
    assert DENIED in without_terminal(project).stdout
    (project / FILE).write_text(UNTRUSTED + 'sandbox = "none"\n')
    assert without_terminal(project).returncode == 2
    with terminal(project) as again:
        assert 'sandbox = "none"' in again.wait_for(PROMPT)


def test_a_no_is_remembered_and_the_harmless_rest_holds(project: Path) -> None:
    with terminal(project) as first:
        first.wait_for(PROMPT)
        first.type("n\r")
        assert first.finish() == 0
    assert "not api_key_env, approve, as you have answered" in first.seen
    done = without_terminal(project)
    assert done.returncode == 0
    assert "Settings: max_steps from" in done.stdout


def test_ctrl_c_at_the_question_stops_and_nothing_is_remembered(project: Path) -> None:
    with terminal(project) as first:
        first.wait_for(PROMPT)
        first.process.send_signal(signal.SIGINT)
        assert first.finish() == 130
    assert without_terminal(project).returncode == 2


def test_evaluations_and_the_doctor_ask_as_well(project: Path) -> None:
    (project / "t.jsonl").write_text('{"id": "a", "task": "x", "check": {"kind": "exact"}}\n')
    for command in (["eval", "t.jsonl"], ["doctor"]):
        with Terminal(project, *command, HOME=str(project / "home")) as asked:
            asked.wait_for(PROMPT)
            asked.process.send_signal(signal.SIGINT)
            assert asked.finish() == 130
        done = subprocess.run(
            [*COMMAND, *command], cwd=project, env=environment(HOME=str(project / "home")),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "kernel-agent.toml sets api_key_env, approve" in done.stdout + done.stderr
        assert done.returncode == (2 if command[0] == "eval" else 1)


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
    words = ("eval", "t.jsonl", "--model", "offline", "--sandbox", "none", "--out", "out")
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


def test_a_session_in_python_asks_nothing_and_fails_before_it_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_agent import Session
    from kernel_agent.errors import UntrustedSettings

    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project / "home"))
    with pytest.raises(UntrustedSettings, match="approve"):
        Session(model="offline")
    assert not (project / "runs").exists()


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
