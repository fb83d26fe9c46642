"""HTTP connection to an OpenAI-compatible endpoint.

It posts ready bytes through the official ``openai`` client, which knows addresses, keys, proxies
and TLS, and hands the raw response out: reading it is :mod:`.stream`'s part, trying again is
:mod:`.openai`'s. It never retries and never parses.

The client is imported when it is first needed, in a thread: the import costs about a second.
What this module says of the endpoint never holds a key, a password or a header's value.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from kernel_agent.errors import ModelError, UsageError
from kernel_agent.models import errors
from kernel_agent.models.errors import EndpointError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = (
    "no API key: set OPENAI_API_KEY, or give the address of another endpoint with --base-url, or "
    "use --model offline"
)
DEFAULT_BASE_URL = "https://api.openai.com/v1"


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
        from openai import AsyncStream, Omit

        # Ready bytes go by `content` where the client has it; before, they were a kind of `body`.
        place = "content" if "content" in inspect.signature(client.post).parameters else "body"
        headers = self._headers if self._api_key else {"Authorization": Omit(), **self._headers}
        post: Any = client.post  # its overloads do not know ready bytes
        stream = await post(
            "/chat/completions",
            cast_to=object,
            options={"headers": headers},
            stream=True,
            stream_cls=AsyncStream[object],
            **{place: body},
        )
        try:
            yield stream.response
        finally:
            await stream.close()

    async def models(self) -> list[str]:
        """Return the names that the endpoint lists (``GET /models``); empty when it lists none.

        Called by the session when the user named no model.

        Raises
        ------
        ModelError
            No key, or a proxy setting that cannot be used.
        """
        client = await self.connect()
        import openai

        headers = self._headers if self._api_key else {"Authorization": openai.Omit()}
        try:
            listed: Any = await client.get("/models", cast_to=object, options={"headers": headers})
        except (openai.OpenAIError, ValueError):
            return []
        entries = listed.get("data") if isinstance(listed, dict) else listed  # Together: a list
        if not isinstance(entries, list):
            return []
        return [str(e["id"]) for e in entries if isinstance(e, dict) and "id" in e]

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


def _transport(address: SplitResult) -> dict[str, Any]:
    """Return how to reach this address, where that differs from what the environment says."""
    host = address.hostname or ""
    if host not in {"localhost", "::1"} and not host.startswith("127."):
        return {}
    # A proxy cannot reach this machine's own servers, yet an environment that names one often
    # forgets NO_PROXY.
    options: dict[str, Any] = {"trust_env": False}
    if address.scheme == "http":
        # Reading the certificates costs 70 ms and nothing here uses them. A context without any
        # is no hole: it would refuse every server that a redirect led to.
        options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return options
