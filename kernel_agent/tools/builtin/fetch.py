"""``fetch``: a page of a named host, as text. ``--tools fetch=HOST,HOST`` or with ``--allow-host``.

The rules are those of the proxy that cells use: named hosts and ports only, resolved on the host,
no private address behind a public name; they are asked again for every connection, so a redirect
leads nowhere that the URL itself might not. GET only, no cookies, no credentials, no environment.

The server is hostile. It is spoken to in a thread and an event loop of their own: what it sends in
the smallest pieces holds up nobody else, and a thread that is given up ends with the program. Bytes
are bounded as they are sent and as what they become (:mod:`kernel_agent.tools.builtin.pages`),
heads by the HTTP library, everything together by the clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import ToolError
from kernel_agent.safe import one_line
from kernel_agent.tools.builtin.pages import Packed, describe_page
from kernel_agent.tools.definition import Tool
from kernel_agent.tools.threads import in_own_loop

if TYPE_CHECKING:
    import httpcore
    import httpx

TOTAL_S = 60.0
PAUSE_S = 20.0  # without a byte
BYTES_MAX = 10_000_000
REDIRECTS_MAX = 5
AGENT = "kernel-agent (+fetch)"
_REDIRECTS = (301, 302, 303, 307, 308)

Admit = Callable[[str, int], Awaitable[str]]


def fetch_tools(
    *,
    admit: Admit,
    received: Callable[[str, int, int], None],
    hosts: Sequence[str],
    refused: type[Exception],
) -> tuple[Tool, ...]:
    """Return the tool ``fetch``.

    Parameters
    ----------
    admit
        Gives the address at which a host and port may be reached, or raises ``refused``.
    received
        Called with host, port and number of bytes that came.
    hosts
        The hosts, as the description names them.
    refused
        What ``admit`` raises; its text is for the code in the kernel.
    """

    async def fetch(url: str) -> dict[str, object]:
        here = asyncio.get_running_loop()

        async def admit_there(host: str, port: int) -> str:
            """Ask on the session's own loop; the connection is made on this one."""
            asked = asyncio.run_coroutine_threadsafe(_admit(admit, host, port), here)
            return await asyncio.wrap_future(asked)

        try:
            async with asyncio.timeout(TOTAL_S):
                page, where = await in_own_loop(lambda: _fetch_page(url, admit_there, refused))
        except TimeoutError:
            raise ToolError(f"no whole answer within {TOTAL_S:g} s", kind="TimeoutError") from None
        received(*where)
        return page  # type: ignore[no-any-return]  # from a thread, as threads give it

    fetch.__doc__ = f"""Get a page of {", ".join(hosts)}: url, status, type, text, links, data.

        ``text`` is the text of a page (of HTML without tags), ``links`` its links as absolute URLs,
        ``data`` the bytes of what is no text or not in its charset. Other hosts are refused;
        redirects are followed. At most {BYTES_MAX // 1_000_000} MB.
        """
    return (Tool(fetch, untrusted=True),)


async def _admit(admit: Admit, host: str, port: int) -> str:
    return await admit(host, port)


async def _fetch_page(
    url: str, admit: Admit, refused: type[Exception]
) -> tuple[dict[str, Any], tuple[str, int, int]]:
    """Return the page, and host, port and bytes of the answer that it was made from."""
    import httpx

    try:
        async with asyncio.timeout(TOTAL_S), _pool(admit) as pool:
            address, answer, body = await _answer(pool, httpx.URL(url))
    except refused as error:
        raise ToolError(str(error), kind="PermissionError") from None
    except TimeoutError:
        raise  # the clock's
    except _failures() as error:
        reason = one_line(str(error) or type(error).__name__, 300)
        raise ToolError(f"cannot be fetched: {reason}", kind="ConnectionError") from None
    try:
        page = describe_page(
            url=str(address), status=answer.status, content_type=_header(answer, b"content-type"),
            encoding=_header(answer, b"content-encoding"), body=body, max_bytes=BYTES_MAX,
        )  # fmt: skip
    except Packed as error:
        raise ToolError(f"cannot be read: {error}", kind="ValueError") from None
    return page, (address.host, address.port or _port_of(address), len(body))


async def _answer(
    pool: "httpcore.AsyncConnectionPool", address: "httpx.URL"
) -> tuple["httpx.URL", "httpcore.Response", bytes]:
    """Follow redirects, without reading their bodies; return the answer and its URL."""
    import httpcore

    for _ in range(REDIRECTS_MAX + 1):
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError("only http:// and https:// URLs are fetched")
        answer = await pool.handle_async_request(_request(address))
        try:
            to = _header(answer, b"location") if answer.status in _REDIRECTS else ""
            if not to:
                return address, answer, await _body(answer)
        finally:
            await answer.aclose()
        address = address.join(to)
    raise httpcore.ProtocolError(f"more than {REDIRECTS_MAX} redirects")


def _request(address: "httpx.URL") -> "httpcore.Request":
    import httpcore

    where = httpcore.URL(
        scheme=address.raw_scheme, host=address.raw_host, port=address.port, target=address.raw_path
    )
    headers: dict[bytes | str, bytes | str] = {
        "Host": address.netloc, "Accept": "*/*", "Accept-Encoding": "gzip, deflate",
        "Connection": "close", "User-Agent": AGENT,
    }  # fmt: skip
    timeout = dict.fromkeys(("connect", "read", "write", "pool"), PAUSE_S)
    return httpcore.Request("GET", where, headers=headers, extensions={"timeout": timeout})


async def _body(answer: "httpcore.Response") -> bytes:
    """Read a body as it was sent."""
    data = bytearray()
    async for chunk in answer.aiter_stream():
        data += chunk
        if len(data) > BYTES_MAX:
            raise ToolError(f"the answer is larger than {BYTES_MAX:,} bytes", kind="ValueError")
    return bytes(data)


def _header(answer: "httpcore.Response", name: bytes) -> str:
    """Return a header; several of one name as one (RFC 9110, 5.3)."""
    values = [value for known, value in answer.headers if known.lower() == name]
    return b", ".join(values).decode("latin-1")


def _port_of(address: "httpx.URL") -> int:
    return 443 if address.scheme == "https" else 80


def _failures() -> tuple[type[Exception], ...]:
    import httpcore
    import httpx

    return (
        OSError,
        ValueError,
        httpx.InvalidURL,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
    )


def _pool(admit: Admit) -> "httpcore.AsyncConnectionPool":
    """Return an HTTP client whose every connection is admitted first."""
    import httpcore
    import httpx

    class Door(httpcore.AnyIOBackend):
        """Connects to the address that a host was admitted at; TLS still names the host."""

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 - the interface's
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> httpcore.AsyncNetworkStream:
            address = await admit(host, port)
            return await super().connect_tcp(address, port, timeout, local_address, socket_options)

    context = httpx.create_ssl_context(trust_env=False)
    return httpcore.AsyncConnectionPool(ssl_context=context, network_backend=Door())
