"""A tool whose check fails in a way that nobody foresaw costs one call, never the run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator
from support.calls import ANSWER, call

from kernel_agent import ScriptedModel, Session, tool
from kernel_agent.records.action import Call
from kernel_agent.tools.broker import PREFIX, Broker
from kernel_agent.tools.definition import Tool

CAUGHT = {
    "content": "```python\ntry:\n    halve(4)\nexcept Exception as error:\n    print(error)\n```"
}
DONE = {"content": "```python\nfinal_answer('done')\n```"}


class Odd(BaseException):
    """An exception that no `except Exception` sees."""


def fail(_value: object) -> None:
    raise Odd("inside")


def leave(_value: object) -> None:
    raise SystemExit("inside")


@tool
def halve(number: Annotated[int, BeforeValidator(fail)]) -> float:
    """Halve a number."""
    return number / 2


@tool
def third(number: Annotated[int, BeforeValidator(leave)]) -> float:
    """Take a third of a number."""
    return number / 3


@pytest.mark.parametrize(("name", "kind"), [("halve", "Odd"), ("third", "SystemExit")])
@pytest.mark.parametrize("format_", ["json", "fenced"])
async def test_the_run_goes_on_and_the_session_closes_at_once(
    tmp_path: Path, name: str, kind: str, format_: str
) -> None:
    code = f"try:\n    {name}(4)\nexcept Exception as error:\n    print(error)"
    replies = {
        "json": [call(name, '{"number": 4}'), ANSWER],
        "fenced": [{"content": f"```python\n{code}\n```"}, DONE],
    }
    model, tools = ScriptedModel(replies[format_]), [halve, third]
    began = time.monotonic()
    async with Session(model=model, format=format_, tools=tools, out=tmp_path / "o") as session:
        run = await asyncio.wait_for(session.run("Divide four."), 60)
    assert run.status == "answered"
    assert run.steps[0].observation.text.strip() == f"{kind}: inside"
    assert [made.ok for made in run.steps[0].result.calls] == [False]
    assert time.monotonic() - began < 60


class Broken(Tool):
    """A tool with a mistake of the program's own."""

    def spread(self, arguments: Any) -> Any:
        raise LookupError("no such place")

    @property
    def checks_at_length(self) -> bool:
        """Fail."""
        raise LookupError("no such place")


def add(a: int) -> int:
    """Add."""
    return a


async def test_a_mistake_of_the_host_is_an_answer_in_one_line() -> None:
    broker = Broker([Broken(add)])
    made = await broker.call(Call(name="add", arguments={"a": 1}))
    assert (made.ok, made.error) == (False, "LookupError: no such place")
    asked = PREFIX + '{"id": 1, "calls": [{"name": "add", "args": [], "kwargs": {}}]}'
    told = await broker.answer(asked)
    assert "the host could not answer (LookupError: no such place)" in told
    assert broker.take_counted() == {"failed": 1}
    discreet = Broker([Broken(add)], secrets=["no such place"])
    assert "no such place" not in await discreet.answer(asked)
    assert "no such place" not in (await discreet.call(Call(name="add", arguments={}))).error
