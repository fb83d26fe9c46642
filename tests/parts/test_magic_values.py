"""What stands in data never decides what ``%agent`` does: in a real IPython, with any values."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from kernel_agent_extension.magics import AgentMagics
from kernel_agent_extension.options import OPTIONS, Request, read_request
from support.examples import examples
from traitlets.config import Config

WORDS = [f"--{option.name}" for option in OPTIONS] + ["-i", "-o", "--", "--x"]
PIECES = st.one_of(
    st.sampled_from([
        *WORDS, *(f"{word}=x" for word in WORDS), *(f"\N{EM DASH}{word[2:]}" for word in WORDS),
        '"touch CANARY"', "'", '"', "`", "{", "}", "{open('CANARY', 'w')}", "$cols", "${cols}",
        "{cols}", "\n", "\r\n", "\t", " ", "\N{NO-BREAK SPACE}", "%agent", "!touch CANARY", "?",
        "none", "./evil.py", "stop", "undo 3",
    ]),
    st.text(max_size=8),
)  # fmt: skip
VALUES = st.lists(PIECES, max_size=8).map(" ".join) | st.lists(PIECES, max_size=8).map("".join)


def blanks_as_one(text: str) -> str:
    return " ".join(text.split())


class Asking(AgentMagics):
    """The magics, with a list of what would be asked in place of sessions."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.asked: list[Request] = []

    def _ask(self, request: Request, local: Mapping[str, Any]) -> None:  # type: ignore[override]
        self.asked.append(request)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """Make an IPython of its own, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "profile"))
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "off")
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell(config=config)
    made.magics = Asking(made)
    made.register_magics(made.magics)
    yield made
    made.restore_sys_module_state()


def said(shell: InteractiveShell, cell: str) -> str:
    """Run a cell; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        shell.run_cell(cell)
    return printed.getvalue()


def read_or_refuse(line: str) -> Request | str:
    try:
        return read_request(line, names={"cols"})
    except UsageError as error:
        return f"refused in {len(str(error).splitlines())} line"


@given(value=VALUES)
def test_no_value_in_the_question_is_read_for_options(value: str) -> None:
    """Either it is a part of the question, or the line is refused."""
    task = f"Which of {value} matter?"
    whole = Request(task=blanks_as_one(task), settings={"model": "m"})
    assert read_or_refuse(f"--model m {task}") in (whole, "refused in 1 line")


@given(value=VALUES)
def test_whatever_stands_behind_two_hyphens_or_below_the_line_is_the_question(value: str) -> None:
    """So programs can pass on any text."""
    line = f"--new -- {value}"
    assert read_request(line, names={"cols"}) == Request(task=blanks_as_one(value), new=True)
    below = read_request("--new", value, names={"cols"})
    assert below == Request(task=value.strip(), new=True)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=VALUES)
def test_the_value_of_a_variable_never_reaches_the_line(
    shell: InteractiveShell, value: str
) -> None:
    """In IPython itself: the model is asked what was typed, and nothing is evaluated."""
    magics = shell.magics
    magics.asked.clear()
    shell.user_ns["cols"] = [value]
    typed = "Which of $cols, {cols} and {open('CANARY', 'w')} matter"
    said(shell, f"%agent -i cols {typed}?")
    said(shell, f"x = %agent -- {typed}!")
    shell.run_line_magic("agent", f"-- {typed}")
    said(shell, f"%%agent -i cols\n{typed}")
    given = ("cols",)
    assert magics.asked == [
        Request(task=f"{typed}?", given=given),
        Request(task=f"{typed}!"),
        Request(task=typed),
        Request(task=typed, given=given),
    ]
    assert not Path("CANARY").exists()


@pytest.mark.parametrize(
    "cell",
    ["%agent Which of $cols matter?", "%agent {cols[0]}", "%agent $cols", "%%agent $cols\nWhy?"],
)
def test_a_variable_in_the_line_is_refused_in_one_line(shell: InteractiveShell, cell: str) -> None:
    """It says how variables are passed in."""
    shell.user_ns["cols"] = ['price --mcp "touch CANARY"', "--sandbox none", "--tools ./evil.py"]
    told = said(shell, cell)
    assert "is not filled in: pass the variable in with -i cols" in told
    assert "Traceback" not in told
    assert shell.magics.asked == []


def test_what_an_expression_would_do_is_not_done(shell: InteractiveShell) -> None:
    """It is text of the question, as prose with braces is."""
    said(shell, "%agent What is {open('CANARY', 'w')} and $HOME?")
    assert [request.task for request in shell.magics.asked] == [
        "What is {open('CANARY', 'w')} and $HOME?"
    ]
    assert not Path("CANARY").exists()


def test_a_text_that_another_magic_has_filled_in_chooses_nothing(shell: InteractiveShell) -> None:
    """IPython fills in the lines of some others before ``%agent`` has its own."""
    shell.user_ns["cols"] = 'price --mcp "touch CANARY"'
    shell.run_line_magic("alias_magic", "ask agent")
    told = said(shell, "%ask Which of $cols matter")
    assert "--mcp stands in the question" in told
    assert shell.magics.asked == []
