"""Whole runs in which something is asked, allowed, changed or denied; real kernels, real tools."""

from __future__ import annotations

import asyncio
import os
import signal

import nbformat
from support.approval import ANSWER, PAY, YES, Person, cell, make_tools, play

from kernel_agent import ScriptedModel, Session, verify
from kernel_agent.records.cell import Decision
from kernel_agent.records.event import Question


async def test_a_cell_is_denied_changed_or_run_under_always(tmp_path):
    """What ran stands in the trace as the step's code, with what the model had written."""
    person = Person(
        Decision(allowed=False, by="person", reason="not that file"),
        Decision(allowed=True, by="person", edited="x = 2\nprint('x is', x)"),
        YES,
    )
    run, model, _ = await play(
        tmp_path / "out",
        cell("print('never' + 'shown')"), cell("x = 1\nprint('x is', x)"), cell("final_answer(x)"),
        approver=person, approve="always",
    )  # fmt: skip
    assert (run.status, run.answer) == ("answered", 2)
    denied, changed, _last = run.steps
    assert not denied.ok
    assert "not that file" in denied.observation.text
    assert "nevershown" not in denied.observation.text
    assert changed.code == "x = 2\nprint('x is', x)"
    assert changed.decision.original == "x = 1\nprint('x is', x)"
    assert "x is 2" in changed.observation.text
    said = model.requests[2]
    assert "x = 2" in said[-2].content
    assert "A person changed this cell" in said[-1].content

    notebook = nbformat.read(run.notebook, as_version=4)
    sources = [c.source for c in notebook.cells if c.cell_type == "code"]
    assert not any("never" in source for source in sources)
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    for part in ("was denied and never ran", "not that file", "who changed it first", "x = 1"):
        assert part in text
    assert (await asyncio.to_thread(verify, run.notebook)).reproduces


async def test_a_kernel_that_dies_takes_its_question_with_it(tmp_path):
    """Nobody is left before a prompt for a call that nobody waits for."""
    asked = asyncio.Event()
    gone = asyncio.Event()

    async def thinking(_question: Question) -> Decision:
        asked.set()
        try:
            await asyncio.sleep(600)
        finally:
            gone.set()
        raise AssertionError

    paid = []
    async with Session(
        model=ScriptedModel([PAY, ANSWER]), tools=make_tools(paid), out=tmp_path / "out",
        approver=thinking, format="fenced",
    ) as session:  # fmt: skip
        running = asyncio.ensure_future(session.run("Pay."))
        await asyncio.wait_for(asked.wait(), 30)
        os.kill(session._kernel.pid, signal.SIGKILL)
        run = await asyncio.wait_for(running, 20)
        await asyncio.wait_for(gone.wait(), 5)
    assert run.status == "kernel_lost"
    assert paid == []
    assert [c.decision.allowed for s in run.steps for c in s.result.calls] == [False]
