"""HTTP connection to an OpenAI-compatible endpoint.

It posts ready bytes through the official ``openai`` client, which knows addresses, keys, proxies
and TLS, and hands the raw response out: reading it is :mod:`.stream`'s part, trying again is
:mod:`.openai`'s. It never retries, and parses nothing but the list of models.

The client is imported when it is first needed, in a thread: the import costs about a second.
What this module says of the endpoint never holds a key, a password or a header's value.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, urlsplit
from urllib.request import getproxies, proxy_bypass

from kernel_agent.errors import ModelError, UsageError
from kernel_agent.models import errors
from kernel_agent.models.errors import EndpointError
from kernel_agent.records import Json

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = (
    "no API key: set OPENAI_API_KEY, or give the address of another endpoint with --base-url, or "
    "use --model offline"
)
REACHED_S = 2.0  # in which an address that refuses has said so
DEFAULT_BASE_URL = "https://api.openai.com/v1"
MAX_LIST_BYTES = 4_000_000
"""Of a list of models that is read: OpenRouter's, the longest, is about a million."""


class Endpoint:
    """An OpenAI-compatible endpoint and its connections.

    Parameters
    ----------
    base_url
        Up to and including ``/v1``. None: ``OPENAI_BASE_URL``, else OpenAI's own.
    api_key
        None: ``OPENAI_API_KEY``. Only OpenAI's own endpoint cannot do without.
    headers
        Sent with every request; they may hold the ``Authorization`` instead of a key.
    timeout_s, connect_timeout_s
        Longest silence, and longest wait for a connection.

    Raises
    ------
    UsageError
        The caller's fault: an address, a key or a header that cannot be sent.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key: str | None,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        connect_timeout_s: float,
    ) -> None:
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL
        self._address = _address(base_url)
        self._api_key = (
            os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
        ).strip()
        self._headers = {name.title(): value for name, value in (headers or {}).items()}
        for name, value in {"API key": self._api_key, **self._headers}.items():
            if not (value.isascii() and value.isprintable()):
                raise UsageError(f"the value of {name} holds characters that cannot be sent")
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._client: AsyncOpenAI | None = None
        self._connecting = asyncio.Lock()

    def __str__(self) -> str:
        address = self._address
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}".rstrip("/")

    @property
    def lacks_key(self) -> bool:
        """Whether it is the endpoint that answers nobody without a key, and there is none."""
        has_key = self._api_key or "Authorization" in self._headers
        return not has_key and self.is_public

    @property
    def is_public(self) -> bool:
        """Whether it is OpenAI's own, whose models' names are known."""
        return self._address.hostname == urlsplit(DEFAULT_BASE_URL).hostname

    def check_reachable(self) -> None:
        """Refuse an address that nobody has, or at which nothing listens.

        One that is silent, or reached through a proxy, may be there.

        Raises
        ------
        UsageError
            The caller's: there is no such host, or it refused the connection.
        """
        address, host = self._address, self._address.hostname or ""
        through_proxy = address.scheme in getproxies() and not proxy_bypass(host)
        if through_proxy and not _is_local(host):
            return
        port = address.port or {"http": 80, "https": 443}[address.scheme]
        try:
            socket.create_connection((host, port), timeout=REACHED_S).close()
        except OSError as error:
            if fault := errors.from_connecting(error):
                raise UsageError(f"{self.tell(str(fault))}: {fault.advice}") from None

    async def connect(self) -> AsyncOpenAI:
        """Return the client, made on first use.

        Raises
        ------
        ModelError
            The caller's or the machine's fault: no key, or a proxy setting that cannot be used.
        """
        if self.lacks_key:
            raise ModelError(NO_KEY)
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._new_client)
            return self._client

    @asynccontextmanager
    async def post(self, body: bytes) -> AsyncIterator[Any]:
        """Send a chat request and give the raw response, unread, for as long as the block lasts."""
        client = await self.connect()
        from openai import AsyncStream

        # Ready bytes go by `content` where the client has it; before, they were a kind of `body`.
        place = "content" if "content" in inspect.signature(client.post).parameters else "body"
        post: Any = client.post  # its overloads do not know ready bytes
        stream = await post(
            "/chat/completions",
            cast_to=object,
            options={"headers": self._sent_headers()},
            stream=True,
            stream_cls=AsyncStream[object],
            **{place: body},
        )
        try:
            yield stream.response
        finally:
            await stream.close()

    async def models(self) -> list[str]:
        """Return the names that the endpoint lists; empty when it lists none.

        Called by the session when the user named no model.

        Raises
        ------
        ModelError
            No key, or a proxy setting that cannot be used.
        """
        return [str(each["id"]) for each in await self.list_models() if "id" in each]

    async def list_models(self, *, wait_s: float | None = None) -> list[Mapping[str, Json]]:
        """Return what the endpoint lists (``GET /models``); empty when it does not.

        A redirect is not followed: what is sent with the request is for this endpoint.

        Parameters
        ----------
        wait_s
            The longest wait for all of it; by default, for as long as for any request.

        Raises
        ------
        ModelError
            No key, or a proxy setting that cannot be used.
        """
        client = await self.connect()
        try:
            async with asyncio.timeout(self._timeout_s if wait_s is None else wait_s):
                listed: Json = json.loads(await self._get(client, "/models"))
        except (TimeoutError, ValueError, RecursionError):
            return []
        except Exception as error:
            # Broad as in a call (:mod:`.openai`): the client's errors have no base in common.
            if self.read_error(error, model="") is None:
                raise
            return []
        entries = listed.get("data") if isinstance(listed, dict) else listed  # Together: a list
        return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []

    async def _get(self, client: AsyncOpenAI, path: str) -> bytes:
        """Return a body, unless it is longer than any list."""
        from openai import AsyncStream

        stream: Any = await client.get(
            path,
            cast_to=object,
            options={"headers": self._sent_headers(), "follow_redirects": False},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        body = bytearray()
        try:
            async for chunk in stream.response.aiter_bytes():
                body += chunk
                if len(body) > MAX_LIST_BYTES:
                    raise ValueError("a list of models that is too long")
        finally:
            await stream.close()
        return bytes(body)

    def _sent_headers(self) -> dict[str, Any]:
        from openai import Omit

        return dict(self._headers) if self._api_key else {"Authorization": Omit(), **self._headers}

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def read_error(self, error: Exception, *, model: str) -> EndpointError | None:
        """Translate an exception of :meth:`post`; return None when it is a bug here."""
        return errors.from_exception(
            error,
            model=model,
            timeout_s=self._timeout_s,
            connect_timeout_s=self._connect_timeout_s,
            now=time.time(),
        )

    def tell(self, what: str) -> str:
        """Return a sentence about this endpoint that is short and holds none of its secrets."""
        secrets = [self._api_key, *self._headers.values(), self._address.password or ""]
        return errors.shorten(errors.redact(f"{self} {what}", secrets))

    def _new_client(self) -> AsyncOpenAI:
        import openai

        address = self._address
        path = re.sub(r"/chat/completions/?$", "", address.path)  # a whole URL that was pasted
        try:
            return openai.AsyncOpenAI(
                api_key=self._api_key or "none",
                base_url=address._replace(path=path, query="", fragment="").geturl(),
                default_query=dict(parse_qsl(address.query)),
                timeout=openai.Timeout(self._timeout_s, connect=self._connect_timeout_s),
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(**_transport(address)),
            )
        except (ValueError, ImportError, OSError, openai.OpenAIError) as error:
            # What a proxy or certificate variable of the environment can do to a client.
            message = self.tell(f"cannot be connected to ({errors.one_line(str(error))})")
            raise ModelError(
                f"{message}: check HTTPS_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE"
            ) from None


def _address(base_url: str) -> SplitResult:
    try:
        address = urlsplit(base_url.strip())
        usable = address.scheme in {"http", "https"} and address.hostname and address.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = base_url.rpartition("@")[2]
        raise UsageError(f"the base URL must be like http://host:port/v1, not {shown!r}")
    return address


def _is_local(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _transport(address: SplitResult) -> dict[str, Any]:
    """Return how to reach this address, where that differs from what the environment says."""
    if not _is_local(address.hostname or ""):
        return {}
    # A proxy cannot reach this machine's own servers, yet an environment that names one often
    # forgets NO_PROXY.
    if address.scheme == "https":
        named = os.environ.get("SSL_CERT_FILE")  # of an authority that a machine has for itself
        return {"trust_env": False, "verify": ssl.create_default_context(cafile=named or None)}
    # Reading the certificates costs 70 ms and nothing here uses them. A context without any is no
    # hole: it would refuse every server that a redirect led to.
    return {"trust_env": False, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
