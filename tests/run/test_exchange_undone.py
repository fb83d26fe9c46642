"""Variables that the user has put, when steps are undone and when kernels are lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.replies import cell

from kernel_agent import Budget, ScriptedModel, Session, verify
from kernel_agent.agent.context import Context
from kernel_agent.formats import get_format
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart
from kernel_agent.records.undo import person_text
from kernel_agent.sandbox.chooser import level_of

ONE = Budget(max_steps=1)


def make(cells: list[str], out: Path, **options: Any) -> Session:
    return Session(model=ScriptedModel([cell(code) for code in cells]), out=out, **options)


async def test_what_was_put_after_an_undone_step_goes_with_it(tmp_path: Path) -> None:
    """The person and the model are told; the notebook does not set it, and still reproduces."""
    session = make(["x = rows", "y = rows + more", "z = 1"], tmp_path / "s")
    async with session:
        await session.put({"rows": [1]})
        await session.run("First", budget=ONE)
        await session.put({"rows": [2], "more": [5]})
        await session.run("Second", budget=ONE)
        undone = await session.undo(2)
        assert undone.given == ("rows", "more")
        assert "Passed in since then, and taken back with it: rows, more." in person_text(undone)
        assert await session.take(["rows"]) == {"rows": [1]}
        assert set(session.given) == {"rows"}
        result = await session.execute("print(more)")
        assert result.error is not None
        assert result.error.ename == "NameError"
        run = await session.run("Third", budget=ONE)
    starts = [r for r in read_trace(run.trace) if isinstance(r, RunStart)]
    assert [tuple(g.name for g in s.given) for s in starts] == [("rows",), ("rows", "more"), ()]
    context = Context("", get_format("fenced"), max_tokens=10_000)
    for record in read_trace(run.trace):
        context.add(record)
    told = str(context.messages())
    assert told.count("- rows: list") == 1
    assert "- more: list" not in told
    assert run.notebook is not None
    cells = nbformat.read(run.notebook, as_version=4).cells
    assert not any("more = [5]" in c.source for c in cells if c.cell_type == "code")
    assert verify(run.notebook).reproduces


async def test_an_undo_leaves_files_that_no_cell_has_made(tmp_path: Path) -> None:
    """What is put before the first step is of no step, and so is a file of the person's."""
    session = make(["print(open('mine.txt').read())", "y = 1"], tmp_path / "s")
    async with session:
        (tmp_path / "s" / "mine.txt").write_text("hello")
        await asyncio.sleep(0.05)  # a moment: the system's clock for files ticks
        await session.put({"rows": [1]})
        await session.run("First", budget=ONE)
        await session.run("Second", budget=ONE)
        undone = await session.undo()
        assert not undone.differences
        assert (tmp_path / "s" / "mine.txt").read_text() == "hello"


async def test_what_was_put_survives_a_lost_kernel_and_then_an_undo(tmp_path: Path) -> None:
    """The new kernel has it from its first moment, so an undo gives it that again."""
    cells = ["rows.append(2)", "import os; os._exit(1)", "rows.append(9)"]
    async with make(cells, tmp_path / "s") as session:
        await session.put({"rows": [1]})
        await session.run("First", budget=ONE)
        await session.run("Lost", budget=ONE)
        await session.run("Third", budget=ONE)
        assert await session.take(["rows"]) == {"rows": [1, 9]}
        await session.undo()
        assert await session.take(["rows"]) == {"rows": [1]}
        await session.undo()
        assert await session.take(["rows"]) == {"rows": [1, 2]}


@pytest.mark.long
async def test_a_kernel_that_sees_no_files_is_given_its_variables_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent to it in pieces is sent again (here to a kernel that does see the files)."""
    pd = pytest.importorskip("pandas")
    apart = replace(level_of("none"), shares_folder=False)
    monkeypatch.setattr("kernel_agent.session.variables.level_of", lambda _name: apart)
    session = make(["n = len(table)", "table = None"], tmp_path / "s")
    async with session:
        await session.put({"table": pd.DataFrame({"a": [1, 2]})})
        await session.run("First", budget=ONE)
        await session.run("Second", budget=ONE)
        assert (await session.undo()).differences == ()
        assert list((await session.take(["table"]))["table"]["a"]) == [1, 2]
