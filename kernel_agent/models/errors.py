"""Endpoint errors, and whether a retry makes sense.

Servers, the client library and the operating system each report trouble in their own way; here
all of it becomes one kind, :class:`EndpointError`, which says in plain words what the endpoint
did, what the user can do, and whether another try may help. It is raised inside this package only:
:mod:`kernel_agent.models.openai` turns the last one into a
:class:`~kernel_agent.errors.ModelError`.

::

    status          another try   because
    408 409 425     yes           the server gave up on this one request
    429             yes           unless the account's quota is used up: waiting adds none; or
                                  this request alone is over the rate: a shorter one may pass
    5xx             yes           the server's own trouble
    other 4xx       no            the same request gets the same answer
    refused, reset, timed out, cut in the middle: yes; unknown host, bad certificate: no

How often, and how long is waited before, is :mod:`kernel_agent.models.retries`' part.
"""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Literal

from kernel_agent.errors import ContextLengthError, ModelError
from kernel_agent.models import vendors
from kernel_agent.records import Json

MAX_RETRY_AFTER_S = 60.0
"""The longest that a server may make us wait; one that asks for an hour is tried again sooner."""

MAX_TEXT_CHARS = 300
"""Characters of a message with a server's own words in it: one readable line."""

MAX_BODY_CHARS = 3000
"""Characters of a server's words that are read at all."""

Trouble = Literal["", "silent", "unfinished", "refused", "timed out"]
"""Kinds of errors that asking again does not mend. ``silent``: a stream in which nothing came.
``unfinished``: one that was ended politely, but without the word that the reply is whole.
``refused``: the connection. ``timed out``: no byte for as long as was allowed."""


class EndpointError(Exception):
    """A request that gave no usable reply.

    Parameters
    ----------
    what
        What the endpoint did, as the end of a sentence that begins with its address.
    advice
        What the user can do about it.
    status
        The HTTP status, where there was one.
    retry
        Whether the same request may succeed a little later.
    retry_after_s
        How long the server asked us to wait; None when it did not say.
    kind
        The error that the user gets in the end.
    details
        All that the server said, for finding out which option it does not know.
    trouble
        The kind of error, where more helps than asking again.
    """

    def __init__(
        self,
        what: str,
        *,
        advice: str,
        status: int | None = None,
        retry: bool = False,
        retry_after_s: float | None = None,
        kind: type[ModelError] = ModelError,
        details: str = "",
        trouble: Trouble = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
        self.status = status
        self.retry = retry
        self.retry_after_s = retry_after_s
        self.kind = kind
        self.details = details
        self.trouble: Trouble = trouble


# --- what a server says ----------------------------------------------------------------------

_STATUS = {
    401: ("refused the key", "check the key (OPENAI_API_KEY, or what api_key_env names)"),
    402: ("wants to be paid first", "check the account's billing"),
    403: ("refused access", "check that the key may use this model"),
    404: (
        "does not know the model {model} or the path",
        "check --model and --base-url (many servers want it to end in /v1)",
    ),
    405: ("does not take chat requests there", "check --base-url"),
    408: ("gave up waiting", "try again later"),
    413: ("says that the conversation is too long", "ask for less output, or use another model"),
    429: ("answered that there are too many requests", "wait a while or use another model"),
}
_SERVER_FAILED = ("failed", "try again later, or look at the server's log")
_REFUSED = ("refused the request", "check --model and the options that the server accepts")

_QUOTA = ("says that the quota is used up", "check the account's billing")
_WITHHELD = (
    "did not let it pass its content filter",
    "word the question otherwise, or use another model",
)

_RETRIED = {408, 409, 425, 429}
_MAY_BE_QUOTA = {400, 402, 403, 429}


def from_status(
    status: int, headers: Mapping[str, str], body: str, *, model: str, now: float
) -> EndpointError:
    """Read an HTTP answer that is an error.

    Parameters
    ----------
    status, headers, body
        The answer; header names in lower case (or a mapping that does not care).
    model
        The model's name, for the message.
    now
        Seconds since the epoch: a ``Retry-After`` may be a date.
    """
    text, code = complaint(body)
    if is_context_length(status, code, text):
        return _too_long_error(text, status=status, details=body)
    wait_s = retry_after_s(headers, now=now)
    if wait_s is None and status in {429, 503}:
        wait_s = named_wait_s(body, now=now)
    retry = status in _RETRIED or status >= 500
    what, advice = _STATUS.get(status) or (_SERVER_FAILED if status >= 500 else _REFUSED)
    shown = body[:MAX_BODY_CHARS]
    is_over = vendors.NO_QUOTA.search(shown) or (
        wait_s is None and vendors.OVER_QUOTA.search(shown)
    )
    if status in _MAY_BE_QUOTA and is_over:
        (what, advice), retry = _QUOTA, False
    elif status == 400 and vendors.BAD_KEY.search(text):
        what, advice = _STATUS[401]  # Gemini and xAI
    elif status == 400 and vendors.FILTERED.search(shown):
        what, advice = _WITHHELD
    said = f"{status}: {text}" if text else str(status)
    return EndpointError(
        f"{what.format(model=model).replace('  ', ' ')} ({said})",
        advice=advice,
        status=status,
        retry=retry,
        retry_after_s=wait_s,
        details=body,
    )


def from_error_object(error: Json) -> EndpointError:
    """Read an error that came where a reply was expected: inside a stream, or with status 200."""
    body = json.dumps({"error": error})
    text, code = complaint(body) if error else ("", "")
    status = _status_of(error, code, text)
    if is_context_length(status, code, text):
        return _too_long_error(text, status=status, details=body)
    if status is not None:
        return from_status(status, {}, body, model="", now=time.time())
    quota = bool(vendors.NO_QUOTA.search(body[:MAX_BODY_CHARS]))
    return EndpointError(
        f"reported an error instead of a reply ({text or 'without saying which'})",
        advice=_QUOTA[1] if quota else "look at the server's log, or use another model",
        retry=not quota,
        details=body,
    )


_STATUS_OF = (
    (401, re.compile(r"auth|api_?key", re.IGNORECASE)),
    (403, re.compile(r"permission", re.IGNORECASE)),
    (404, re.compile(r"not_?found", re.IGNORECASE)),
    (429, re.compile(r"rate_?limit|throttl|resource_exhausted", re.IGNORECASE)),
    (400, re.compile(r"invalid|bad_?request|unsupported", re.IGNORECASE)),
)


def _status_of(error: Json, code: str, text: str) -> int | None:
    """Return the status that an error without one amounts to; None when it does not tell."""
    if vendors.NO_PATH.search(text):
        return 404
    fields = error if isinstance(error, dict) else {}
    names = (code, *(str(fields.get(name, "")) for name in ("http_code", "status", "type")))
    for name in names:
        if re.fullmatch(r"[45]\d\d", name):
            return int(name)
    return next((s for s, named in _STATUS_OF if any(map(named.search, names))), None)


def withheld_error(reason: str) -> EndpointError:
    """Return the error of a reply that the endpoint ended because of its content."""
    what, advice = _WITHHELD
    return EndpointError(f"wrote a reply but {what} ({reason})", advice=advice, retry=True)


def complaint(body: str) -> tuple[str, str]:
    """Return an error body's message in one line, and its code; servers differ in the place.

    >>> complaint('{"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}')
    ('Slow down', 'rate_limit_exceeded')
    >>> complaint("<html><title>502 Bad Gateway</title></html>")
    ('502 Bad Gateway', '')
    """
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return _plain_text(body), ""
    if isinstance(error, list) and error:
        error = error[0]  # as Gemini's endpoint answers
    if isinstance(error, dict) and error.get("error"):
        error = error["error"]
    if not isinstance(error, dict):
        return one_line(error if isinstance(error, str) else body), ""
    text = error.get("message") or error.get("detail") or error.get("msg") or body
    code = error.get("code") or error.get("error_code") or error.get("type") or ""
    said = one_line(text if isinstance(text, str) else json.dumps(text))
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if raw and isinstance(raw, str):  # OpenRouter: what the provider behind it said
        said = f"{said}: {complaint(raw)[0]}"
    return said, str(code)


def is_context_length(status: int | None, code: str, text: str) -> bool:
    """Whether an endpoint's complaint means that the conversation is longer than it accepts."""
    if status is not None and status not in {400, 413, 422, 429, 500}:
        return False
    limited = status == 429 or "rate_limit" in code or "per minute" in text
    if limited:
        return bool(vendors.OVER_RATE.search(text))
    return status == 413 or code in vendors.TOO_LONG_CODES or bool(vendors.TOO_LONG.search(text))


def context_limit(text: str) -> tuple[int | None, int | None]:
    """Return how many tokens an endpoint accepts and how many it counted, where it says so.

    >>> context_limit("prompt is too long: 210000 tokens > 200000 maximum")
    (200000, 210000)
    """
    text = text[:MAX_BODY_CHARS]
    limit = _first_number(vendors.LIMIT, text)
    return limit, _first_number(vendors.USED, text, other_than=limit)


def _first_number(
    patterns: Iterable[str], text: str, *, other_than: int | None = None
) -> int | None:
    for pattern in patterns:
        for found in re.finditer(pattern.replace("N", r"(?:\d[\d,]{1,11})"), text):
            number = int(re.findall(r"\d[\d,]*", found[0])[-1].replace(",", ""))
            if number != other_than:
                return number
    return None


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return how long the server asks to wait, at most a minute; None when it does not say.

    Knows ``retry-after-ms`` and both forms of ``Retry-After`` (RFC 9110, section 10.2.3).
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            wait_s = float(text) * unit_s
        except ValueError:
            wait_s = _seconds_until(text, now=now)
        if math.isfinite(wait_s):
            return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)
    return None


def named_wait_s(body: str, *, now: float) -> float | None:
    """Return how long an error body asks to wait, at most a minute; None when it does not say.

    Many servers say it nowhere else: OpenAI, Groq, Azure and Gemini in words, Gemini in a
    ``retryDelay``, OpenRouter as the time (in ms) at which it begins anew.

    >>> named_wait_s("Rate limit reached. Please try again in 1m2.5s.", now=0.0)
    60.0
    """
    body = body[:MAX_BODY_CHARS]
    if reset := vendors.RESET.search(body):
        return min(max(int(reset[1]) - now, 0.0), MAX_RETRY_AFTER_S)
    for found in vendors.NAMED_WAIT.finditer(body):
        hours, minutes, seconds, unit = found.groups()
        if hours or minutes or seconds:
            rest_s = float(seconds or 0) * (0.001 if unit == "ms" else 1.0)
            wait_s = int(hours or 0) * 3600 + int(minutes or 0) * 60 + rest_s
            return min(wait_s, MAX_RETRY_AFTER_S)
    return None


def _seconds_until(date: str, *, now: float) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError):
        return math.nan


def _too_long_error(text: str, *, status: int | None, details: str) -> EndpointError:
    return EndpointError(
        f"says that the conversation is longer than the model accepts ({text})",
        advice="ask for less output, or use a model with a longer context",
        status=status,
        kind=ContextLengthError,
        details=details,
    )


# --- what goes wrong on the way ----------------------------------------------------------------


def from_exception(
    error: Exception, *, model: str, timeout_s: float, connect_timeout_s: float, now: float
) -> EndpointError | None:
    """Read an error of the client library; None when it is not one (a bug, which must be seen).

    The library rests on ``httpx`` or, since its version 3, on ``httpx2``: the classes have no
    base in common, but the same names.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        response = error.response
        return from_status(
            response.status_code, response.headers, response.text, model=model, now=now
        )
    package = type(error).__module__.partition(".")[0]
    if package not in {"openai", "httpx", "httpx2"}:
        return None
    return _from_transport(error, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)


def _from_transport(
    error: Exception, *, timeout_s: float, connect_timeout_s: float
) -> EndpointError:
    causes = list(_causes(error))
    names = {name.__name__ for cause in causes for name in type(cause).__mro__}
    text = one_line(next((str(c) for c in reversed(causes) if str(c)), type(error).__name__))
    if "ConnectTimeout" in names:
        return EndpointError(
            f"did not accept a connection within {connect_timeout_s:g} s",
            advice="check --base-url, the network and the proxy settings",
            retry=True,
        )
    if "TimeoutException" in names:
        return EndpointError(
            f"sent nothing for {timeout_s:g} s",
            advice="raise request_timeout_s, or use a faster model",
            retry=True,
            trouble="timed out",
        )
    if unreachable := _unreachable(causes, names, text):
        return unreachable
    if names & {"UnsupportedProtocol", "LocalProtocolError", "InvalidURL", "TooManyRedirects"}:
        return EndpointError(
            f"cannot be asked ({text})", advice="check --base-url, the key and the headers"
        )
    return EndpointError(
        f"broke off before its reply was whole ({text.partition(' (')[0]})",
        advice="try again later, or look at the server's log",
        retry=True,
    )


def from_connecting(error: OSError) -> EndpointError | None:
    """Translate a failure to connect that will not pass by itself; None for any other."""
    lasts = isinstance(error, (socket.gaierror, ConnectionRefusedError))
    return _unreachable([error], set(), "") if lasts else None


def _unreachable(
    causes: Iterable[BaseException], names: set[str], text: str
) -> EndpointError | None:
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return EndpointError(
                f"cannot be found: no such host ({one_line(str(cause))})",
                advice="check the host name in --base-url, and the network",
                retry=cause.errno == socket.EAI_AGAIN,
            )
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return EndpointError(
                f"could not agree on a secure connection ({one_line(str(cause))})",
                advice="check http:// or https:// in --base-url, and the certificates",
            )
        if isinstance(cause, ConnectionRefusedError):
            return EndpointError(
                "refused the connection",
                advice="is the server running? check --base-url",
                retry=True,
                trouble="refused",
            )
    if "ProxyError" in names:
        return EndpointError(
            f"cannot be reached through the proxy ({text})",
            advice="check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
        )
    if "ConnectError" in names:
        return EndpointError(
            f"cannot be reached ({text})",
            advice="check --base-url, the network and the proxy settings",
            retry=True,
        )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and everything that it came from, outermost first."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            # One error for each address of the host that was tried.
            for member in error.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__


# --- words for people --------------------------------------------------------------------------


def one_line(text: str) -> str:
    """Return text as one printable line, not yet shortened to what fits a message."""
    printable = "".join(char if char.isprintable() else " " for char in text[:MAX_BODY_CHARS])
    return " ".join(printable.split()).rstrip(".")


def shorten(line: str) -> str:
    """Cut a line to 300 characters. Comes after :func:`redact`, which must see secrets whole."""
    return line if len(line) <= MAX_TEXT_CHARS else line[: MAX_TEXT_CHARS - 1] + "…"


_KEY_LIKE = re.compile(r"(?i)(\bbearer\s+)\S+|\bsk-[\w*.-]{4,}")


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return text without the secrets, and without anything else that looks like a key.

    >>> redact("Incorrect API key provided: sk-abc***def; hunter22", ["hunter22"])
    'Incorrect API key provided: [redacted]; [redacted]'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:  # shorter ones are placeholders, and would blank out ordinary words
            text = text.replace(secret, "[redacted]")
    return _KEY_LIKE.sub(lambda found: f"{found[1] or ''}[redacted]", text)


def _plain_text(body: str) -> str:
    if not body.lstrip().startswith("<"):
        return one_line(body)
    title = re.search(r"<title[^>]*>(.*?)</title>", body[:20_000], re.IGNORECASE | re.DOTALL)
    return one_line(title[1]) if title else "a web page"
