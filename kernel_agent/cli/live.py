"""A run as a terminal shows it while it happens.

The thought as it is written and the output as it arrives pass by in a region that is redrawn above
the progress line; what is complete is printed once and stays. What is shown, and that it is
harmless, is decided in :class:`kernel_agent.records.Story`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from kernel_agent.cli.outlet import Outlet
from kernel_agent.cli.view import STOPS, View, progress
from kernel_agent.notebook import person_text
from kernel_agent.records import (
    Acting,
    Block,
    Event,
    Output,
    OutputDict,
    PlainView,
    ReplyText,
    RunStart,
    RunStop,
    Step,
    Story,
    Usage,
    is_figure,
    shown_to_model,
)
from kernel_agent.safe import one_line, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kernel_agent.session import Run


@contextmanager
def open_view(stream: TextIO, *, live: bool = True, verbose: bool = False) -> Iterator[View]:
    """Yield the view that fits a stream: styled at a terminal, plain lines elsewhere.

    Parameters
    ----------
    stream
        Where the view writes; a fault of it is raised at the end, so that no run is lost by it.
    live
        Whether events happen now, so that progress is worth a line; false for a past run.
    verbose
        Whether steps show what the model reads of them.
    """
    if stream.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}:
        with LiveView(stream, live=live, verbose=verbose) as view:
            yield view
    else:
        outlet = Outlet(stream)
        yield PlainView(outlet.write, shown_to_model if verbose else person_text)
        outlet.check()


def looking(what: str) -> AbstractContextManager[object]:
    """Return a context in which a terminal shows that something is under way."""
    if not (sys.stderr.isatty() and sys.stdout.isatty()):
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


_TAIL_LINES = 12  # of a reply or an output in the making: enough to follow, less than a screen
_TAIL_CHARS = 4000
_TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
MOST_FILES = 10  # of those that a run has made
_ESCAPED = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class LiveView:
    """Shows a run at a terminal; used as a context manager, which gives the cursor back.

    Parameters
    ----------
    stream
        The terminal.
    live
        Whether there is progress to show.
    verbose
        As of :func:`open_view`.
    clock
        Seconds, monotonic. Tests pass their own.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool = True,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self._moving = live
        self._clock = clock
        self._verbose = verbose
        self._story = Story(shown_to_model if verbose else person_text)
        self._waits, self._waits_since = "", 0.0
        self._passing, self._escaped = "", False
        self._start: RunStart | None = None
        self._since = 0.0
        self._steps = 0
        self._usage = Usage()
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._region,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show an event: print what stays, draw what passes by above the progress."""
        if isinstance(event, ReplyText):
            self._passing += event.text
            self._escaped |= event.call or self._passing.lstrip().startswith("{")
        elif isinstance(event, Output):
            self._passing += _passing_text(event.output)
        else:
            self._passing, self._escaped = "", False
            self._count(event)
            self._live.refresh()  # what passed by goes before what stays is printed
            self.show(self._story.blocks(event))
        self._passing = self._passing[-_TAIL_CHARS:]
        if isinstance(event, RunStart) and self._moving:
            self._live.start(refresh=True)

    def show(self, shown: Iterable[Block]) -> None:
        """Show blocks."""
        for block in shown:
            self._draw(block)

    def places(self, run: Run) -> None:
        """Show where a run's files are: its folder, and below it each of them."""
        from kernel_agent.cli.drawing import places

        folder = run.trace.parent
        made = [path.name for path in (run.notebook, run.trace) if path is not None]
        for line in places(folder, [*made, *run.files[:MOST_FILES]]):
            self._console.print(line, soft_wrap=True)
        if (more := len(run.files) - MOST_FILES) > 0:
            self._console.print(f"  … {more:,} more", style="dim")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what is waited for, beside a run."""
        self._wait_for(what)
        if self._moving:
            self._live.start(refresh=True)
        try:
            yield
        finally:
            self._live.stop()

    def _wait_for(self, what: str) -> None:
        self._waits, self._waits_since = what, self._clock()

    def _draw(self, block: Block) -> None:
        from rich.text import Text

        from kernel_agent.cli.drawing import drawn

        for line in drawn(block, self._console.width, verbose=self._verbose):
            self._console.print(line, soft_wrap=isinstance(line, Text))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the screen alone while a person is asked; the clock stands still, too."""
        began, moving = self._clock(), self._live.is_started
        self._live.stop()
        try:
            yield
        finally:
            self._since += self._clock() - began
            if moving:
                self._live.start(refresh=True)

    def _count(self, event: Event) -> None:
        if isinstance(event, RunStart):
            self._start, self._since = event, self._clock()
            self._steps, self._usage = 0, Usage()
            self._wait_for(_asking(event.model))
        elif isinstance(event, Acting):
            self._wait_for(f"running step {event.number}")
        elif isinstance(event, Step):
            self._steps += 1
            self._usage += event.usage
            self._wait_for(_asking(self._start.model if self._start else ""))
        elif isinstance(event, RunStop):
            self._live.stop()

    def _region(self) -> RenderableType:
        from rich.text import Text

        from kernel_agent.cli.layout import wrap

        passing = _unescape(self._passing) if self._escaped else self._passing
        rows = [row for row in plain(passing).split("\n") if row.strip()][-_TAIL_LINES:]
        width = max(self._console.width - 1, 1)
        lines = [line for row in rows for line in wrap(Text(row), width)][-_TAIL_LINES:]
        return Text("\n").join([*lines, Text(self._progress(width), style="reverse")])

    def _progress(self, width: int) -> str:
        """Return the line on what is waited for and what is spent, as much of it as fits."""
        now = self._clock()
        mark = _TURNING[int(now * 8) % len(_TURNING)]
        spent = progress(
            self._start.budget if self._start else {},
            step=self._steps + 1,
            seconds=now - self._since,
            usage=self._usage,
        )
        *parts, stops = spent.split(" · ") if self._start else [STOPS]
        line = f"{mark} {one_line(self._waits, 40)}, {now - self._waits_since:.0f} s"
        for part in parts:
            if len(f"{line} · {part} · {stops}") <= width:
                line += f" · {part}"
        return f"{line} · {stops}"[:width]


def _asking(model: str) -> str:
    name = "the offline analyst" if model == "offline" else one_line(model, 30)
    return f"asking {name}"


def _unescape(text: str) -> str:
    """Return unfinished JSON with the line ends and quotes of its strings unescaped."""
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[0]), text)


def _passing_text(output: OutputDict) -> str:
    if output.get("output_type") == "stream":
        return str(output.get("text", ""))
    if is_figure(output):
        return "[figure]\n"
    return ""
