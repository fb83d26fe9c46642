"""Steps taken back, by playing the others again in a kernel in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.replies import cell
from support.waiting import until

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session, tool
from kernel_agent.agent.context import Context
from kernel_agent.errors import UsageError
from kernel_agent.formats import get_format
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart

ONE = Budget(max_steps=1)


def make(cells: Sequence[str], out: Path, **options: Any) -> Session:
    model = ScriptedModel([cell(code) for code in cells], keep_requests=True)
    return Session(kernel=FakeKernel, model=model, out=out, **options)


# --- tools ---------------------------------------------------------------------------------------


async def test_a_tool_is_called_once_and_its_answers_are_given_again(tmp_path: Path) -> None:
    """Results, errors, calls side by side, in any order."""
    calls: list[int] = []

    @tool(effects=True)
    def book(n: int) -> int:
        """Book something, once and for all."""
        calls.append(n)
        if n < 0:
            raise ValueError(f"{n} is too few")
        return 100 * len(calls)

    cells = [
        "first = book(1)\nagain = book(1)\nmany = book.map([2, 3])",
        "try:\n    book(-1)\nexcept ValueError as error:\n    told = str(error)",
        "first = book(4)",
        "final_answer([first, again, sorted(many), told])",
    ]
    async with make(cells, tmp_path, tools=[book], approve="never") as session:
        for _ in range(3):
            await session.run("Book", budget=ONE)
        undone = await session.undo()
        assert undone.differences == ()
        run = await session.run("What was booked?")
    assert run.answer == [100, 200, [300, 400], "-1 is too few"]
    assert calls == [1, 1, 2, 3, -1, 4]


async def test_a_call_that_was_not_made_before_is_not_made_in_an_undo_and_said(
    tmp_path: Path,
) -> None:
    calls: list[float] = []

    @tool(effects=True)
    def send(amount: float) -> str:
        """Send money."""
        calls.append(amount)
        return "sent"

    cells = ["import os\nsend(int.from_bytes(os.urandom(6), 'big'))\nafter = 1", "x = 2"]
    async with make(cells, tmp_path, tools=[send], approve="never") as session:
        await session.run("Send", budget=ONE)
        await session.run("More", budget=ONE)
        undone = await session.undo()
        assert len(calls) == 1
        assert undone.differences == ("Step 1 asked for a call not made before; it was not made.",)
        gone = await session.execute("after")
        assert gone.error is not None


# --- the conversation, the trace and the notebook ------------------------------------------------


async def test_the_model_is_told_in_one_line_and_a_trace_read_back_gives_the_same_prompt(
    tmp_path: Path,
) -> None:
    cells = ["x = 1", "x = 2\nfinal_answer(x)", "final_answer(x)"]
    async with make(cells, tmp_path) as session:
        first = await session.run("How many?")
        assert first.answer == 2
        undone = await session.undo(reason="it is not two")
        second = await session.run("How many really?")
        assert second.answer == 1
        assert [step.number for step in second.steps] == [3]
        sent = session._model.requests[-1]  # type: ignore[union-attr]
    text = "\n".join(message.content for message in sent)
    assert "(Step 2 was undone by the user: it is not two." in text
    assert "x = 2" not in text
    records = read_trace(tmp_path)
    assert undone in records
    start = records[0]
    assert isinstance(start, RunStart)
    context = Context(start.system_prompt, get_format("fenced"), max_tokens=100_000)
    for record in records[:-2]:  # without the last step and ending
        context.add(record)
    assert context.messages() == list(sent)


async def test_a_cell_that_does_something_else_when_played_again_is_named_with_its_step(
    tmp_path: Path,
) -> None:
    cells = [
        "import os\nn = int(os.path.exists('mark.csv'))\nprint(n)",
        "k = 1 / (1 - n)",
        "x = 3",
    ]
    async with make(cells, tmp_path) as session:
        await session.run("One", budget=ONE)
        await session.run("Two", budget=ONE)
        (tmp_path / "mark.csv").write_text("put here by the user")
        await asyncio.sleep(0.02)  # a moment: the clock of files ticks every 4 to 10 ms
        await session.run("Three", budget=ONE)
        undone = await session.undo()
    assert undone.differences == (
        "Step 1 shows something else than before: -0 +1",
        "Step 2 worked before and ended now as error (ZeroDivisionError: division by zero).",
    )
    assert undone.changes is not None
    assert {v.name for v in undone.changes.added} >= {"n"}


async def test_cells_that_were_interrupted_are_not_played_again_and_that_is_said(
    tmp_path: Path,
) -> None:
    cells = ["x = 1", "y = 2\nwhile True: pass", "z = 3"]
    async with make(cells, tmp_path, budget=Budget(max_steps=1, max_seconds=0.8)) as session:
        for _ in cells:
            await session.run("Next")
        undone = await session.undo()
        left = await session.execute("sorted(k for k in globals() if k in 'xyz')")
    assert len(undone.differences) == 1
    assert undone.differences[0].startswith("Step 2 had been ended early (timeout)")
    assert left.outputs[0]["data"]["text/plain"] == "['x']"


async def test_cells_of_the_person_s_own_before_the_step_are_played_and_those_after_it_go(
    tmp_path: Path,
) -> None:
    async with make(["a = own + 1", "b = 1"], tmp_path) as session:
        await session.execute("own = 1")
        await session.run("One", budget=ONE)
        await session.execute("later = a")
        undone = await session.undo()
        left = await session.execute("sorted(k for k in globals() if k in ('own', 'a', 'later'))")
    assert undone.cells == 1
    assert left.outputs[0]["data"]["text/plain"] == "['own']"


async def test_an_undo_in_a_run_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    slow = "import os, time\nopen('here', 'w').close()\n"
    slow += "while os.path.exists('here'): time.sleep(0.01)\nfinal_answer(1)"
    async with make([slow], tmp_path) as session:
        running = asyncio.ensure_future(session.run("Slow"))
        await until(lambda: list(tmp_path.rglob("here")))
        with pytest.raises(UsageError, match="stop the run first, then undo"):
            await session.undo()
        next(tmp_path.rglob("here")).unlink()
        assert (await running).answer == 1
    with pytest.raises(UsageError, match="closed"):
        await session.undo()


async def test_more_steps_than_there_are_cannot_be_undone(tmp_path: Path) -> None:
    async with make(["x = 1"], tmp_path) as session:
        with pytest.raises(UsageError, match="there is no step to undo"):
            await session.undo()
        await session.run("One", budget=ONE)
        with pytest.raises(UsageError, match="2 steps cannot be undone: the session has 1 step"):
            await session.undo(2)
        await session.undo()
        with pytest.raises(UsageError, match="there is no step to undo"):
            await session.undo()
