"""Variables that were put, and an undo; a kernel in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session

ONE = Budget(max_steps=1)


def make(cells: list[str], out: Path, **options: Any) -> Session:
    replies = [f"Next.\n\n```python\n{code}\n```" for code in cells]
    return Session(kernel=FakeKernel, model=ScriptedModel(replies), out=out, **options)


async def test_what_was_put_before_an_undone_step_is_there_again_as_it_was_put(
    tmp_path: Path,
) -> None:
    """The cell that set it is played again, before the steps that used it."""
    async with make(["rows.append(3)", "rows = None"], tmp_path / "s") as session:
        await session.put({"rows": [1, 2]})
        await session.run("First", budget=ONE)
        await session.run("Second", budget=ONE)
        undone = await session.undo()
        assert await session.take(["rows"]) == {"rows": [1, 2, 3]}
        assert (undone.differences, undone.cells, undone.given) == ((), 0, ())
        await session.undo()
        assert await session.take(["rows"]) == {"rows": [1, 2]}
        assert list(session.given) == ["rows"]
