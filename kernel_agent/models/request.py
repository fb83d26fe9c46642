"""Messages as an OpenAI-compatible endpoint reads them.

Each message becomes JSON once. A conversation of 200 steps is sent 200 times, so turning all of it
into JSON on every call would make a step dearer the later it comes; here a call joins ready
bytes. The bytes are kept by the *identity* of the frozen message, so this pays off when the
caller hands in the same objects again, and is merely neutral when it does not.

Pure: no client, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from kernel_agent.records import Image, Json, Message, RequestOptions

MAX_CACHE_BYTES = 8_000_000
"""Ready bytes that are kept: a 200-step history of 20,000-character observations needs 4 MB."""


Need = Literal["two roles", "signatures", "reasoning", "text"]
"""Demands of some servers on messages; met only after a server asked for it.

``two roles``: turns of user and assistant, as the chat templates of Gemma and early Mistral models.
``signatures``: Gemini's thought signature on each call; ours are composed, so Google's documented
word for calls without one is sent. ``reasoning``: text in ``reasoning_content`` on each of the
assistant's messages, as DeepSeek and Kimi while they think; some refuse an empty one. ``text``: an
empty text beside calls instead of null, as Ollama; Bedrock refuses just that.
"""

NO_SIGNATURE = "skip_thought_signature_validator"
"""https://ai.google.dev/gemini-api/docs/thought-signatures"""


class MessageCache:
    """The wire form of messages, made once each and forgotten least recently used first.

    Parameters
    ----------
    max_bytes
        How much may be kept.
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        # The message is kept beside its bytes: while it lives here its id cannot be given away.
        self._entries: dict[tuple[int, bool, frozenset[Need]], tuple[Message, bytes]] = {}

    def encode(
        self, message: Message, *, images: bool, needs: frozenset[Need] = frozenset()
    ) -> bytes:
        """Return the JSON of one message; ``images`` says whether its pictures go along."""
        key = (id(message), images and bool(message.images), needs)
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = (message, to_bytes(wire_message(message, images=images, needs=needs)))
            self._bytes += len(entry[1])
        self._entries[key] = entry
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            oldest = next(iter(self._entries))
            self._bytes -= len(self._entries.pop(oldest)[1])
        return entry[1]


def request_body(
    head: Mapping[str, Json],
    messages: Sequence[Message],
    cache: MessageCache,
    *,
    images: bool,
    needs: frozenset[Need] = frozenset(),
) -> bytes:
    """Return the body of a request: the fields of ``head``, then the messages.

    Parameters
    ----------
    head
        Everything beside the messages: the model's name, options, the user's own fields.
    messages
        The conversation, oldest first.
    cache
        Where the wire form of each message is kept between calls.
    images
        Whether the endpoint accepts pictures; without, the text that describes them stands alone.
    needs
        What this endpoint turned out to want of messages.
    """
    if "two roles" in needs:
        messages = merge_turns(messages)
    parts = b",".join(_encode_all(messages, cache, images=images, needs=needs))
    return to_bytes(dict(head))[:-1] + b',"messages":[' + parts + b"]}"


def request_options(options: RequestOptions) -> dict[str, Json]:
    """Return the fields that a format asks for, under the endpoint's names."""
    fields: dict[str, Json] = {}
    if options.response_format is not None:
        fields["response_format"] = dict(options.response_format)
    if options.tools:
        fields["tools"] = [dict(tool) for tool in options.tools]
    if options.tool_choice is not None:
        fields["tool_choice"] = options.tool_choice
    if options.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = options.parallel_tool_calls
    if options.stop:
        fields["stop"] = list(options.stop)
    return fields


def merge_turns(messages: Sequence[Message]) -> list[Message]:
    """Return the same conversation without a system message and without a user's turn twice."""
    turns: list[Message] = []
    for message in messages:
        turn = replace(message, role="user") if message.role == "system" else message
        if turns and turn.role == turns[-1].role == "user":
            last = turns.pop()
            text = "\n\n".join(part for part in (last.content, turn.content) if part)
            turn = replace(last, content=text, images=last.images + turn.images)
        turns.append(turn)
    return turns


def without_keywords(schema: Json, names: Collection[str]) -> Json:
    """Return a schema, or what holds some, without these keywords; its properties keep theirs."""
    if isinstance(schema, list):
        return [without_keywords(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Json] = {}
    for name, value in schema.items():
        if name == "properties" and isinstance(value, dict):
            kept[name] = {key: without_keywords(part, names) for key, part in value.items()}
        elif name not in names:
            kept[name] = without_keywords(value, names)
    return kept


def wire_message(
    message: Message, *, images: bool, needs: frozenset[Need] = frozenset()
) -> dict[str, Json]:
    """Return one message in the chat-completions form."""
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "user" and message.images and images:
        text = [{"type": "text", "text": message.content}] if message.content else []
        wire["content"] = text + [_image_part(image) for image in message.images]
    if message.tool_calls:
        wire["content"] = message.content or ("" if "text" in needs else None)
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if "signatures" in needs:
        for call in wire.get("tool_calls", ()):
            call["extra_content"] = {"google": {"thought_signature": NO_SIGNATURE}}
    if "reasoning" in needs and message.role == "assistant":
        wire["reasoning_content"] = " "
    return wire


def to_bytes(value: Json) -> bytes:
    """Return compact UTF-8 JSON; a lone surrogate, which UTF-8 cannot hold, becomes ``?``."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _encode_all(
    messages: Sequence[Message], cache: MessageCache, *, images: bool, needs: frozenset[Need]
) -> Iterator[bytes]:
    # A tool message holds text only, and nothing may stand between the answers to one turn's
    # calls: the pictures of those answers follow them in a user message.
    pictures: list[Json] = []
    for message in messages:
        if pictures and message.role != "tool":
            yield to_bytes({"role": "user", "content": pictures})
            pictures = []
        yield cache.encode(message, images=images, needs=needs)
        if images and message.role == "tool":
            pictures += [_image_part(image) for image in message.images]
    if pictures:
        yield to_bytes({"role": "user", "content": pictures})


def _image_part(image: Image) -> Json:
    url = f"data:{image.media_type};base64,{image.data}"
    return {"type": "image_url", "image_url": {"url": url}}
