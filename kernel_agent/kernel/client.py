"""Our client for a running kernel: four sockets, read without delay and without loss.

Written over jupyter_client's ``Session`` (which signs and packs messages) instead of its
clients, because those wait for fixed times, poll, and rely on a socket that drops messages
(``docs/design.md``, "Kernel"). The protocol is
https://jupyter-client.readthedocs.io/en/stable/messaging.html.

The kernel is hostile: whatever it sends is checked or counted, never believed. Each socket is a
:class:`kernel_agent.kernel.channel.Channel`, which keeps of a message only so much and reads no
faster than we look at it; :mod:`kernel_agent.kernel.messages` says what may be read at all. What is
left out of a cell's outputs is said there.

A cell is over when the kernel has said ``idle`` for it on the output channel *and* has replied:
everything that the cell printed was sent before that ``idle`` on the same socket, and the socket
keeps everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any

from jupyter_client.session import Session

from kernel_agent.kernel import messages, zmtp
from kernel_agent.kernel.channel import Channel
from kernel_agent.kernel.collect import Collector
from kernel_agent.kernel.messages import Envelope
from kernel_agent.kernel.protocol import OnOutput, OnRequest
from kernel_agent.kernel.widgets import COMMS, OutputWidgets
from kernel_agent.records import CellError, Changes, OutputDict, read_changes
from kernel_agent.safe import encodable, size_text

# What is kept of one message, in bytes. A picture that our kernel displays has at most 16 million
# characters, a text a million, a failed cell's traceback about as much.
MAX_MESSAGE = 20_000_000
MAX_TEXT = 8_000_000  # of a stream's: our kernel sends a million characters of each in all
MAX_TAKEN = 256_000_000  # of variables that were asked for; our kernel sends at most 200 million
MAX_REQUEST = 66_000_000  # of a host call: at most 32 million characters, quotes escaped
MAX_UNDER_WAY = 128_000_000  # of all host calls that are being answered; then the kernel waits
MAX_REQUESTS = 256  # host calls answered at a time; our own code has 128 under way
MAX_CELL_BYTES = 256 * 1024 * 1024  # of messages that are looked at, from a cell to the next one
SMALL_BYTES = 100_000  # of a message that is looked at even then: it may be the cell's end
AHEAD = 64_000_000  # bytes read before they are looked at, from kernels that drop what must wait
REPLY_GRACE_S = 10.0  # how long one half of a cell's end may come after the other

HEADER = ("msg_id", "session", "username", "date", "msg_type", "version")
LATE = ("stream", "display_data", "execute_result", "error")
OUTPUTS = (*LATE, "update_display_data", "clear_output")


class Cell:
    """A cell that is running: its outputs so far, and whether it is over."""

    def __init__(
        self,
        step: int,
        on_output: OnOutput | None,
        on_request: OnRequest | None,
        *,
        brings_values: bool = False,
    ) -> None:
        # The caller's context: in a notebook, what a tool or an approver prints belongs to the
        # cell that asked, not to the one in which the session was started.
        context = self.context = copy_context()

        def tell(output: OutputDict) -> None:
            if on_output is not None:
                context.run(on_output, output)

        self.is_seen = step > 0
        self.collector = Collector(tell, step=step)
        self.on_request = on_request
        self.brings_values = brings_values
        self.reply: dict[str, Any] | None = None
        self.changes: Changes | None = None
        self.idle = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def advance(self) -> None:
        """Mark the cell as over when both halves of its end have come."""
        if self.idle and self.reply is not None and not self.over.done():
            self.over.set_result(None)

    @property
    def error(self) -> CellError | None:
        """The exception in the reply, if it was one."""
        reply = self.reply or {}
        if reply.get("status") not in ("error", "aborted"):
            return None
        if reply.get("ename") in (None, "NoneType"):
            # It failed where its value was shown; the reply does not know with what.
            reply = self.collector.last_error or reply
        traceback = reply.get("traceback")
        lines = tuple(map(str, traceback)) if isinstance(traceback, list) else ()
        return CellError(
            ename=str(reply.get("ename") or "Aborted"),
            evalue=str(reply.get("evalue", "")),
            traceback=lines,
        )


class KernelClient:
    """Speak to one kernel.

    Parameters
    ----------
    info
        The connection, as in a connection file: ``transport``, ``ip`` (with ``ipc`` the path before
        ``-port``), the five ports and ``key``.
    """

    def __init__(self, info: dict[str, Any]) -> None:
        key = info["key"]
        self._session = Session(key=key if isinstance(key, bytes) else str(key).encode())
        self._cells: dict[str, Cell] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._under_way = 0
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[None] = loop.create_future()
        """Done when the output channel has brought something: from then on nothing is missed."""
        self.lost: asyncio.Future[str] = loop.create_future()
        """Done, with the reason, when the kernel or what stands for it has ended a connection."""
        self._heard: asyncio.Future[None] = loop.create_future()
        self.ignored = 0
        """Messages that were not valid or belonged to nothing that is running."""
        self._late = Collector()
        self._widgets = OutputWidgets()
        self._cell_bytes = 0
        self._handlers = {
            "iopub": self._on_iopub,
            "shell": self._on_reply,
            "control": self._on_heard,
            "stdin": self._on_stdin,
        }
        self._channels = {name: self._channel(info, name) for name in self._handlers}

    def _channel(self, info: dict[str, Any], name: str) -> Channel:
        local = info["transport"] == "ipc"
        port = info[f"{name}_port"]
        bounds = {"shell": self._most_of_a_reply, "stdin": lambda: MAX_REQUEST}
        return Channel(
            f"{info['ip']}-{port}" if local else (info["ip"], port),
            kind="SUB" if name == "iopub" else "DEALER",
            # One identity on all channels: the kernel routes input requests by it.
            identity=b"" if name == "iopub" else self._session.bsession,
            most=bounds.get(name, lambda: MAX_MESSAGE),
            on_message=partial(self._on_message, name),
            on_lost=partial(self._on_lost, name),
            # Our kernels keep what is not read yet: they have to wait. Others would drop output,
            # and with it the cell's end.
            ahead=0 if local else AHEAD,
        )

    def _most_of_a_reply(self) -> int:
        asked = any(cell.brings_values for cell in self._cells.values())
        return MAX_TAKEN if asked else MAX_MESSAGE

    def start(self) -> None:
        """Begin to connect and read; called once."""
        for channel in self._channels.values():
            channel.open()

    def ask_for_a_sign(self) -> None:
        """Make the kernel send a message, for kernels that do not greet (ipykernel < 7.2)."""
        self._send("shell", self._session.msg("kernel_info_request", {}))

    def execute(
        self,
        code: str,
        *,
        step: int,
        on_output: OnOutput | None = None,
        on_request: OnRequest | None = None,
        silent: bool = False,
        expressions: Mapping[str, str] | None = None,
    ) -> Cell:
        """Send a cell and return it at once; wait for ``cell.over``.

        Parameters
        ----------
        code
            The source, magics allowed.
        step
            The number under which the kernel counts it; 0 where nobody sees its output, which
            then takes nothing of an earlier cell's thread along.
        on_output
            Called with each output as it arrives.
        on_request
            Called with each host call's text; returns the reply's text.
        silent
            Nobody sees it, and it counts as no cell.
        expressions
            Expressions whose display data the reply brings, by names of the caller's.
        """
        cell = Cell(step, on_output, on_request, brings_values=bool(expressions))
        if cell.is_seen:
            for output in self._late.outputs():
                cell.collector.add(output)
            self._late = Collector()
        msg = self._session.msg(
            "execute_request",
            {
                "code": code,
                "silent": silent,
                "store_history": not silent,  # else a `;` at the cell's end hides no value
                "user_expressions": dict(expressions or {}),
                "allow_stdin": on_request is not None,
                "stop_on_error": False,
            },
            metadata={"kernel_agent": {"step": step}},
        )
        self._cells[msg["header"]["msg_id"]] = cell
        self._cell_bytes = 0
        self._send("shell", msg)
        return cell

    def forget(self, cell: Cell) -> None:
        """Stop collecting for a cell; its late output is shown with the next one."""
        self._cells = {k: c for k, c in self._cells.items() if c is not cell}

    def interrupt(self) -> asyncio.Future[None]:
        """Raise KeyboardInterrupt in the running cell, even in one that awaits.

        The future is done when the kernel says that it has heard of it.

        An awaiting cell only notices when its event loop wakes up (ipykernel issue 881): the
        second message wakes it.
        """
        self._heard = asyncio.get_running_loop().create_future()
        self._send("control", self._session.msg("interrupt_request", {}))
        self._send("shell", self._session.msg("kernel_info_request", {}))
        return self._heard

    def shutdown(self) -> None:
        """Ask the kernel to end itself."""
        self._send("control", self._session.msg("shutdown_request", {"restart": False}))

    async def close(self) -> None:
        """Stop reading and end the connections."""
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    # --- sending and reading ---------------------------------------------------------------

    def _send(self, name: str, msg: dict[str, Any]) -> None:
        if not self._channels[name].send(self._session.serialize(msg)):
            self.ignored += 1  # a kernel that asks and asks and takes no reply

    def _on_lost(self, name: str, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(f"{reason} ({name})")

    def _on_message(self, name: str, message: zmtp.Message) -> None:
        if name != "stdin" and self._is_flood(message.size):
            self.ignored += 1
            return
        try:
            if message.complete:
                self._handlers[name](messages.open_envelope(message.frames, self._session.sign))
            else:
                self._on_left_out(name, message)
        except (
            ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError
        ):  # fmt: skip
            # Not signed with our key, not a message, or without what a message has.
            self.ignored += 1

    def _is_flood(self, size: int) -> bool:
        """Whether a message is too large to handle: checking it takes longer than sending it."""
        self._cell_bytes += size
        return size > SMALL_BYTES and self._cell_bytes > MAX_CELL_BYTES

    def _on_left_out(self, name: str, message: zmtp.Message) -> None:
        """Say that a message was too large, where somebody waits for it."""
        header, parent = messages.headers_of(message.frames)
        cell = self._cells.get(str(parent.get("msg_id")))
        if name == "stdin":
            self._refuse(header)
        elif cell is not None and name == "iopub":
            cell.collector.leave_out(message.size)
        elif cell is not None and name == "shell":
            self._end_without_reply(cell, message.size)

    def _on_iopub(self, message: Envelope) -> None:
        kind, cell = message.kind, self._cells.get(message.answers)
        if not self.welcome.done():
            self.welcome.set_result(None)
        if kind == "status":
            state = messages.content_of(message.content)["execution_state"]
            if cell is not None and state == "idle":
                cell.idle = True
                cell.advance()
        elif kind in OUTPUTS and (cell is not None or kind in LATE):
            collector = self._late_collector() if cell is None else cell.collector
            add = (
                collector.capture if self._widgets.take(message.answers) else collector.add_message
            )
            try:
                most = MAX_TEXT if kind == "stream" else MAX_MESSAGE
                add(kind, messages.content_of(message.content, most=most))
            except messages.TooCostly:
                collector.leave_out(len(message.content))
        elif kind in COMMS and len(message.content) <= SMALL_BYTES:
            self._widgets.listen(kind, messages.content_of(message.content))

    def _late_collector(self) -> Collector:
        """Return the collector for late output of an earlier cell's thread or child.

        The next cell shows it, or the one that is running.
        """
        running = next((c for c in reversed(self._cells.values()) if c.is_seen), None)
        return self._late if running is None else running.collector

    def _on_reply(self, message: Envelope) -> None:
        cell = self._cells.get(message.answers)
        if cell is None or message.kind != "execute_reply":
            return
        items = messages.TAKEN_ITEMS if cell.brings_values else messages.MAX_ITEMS
        try:
            cell.reply = messages.content_of(message.content, items=items)
        except messages.TooCostly:
            self._end_without_reply(cell, len(message.content))
            return
        cell.changes = read_changes(messages.metadata_of(message.metadata).get("variables"))
        cell.advance()

    def _on_heard(self, message: Envelope) -> None:
        if message.kind == "interrupt_reply" and not self._heard.done():
            self._heard.set_result(None)

    def _end_without_reply(self, cell: Cell, size: int) -> None:
        reason = f"the kernel's reply was too large: {size_text(size)}"
        cell.reply = {"status": "error", "ename": "KernelError", "evalue": reason}
        cell.advance()

    # --- host calls ------------------------------------------------------------------------

    def _on_stdin(self, message: Envelope) -> None:
        if message.kind != "input_request":
            self.ignored += 1
            return
        asked = messages.question(message.content)
        if len(self._requests) >= MAX_REQUESTS:
            self.ignored += 1
            self._refuse(message.header)
            return
        cell = self._cells.get(message.answers)
        context = None if cell is None else cell.context.copy()
        task = asyncio.create_task(self._answer(message.header, cell, asked), context=context)
        self._requests.add(task)
        self._count(len(asked))
        task.add_done_callback(partial(self._finish_request, len(asked)))

    def _finish_request(self, size: int, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._count(-size)

    def _count(self, size: int) -> None:
        """Hold the kernel's next call back while those under way are too many bytes."""
        was_held = self._under_way > MAX_UNDER_WAY
        self._under_way += size
        if was_held != (held := self._under_way > MAX_UNDER_WAY):
            self._channels["stdin"].hold(held=held)

    def _refuse(self, header: dict[str, Any]) -> None:
        self._reply(header, "")

    def _reply(self, header: dict[str, Any], value: str) -> None:
        # Of the header only what can be written again: it is the kernel's.
        told = {k: encodable(v) for k, v in header.items() if k in HEADER and isinstance(v, str)}
        reply = self._session.msg("input_reply", {"value": value}, parent={"header": told})
        try:
            self._send("stdin", reply)
        except UnicodeError:  # halves of characters, which no message can hold
            self._send("stdin", {**reply, "content": {"value": encodable(value)}})

    async def _answer(self, header: dict[str, Any], cell: Cell | None, asked: zmtp.Frame) -> None:
        if cell is None or cell.on_request is None:
            value = ""
        else:
            value = await cell.on_request(await self._text(asked))
        self._reply(header, value)

    async def _text(self, asked: zmtp.Frame) -> str:
        """Read a request, with a turn for the loop after each piece; empty where it is no text."""
        pieces: list[str] = []
        try:
            for piece in messages.text_in_pieces(asked):
                pieces.append(piece)
                if len(asked) > messages.PIECE:
                    await asyncio.sleep(0)
        except ValueError:
            self.ignored += 1
            return ""
        return "".join(pieces)


async def first_of(*futures: asyncio.Future[None], seconds: float) -> None:
    """Wait until one of these is done, for at most so long."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def over(
    cell: Cell, *, died: asyncio.Future[None], seconds_left: Callable[[], float | None]
) -> str:
    """Wait for a cell: return ``over``, ``died`` or ``timeout``.

    Parameters
    ----------
    died
        Done when the kernel's process has ended.
    seconds_left
        Asked again and again, because waiting for a person stops the clock.
    """
    half_since: float | None = None
    while True:
        left = seconds_left()
        if left is not None and left <= 0:
            return "timeout"
        await asyncio.wait(
            (cell.over, died),
            timeout=1.0 if left is None else min(left, 1.0),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if cell.over.done():
            return "over"
        if died.done():
            return "died"
        if cell.reply is not None:
            half_since = half_since or time.monotonic()
            if time.monotonic() - half_since > REPLY_GRACE_S:
                return "over"
