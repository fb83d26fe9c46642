"""The code of a reply that did not run is named to the model, in one line of the observation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.calls import call
from support.replies import cell

from kernel_agent import Run, ScriptedModel, Session
from kernel_agent.records.action import Code
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Step

DONE = cell("final_answer(1)")


async def told(reply: Any, out: Path, format_: str = "fenced") -> tuple[str, str, Run]:
    """Return what the model saw of a reply's code, and of its result."""
    model = ScriptedModel([reply, DONE], keep_requests=True)
    async with Session(model=model, format=format_, out=out) as session:
        run = await session.run("Look.")
    said, seen = model.requests[1][-2:]
    shown = "".join(c.arguments for c in said.tool_calls) or str(said.content)
    return shown, str(seen.content), run


def python(*codes: str) -> dict[str, Any]:
    first, *more = [("python", json.dumps({"code": code})) for code in codes]
    return call(*first, "", *more)


async def test_a_block_that_was_corrected_is_named_and_stays_in_the_trace(tmp_path: Path) -> None:
    reply = f"{cell('rows = 10')}\n\nBetter:\n\n{cell('print(20)')}"
    shown, seen, run = await told(reply, tmp_path / "out")
    assert "rows = 10" not in shown
    assert '(Not run of your reply: the block that begins "rows = 10".' in seen
    (first, _) = [record for record in read_trace(run.trace) if isinstance(record, Step)]
    assert isinstance(first.action, Code)
    assert "rows = 10" in first.action.left_out


async def test_the_calls_after_one_that_failed_are_named(tmp_path: Path) -> None:
    reply = python("a = 1\na", "def f():\n    return missing\n\nf()", "b = 2", "c = 3")
    _, seen, run = await told(reply, tmp_path / "out", "tool")
    assert "had 4 calls, which run as one cell: call 2 failed, so calls 3 to 4 did not run." in seen
    assert "NameError" in seen
    assert run.steps[0].result is not None
    assert [v.name for v in run.steps[0].result.changes.added] == ["a", "f"]  # type: ignore[union-attr]


async def test_when_the_last_call_fails_all_others_ran_and_nothing_is_said(tmp_path: Path) -> None:
    _, seen, _ = await told(python("a = 1", "missing"), tmp_path / "out", "tool")
    assert "NameError" in seen
    assert "did not run" not in seen
