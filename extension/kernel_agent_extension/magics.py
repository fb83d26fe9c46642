"""``%agent TASK``: a question from a notebook cell; steps, figures and answer below it.

All calls of a notebook share one session, so that a later question builds on an earlier one. The
session's code runs in a kernel of its own, not in the notebook's. Nothing of what a model or that
kernel wrote is displayed as HTML: in a live notebook it could act as the user. Text is text, and a
figure is shown only if it really is a PNG or JPEG.

The cell waits for events of a session in the background, so that interrupting the notebook's kernel
stops the run.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from IPython.core.error import UsageError as MagicUsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from kernel_agent.budget import Budget
from kernel_agent.errors import KernelAgentError
from kernel_agent.pictures import FORMATS
from kernel_agent.records import Event, Notice, OutputDict, Step
from kernel_agent.run import Run
from kernel_agent.session import Session
from kernel_agent.view import PlainView, is_figure, paths, watch

HELP = """\
%agent TASK                       ask about your data; the steps are shown, a Run is returned
%agent --data FILE TASK           with a file (again for more files)
run = %agent TASK                 run.answer, run.text, run.status, run.notebook

%%agent [options]
TASK over several lines

--data FILE     a table to ask about; kept for later questions
--model NAME    a model of your endpoint, or offline
--max-steps N   how many steps this question may take
--new           begin a new session: a new kernel and an empty history

Example:  %agent --data sales.csv Which month sold most?
The kernel's interrupt (the stop button) stops a run; its trace and notebook are kept."""

_OPTION = re.compile(r"""(?:^|(?<=\s))--([a-z][\w-]*)(?:(?:=|\s+)("[^"]*"|'[^']*'|\S+))?""")


_LINE = re.compile(r"(?P<before>[ \t]*(?:[^\s%#=][^%#=]*=[ \t]*)?)%agent[ \t]+(?P<task>\S.*)")


def keep_questions(lines: list[str]) -> list[str]:
    r"""Make the calls of ``%agent`` plain Python before IPython reads the cell.

    IPython takes any line that ends in ``word?`` for a call for help, and an apostrophe for the
    beginning of a string; both are usual in a question. Registered as an input transformer.

    Examples
    --------
    >>> keep_questions(["x = %agent What's this?\n"])
    ['x = get_ipython().run_line_magic(\'agent\', "What\'s this?")\n']
    """
    if lines and lines[0].startswith("%%"):
        return lines
    return [_called(line) for line in lines]


def _called(line: str) -> str:
    match = _LINE.match(line.rstrip())
    if match is None:
        return line
    return f"{match['before']}get_ipython().run_line_magic('agent', {match['task']!r})\n"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a line or cell asks for."""

    task: str
    data: tuple[str, ...] = ()
    model: str | None = None
    max_steps: int | None = None
    new: bool = False


def read_request(line: str, cell: str | None = None) -> Request:
    """Read the options, wherever they stand in the line, and take the rest as the task.

    Raises
    ------
    UsageError
        IPython's: shown as one line.

    Examples
    --------
    >>> read_request("How many rows? --data sales.csv")
    Request(task='How many rows?', data=('sales.csv',), model=None, max_steps=None, new=False)
    """
    found: dict[str, list[str]] = {"data": [], "model": [], "max-steps": [], "new": []}
    rest, end = "", 0
    for match in _OPTION.finditer(line):
        name, value = match[1], (match[2] or "").strip("\"'")
        if name not in found:
            raise MagicUsageError(f"%agent has no option --{name}; %agent alone lists them.")
        if name != "new" and not value:
            raise MagicUsageError(f"--{name} needs a value, as in %agent {_EXAMPLES[name]}")
        rest += line[end : match.start()]
        end = match.end() if name != "new" else match.start() + len("--new")
        found[name].append(value)
    task = " ".join((rest + line[end:]).split())
    return Request(
        task="\n".join(part for part in (task, (cell or "").strip()) if part),
        data=tuple(found["data"]),
        model=found["model"][-1] if found["model"] else None,
        max_steps=_whole(found["max-steps"][-1]) if found["max-steps"] else None,
        new=bool(found["new"]),
    )


_EXAMPLES = {
    "data": "--data sales.csv How many rows?",
    "model": "--model offline How many rows?",
    "max-steps": "--max-steps 5 How many rows?",
}


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise MagicUsageError(f"--max-steps needs a whole number, not {text!r}.") from None


@magics_class
class AgentMagics(Magics):
    """The magics of one notebook, and the session behind them.

    Parameters
    ----------
    shell
        The notebook's IPython.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._session: Session | None = None
        self._chosen = Request(task="")
        shell.input_transformers_cleanup.append(keep_questions)
        # The full record of a run, as it would be printed below each cell, is long.
        shell.display_formatter.formatters["text/plain"].for_type(Run, _print_run)
        atexit.register(self._close)

    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> Run | None:
        """Ask about your data; ``%agent`` alone explains how."""
        request = read_request(line, cell)
        if request == Request(task=""):
            sys.stdout.write(f"{HELP}\n")
            return None
        if not request.task:
            raise MagicUsageError("There is no task, as in: %agent --data sales.csv How many rows?")
        try:
            return self._answer(request)
        except KernelAgentError as error:
            raise MagicUsageError(str(error)) from None

    def _answer(self, request: Request) -> Run:
        view = _NotebookView(sys.stdout.write)
        session = self._session_for(request, view)
        run = watch(session, request.task, view, budget=_budget(session, request))
        view.show(paths(run))
        return run

    def _session_for(self, request: Request, view: _NotebookView) -> Session:
        """Return the session so far, or a new one when the request cannot be met by it."""
        same = (
            request.data in {(), self._chosen.data}
            and request.model in {None, self._chosen.model}
            and not request.new
        )
        if self._session is not None and same:
            return self._session
        if self._session is not None:
            view(Notice(text="A new session begins: what earlier questions computed is gone."))
            self._close()
        session = Session(
            model=request.model, data=request.data, title=request.task, on_event=view.keep
        )
        session.__enter__()
        view.show_kept()
        self._session, self._chosen = session, request
        return session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close_sync()
            self._session = None


class _NotebookView(PlainView):
    """Plain lines, and the figures of each step below its text."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__(write)
        self._kept: list[Event] = []

    def keep(self, event: Event) -> None:
        """Take an event of the session's start, which comes from a thread that cannot print."""
        self._kept.append(event)

    def show_kept(self) -> None:
        """Show what was kept."""
        for event in self._kept:
            self(event)
        self._kept.clear()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, Step) and event.result:
            for output in event.result.outputs:
                display_figure(output)


def display_figure(output: OutputDict) -> None:
    """Display the picture of an output, if it has one that is what it says.

    The other representations of the output, HTML among them, stay where they are.
    """
    from IPython.display import publish_display_data

    from kernel_agent.notebook.outputs import displayable

    if not is_figure(output):
        return
    data = displayable(output)["data"]
    for media_type in FORMATS:
        if media_type in data:
            bundle = {media_type: data[media_type], "text/plain": "[figure]"}
            publish_display_data(bundle)  # type: ignore[no-untyped-call]  # IPython's
            return


def _print_run(run: Run, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - IPython's protocol
    printer.text(f"<Run {run.run_id}: {run.status}, {len(run.steps)} steps, {run.seconds:.1f} s>")


def _budget(session: Session, request: Request) -> Budget | None:
    if request.max_steps is None:
        return None
    return replace(session.budget, max_steps=request.max_steps)
