"""Ask at a terminal whether a file of tasks, which anybody may have written, may take effect.

It is asked once for each content of a file, before anything else is done, and the answer is kept
(:mod:`kernel_agent.safe.trust`). Everything that the file does beyond the harmless is shown, so
that nothing in it can hide; what was typed before it was shown is no answer to it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from kernel_agent.cli.outlet import Outlet
from kernel_agent.errors import UntrustedTasks
from kernel_agent.records import source_text
from kernel_agent.safe import keep_answer, one_line

if TYPE_CHECKING:
    from kernel_agent.evaluation import TaskSet

SHOWN_CHARS = 2000  # of one row
SHOWN_ROWS = 100  # of what tasks reach
WARNING = (
    "What is read is sent to the model's endpoint, and what runs has all of your rights here.\n"
    "Your answer is kept for as long as the file, and the code that it names, stay as they are.\n"
)
ANSWERS = "  y use them here   n never use them here   Ctrl-C stops\n"
PROMPT = "Use them? [y/n]> "


def settle_tasks(path: str, *, trusted: bool) -> TaskSet:
    """Read a file of tasks; ask about what it reaches if it needs an answer and has none.

    Raises
    ------
    InputError
        A file that cannot be used; one that the user refused, or was not asked about.
    """
    from kernel_agent.evaluation import read_tasks

    try:
        return read_tasks(path, trusted=trusted)
    except UntrustedTasks as untrusted:
        if untrusted.asked or not _at_terminal():
            raise
        head = f"{one_line(str(untrusted.path), 300)} reaches beyond its folder, or brings code:"
        _ask(untrusted, head, f"{_list_reaches(untrusted.reaches)}\n{WARNING}")
    return read_tasks(path)


def _at_terminal() -> bool:
    return bool(sys.stdin and sys.stderr and sys.stdin.isatty() and sys.stderr.isatty())


def _ask(untrusted: UntrustedTasks, head: str, matter: str) -> None:
    keyboard, screen = sys.stdin, Outlet(sys.stderr)
    screen.write(f"\n{head}\n\n{matter}")
    _forget_typed(keyboard)
    while (allowed := _answer(keyboard, screen)) is None:
        screen.write(ANSWERS)
    if not keep_answer(untrusted.path, untrusted.content, allowed=allowed):
        screen.write("The answer cannot be kept: there is no place that is yours alone.\n")
        raise untrusted


def _answer(keyboard: TextIO, screen: Outlet) -> bool | None:
    """Return the answer; None when it was neither yes nor no.

    Raises
    ------
    KeyboardInterrupt
        There is nothing more to read.
    """
    screen.write(PROMPT)
    line = keyboard.readline()
    if not line:
        raise KeyboardInterrupt
    return {"y": True, "yes": True, "n": False, "no": False}.get(line.strip().lower())


def _list_reaches(reaches: Sequence[str]) -> str:
    """Return what tasks reach, one a line, nothing in it hidden."""
    rows = [_cut(source_text(row).replace("\n", "\\n")) for row in reaches[:SHOWN_ROWS]]
    if len(reaches) > SHOWN_ROWS:
        rows.append(f"… and {len(reaches) - SHOWN_ROWS:,} more: read the file before you answer")
    return "".join(f"    {row}\n" for row in rows)


def _cut(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    more = len(text) - SHOWN_CHARS
    return f"{text[:SHOWN_CHARS]} … and {more:,} characters more: read the file before you answer"


def _forget_typed(keyboard: TextIO) -> None:
    import termios

    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)
