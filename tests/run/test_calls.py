"""Whole runs whose actions are calls: same tools, budget, trace and notebook as for code."""

from __future__ import annotations

import asyncio

import nbformat
import pytest
from support.calls import ANSWER, BOTH, call, session

from kernel_agent import verify


async def test_a_notebook_of_calls_runs_again_without_the_host(tmp_path):
    """Each call is a cell that calls the tool's replay; a failed one is tagged and folded."""
    replies = [
        call("price", '{"product": "kiwis"}', "Kiwis?"),
        call("report", '{"lines": ["a", "b\\"c"], "title": "é"}', "", ("price", '{"product": 1}')),
        BOTH,
        call("no_such_tool", '{"x": 1}'),
        call("no such name", '{"x": 1}'),
        ANSWER,
    ]
    made, _ = session(replies, tmp_path / "out")
    async with made as opened:
        run = await opened.run("What do apples and pears cost together?")
    assert run.status == "answered"
    notebook = nbformat.read(run.notebook, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code" and "step" in c.id]
    assert [c.source for c in code] == [
        "price(product='kiwis')",
        "report(lines=['a', 'b\"c'], title='é')",
        "price(product=1)",
        "price(product='apples')",
        "price(product='pears')",
        "no_such_tool(x=1)",
    ]
    assert ["raises-exception" in c.metadata.get("tags", []) for c in code] == [
        True, False, True, False, False, True,
    ]  # fmt: skip
    assert code[3].outputs[0].data["text/plain"] == "3"
    assert "7 EUR" in notebook.cells[1].source
    result = await asyncio.to_thread(verify, run.notebook)
    assert {c.verdict for c in result.cells} <= {"same", "skipped"}, result


@pytest.mark.long
async def test_a_call_that_takes_too_long_is_given_up_and_the_others_count(tmp_path):
    """The limit is a cell's; the notebook has no cell for what did not end."""
    slow = call("slowly", '{"seconds": 60}', "", ("price", '{"product": "apples"}'))
    made, model = session([slow, ANSWER], tmp_path / "out")
    made.config = made.config.merged(cell_seconds=0.3)
    async with made as opened:
        run = await opened.run("Wait.")
    assert run.steps[0].result.status == "timeout"
    assert [m.content for m in model.requests[1][-2:]] == [
        "TimeoutError: the call took longer than 0.3 s",
        "3",
    ]
    assert "slowly(seconds=60)" in run.notebook.read_text()
    result = await asyncio.to_thread(verify, run.notebook)
    assert {c.verdict for c in result.cells} <= {"same", "skipped"}, result
