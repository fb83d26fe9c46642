"""What a cell shows of its run: the panel in a notebook that a person looks at, else plain text.

:func:`open_view` decides, and is the only place that does. Nothing of what a model or a kernel
wrote is displayed as HTML: in a live notebook it could act as the user. Text is text, and a figure
is shown only if it really is a PNG or JPEG.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from importlib.util import find_spec
from typing import Any, Protocol

from kernel_agent.pictures import FORMATS
from kernel_agent.records import Decision, Event, Notice, OutputDict, Question, RunStop, Step
from kernel_agent.run import Run
from kernel_agent.text import one_line, plain
from kernel_agent.view import PlainView, is_figure, paths

Approver = Callable[[Question], Awaitable[Decision]]

PANEL = "kernel_agent_extension.panel"
VARIABLE = "KERNEL_AGENT_PANEL"


class RunView(Protocol):
    """What shows one run."""

    approver: Approver | None
    """Asks the person who looks at it; None where nobody can be asked."""

    direct: bool
    """Whether it may be called from any thread, not only from the one that runs the cell."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        ...

    def note(self, text: str) -> None:
        """Say something that comes from no event."""
        ...

    def finish(self, run: Run | None, why: str = "") -> None:
        """Leave what stays; called once. There is no run when it did not begin, but a reason."""
        ...


def open_view(
    shell: Any, *, task: str, panel: str, background: bool, stop: Callable[[], None]
) -> RunView:
    """Open what shows a run below the cell that runs now.

    Parameters
    ----------
    shell
        The notebook's IPython.
    task
        The question.
    panel
        ``on``, ``off``, or ``auto``: where a person can press its buttons.
    background
        Whether the cell ends before the run does.
    stop
        What the stop button does.
    """
    chosen = os.environ.get(VARIABLE, panel)
    if find_spec(PANEL) is not None and (chosen == "on" or (chosen == "auto" and watched(shell))):
        return _PanelView(task=task, stop=stop)
    return _LineView(task) if background else TextView(sys.stdout.write)


def watched(shell: Any) -> bool:
    """Whether a front end with widgets, and so a person, has sent the running cell.

    JupyterLab and Notebook leave the user's name in their messages empty, as jupyter_client (and
    with it nbclient, papermill, nbconvert) never does; VS Code names its notebook.
    """
    if not has_kernel(shell):
        return False
    header = (shell.get_parent() or {}).get("header", {})
    return header.get("username") == "" or "__vsc_ipynb_file__" in shell.user_ns


def has_kernel(shell: Any) -> bool:
    """Whether the IPython is that of a notebook's kernel, not of a terminal."""
    return getattr(shell, "kernel", None) is not None


class TextView(PlainView):
    """Plain lines, and the figures of each step below its text."""

    approver: Approver | None = None
    direct = False

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__(write)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        super().__call__(event)
        if isinstance(event, Step) and event.result:
            for output in event.result.outputs:
                display_figure(output)

    def note(self, text: str) -> None:
        """Say something that comes from no event."""
        self(Notice(text=text))

    def finish(self, run: Run | None, why: str = "") -> None:  # noqa: ARG002 - raised in the cell
        """Say where the trace and the notebook are."""
        if run is not None:
            self.show(paths(run))


class _LineView:
    """One line that is kept up to date below a cell that has ended: for runs in the background."""

    approver: Approver | None = None
    direct = True

    def __init__(self, task: str) -> None:
        from IPython.display import DisplayHandle

        self._task = one_line(task, 60)
        self._notes: list[str] = []
        handle: Any = DisplayHandle
        self._handle = handle()
        self._handle.display(_Text(f"Running: {self._task}"))

    def __call__(self, event: Event) -> None:
        if isinstance(event, Step):
            self._say(f"Running: {self._task} (step {event.number} is done)")
        elif isinstance(event, Notice):
            self.note(event.text)
        elif isinstance(event, RunStop):
            self._say(f"Ending: {self._task}")

    def note(self, text: str) -> None:
        self._notes.append(plain(text))

    def _say(self, *lines: str) -> None:
        self._handle.update(_Text("\n".join(lines)))

    def finish(self, run: Run | None, why: str = "") -> None:
        if run is None:
            self._say(f"Not begun: {self._task}", *self._notes, plain(why))
            return
        lines: list[str] = []
        shown = PlainView(lines.append)
        shown.show(paths(run))
        said = plain(run.text or run.message)
        self._say(f"{run.status}: {self._task}", said, *self._notes, "".join(lines).rstrip())


class _Text:
    """Text for a display: nothing in it is interpreted."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - IPython's protocol
        printer.text(self._text)


class _PanelView:
    """The panel while the run lasts, and a static summary in its place afterwards."""

    direct = True

    def __init__(self, *, task: str, stop: Callable[[], None]) -> None:
        from importlib import import_module

        self._records: list[Any] = []
        self._panel = import_module(PANEL).open_panel(task=task, on_stop=stop)
        self.approver: Approver | None = self._panel.approver

    def __call__(self, event: Event) -> None:
        self._records.append(event)
        self._panel(event)

    def note(self, text: str) -> None:
        self._panel.note(text)

    def finish(self, run: Run | None, why: str = "") -> None:
        lines: list[str] = [plain(why)]
        shown = PlainView(lines.append)
        for record in self._records:
            shown(record)
        if run is not None:
            shown.show(paths(run))
        self._panel.finish(summary(self._records), "".join(lines))


def summary(events: Iterable[Any]) -> str | None:
    """Return the static page of a run, or None where there is none."""
    from kernel_agent.records import Condensation, FormatChange, RunStart

    kinds = (RunStart, Step, RunStop, FormatChange, Condensation)
    records = [event for event in events if isinstance(event, kinds)]
    if not records or find_spec("kernel_agent.notebook.page") is None:
        return None
    from importlib import import_module

    page: Any = import_module("kernel_agent.notebook.page")
    html: str = page.summary_html(records)
    return html


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
