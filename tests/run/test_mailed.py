"""A notebook that is sent alone runs in plain Jupyter, or says in a line which file is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell
from support.replies import cell

from kernel_agent import ScriptedModel, Session, tool


@tool
def rows(name: str) -> list[int]:
    """Give the rows of a table."""
    return [len(name), 2, 3]


async def mailed(tmp_path: Path, *sources: str) -> tuple[str, ...]:
    """Run a session of these cells, then its notebook alone; return the files it made."""
    replies = [{"for": "the task", "content": cell(source)} for source in sources]
    agent = {"for": "How many?", "content": cell("final_answer(3)")}
    options: dict[str, Any] = {"model": ScriptedModel([*replies, agent])}
    async with Session(out=tmp_path / "run", tools=[rows, "delegate"], **options) as session:
        run = await session.run("the task")
    assert run.notebook is not None
    notebook = nbformat.read(run.notebook, as_version=4)
    notebook.cells.insert(0, new_code_cell("import sys; sys.modules['kernel_agent'] = None"))
    alone = tmp_path / "alone"
    alone.mkdir()
    recorded = _texts(notebook)
    resources = {"metadata": {"path": str(alone)}}
    client = NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources)
    await client.async_execute()
    assert _texts(notebook) == recorded
    return run.files


def _texts(notebook: Any) -> list[str]:
    shown = [output for c in notebook.cells if c.cell_type == "code" for output in c.outputs]
    return [output.get("text") or output.data["text/plain"] for output in shown]


@pytest.mark.parametrize(
    "sources",
    [
        ("print('secret 42')", "print(outputs[1], outputs.code(1))\nfinal_answer(outputs[1])"),
        pytest.param(
            ("print('a')", "print({k: len(outputs[k]) for k in (1,)})\nfinal_answer(1)"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("n = delegate('How many?', data=[1, 2])\nprint(n)", "final_answer(n)"),
            marks=pytest.mark.long,
        ),
    ],
)
async def test_small_things_travel_in_the_notebook(tmp_path: Path, sources: Any) -> None:
    assert await mailed(tmp_path, *sources) == ()


async def test_the_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError) as caught:
        await mailed(tmp_path, "print(rows('a'), rows.__doc__)", "final_answer(1)")
    assert (caught.value.ename, caught.value.evalue) == (
        "FileNotFoundError",
        "replay.py is missing: put it beside this notebook",
    )
