"""A classic tool-calling agent: native calls of host tools, any number of them side by side.

The endpoint is offered each host tool with its JSON schema, and ``final_answer``. No cell is
written: the broker makes the calls, with the same policy, budget, trace and notebook as when code
makes them. Rules:

1. Reasoning is hidden first; a reply with ``finish_reason == "length"`` calls nothing.
2. Native calls come before calls in the text (:mod:`kernel_agent.formats.reading.calls`).
3. All calls of a reply are made side by side, and each is answered, in order. One whose
   arguments cannot be read even leniently is answered with what is wrong with them; when that is
   so of all calls, the reply is asked for again.
4. ``final_answer`` alone ends the run, unless it was given nothing. Beside other calls it counts
   when all of them succeed: the model has not seen their results yet.
5. A text without calls is asked for again, as in every format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from kernel_agent.errors import FormatError, UsageError
from kernel_agent.formats.fenced import Fenced, refuse_truncated, words_of
from kernel_agent.formats.prompts import LOOK, read_prompt, write_step
from kernel_agent.formats.reading.calls import (
    call_messages,
    find_calls,
    needs_repair,
    read_arguments,
    split_answer,
    thought_of,
)
from kernel_agent.records import (
    FINAL_ANSWER,
    Action,
    Call,
    Calls,
    Final,
    Json,
    Message,
    Reply,
    RequestOptions,
    Step,
    ToolCall,
    ToolSchema,
)

_FINAL_ANSWER = {
    "name": FINAL_ANSWER,
    "description": "Give the answer and end the run. Call it once the answer is known.",
    "parameters": {
        "type": "object",
        "properties": {
            "answer": {
                "description": "The answer with its numbers and units: usually a sentence; it may "
                "also be a number, a list or an object."
            },
            "note": {"type": "string", "description": "A caveat that is shown below it."},
        },
        "required": ["answer"],
        "additionalProperties": False,
    },
}
_SHAPE = " one JSON object, as the tool's schema says."
_MISSING = (
    "No call was found in the reply, so nothing was done. Call one or more of the tools, or give "
    "the answer by calling final_answer with it as the argument answer."
)
_IF_ANSWER = (
    "No call was found in the reply, so nothing was done. If this is your answer, call "
    "final_answer with it as the argument answer. Otherwise make the next call."
)


class ParallelCalls:
    """Thought as text, actions as native calls. Stateless.

    It shows no example: what tools there are, and what they take, comes with each request.
    """

    name = "json"
    writes_code = False

    def __init__(self, look: str = LOOK) -> None:
        """Accept the arguments of formats of cells, and ignore them."""

    def system_prompt(self, *, tools: str = "") -> str:  # noqa: ARG002 - the request describes them
        """Return the fixed first message; the tools are described by their schemas instead."""
        return read_prompt(self.name)

    def options(self, *, tools: Sequence[ToolSchema] = ()) -> RequestOptions:
        """Return the host tools and ``final_answer``."""
        offered = (*tools, _FINAL_ANSWER)
        return RequestOptions(tools=tuple({"type": "function", "function": t} for t in offered))

    def parse(self, reply: Reply) -> Action:
        """Read a reply as calls.

        Raises
        ------
        FormatError
            ``missing``, ``truncated`` or ``malformed``. The model's fault.
        """
        refuse_truncated(reply, shape=_SHAPE)
        found = find_calls(reply, shape=_SHAPE)
        if not found:
            raise FormatError(
                "no call in the reply", feedback=_MISSING, kind="missing",
                words=words_of(reply), if_answer=_IF_ANSWER,
            )  # fmt: skip
        thought = thought_of(reply)
        calls = [_read(call, is_native=bool(reply.tool_calls)) for call in found]
        if all(call.error for call in calls):
            raise FormatError("no readable call", feedback=calls[-1].error, kind="malformed")
        if all(call.name == FINAL_ANSWER for call in calls):
            given = [call for call in calls if not call.error][-1]
            note = str(given.arguments.get("note", ""))
            return Final(
                answer=given.arguments["answer"],
                thought=thought,
                note=note,
                repaired=int(given.repaired),
            )
        return Calls(calls=tuple(calls), thought=thought)

    def write(self, step: Step) -> tuple[Message, ...]:
        """Return how a finished step stands in the history."""
        match step.action:
            case Calls(calls=calls):
                return call_messages(step, [_write_native(call) for call in calls])
            case Final(in_words=False) as final:
                arguments = _arguments(final.answer, final.note)
                return call_messages(
                    step, [_write_native(Call(name=FINAL_ANSWER, arguments=arguments))]
                )
        return write_step(step, compose=Fenced().compose)

    def compose(self, *, thought: str, code: str) -> str:  # noqa: ARG002 - there is no code here
        """Refuse: there is no code in this format.

        Raises
        ------
        UsageError
            Always; the caller's fault.
        """
        raise UsageError("the format json has no code: choose another --format")


def _read(call: ToolCall, *, is_native: bool) -> Call:
    read = _read_arguments(call)
    return replace(read, repaired=is_native and not read.error and needs_repair(call))


def _read_arguments(call: ToolCall) -> Call:
    name = call.name.strip().removeprefix("functions.")
    try:
        arguments = read_arguments(call.arguments, shape=_SHAPE)
    except FormatError as error:
        return Call(name=name, arguments={}, id=call.id, error=error.feedback)
    if name == FINAL_ANSWER:
        answer, note = split_answer(arguments)
        none = answer == {} or (isinstance(answer, str) and not answer.strip())
        problem = "final_answer was given nothing: say what was found." if none else ""
        return Call(name=name, arguments=_arguments(answer, note), id=call.id, error=problem)
    if not isinstance(arguments, dict):
        problem = f"The arguments of {name} must be one JSON object, not {call.arguments[:80]!r}."
        return Call(name=name, arguments={}, id=call.id, error=problem)
    return Call(name=name, arguments=arguments, id=call.id)


def _arguments(answer: Json, note: str) -> dict[str, Json]:
    return {"answer": answer, "note": note} if note else {"answer": answer}


def _write_native(call: Call) -> ToolCall:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return ToolCall(id="", name=call.name, arguments=arguments)
