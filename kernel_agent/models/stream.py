"""From the bytes that an endpoint sends to a reply.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_agent.models.bounded_json import decoded
from kernel_agent.models.errors import (
    MAX_BODY_CHARS,
    EndpointError,
    from_error_object,
    one_line,
    withheld,
)
from kernel_agent.models.sse import EventReader, ServerEvent
from kernel_agent.records import Json, Reply, ReplyText, ToolCall

MAX_REPLY_CHARS = 8_000_000
"""A longer reply is ended here with ``finish_reason`` "length": no cell is 8 MB of source."""

MAX_BODY_BYTES = 32_000_000
"""A reply that comes as one JSON object can only be read whole; a larger one is refused."""

MAX_CALLS = 1000
"""More calls end the reply as its length does."""

MAX_NAME_CHARS = 200
"""The name of a function is put together from pieces up to here."""

_REASONS = {
    **dict.fromkeys(
        ("max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded"),
        "length",
    ),
    **dict.fromkeys(("eos", "eos_token", "end_turn", "stop_sequence", "complete"), "stop"),
}
"""What some servers say for "length" and "stop", in lower case; the loop must know, because
truncated code never runs, and an open block only when the model stopped by itself."""

_UNFINISHED = {"", "null", "none"}
"""Instead of no finish reason."""

_WITHHELD = re.compile(
    r"content_?filter|safety|recitation|prohibited|blocklist|spii|sensitive", re.IGNORECASE
)
"""The filter of OpenAI and Azure, of Gemini (whose own words come through), of Zhipu."""

_BROKEN_OFF = {"insufficient_system_resource", "abort", "network_error"}
"""DeepSeek, SGLang, Zhipu: the server gave up on the reply."""

_BLANK = b"\xef\xbb\xbf \t\r\n"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":", b"error:")
"""How a stream of events can begin, after a byte order mark and blank lines."""


@dataclass(kw_only=True)
class _CallDraft:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Draft:
    """A reply as it grows, chunk by chunk.

    Parameters
    ----------
    emit
        Called with each piece of text as it comes.
    max_chars
        Where a reply is ended.
    """

    def __init__(
        self, emit: Callable[[ReplyText], None], *, max_chars: int = MAX_REPLY_CHARS
    ) -> None:
        self._emit = emit
        self._room = max_chars
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_CallDraft] = []
        self._slots: dict[int, _CallDraft] = {}
        self._went_on = False  # after a finish reason
        self.has_choice = False
        self.finish_reason: str | None = None
        self.usage: Json = None

    @property
    def full(self) -> bool:
        """Whether the reply reached its greatest length."""
        return self._room <= 0 or len(self._calls) > MAX_CALLS

    @property
    def empty(self) -> bool:
        """Whether nothing has been said to the user or called, thoughts aside."""
        return not (self._content or self._refusal or self._calls)

    @property
    def ended(self) -> bool:
        """Whether a finish reason ends it: some servers send one beside thoughts or every piece."""
        return bool(self.finish_reason and (self._content or self._calls) and not self._went_on)

    def take(self, chunk: Json) -> None:
        """Add what one chunk (or one whole reply object) holds.

        Raises
        ------
        EndpointError
            The endpoint's fault: it sent an error instead.
        """
        if isinstance(chunk, list) and len(chunk) == 1:
            chunk = chunk[0]  # Gemini's errors
        if not isinstance(chunk, dict):
            raise _unreadable(json.dumps(chunk)[:MAX_BODY_CHARS])
        if error := _error_in(chunk):
            raise from_error_object(error)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._take_choice(choice)
                self.usage = choice.get("usage") or self.usage  # Moonshot
        self.usage = chunk.get("usage") or self.usage

    def reply(self) -> Reply:
        """Return what has been written so far."""
        finish_reason = "length" if self.full else self.finish_reason
        same = (finish_reason or "").lower()
        return Reply(
            content="".join(self._content) or "".join(self._refusal),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                ToolCall(
                    id=call.id or f"call_{n}", name=call.name, arguments="".join(call.arguments)
                )
                for n, call in enumerate(self._calls[:MAX_CALLS])
            ),
            finish_reason=_REASONS.get(same, finish_reason),
        )

    def _take_choice(self, choice: Mapping[str, Json]) -> None:
        self.has_choice = True
        finish_reason = _text(choice, "finish_reason")
        if choice.get("error") or finish_reason == "error":
            raise from_error_object(choice.get("error"))
        if finish_reason in _BROKEN_OFF:
            raise _cut(finish_reason)
        if _WITHHELD.search(finish_reason):
            raise withheld(finish_reason)
        message = choice.get("delta") or choice.get("message")
        if "delta" not in choice and (self._content or self._calls):
            message = None  # MiniMax ends a stream with the whole message once more
        if isinstance(message, dict):
            thinking, text = _split_parts(message.get("content"))
            thinking = _text(message, "reasoning_content", "reasoning", "thinking") + thinking
            self._write(thinking, reasoning=True)
            self._write(text)
            self._refuse(_text(message, "refusal"))
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                if not self.full:
                    self._take_call(call)
        elif isinstance(choice.get("text"), str):
            self._write(choice["text"])  # the older completions form
        if finish_reason.lower() not in _UNFINISHED:
            self.finish_reason = finish_reason

    def _write(self, text: str, *, reasoning: bool = False) -> None:
        text = text[: max(self._room, 0)]
        if text:
            self._went_on |= self.finish_reason is not None
            self._room -= len(text)
            (self._reasoning if reasoning else self._content).append(text)
            self._emit(ReplyText(text=text, reasoning=reasoning))

    def _refuse(self, text: str) -> None:
        text = text[: max(self._room, 0)]
        if text:
            self._room -= len(text)
            self._refusal.append(text)

    def _take_call(self, call: Json) -> None:
        if not isinstance(call, dict):
            return
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        self._went_on |= self.finish_reason is not None
        name, arguments = _text(function, "name")[:MAX_NAME_CHARS], function.get("arguments")
        if isinstance(arguments, (dict, list)):
            arguments = json.dumps(arguments, ensure_ascii=False)
        begins = name if isinstance(arguments, str) and arguments.startswith("{") else ""
        draft = self._call_at(call.get("index"), _text(call, "id"), name, begins)
        if not draft.name:
            self._emit_call(f"{name} " if draft is self._calls[0] else f"\n{name} ")
        if name != draft.name and len(draft.name) < MAX_NAME_CHARS:
            draft.name += name  # some send it in pieces, some repeat it with every piece
        if isinstance(arguments, str):
            arguments = arguments[: max(self._room, 0)]
            self._room -= len(arguments)
            if arguments:
                draft.arguments.append(arguments)
            self._emit_call(arguments)

    def _emit_call(self, text: str) -> None:
        if text.strip():
            self._emit(ReplyText(text=text, call=True))

    def _call_at(self, index: Json, call_id: str, name: str, begins: str) -> _CallDraft:
        """Return the call that a piece belongs to.

        By its index; but some servers send none, and some give every call the index 0, with a new
        id or (Gemini's gateways) without: then a name with an object begins a call (``begins``).
        """
        if isinstance(index, int):
            draft = self._slots.get(index)
        elif call_id:
            draft = next((known for known in self._calls if known.id == call_id), None)
        else:
            draft = self._calls[-1] if self._calls and not name else None
        if draft is None or (
            call_id != draft.id if call_id and draft.id else begins and _is_object(draft.arguments)
        ):
            draft = _CallDraft()
            self._calls.append(draft)
            if isinstance(index, int):
                self._slots[index] = draft
        draft.id = draft.id or call_id[:MAX_NAME_CHARS]
        return draft


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
        """Whether what has been read so far is a complete reply, as far as the endpoint says."""
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
            The endpoint's fault: the reply was cut in the middle, or it is none.
        """
        if self._body is not None:
            self._take_body(b"".join(self._body))
        elif self._events is not None and not self.whole:
            self._take_events(self._events.end())
        if self._events is None and self._body is None and self._start:
            raise _unreadable(self._start.decode("utf-8", "replace"), self.media_type)
        if not self.draft.has_choice:
            raise _silent() if self._body is None else _without_choices(b"".join(self._body))
        if not self.whole and self._body is None:
            raise _cut()
        if self.draft.finish_reason is None and self.draft.empty:
            raise unfinished()
        return self.draft.reply()

    def _choose(self, start: bytes) -> None:
        """Tell an object from a stream; with too few bytes to tell, the next ones decide."""
        if start.startswith((b"{", b"[")):
            self._body = []
        elif start.startswith(_FIELDS):
            self._events = EventReader()
        elif not any(field.startswith(start) for field in _FIELDS):
            raise _unreadable(start.decode("utf-8", "replace"), self.media_type)

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
            chunk = decoded(text)
        except (ValueError, RecursionError):
            raise _cut() if "json" in self.media_type else _unreadable(text) from None
        self.draft.take(chunk)


def _parse(text: str) -> Json:
    try:
        return decoded(text)
    except (ValueError, RecursionError):
        raise _cut() from None


def _documents(data: str) -> list[str]:
    """Split an event's data where a server forgot the blank line between two events."""
    if "\n" not in data:
        return [data]
    try:
        decoded(data)
    except (ValueError, RecursionError):
        return [line for line in data.split("\n") if line.strip() not in {"", "[DONE]"}]
    return [data]


def _split_parts(content: Json) -> tuple[str, str]:
    """Return the thinking and the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return "", content
    thinking, text = [], []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            inner = part.get("thinking")
            thinking.append(inner if isinstance(inner, str) else _split_parts(inner)[1])
            text.append(_text(part, "text"))
    return "".join(thinking), "".join(text)


def _text(fields: Mapping[str, Json], *names: str) -> str:
    """Return the first of these fields that holds text."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _error_in(chunk: Mapping[str, Json]) -> Json:
    """Return the error that a chunk is, wherever it stands; None when it is none."""
    if error := chunk.get("error"):
        return error
    base = chunk.get("base_resp")  # MiniMax, beside empty choices
    if isinstance(base, dict) and base.get("status_code"):
        return {"message": base.get("status_msg"), "code": base["status_code"]}
    named = any(isinstance(chunk.get(name), str) for name in ("message", "detail", "msg"))
    is_bare = "choices" not in chunk and (named or chunk.get("error_code"))  # vLLM, FastChat
    return dict(chunk) if is_bare else None


def _error_of(data: str) -> Json:
    """Return the error that such an event holds: an object, one within it, or plain text."""
    try:
        error = decoded(data)
    except (ValueError, RecursionError):
        return data
    return (error.get("error") or error) if isinstance(error, dict) else error


def _is_object(pieces: Sequence[str]) -> bool:
    """Whether arguments came whole, in one piece."""
    try:
        return len(pieces) == 1 and isinstance(json.loads(pieces[0]), dict)
    except (ValueError, RecursionError):
        return False


def _silent() -> EndpointError:
    return EndpointError(
        "ended its reply before anything came",
        advice="try again later, or look at the server's log",
        retry=True,
        trouble="silent",
    )


def _without_choices(body: bytes) -> EndpointError:
    said = one_line(body.decode("utf-8", "replace"))
    return EndpointError(
        "sent a reply without choices" + (f" ({said})" if said else ""),
        advice="check --base-url and --model, or look at the server's log",
    )


def unfinished() -> EndpointError:
    """Return the error of a reply that was ended without the word that it is whole.

    Raised by the caller, too, where it knows that this endpoint says it otherwise.
    """
    return EndpointError(
        "ended its reply early (does it serve one request at a time?)",
        advice="ask it from one place at a time, or let the server take several requests at once",
        retry=True,
        trouble="unfinished",
    )


def _cut(reason: str = "") -> EndpointError:
    return EndpointError(
        "broke off in the middle of its reply" + (f" ({reason})" if reason else ""),
        advice="try again later, or look at the server's log",
        retry=True,
    )


def _unreadable(text: str, media_type: str = "") -> EndpointError:
    kind = f"{media_type.partition(';')[0]}: " if media_type else ""
    return EndpointError(
        f"sent something that is not a chat reply ({kind}{one_line(text)})",
        advice="check --base-url (many servers want it to end in /v1)",
    )
