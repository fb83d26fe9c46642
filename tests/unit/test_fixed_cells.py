"""Fixed cells; a kernel in this process."""

import os
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from kernel_agent import Budget, FakeKernel, Session
from kernel_agent.records.action import Code
from kernel_agent.records.endings import ExitStatus
from kernel_agent.session.pipeline import FixedCell, read_cells


def write(path, *cells, **metadata):
    nbformat.write(new_notebook(cells=list(cells), metadata=metadata), path)
    return path


@pytest.fixture
def notebook(tmp_path):
    return write(
        tmp_path / "monthly.ipynb",
        new_markdown_cell("# Sales\n\nRead the table."),
        new_code_cell("import pandas as pd\nsales = pd.read_csv('data/sales.csv')\nlen(sales)"),
        new_code_cell(""),
        new_markdown_cell("Add it up."),
        new_code_cell("%%capture seen\nprint('hidden')"),
        new_code_cell("sales.to_csv('copy.csv')\nsales['amount'].sum()"),
    )


def command(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "kernel_agent", "pipeline", *map(str, words)],
        check=False, cwd=cwd, capture_output=True, text=True, env=dict(os.environ),
    )  # fmt: skip


async def test_a_cell_that_may_fail_does_not_end_it(tmp_path):
    file = write(
        tmp_path / "n.ipynb",
        new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
        new_code_cell("final_answer(7)"),
    )
    async with Session(kernel=FakeKernel, model="offline", out=tmp_path / "o") as session:
        run = await session.play(read_cells(file), "n")
    assert run.status is ExitStatus.ANSWERED
    assert run.answer == 7


async def test_a_cell_that_is_to_be_skipped_is_not_run(tmp_path):
    file = write(
        tmp_path / "n.ipynb",
        new_code_cell("1 / 0", metadata={"tags": ["skip-execution"]}),
        new_code_cell("7"),
    )
    assert [cell.code.source for cell in read_cells(file)] == ["7"]


async def test_there_may_be_more_cells_than_a_model_may_take_steps(tmp_path):
    cells = [FixedCell(code=Code(source=str(n))) for n in range(4)]
    async with Session(
        kernel=FakeKernel, model="offline", budget=Budget(max_steps=2), out=tmp_path / "o"
    ) as session:
        run = await session.play(cells, "four")
        few = await session.play(cells, "three", budget=Budget(max_steps=3))
    assert (run.status, len(run.steps)) == (ExitStatus.ANSWERED, 4)
    assert (few.status, len(few.steps)) == (ExitStatus.STEP_LIMIT, 3)
