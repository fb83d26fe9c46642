"""Runs whose actions are calls; a kernel in this process."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from support import calls
from support.calls import ANSWER, BOTH, call

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session, tool
from kernel_agent.errors import UsageError
from kernel_agent.records.action import Calls, Final
from kernel_agent.records.event import Notice
from kernel_agent.records.store import read_trace

session = partial(calls.session, kernel=FakeKernel)


async def test_calls_are_made_side_by_side_and_answered_in_order(tmp_path):
    """The history is the provider's own: calls with ids, and an answer to each."""
    made, model = session([BOTH, ANSWER], tmp_path / "out")
    async with made as opened:
        run = await opened.run("What do apples and pears cost together?")
    assert (run.status, run.answer, run.text) == ("answered", "7 EUR", "7 EUR")
    first, last = run.steps
    assert isinstance(first.action, Calls)
    assert isinstance(last.action, Final)
    assert [(c.name, c.result) for c in first.result.calls] == [("price", 3), ("price", 4)]
    said, apples, pears = model.requests[1][-3:]
    assert said.content == "Both."
    assert [(m.role, m.content) for m in (apples, pears)] == [("tool", "3"), ("tool", "4")]
    assert [c.id for c in said.tool_calls] == [apples.tool_call_id, pears.tool_call_id]
    assert [type(r).__name__ for r in read_trace(run.trace)] == [
        "RunStart",
        "Step",
        "Step",
        "RunStop",
    ]


async def test_calls_run_at_the_same_time(tmp_path):
    """Each of the two waits for the other one to have begun."""
    both = asyncio.Barrier(2)

    @tool
    async def meet() -> str:
        """Wait for the other one."""
        await asyncio.wait_for(both.wait(), 20)
        return "met"

    model = ScriptedModel([call("meet", "{}", "", ("meet", "{}")), ANSWER])
    async with Session(
        kernel=FakeKernel, model=model, format="json", tools=[meet], out=tmp_path / "o"
    ) as opened:
        run = await opened.run("Meet.")
    assert run.steps[0].observation.parts == ("met", "met")


async def test_a_failed_call_is_an_observation_and_the_others_are_made(tmp_path):
    """Also one whose arguments cannot be read, an unknown tool, and wrong arguments."""
    bad = call(
        "price",
        '{"product": "apples"}',
        "",
        ("price", '{"product": '),
        ("prices", "{}"),
        ("price", '{"fruit": "apples"}'),
        ("price", '{"product": "kiwis"}'),
    )
    made, model = session([bad, ANSWER], tmp_path / "out")
    async with made as opened:
        run = await opened.run("What do they cost?")
    told = [m.content for m in model.requests[1][-5:]]
    assert told[0] == "3"
    assert "cut off" in told[1]
    assert told[2] == "NameError: there is no tool 'prices'. Did you mean price?"
    assert told[3].startswith("TypeError: ")
    assert "product" in told[3]
    assert told[4] == "KeyError: 'kiwis'"
    assert run.steps[0].result.status == "error"
    assert run.status == "answered"


@pytest.mark.parametrize(("product", "answered"), [("apples", True), ("kiwis", False)])
async def test_final_answer_beside_calls_counts_when_they_succeed(tmp_path, product, answered):
    """A model that answers before it has seen an error is shown the error first."""
    both = call(
        "price",
        f'{{"product": "{product}"}}',
        "",
        ("final_answer", '{"answer": 3}'),
    )
    made, model = session([both, ANSWER], tmp_path / "out")
    async with made as opened:
        run = await opened.run("What do they cost?")
    assert run.answer == (3 if answered else "7 EUR")
    assert len(run.steps) == (1 if answered else 2)
    if not answered:
        assert model.requests[1][-1].content.startswith("Not taken as the answer")


async def test_the_same_failing_call_again_and_again_is_a_loop(tmp_path):
    """As for code: the same action, the same failure, three times."""
    made, _ = session([call("price", '{"product": "kiwis"}')] * 5, tmp_path / "out")
    async with made as opened:
        run = await opened.run("What do kiwis cost?")
    assert (run.status, len(run.steps)) == ("loop_detected", 3)
    assert "KeyError" in run.message


async def test_a_run_is_stopped_while_a_call_is_being_made(tmp_path):
    """At once, and the trace says which call did not end."""
    begun = asyncio.Event()

    @tool
    async def never() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.sleep(3600)
        return ""

    model = ScriptedModel([call("never"), ANSWER])
    async with Session(
        kernel=FakeKernel, model=model, format="json", tools=[never], out=tmp_path / "o"
    ) as opened:
        running = asyncio.ensure_future(opened.run("Wait."))
        await begun.wait()
        opened.stop()
        run = await running
    assert run.status == "interrupted"
    assert "before the call ended" in run.steps[0].result.calls[0].error


async def test_a_budget_holds_for_calls_as_for_cells(tmp_path):
    """Steps are counted the same way, and the last one is announced."""
    made, model = session([BOTH] * 5, tmp_path / "out", budget=Budget(max_steps=2))
    async with made as opened:
        run = await opened.run("What do they cost?")
    assert (run.status, len(run.steps)) == ("step_limit", 2)
    assert "The next step is the last one" in model.requests[1][-1].content
    assert model.requests[1][-1].tool_call_id


async def test_huge_results_are_shared_out_and_shortened(tmp_path):
    """A short answer stays whole beside a long one; nothing is longer than an observation."""

    @tool
    def text(length: int) -> str:
        """Return a text."""
        return "x" * length

    both = call("text", '{"length": 1000000}', "", ("text", '{"length": 100}'))
    model = ScriptedModel([both, ANSWER], keep_requests=True)
    async with Session(
        kernel=FakeKernel, model=model, format="json", tools=[text], out=tmp_path / "o"
    ) as opened:
        run = await opened.run("Write.")
    long, short = [m.content for m in model.requests[1][-2:]]
    assert short == "x" * 100
    assert "characters left out; ask for less at a time" in long
    assert 7000 < len(long) <= 8000
    assert len(run.steps[0].result.calls[0].result) == 1_000_000


async def test_without_tools_there_is_a_word_about_it(tmp_path):
    """The agent could only ever answer."""
    told = []
    model = ScriptedModel([ANSWER])
    async with Session(
        kernel=FakeKernel, model=model, format="json", out=tmp_path, on_event=told.append
    ) as opened:
        assert (await opened.run("2 + 5?")).answer == "7 EUR"
    assert any(isinstance(e, Notice) and "--tools" in e.text for e in told)


async def test_the_offline_analyst_cannot_write_calls(tmp_path):
    """It says so before anything is started, and leaves no folder."""
    with pytest.raises(UsageError, match="choose another --format"):
        async with Session(kernel=FakeKernel, model="offline", format="json", out=tmp_path / "out"):
            pass
    assert not (tmp_path / "out").exists()


async def test_the_offline_analyst_works_through_every_format_of_code(tmp_path):
    """What it composes in a format, the format reads back."""
    table = tmp_path / "sales.csv"
    table.write_text("region,amount\nnorth,3\nsouth,4\n")
    for name in ("fenced", "envelope", "tool"):
        out = tmp_path / name
        async with Session(
            kernel=FakeKernel, model="offline", format=name, out=out, data=[table]
        ) as opened:
            run = await opened.run("What is the sum of amount?")
        assert run.status == "answered", name
        assert "7" in run.text
