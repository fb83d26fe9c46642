"""JSON objects in a reply: find them, and read them in any notation.

Shared by the formats that speak JSON. The readers are lenient about the *notation* only: fences
and prose around an object, raw line breaks in strings, trailing commas, single or triple quotes,
comments. They never complete what was cut off.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_left
from collections.abc import Iterator

from kernel_agent.errors import FormatError
from kernel_agent.formats.reading.delimiters import MAX_MARKS, PYTHON_CHANNEL, Mark, find_marks
from kernel_agent.formats.reading.source import MAX_CODE_CHARS
from kernel_agent.records import Json

MAX_COMPARED = 20_000_000  # characters looked at to tell a repair from a guess: 0.1 s

MAX_OBJECTS = 100
"""Looked at from the last: a reply that means something holds a few."""

_OBJECT = re.compile(r"\{\s*+(?:[\"'}]|//|\w++\s*+:)")
_OBJECT_NEXT = re.compile(rf"\s*+{_OBJECT.pattern}")


def find_objects(text: str, *, shape: str) -> list[str]:
    """Return the complete objects outside of reasoning, up to an invented observation.

    None also when a block of Python opens first: what is in it is code.

    Parameters
    ----------
    text
        A reply.
    shape
        An example of what is wanted, for the feedback of an error.

    Raises
    ------
    FormatError
        ``truncated`` when the last object never closes; ``malformed`` when there are more
        delimiters or levels than a reply can mean. The model's fault.
    """
    objects: list[str] = []
    events = _Events(text)
    at = 0
    drafts_from: int | None = None
    while (event := events.first(at)) is not None:
        if isinstance(event, re.Match):
            at = object_end(text, event.start(), shape=shape)
            objects.append(text[event.start() : at])
            if len(objects) > MAX_MARKS:
                raise malformed_error(f"more than {MAX_MARKS} objects", shape=shape)
        elif event.kind == "reasoning":
            if event.closing:
                objects.clear()
            at = events.behind(event)
        elif event.kind == "thought":
            if event.closing and drafts_from is not None:
                del objects[drafts_from:]
            at, drafts_from = event.end, None if event.closing else len(objects)
        elif event.invents if objects else _opens_python(event, text):
            closer = events.headless_end(event)
            if closer is None:
                return objects
            at = closer.start  # all of this was thinking, and the reply is still to come
        else:
            at = events.behind(event)
    return objects


class _Events:
    """The next mark or object of a text, whichever comes first."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._marks = find_marks(text)
        self._starts = [mark.start for mark in self._marks]
        self._object = _OBJECT.search(text)

    def first(self, at: int) -> Mark | re.Match[str] | None:
        while self._object is not None and self._object.start() < at:
            self._object = _OBJECT.search(self._text, at)
        i = bisect_left(self._starts, at)
        if i == len(self._marks):
            return self._object
        mark = self._marks[i]
        before = self._object is not None and self._object.start() < mark.start
        return self._object if before else mark

    def headless_end(self, mark: Mark) -> Mark | None:
        """Return the end of reasoning in which a mark stands, when none begins after it."""
        after = self._marks[bisect_left(self._starts, mark.end) :]
        first = next((found for found in after if found.kind == "reasoning"), None)
        return first if first is not None and first.closing else None

    def behind(self, mark: Mark) -> int:
        """Return the place after a mark, or after the reasoning or call that it opens."""
        if mark.closing or mark.kind not in {"reasoning", "call"}:
            return mark.end
        return self._reasoning_end(mark) if mark.kind == "reasoning" else self._call_end(mark)

    def _reasoning_end(self, opener: Mark) -> int:
        after = self._marks[bisect_left(self._starts, opener.end) :]
        for mark in after:
            if mark.name == PYTHON_CHANNEL:
                return mark.start
            if mark.kind == "reasoning" and mark.closing:
                return mark.end
        return len(self._text)

    def _call_end(self, opener: Mark) -> int:
        after = self._marks[bisect_left(self._starts, opener.end) :]
        same = (mark for mark in after if mark.kind == "call" and mark.name == opener.name)
        return next((mark.end for mark in same if mark.closing), len(self._text))


def _opens_python(mark: Mark, text: str) -> bool:
    """Whether a block of Python begins here that is not an object in the wrong fence."""
    if _OBJECT_NEXT.match(text, mark.end):
        return False
    if mark.kind == "code":
        return not mark.closing
    return mark.kind in {"fence", "midline"} and mark.language == "python"


_TOKEN = re.compile(r"\"\"\"|'''|[\"'{}\[\]:,]|//[^\n]*+")
_STRING_ENDS = {
    # Unrolled loops: possessive groups would be shorter, but give wrong answers before 3.11.5
    # (https://github.com/python/cpython/issues/106052).
    '"': re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
    "'": re.compile(r"[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
    '"""': re.compile(r'[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""', re.DOTALL),
    "'''": re.compile(r"[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''", re.DOTALL),
}
_LOOKS_COMPLETE = re.compile(r"(?<!\\)[\"']\s*+\}[\s`]*+\Z")
_MAX_DEPTH = 40  # an envelope has depth 1; JSON readers recurse


def object_end(text: str, start: int, *, shape: str) -> int:
    """Return where the object that opens at ``start`` closes, whatever its strings hold.

    Raises
    ------
    FormatError
        ``truncated`` when it never does; ``malformed`` when it looks complete all the same
        (a stray quote) or is nested deeper than any envelope. The model's fault.
    """
    depth, at, last = 0, start, ""
    while match := _TOKEN.search(text, at):
        token, at = match[0], match.end()
        if token in _STRING_ENDS and (token[0] == '"' or last in {"{", "[", ",", ":"}):
            closed = _STRING_ENDS[token].match(text, at)
            if closed is None:
                break
            at = closed.end()
        elif token in {"{", "["}:
            depth += 1
        elif token in {"}", "]"}:
            depth -= 1
        last = token
        if depth == 0:
            return at
        if depth > _MAX_DEPTH:
            raise malformed_error("nested too deeply", shape=shape)
    if _LOOKS_COMPLETE.search(text[-200:]):
        raise malformed_error("the object does not close", shape=shape)
    raise cut_off_error(shape)


def cut_off_error(shape: str) -> FormatError:
    """Return the error of an object or a call that never closes."""
    feedback = (
        "The reply was cut off before the end of its call or JSON object, so nothing was run. "
        f"Write a shorter thought and less in one turn:{shape.rstrip()}"
    )
    return FormatError("cut off", feedback=feedback, kind="truncated")


def strict(text: str) -> Json:
    """Parse JSON, raw line breaks in strings allowed; return None when it is not JSON.

    ``NaN`` and infinity, which are no JSON and no endpoint takes back, become null.
    """
    try:
        return json.loads(text, strict=False, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def lenient(text: str) -> Json:
    """Read Python's notation, else let json_repair try; None when both fail."""
    try:
        return in_python(text)
    except ValueError:
        return repair(text)


def in_python(text: str) -> Json:
    """Parse a Python literal; return None when its value is no JSON (a set, bytes, 1j).

    Raises
    ------
    ValueError
        It is no literal.
    """
    if len(text) > MAX_CODE_CHARS:
        raise ValueError("too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text)
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("not a literal") from error
    try:
        return strict(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return None


def repair(text: str) -> Json:
    """Return json_repair's reading of a text, which may be a guess; None for nothing."""
    if len(text) > MAX_CODE_CHARS:
        return None
    import json_repair

    try:
        return json_repair.loads(text)
    except Exception:  # third-party code on hostile text: unreadable is all that matters
        return None


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def unescape(text: str) -> str:
    """Return JSON's source with the escapes of its strings resolved, to look for a string in it."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)


def stand_in(value: Json, text: str) -> bool:
    """Whether each string of a repaired value stands in the text, between quotes that end there.

    Or without quotes, when it is a single word. What does not was guessed.
    """
    plain, strings = unescape(text), list(_strings(value))
    if len(strings) * len(plain) > MAX_COMPARED:
        return False
    return all(_stands(string, plain) for string in strings)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, field in value.items():
            yield str(key)
            yield from _strings(field)
    elif isinstance(value, list):
        for field in value:
            yield from _strings(field)


def _stands(string: str, plain: str) -> bool:
    ends = r"\s*+(?://[^\n]*+\s*+)?[,:}\]]"
    quoted = f"([\"'])(?:{re.escape(string)})\\1{ends}"
    bare = f"[{{,:\\[]\\s*+{string}{ends}" if string.isidentifier() else quoted
    return bool(re.search(quoted, plain) or re.search(bare, plain))


def malformed_error(why: str, *, shape: str) -> FormatError:
    """Return the error of an object that cannot be read for certain."""
    feedback = (
        "The JSON object in the reply cannot be read, so nothing was run. Inside of strings write "
        f'\\n for a line break, \\" for a quote and \\\\ for a backslash:{shape.rstrip()}'
    )
    return FormatError(f"unreadable object: {why}", feedback=feedback, kind="malformed")
