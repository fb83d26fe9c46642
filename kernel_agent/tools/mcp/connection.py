"""Connection to one MCP server, held by one task on the session's loop.

The client's cancel scopes have to be left in the task that entered them, so one task holds the
client from its start to its end, and calls come from wherever they are made. Everything is
bounded: the start, a call, the number of starts, the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.records import Event, Notice
from kernel_agent.safe import one_line
from kernel_agent.tools.mcp.answers import check_messages
from kernel_agent.tools.mcp.pipes import MESSAGE_MAX, excess, pipes
from kernel_agent.tools.mcp.servers import Server

if TYPE_CHECKING:
    from mcp import Client

RESTARTS_MAX = 3
PAGES_MAX = 100  # of a list of tools
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")  # of an event
END_S = 5.0  # until an end that hangs is given up
_GONE = ("ConnectError", "ConnectTimeout", "ReadError", "RemoteProtocolError")  # of HTTP
_NO_WORDS = ("Not Found", "Server returned an error response")  # of the client, for any status


class Connection:
    """A connection to one server; opened and closed by the session.

    Parameters
    ----------
    server
        What the user named.
    on_event
        Called with a notice when a server had to be started again.
    """

    def __init__(self, server: Server, on_event: Callable[[Event], None]) -> None:
        self.server = server
        self._on_event = on_event
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._ended = ""  # why the server stopped talking
        self._status = 0  # of HTTP, when an answer was none
        self._restarts = 0
        self._starting = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Start or reach the server, and agree on a version of the protocol.

        Raises
        ------
        UsageError
            It did not work, in the server's time.
        """
        self._over, self._ended, self._status = asyncio.Event(), "", 0
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(opened), name=f"mcp {self.server.name}")
        seconds = self.server.start_seconds
        try:
            async with asyncio.timeout(seconds):
                racing: set[asyncio.Future[Any]] = {opened, self._task}
                await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self._end()
            raise self._make_start_error(f"it did not answer within {seconds:g} s") from None
        except BaseException:
            await self._end()
            raise
        if not opened.done() or opened.exception() is not None:
            error = opened.exception() if opened.done() else None
            await self._end()
            raise self._make_start_error(self._ended or self._reason(error)) from None
        self._client = opened.result()

    async def tools(self) -> list[Any]:
        """Return all the tools that the server lists, over all pages.

        Raises
        ------
        UsageError
            It does not list them, in the server's time.
        """
        from mcp import MCPError

        assert self._client is not None
        found: list[Any] = []
        cursor = None
        try:
            async with asyncio.timeout(self.server.start_seconds):
                for _ in range(PAGES_MAX):
                    page = await self._client.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except TimeoutError:
            raise self._make_start_error("it did not list its tools in time") from None
        except (MCPError, ValueError) as error:
            raise self._make_start_error(self._ended or self._reason(error)) from None
        return found

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool and return the client's result; the server is started again if it is gone.

        Raises
        ------
        ToolError
            The server hangs, died, or answered with an error of the protocol.
        """
        from mcp import MCPError

        client = await self._ready()
        seconds = self.server.call_seconds
        late = ToolError(
            f"the MCP server {self.server.name!r} did not answer within {seconds:g} s",
            kind="TimeoutError",
        )
        try:
            async with asyncio.timeout(seconds + 1):
                return await client.call_tool(name, arguments, read_timeout_seconds=seconds)
        except TimeoutError:
            raise late from None
        except MCPError as error:
            if error.code == _request_timeout():
                raise late from None
            if error.code == _connection_closed() or "Session terminated" in str(error):
                raise await self._explain_loss() from None
            raise ToolError(self._says(str(error))) from None
        except (ValueError, RuntimeError) as error:  # not an answer, rounds of questions
            said = one_line(self.server.without_secrets(_error_text(error)), 500)
            raise ToolError(f"the MCP server {self.server.name!r} failed: {said}") from None

    async def close(self) -> None:
        """End the server; never hangs, never raises. Safe to call twice."""
        self._closed = True
        await self._end()

    # --- how -----------------------------------------------------------------------------------

    async def _live(self, opened: asyncio.Future[Client]) -> None:
        """Hold the client until it is over, in one task."""
        try:
            async with self._make_client() as client:
                opened.set_result(client)
                await self._over.wait()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a transport's errors, in groups
            if not opened.done():
                opened.set_exception(error)
            else:
                self._note_end(self._reason(error))

    @contextlib.asynccontextmanager
    async def _make_client(self) -> AsyncIterator[Client]:
        from mcp import Client
        from mcp.client.stdio import get_default_environment

        # What it logs is a server's words; who wants to read them sets a handler.
        for name in ("mcp", "client"):  # the second is its session's
            logging.getLogger(name).addHandler(logging.NullHandler())
        async with contextlib.AsyncExitStack() as stack:
            transport: Any
            if self.server.url:
                transport = await stack.enter_async_context(_http(self.server, self._note_status))
            else:
                env = {**get_default_environment(), **self.server.env}
                transport = pipes(self.server.command, env, self._note_end)
            client = await stack.enter_async_context(Client(check_messages(transport), cache=None))
            # It would check results by the server's own schema, whose regular expressions and
            # references may take for ever, in this very thread. What a result is worth is not
            # known from that.
            client.session.validate_tool_result = _accept_any  # type: ignore[method-assign,assignment]
            yield client

    def _note_end(self, reason: str) -> None:
        self._ended = self._ended or reason
        self._over.set()

    def _note_status(self, status: int) -> None:
        self._status = status

    async def _ready(self) -> Client:
        """Return the client; of a server that is gone, a new one."""
        async with self._starting:
            if self._closed:
                raise ToolError("the session is closed")
            if self._task is not None and not self._over.is_set() and not self._task.done():
                assert self._client is not None
                return self._client
            reason = self._ended
            await self._end()
            if self._restarts >= RESTARTS_MAX:
                raise ToolError(
                    f"the MCP server {self.server.name!r} is gone ({reason}) and was started "
                    f"{RESTARTS_MAX} times again: do without it"
                )
            self._restarts += 1
            try:
                await self.open()
            except UsageError as error:
                raise ToolError(str(error).removeprefix("--mcp ")) from None
            self._on_event(
                Notice(text=f"The MCP server {self.server.name} was gone and was started again.")
            )
            assert self._client is not None
            return self._client

    async def _explain_loss(self) -> ToolError:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._over.wait()  # the transport knows why
        reason = self.server.without_secrets(self._ended) or "the connection was closed"
        self._note_end(reason)
        return ToolError(
            f"the MCP server {self.server.name!r} is gone: {reason}; the next call starts it, or "
            "connects to it, without what it had in memory",
            kind="ConnectionError",
        )

    async def _end(self) -> None:
        """Close the client, and give up on it when that hangs."""
        self._over.set()
        task, client, self._task, self._client = self._task, self._client, None, None
        if task is None:
            return
        if client is not None:
            await asyncio.wait({task}, timeout=END_S)
        for _ in range(2):
            if task.done():
                break
            task.cancel()
            await asyncio.wait({task}, timeout=END_S)
        if task.done() and not task.cancelled():
            task.exception()  # looked at: it has nothing to add

    def _make_start_error(self, reason: str) -> UsageError:
        return UsageError(f"--mcp {self.server.name}: {self.server.without_secrets(reason)}")

    def _says(self, text: str) -> str:
        """Quote an error of the server's."""
        said = one_line(self.server.without_secrets(self._with_status(text)), 500)
        return f"the MCP server {self.server.name!r} says: {said}"

    def _reason(self, error: BaseException | None) -> str:
        """Return one line on why a client could not be made; never with the URL or the command."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, FileNotFoundError):
            return "there is no such program"
        if isinstance(error, OSError):
            return f"it cannot be started: {error.strerror or type(error).__name__}"
        if type(error).__name__ in _GONE:
            return "nothing answers at its URL"
        return one_line(self._with_status(_error_text(error)) or "it ended at once", 300)

    def _with_status(self, text: str) -> str:
        """Put the HTTP status in place of the client's words for an empty answer."""
        if not self._status or text not in _NO_WORDS:
            return text
        if self._status in (404, 405):
            return (
                f"its URL answered HTTP {self._status}: no streamable HTTP is spoken there (the "
                "older SSE is not supported)"
            )
        return f"its URL answered HTTP {self._status}"


@contextlib.asynccontextmanager
async def _http(server: Server, refused: Callable[[int], None]) -> AsyncIterator[Any]:
    """Yield the streamable HTTP transport of a server, with the user's headers."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Unread(httpx2.ReadError):
        """An answer that is not read on."""

    class Capped(httpx2.AsyncHTTPTransport):
        """Ends an answer that exceeds the bounds."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            request.headers["accept-encoding"] = "identity"  # what is packed cannot be counted
            response = await super().handle_async_request(request)
            if request.method == "POST" and response.status_code >= 400:
                refused(response.status_code)
            kind = response.headers.get("content-type", "")
            events = kind.startswith("text/event-stream")
            packed = response.headers.get("content-encoding", "identity").lower() != "identity"
            response.stream = Body(response.stream, events=events, packed=packed)
            return response

    class Body(httpx2.AsyncByteStream):
        def __init__(self, inner: Any, *, events: bool, packed: bool) -> None:
            self._inner = inner
            self._events = events
            self._packed = packed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            if self._packed:
                raise Unread("its answer is compressed, which was not asked for")
            try:
                async for part in _bound_answer(self._inner, events=self._events):
                    yield part
            except ValueError as error:
                raise Unread(f"its answer has {error}") from None

        async def aclose(self) -> None:
            await self._inner.aclose()

    timeout = httpx2.Timeout(server.start_seconds, read=server.call_seconds + 1)
    client = httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, transport=Capped())
    async with client:
        yield streamable_http_client(server.url, http_client=client, max_sse_event_size=MESSAGE_MAX)


def _error_text(error: BaseException | None) -> str:
    """Return an error's text; for an invalid message only its first fault."""
    wrong = error.errors() if isinstance(error, ValueError) and hasattr(error, "errors") else []
    if wrong:
        return (
            f"what it sent is malformed: {'.'.join(map(str, wrong[0]['loc']))}: {wrong[0]['msg']}"
        )
    return str(error or "")


async def _accept_any(_name: str, _result: Any) -> None:
    pass


def _connection_closed() -> int:
    from mcp_types import CONNECTION_CLOSED

    return CONNECTION_CLOSED


def _request_timeout() -> int:
    from mcp_types import REQUEST_TIMEOUT

    return REQUEST_TIMEOUT


async def _bound_answer(chunks: AsyncIterable[bytes], *, events: bool) -> AsyncIterator[bytes]:
    """Yield an HTTP answer, whole or event by event, once it is known to be within bounds.

    The client reads an answer in one step, on the event loop: so its bytes and its items are
    counted before it gets any of them. An event stream may stay open, and is passed on event by
    event (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream).

    Raises
    ------
    ValueError
        The server's: it is more than is read; the message says of what.
    """
    held = bytearray()
    async for chunk in chunks:
        seen = max(len(held) - 3, 0)
        held += chunk
        end = max(held.rfind(mark, seen) for mark in _ENDS) if events else -1
        if end >= 0:
            yield await _check_part(bytes(held[: end + 4]))
            del held[: end + 4]
        elif len(held) > MESSAGE_MAX:
            raise ValueError(f"more than {MESSAGE_MAX:,} bytes")
    yield await _check_part(bytes(held))


async def _check_part(part: bytes) -> bytes:
    if too_many := await excess(part):
        raise ValueError(too_many)
    return part
