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

import json
import re
from collections.abc import Mapping, Sequence

from kernel_agent.errors import FormatError
from kernel_agent.formats.fenced import Fenced, readable, refuse_truncated, words_of
from kernel_agent.formats.prompts import (
    GIVE,
    IF_ANSWER,
    LOOK,
    LOOK_THOUGHT,
    system_prompt,
    write_step,
)
from kernel_agent.formats.reading.delimiters import language
from kernel_agent.formats.reading.objects import (
    MAX_OBJECTS,
    find_objects,
    lenient,
    malformed_error,
    strict,
    unescape,
)
from kernel_agent.formats.reading.scanner import RANK_MARKED, find_blocks
from kernel_agent.formats.reading.source import check, compile_error, is_blank, unwrap
from kernel_agent.records import (
    Action,
    Code,
    Json,
    Message,
    Reply,
    RequestOptions,
    Step,
    ToolSchema,
)

_SCHEMA = {
    "type": "object",
    "properties": {
        "thought": {"type": "string", "description": "What you know and what to do next."},
        "code": {"type": "string", "description": "Python source of the next cell."},
    },
    "required": ["thought", "code"],
    "additionalProperties": False,
}
_MISSING = (
    "No code was found in the reply, so nothing was run. Reply with exactly one JSON object:"
    "{shape}To give the answer, call final_answer(value) in the code."
)


class Envelope:
    """Thought and code as the two fields of a JSON object. Stateless.

    Parameters
    ----------
    look
        The cell of its examples.
    """

    name = "envelope"
    writes_code = True

    def __init__(self, look: str = LOOK) -> None:
        self._look = look
        self._example = self.compose(thought=LOOK_THOUGHT, code=look)
        self._shape = f"\n\n{self._example}\n\n"
        give = self.compose(thought="I give the answer.", code=GIVE)
        self._if_answer = IF_ANSWER.format(shape=f"\n\n{give}\n\n")

    def system_prompt(self, *, tools: str = "") -> str:
        """Return the fixed first message; see :class:`~kernel_agent.formats.base.Format`."""
        return system_prompt(self.name, tools=tools, example=self._example)

    def options(self, *, tools: Sequence[ToolSchema] = ()) -> RequestOptions:  # noqa: ARG002 - cells call tools
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
        shape = self._shape
        refuse_truncated(reply, shape=shape)
        thought = None  # of an object whose code is empty
        for text in reversed(find_objects(readable(reply.content), shape=shape)[-MAX_OBJECTS:]):
            fields = read_code(text, shape=shape)
            if fields.get("code"):
                return as_code(fields)
            thought = fields.get("thought") if thought is None else thought
        if thought is not None:
            feedback = (
                f'The field "code" is empty, so nothing was run. {_MISSING.format(shape=shape)}'
            )
            raise FormatError(
                "the code is empty", feedback=feedback, kind="missing",
                words=readable(thought).strip(), if_answer=self._if_answer,
            )  # fmt: skip
        return self._read_block_instead(reply)

    def _read_block_instead(self, reply: Reply) -> Action:
        """Read a reply without any object that has code: a block marked as Python, or no action."""
        block = find_blocks(readable(reply.content)).chosen
        if block is None or block.rank < RANK_MARKED:
            feedback = _MISSING.format(shape=self._shape)
            raise FormatError(
                "no object with code", feedback=feedback, kind="missing",
                words=words_of(reply), if_answer=self._if_answer,
            )  # fmt: skip
        return Fenced(self._look).parse(reply)

    def write(self, step: Step) -> tuple[Message, ...]:
        """Return how a finished step stands in the history."""
        return write_step(step, compose=self.compose)

    def compose(self, *, thought: str, code: str) -> str:
        """Return thought and code as this format asks for them."""
        return json.dumps({"thought": thought, "code": code}, ensure_ascii=False)


def as_code(fields: dict[str, str]) -> Code:
    """Return the cell that :func:`read_code` found, checked.

    Raises
    ------
    FormatError
        ``missing``, ``syntax`` or ``malformed``. The model's fault.
    """
    source = _without_double_escapes(unwrap(fields["code"]))
    return Code(source=check(source), thought=readable(fields["thought"]).strip())


# --- reading one object --------------------------------------------------------------------

_CODE_KEY = re.compile(r"[\"']?\bcode[\"']?\s*+:", re.IGNORECASE)


def read_code(text: str, *, shape: str) -> dict[str, str]:
    """Return ``code`` and ``thought`` of an object, empty when null; no fields of any other.

    Parameters
    ----------
    text
        One complete object.
    shape
        An example of what is wanted, for the feedback of an error.

    Raises
    ------
    FormatError
        ``malformed``, when there is code that cannot be read for certain. The model's fault.
    """
    if not _CODE_KEY.search(text):
        return {}
    value = strict(text)
    exact = value is not None
    if value is None:
        value = lenient(text)
    if not isinstance(value, dict):
        raise malformed_error("not a JSON object", shape=shape)
    lowered = {str(key).strip().lower(): field for key, field in value.items()}
    if "code" not in lowered:
        return {}
    refuse_other_language(lowered, shape=shape)
    code = _as_text(lowered["code"], shape)
    if code and not exact and not _stands_in(code, text):
        raise malformed_error("its strings are ambiguous", shape=shape)
    thought = lowered.get("thought")
    return {"code": code.strip("\n"), "thought": thought if isinstance(thought, str) else ""}


def refuse_other_language(fields: Mapping[str, Json], *, shape: str) -> None:
    """Refuse code that is said to be of another language.

    Raises
    ------
    FormatError
        ``missing``. The model's fault.
    """
    tag = fields.get("language")
    if isinstance(tag, str) and language(tag) == "other":
        shown = f"Code of the language {tag[:20]} is not run; only Python is:{shape.rstrip()}"
        raise FormatError("code of another language", feedback=shown, kind="missing")


def _as_text(code: Json, shape: str) -> str:
    if code is None:
        return ""
    if isinstance(code, list) and all(isinstance(line, str) for line in code):
        return "\n".join(code)
    if not isinstance(code, str):
        raise malformed_error('"code" is not a string', shape=shape)
    return code


_AFTER_VALUE = re.compile(r"\s*+(?://[^\n]*+\s*+)?(?:,\s*+)?(?:[\"']?\w++[\"']?\s*+:|\}\s*+\Z)")


def _stands_in(code: str, text: str) -> bool:
    """Whether the code is a whole string of the object, as it was written."""
    plain = unescape(text)
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


def _without_double_escapes(source: str) -> str:
    r"""Return code whose line breaks were escaped twice (``\\n``) with real ones."""
    if "\n" in source or "\\n" not in source:
        return source
    if compile_error(source) is None and not is_blank(source):
        return source
    plain = source.replace("\\n", "\n").replace('\\"', '"')
    return plain if compile_error(plain) is None else source
