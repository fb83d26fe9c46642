"""Questions at a real terminal: what is shown, what can be typed, what Ctrl-C does."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from support.command import run_command

from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart, Step

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "kernel_agent"]
TOOLS = '''\
from pathlib import Path
from kernel_agent import tool

@tool(effects=True)
def send_mail(to: str, body: str = "") -> str:
    """Send a mail."""
    with Path("sent").open("a") as sent:
        sent.write(to + "\\n")
    return "sent"
'''
HIDDEN = "x\x1b]0;owned\x07\x1b[2K"


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "KERNEL_AGENT_"))}
    added = {"PYTHONPATH": str(ROOT), "KERNEL_AGENT_FORMAT": "fenced", "TERM": "dumb"}
    return {**kept, **added, **changes}


class Terminal:
    """A pseudoterminal with the command in it; reads what is shown, types, presses Ctrl-C."""

    def __init__(self, folder: Path, *arguments: str, **changes: str) -> None:
        self.fd, theirs = pty.openpty()
        self.seen = ""
        self._at = 0  # behind what was waited for last
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=folder, env=environment(**changes),
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)
        self.process.kill()
        self.process.wait()

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def answer(self, text: str) -> str:
        """Wait for the prompt, type, and return what had been shown before it."""
        shown = self.wait_for("Decide> ")
        time.sleep(0.1)  # a moment: a person takes longer
        self.type(text)
        return shown

    def wait_for(self, text: str) -> str:
        start, end = self._at, time.monotonic() + 40
        while text not in self.seen[start:]:
            if time.monotonic() > end or not self._read():
                pytest.fail(f"{text!r} was never shown in {self.seen[start:]!r}")
        self._at = self.seen.index(text, start) + len(text)  # more may have been read already
        return self.seen[start:]

    def finish(self) -> int:
        while self._read():
            pass
        code = self.process.wait(30)
        assert code >= 0, self.seen  # what it says of its own end
        return code

    def _read(self) -> bool:
        if not select.select([self.fd], [], [], 30)[0]:
            return False
        try:
            piece = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += piece.decode("utf-8", "replace")
        return bool(piece)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "mail_tools.py").write_text(TOOLS)
    return tmp_path


def arguments(folder: Path, *cells: str, more: tuple[str, ...] = ()) -> list[str]:
    replies = [{"content": f"Next.\n```python\n{cell}\n```"} for cell in cells]
    (folder / "s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in replies))
    tools = "--tools=mail_tools.py"
    # A kernel takes a second to start, and asks in the same way.
    level = () if any("import" in cell for cell in cells) else ("--sandbox=interpreter",)
    return ["run", "x", "--model=scripted:s.jsonl", tools, "--out=out", *level, *more]


def steps(folder: Path) -> list[Step]:
    return [r for r in read_trace(folder / "out" / "trace.jsonl") if isinstance(r, Step)]


def sent(folder: Path) -> list[str]:
    file = folder / "sent"
    return file.read_text().split() if file.exists() else []


ANSWER = "final_answer('done')"
FENCED = {"KERNEL_AGENT_FORMAT": "fenced", "TERM": "dumb"}


@pytest.mark.parametrize("term", [pytest.param("dumb", marks=pytest.mark.long), "xterm-256color"])
def test_a_call_is_shown_and_asked_about_at_the_terminal(folder, term):
    """Harmless, with its reason; what is no answer is asked again; a reason reaches the model."""
    calls = (f"body = {HIDDEN!r}\nsend_mail('anna', body=body)", "send_mail('bert')", ANSWER)
    with Terminal(folder, *arguments(folder, *calls), TERM=term) as terminal:
        shown = terminal.answer("what?\n")
        assert "May send_mail be called?" in shown
        terminal.answer("y\n")
        terminal.answer("n he is away\n")
        assert terminal.finish() == 0
    assert "\x1b]0;" not in terminal.seen
    assert "owned" in terminal.seen
    assert "was denied by a person" in terminal.seen
    assert sent(folder) == ["anna"]
    decisions = [c.decision for s in steps(folder) for c in s.result.calls]
    assert [(d.allowed, d.by, d.reason) for d in decisions] == [
        (True, "person", ""), (False, "person", "he is away"),
    ]  # fmt: skip


@pytest.mark.long
def test_a_tool_is_allowed_for_the_rest_of_the_run(folder):
    """One question for many calls."""
    loop = "for n in range(5):\n    send_mail(f'to{n}')"
    with Terminal(folder, *arguments(folder, loop, ANSWER)) as terminal:
        terminal.answer("a\n")
        assert terminal.finish() == 0
    assert len(sent(folder)) == 5


@pytest.mark.long
def test_long_arguments_can_be_seen_whole(folder):
    """What is cut says so, and v shows it."""
    code = "send_mail('anna', body='a' * 3000 + 'THE' + 'END' + 'b' * 3000)"
    with Terminal(folder, *arguments(folder, code, ANSWER)) as terminal:
        shown = terminal.answer("v\n")
        assert "characters left out" in shown
        assert "THEEND" not in shown
        assert "THEEND" in terminal.answer("n\n")
        assert terminal.finish() == 0


def test_a_cell_is_changed_in_an_editor_before_it_runs(folder):
    """The changed code is shown and asked about again, and is what ran."""
    editor = folder / "ed.sh"
    editor.write_text('#!/bin/sh\nsed -i s/anna/berta/ "$1"\n')
    editor.chmod(0o755)
    cells = ("name = 'anna'", "final_answer(name)")
    command = arguments(folder, *cells, more=("--approve=always",))
    with Terminal(folder, *command, EDITOR=str(editor)) as terminal:
        assert "May this cell run?" in terminal.answer("e\n")
        assert "name = 'berta'" in terminal.answer("y\n")
        terminal.answer("y\n")
        assert terminal.finish() == 0
    first, last = steps(folder)
    assert (first.code, first.decision.original) == ("name = 'berta'", "name = 'anna'")
    assert last.result.answer.value == "berta"


@pytest.mark.long
def test_an_editor_that_fails_changes_nothing(folder):
    """One line, and the question again."""
    command = arguments(folder, "final_answer(1)", more=("--approve=always",))
    with Terminal(folder, *command, EDITOR="false", VISUAL="") as terminal:
        terminal.answer("e\n")
        assert "stays as it was" in terminal.answer("y\n")
        assert terminal.finish() == 0
    assert steps(folder)[0].decision.original is None


def test_ctrl_c_at_the_question_stops_the_run(folder):
    """Interrupted, the call not made, trace and notebook complete."""
    with Terminal(folder, *arguments(folder, "send_mail('anna')", ANSWER)) as terminal:
        terminal.wait_for("Decide> ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == 130
    assert "Stopped before an answer" in terminal.seen
    assert sent(folder) == []
    assert not steps(folder)[0].result.calls[0].decision.allowed
    assert (folder / "out" / "run.ipynb").is_file()


def test_the_end_of_input_means_no(folder):
    """Ctrl-D answers the question and does not end the run."""
    with Terminal(folder, *arguments(folder, "send_mail('anna')", ANSWER)) as terminal:
        terminal.answer("\x04")
        assert terminal.finish() == 0
    assert sent(folder) == []


def test_what_was_typed_before_the_question_is_no_answer_to_it(folder):
    """A y that was meant for something else sends no mail."""
    slow = "import time\nprint('wait' + 'ing', flush=True)\ntime.sleep(2)\nsend_mail('anna')"
    with Terminal(folder, *arguments(folder, slow, ANSWER)) as terminal:
        terminal.wait_for("Step 1")
        terminal.type("y\n")
        terminal.answer("n\n")
        assert terminal.finish() == 0
    assert sent(folder) == []


def test_a_model_that_insists_ends_with_exit_code_6(folder):
    """And is asked about once."""
    with Terminal(folder, *arguments(folder, *["send_mail('anna')"] * 4)) as terminal:
        terminal.answer("n\n")
        assert terminal.finish() == 6
    assert terminal.seen.count("Decide> ") == 1
    assert "denied" in terminal.seen


@pytest.mark.parametrize("how", [(), ("--json",), ("--quiet",)])
def test_without_a_terminal_asking_means_no_and_is_said_once(folder, how):
    """Also with --json and --quiet; the object lists the decisions."""
    tries = ["send_mail('anna')"] * 4
    done = run_command(folder, *arguments(folder, *tries, more=how), stdin="y\ny\ny\n", **FENCED)
    assert done.returncode == 6
    assert sent(folder) == []
    said = done.stdout + done.stderr
    assert said.count("--approve-tool NAME=allow") == 1
    if "--json" in how:
        result = json.loads(done.stdout)
        assert result["status"] == "denied"
        rows = result["decisions"]
        assert [(r["kind"], r["name"], r["allowed"]) for r in rows] == [
            ("call", "send_mail", False)
        ] * 3


def test_a_single_tool_is_allowed_or_denied_on_the_command_line(folder):
    """And what is no verdict is wrong use."""
    options = ("--approve-tool", "send_mail=allow")
    asked = arguments(folder, "send_mail('anna')", ANSWER, more=options)
    done = run_command(folder, *asked, **FENCED)
    assert (done.returncode, sent(folder)) == (0, ["anna"])
    start = next(r for r in read_trace(folder / "out" / "trace.jsonl") if isinstance(r, RunStart))
    assert start.config["approve_tools"] == {"send_mail": "allow"}
    for wrong in ("send_mail", "send_mail=perhaps"):
        done = run_command(folder, "run", "x", "--approve-tool", wrong, "--out", "other")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "other").exists()


def test_the_command_line_goes_before_the_file_tool_by_tool(folder):
    """A tool that the file denies stays denied when another one is allowed by an option."""
    (folder / "kernel-agent.toml").write_text('[approve_tools]\nsend_mail = "deny"\n')
    options = ("--approve-tool", "send_male=allow")
    asked = arguments(folder, "send_mail('anna')", ANSWER, more=options)
    done = run_command(folder, *asked, **FENCED, KERNEL_AGENT_CONFIG="kernel-agent.toml")
    assert (done.returncode, sent(folder)) == (0, [])
    assert "the settings deny this tool" in done.stdout
    assert "there is none. Did you mean send_mail?" in done.stdout


@pytest.mark.long
def test_show_tells_the_decisions_of_a_past_run(folder):
    """In the words of the run."""
    with Terminal(folder, *arguments(folder, "send_mail('anna')", ANSWER)) as terminal:
        terminal.answer("n not her\n")
        assert terminal.finish() == 0
    done = run_command(folder, "show", "out")
    assert "! send_mail (call 1) was denied by a person" in done.stdout
    assert "not her" in done.stdout
