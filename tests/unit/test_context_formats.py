"""A conversation in other formats than text, and one that goes on in another format."""

from __future__ import annotations

import json

import pytest

from kernel_agent.agent.context import Context
from kernel_agent.formats import get_format
from kernel_agent.records.action import Call, Calls, Code
from kernel_agent.records.cell import CellResult, Changes, Observation, Variable
from kernel_agent.records.codec import from_json
from kernel_agent.records.trace import FormatChange, Record, RunStart, Step, to_json

START = RunStart(run_id="r", task="Why?", time="", model="m", format="tool", sandbox={}, budget={})
DOWN = FormatChange(
    run_id="r", format="fenced", reason="3 of 3 unreadable", system_prompt="Write blocks."
)


def step(number: int, chars: int = 20) -> Step:
    variable = Variable(name=f"v{number}", type="int")
    return Step(
        run_id="r",
        number=number,
        action=Code(source=f"v{number} = {number}", thought=f"thought {number}"),
        observation=Observation(text=f"seen {number} " * (chars // 7), held="printed a lot"),
        result=CellResult(status="ok", changes=Changes(added=(variable,))),
    )


def calls(number: int, chars: int = 20) -> Step:
    parts = ("a" * chars, "b" * chars)
    asked = tuple(Call(name=name, arguments={"n": number}) for name in ("f", "g"))
    return Step(
        run_id="r",
        number=number,
        action=Calls(calls=asked),
        observation=Observation(text="\n\n".join(parts), parts=parts, held="what f, g gave"),
        result=CellResult(status="ok"),
    )


def conversation(
    name: str, records: list[Record], max_tokens: int = 100_000, system: str = "system"
) -> Context:
    made = Context(system, get_format(name), max_tokens=max_tokens)
    for record in records:
        made.add(record)
        while (planned := made.relief()) is not None:
            made.add(planned)
    return made


@pytest.mark.parametrize("chars", [20, 8000])
def test_a_conversation_that_changed_its_format_is_as_if_it_had_always_had_it(chars: int) -> None:
    """To the byte, the system prompt included; what was masked stays masked."""
    steps = [step(number, chars) for number in range(1, 9)]
    changed = conversation("tool", [START, *steps], max_tokens=8000)
    changed.add(DOWN)
    other = conversation("fenced", [START, *steps], max_tokens=8000, system="Write blocks.")
    assert changed.messages()[0].content == "Write blocks."
    assert {m.role for m in changed.messages()} == {"system", "user", "assistant"}
    if chars == 20:
        assert changed.messages() == other.messages()
        assert changed.tokens == other.tokens
    else:
        masked = [m for m in changed.messages() if "outputs[1] holds the full text" in m.content]
        assert len(masked) == 1
        noted = [m for m in changed.messages() if "Variables after step" in m.content]
        assert len(noted) == 1
        assert "v1" in noted[0].content


def test_the_change_is_a_record_like_any_other() -> None:
    """From a trace the same conversation is made again."""
    records: list[Record] = [START, step(1), DOWN, step(2)]
    kept = [from_json(json.loads(json.dumps(to_json(record)))) for record in records]
    assert kept == records
    messages = conversation("tool", records).messages()
    assert messages == conversation("tool", kept).messages()
    assert "```python\nv2 = 2\n```" in messages[-2].content


def test_calls_that_are_masked_still_have_an_answer_each() -> None:
    """Endpoints refuse a history in which a call has none."""
    made = conversation("json", [START, *(calls(n, 4000) for n in range(1, 12))], max_tokens=8000)
    asked = [call.id for m in made.messages() for call in m.tool_calls]
    answered = [m.tool_call_id for m in made.messages() if m.role == "tool"]
    assert asked == answered
    assert len(set(asked)) == len(asked)
    assert made.tokens <= 8000
    assert any("what f, g gave" in m.content for m in made.messages())
