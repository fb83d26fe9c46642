"""``fetch``: a page of a named host, as text. ``--tools fetch=HOST,HOST`` or with ``--allow-host``.

The rules are those of the proxy that cells use: named hosts and ports only, resolved on the host,
no private address behind a public name; they are asked again for every connection, so a redirect
leads nowhere that the URL itself might not. GET only, no cookies, no credentials, no environment.
"""

import asyncio
import codecs
import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

from kernel_agent.errors import ToolError
from kernel_agent.text import html_text, one_line
from kernel_agent.tools.tool import Tool

TOTAL_S = 60.0
PAUSE_S = 20.0  # without a byte
BYTES_MAX = 10_000_000
REDIRECTS_MAX = 5
LINKS_MAX = 500
AGENT = "kernel-agent (+fetch)"
_TEXTS = re.compile(r"text/|application/(.*\+)?(json|xml|javascript|x-ndjson|yaml|toml)")
_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]*?\b(?:charset|encoding)\s*=\s*["']?(?!utf-?16|utf-?32)([\w.:-]{1,40})""",
    re.IGNORECASE,
)  # a page that could be read so far is not in one of two or four bytes a character
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_LINK = re.compile(r'<a href="([^"]*)">')

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
        Told of the bytes that came from a host and port.
    hosts
        The hosts, as the description names them.
    refused
        What ``admit`` raises; its text is for the code in the kernel.
    """

    async def fetch(url: str) -> dict[str, object]:
        try:
            async with asyncio.timeout(TOTAL_S):
                return await _fetched(url, admit, received, refused)
        except TimeoutError:
            raise ToolError(f"no whole answer within {TOTAL_S:g} s", kind="TimeoutError") from None

    fetch.__doc__ = f"""Get a page of {", ".join(hosts)}: url, status, type, text, links, data.

        ``text`` is the text of a page (of HTML without tags), ``links`` its links as absolute URLs,
        ``data`` the bytes of what is no text or not in its charset. Other hosts are refused;
        redirects are followed. At most {BYTES_MAX // 1_000_000} MB.
        """
    return (Tool(fetch, untrusted=True),)


async def _fetched(
    url: str,
    admit: Admit,
    received: Callable[[str, int, int], None],
    refused: type[Exception],
) -> dict[str, Any]:
    import httpx

    async with _client(admit) as client:
        try:
            async with client.stream("GET", url) as response:
                data = await _content(response)
        except refused as error:
            raise ToolError(str(error), kind="PermissionError") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            reason = one_line(str(error) or type(error).__name__, 300)
            raise ToolError(f"cannot be fetched: {reason}", kind="ConnectionError") from None
        asked = response.url
        received(asked.host, asked.port or (443 if asked.scheme == "https" else 80), len(data))
        return await asyncio.to_thread(_described, response, data)


async def _content(response: Any) -> bytes:
    """Read an answer, decompressed; the bound is on what it becomes."""
    data = bytearray()
    async for chunk in response.aiter_bytes(65_536):
        data += chunk
        if len(data) > BYTES_MAX:
            raise ToolError(f"the answer is larger than {BYTES_MAX:,} bytes", kind="ValueError")
    return bytes(data)


def _described(response: Any, data: bytes) -> dict[str, Any]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    page: dict[str, Any] = {
        "url": str(response.url), "status": response.status_code, "type": kind[:100],
        "text": "", "links": [], "data": None,
    }  # fmt: skip
    if not _TEXTS.match(kind or "text/"):
        return {**page, "data": data}
    text, exact = _text(data, response.charset_encoding or _declared(kind, data))
    if not exact:  # in a charset that nothing names: whoever knows it can read the bytes
        page["data"] = data
    if kind in ("text/html", "application/xhtml+xml"):
        return {**page, "text": html_text(text), "links": links_of(text, str(response.url))}
    return {**page, "text": text}


def _declared(kind: str, data: bytes) -> str:
    """Return the charset that a page of HTML or XML names in its first kilobyte, if it does."""
    found = _CHARSET.search(data[:1024]) if kind.endswith(("html", "xml")) else None
    return found[1].decode("ascii") if found else "utf-8"


def _text(data: bytes, charset: str) -> tuple[str, bool]:
    """Return text, and whether it is exactly what the bytes say; a byte order mark goes first."""
    charset = next((known for mark, known in _MARKS.items() if data.startswith(mark)), charset)
    for name in (charset, "utf-8"):
        with suppress(LookupError, ValueError):
            return data.decode(name), True
    for name in (charset, "utf-8"):
        with suppress(LookupError, ValueError):
            return data.decode(name, "replace"), False
    raise AssertionError("UTF-8 replaces whatever it cannot read")


def links_of(source: str, base: str) -> list[str]:
    """Return the links of HTML as absolute http(s) URLs, each once, in order."""
    import nh3

    # What is left is a well-formed <a href="…"> and text, written by the sanitizer.
    cleaned = nh3.clean(source, tags={"a"}, attributes={"a": {"href"}}, link_rel=None)
    found: dict[str, None] = {}
    for match in _LINK.finditer(cleaned):
        try:
            url = urljoin(base, html.unescape(match[1])).partition("#")[0]
        except ValueError:
            continue
        if url.startswith(("http://", "https://")):
            found[url] = None
        if len(found) == LINKS_MAX:
            break
    return list(found)


def _client(admit: Admit) -> Any:  # noqa: C901 - three small classes over imports made here
    """Return an HTTP client whose every connection is admitted first."""
    import httpcore
    import httpx

    FAILED = (  # noqa: N806 - a constant, of modules that are imported here
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
    )

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

    class Through(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=httpx.create_ssl_context(trust_env=False), network_backend=Door()
            )

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            try:
                answer = await self._pool.handle_async_request(
                    httpcore.Request(
                        method=request.method,
                        url=httpcore.URL(
                            scheme=request.url.raw_scheme,
                            host=request.url.raw_host,
                            port=request.url.port,
                            target=request.url.raw_path,
                        ),
                        headers=request.headers.raw,
                        extensions=request.extensions,
                    )
                )
            except FAILED as e:
                reason = str(e) or type(e).__name__
                raise httpx.TransportError(reason, request=request) from None
            return httpx.Response(
                answer.status, headers=answer.headers, stream=Body(answer), request=request
            )

        async def aclose(self) -> None:
            await self._pool.aclose()

    class Body(httpx.AsyncByteStream):
        def __init__(self, answer: httpcore.Response) -> None:
            self._answer = answer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in self._answer.aiter_stream():
                    yield chunk
            except FAILED as e:
                raise httpx.TransportError(str(e) or type(e).__name__) from None

        async def aclose(self) -> None:
            await self._answer.aclose()

    return httpx.AsyncClient(
        transport=Through(),
        follow_redirects=True,
        max_redirects=REDIRECTS_MAX,
        timeout=PAUSE_S,
        trust_env=False,
        headers={"User-Agent": AGENT, "Accept-Encoding": "gzip, deflate"},
        cookies=None,
    )
