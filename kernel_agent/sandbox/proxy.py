"""HTTP proxy in the host, on a unix socket: the one way out of a sandbox, for allowed hosts only.

The kernel has an empty network. When hosts were named (``--allow-host``), a forwarder inside hands
every connection to this proxy, which speaks HTTP/1.1 (RFC 9110, 9112): ``CONNECT`` for TLS, and
requests in absolute form for plain HTTP. The host decides, resolves and connects; everything that
is not named is refused with 403. What was asked for is counted per host (:attr:`Proxy.visits`).

The client is hostile. Its messages are read and written anew by h11, so that nothing can be
smuggled in a second interpretation; sizes, times and the number of connections are bounded; a TLS
connection must name the host that it was opened for (else a large provider's front door leads to
all its other customers). For the same reason a tunnel to a web port holds TLS: in plain HTTP it is
the proxy that names the host. In a tunnel the client speaks first.

A server that was named may be its accomplice, and a megabyte of chunks of one byte is half a minute
of work. So all of it happens in a separate thread (:class:`_OwnLoop`), and the loop that serves the
kernel goes on turning.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11

from kernel_agent.records import Visit
from kernel_agent.safe import one_line
from kernel_agent.sandbox.allowlist import (
    WEB_PORTS,
    AllowedHost,
    find_allowed,
    may_connect,
    normalize,
    split_host,
)
from kernel_agent.sandbox.connection import (
    CHUNK,
    IDLE_S,
    Client,
    Refused,
    Streams,
    has_two_lengths,
    server_name,
)

CONNECTIONS_MAX = 64  # at once; beyond that 503, and far beyond not even that
HEAD_S = 10.0  # until a request's head is complete, a name resolved, a connection made
CLOSE_S = 3.0  # for the connections that are open at the end
HOSTS_MAX = 200  # distinct destinations that are counted by name
OTHERS = "(others)"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask the host's own resolver for the addresses of a name."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(where[0]) for *_, where in found]


class _OwnLoop:
    """An event loop in a daemon thread, for work that strangers cause; ended by :meth:`end`.

    What they make it compute takes its turn with the host's own loop every five milliseconds
    (Python's switch between threads), instead of standing before it.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine on the loop; cancelling cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def end(self) -> None:
        """End the loop; what still runs in it is forgotten."""
        self._loop.call_soon_threadsafe(self._loop.stop)


class Proxy:
    """A proxy on a unix socket. Made by ``Session``, started and closed with its kernel.

    Parameters
    ----------
    allowed
        The hosts that were named.
    on_visit
        Called with each destination the first time that it is asked for; in the loop that started
        the proxy, before what comes from there reaches the kernel.
    resolve
        Turns a name into addresses; the host's resolver by default.
    """

    def __init__(
        self,
        allowed: Sequence[AllowedHost],
        *,
        on_visit: Callable[[Visit], None] = lambda _visit: None,
        resolve: Resolve = resolve,
    ) -> None:
        self.allowed = tuple(allowed)
        self._on_visit = on_visit
        self._resolve = resolve
        self._visits: dict[tuple[str, int, bool], Visit] = {}
        self._server: asyncio.AbstractServer | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._path: Path | None = None
        self._apart: _OwnLoop | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._counting = threading.RLock()

    @property
    def visits(self) -> tuple[Visit, ...]:
        """Destinations asked for so far, most requests first."""
        with self._counting:
            return tuple(sorted(self._visits.values(), key=lambda visit: -visit.requests))

    def take_visits(self) -> tuple[Visit, ...]:
        """Return the destinations asked for since the last time, most requests first."""
        with self._counting:
            visits, self._visits = self.visits, {}
        return visits

    async def start(self, path: Path) -> None:
        """Listen on a socket at this path, whose directory is private."""
        self._home = asyncio.get_running_loop()
        self._apart = _OwnLoop("kernel-agent-proxy")
        await self._apart.do(self._listen(path))

    async def close(self) -> None:
        """Stop listening, end every connection, remove the socket."""
        if self._apart is not None:
            with contextlib.suppress(TimeoutError):  # it computes; its thread ends when it can
                await asyncio.wait_for(self._apart.do(self._end()), CLOSE_S)
            self._apart.end()
            self._apart = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _listen(self, path: Path) -> None:
        self._path = path
        self._server = await asyncio.start_unix_server(
            self._accept, path=str(path), limit=CHUNK, backlog=CONNECTIONS_MAX
        )
        # The kernel may be another user; whom the directory lets in decides, and it is private.
        path.chmod(0o666)  # noqa: ASYNC240 - one system call

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.gather(*self._open, return_exceptions=True)

    # --- one connection, one request -------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        client = Client(reader, writer)
        try:
            await self._serve(client)
        except Refused as refusal:
            self._count(refusal.host, refusal.port, allowed=False, reason=str(refusal))
            await client.refuse(refusal)
        except (OSError, TimeoutError, h11.ProtocolError, asyncio.CancelledError):
            pass  # it went away, speaks no HTTP any more, or we close: there is no one to tell
        finally:
            self._open.discard(task)
            await _hang_up(writer)

    async def _serve(self, client: Client) -> None:
        if len(self._open) > 4 * CONNECTIONS_MAX:
            return
        async with asyncio.timeout(HEAD_S):
            request = await client.request()
        if len(self._open) > CONNECTIONS_MAX:
            raise Refused(503, f"more than {CONNECTIONS_MAX} connections at once")
        method = request.method.decode("ascii", "replace")
        pass_on = self._tunnel if method == "CONNECT" else self._forward
        await pass_on(client, request)

    async def _tunnel(self, client: Client, request: h11.Request) -> None:
        """Open a tunnel, and look at its first bytes: TLS names that host (an address: none)."""
        host, port = split_host(request.target.decode("ascii", "replace"))
        named = self._permit(host, port or 0)
        upstream = await self._connect(named, port or 0)
        try:
            await client.accept_tunnel()
            try:
                hello = await client.first_bytes()
            except TimeoutError:  # a connection was made all the same
                self._count(host, port or 0, allowed=True)
                return
            inner = server_name(hello)
            if inner is None and port in WEB_PORTS:
                self._count(host, port, allowed=False, reason="no TLS in a tunnel")
                return
            unnamed = not inner and named.is_local and host != "localhost"  # RFC 6066, 3
            if inner is not None and normalize(inner) != host and not unnamed:
                self._count(normalize(inner) or one_line(inner, 80), port or 0, allowed=False,
                            reason=f"hidden behind {host}")  # fmt: skip
                return
            self._count(host, port or 0, allowed=True)
            await self._join(client.streams, upstream, (host, port or 0), hello)
        finally:
            await _hang_up(upstream[1])

    async def _forward(self, client: Client, request: h11.Request) -> None:
        """Pass on one plain request, and its answer, both written anew."""
        try:
            url = urlsplit(request.target.decode("ascii"))
            host, port = split_host(url.netloc.rpartition("@")[2])
        except ValueError:
            raise Refused(400, "the request names no URL that can be read") from None
        if url.scheme != "http" or not host:
            raise Refused(400, "this proxy takes http:// URLs, and CONNECT for https")
        port = port or 80
        named = self._permit(host, port)
        if has_two_lengths(request):  # no honest client sends that; the server may take the other
            reason = "a request with both Content-Length and Transfer-Encoding is not passed on"
            raise Refused(400, reason, host=host, port=port)
        path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
        upstream = await self._connect(named, port)
        try:
            self._count(host, port, allowed=True)
            sent, received = await client.exchange(request, path, named, upstream)
            self._add(host, port, sent=sent, received=received)
        finally:
            await _hang_up(upstream[1])

    # --- decisions -------------------------------------------------------------------------

    def _permit(self, host: str, port: int) -> AllowedHost:
        named = find_allowed(host, port, self.allowed)
        if named is None:
            shown = f"{host}:{port}" if host else "this address"
            names = ", ".join(map(str, self.allowed))
            raise Refused(
                403, f"{shown} is not among the allowed hosts ({names})", host=host, port=port
            )
        return named

    async def _usable(self, named: AllowedHost, port: int) -> list[str]:
        addresses = await self._resolve(named.name, port)
        usable = [found for found in addresses if may_connect(named, found)]
        if not usable:
            raise Refused(
                403, f"{named.name} resolves to a private address", host=named.name, port=port
            )
        return usable

    async def _connect(self, named: AllowedHost, port: int) -> Streams:
        try:
            async with asyncio.timeout(HEAD_S):
                return await self._connect_to_first(await self._usable(named, port), port)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer"
            raise Refused(
                502, f"{named.name}:{port} cannot be reached: {reason}", host=named.name, port=port
            ) from None

    @staticmethod
    async def _connect_to_first(addresses: Sequence[str], port: int) -> Streams:
        last: OSError | None = None
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port, limit=CHUNK)
            except OSError as error:
                last = error
        assert last is not None
        raise last

    # --- counting --------------------------------------------------------------------------

    def _count(self, host: str, port: int, *, allowed: bool, reason: str = "") -> None:
        with self._counting:
            key = self._key(host, port, allowed=allowed)
            known = self._visits.get(key)
            if known is None:
                known = Visit(host=key[0], port=key[1], allowed=allowed, reason=reason)
                self._tell(replace(known, requests=1))
            self._visits[key] = replace(known, requests=known.requests + 1)

    def _add(self, host: str, port: int, *, sent: int = 0, received: int = 0) -> None:
        with self._counting:
            key = self._key(host, port, allowed=True)
            visit = self._visits.get(key) or Visit(host=key[0], port=key[1], allowed=True)
            self._visits[key] = replace(
                visit, sent=visit.sent + sent, received=visit.received + received
            )

    def _tell(self, visit: Visit) -> None:
        """Report a visit in the loop that started the proxy."""
        assert self._home is not None  # connections are served from the start on
        with contextlib.suppress(RuntimeError):  # that loop has been closed: nobody listens
            self._home.call_soon_threadsafe(self._on_visit, visit)

    def _key(self, host: str, port: int, *, allowed: bool) -> tuple[str, int, bool]:
        key = (host or "(no host)", port, allowed)
        if key in self._visits or len(self._visits) < HOSTS_MAX:
            return key
        return (OTHERS, 0, allowed)

    async def _join(
        self, client: Streams, upstream: Streams, where: tuple[str, int], first: bytes
    ) -> None:
        """Copy both ways until both sides have ended, or nothing moves any more."""
        clock = asyncio.get_running_loop().time
        moved = clock()

        async def copy(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            count: Callable[[int], None],
        ) -> None:
            nonlocal moved
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
                moved = clock()
                count(len(data))
            if writer.can_write_eof():
                writer.write_eof()

        def count_sent(size: int) -> None:
            self._add(*where, sent=size)

        def count_back(size: int) -> None:
            self._add(*where, received=size)

        upstream[1].write(first)
        count_sent(len(first))
        copies = asyncio.ensure_future(
            asyncio.gather(
                copy(client[0], upstream[1], count_sent),
                copy(upstream[0], client[1], count_back),
            )
        )
        try:
            while not copies.done() and clock() - moved < IDLE_S:
                await asyncio.wait({copies}, timeout=IDLE_S)
        finally:
            copies.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await copies


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
