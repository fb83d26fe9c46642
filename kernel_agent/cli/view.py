"""The seam that the command line's views share, and what both of them need.

What is shown is decided in one place, :class:`kernel_agent.records.Story`; plain lines are written
by :class:`kernel_agent.records.PlainView`, and the live view of a terminal, which leaves the same
on its screen, is in :mod:`kernel_agent.cli.live`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from kernel_agent.records import Block, Event, Usage, cap_text, place_blocks, usage_texts
from kernel_agent.safe import plain

if TYPE_CHECKING:
    from kernel_agent.session import Run, Session

STOPS = "Ctrl-C stops"


class View(Protocol):
    """A view that the command line hands to a session as ``on_event``."""

    def __call__(self, event: Event) -> None:
        """Show an event; called by the session from the thread that runs it."""
        ...

    def show(self, shown: Iterable[Block]) -> None:
        """Show blocks that come from no event: the sandbox line, the paths at the end."""
        ...


def watch(
    session: Session,
    task: str,
    view: Callable[[Event], None],
    *,
    work: Callable[..., Run] | None = None,
    **options: Any,
) -> Run:
    """Run a task of a session that is used synchronously, and show it in the calling thread.

    The view may block (a terminal that is held) or print to where only this thread can (a
    notebook's cell) without holding up the run. ``work`` does the run (``session.run_sync``);
    ``options`` are its own.

    Raises
    ------
    KeyboardInterrupt
        The second one: the first stops the run, which is returned as interrupted.
    """
    events: SimpleQueue[Event | None] = SimpleQueue()
    with ThreadPoolExecutor(1) as pool:
        run = work or session.run_sync
        working = pool.submit(lambda: run(task, on_event=events.put, **options))
        working.add_done_callback(lambda _done: events.put(None))
        try:
            _pass_on(events, view)
        except KeyboardInterrupt:
            session.stop()
            _pass_on(events, view)
        except BaseException:
            session.stop()
            raise
    return working.result()


def paused(view: object) -> AbstractContextManager[object]:
    """Return a context in which a view leaves the screen alone, while a person is asked there."""
    pause = getattr(view, "paused", None)
    return pause() if pause is not None else nullcontext()


def waiting(view: object, what: str) -> AbstractContextManager[object]:
    """Return a context in which a view that can says what is waited for."""
    wait = getattr(view, "waiting", None)
    return wait(what) if wait is not None else nullcontext()


def show_places(view: View, run: Run) -> None:
    """Show where a run's files are."""
    places = getattr(view, "places", None)
    if places is not None:
        places(run)
    else:
        view.show(paths(run))


def _pass_on(events: SimpleQueue[Event | None], view: Callable[[Event], None]) -> None:
    while (event := events.get()) is not None:
        view(event)


def paths(run: Run) -> tuple[Block, ...]:
    """Return the lines on where a run's files are, shown at its end."""
    blocks = place_blocks(notebook=run.notebook, trace=run.trace, files=run.files)
    page = f"Page:     kernel-agent show --html {shlex.quote(str(run.trace.parent))}"
    return (*blocks, Block(kind="end", text=plain(page)))


def progress(budget: Mapping[str, Any], *, step: int, seconds: float, usage: Usage) -> str:
    """Return a line on how much of each cap is spent."""
    spent = [
        f"step {step}{cap_text(budget.get('max_steps'), '/')}",
        f"{seconds:.0f}{cap_text(budget.get('max_seconds'), '/')} s",
        *usage_texts(usage, budget, "/"),
    ]
    return " · ".join([*spent, STOPS])
