"""The panel: a run as it happens, below the notebook's cell, with the buttons that a person needs.

One widget with one channel of small messages: what is to be shown goes to the page, what was
pressed comes back. The widget's state holds the program of the page and nothing of the run, and is
kept for a while when the run is over: the cell's output is then static, but a page that was loaded
again in the meantime cannot be reached there, and keeps the panel, which says so.

:class:`Panel` is a function of events that may be called on any thread. All messages are sent by
one thread of the panel's own, at most twenty times a second; what came in between goes together.
A page that is opened or loaded again says ``hello`` and is told the whole at once.

What a page says arrives on a thread of the notebook's kernel: its main thread, or that of a
subshell, while the cell that asked waits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from kernel_agent.notebook import sorting_program
from kernel_agent.records import Decision, Event, Question, RunStop, Step
from kernel_agent.safe import one_line, plain
from kernel_agent_extension.content import Note
from kernel_agent_extension.messages import Scene

INTERVAL_S = 0.05  # between two messages: faster is not seen, and costs
VIEW_MIME = "application/vnd.jupyter.widget-view+json"
ENDED = "The run has ended."
SAVE_S = 5  # after which a page that would not find the run again says so
KEPT = 5  # panels of ended runs whose widgets can still tell it
THREAD = "kernel-agent panel"

Said = dict[str, Any]
Offers = Mapping[str, str | Callable[[], None]]
"""What a person may do with a run that is over, by the words on its button: a text is copied."""


class Front(Protocol):
    """The widget that shows a panel: the page's, or one that a test looks into."""

    model_id: str

    def send(self, message: Said) -> None:
        """Pass a message on; called by the panel's thread."""
        ...

    def close(self) -> None:
        """Close the widget."""
        ...


def open_panel(
    *,
    task: str = "",
    sandbox: str = "auto",
    notebook: str | Path | None = None,
    on_stop: Callable[[], None] | None = None,
    on_undo: Callable[[], None] | None = None,
    waits: str = "",
) -> Panel:
    """Display a panel below the current cell; called on the thread that runs the cell.

    Parameters
    ----------
    task
        The question, shown at once; the run's own replaces it.
    sandbox
        The level that was asked for, shown until the run says which it got.
    notebook
        Where the session writes its notebook; offered as soon as it is there.
    on_stop
        Ends the run: ``session.stop``. Called on a thread of the kernel; it must not block.
    on_undo
        Goes back to before the last step, likewise. Without it there is no such button.
    waits
        What is waited for until the run begins.
    """
    panel = Panel(
        task=task,
        sandbox=sandbox,
        notebook=notebook,
        on_stop=on_stop,
        on_undo=on_undo,
        waits=waits,
    )
    panel.open(_PageFront)
    return panel


class Panel:
    """The view of one run: a function of events, which also asks a person.

    Made by :func:`open_panel`. Leaving it as a context manager finishes it.
    """

    def __init__(
        self,
        *,
        task: str,
        sandbox: str,
        notebook: str | Path | None = None,
        on_stop: Callable[[], None] | None = None,
        on_undo: Callable[[], None] | None = None,
        waits: str = "",
        publish: Callable[..., None] | None = None,
    ) -> None:
        self.on_stop = on_stop
        self.on_undo = on_undo
        self._notebook = None if notebook is None else Path(notebook).absolute()
        self._offered = self._told_to_save = False
        self._opened = time.time()
        self._task = one_line(task, 200)
        self._scene = Scene(task=task, level=sandbox, clock=time.monotonic, waits=waits)
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Said]]] = {}
        self._publish = publish or _publish
        self._displays: list[str] = []  # the cells' outputs that show it
        self._front: Front | None = None
        self._offers: Offers = {}
        self._changed = threading.Condition()
        self._pending: list[Note] = []
        self._outgoing: deque[Said] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._deliver, name=THREAD, daemon=True)
        self.messages = 0
        """Number of messages sent to the page."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    # --- from the session ------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        """Show an event; from any thread, at once."""
        if isinstance(event, Question):
            return  # shown by the approver, which knows who is asked
        with self._changed:
            self._tell(self._scene.tell(event))
            if isinstance(event, Step | RunStop):
                self._offer_notebook()

    async def approver(self, question: Question) -> Decision:
        """Ask the person in front of the page; the session's ``approver``.

        Returns when a button was pressed. When the panel is finished first, the answer is no.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Said] = loop.create_future()
        began = time.monotonic()
        with self._changed:
            number = next(self._numbers)
            if self._closed:
                return Decision(allowed=False, by="policy", reason=ENDED)
            self._asked[number] = (loop, answer)
            self._tell(self._scene.ask(number, question))
        decision = None
        try:
            decision = _decision(question, await answer, time.monotonic() - began)
        finally:
            with self._changed:
                self._asked.pop(number, None)
                self._tell(self._scene.close_question(number, decision))
        return decision

    def note(self, text: str) -> None:
        """Show a note that comes from no event."""
        with self._changed:
            self._tell(self._scene.note(text))

    def finish(self, html: str | None = None, text: str = "", offers: Offers | None = None) -> None:
        """Put a static summary in the panel's place, and close the widget.

        Parameters
        ----------
        html
            The summary, inline-styled and without anything live; trusted, so of our own making.
        text
            The same in text, for front ends without HTML.
        offers
            What is offered below the summary while the page is open and the kernel knows the run;
            functions are called on a thread of the kernel.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            asked = list(self._asked.values())
            self._changed.notify_all()
        for loop, answer in asked:
            _resolve(loop, answer, {"allowed": False, "reason": ENDED})
        if self._front is None:
            return
        self._thread.join(timeout=2)
        self._offers = offers or {}
        if html and offers:
            made = [{"label": label, **({"copy": does} if isinstance(does, str) else {})}
                    for label, does in offers.items()]  # fmt: skip
            self._send({"offers": made})
        self.replace(html, text)
        if html:
            self._stay()
        else:
            self._front.close()

    def replace(self, html: str | None, text: str = "") -> None:
        """Put another summary in the place of the one that is there."""
        bundle = {"text/plain": text or "kernel-agent: the run has ended."}
        shown = {"text/html": html, **bundle} if html else bundle
        for display_id in self._displays:
            self._publish(shown, display_id, update=True)

    def _stay(self) -> None:
        """Leave the widget open for pages whose output cannot be reached; close older ones."""
        assert self._front is not None
        self._send({"over": True})
        _staying.append(self._front)
        while len(_staying) > KEPT:
            _staying.popleft().close()

    # --- to the page -----------------------------------------------------------------------

    def open(self, make: Callable[[Callable[[Any], None]], Front]) -> None:
        """Make the panel's widget, and display it; called once, by :func:`open_panel`."""
        self._front = make(self._heard)
        with self._changed:
            self._offer_notebook()
        self._thread.start()
        self._display()

    def show_again(self) -> bool:
        """Show the panel below the cell that runs now, too; say whether the run still goes on."""
        if self._front is None or self._closed:
            return False
        self._display()
        return True

    def _display(self) -> None:
        """Display a view of the widget, with what is told of the run where there are no widgets."""
        assert self._front is not None
        self._displays.append(uuid.uuid4().hex)
        view = {"model_id": self._front.model_id, "version_major": 2, "version_minor": 0}
        told = f"kernel-agent: {self._task}"
        where = "" if self._notebook is None else f" Its notebook: {_from_here(self._notebook)}."
        after = f"The run went on when this notebook was saved.{where} %agent show brings its page."
        self._publish(
            {
                VIEW_MIME: view,
                "text/html": f"<p>{escape(told)}<br><small>{escape(after)}</small></p>",
                "text/plain": f"{told}\n{after}",
            },
            self._displays[-1],
        )

    def _tell(self, notes: list[Note]) -> None:
        """Add notes to the next message; the lock is held."""
        for note in notes:
            if not _join(self._pending, note):
                self._pending.append(dict(note))
        if notes:
            self._changed.notify_all()

    def _offer_notebook(self) -> None:
        if not self._offered and self._notebook is not None and self._notebook.exists():
            self._offered = True
            self._tell(self._scene.book(_from_here(self._notebook)))

    def _look_whether_saved(self) -> bool:
        """Say after a while that the notebook is to be saved, and when it was; the lock is held."""
        if time.time() < self._opened + SAVE_S:
            return False
        file = _open_notebook()
        try:
            saved = file is not None and file.stat().st_mtime > self._opened
        except OSError:  # it was moved or renamed
            saved = False
        if saved is self._told_to_save:
            self._told_to_save = not saved
            self._tell(self._scene.save(wanted=not saved))
        return saved

    def _deliver(self) -> None:
        """Send the waiting notes, then rest: the panel's own thread."""
        saved = False
        while True:
            with self._changed:
                some = lambda: self._closed or self._pending or self._outgoing  # noqa: E731
                self._changed.wait_for(some, timeout=None if saved else SAVE_S)
                if self._closed:
                    return
                saved = saved or self._look_whether_saved()
                self._flush()
                messages = list(self._outgoing)
                self._outgoing.clear()
            for message in messages:
                self._send(message)
            time.sleep(INTERVAL_S)

    def _send(self, message: Said) -> None:
        assert self._front is not None
        self.messages += 1
        self._front.send({"n": self.messages, **message})

    def _flush(self) -> None:
        if self._pending:
            self._outgoing.append({"notes": self._pending})
            self._pending = []

    # --- from the page ---------------------------------------------------------------------

    def _heard(self, said: Any) -> None:
        """Handle a page's message; ignore unknown ones."""
        if not isinstance(said, dict):
            return
        match said.get("do"):
            case "hello":
                self._tell_whole(said.get("view"))
            case "stop":
                self._call(self.on_stop, "Stopping")
                self._deny_all()
            case "undo":
                self._call(self.on_undo, "Undoing")
            case "decide":
                self._decide(said)
            case "offer":
                does = self._offers.get(str(said.get("label")))
                self._call(None if isinstance(does, str) else does, "That")

    def _tell_whole(self, view: Any) -> None:
        with self._changed:
            self._flush()  # pages that know the beginning need no repetition
            whole = {"for": view, "undo": False, "notes": self._scene.replay()}
            if not self._closed:
                self._outgoing.append({**whole, "undo": self.on_undo is not None})
                self._changed.notify_all()
                return
        self._send({**whole, "over": True})

    def _decide(self, said: Said) -> None:
        with self._changed:
            asked = self._asked.get(said.get("id") or 0)
        if asked is not None:
            _resolve(*asked, said)

    def _deny_all(self) -> None:
        with self._changed:
            asked = list(self._asked.values())
        for loop, answer in asked:
            _resolve(loop, answer, {"allowed": False, "reason": "The run was stopped."})

    def _call(self, work: Callable[[], None] | None, what: str) -> None:
        if work is None:
            return
        try:
            work()
        except Exception as error:
            self.note(f"{what} failed: {one_line(str(error)) or type(error).__name__}")


def _decision(question: Question, said: Said, seconds: float) -> Decision:
    edited = said.get("edited")
    changed = question.kind == "cell" and isinstance(edited, str) and edited != question.code
    return Decision(
        allowed=said.get("allowed") is True,
        by="person",
        reason=plain(str(said.get("reason") or ""))[:2000].strip(),
        seconds=seconds,
        edited=edited if changed else None,
        standing=said.get("standing") is True,
    )


def _resolve(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Said], said: Said) -> None:
    def resolve() -> None:
        if not answer.done():
            answer.set_result(said)

    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve)


def _join(pending: list[Note], note: Note) -> bool:
    """Put text behind text that waits to be sent; a later count replaces an earlier one."""
    last = pending[-1] if pending else {}
    if note["op"] == "spent" and last.get("op") == "spent":
        pending[-1] = note
        return True
    keys = {"text": ("reasoning", "call"), "out": ("kind", "step", "name")}.get(note["op"], ())
    if not keys or last.get("op") != note["op"] or note.get("kind", "stream") != "stream":
        return False
    if any(last.get(key) != note.get(key) for key in keys):
        return False
    last["text"] += note["text"]
    return True


def _publish(data: dict[str, Any], display_id: str, *, update: bool = False) -> None:
    from IPython.display import publish_display_data

    publish_display_data(  # type: ignore[no-untyped-call]  # IPython's
        data, metadata={}, transient={"display_id": display_id}, update=update
    )


def _from_here(path: Path) -> str:
    """Return a path as seen from the notebook that is open, with slashes."""
    file = _open_notebook()
    here = Path.cwd() if file is None else file.parent
    return Path(os.path.relpath(path, here)).as_posix()


def _open_notebook() -> Path | None:
    """Return the file of the notebook that is open; None where nobody says which."""
    name = os.environ.get("JPY_SESSION_NAME", "")
    return Path(name) if name.startswith("/") else None


_staying: deque[Front] = deque()


def prepare() -> None:
    """Import the widget's library, so that the first panel need not wait for it."""
    _widget_class()


# --- the widget ----------------------------------------------------------------------------------


class _PageFront:
    """The page's widget: ``panel.js`` with ``panel.css``, and one channel."""

    def __init__(self, heard: Callable[[Any], None]) -> None:
        self._widget = _widget_class()()
        self.model_id: str = self._widget.model_id
        self._widget.on_msg(lambda _widget, content, _buffers: heard(content))
        _answer_where_it_was_asked(self._widget.comm)

    def send(self, message: Said) -> None:
        self._widget.send(message)

    def close(self) -> None:
        layout = self._widget.layout
        self._widget.close()
        layout.close()


def _widget_class() -> type[Any]:
    import anywidget

    here = resources.files("kernel_agent_extension")
    global _made  # noqa: PLW0603 - a class per process, made when it is first wanted
    if _made is None:
        program = sorting_program() + here.joinpath("panel.js").read_text(encoding="utf-8")
        style = here.joinpath("panel.css").read_text(encoding="utf-8")
        _made = type("PanelWidget", (anywidget.AnyWidget,), {"_esm": program, "_css": style})
    return _made


_made: type[Any] | None = None


def _answer_where_it_was_asked(channel: Any) -> None:
    """Handle a page's messages on the subshell that they name.

    ipykernel 7.4 hands it to the shell that sent last instead, where it waits behind a cell that
    blocks; then Stop would be heard after the run. Earlier ones have no such rule.
    """
    if hasattr(channel, "_reply_subshell_for"):
        channel._reply_subshell_for = lambda _data, default: default  # noqa: SLF001
