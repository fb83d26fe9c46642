"""Our client for a running kernel: four sockets, read as soon as they have something, no loss.

Written over jupyter_client's ``Session`` (which signs and packs messages) instead of its
clients, because those wait for fixed times, poll, and rely on a socket that drops messages
(measured; ``docs/design.md``, "Kernel"). The protocol is
https://jupyter-client.readthedocs.io/en/stable/messaging.html.

The sockets are read from the event loop by their file descriptor. That descriptor only tells of
*changes* (http://api.zeromq.org/4-3:zmq-getsockopt, ZMQ_FD), and sending takes such a change
away, so a socket is read until it is empty: when its descriptor says so, and after each send.

A cell is over when the kernel has said ``idle`` for it on the output channel *and* has replied:
everything that the cell printed was sent before that ``idle`` on the same socket, and the socket
keeps everything. The kernel is hostile: whatever it sends is checked or counted, never believed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any

import zmq
from jupyter_client.session import DELIM, Session

from kernel_agent.kernel.outputs import Collector
from kernel_agent.records import CellError, Changes, OutputDict
from kernel_agent.text import json_items
from kernel_agent.variables import read_changes

MAX_MESSAGE = 256 * 1024 * 1024  # bytes; larger ones are refused by libzmq: the last defence
MAX_HEADERS = 100_000  # bytes of a message's header and its parent's
RECONNECT_MS = 2  # until the kernel has bound its sockets; libzmq's default is 100
BATCH = 200  # messages read before the event loop gets its turn
MAX_METADATA = 1_000_000  # bytes of a reply's metadata that are read
MAX_CONTENT = 80_000_000  # bytes of a content; all that our kernel displays of a cell is less
MAX_ITEMS = 1_000_000  # lists, objects and items in it: each costs many times its length
MAX_REQUESTS = 256  # requests of the kernel answered at a time; our own code has 128 under way
MAX_REQUEST = 80_000_000  # bytes of one; a kernel that sends more is disconnected
QUEUED = 200  # messages of another channel that wait to be read
MAX_CELL_BYTES = 256 * 1024 * 1024  # of messages that are looked at, from a cell to the next one
SMALL_BYTES = 100_000  # of a message that is looked at even then: it may be the cell's end
QUEUED_REQUESTS = 16  # requests that wait to be read; then the kernel has to wait
REPLY_GRACE_S = 10.0  # how long one half of a cell's end may come after the other

_BEFORE_PROMPT = re.compile(rb'\s*\{\s*"prompt"\s*:\s*(?=")')
_AFTER_PROMPT = re.compile(rb'\s*(?:,\s*"password"\s*:\s*(?:true|false)\s*)?\}\s*\Z')

OnOutput = Callable[[OutputDict], None]
OnRequest = Callable[[str], Awaitable[str]]


class Cell:
    """A cell that is running: what it has put out, and whether it is over."""

    def __init__(
        self,
        step: int,
        on_output: OnOutput | None,
        on_request: OnRequest | None,
        *,
        brings_values: bool = False,
    ) -> None:
        # Of whoever runs the cell: in a notebook, what a tool or an approver prints belongs to the
        # cell that asked, not to the one in which the session was started.
        context = self.context = copy_context()

        def tell(output: OutputDict) -> None:
            if on_output is not None:
                context.run(on_output, output)

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
        traceback = reply.get("traceback")
        lines = tuple(map(str, traceback)) if isinstance(traceback, list) else ()
        return CellError(
            ename=str(reply.get("ename", "Aborted")),
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
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._cells: dict[str, Cell] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._shell = self._connect(zmq.DEALER, info, "shell")
        self._control = self._connect(zmq.DEALER, info, "control")
        self._stdin = self._connect(zmq.DEALER, info, "stdin")
        self._iopub = self._connect(zmq.SUB, info, "iopub")
        self._handlers: tuple[tuple[zmq.Socket[bytes], Callable[[dict[str, Any]], None]], ...] = (
            (self._iopub, self._on_iopub),
            (self._shell, self._on_reply),
            (self._control, self._on_reply),
            (self._stdin, self._on_stdin),
        )
        self.welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the output channel has brought something: from then on nothing is missed."""
        self.ignored = 0
        """Messages that were not valid or belonged to nothing that is running."""
        self._late = Collector()
        self._cell_bytes = 0

    def _connect(self, kind: int, info: dict[str, Any], channel: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.reconnect_ivl = RECONNECT_MS
        socket.maxmsgsize = MAX_MESSAGE
        # Our kernels keep what is not read yet: they have to wait. Others would drop output, and
        # with it the cell's end; of them everything is kept here.
        socket.rcvhwm = QUEUED if info["transport"] == "ipc" else 0
        if channel == "stdin":  # no end of a flood is kept in memory: the sender waits
            socket.maxmsgsize, socket.rcvhwm = MAX_REQUEST, QUEUED_REQUESTS
        if kind == zmq.DEALER:
            # One identity on all channels: the kernel routes input requests by it.
            socket.identity = self._session.bsession
        else:
            socket.subscribe(b"")
        between = "-" if info["transport"] == "ipc" else ":"
        socket.connect(f"{info['transport']}://{info['ip']}{between}{info[channel + '_port']}")
        return socket

    def start(self) -> None:
        """Begin to read; called once, with the event loop running."""
        loop = asyncio.get_running_loop()
        for socket, handle in self._handlers:
            loop.add_reader(int(socket.fd), self._read, socket, handle)
            loop.call_soon(self._read, socket, handle)

    def ask_for_a_sign(self) -> None:
        """Make the kernel put something out, for kernels that do not greet (ipykernel < 7.2)."""
        self._send(self._shell, self._session.msg("kernel_info_request", {}))

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
            The number under which the kernel counts it.
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
        self._send(self._shell, msg)
        return cell

    def forget(self, cell: Cell) -> None:
        """Stop collecting for a cell; what still comes of it is shown with the next one."""
        self._cells = {k: c for k, c in self._cells.items() if c is not cell}

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running cell, also in one that awaits.

        An awaiting cell only notices when its event loop wakes up (ipykernel issue 881): the
        second message wakes it.
        """
        self._send(self._control, self._session.msg("interrupt_request", {}))
        self._send(self._shell, self._session.msg("kernel_info_request", {}))

    def shutdown(self) -> None:
        """Ask the kernel to end itself."""
        self._send(self._control, self._session.msg("shutdown_request", {"restart": False}))

    async def close(self) -> None:
        """Stop reading and close the sockets."""
        loop = asyncio.get_running_loop()
        for socket, _ in self._handlers:
            loop.remove_reader(int(socket.fd))
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        self._context.destroy(linger=0)

    # --- sending and reading ---------------------------------------------------------------

    def _send(self, socket: zmq.Socket[bytes], msg: dict[str, Any]) -> None:
        try:
            socket.send_multipart(self._session.serialize(msg), zmq.NOBLOCK)
        except zmq.Again:  # a kernel that asks and asks and takes no reply must not stop the host
            self.ignored += 1
            return
        handle = next(h for s, h in self._handlers if s is socket)
        asyncio.get_running_loop().call_soon(self._read, socket, handle)

    def _read(self, socket: zmq.Socket[bytes], handle: Callable[[dict[str, Any]], None]) -> None:
        for _ in range(BATCH):
            if socket.closed:
                return
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if socket is not self._stdin and self._is_flood(sum(map(len, frames))):
                self.ignored += 1
                continue
            try:
                handle(self._unpack(frames))
            except (
                ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError
            ):  # fmt: skip
                # Not signed with our key, not a message, or without what a message has.
                self.ignored += 1
        # A flood must not keep the loop from everything else: come back for the rest.
        asyncio.get_running_loop().call_soon(self._read, socket, handle)

    def _is_flood(self, size: int) -> bool:
        """Whether a message is more than is looked at: to check it takes longer than to send it."""
        self._cell_bytes += size
        return size > SMALL_BYTES and self._cell_bytes > MAX_CELL_BYTES

    def _unpack(self, frames: list[bytes]) -> dict[str, Any]:
        """Check the signature and read the parts that we use.

        ``Session.deserialize`` would also turn dates in all of them into objects, for half a
        millisecond a cell.
        """
        start = frames.index(DELIM)
        signature, header, parent, metadata, content = frames[start + 1 : start + 6]
        expected = self._session.sign([header, parent, metadata, content])
        if not hmac.compare_digest(signature, expected):
            raise ValueError("wrong signature")
        if len(header) + len(parent) > MAX_HEADERS:
            raise ValueError("headers that are too long")
        head, above = json.loads(header), json.loads(parent)
        kind = head["msg_type"]
        read_metadata = kind == "execute_reply" and len(metadata) <= MAX_METADATA
        return {
            "header": head,
            "msg_type": kind,
            "metadata": json.loads(metadata) if read_metadata else {},
            "parent_header": above,
            "content": self._content(kind, content, above),
        }

    def _content(self, kind: str, content: bytes, above: dict[str, Any]) -> Any:
        """Read a message's content, unless what it becomes in memory is too much."""
        if kind == "input_request":
            return _question(content)
        cell = self._cells.get(str(above.get("msg_id")))
        asked_for = kind == "execute_reply" and cell is not None and cell.brings_values
        too_large = len(content) > MAX_CONTENT or json_items(content, MAX_ITEMS) > MAX_ITEMS
        if too_large and not asked_for:
            raise ValueError("content that is too large")
        return json.loads(content)

    def _cell_of(self, msg: dict[str, Any]) -> Cell | None:
        return self._cells.get(msg["parent_header"].get("msg_id"))

    def _on_iopub(self, msg: dict[str, Any]) -> None:
        kind, cell = msg["msg_type"], self._cell_of(msg)
        if not self.welcome.done():
            self.welcome.set_result(None)
        if kind == "status":
            if cell is not None and msg["content"]["execution_state"] == "idle":
                cell.idle = True
                cell.advance()
        elif cell is not None:
            cell.collector.add_message(kind, msg["content"])
        elif kind in ("stream", "display_data", "execute_result", "error"):
            self._on_late(kind, msg["content"])

    def _on_late(self, kind: str, content: dict[str, Any]) -> None:
        """Keep what a thread or child of an earlier cell puts out: the next cell shows it."""
        running = next(reversed(self._cells.values()), None)
        collector = self._late if running is None else running.collector
        collector.add_message(kind, content)

    def _on_reply(self, msg: dict[str, Any]) -> None:
        cell = self._cell_of(msg)
        if cell is not None and msg["msg_type"] == "execute_reply":
            cell.reply = dict(msg["content"])
            cell.changes = read_changes(_ours(msg["metadata"]).get("variables"))
            cell.advance()

    def _on_stdin(self, msg: dict[str, Any]) -> None:
        if msg["msg_type"] != "input_request":
            self.ignored += 1
            return
        if len(self._requests) >= MAX_REQUESTS:
            self.ignored += 1
            self._send(self._stdin, self._session.msg("input_reply", {"value": ""}, parent=msg))
            return
        cell = self._cell_of(msg)
        context = None if cell is None else cell.context.copy()
        task = asyncio.create_task(self._answer(msg), context=context)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _answer(self, msg: dict[str, Any]) -> None:
        cell = self._cell_of(msg)
        if cell is None or cell.on_request is None:
            value = ""
        else:
            value = await cell.on_request(str(msg["content"].get("prompt", "")))
        reply = self._session.msg("input_reply", {"value": value}, parent=msg)
        self._send(self._stdin, reply)


def _question(content: bytes) -> dict[str, Any]:
    """Read the content of an input request, which may be large: one text, and no lists in it.

    Lists and objects cost the host many times their length before anybody can refuse them.
    """
    before = _BEFORE_PROMPT.match(content)
    after = _AFTER_PROMPT.search(content, max(len(content) - 60, 0))
    if before is None or after is None:
        raise ValueError("not an input request")
    # What begins with a quote is read as one text, or not at all.
    return {"prompt": json.loads(content[before.end() : after.start()])}


def _ours(metadata: Any) -> dict[str, Any]:
    """Return what our code in the kernel has written into a message's metadata."""
    ours = metadata.get("kernel_agent") if isinstance(metadata, dict) else None
    return ours if isinstance(ours, dict) else {}


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
