"""Calls in a reply: the native ones, and those that a model wrote into its text instead.

Where a native call is asked for, many models write one of these (of 120,700 recorded outputs of
71 models some 13,000), and servers without a parser for that model pass it on as text::

    <tool_call>{"name": "python", "arguments": {"code": "1 + 1"}}</tool_call>
    ```json
    {"name": "python", "parameters": {"code": "1 + 1"}}
    ```
    <function=python><parameter=code>1 + 1</parameter></function>

Reasoning is hidden first, a native call comes before anything in the text, and an object that
never closes is truncated: no call before it runs in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kernel_agent.errors import FormatError
from kernel_agent.formats.blocks import find_blocks
from kernel_agent.formats.fenced import readable
from kernel_agent.formats.objects import (
    MAX_OBJECTS,
    find_objects,
    in_python,
    lenient,
    malformed,
    object_end,
    repaired,
    stand_in,
    strict,
)
from kernel_agent.formats.source import unwrap
from kernel_agent.records import Call, Json, Message, Observation, Reply, Step, ToolCall

_NAMES = ("name", "tool", "tool_name", "function_name", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "args", "kwargs", "tool_input", "action_input", "input")
MAX_CALLS = 100
"""Calls in one reply; a model that writes more is in a loop."""

_MAX_ENCODINGS = 3  # a string of JSON in a string of JSON was seen; more is no mistake


def find_calls(reply: Reply, *, shape: str) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, in order.

    Parameters
    ----------
    reply
        A reply that was not cut off.
    shape
        An example of what is wanted, for the feedback of an error.

    Raises
    ------
    FormatError
        ``truncated`` or ``malformed``, when a call in the text cannot be told, or there are more
        than :data:`MAX_CALLS`. The model's fault.
    """
    calls = reply.tool_calls or tuple(islice(_in_text(reply, shape), MAX_CALLS + 1))
    if len(calls) > MAX_CALLS:
        told = f"At most {MAX_CALLS} calls go into one turn, so none was made. Make fewer:{shape}"
        raise FormatError("too many calls", feedback=told.rstrip(), kind="malformed")
    return calls


def _in_text(reply: Reply, shape: str) -> Iterator[ToolCall]:
    text = readable(reply.content)
    tagged = list(islice(_tagged(text), MAX_CALLS + 1))
    yield from tagged
    if tagged:
        return
    for source in find_objects(text, shape=shape)[-MAX_OBJECTS:]:
        value = strict(source)
        yield from _described(lenient(source) if value is None else value)


def _described(value: Json) -> Iterator[ToolCall]:
    """Yield the calls that an object describes; none when it is something else."""
    if not isinstance(value, dict):
        return
    for inside in ("tool_calls", "calls"):
        if isinstance(value.get(inside), list):
            for one in value[inside]:
                yield from _described(one)
            return
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = _first(value, (*_NAMES, "function"))
    if isinstance(name, str) and any(key in value for key in _ARGUMENTS):
        arguments = _first(value, _ARGUMENTS)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        yield ToolCall(id="", name=name.strip(), arguments=text)


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((value[key] for key in keys if key in value), None)


_FUNCTION = re.compile(r"<function=\s*([\w.-]{1,100})\s*>")
_PARAMETER = re.compile(r"<parameter=\s*([\w.-]{1,100})\s*>\n?")


def _tagged(text: str) -> Iterator[ToolCall]:
    """Yield the calls written as ``<function=name>…</function>``, outside of reasoning."""
    if "<function=" not in text:
        return
    found = find_blocks(text)
    visible = found.outside_thoughts(found.end)
    at = 0
    while opener := _FUNCTION.search(visible, at):
        at = visible.find("</function>", opener.end())
        if at < 0:
            return
        body = visible[opener.end() : at]
        parameters = dict(_parameters(body))
        arguments = json.dumps(parameters) if parameters else body.strip()
        yield ToolCall(id="", name=opener[1], arguments=arguments)


def _parameters(body: str) -> Iterator[tuple[str, Json]]:
    at = 0
    while opener := _PARAMETER.search(body, at):
        at = body.find("</parameter>", opener.end())
        if at < 0:
            return
        text = body[opener.end() : at].removesuffix("\n")
        value = None if opener[1] == "code" else strict(text)
        yield opener[1], text if value is None else value


def opened(arguments: str) -> str:
    """Return a call's arguments without fences and the JSON strings that they were encoded into."""
    for _ in range(_MAX_ENCODINGS):
        plain = unwrap(readable(arguments))
        value = strict(plain)
        if not isinstance(value, str):
            break
        arguments = value
    return "" if plain in ("null", "None") else plain


def read_arguments(text: str, *, shape: str) -> Json:
    """Return a call's arguments: the object that they are, or the text itself when it is none.

    Parameters
    ----------
    text
        The raw text: JSON, JSON inside of a JSON string, fenced, in Python's notation, or a bare
        string where an object was asked for. Empty and ``null`` mean no arguments.
    shape
        An example of what is wanted, for the feedback of an error.

    Raises
    ------
    FormatError
        ``truncated`` when the object never closes, ``malformed`` when it cannot be read. The
        model's fault.
    """
    plain = opened(text)
    if not plain.startswith("{"):
        return plain or {}
    source = plain[: object_end(plain, 0, shape=shape)]
    value = strict(source)
    if value is None:
        value = _in_another_notation(source)
    if not isinstance(value, dict):
        raise malformed("the arguments are no JSON object", shape=shape)
    return {str(key): field for key, field in value.items()}


def _in_another_notation(source: str) -> Json:
    """Return an object that is no JSON; None when only a guess could make one of it."""
    try:
        return in_python(source)
    except ValueError:
        value = repaired(source)
        return value if stand_in(value, source) else None


_BEGINS = re.compile(r"<tool_call>|<function=|\[TOOL_CALLS\]|```|\{\s*+[\"']", re.IGNORECASE)


def thought_of(reply: Reply) -> str:
    """Return what a reply says before its calls, without code blocks and reasoning."""
    try:
        found = find_blocks(readable(reply.content))
    except FormatError:  # a flood of delimiters beside a call that can be read
        return ""
    prose = found.prose(found.end)
    call = None if reply.tool_calls else _BEGINS.search(prose)
    return prose[: call.start()].strip() if call else prose


def written(call: Call) -> str:
    """Return a call as Python writes it; for people, never for running.

    >>> written(Call(name="rate", arguments={"currency": "USD"}))
    "rate(currency='USD')"
    """
    return f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"


# --- in the history ------------------------------------------------------------------------


def call_messages(
    step: Step, calls: Sequence[ToolCall], *, header: str = ""
) -> tuple[Message, ...]:
    """Return a step in the provider's own way: the assistant's calls, then an answer to each.

    The ids are made from the step's number, so that the same step gives the same bytes; nine
    letters and digits is the one form that every provider takes (Mistral takes no other).
    """
    numbered = [
        ToolCall(id=f"s{step.number:05d}n{n:02d}", name=call.name, arguments=call.arguments)
        for n, call in enumerate(calls)
    ]
    said = Message(role="assistant", content=step.thought, tool_calls=tuple(numbered))
    images = step.observation.images
    return (
        said,
        *(
            Message(
                role="tool",
                content=f"{header}{text}",
                tool_call_id=call.id,
                images=images if call is numbered[-1] else (),
            )
            for call, text in zip(numbered, _answers(step.observation, len(calls)), strict=True)
        ),
    )


def _answers(observation: Observation, count: int) -> list[str]:
    """Return a text for each call: its own part, and with the last one what follows the parts.

    An observation that was shortened since, or has no parts, stands with the first call.
    """
    parts, text = observation.parts, observation.text
    together = "\n\n".join(parts)
    if len(parts) == count and text.startswith(together):
        return [*parts[:-1], parts[-1] + text[len(together) :]]
    return [text, *["(see the answer to the first call)"] * (count - 1)]
