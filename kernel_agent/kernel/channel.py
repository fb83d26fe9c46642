"""One of a kernel's sockets: connected once, read no faster than its messages are handled.

A channel tries to connect until the kernel has bound its socket and introduced itself. Once that
stood, the end of the connection is the end of the channel: a kernel never makes its sockets anew,
so anything that answers now is another process.

What is read is handed on at once, for a few milliseconds at a time; then everything else on the
event loop has its turn. What is not handed on yet is not read either: the sender has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter

from kernel_agent.kernel import zmtp

RETRY_S = 0.002  # until the kernel has bound its sockets: it is waited for
SLICE_S = 0.005  # of reading at a time
MAX_WAITING = 128_000_000  # bytes that wait to be sent to a peer that does not read
MAX_PONGS = 64_000  # bytes waiting with which no more is said in return to a PING

OnMessage = Callable[[zmtp.Message], None]
OnLost = Callable[[str], None]


class Channel(asyncio.Protocol):
    """A connection to one of a kernel's sockets.

    Parameters
    ----------
    address
        The path of a unix socket, or host and port.
    kind
        What we are in ZMTP's terms: ``DEALER`` or ``SUB``, which takes everything.
    identity
        By which a ROUTER knows us.
    most
        Asked when a message begins: how many bytes of it may be kept.
    on_message
        Called with each message, also with one of which only a part was kept.
    on_lost
        Called once, with the reason, when a connection that stood has ended and all that came
        over it was handed on.
    ahead
        Bytes that are read before they are looked at.
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        *,
        kind: str,
        identity: bytes = b"",
        most: Callable[[], int],
        on_message: OnMessage,
        on_lost: OnLost,
        ahead: int = 0,
    ) -> None:
        self._address = address
        self._introduction = zmtp.GREETING + zmtp.ready(kind, identity)
        self._first = [zmtp.message([zmtp.SUBSCRIBE_ALL])] if kind == "SUB" else []
        self._most = most
        self._on_message = on_message
        self._on_lost = on_lost
        self._ahead = ahead
        self._transport: asyncio.Transport | None = None
        self._stands = False
        self._lost = ""
        self._held = False
        self._working = False
        self._opening: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._reader = zmtp.Reader(self._most)
        self._chunks: deque[bytes] = deque()
        self._waiting = 0

    # --- life ------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to connect; called once, with the event loop running."""
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._lost:
            self._gone = loop.create_future()
            try:
                if isinstance(self._address, tuple):
                    await loop.create_connection(lambda: self, *self._address)
                elif os.path.exists(self._address):  # noqa: ASYNC240, PTH110 - often, and local
                    await loop.create_unix_connection(lambda: self, self._address)
                else:
                    raise FileNotFoundError
                await self._gone
            except OSError:
                pass
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """End the connection; unsent messages are dropped."""
        self._lost = self._lost or "closed"
        self._chunks.clear()
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
        if self._transport is not None:
            self._transport.abort()
            await asyncio.sleep(0)  # in which the transport closes its socket

    # --- sending ---------------------------------------------------------------------------

    def send(self, frames: list[bytes]) -> bool:
        """Send a message as soon as the connection is made.

        Returns
        -------
        bool
            False when it was dropped, because the peer does not read.
        """
        if self._lost:
            return False
        data, transport = zmtp.message(frames), self._transport
        if transport is None or not self._stands:
            self._first.append(data)
            return True
        waiting = transport.get_write_buffer_size()
        if transport.is_closing() or (waiting and waiting + len(data) > MAX_WAITING):
            return False
        transport.write(data)
        return True

    # --- reading ---------------------------------------------------------------------------

    def hold(self, *, held: bool) -> None:
        """Stop handing on messages, or go on with it."""
        self._held = held
        if not held:
            self._come_back()

    def _come_back(self) -> None:
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Hand on what has come, for one slice of time."""
        self._working = False
        until = perf_counter() + SLICE_S
        try:
            while not self._held and self._step():
                if perf_counter() > until:
                    self._come_back()
                    break
        except zmtp.ProtocolError as error:
            self._end(str(error))
            return
        self._regulate()

    def _step(self) -> bool:
        """Do one piece of work; return whether there may be more."""
        match self._reader.next_event():
            case None:
                if not self._chunks:
                    self._tell_of_the_end()
                    return False
                chunk = self._chunks.popleft()
                self._waiting -= len(chunk)
                self._reader.feed(chunk)
            case zmtp.Message() as message:
                self._on_message(message)
            case zmtp.Ready():
                self._stand()
            case zmtp.Command(answer=answer) if answer:
                transport = self._transport
                if transport is None or transport.is_closing():
                    return True
                if transport.get_write_buffer_size() < MAX_PONGS:
                    transport.write(answer)
        return True

    def _stand(self) -> None:
        assert self._transport is not None
        self._stands = True
        first, self._first = self._first, []
        for data in first:
            self._transport.write(data)

    def _regulate(self) -> None:
        """Pause reading when much waits, resume when little does."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            reads, wanted = transport.is_reading(), self._waiting <= self._ahead and not self._held
            if reads and not wanted:
                transport.pause_reading()
            elif wanted and not reads:
                transport.resume_reading()

    def _end(self, reason: str) -> None:
        """Give the connection up; drop what is left of it."""
        self._chunks.clear()
        self._waiting = 0
        if self._transport is not None:
            self._transport.abort()
        if self._stands and not self._lost:
            self._lost = reason
            self._on_lost(reason)

    def _tell_of_the_end(self) -> None:
        if self._transport is None and self._stands and not self._lost:
            self._lost = "the connection ended"
            self._on_lost(self._lost)

    # --- called by asyncio -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._begin()
        if isinstance(self._address, tuple):  # what lies in between may forget a silent connection
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        transport.write(self._introduction)

    def data_received(self, data: bytes) -> None:
        """Hand on what came, unless that is being done already."""
        self._chunks.append(data)
        self._waiting += len(data)
        if self._working or self._held:
            self._regulate()
        else:
            self._work()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Hand on what had come before the end; then tell of it, or try again."""
        self._transport = None
        if self._gone is not None and not self._gone.done() and not self._stands:
            self._gone.set_result(None)
        self._come_back()
