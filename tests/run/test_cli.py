"""The command, as a user's shell starts it: what it prints, what it leaves, how it exits."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import nbformat
import pytest
from support.command import environment
from support.command import run_command as run
from support.waiting import wait_until

from kernel_agent.sandbox.chooser import MODULES

FORMATS = ("fenced", "envelope", "tool", "json")
ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "kernel_agent"]
TABLE = "month,sold\nMay,3\nJune,5\n"
LOAD = "Read it.\n```python\nimport pandas as pd\ndf = pd.read_csv('data/sales.csv')\ndf\n```"
PLOT = "```python\nimport matplotlib.pyplot as plt\ndf.plot.bar()\nplt.savefig('sold.png')\n```"
ANSWER = "```python\nfinal_answer({'best': 'June', 'share': float('nan')})\n```"
PRINT = "```python\nprint(1)\n```"
PURE = ("--sandbox", "interpreter")  # starts in a moment, for what is not about a kernel
# What it prints stands nowhere in its source, which is shown before it runs.
WAIT = "```python\nkept = 1\nimport time\nprint('wait' + 'ing', flush=True)\ntime.sleep(60)\n```"


def start(folder: Path, *arguments: str, **streams) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environment(), text=True, **streams
    )


def script(folder: Path, *replies: str | dict, name: str = "script.jsonl") -> str:
    """Write replies into a file and return the model that plays them back."""
    lines = [r if isinstance(r, dict) else {"content": r} for r in replies]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"--model=scripted:{name}"


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line of an error, beside notices that a view may show before it."""
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("! ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("kernel-agent: ")
    return lines[0]


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "sales.csv").write_text(TABLE)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Return the folder of a finished run and what was printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "sales.csv").write_text(TABLE)
    model = script(folder, LOAD, PLOT, ANSWER)
    done = run(folder, "run", "Which month?", "--data", "sales.csv", model, "--out", "out")
    return folder / "out", done


# --- a run -------------------------------------------------------------------------------------


def test_a_run_shows_its_steps_its_answer_and_where_everything_is(finished):
    """Plain lines where there is no terminal; trace, notebook, data and picture are left."""
    out, done = finished
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    said = ["Task:  Which month?", "Sandbox: ", "--- Step 1 ---", "Read it.", "pd.read_csv",
            "June", "--- Step 2 ---", "Figure: sold.png", "\nAnswer\n", "Notebook: out/run.ipynb",
            "Trace:    out/trace.jsonl", "Files:    sold.png",
            "Page:     kernel-agent show --html out"]  # fmt: skip
    places = [done.stdout.index(text) for text in said]
    assert places == sorted(places)
    left = {path.name for path in out.iterdir()} - {"run.html"}  # which another test has made
    assert left == {"data", "run.ipynb", "sold.png", "trace.jsonl"}
    nbformat.validate(nbformat.read(out / "run.ipynb", as_version=4))


def test_json_is_one_strict_object_on_stdout(folder):
    """With everything that a script needs; the steps go to the error channel."""
    done = run(folder, "run", "x", "--data=sales.csv", script(folder, LOAD, ANSWER), "--json")
    result = json.loads(done.stdout, parse_constant=pytest.fail)
    assert done.stdout.count("\n") == 1
    assert "--- Step 1 ---" in done.stderr
    assert result["status"] == "answered"
    assert result["answer"] == {"best": "June", "share": None}
    assert result["steps"] == 2
    assert result["usage"]["calls"] == 2
    assert result["sandbox"] != "none"
    assert result["sandbox_report"]["level"] == result["sandbox"]
    assert all(result["sandbox_report"]["report"]["holds"][x] for x in ("files", "network"))
    assert result["seconds"] > 0
    assert (folder / result["trace"]).is_file()
    assert (folder / result["notebook"]).is_file()


def test_quiet_prints_the_answer_only(folder):
    """So that it can be used in a pipe; the task may come from one, too."""
    model = script(folder, "```python\nfinal_answer('It is \\x1b[31mJune\\x1b[0m.')\n```")
    done = run(folder, "run", model, "--quiet", stdin="Which month?\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "It is June.\n", "")


def test_without_a_configured_model_the_offline_analyst_answers_and_this_is_said(folder):
    """Nobody takes rules for a model."""
    done = run(folder, "run", "How many rows?", "--data", "sales.csv")
    assert "No model is configured" in done.stdout
    assert done.returncode == 0
    assert "2" in done.stdout[done.stdout.index("\nAnswer\n") :]


def test_a_limit_ends_a_run_with_what_was_achieved(folder):
    """Its own exit code, its own status, and the last observation as the partial result."""
    done = run(folder, "run", "x", "--data=sales.csv", script(folder, LOAD), "--max-steps=1")
    assert done.returncode == 3
    assert "Not answered: the limit of 1 step was reached" in done.stdout
    assert "Achieved so far:" in done.stdout
    assert "Answer" not in done.stdout


def test_a_script_that_runs_out_is_a_model_error_and_loses_nothing(folder):
    """The step before it is in the trace and in the notebook."""
    model = script(folder, LOAD)
    done = run(folder, "run", "x", "--data=sales.csv", model, "--out=out", "--quiet")
    assert "not answered (model_error)" in complaint(done, 4)
    assert "pd.read_csv" in (folder / "out" / "run.ipynb").read_text()
    assert '"model_error"' in (folder / "out" / "trace.jsonl").read_text().splitlines()[-1]


def test_a_module_of_tools_can_be_called(folder):
    """Functions of the user's, by name, from the cell."""
    (folder / "mine.py").write_text(
        "from kernel_agent import tool\n\n\n@tool\ndef double(n: int) -> int:\n"
        '    """Double a number."""\n    return 2 * n\n'
    )
    model = script(folder, "```python\nfinal_answer(double(21))\n```")
    done = run(folder, "run", "x", model, "--tools", "mine", "--quiet")
    assert (done.stdout, done.returncode) == ("42\n", 0)


# --- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_keeps_everything(folder, number):
    """Exit code 130, a complete trace, a notebook."""
    acting = WAIT.replace("import time", "open('here', 'w').close()\nimport time")
    process = start(
        folder, "run", "x", script(folder, acting), "--out=out", "--json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_until((folder / "out" / "here").exists)
    process.send_signal(number)
    shown, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(shown)["status"] == "interrupted"
    assert '"interrupted"' in (folder / "out" / "trace.jsonl").read_text().splitlines()[-1]
    assert "kept = 1" in (folder / "out" / "run.ipynb").read_text()


@pytest.mark.long
def test_a_reader_who_leaves_ends_nothing(folder):
    """As in ``| head -1``: no traceback, and the run is kept."""
    process = start(
        folder, "run", "x", *PURE, script(folder, PRINT, ANSWER), "--out=out",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(20) == 0
    assert (folder / "out" / "run.ipynb").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_said_and_the_run_is_kept(folder):
    """A full disk behind the redirection costs the display only."""
    with Path("/dev/full").open("w") as full:
        process = start(
            folder, "run", "x", *PURE, script(folder, PRINT, ANSWER), "--out=out",
            stdout=full, stderr=subprocess.PIPE,
        )  # fmt: skip
        _, error = process.communicate(timeout=30)
    assert process.returncode == 2
    assert error == "kernel-agent: The output could not be written: No space left on device.\n"
    assert (folder / "out" / "run.ipynb").is_file()


@pytest.mark.long
def test_a_closed_standard_output_costs_the_display_only(folder):
    """As under some schedulers, or with ``>&-``."""
    arguments = ["run", "x", *PURE, script(folder, PRINT, ANSWER), "--out=out"]
    command = f"{shlex.join([*COMMAND, *arguments])} >&- 2>&-"
    done = subprocess.run(command, shell=True, cwd=folder, env=environment(), check=False)
    assert done.returncode == 0
    assert (folder / "out" / "run.ipynb").is_file()


def test_too_little_memory_for_a_kernel_is_said_with_what_is_enough(folder):
    """What a kernel says that could not load its libraries helps nobody."""
    done = run(folder, "run", "x", script(folder, ANSWER), "--memory-mb=60", "--out=out")
    line = complaint(done, 5)
    assert "60 MB of memory may be too little: give it --memory-mb 1000 or more" in line


# --- a terminal ----------------------------------------------------------------------------------


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.seen = ""
        self._at = 0  # behind what was waited for last
        self._fd, theirs = pty.openpty()
        self.process = start(folder, *arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> None:
        """Do what Ctrl-C does where the terminal is the controlling one."""
        self.process.send_signal(signal.SIGINT)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt_until(self, text: str) -> None:
        """Press Ctrl-C at a prompt, and again where it came before readline waited for keys.

        Python's readline looks at signals when it is woken: one that comes just before is seen
        with the next key or signal, as in every Python prompt.
        """
        start, end = len(self.seen), time.monotonic() + 60
        while text not in self.seen[start:]:
            assert time.monotonic() < end, f"{text!r} was never shown"
            self.interrupt()
            # What comes first may be the echo of the key alone.
            while text not in self.seen[start:] and select.select([self._fd], [], [], 2)[0]:
                self._read()
        self._at = self.seen.index(text, start) + len(text)

    def wait_for(self, text: str) -> None:
        """Read on until the text is shown after what was waited for before."""
        start, end = self._at, time.monotonic() + 60
        while text not in self.seen[start:]:
            if time.monotonic() > end or not self._read():
                pytest.fail(f"{text!r} was never shown in {self.seen[start:]!r}")
        self._at = self.seen.index(text, start) + len(text)  # more may have been read already

    def finish(self) -> int:
        while self._read():
            pass
        return self.process.wait(20)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 60)[0]:
            return False
        try:
            self.seen += os.read(self._fd, 65536).decode("utf-8", "replace")
        except OSError:  # the other end is closed
            return False
        return True


@pytest.mark.long
def test_questions_at_a_terminal_share_a_session(folder, monkeypatch):
    """One after another, with their steps, until the user leaves."""
    monkeypatch.setenv("TERM", "xterm-256color")
    hostile = "See [red]this[/red] \x1b]0;title\x07"
    model = script(
        folder, f"{hostile}\n```python\nx = 41\nprint('[bold]x[/bold]')\n```",
        "```python\nfinal_answer(x)\n```", "```python\nfinal_answer(x + 1)\n```",
    )  # fmt: skip
    with Terminal(folder, "run", *PURE, model) as terminal:
        terminal.wait_for("Question> ")
        terminal.type("How many?\n")
        terminal.wait_for("41")
        terminal.wait_for("Question> ")
        terminal.type("And then?\n")
        terminal.wait_for("42")
        terminal.wait_for("Question> ")
        terminal.type("exit\n")
        assert terminal.finish() == 0
    assert "See [red]this[/red]" in terminal.seen
    assert "[bold]x[/bold]" in terminal.seen
    assert "\x1b]0;" not in terminal.seen
    assert "step 1/30" in terminal.seen
    assert terminal.seen.count("Sandbox: ") == 1


def test_undo_at_the_prompt_takes_steps_back_and_says_what_cannot_be(folder, monkeypatch):
    """With a number and a reason; the next question finds what there was before."""
    monkeypatch.setenv("TERM", "dumb")
    model = script(
        folder, "```python\nx = 41\n```", "```python\nx = 'no'\nfinal_answer(x)\n```",
        "```python\nfinal_answer(x + 1)\n```",
    )  # fmt: skip
    lines = ("undo", "How many?", "undo 1: that is no number", "Again?", "exit")
    with Terminal(folder, "run", *PURE, model) as terminal:
        for line in lines:
            terminal.wait_for("Question> ")
            terminal.type(f"{line}\n")
        assert terminal.finish() == 0
    said = terminal.seen
    assert "undo takes the last step back" in said
    assert "! There is no step to undo." in said
    assert "! Step 2 was undone: that is no number." in said
    assert "The answer that was given there does not hold any more." in said
    assert "Answer\r\n42\r\n" in said


@pytest.mark.long
def test_undo_question_at_the_prompt_takes_all_its_steps_back(folder, monkeypatch):
    """Then those of the one before; what other programs call /undo and /exit is known."""
    monkeypatch.setenv("TERM", "dumb")
    cells = ("x = 41", "final_answer(x)", "y = 1", "final_answer(y)", "final_answer('x' in dir())")
    model = script(folder, *(f"```python\n{cell}\n```" for cell in cells))
    undo = ("undo: half", "undo question: rest", "undo question: wrong", "/undo question")
    lines = ("How many?", "And y?", *undo, "Is x there?", "/exit")
    with Terminal(folder, "run", model) as terminal:
        for line in lines:
            terminal.wait_for("Question> ")
            terminal.type(f"{line}\n")
        assert terminal.finish() == 0
    assert "! Step 3 was undone: rest." in terminal.seen
    assert "! Steps 1 to 2 were undone: wrong." in terminal.seen
    assert "! There is nothing to undo: it takes back one step or more." in terminal.seen
    assert "Answer\r\nNo\r\n" in terminal.seen


def test_ctrl_c_at_a_terminal_stops_the_run_and_returns_to_the_prompt(folder, monkeypatch):
    """What the cell had set is still there for the next question; Ctrl-D leaves."""
    monkeypatch.setenv("TERM", "xterm")
    model = script(folder, WAIT, "```python\nfinal_answer(kept)\n```")
    with Terminal(folder, "run", model) as terminal:
        terminal.wait_for("Question> ")
        terminal.type("Wait\n")
        terminal.wait_for("waiting")
        terminal.interrupt()
        terminal.wait_for("Stopped before an answer")
        terminal.wait_for("Question> ")
        terminal.interrupt_until("exit or Ctrl-D leaves")
        terminal.type("And now?\n")
        terminal.wait_for("answered · 1 step")
        terminal.wait_for("Question> ")
        terminal.type("\x04")
        assert terminal.finish() == 0


# --- wrong use -----------------------------------------------------------------------------------

ABOUT = ("--data", "sales.csv")
WRONG = {
    "an unknown option": (["run", "x", "--modle", "y"], "--model"),
    "an unknown command": (["rnu"], "Did you mean 'run'"),
    "an unknown format": (["run", "x", "--format", "yaml", *ABOUT], "fenced"),
    "calls without a model": (
        ["run", "x", "--model", "offline", "--format", "json", *ABOUT],
        "--format",
    ),
    "an unknown sandbox": (
        ["run", "x", "--sandbox", "strict", *ABOUT],
        "no sandbox level",
    ),
    "a number that is none": (["run", "x", "--max-steps", "many"], "--max-steps"),
    "a limit of nothing": (["run", "x", "--max-steps", "0", *ABOUT], "greater than 0"),
    "an empty task": (["run", "  "], "There is no task"),
    "no task and no terminal": (["run"], "There is no task"),
    "a missing file": (["run", "x", "--data", "sale.csv"], "Did you mean sales.csv"),
    "a folder without a model": (["run", "x", "--data", "."], "kernel-agent data . shows"),
    "an address": (["run", "x", "--data", "https://example.org/a.csv"], "Download it first"),
    "a device": (["run", "x", "--data", "/dev/null"], "not a regular file"),
    "a missing script": (["run", "x", "--model", "scripted:none.jsonl"], "none.jsonl"),
    "a missing tool module": (
        ["run", "x", "--tools", "no_such_module", *ABOUT],
        "no_such_module",
    ),
    "a folder that cannot be": (
        ["run", "x", "--out", "sales.csv/out", *ABOUT],
        "--out",
    ),
    "a trace that is missing": (["show", "nowhere"], "nowhere"),
    "a trace that is none": (["show", "sales.csv"], "not a trace record"),
    "a notebook that is missing": (["verify", "none.ipynb"], "none.ipynb"),
    "a notebook that is none": (["verify", "sales.csv"], "sales.csv"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_one_line_with_exit_code_2(folder, name):
    """It says what and what to do, and leaves nothing behind."""
    arguments, said = WRONG[name]
    before = sorted(folder.iterdir())
    assert said in complaint(run(folder, *arguments), 2)
    left = [p for p in sorted(folder.iterdir()) if p not in before]
    assert [p.name for p in left] in ([], ["runs"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("run", "x", "--data", "none.csv"), "none.csv does not exist"),
        (("run",), "There is no task"),
        (("pipeline", "none.ipynb"), "none.ipynb"),
    ],
)
def test_an_error_before_the_run_is_json_too(folder, asked, said):
    """A script that reads the object always finds one."""
    done = run(folder, *asked, "--json")
    assert said in complaint(done, 2)
    result = json.loads(done.stdout)
    assert (result["status"], result["answer"], result["steps"]) == ("usage_error", None, 0)


# --- looking back --------------------------------------------------------------------------------


def test_show_prints_a_past_run_in_the_same_look(finished):
    """The same words as while it ran, from the trace alone."""
    out, done = finished
    shown = run(out.parent, "show", "out")
    assert shown.returncode == 0
    live = done.stdout[: done.stdout.index("Notebook:")]
    assert shown.stdout == live


def test_show_may_be_limited_to_the_last_steps(finished):
    """A long run ends where one usually looks."""
    out, _ = finished
    shown = run(out.parent, "show", "out/trace.jsonl", "--steps", "1").stdout
    assert re.findall("--- (.*) ---", shown) == ["Step 3"]
    assert "Task:  Which month?" in shown


def test_show_tells_that_the_last_record_is_incomplete(finished, tmp_path):
    """A killed process leaves half a line; what is before it is shown."""
    out, _ = finished
    (tmp_path / "trace.jsonl").write_bytes((out / "trace.jsonl").read_bytes()[:-30])
    shown = run(tmp_path, "show", "trace.jsonl")
    assert shown.returncode == 0
    assert "--- Step 3 ---" in shown.stdout
    assert "The last record is incomplete" in shown.stdout


def test_show_writes_the_run_as_one_page(finished, tmp_path):
    """It links to the notebook where that lies beside it; elsewhere there is nothing to link to."""
    out, _ = finished
    done = run(out.parent, "show", "--html", "out")
    assert (done.stdout, done.returncode) == ("out/run.html\n", 0)
    page = (out / "run.html").read_text()
    assert 'href="./run.ipynb"' in page
    assert "Which month?" in page
    (tmp_path / "trace.jsonl").write_bytes((out / "trace.jsonl").read_bytes()[:-30])
    done = run(tmp_path, "show", "--html", "trace.jsonl", "-o", "elsewhere.html", "--steps", "1")
    page = (tmp_path / "elsewhere.html").read_text()
    assert "The last record is incomplete" in page
    assert "Unfinished" in page
    assert ("Step 3" in page, "Step 2" in page, "href" in page) == (True, False, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "out", "-o", "missing/x.ipynb"], "x.ipynb: there is no folder missing"),
        (["show", "--html", "out", "-o", "missing/x.html"], "x.html: there is no folder missing"),
        (["show", "out", "-o", "x.html"], "add --html"),
    ],
)
def test_what_cannot_be_written_is_named(finished, arguments, words):
    """The folder that is missing, not only the file that was to be made."""
    out, _ = finished
    assert words in complaint(run(out.parent, *arguments), 2)


def test_export_writes_the_notebook_again(finished, tmp_path):
    """The same bytes as after the run."""
    out, _ = finished
    done = run(tmp_path, "export", str(out), "-o", "again.ipynb")
    assert (done.stdout, done.returncode) == ("again.ipynb\n", 0)
    assert (tmp_path / "again.ipynb").read_bytes() == (out / "run.ipynb").read_bytes()


@pytest.mark.long
def test_verify_gives_a_verdict_a_cell_and_an_exit_code(finished, tmp_path):
    """0 when it reproduces, 1 when it differs."""
    out, _ = finished
    done = run(out.parent, "verify", "out/run.ipynb")
    assert done.returncode == 0, done.stdout
    assert "reproduces" in done.stdout.splitlines()[-2]
    book = nbformat.read(out / "run.ipynb", as_version=4)
    changed = next(c for c in book.cells if c.cell_type == "code" and "read_csv" in c.source)
    changed.source += ".iloc[::-1]"
    nbformat.write(book, out / "changed.ipynb")
    done = run(out.parent, "verify", "out/changed.ipynb", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["counts"]["different"] >= 1


@pytest.mark.long
def test_verify_finds_the_one_notebook_beneath_a_folder_and_names_several(finished, tmp_path):
    """The folder of an evaluation's run has its attempts beneath it."""
    out, _ = finished
    shutil.copytree(out, tmp_path / "attempts" / "1")
    done = run(tmp_path, "verify", "attempts")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-2].startswith("attempts/1/run.ipynb ")
    (tmp_path / "attempts" / "2").mkdir()
    shutil.copy(out / "run.ipynb", tmp_path / "attempts" / "2")
    line = complaint(run(tmp_path, "verify", "attempts"), 2)
    assert "attempts holds several runs: name one of attempts/1, attempts/2" in line
    (tmp_path / "empty").mkdir()
    assert "empty/run.ipynb" in complaint(run(tmp_path, "verify", "empty"), 2)


def test_show_and_export_find_the_one_trace_beneath_a_folder_and_name_several(finished, tmp_path):
    """The same as verify finds its notebook."""
    out, _ = finished
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    shutil.copy(out / "trace.jsonl", tmp_path / "attempts" / "1")
    commands = (["show", "attempts"], ["show", "--html", "attempts"], ["export", "attempts"])
    shown, page, book = [run(tmp_path, *command) for command in commands]
    assert [done.returncode for done in (shown, page, book)] == [0, 0, 0]
    assert shown.stdout == run(tmp_path, "show", "attempts/1").stdout
    assert page.stdout.strip() == "attempts/1/run.html"
    assert book.stdout.strip() == "attempts/1/run.ipynb"
    shutil.copytree(tmp_path / "attempts" / "1", tmp_path / "attempts" / "2")
    for command in commands:
        line = complaint(run(tmp_path, *command), 2)
        assert "attempts holds several runs: name one of attempts/1, attempts/2" in line
    (tmp_path / "empty").mkdir()
    assert "there is no trace at empty/trace.jsonl" in complaint(run(tmp_path, "show", "empty"), 2)


def test_an_output_folder_that_cannot_even_be_looked_at_is_one_line(folder):
    """As with a folder that belongs to somebody else."""
    line = complaint(run(folder, "run", "x", "--data=sales.csv", "--out", "x" * 300), 2)
    assert "cannot write to" in line
    assert "--out" in line


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--sandbox=interpreter", "another sandbox level than interpreter"),
        ("--guard-imports=json", "the import of pandas is not allowed"),
        ("--max-operations=1", "more than 1 operations"),
    ],
)
def test_the_offline_analyst_says_what_keeps_it_from_working(folder, option, said):
    """The table is not blamed for what the sandbox lacks or the guard refuses."""
    if "interpreter" in option:
        pytest.importorskip("pydantic_monty")
    done = run(folder, "run", "how many rows", "--data=sales.csv", "--model=offline",
               "--quiet", option)  # fmt: skip
    line = complaint(done, 4)
    assert said in line
    assert "cannot be read as a table" not in line
    assert "offline analyst" in line


# --- doctor, help --------------------------------------------------------------------------------


def test_doctor_starts_a_kernel_and_never_tells_a_key(folder):
    """What is there, what would be used, and what protects this machine."""
    done = run(
        folder, "doctor", "--verbose", OPENAI_API_KEY="secret-value",
        OPENAI_BASE_URL="http://me:p@password@localhost:1/v1", KERNEL_AGENT_MODEL="some-model",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for said in ("OPENAI_API_KEY is set", "localhost:1/v1", "some-model", "level bubblewrap",
                 "self-test", "not covered",
                 "1 + 1 = 2", "pyarrow", str(folder / "runs")):  # fmt: skip
        assert said in done.stdout
    assert "secret-value" not in done.stdout
    assert "password" not in done.stdout
    assert list(folder.iterdir()) == [folder / "sales.csv"]


def test_doctor_is_short_and_begins_with_its_verdict(folder):
    """A line for each thing, each of which fits a terminal."""
    done = run(folder, "doctor")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0] == "Everything that is needed works."
    assert len(lines) < 20
    assert all(len(line) < 80 for line in lines if "/" not in line)
    assert "covered" not in done.stdout


COMMANDS = ["", "run", "show", "export", "verify", "doctor", "pipeline", "eval", "microvm",
            "kernelspec", "kernelspec install", "kernelspec remove"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_there_for_every_command(folder, command):
    """Plain text with an example or what the exit code means."""
    done = run(folder, *command.split(), "--help")
    assert done.returncode == 0
    assert "Usage: kernel-agent" in done.stdout


def test_the_help_names_every_level_and_format(folder):
    """Whoever asks what may be chosen is told all of it, in the words that are accepted."""
    said = run(folder, "run", "--help", COLUMNS="200").stdout
    for choice in (*MODULES, "auto", *FORMATS):
        assert re.search(rf"\b{choice}\b", said), choice


def test_ctrl_c_while_the_command_is_still_imported_is_one_line(folder):
    """Here it comes when the first library is asked for."""
    (folder / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [*COMMAND, "run", "x"], env=environment(PYTHONPATH=str(folder)), cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "kernel-agent: stopped\n")


def test_a_fault_of_ours_is_one_line_and_a_traceback_on_request(folder):
    """Even what should not happen does not scare the user."""
    code = "import kernel_agent.cli.app as c\nc.app = lambda **_: 1 / 0\nc.main()"
    for debug, traceback in (("", False), ("1", True)):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment(KERNEL_AGENT_DEBUG=debug),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "unexpected ZeroDivisionError" in done.stderr.splitlines()[-1]
        assert ("Traceback" in done.stderr) is traceback


def test_ctrl_c_while_a_session_starts_is_one_line_and_leaves_no_folder(folder):
    """Here it waits for an endpoint that says nothing, and is asked for the format."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"--base-url=http://127.0.0.1:{silent.getsockname()[1]}/v1"
        asked = ["run", "x", "--data=sales.csv", "--out=out", "--model=some", address, *PURE]
        with start(folder, *asked, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            wait_until((folder / "out" / "data" / "sales.csv").exists)
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert told.splitlines()[-1] == "kernel-agent: stopped"
    assert not (folder / "out").exists()
