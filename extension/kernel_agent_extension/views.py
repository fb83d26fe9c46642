"""The view of a run below its cell: the panel where a person looks at it, else text or a page.

:func:`open_view` decides, and is the only place that does. Nothing of what a model or a kernel
wrote is displayed as HTML: in a live notebook it could act as the user. Text is text, and a figure
is shown only if it really is a PNG or JPEG.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from kernel_agent.errors import NotebookError
from kernel_agent.records import (
    Approver,
    Block,
    Condensation,
    Event,
    FormatChange,
    Notice,
    Output,
    OutputDict,
    PlainView,
    Question,
    Record,
    ReplyText,
    RunStart,
    RunStop,
    Step,
    Undone,
    is_figure,
    place_blocks,
    read_trace,
)
from kernel_agent.safe import FORMATS, one_line, plain
from kernel_agent.session import Run

VARIABLE = "KERNEL_AGENT_PANEL"
NOTICES = 10  # that are shown with the page of a run
Tell: TypeAlias = Callable[[Event], None]
Offers: TypeAlias = Mapping[str, str | Callable[[Tell], None]]
RECORDS = (RunStart, Step, RunStop, FormatChange, Condensation, Undone)


class RunView(Protocol):
    """A view of one run."""

    approver: Approver | None
    """Asks the person who looks at it; None where nobody can be asked."""

    direct: bool
    """Whether it may be called from any thread, not only from the one that runs the cell."""

    offers: Offers
    """What may be done with the run when it is over, by name: a text to copy, or a function that
    tells what it came to. Set before :meth:`finish`; only the panel's page has buttons."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        ...

    def note(self, text: str) -> None:
        """Show a note that comes from no event."""
        ...

    def finish(self, run: Run | None, why: str = "") -> None:
        """Show the lasting summary, once; a run that did not begin has a reason instead."""
        ...

    def show_again(self) -> bool:
        """Show it below the cell that runs now, too; false where it cannot, or is over."""
        ...


def load_panel(shell: Any) -> None:
    """Begin to import the panel and its libraries, if runs are shown in it.

    Called when the magics are loaded, so that the first question need not wait for that.
    """
    if _shown_as(shell, "auto") == "on":
        Thread(target=_load, daemon=True).start()


def _load() -> None:
    from kernel_agent_extension.panel import prepare

    prepare()


def open_view(
    shell: Any,
    *,
    task: str,
    panel: str,
    background: bool,
    stop: Callable[[], None],
    undo: Callable[[], None],
    notebook: Path,
    sandbox: str,
    started: bool = True,
) -> RunView:
    """Open the view of a run below the cell that runs now.

    Parameters
    ----------
    shell
        The notebook's IPython.
    task
        The question.
    panel
        ``on``, ``off`` (text, as it comes), or ``auto``: the panel where a person can press its
        buttons, the static page where a program runs the notebook. The environment variable
        ``KERNEL_AGENT_PANEL`` goes before it.
    background
        Whether the cell ends before the run does.
    stop
        What the stop button does.
    undo
        What the button does that takes the latest step back.
    notebook
        Where the session writes its notebook.
    sandbox
        The level that was asked for.
    started
        Whether there is a kernel already.
    """
    chosen = _shown_as(shell, panel)
    if chosen == "on":
        return _PanelView(
            task=task,
            stop=stop,
            undo=undo,
            notebook=notebook,
            sandbox=sandbox,
            waits="" if started else _starting(sandbox),
            waited=not background,
        )
    if background:
        return _LineView(task)
    if chosen == "page":
        return _PageView()
    return TextView(sys.stdout.write)


def _starting(sandbox: str) -> str:
    return "starting the kernel" if sandbox == "none" else "starting the sandboxed kernel"


def _shown_as(shell: Any, panel: str) -> str:
    chosen = os.environ.get(VARIABLE) or panel
    if chosen == "auto" and has_kernel(shell):
        return "on" if is_watched(shell) else "page"
    return chosen


def is_watched(shell: Any) -> bool:
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


class _Once:
    """What a view that stands below one cell says of itself."""

    approver: Approver | None = None
    direct = False
    offers: Offers = MappingProxyType({})

    def show_again(self) -> bool:
        """Say that it cannot be shown below another cell."""
        return False


class TextView(_Once, PlainView):
    """Plain lines, and the figures of each step below its text."""

    def __init__(self, write: Callable[[str], object]) -> None:
        from kernel_agent.notebook import person_text  # which takes a moment

        super().__init__(write, person_text)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        super().__call__(event)
        if isinstance(event, Step) and event.result:
            for output in event.result.outputs:
                display_figure(output)

    def note(self, text: str) -> None:
        """Show a note that comes from no event."""
        self(Notice(text=text))

    def finish(self, run: Run | None, why: str = "") -> None:  # noqa: ARG002 - raised in the cell
        """Say where the trace and the notebook are."""
        if run is not None:
            self.show(_places(run))


def _places(run: Run) -> Iterable[Block]:
    return place_blocks(notebook=run.notebook, trace=run.trace, files=run.files)


class _Told:
    """The events of a run, kept for the summary that stays below the cell."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        """Keep an event."""
        if not isinstance(event, ReplyText | Output | Question):
            self._events.append(event)

    def bundle(self, run: Run | None, why: str) -> dict[str, str]:
        """Return the summary as text and, where there is a run, as a static page."""
        from kernel_agent.notebook import person_text  # which takes a moment

        lines: list[str] = []
        shown = PlainView(lines.append, person_text)
        for event in self._events:
            shown(event)
        if run is not None:
            shown.show(_places(run))
        text = {"text/plain": "".join([*lines, plain(why)])}
        html = self._html(run)
        return {"text/html": html, **text} if html else text

    def _html(self, run: Run | None) -> str:
        from kernel_agent.notebook import summary_html  # which takes a moment

        records = [event for event in self._events if isinstance(event, RECORDS)]
        if not records:
            return ""
        notebook = None if run is None or run.notebook is None else str(run.notebook)
        try:
            told = self._notices(good=False)
            summary = summary_html(records, notebook=notebook, notices=told)
        except NotebookError:
            return ""
        good = self._notices(good=True)
        return summary + "".join(f"<p><small>{escape(line)}</small></p>" for line in good)

    def _notices(self, *, good: bool) -> list[str]:
        """Return the notices that no record holds; good news, or what one is to be warned of."""
        told = (event for event in self._events if isinstance(event, Notice))
        notices = [event.text for event in told if event.good is good]
        shown = list(dict.fromkeys(notices))
        more = [f"{len(shown) - NOTICES} more of these are left out."]
        return shown if len(shown) <= NOTICES else [*shown[:NOTICES], *more]


class _LineView(_Once):
    """One line that is kept up to date below a cell that has ended: for runs in the background."""

    direct = True

    def __init__(self, task: str) -> None:
        from IPython.display import DisplayHandle

        self._task = one_line(task, 60)
        self._told = _Told()
        handle: Any = DisplayHandle
        self._handle = handle()
        self._handle.display(_plain_bundle(f"Running: {self._task}"), raw=True)

    def __call__(self, event: Event) -> None:
        self._told.add(event)
        if isinstance(event, Step):
            line = f"Running: {self._task} (step {event.number} is done)"
            self._handle.update(_plain_bundle(line), raw=True)

    def note(self, text: str) -> None:
        self(Notice(text=text))

    def finish(self, run: Run | None, why: str = "") -> None:
        self._handle.update(self._told.bundle(run, why), raw=True)


def _plain_bundle(text: str) -> dict[str, str]:
    return {"text/plain": text}


class _PageView(_Once):
    """Shows nothing while the run lasts, then its static page: for programs that run notebooks."""

    def __init__(self) -> None:
        self._told = _Told()

    def __call__(self, event: Event) -> None:
        self._told.add(event)

    def note(self, text: str) -> None:
        self(Notice(text=text))

    def finish(self, run: Run | None, why: str = "") -> None:  # noqa: ARG002 - raised in the cell
        from IPython.display import publish_display_data

        publish: Any = publish_display_data
        bundle = self._told.bundle(run, "")
        if any(bundle.values()):
            publish(bundle)


class _PanelView:
    """The panel while the run lasts, and the static page in its place afterwards."""

    direct = True
    offers: Offers = MappingProxyType({})

    def __init__(
        self,
        *,
        task: str,
        stop: Callable[[], None],
        undo: Callable[[], None],
        notebook: Path,
        sandbox: str,
        waits: str,
        waited: bool,
    ) -> None:
        self._told = _Told()
        self._waited = waited  # by a cell, which tells why a run did not begin
        from kernel_agent_extension.panel import open_panel  # its libraries take a moment

        self._panel = open_panel(
            task=task,
            on_stop=stop,
            on_undo=undo,
            notebook=notebook,
            sandbox=sandbox,
            waits=waits,
        )
        self.approver: Approver | None = self._panel.approver

    def __call__(self, event: Event) -> None:
        self._told.add(event)
        self._panel(event)

    def note(self, text: str) -> None:
        self._told.add(Notice(text=text))
        self._panel.note(text)

    def finish(self, run: Run | None, why: str = "") -> None:
        bundle = self._told.bundle(run, "" if self._waited else why)
        text = bundle["text/plain"] or ("The run did not begin." if run is None else "")

        def tell(event: Event) -> None:
            self._told.add(event)
            after = self._told.bundle(run, "")
            self._panel.replace(after.get("text/html"), after["text/plain"])

        offers = {label: does if isinstance(does, str) else partial(does, tell)
                  for label, does in self.offers.items()}  # fmt: skip
        self._panel.finish(bundle.get("text/html"), text, offers)

    def show_again(self) -> bool:
        return self._panel.show_again()


def show_trace(trace: Path, *, run_id: str = "") -> None:
    """Display the page of a run again, from its trace; the last of the session by default.

    Raises
    ------
    KernelAgentError
        The trace cannot be read, or holds no such run.
    """
    from IPython.display import publish_display_data

    from kernel_agent.notebook import person_text, summary_html

    records = _last_run(read_trace(trace), run_id)
    notebook = trace.with_name("run.ipynb")
    lines: list[str] = []
    view = PlainView(lines.append, person_text)
    for record in records:
        view(record)
    bundle = {
        "text/html": summary_html(records, notebook=str(notebook) if notebook.exists() else None),
        "text/plain": "".join(lines),
    }
    publish: Any = publish_display_data
    publish(bundle)


def _last_run(records: Sequence[Record], run_id: str) -> list[Record]:
    """Return a run's records, with those of what it delegated and of what took it back."""
    own = [r.run_id for r in records if isinstance(r, RunStart) and r.parent_id is None]
    chosen = run_id or (own[-1] if own else "")
    others = {run for run in own if run != chosen}
    return [record for record in records if record.run_id not in others]


def display_figure(output: OutputDict) -> None:
    """Display the picture of an output, if it has one that is what it says.

    The other representations of the output, HTML among them, stay where they are.
    """
    from IPython.display import publish_display_data

    from kernel_agent.notebook import displayable

    if not is_figure(output):
        return
    data = displayable(output)["data"]
    for media_type in FORMATS:
        if media_type in data:
            bundle = {media_type: data[media_type], "text/plain": "[figure]"}
            publish_display_data(bundle)  # type: ignore[no-untyped-call]  # IPython's
            return
