"""What stands in data, in a line of ``%agent``: names of columns, and prose with braces.

A real IPython with the extension, as a notebook's own kernel has it: whatever happens there happens
with the user's rights, at every level.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

EXTENSION = str(Path(__file__).resolve().parents[3] / "extension")
KEPT = "a file of the user's"


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("unasked: ") else ""


@host_attack("host-confusion", _told, timeout_s=150)
async def options_in_a_column(folder: Path) -> str:
    """Names of columns that read like options, filled into a line of %agent"""
    (folder / "evil.py").write_text("open('imported', 'w').close()\n")
    (folder / "kept.txt").write_text(KEPT)
    shell = _shell(folder)
    columns = (
        'price --mcp "touch ran"',
        "price --tools ./evil.py",
        "price --export kept.txt",
        "price --sandbox none --approve never",
    )
    for column in columns:
        shell.user_ns["cols"] = [column]
        _ask(shell, "Which of $cols matter")
        _ask(shell, "-i cols Which of $cols and {cols[0]} matter")
        shell.user_ns["review"] = column
        _ask(shell, "What is said in $review")
    unconfined = [start for start in _starts(folder) if start["sandbox"]["level"] == "none"]
    return _seen(
        {
            "a command ran": (folder / "ran").exists(),
            "a module was imported": (folder / "imported").exists(),
            "a file was written over": (folder / "kept.txt").read_text() != KEPT,
            "cells ran unconfined": bool(unconfined),
        }
    )


@host_attack("host-confusion", _told, timeout_s=100)
async def expressions_in_a_question(folder: Path) -> str:
    """A pasted question with an expression in braces"""
    shell = _shell(folder)
    _ask(shell, "What is meant by {open('evaluated', 'w').close()}")
    return _seen({"it was evaluated": (folder / "evaluated").exists()})


SEND = """
from kernel_agent import tool

@tool(effects=True)
def send(text: str) -> str:
    "Send a text to the team."
    open("sent", "a").write(text)
    return "sent"
"""


@host_attack("host-confusion", _told, timeout_s=150)
async def asking_that_was_switched_off_before(folder: Path) -> str:
    """What was said of asking for one session, carried on into a new one that names it nowhere"""
    (folder / "sales.csv").write_text("a\n1\n")
    shell = _shell(folder)
    shell.run_cell(SEND)
    calls = json.dumps({"content": "```python\nfinal_answer(send('x'))\n```"}) + "\n"
    (folder / "sends.jsonl").write_text(calls * 3)
    ask = "%agent --format fenced --model scripted:"
    with_hosts = os.environ.get("PLAYED_LEVEL") in ("bubblewrap", "namespaces")
    eased = ("--approve never", *(["--allow-host localhost:1"] if with_hosts else []))
    _run(shell, f"{ask}replies.jsonl {' '.join(eased)} Count.")
    seen = {}
    for what, line in {
        "a new session": f"{ask}sends.jsonl --tools send Send it.",
        "another one": f"{ask}sends.jsonl --data sales.csv Send it again.",
        "one begun anew": f"{ask}sends.jsonl --new --tools send Send it at last.",
    }.items():
        Path("sent").unlink(missing_ok=True)
        said_first = _run(shell, line).partition("Task:")[0]
        named = all(words in said_first for words in eased)
        seen[f"{what} asked nobody, and named it nowhere"] = not named and Path("sent").exists()
    return _seen(seen)


def _seen(effects: dict[str, bool]) -> str:
    seen = [effect for effect, happened in effects.items() if happened]
    if not seen:
        raise PermissionError(1, "nothing happened")
    return f"unasked: {', '.join(seen)}"


def _shell(folder: Path) -> Any:
    """Make an IPython with the extension, and a script that answers at once."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    sys.path.insert(0, EXTENSION)
    from kernel_agent_extension.magics import AgentMagics

    os.environ |= {"IPYTHONDIR": str(folder / "profile"), "KERNEL_AGENT_PANEL": "off"}
    reply = json.dumps({"content": "```python\nfinal_answer(1)\n```"}) + "\n"
    (folder / "replies.jsonl").write_text(reply * 20)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    shell.register_magics(AgentMagics)
    return shell


def _ask(shell: Any, question: str) -> None:
    """Do what a person does who types a question in a cell; its cell may fail."""
    _run(shell, f"%agent --new --model scripted:replies.jsonl --format fenced {question}")


def _run(shell: Any, line: str) -> str:
    """Run a cell; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        shell.run_cell(line)
    return printed.getvalue()


def _starts(folder: Path) -> list[dict[str, Any]]:
    """Return the beginnings of all runs that there were."""
    traces = folder.glob("runs/*/trace.jsonl")
    records = [json.loads(line) for trace in traces for line in trace.read_text().splitlines()]
    return [record for record in records if "sandbox" in record and "budget" in record]
