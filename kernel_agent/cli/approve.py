"""Questions to the person at a terminal: whether a cell runs, whether a call is made.

The session asks on its own thread, and the terminal belongs to the thread that shows the run. So
:meth:`Prompt.approver` leaves the question behind and waits; when the question's event reaches
:meth:`Prompt.__call__`, in its place among everything else that is shown, it is asked there.

The terminal is read in its own line mode and not by readline, in short waits, so that Ctrl-C, a
SIGTERM or a kernel that dies ends the question. What was typed before the question was shown is
thrown away: it was no answer to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kernel_agent.cli.view import View, paused, waiting
from kernel_agent.records import Block, Decision, Event, Question, code_block, is_cut, question_text
from kernel_agent.safe import one_line

END = "\x04"  # what Ctrl-D stands for
MAX_TYPED = 100_000  # bytes without a line's end: a stream, and nobody who types
WAIT_S = 0.1  # between two looks at whether the question is still open
EDITORS = ("sensible-editor", "nano", "vi")  # when neither VISUAL nor EDITOR names one


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A question that waits, and where its answer goes."""

    question: Question
    answer: Future[Decision]


class Prompt:
    """A view that also asks; it stands in for the view that it is given.

    Parameters
    ----------
    view
        Shows everything, the questions too.
    keyboard
        The terminal that is read.
    screen
        The terminal that the prompt is written to; the view writes there, too.
    """

    def __init__(self, view: View, keyboard: TextIO, screen: TextIO) -> None:
        self._view = view
        self._keyboard = keyboard
        self._screen = screen
        self._waiting: dict[int, _Asked] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Show an event; a question is also asked, and this returns when it is answered."""
        self._view(event)
        if isinstance(event, Question):
            with self._lock:
                asked = self._waiting.pop(id(event), None)
            if asked is not None and not asked.answer.done():
                with paused(self._view):
                    self._ask(asked)

    def waiting(self, what: str) -> contextlib.AbstractContextManager[object]:
        """Say what is waited for, where the view can."""
        return waiting(self._view, what)

    async def approver(self, question: Question) -> Decision:
        """Wait for the person's decision; the session's approver."""
        asked = _Asked(question=question, answer=Future())
        with self._lock:
            self._waiting[id(question)] = asked
        try:
            return await asyncio.wrap_future(asked.answer)
        finally:
            asked.answer.cancel()
            with self._lock:
                self._waiting.pop(id(question), None)

    # --- the conversation about one question -------------------------------------------------

    def _ask(self, asked: _Asked) -> None:
        question, source = asked.question, asked.question.code
        self._forget_typed()
        self._say(_answers(question))
        while True:
            line = self._line(asked)
            if line is None:
                self._say("\n(no longer asked)\n")
                return
            word, _, rest = line.strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    edited = source if source != question.code else None
                    decision = Decision(allowed=True, by="person", edited=edited)
                case "n" | "no":
                    decision = Decision(allowed=False, by="person", reason=rest.strip())
                case "a" | "all":
                    edited = source if source != question.code else None
                    decision = Decision(allowed=True, by="person", edited=edited, standing=True)
                case "d" | "deny":
                    decision = Decision(
                        allowed=False, by="person", reason=rest.strip(), standing=True
                    )
                case "e" | "edit" if question.kind == "cell":
                    source = self._edit(source)
                    continue
                case "v" | "view" if question.kind == "call" and is_cut(question):
                    self._say(f"{question_text(question, whole=True)}\n")
                    continue
                case _ if word == END:
                    decision = Decision(allowed=False, by="person", reason="(end of input)")
                case _:
                    self._forget_typed()  # the rest of what was pasted is no answer either
                    self._say(_answers(question))
                    continue
            self._give(asked, decision)
            return

    def _give(self, asked: _Asked, decision: Decision) -> None:
        with contextlib.suppress(InvalidStateError):  # withdrawn in this moment
            asked.answer.set_result(decision)

    def _line(self, asked: _Asked) -> str | None:
        """Return a typed line, END at the end of input, None when the question is over."""
        self._say("Decide> ")
        typed = b""
        while not asked.answer.done():
            try:
                keyboard = self._keyboard.fileno()
                if not select.select([keyboard], [], [], WAIT_S)[0]:
                    continue
                piece = os.read(keyboard, 4096)
            except (OSError, ValueError):  # the terminal is gone, or closed
                piece = b""
            typed += piece
            if not piece or len(typed) > MAX_TYPED:
                return END
            if b"\n" in typed:  # the first line: what follows it was typed blindly
                return typed.decode("utf-8", "replace").splitlines()[0] or " "
        return None

    def _forget_typed(self) -> None:
        import termios

        with contextlib.suppress(OSError, ValueError, termios.error):
            termios.tcflush(self._keyboard.fileno(), termios.TCIFLUSH)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a run is worth more than its display
            self._screen.write(text)
            self._screen.flush()

    # --- editing -----------------------------------------------------------------------------

    def _edit(self, source: str) -> str:
        """Return the cell as the person leaves it in an editor; as it was if that fails."""
        command = _editor()
        if command is None:
            self._say("There is no editor: name one in the variable EDITOR.\n")
            return source
        with tempfile.TemporaryDirectory(prefix="kernel-agent-edit-") as folder:
            path = Path(folder, "cell.py")
            path.write_text(source, encoding="utf-8", errors="replace", newline="")
            try:
                with _left_to_the_editor():
                    done = subprocess.run([*command, str(path)], check=False)  # noqa: S603 - the person's own editor
                edited = path.read_text(encoding="utf-8").rstrip("\n")
            except (OSError, ValueError) as error:
                self._say(f"The editor did not work: {one_line(str(error))}\n")
                return source
        if done.returncode or not edited.strip():
            self._say("The cell stays as it was: the editor failed, or left nothing.\n")
            return source
        if edited == source.rstrip("\n"):
            self._say("The cell stays as it was.\n")
            return source
        self._view.show((Block(kind="notice", text="Changed; this would run:"), code_block(edited)))
        return edited


def _answers(question: Question) -> str:
    """Return the answers that can be typed."""
    if question.kind == "cell":
        return (
            "  y run it   n REASON do not   e change it first   Ctrl-C stops the run\n"
            "  a run all cells of this run without asking   d run none of them\n"
        )
    name = one_line(question.name, 40)
    more = "   v show all of the arguments" if is_cut(question) else ""
    return (
        f"  y make this call   n REASON do not{more}   Ctrl-C stops the run\n"
        f"  a allow {name} for the rest of this run   d deny it for the rest\n"
    )


def _editor() -> list[str] | None:
    for name in (os.environ.get("VISUAL"), os.environ.get("EDITOR")):
        if name and name.strip():
            return shlex.split(name)
    found = next((path for name in EDITORS if (path := shutil.which(name))), None)
    return [found] if found else None


@contextlib.contextmanager
def _left_to_the_editor() -> Iterator[None]:
    """Leave Ctrl-C to the editor, which has the terminal meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
