"""The envelope: one JSON object with a thought and the code, asked for by a JSON schema.

Endpoints that enforce the schema send exactly that. Others send what real models write, and the
reader is lenient about the *notation* only: fences and prose around the object, raw line breaks
in strings, trailing commas, single or triple quotes, comments, keys in another case, code fenced
inside of the string. The rules:

1. Reasoning is hidden first, and the reply ends where it invents an observation after an object.
2. The **last** complete object that has code is the action.
3. An object that never closes is truncated and never repaired, and no earlier one runs in its
   place. Neither does a reply with ``finish_reason == "length"``.
4. A repaired string counts only when it stands in the reply character by character between
   quotes that end there; a repair that guessed is malformed.
5. A plain ```` ```python ```` block is read as the fenced format reads it when it opens before any
   object, or when no object has a field ``code``.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_left

from kernel_agent.errors import FormatError
from kernel_agent.formats.blocks import RANK_MARKED, find_blocks
from kernel_agent.formats.fenced import Fenced, readable, refuse_truncated
from kernel_agent.formats.marks import Mark, find_marks
from kernel_agent.formats.source import MAX_CODE_CHARS, checked, compile_error, unwrap
from kernel_agent.formats.writing import system_prompt, write_step
from kernel_agent.records import Action, Code, Json, Message, Reply, RequestOptions, Step

_SCHEMA = {
    "type": "object",
    "properties": {
        "thought": {"type": "string", "description": "What you know and what to do next."},
        "code": {"type": "string", "description": "Python source of the next cell."},
    },
    "required": ["thought", "code"],
    "additionalProperties": False,
}
_SHAPE = '\n\n{"thought": "Look at the table first.", "code": "df.describe()"}\n\n'
_MISSING = (
    "No code was found in the reply, so nothing was run. Reply with exactly one JSON object:"
    f"{_SHAPE}To give the answer, call final_answer(value) in the code."
)
_TRUNCATED = (
    "The reply was cut off before the end of its JSON object, so nothing was run. Write a shorter "
    f"thought and a shorter cell:{_SHAPE.rstrip()}"
)
_MALFORMED = (
    "The JSON object in the reply cannot be read, so nothing was run. Inside of strings write "
    f'\\n for a line break, \\" for a quote and \\\\ for a backslash:{_SHAPE.rstrip()}'
)


class Envelope:
    """Thought and code as the two fields of a JSON object. Stateless."""

    name = "envelope"

    def system_prompt(self, *, tools: str = "") -> str:
        """Return the fixed first message; see :class:`~kernel_agent.formats.base.Format`."""
        return system_prompt(self.name, tools=tools)

    def options(self) -> RequestOptions:
        """Return the JSON schema, in the form of OpenAI's structured outputs."""
        schema = {"name": "action", "strict": True, "schema": _SCHEMA}
        return RequestOptions(response_format={"type": "json_schema", "json_schema": schema})

    def parse(self, reply: Reply) -> Action:
        """Read a reply as one cell.

        Raises
        ------
        FormatError
            ``missing``, ``truncated``, ``syntax`` or ``malformed``. The model's fault.
        """
        refuse_truncated(reply)
        empty = False
        for text in reversed(_objects(readable(reply.content))[-_MAX_OBJECTS:]):
            fields = _read(text)
            if fields.get("code"):
                return _as_code(fields)
            empty = empty or "code" in fields
        if empty:
            told = f'The field "code" is empty, so nothing was run. {_MISSING}'
            raise FormatError("the code is empty", feedback=told, kind="missing")
        return _fenced_instead(reply)

    def write(self, step: Step) -> tuple[Message, ...]:
        """Return how a finished step stands in the history."""
        return write_step(step, compose=self.compose)

    def compose(self, *, thought: str, code: str) -> str:
        """Return thought and code as this format asks for them."""
        return json.dumps({"thought": thought, "code": code}, ensure_ascii=False)


_MAX_OBJECTS = 100  # looked at from the last: a reply that means something holds one or two


def _as_code(fields: dict[str, str]) -> Code:
    source = _unescaped(unwrap(fields["code"]))
    return Code(source=checked(source), thought=readable(fields["thought"]).strip())


def _fenced_instead(reply: Reply) -> Action:
    """Read a reply without any object that has code: a block marked as Python, or no action."""
    block = find_blocks(readable(reply.content)).chosen
    if block is None or block.rank < RANK_MARKED:
        raise FormatError("no object with code", feedback=_MISSING, kind="missing")
    return Fenced().parse(reply)


# --- finding objects -----------------------------------------------------------------------

_OBJECT = re.compile(r"\{\s*+(?:[\"'}]|//|\w++\s*+:)")
_OBJECT_NEXT = re.compile(rf"\s*+{_OBJECT.pattern}")


def _objects(text: str) -> list[str]:
    """Return the complete objects outside of reasoning, up to an invented observation.

    None also when a block of Python opens first: what is in it is code.
    """
    objects: list[str] = []
    events = _Events(text)
    at = 0
    while (event := events.first(at)) is not None:
        if isinstance(event, re.Match):
            at = _object_end(text, event.start())
            objects.append(text[event.start() : at])
        elif event.kind == "reasoning":
            if event.closing:
                objects.clear()
            at = event.end if event.closing else events.reasoning_end(event)
        elif event.kind == "turn" if objects else _opens_python(event, text):
            return objects
        else:
            at = event.end
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

    def reasoning_end(self, opener: Mark) -> int:
        after = self._marks[bisect_left(self._starts, opener.end) :]
        ends = (mark.end for mark in after if mark.kind == "reasoning" and mark.closing)
        return next(ends, len(self._text))


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


def _object_end(text: str, start: int) -> int:
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
            raise _malformed("nested too deeply")
    if _LOOKS_COMPLETE.search(text[-200:]):
        raise _malformed("the object does not close")
    raise FormatError("object cut off", feedback=_TRUNCATED, kind="truncated")


# --- reading one object --------------------------------------------------------------------

_CODE_KEY = re.compile(r"[\"']?\bcode[\"']?\s*+:", re.IGNORECASE)


def _read(text: str) -> dict[str, str]:
    """Return ``code`` and ``thought`` of an object, empty when null; no fields of any other.

    Raises
    ------
    FormatError
        ``malformed``, when there is code that cannot be read for certain. The model's fault.
    """
    if not _CODE_KEY.search(text):
        return {}
    value = _strict(text)
    exact = value is not None
    if value is None:
        value = _lenient(text)
    if not isinstance(value, dict):
        raise _malformed("not a JSON object")
    lowered = {str(key).strip().lower(): field for key, field in value.items()}
    if "code" not in lowered:
        return {}
    code = _as_text(lowered["code"])
    if code and not exact and not _stands_in(code, text):
        raise _malformed("its strings are ambiguous")
    thought = lowered.get("thought")
    return {"code": code.strip("\n"), "thought": thought if isinstance(thought, str) else ""}


def _strict(text: str) -> Json:
    try:
        return json.loads(text, strict=False)  # not strict: raw line breaks in strings
    except (ValueError, RecursionError):
        return None


def _lenient(text: str) -> Json:
    """Read Python's notation, then whatever json_repair can make of the rest."""
    if len(text) > MAX_CODE_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    import json_repair

    try:
        return json_repair.loads(text)
    except Exception:  # third-party code on hostile text: unreadable is all that matters
        return None


def _as_text(code: Json) -> str:
    if code is None:
        return ""
    if isinstance(code, list) and all(isinstance(line, str) for line in code):
        return "\n".join(code)
    if not isinstance(code, str):
        raise _malformed('"code" is not a string')
    return code


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_AFTER_VALUE = re.compile(r"\s*+(?://[^\n]*+\s*+)?(?:,\s*+)?(?:[\"']?\w++[\"']?\s*+:|\}\s*+\Z)")


def _stands_in(code: str, text: str) -> bool:
    """Whether the code is a whole string of the object, as it was written."""
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
    for quote in ('"', "'"):
        at = plain.find(f"{quote}{code}{quote}")
        after = at + len(code) + 2 * len(quote)
        key = plain[:at].rstrip(" \n\t\"'")[-_KEY_CHARS:]
        if at >= 0 and _CODE_KEY.search(key) and key.endswith(":"):
            rest = plain[after:].lstrip(quote)
            if _AFTER_VALUE.match(rest):
                return True
    return False


_KEY_CHARS = 20


def _unescaped(source: str) -> str:
    r"""Return code whose line breaks were escaped twice (``\\n``) with real ones."""
    if "\n" in source or "\\n" not in source or compile_error(source) is None:
        return source
    plain = source.replace("\\n", "\n").replace('\\"', '"')
    return plain if compile_error(plain) is None else source


def _malformed(why: str) -> FormatError:
    return FormatError(f"unreadable object: {why}", feedback=_MALFORMED, kind="malformed")
