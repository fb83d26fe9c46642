"""Calls in a reply: the native ones, and those that a model wrote into its text instead.

Where a native call is asked for, many models write one of these (of 120,700 recorded outputs of
71 models some 13,000), and servers without a parser for that model pass it on as text::

    <tool_call>{"name": "python", "arguments": {"code": "1 + 1"}}</tool_call>
    ```json
    {"name": "python", "parameters": {"code": "1 + 1"}}
    ```
    <function=python><parameter=code>1 + 1</parameter></function>
    <invoke name="python"><parameter name="code">1 + 1</parameter></invoke>
    <tool_call>python<arg_key>code</arg_key><arg_value>1 + 1</arg_value></tool_call>

Reasoning is hidden first, a native call comes before anything in the text, and an object that
never closes is truncated: no call before it runs in its place.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kernel_agent.errors import FormatError
from kernel_agent.formats.fenced import readable
from kernel_agent.formats.reading.delimiters import TAG_SPACE
from kernel_agent.formats.reading.objects import (
    MAX_OBJECTS,
    cut_off_error,
    find_objects,
    in_python,
    lenient,
    malformed_error,
    object_end,
    repair,
    stand_in,
    strict,
)
from kernel_agent.formats.reading.scanner import find_blocks
from kernel_agent.formats.reading.source import parse_plain, unwrap
from kernel_agent.records import (
    FINAL_ANSWER,
    Call,
    Json,
    Message,
    Observation,
    Reply,
    Step,
    ToolCall,
)

_NAMES = ("name", "tool", "tool_name", "function_name", "recipient_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "kwargs", "tool_input", "action_input", "input")
MAX_CALLS = 100
"""Calls in one reply; a model that writes more is in a loop."""

MAX_NOTE = 2_000
"""Characters beside an answer."""

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
        ``truncated`` or ``malformed``, when a call in the text cannot be recognised, or there
        are more than :data:`MAX_CALLS`. The model's fault.
    """
    calls = reply.tool_calls or tuple(islice(_in_text(reply, shape), MAX_CALLS + 1))
    if len(calls) > MAX_CALLS:
        feedback = (
            f"At most {MAX_CALLS} calls go into one turn, so none was made. Make fewer:{shape}"
        )
        raise FormatError("too many calls", feedback=feedback.rstrip(), kind="malformed")
    return calls


def _in_text(reply: Reply, shape: str) -> Iterator[ToolCall]:
    text = readable(reply.content)
    if calls := in_python_calls(_without_tokens(text)):
        yield from calls
        return
    tagged = list(islice(_tagged_calls(text, shape), MAX_CALLS + 1))
    yield from tagged
    if tagged:
        return
    objects = find_objects(text, shape=shape)
    if not objects and _TAG.search(text) and (call := _TAG.search(text, _after_blocks(text))):
        objects = find_objects(text[call.start() :], shape=shape)
    at = 0
    for source in objects[-MAX_OBJECTS:]:
        start = text.find(source, at)
        at = start + len(source)
        name = _NAMED.search(text, max(start - _NAME_CHARS, 0), start)
        if name:
            yield ToolCall(id="", name=name[1], arguments=source)
            continue
        value = strict(source)
        yield from described_calls(lenient(source) if value is None else value)


# Mistral, Kimi, DeepSeek and Harmony write the name before the object with the arguments.
_NAMED = re.compile(
    r"(?:\[TOOL_CALLS\]|<\|tool_call_begin\|>|<\uff5ctool▁(?:call▁begin|sep)\uff5c>|\bto=)\s{0,9}"
    r"(?:functions\.)?([A-Za-z_][\w-]{0,99})(?::\d{1,3})?\s{0,9}"
    r"(?:\[ARGS\]|<\uff5ctool▁sep\uff5c>|<\|\w{1,40}\|>|```json|json|commentary|\s){0,9}\Z"
)
_NAME_CHARS = 240


_TAG = re.compile(r"<\|?tool_calls?[>_|]|<\uff5ctool▁call|\[TOOL_CALLS\]", re.IGNORECASE)
_TOKENS = re.compile(r"(?:<\|\w{1,40}\|>\s{0,9})*")
_MAX_TOKENS = 4  # around a call: of the call, its list and the turn


def _without_tokens(text: str) -> str:
    """Return a text without the template's tokens around it; those inside are its own."""
    text = text.strip()
    text = text[_TOKENS.match(text).end() :]  # type: ignore[union-attr]  # matches nothing at least
    for _ in range(_MAX_TOKENS):
        at = text.rfind("<|", max(len(text) - _TOKEN_CHARS, 0))
        text = text[:at].rstrip() if at >= 0 and _TOKENS.fullmatch(text, at) else text
    return text


_TOKEN_CHARS = 44


def _after_blocks(text: str) -> int:
    """Return where the last block that was written to its end closes."""
    return max((block.end for block in find_blocks(text).blocks if not block.open), default=0)


def in_python_calls(source: str) -> tuple[ToolCall, ...]:
    """Return the calls of ``python`` that are all of a source: one, or a list of them.

    >>> in_python_calls("[python(code='1 + 1')]")[0].arguments
    '{"code": "1 + 1"}'
    """
    tree = parse_plain(source.strip()) if _CALLS_PYTHON.match(source) else None
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return ()
    value = tree.body[0].value
    calls = value.elts if isinstance(value, ast.List) else [value]
    read = [_python_call(call) for call in calls]
    return tuple(call for call in read if call) if all(read) else ()


_CALLS_PYTHON = re.compile(r"\s*(?:\[\s*)?python\(")


def _python_call(node: ast.expr) -> ToolCall | None:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return None
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    try:
        arguments = [ast.literal_eval(value) for value in values]
        text = json.dumps(arguments[0] if node.args else {"code": arguments[0]})
    except (ValueError, TypeError, IndexError, RecursionError):
        return None
    one = node.func.id == "python" and len(values) == 1
    return ToolCall(id="", name="python", arguments=text) if one else None


def described_calls(value: Json) -> Iterator[ToolCall]:
    """Yield the calls that an object describes; none when it is something else."""
    if not isinstance(value, dict):
        return
    for inside in ("tool_calls", "tool_uses", "calls"):
        if isinstance(value.get(inside), list):
            for one in value[inside]:
                yield from described_calls(one)
            return
    for inside in ("function", "function_call"):
        if isinstance(value.get(inside), dict):
            value = value[inside]
    name = _first(value, (*_NAMES, "function"))
    if isinstance(name, str) and any(key in value for key in _ARGUMENTS):
        arguments = _first(value, _ARGUMENTS)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        name = name.strip()
        is_answer = name.lower().replace(" ", "_") == FINAL_ANSWER
        yield ToolCall(id="", name=FINAL_ANSWER if is_answer else name, arguments=text)


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((value[key] for key in keys if key in value), None)


_OPENER = re.compile(
    rf"<(?:function=|{TAG_SPACE}invoke\sname=[\"']|tool_call>)\s{{0,9}}([\w.-]{{1,100}})"
    r"(?:[\"'][^<>\n]{0,80})?\s{0,9}>?",
    re.IGNORECASE,
)
_CLOSER = re.compile(rf"</{TAG_SPACE}\w{{1,40}}>\Z")
_ARGUMENT = re.compile(
    rf"<{TAG_SPACE}parameter(?:=|\sname=[\"'])\s{{0,9}}([\w.-]{{1,100}})[^<>\n]{{0,80}}>\n?"
    r"|<arg_key>\s{0,9}([\w.-]{1,100})\s{0,9}</arg_key>\s{0,9}<arg_value>\n?"
)
_MAX_CLOSERS, _CLOSER_CHARS = 3, 60  # of the call, of its list, and of what holds the list
_ARGUMENT_END = re.compile(rf"</{TAG_SPACE}parameter>|</arg_value>")


def _tagged_calls(text: str, shape: str) -> Iterator[ToolCall]:
    """Yield the calls whose arguments are tags, or what stands between the tags of a function.

    Raises
    ------
    FormatError
        ``truncated``, when one never closes. The model's fault.
    """
    if not _OPENER.search(text):
        return
    for start, stop in find_blocks(text).calls:
        opener = _OPENER.match(text, start, stop)
        if opener is None:
            continue
        arguments, at = {}, opener.end()
        while argument := _ARGUMENT.search(text, at, stop):
            closer = _ARGUMENT_END.search(text, argument.end(), stop)
            if closer is None:
                raise cut_off_error(shape)
            name = argument[1] or argument[2]
            arguments[name] = _argument(name, text[argument.end() : closer.start()])
            at = closer.end()
        body = _without_closers(text[at:stop])
        if arguments and body:
            raise cut_off_error(shape)
        yield ToolCall(
            id="", name=opener[1], arguments=json.dumps(arguments) if arguments else body
        )


def _without_closers(body: str) -> str:
    body = body.strip()
    for _ in range(_MAX_CLOSERS):
        closer = _CLOSER.search(body, max(len(body) - _CLOSER_CHARS, 0))
        body = body[: closer.start()].rstrip() if closer else body
    return body


def _argument(name: str, text: str) -> Json:
    text = text.removesuffix("\n")
    value = None if name == "code" else strict(text)
    return text if value is None else value


def unwrap_arguments(arguments: str) -> str:
    """Return a call's arguments without fences and the JSON strings that they were encoded into."""
    for _ in range(_MAX_ENCODINGS):
        plain = unwrap(readable(arguments))
        value = strict(plain)
        if not isinstance(value, str):
            break
        arguments = value
    return "" if plain in ("null", "None") else plain


def read_arguments(text: str, *, shape: str) -> Json:
    """Return a call's arguments as an object, or as text when they are not one.

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
    plain = unwrap_arguments(text)
    if not plain.startswith("{"):
        return plain or {}
    source = plain[: object_end(plain, 0, shape=shape)]
    value = strict(source)
    if value is None:
        value = _in_another_notation(source)
    if not isinstance(value, dict):
        raise malformed_error("the arguments are no JSON object", shape=shape)
    return {str(key): field for key, field in value.items()}


def needs_repair(call: ToolCall) -> bool:
    """Whether the arguments of a native call are no JSON object as they stand; none are fine.

    >>> [needs_repair(ToolCall(id="", name="f", arguments=a)) for a in ('{"a": 1}', "{'a': 1}", "")]
    [False, True, False]
    """
    text = call.arguments.strip()
    try:
        return bool(text) and not isinstance(json.loads(text), dict | None)
    except (ValueError, RecursionError):
        return True


def split_answer(arguments: Json) -> tuple[Json, str]:
    """Return the answer of a call of ``final_answer``, by whatever name, and its note.

    >>> split_answer({"value": 42, "note": "of 2023"}), split_answer({"a": 1, "b": 2})
    ((42, 'of 2023'), ({'a': 1, 'b': 2}, ''))
    """
    if not isinstance(arguments, dict):
        return arguments, ""
    rest = {name: field for name, field in arguments.items() if name != "note"}
    note = arguments.get("note")
    if len(rest) == 1 and (note is None or isinstance(note, str)):
        return next(iter(rest.values())), (note or "").strip()[:MAX_NOTE]
    return (note if len(arguments) == 1 else arguments), ""


def _in_another_notation(source: str) -> Json:
    """Return an object that is no JSON; None when only a guess could make one of it."""
    try:
        return in_python(source)
    except ValueError:
        value = repair(source)
        return value if stand_in(value, source) else None


_BEGINS = re.compile(
    rf"<{TAG_SPACE}(?:tool_calls?|function_calls)>|<function=|<[|\uff5c]|\[TOOL_CALLS\]"
    r"|^Action\s*+:|^\[?python\(|```|\{\s*+[\"']",
    re.IGNORECASE | re.MULTILINE,
)


def thought_of(reply: Reply) -> str:
    """Return a reply's text before its calls, without code blocks and reasoning."""
    try:
        found = find_blocks(readable(reply.content))
    except FormatError:  # a flood of delimiters beside a call that can be read
        return ""
    prose = found.prose(found.end)
    call = None if reply.tool_calls else _BEGINS.search(prose)
    return prose[: call.start()].strip() if call else prose


def write_call(call: Call) -> str:
    """Return a call as Python writes it; for people, never for running.

    >>> write_call(Call(name="rate", arguments={"currency": "USD"}))
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
