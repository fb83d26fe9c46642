"""Read an endpoint's bytes into a reply.

A server may answer with one JSON object or with a stream of events, whatever it was asked for;
the first bytes tell which. An object and a stream's chunks hold the same fields, so both are read
by the same code: an object is a stream of one chunk.

A reply is whole when the endpoint said why it stopped (``finish_reason``). A stream that only says
that it is done (``[DONE]``) may be whole if something came in it; its caller must judge, because
servers of one request at a time end a reply so when another request comes. Anything else was cut
in the middle, and half a reply is never returned as a whole one. Pure: it is fed bytes and knows no
socket.

What an endpoint can make the host hold is bounded: the text, the calls, each line and event, and
what JSON amounts to when it is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kernel_agent.models.draft import Draft, cut_error, unreadable_error
from kernel_agent.models.errors import (
    EndpointError,
    from_error_object,
    one_line,
)
from kernel_agent.models.sse import EventReader, ServerEvent
from kernel_agent.records import Json, Reply, ReplyText

MAX_BODY_BYTES = 32_000_000
"""A reply that comes as one JSON object can only be read whole; a larger one is refused."""

MAX_VALUES = 1_000_000
"""Values in one piece of JSON: decoded they take up to 100 bytes each, however short they are."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)

_BLANK = b"\xef\xbb\xbf \t\r\n"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":", b"error:")
"""Beginnings of a stream of events, after a byte order mark and blank lines."""


class ReplyReader:
    """Reads one HTTP body, whichever way the server chose to answer.

    Parameters
    ----------
    emit
        Called with each piece of text as it comes.

    Attributes
    ----------
    draft
        The reply so far, and the usage that the endpoint reported.
    media_type
        The answer's ``Content-Type``, set when its head has come; for what is said of a body that
        cannot be read. How the body is read does not depend on it: too many servers get it wrong.
    """

    def __init__(self, emit: Callable[[ReplyText], None]) -> None:
        self.draft = Draft(emit)
        self.media_type = ""
        self._start = b""
        self._events: EventReader | None = None
        self._body: list[bytes] | None = None
        self._body_bytes = 0
        self._said_done = False

    @property
    def done(self) -> bool:
        """Whether nothing more needs to be read."""
        return self._said_done or self.draft.full

    @property
    def is_stream(self) -> bool:
        """Whether the server answered with events."""
        return self._events is not None

    @property
    def whole(self) -> bool:
        """Whether the reply so far is complete, as far as the endpoint says."""
        return self.done or self.draft.finish_reason is not None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises
        ------
        EndpointError
            The endpoint's fault: an error inside the stream, or something that is no reply.
        """
        if self._events is None and self._body is None:
            chunk = self._start = (self._start + chunk).lstrip(_BLANK)
            self._choose(chunk)
        if self._events is not None:
            self._take_events(self._events.feed(chunk))
        elif self._body is not None:
            self._body.append(chunk)
            self._body_bytes += len(chunk)
            if self._body_bytes > MAX_BODY_BYTES:
                raise EndpointError(
                    f"sent a reply of more than {MAX_BODY_BYTES // 1_000_000} MB",
                    advice="limit the reply's length (max_tokens), or turn streaming on",
                )

    def finish(self) -> Reply:
        """Return the reply, now that the body has ended.

        Raises
        ------
        EndpointError
            The endpoint's fault: the reply was cut in the middle, or is not a reply.
        """
        if self._body is not None:
            self._take_body(b"".join(self._body))
        elif self._events is not None and not self.whole:
            self._take_events(self._events.end())
        if self._events is None and self._body is None and self._start:
            raise unreadable_error(self._start.decode("utf-8", "replace"), self.media_type)
        if not self.draft.has_choice:
            raise _silent_error() if self._body is None else _no_choices_error(b"".join(self._body))
        if not self.whole and self._body is None:
            raise cut_error()
        if self.draft.finish_reason is None and self.draft.empty:
            raise unfinished_error()
        return self.draft.reply()

    def _choose(self, start: bytes) -> None:
        """Choose between object and stream; with too few bytes, wait for the next."""
        if start.startswith((b"{", b"[")):
            self._body = []
        elif start.startswith(_FIELDS):
            self._events = EventReader()
        elif not any(field.startswith(start) for field in _FIELDS):
            raise unreadable_error(start.decode("utf-8", "replace"), self.media_type)

    def _take_events(self, events: list[ServerEvent]) -> None:
        for event in events:
            if self.done:
                return
            if event.data.strip() == "[DONE]":
                self._said_done = True
            else:
                self._take_event(event)

    def _take_event(self, event: ServerEvent) -> None:
        if event.name == "error":
            raise from_error_object(_error_of(event.data))
        for text in _documents(event.data):
            self.draft.take(_parse(text))

    def _take_body(self, body: bytes) -> None:
        text = body.decode("utf-8-sig", "replace")
        try:
            chunk = decode_json(text)
        except (ValueError, RecursionError):
            raise cut_error() if "json" in self.media_type else unreadable_error(text) from None
        self.draft.take(chunk)


def decode_json(text: str) -> Json:
    """Decode what an endpoint sent.

    Raises
    ------
    EndpointError
        The endpoint's fault: it holds more values than any reply.
    ValueError, RecursionError
        It is no JSON.
    """
    left = MAX_VALUES - _marks(text, 0, len(text))
    if left < 0:  # unless they stand in strings
        for number, string in enumerate(_STRING.finditer(text)):
            left += _marks(text, *string.span())
            if left >= 0 or number > MAX_VALUES:
                break
    if left < 0:
        raise EndpointError(
            f"sent JSON of more than {MAX_VALUES:,} values",
            advice="check --base-url: this is not a chat-completions reply",
        )
    return json.loads(text)


def _marks(text: str, start: int, end: int) -> int:
    """Return at least how many values there are."""
    return sum(text.count(mark, start, end) for mark in ",[{")


def _parse(text: str) -> Json:
    try:
        return decode_json(text)
    except (ValueError, RecursionError):
        raise cut_error() from None


def _documents(data: str) -> list[str]:
    """Split an event's data where a server forgot the blank line between two events."""
    if "\n" not in data:
        return [data]
    try:
        decode_json(data)
    except (ValueError, RecursionError):
        return [line for line in data.split("\n") if line.strip() not in {"", "[DONE]"}]
    return [data]


def _error_of(data: str) -> Json:
    """Return the error that such an event holds: an object, one within it, or plain text."""
    try:
        error = decode_json(data)
    except (ValueError, RecursionError):
        return data
    return (error.get("error") or error) if isinstance(error, dict) else error


def _silent_error() -> EndpointError:
    return EndpointError(
        "ended its reply before anything came",
        advice="try again later, or look at the server's log",
        retry=True,
        trouble="silent",
    )


def _no_choices_error(body: bytes) -> EndpointError:
    said = one_line(body.decode("utf-8", "replace"))
    return EndpointError(
        "sent a reply without choices" + (f" ({said})" if said else ""),
        advice="check --base-url and --model, or look at the server's log",
    )


def unfinished_error() -> EndpointError:
    """Return the error of a reply that was ended without the word that it is whole.

    Raised by the caller, too, where it knows that this endpoint says it otherwise.
    """
    return EndpointError(
        "ended its reply early (does it serve one request at a time?)",
        advice="ask it from one place at a time, or let the server take several requests at once",
        retry=True,
        trouble="unfinished",
    )
