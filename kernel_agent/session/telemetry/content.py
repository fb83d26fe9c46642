"""The texts in spans, in the form of the conventions' schemas, and how much of them there may be.

Code in a kernel decides how many calls there are and how long their arguments; whoever watches a
run through its spans must not lose them to that. So the texts of a run have a bound, those of tool
calls one of their own: what code sends leaves room for what the model was asked and said. Beyond it
a span goes without its texts, which is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.trace import Span

from kernel_agent.records import Json, Message, Reply, ToolCall

CONTENT_CHARS = 100_000  # of one text in an attribute
RUN_BYTES = 24_000_000  # of the texts of a run: of its prompts, replies, cells and answers
CALLS_BYTES = 8_000_000  # of the arguments and results of its tool calls

Attributes = dict[str, Any]


class Texts:
    """The texts of a run: whether there are any, and how much room is left for them."""

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        self.left_out = 0
        self._room = {False: RUN_BYTES, True: CALLS_BYTES}

    def put(self, span: Span, make: Callable[[], Attributes], *, of_call: bool = False) -> None:
        """Put texts into a span if they are wanted and there is room for them.

        Parameters
        ----------
        make
            Makes them; called only if there is room for any.
        of_call
            Whether they are of a tool's call.
        """
        if not self.wanted:
            return
        attributes = plain(make()) if self._room[of_call] > 0 else {}
        size = size_of(attributes)
        if not 0 < size <= self._room[of_call]:
            self.left_out += 1
            return
        self._room[of_call] -= size
        span.set_attributes(attributes)

    def message(self, text: str, *, of_call: bool = False) -> str:
        """Return the message of an error as far as it may be put into a span."""
        if not (self.wanted and text):
            return ""
        shown = str(sendable(shorten(text)))
        size = _size(shown)
        if size > self._room[of_call]:
            self.left_out += 1
            return ""
        self._room[of_call] -= size
        return shown

    def complaint(self) -> str | None:
        """Say how many texts were left out."""
        if not self.left_out:
            return None
        texts = "1 text is" if self.left_out == 1 else f"{self.left_out:,} texts are"
        calls, others = (size // 1_000_000 for size in (CALLS_BYTES, RUN_BYTES))
        bounds = f"calls of tools may have {calls} MB of them in a run, all else {others} MB"
        return f"{texts} not in the traces: {bounds}."


def size_of(attributes: Mapping[str, Any]) -> int:
    """Return about how many bytes attributes take when they are sent."""
    return sum(len(name) + _size(value) for name, value in attributes.items())


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 8


def plain(attributes: Attributes) -> Attributes:
    """Return attributes that can be sent: one that cannot would take its whole batch with it."""
    return {name: sendable(value) for name, value in attributes.items()}


def sendable(value: Any) -> Any:
    """Return a value that can be sent."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [sendable(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**63 - 1))
    return value


# --- the schemas ---------------------------------------------------------------------------------


def describe_input(messages: Sequence[Message]) -> Attributes:
    """Return what a model is asked."""
    system = [text_part(m.content) for m in messages if m.role == "system"]
    said = [{"role": m.role, "parts": _parts(m)} for m in messages if m.role != "system"]
    return {"gen_ai.system_instructions": as_json(system), "gen_ai.input.messages": as_json(said)}


def _parts(message: Message) -> list[Json]:
    # Pictures are named, not sent: they would be most of the bytes.
    images = [text_part(f"({i.media_type}, {i.width} x {i.height})") for i in message.images]
    if message.role == "tool":
        response = shorten(message.content)
        told = {"type": "tool_call_response", "id": message.tool_call_id, "response": response}
        return [told, *images]
    return [text_part(message.content), *images, *map(_tool_call, message.tool_calls)]


def describe_output(reply: Reply) -> Json:
    """Return what a model said."""
    thought = [{**text_part(reply.reasoning), "type": "reasoning"}] if reply.reasoning else []
    said = [text_part(reply.content)] if reply.content else []
    return {
        "role": "assistant",
        "parts": [*thought, *said, *map(_tool_call, reply.tool_calls)],
        "finish_reason": reply.finish_reason or "stop",
    }


def text_part(text: str) -> Json:
    """Return a text as a part of a message."""
    return {"type": "text", "content": shorten(text)}


def _tool_call(c: ToolCall) -> Json:
    return {"type": "tool_call", "id": c.id, "name": c.name, "arguments": shorten(c.arguments)}


def as_json(value: Json) -> str:
    """Return JSON in the characters that it has."""
    return json.dumps(value, ensure_ascii=False)


def as_object(value: Any) -> str:
    """Return a tool's arguments or result as a JSON object, as the conventions ask.

    Of what is too long it is the beginning, as a text.
    """
    # Not whole: a tool's argument may be a thousand times as long as what is kept of it.
    given = value if isinstance(value, dict) else {"result": value}
    text = ""
    try:
        for piece in _ENCODER.iterencode(given):
            text += piece
            if len(text) > CONTENT_CHARS:
                return as_json({"text": shorten(text)})
    except (ValueError, TypeError, RecursionError):  # a circle, keys that are no text
        return as_json({"text": shorten(repr(value))})
    return text


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=repr)


def shorten(text: str) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= CONTENT_CHARS else f"{text[:CONTENT_CHARS]} …"
