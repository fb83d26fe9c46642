"""A connection of the proxy: a hostile client's request, read by h11 and written anew.

What both sides send is bounded in size and in time; see :mod:`kernel_agent.sandbox.proxy` for what
is permitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import h11

from kernel_agent.sandbox.allowlist import AllowedHost

HEAD_BYTES_MAX = 65_536
IDLE_S = 120.0  # without a byte in either direction
INTERIM_MAX = 100  # answers like 100 Continue before the one that counts
CHUNK = 65_536
HELLO_MAX = 16_384 + 5  # one TLS record
TLS_HANDSHAKE = 0x16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Refused(Exception):
    """A request that is answered with an error; the message is for the code in the kernel."""

    def __init__(self, status: int, reason: str, *, host: str = "", port: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        self.host = host
        self.port = port


class Client:
    """The kernel's side of a connection: its one request is read, and answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams = (reader, writer)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def request(self) -> h11.Request:
        """Read the request's head."""
        try:
            event = await _next_event(self._http, self.streams[0])
        except h11.RemoteProtocolError as error:
            raise Refused(400, f"not a request that can be read: {error}") from None
        if not isinstance(event, h11.Request):
            raise ConnectionResetError
        return event

    async def accept_tunnel(self) -> None:
        """Accept the tunnel; from now on the bytes belong to the two ends."""
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connected"))

    async def first_bytes(self) -> bytes:
        """Return the client's first bytes: for TLS its whole first record."""
        waiting, _ = self._http.trailing_data
        data = bytes(waiting)
        reader = self.streams[0]
        async with asyncio.timeout(IDLE_S):
            data = data or await reader.read(CHUNK)
            while data[:1] == bytes([TLS_HANDSHAKE]) and len(data) < _record_length(data):
                if not (more := await reader.read(CHUNK)):
                    break
                data += more
        return data

    async def refuse(self, refusal: Refused) -> None:
        """Answer with an error, unless an answer has begun."""
        if self._http.our_state is not h11.SEND_RESPONSE and self._http.our_state is not h11.IDLE:
            return
        text = f"kernel-agent: {refusal}\n".encode()
        head = h11.Response(
            status_code=refusal.status,
            headers=[("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close"),
                     ("Content-Length", str(len(text)))],
            reason=str(refusal).encode("ascii", "replace")[:200],
        )  # fmt: skip
        with contextlib.suppress(OSError, h11.LocalProtocolError):
            await self._send(head)
            await self._send(h11.Data(data=text))
            await self._send(h11.EndOfMessage())
            await self._read_what_is_left()

    async def _read_what_is_left(self) -> None:
        """Read the rest of a refused request: else the answer is lost with a reset."""
        reader, writer = self.streams
        writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                for _ in range(16):
                    if not await reader.read(CHUNK):
                        return

    async def exchange(
        self, request: h11.Request, path: str, named: AllowedHost, upstream: Streams
    ) -> tuple[int, int]:
        """Pass the request on and the answer back; return the bytes of content each way."""
        reader, writer = upstream
        server = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        port = writer.get_extra_info("peername")[1]
        host = f"[{named.name}]" if ":" in named.name else named.name
        name = host if port == 80 else f"{host}:{port}"
        headers: list[tuple[bytes, bytes]] = [
            (b"Host", name.encode()),
            *_forward_headers(request),
            (b"Connection", b"close"),
        ]
        head = h11.Request(method=request.method, target=path, headers=headers)
        counts = [0, 0]

        async def up() -> None:
            writer.write(server.send(head) or b"")
            async for event in _body(self._http, self.streams[0]):
                if isinstance(event, h11.Data):
                    counts[0] += len(event.data)
                writer.write(server.send(event) or b"")
                await writer.drain()

        async def down() -> None:
            event = await _answer(server, reader)
            while True:
                if isinstance(event, h11.Response):
                    event = h11.Response(
                        status_code=event.status_code,
                        headers=[*_forward_headers(event), (b"Connection", b"close")],
                        reason=event.reason,
                    )
                if isinstance(event, h11.Data):
                    counts[1] += len(event.data)
                if isinstance(event, h11.Response | h11.Data | h11.EndOfMessage):
                    await self._send(event)
                if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    return
                event = await _next_event(server, reader)

        sending = asyncio.ensure_future(up())
        try:
            await down()
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, h11.ProtocolError):
                await sending
        return counts[0], counts[1]

    async def _send(self, event: h11.Event) -> None:
        writer = self.streams[1]
        writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(IDLE_S):
            await writer.drain()


def server_name(hello: bytes) -> str | None:
    """Return the host that a TLS ClientHello names (RFC 6066, 3); None when it is not TLS.

    TLS that names no host gives ``""``, which is no allowed host's: the provider would decide.
    """
    if hello[:1] != bytes([TLS_HANDSHAKE]):
        return None
    seen: list[str] = []

    def note(_socket: object, name: str | None, _context: ssl.SSLContext) -> int:
        seen.append(name or "")
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME  # that was all we wanted to know

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = note
    incoming = ssl.MemoryBIO()
    incoming.write(hello)
    with contextlib.suppress(ssl.SSLError):
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    return seen[0] if seen else ""


def _record_length(data: bytes) -> int:
    """Return how long the first TLS record is, with its header (RFC 8446, 5.1)."""
    if len(data) < 5:
        return 5
    return min(5 + int.from_bytes(data[3:5], "big"), HELLO_MAX)


def has_two_lengths(message: h11.Request | h11.Response) -> bool:
    """Whether the length of the body is told twice (RFC 9112, 6.1): readers may differ on it."""
    names = {name for name, _ in message.headers}
    return {b"content-length", b"transfer-encoding"} <= names


def _forward_headers(message: h11.Request | h11.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers without those of one connection (RFC 9110, 7.6.1) and the host's name.

    Of two lengths the one that counts is left.
    """
    here = {
        b"host", b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization",
        b"proxy-authenticate", b"te", b"trailer", b"upgrade",
    }  # fmt: skip
    if has_two_lengths(message):
        here.add(b"content-length")
    return [
        (name, value) for name, value in message.headers.raw_items() if name.lower() not in here
    ]


async def _answer(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    """Return the head of the final answer, behind interim ones like ``100 Continue``."""
    for _ in range(INTERIM_MAX):
        event = await _next_event(http, reader)
        if not isinstance(event, h11.InformationalResponse):
            return event
    raise Refused(502, f"the server gave {INTERIM_MAX} interim answers and no other")


async def _next_event(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(IDLE_S):
                http.receive_data(await reader.read(CHUNK))
        elif event is h11.PAUSED:
            raise ConnectionResetError
        else:
            assert not isinstance(event, type)
            return event


async def _body(http: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[h11.Event]:
    while True:
        event = await _next_event(http, reader)
        yield event
        if isinstance(event, h11.EndOfMessage):
            return
