"""A run as a terminal shows it while it happens.

The thought as it is written and the output as it arrives pass by in a region that is redrawn above
the progress line; what is complete is printed once and stays. What is shown, and that it is
harmless, is decided in :class:`kernel_agent.records.Story`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from kernel_agent.cli.outlet import Outlet
from kernel_agent.cli.view import View, progress
from kernel_agent.records import (
    STORY_LABELS,
    Block,
    Event,
    Kind,
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
    plain_lines,
)
from kernel_agent.safe import plain

if TYPE_CHECKING:
    from rich.console import RenderableType


@contextmanager
def open_view(stream: TextIO, *, live: bool = True) -> Iterator[View]:
    """Yield the view that fits a stream: styled at a terminal, plain lines elsewhere.

    Parameters
    ----------
    stream
        Where the view writes; a fault of it is raised at the end, so that no run is lost by it.
    live
        Whether events happen now, so that progress is worth a line; false for a past run.
    """
    if stream.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}:
        with LiveView(stream, live=live) as view:
            yield view
    else:
        outlet = Outlet(stream)
        yield PlainView(outlet.write)
        outlet.check()


_STYLES: dict[Kind, str] = {
    "task": "bold",
    "fact": "dim",
    "warning": "bold yellow",
    "title": "bold cyan",
    "notice": "yellow",
    "question": "bold yellow",
    "answer": "bold green",
    "end": "dim",
}
_LABEL = "bold magenta"
_TAIL_LINES = 12  # of a reply or an output in the making: enough to follow, less than a screen
_TAIL_CHARS = 4000
_ESCAPED = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class LiveView:
    """Shows a run at a terminal; used as a context manager, which gives the cursor back.

    Parameters
    ----------
    stream
        The terminal.
    live
        Whether there is progress to show.
    clock
        Seconds, monotonic. Tests pass their own.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self._moving = live
        self._clock = clock
        self._story = Story()
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
            self._console.print(_drawn(block), soft_wrap=block.kind not in ("code", "call"))

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
        elif isinstance(event, Step):
            self._steps += 1
            self._usage += event.usage
        elif isinstance(event, RunStop):
            self._live.stop()

    def _region(self) -> RenderableType:
        from rich.text import Text

        passing = _unescape(self._passing) if self._escaped else self._passing
        rows = plain(passing).split("\n")[-_TAIL_LINES:]
        width = max(self._console.width - 1, 1)
        tail = "".join(f"{line[:width]}\n" for line in rows if line.strip())
        spent = progress(
            self._start.budget if self._start else {},
            step=self._steps + 1,
            seconds=self._clock() - self._since,
            usage=self._usage,
        )
        return Text.assemble(tail, (spent, "reverse"))


def _unescape(text: str) -> str:
    """Return unfinished JSON with the line ends and quotes of its strings unescaped."""
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[0]), text)


def _passing_text(output: OutputDict) -> str:
    if output.get("output_type") == "stream":
        return str(output.get("text", ""))
    if is_figure(output):
        return "[figure]\n"
    return ""


def _drawn(block: Block) -> RenderableType:
    from rich.text import Text

    if block.kind in ("code", "call"):
        from rich.console import Group
        from rich.padding import Padding
        from rich.syntax import Syntax

        code = Syntax(
            block.text, "python", theme="ansi_dark", background_color="default", word_wrap=True
        )
        return Group(Text(STORY_LABELS[block.kind], style=_LABEL), Padding(code, (0, 0, 0, 4)))
    text = Text(plain_lines(block).removesuffix("\n"), style=_STYLES.get(block.kind, ""))
    if block.kind in STORY_LABELS:
        text.stylize(_LABEL, 0, len(STORY_LABELS[block.kind]))
    return text
