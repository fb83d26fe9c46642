"""Native tool calls: one function call with the code as its argument.

The endpoint is offered one function, ``python(code)``, and the history stands in its own form:
the assistant's call, then a tool message with the call's id. Read is what models write instead:

1. Reasoning is hidden first; a reply with ``finish_reason == "length"`` never runs.
2. A native call comes before a call in the text (:mod:`kernel_agent.formats.reading.calls`), and
that
   before an envelope or a fenced block, which are read as those formats read them.
3. The code is the argument ``code``, or the only string argument whatever its name; arguments
   that are no object are the code itself. A JSON string inside of a JSON string is opened, and so
   is a whole call inside of the arguments. Code of another language is not run.
4. **Several calls** of one reply run as one cell, in their order: a second call does not correct
   the first, as a second block of text does. The same call twice in a row is one, and the value
   of each is shown; when one fails, the model is told which did not run.
5. A call of any other name is what it would be in Python: ``final_answer({"answer": 42})``
   becomes the cell ``final_answer(42)``, a call of a host tool the cell that calls its stub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from kernel_agent.errors import FormatError
from kernel_agent.formats.envelope import Envelope, as_code, read_code, refuse_other_language
from kernel_agent.formats.fenced import refuse_truncated
from kernel_agent.formats.prompts import GIVE, IF_ANSWER, LOOK, system_prompt, write_step
from kernel_agent.formats.reading.calls import (
    call_messages,
    described_calls,
    find_calls,
    in_python_calls,
    needs_repair,
    read_arguments,
    split_answer,
    thought_of,
    unwrap_arguments,
    write_call,
)
from kernel_agent.formats.reading.objects import object_end
from kernel_agent.formats.reading.source import check, is_evidently_code, with_value_shown
from kernel_agent.records import (
    FINAL_ANSWER,
    Action,
    Call,
    Code,
    Json,
    Message,
    Reply,
    RequestOptions,
    Step,
    ToolCall,
    ToolSchema,
)

_FUNCTION = {
    "name": "python",
    "description": "Run Python source as the next cell of the Jupyter kernel.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The source of the cell."}},
        "required": ["code"],
        "additionalProperties": False,
    },
}
_MISSING = (
    "No call was found in the reply, so nothing was run. Write a short thought and call the "
    "function python with the code as its argument:{shape}"
    "To give the answer, call final_answer(value) in the code."
)
_MAGIC = (
    "The calls of one turn run as one cell, and a line that begins with %% can only be its first. "
    "Nothing was run: call python once, with that cell alone."
)
_RUNS_CODE = frozenset(
    ("python", "ipython", "jupyter", "repl", "interpreter", "code", "cell", "notebook", "tool",
     "execute", "execution", "exec", "run", "ast")
)  # fmt: skip
"""A name made of these words is one of the many that models know the function by."""


class NativeTool:
    """Thought as text, code as the argument of a native function call. Stateless.

    Parameters
    ----------
    look
        The cell of its examples.
    """

    name = "tool"
    writes_code = True

    def __init__(self, look: str = LOOK) -> None:
        self._look = look
        self._example = json.dumps({"code": look}, ensure_ascii=False)
        self._shape = f"\n\npython({self._example})\n\n"
        give = f"python({json.dumps({'code': GIVE})})"
        self._if_answer = IF_ANSWER.format(shape=f"\n\n{give}\n\n")

    def system_prompt(self, *, tools: str = "") -> str:
        """Return the fixed first message; see :class:`~kernel_agent.formats.base.Format`."""
        return system_prompt(self.name, tools=tools, example=self._example)

    def options(self, *, tools: Sequence[ToolSchema] = ()) -> RequestOptions:  # noqa: ARG002 - cells call tools
        """Return the one function. Cells run one by one, so calls side by side are declined."""
        function = {"type": "function", "function": _FUNCTION}
        return RequestOptions(tools=(function,), parallel_tool_calls=False)

    def parse(self, reply: Reply) -> Action:
        """Read a reply as one cell.

        Raises
        ------
        FormatError
            ``missing``, ``truncated``, ``syntax`` or ``malformed``. The model's fault.
        """
        refuse_truncated(reply, shape=self._shape)
        found = find_calls(reply, shape=self._shape)
        code = _join(found, self._shape)
        if code is not None:
            repaired = sum(map(needs_repair, reply.tool_calls))
            return replace(code, thought=thought_of(reply), repaired=repaired)
        return self._read_text_instead(reply)

    def _read_text_instead(self, reply: Reply) -> Action:
        """Read a reply without any call that has code: an envelope, a block, or no action."""
        try:
            action = Envelope(self._look).parse(reply)
        except FormatError as error:
            if error.kind != "missing":
                raise
            feedback = _MISSING.format(shape=self._shape)
            raise FormatError(
                str(error), feedback=feedback, kind="missing",
                words=error.words, if_answer=self._if_answer,
            ) from None  # fmt: skip
        if not isinstance(action, Code):
            return action
        code = _join(in_python_calls(action.source), self._shape)
        return action if code is None else replace(code, thought=action.thought)

    def write(self, step: Step) -> tuple[Message, ...]:
        """Return how a finished step stands in the history."""
        if not isinstance(step.action, Code):
            return write_step(step, compose=self.compose)
        arguments = json.dumps({"code": step.action.source}, ensure_ascii=False)
        call = ToolCall(id="", name="python", arguments=arguments)
        return call_messages(step, [call], header=f"Observation (step {step.number}):\n")

    def compose(self, *, thought: str, code: str) -> str:
        """Return thought and code as a call in the text, for models without native calls."""
        call = json.dumps({"name": "python", "arguments": {"code": code}}, ensure_ascii=False)
        return f"{thought.strip()}\n\n<tool_call>\n{call}\n</tool_call>".lstrip()


def _join(calls: Sequence[ToolCall], shape: str) -> Code | None:
    """Return the cell that the calls of one reply ask for; None when they ask for none.

    Raises
    ------
    FormatError
        The code cannot be recognised for certain, or does not compile. The model's fault.
    """
    once = [next(same) for _, same in groupby(calls, key=lambda c: (c.name, c.arguments))]
    sources = [source for call in once if (source := _cell(call, shape))]
    if any(source.startswith("%%") for source in sources[1:]):
        raise FormatError("a cell magic in a later call", feedback=_MAGIC, kind="syntax")
    sources[:-1] = map(with_value_shown, sources[:-1])
    if not sources:
        return None
    lines = [source.count("\n") + 2 for source in sources]  # an empty one is between two calls
    starts = tuple(accumulate(lines[:-1], initial=1)) if len(sources) > 1 else ()
    return Code(source=check("\n\n".join(sources)), starts=starts)


def _cell(call: ToolCall, shape: str) -> str:
    """Return the source that one call asks for; empty without any.

    Raises
    ------
    FormatError
        The code cannot be recognised for certain, or does not compile. The model's fault.
    """
    plain = unwrap_arguments(call.arguments)
    is_object = plain.startswith("{")
    if is_object:
        plain = plain[: object_end(plain, 0, shape=shape)]
        fields = read_code(plain, shape=shape)
        if fields:
            return as_code(fields).source if fields["code"] else ""
    if not _runs_code(call.name):
        return _as_python(call.name, read_arguments(plain, shape=shape))
    if is_object:
        fields = read_arguments(plain, shape=shape)
        if inner := next(described_calls(fields), None):
            return _cell(inner, shape)
        plain = _only_text(fields, shape)
    return as_code({"code": plain, "thought": ""}).source if plain.strip() else ""


def _runs_code(name: str) -> bool:
    words = re.findall(r"[a-z]+|[A-Z][a-z]+|[A-Z]+", name)
    return not name.isidentifier() or {word.lower() for word in words} <= _RUNS_CODE


_NOT_CODE = frozenset(("thought", "language", "answer", FINAL_ANSWER))


_COMMANDS = ("command", "cmd")
"""Arguments that are a shell's elsewhere: ``ls -la`` is valid Python, too, but not meant so."""


def _only_text(fields: Json, shape: str) -> str:
    """Return the one string of an object without structure, beside a thought; else nothing."""
    if not isinstance(fields, dict) or any(isinstance(v, dict | list) for v in fields.values()):
        return ""
    refuse_other_language(fields, shape=shape)
    texts = {k: v for k, v in fields.items() if isinstance(v, str) and k not in _NOT_CODE}
    if len(texts) != 1:
        return ""
    [(name, text)] = texts.items()
    if (
        name in _COMMANDS
        and not text.lstrip().startswith(("!", "%"))
        and not is_evidently_code(text)
    ):
        refuse_other_language({"language": "shell"}, shape=shape)
    return text


def _as_python(name: str, arguments: Json) -> str:
    """Return the cell that makes a call; the answer is ``final_answer``'s one argument."""
    if not isinstance(arguments, dict):
        return f"{name}({arguments!r})"
    if name == FINAL_ANSWER:
        value, note = split_answer(arguments)
        beside = f", note={note!r}" if note else ""
        return f"final_answer({value!r}{beside})" if arguments else ""
    if all(key.isidentifier() for key in arguments):
        return write_call(Call(name=name, arguments=arguments))
    return f"{name}(**{arguments!r})"
