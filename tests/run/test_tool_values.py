"""Tables through host tools in a whole run: trace, notebook, and the notebook run again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pandas as pd
import pytest

from kernel_agent import ScriptedModel, Session, tool, verify


@tool
def prices(products: list[str]) -> pd.DataFrame:
    """Return the prices of some products."""
    return pd.DataFrame({"price": [3.0, 4.5]}, index=pd.Index(products, name="product"))


@tool
def sold() -> pd.DataFrame:
    """Return thousands of rows."""
    return pd.DataFrame({"day": pd.date_range("2024-01-01", periods=5000), "sold": range(5000)})


@tool
def refuse(password: str) -> None:
    """Raise an error that quotes a secret."""
    raise PermissionError(13, f"postgres://me:hunter2-hunter2@db: {password}")


async def test_a_table_that_a_tool_gave_is_replayed_and_secrets_are_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_AGENT_SECRET_ENV", "DATABASE_PASSWORD")
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2-hunter2")
    cells = [
        "table = prices(['apples', 'pears'])\ntable",
        "try: refuse('x')\nexcept PermissionError as error: print(error)",
        "rows = sold()\nrows['sold'].sum()",
        "final_answer(table['price'].sum())",
    ]
    model = ScriptedModel([f"Next.\n\n```python\n{source}\n```" for source in cells])
    async with Session(model=model, tools=[prices, refuse, sold], out=tmp_path / "out") as session:
        run = await session.run("What do they cost together?")
    assert (run.status, run.answer) == ("answered", 7.5)
    assert "me:[secret]@db" in run.steps[1].observation.text
    for path in (run.trace, run.notebook):
        assert path is not None
        assert "hunter2-hunter2" not in path.read_text()
    assert "pyarrow==" in run.notebook.read_text()
    report = await asyncio.to_thread(verify, run.notebook)
    assert {str(cell.verdict) for cell in report.cells} <= {"same", "skipped"}, report
