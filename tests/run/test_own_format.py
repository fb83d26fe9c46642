"""A format of a user's own."""

from __future__ import annotations

import pytest

from kernel_agent import ScriptedModel, Session
from kernel_agent.errors import FormatError, UsageError
from kernel_agent.formats import get_format, register, registry
from kernel_agent.records.action import Code
from kernel_agent.records.conversation import Message, RequestOptions
from kernel_agent.records.store import read_trace


class Shouted:
    """The simplest format: every line that begins with ! is code."""

    name = "shouted"
    writes_code = True

    def system_prompt(self, *, tools=""):
        return "Begin every line of code with an exclamation mark."

    def options(self, *, tools=()):
        return RequestOptions()

    def parse(self, reply):
        lines = [line[1:] for line in reply.content.splitlines() if line.startswith("!")]
        if not lines:
            raise FormatError("no code", feedback="Shout!", kind="missing")
        return Code(source="\n".join(lines))

    def write(self, step):
        said = self.compose(thought=step.thought, code=step.code)
        return (
            Message(role="assistant", content=said),
            Message(role="user", content=step.observation.text),
        )

    def compose(self, *, thought, code):
        return "\n".join([thought, *(f"!{line}" for line in code.splitlines())])


@pytest.fixture
def shouted():
    register("shouted", Shouted)
    yield
    registry._FORMATS.pop("shouted")


async def test_a_fifth_format_needs_nothing_but_its_registration(shouted, tmp_path):
    """Session, loop, trace and notebook take it by its name."""
    model = ScriptedModel(["Hm.", "!x = 6 * 7", "!final_answer(x)"], keep_requests=True)
    async with Session(model=model, format="shouted", out=tmp_path / "out") as session:
        run = await session.run("What is the answer?")
    assert (run.status, run.answer, len(run.steps)) == ("answered", 42, 2)
    assert "Shout!" in model.requests[1][-1].content
    assert model.requests[2][-2].content == "\n!x = 6 * 7"
    assert read_trace(run.trace)[0].format == "shouted"
    with pytest.raises(UsageError, match="shouted"):
        get_format("whispered")
