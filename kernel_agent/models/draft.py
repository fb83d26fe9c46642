"""A reply as it grows: chunks in, a :class:`~kernel_agent.records.Reply` out.

A stream's chunks and a whole reply object hold the same fields, so both are read here. Servers
differ in where they put things; their finish reasons stand in :mod:`.vendors`. What an endpoint can
make the host hold is bounded: the text, the calls and their names. Pure: it knows no bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_agent.models import vendors
from kernel_agent.models.errors import (
    MAX_BODY_CHARS,
    EndpointError,
    from_error_object,
    one_line,
    withheld_error,
)
from kernel_agent.records import Json, Reply, ReplyText, ToolCall

MAX_REPLY_CHARS = 8_000_000
"""A longer reply is ended here with ``finish_reason`` "length": no cell is 8 MB of source."""

MAX_CALLS = 1000
"""More calls end the reply as its length does."""

MAX_NAME_CHARS = 200
"""The name of a function is put together from pieces up to here."""

_UNFINISHED = {"", "null", "none"}
"""Instead of no finish reason."""


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
        """Whether the reply has neither text nor calls, thoughts aside."""
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
            raise unreadable_error(json.dumps(chunk)[:MAX_BODY_CHARS])
        if error := _error_in(chunk):
            raise from_error_object(error)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._take_choice(choice)
                self.usage = choice.get("usage") or self.usage  # Moonshot
        self.usage = chunk.get("usage") or self.usage

    def reply(self) -> Reply:
        """Return the reply as written so far."""
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
            finish_reason=vendors.REASONS.get(same, finish_reason),
        )

    def _take_choice(self, choice: Mapping[str, Json]) -> None:
        self.has_choice = True
        finish_reason = _text(choice, "finish_reason")
        if choice.get("error") or finish_reason == "error":
            raise from_error_object(choice.get("error"))
        if finish_reason in vendors.BROKEN_OFF:
            raise cut_error(finish_reason)
        if vendors.WITHHELD.search(finish_reason):
            raise withheld_error(finish_reason)
        message = choice.get("delta") or choice.get("message")
        if "delta" not in choice and (self._content or self._calls):
            message = None  # MiniMax ends a stream with the whole message once more
        if isinstance(message, dict):
            thinking, text = _split_parts(message.get("content"))
            thinking = _text(message, *vendors.THINKING) + thinking
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
    """Return the error in a chunk, wherever it stands; None without one."""
    if error := chunk.get("error"):
        return error
    base = chunk.get("base_resp")  # MiniMax, beside empty choices
    if isinstance(base, dict) and base.get("status_code"):
        return {"message": base.get("status_msg"), "code": base["status_code"]}
    named = any(isinstance(chunk.get(name), str) for name in ("message", "detail", "msg"))
    is_bare = "choices" not in chunk and (named or chunk.get("error_code"))  # vLLM, FastChat
    return dict(chunk) if is_bare else None


def _is_object(pieces: Sequence[str]) -> bool:
    """Whether arguments came whole, in one piece."""
    try:
        return len(pieces) == 1 and isinstance(json.loads(pieces[0]), dict)
    except (ValueError, RecursionError):
        return False


def cut_error(reason: str = "") -> EndpointError:
    """Return the error of a reply that broke off."""
    return EndpointError(
        "broke off in the middle of its reply" + (f" ({reason})" if reason else ""),
        advice="try again later, or look at the server's log",
        retry=True,
    )


def unreadable_error(text: str, media_type: str = "") -> EndpointError:
    """Return the error of a body that is not a chat reply."""
    kind = f"{media_type.partition(';')[0]}: " if media_type else ""
    return EndpointError(
        f"sent something that is not a chat reply ({kind}{one_line(text)})",
        advice="check --base-url (many servers want it to end in /v1)",
    )
