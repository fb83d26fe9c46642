"""Fixed cells of a notebook as a run: a real kernel, the command line, trace and notebook."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from support.command import run_command

from kernel_agent import Budget, Session
from kernel_agent.errors import NotebookError
from kernel_agent.records.action import Code
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Output
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Step
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
    return run_command(cwd, "pipeline", *map(str, words))


@pytest.mark.long
def test_the_cells_run_in_order_and_leave_a_notebook_with_their_text(tmp_path, notebook):
    (tmp_path / "sales.csv").write_text("month,amount\n1,10\n2,32\n")
    done = command(notebook, "--data", "sales.csv", "--out", "june", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["status"], result["steps"]) == ("answered", 3)
    assert result["text"] == "All 3 cells ran."
    assert "copy.csv" in result["files"]
    made = nbformat.read(tmp_path / "june" / "run.ipynb", as_version=4)
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert code[-1].outputs[0]["data"]["text/plain"].strip() in ("42", "np.int64(42)")
    text = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert "Read the table." in text
    assert "written before the run" in text
    steps = [r for r in read_trace(tmp_path / "june") if isinstance(r, Step)]
    assert steps[1].code.startswith("%%capture")
    verified = run_command(tmp_path, "verify", "june")
    assert verified.returncode == 0, verified.stdout


def test_the_first_cell_that_fails_ends_it_and_the_rest_does_not_run(tmp_path):
    file = write(
        tmp_path / "n.ipynb",
        new_code_cell("x = 1"),
        new_code_cell("x / 0"),
        new_code_cell("open('ran.txt', 'w').close()"),
    )
    done = command(file, "--out", "o", cwd=tmp_path)
    assert done.returncode == 1
    assert "step 2 failed: ZeroDivisionError: division by zero" in done.stdout
    assert not (tmp_path / "o" / "ran.txt").exists()
    assert (tmp_path / "o" / "run.ipynb").exists()


def test_the_cells_find_the_files_beside_the_notebook_that_they_name(tmp_path):
    home = tmp_path / "work"
    (home / "in").mkdir(parents=True)
    (home / "x.csv").write_text("a\n1\n41\n")
    (home / "my table.csv").write_text("a\n5\n")
    (home / "in" / "2024.csv").write_text("a\n7\n")
    (home / "helpers.py").write_text("def twice(x):\n    return 2 * x\n")
    (home / "private.csv").write_text("a\n")
    (home / "link.csv").symlink_to("/etc/passwd")
    (home / "data").mkdir()
    (home / "data" / "given.csv").write_text("a\n9\n")
    (tmp_path / "given.csv").write_text("a\n11\n")
    file = write(
        home / "n.ipynb",
        new_code_cell(
            "import glob, helpers, pandas as pd\n"
            "names = 'x.csv', 'my table.csv', 'data/given.csv'\n"
            "found = [pd.read_csv(n).a.sum() for n in names]\n"
            "found += [pd.read_csv(n).a.sum() for y in [2024] for n in glob.glob(f'in/{y}*.csv')]\n"
            "open('x.csv', 'a').write('1000\\n')\n"
            "print(helpers.twice(sum(found)), sorted(glob.glob('*')), 'link.csv')"
        ),
    )
    done = command(file, "--data", "given.csv", "--out", "o", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not copied" not in done.stderr  # what is given goes before what lies beside
    (step,) = json.loads(done.stdout)["trace"] and [
        r for r in read_trace(tmp_path / "o") if isinstance(r, Step)
    ]
    text = step.observation.text
    assert text.startswith("130 ")
    assert "private.csv" not in text
    assert "'link.csv'" not in text
    assert (home / "x.csv").read_text() == "a\n1\n41\n"
    start = next(r for r in read_trace(tmp_path / "o") if hasattr(r, "data"))
    beside = {"x.csv", "my table.csv", "in/2024.csv", "helpers.py"}
    assert {f.path for f in start.data} == {"data/given.csv", *beside}


def test_a_file_beside_that_is_too_large_to_copy_is_one_line(tmp_path):
    file = write(tmp_path / "n.ipynb", new_code_cell("open('big.bin')"))
    with (tmp_path / "big.bin").open("wb") as big:
        big.truncate((1 << 30) + 1)
    done = command(file, "--out", "o", cwd=tmp_path)
    assert done.returncode == 2
    assert "big.bin beside the notebook is larger than 1 GiB" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


async def test_the_time_limit_and_a_dead_kernel_are_ordinary_endings(tmp_path):
    slow = write(
        tmp_path / "slow.ipynb", *[new_code_cell("import time; time.sleep(60)") for _ in range(3)]
    )
    dies = write(tmp_path / "dies.ipynb", new_code_cell("import os; os._exit(3)"))
    async with Session(model="offline", out=tmp_path / "o") as session:
        run = await session.play(read_cells(slow), "slow", budget=Budget(max_seconds=0.5))
        assert run.status in (ExitStatus.TIME_LIMIT, ExitStatus.CELL_FAILED)
        assert len(run.steps) == 1
        run = await session.play(read_cells(dies), "dies")
        assert run.status is ExitStatus.KERNEL_LOST


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "missing.ipynb"),
        ("", "n.ipynb"),
        ("{}", "n.ipynb"),
        ("[1]", "n.ipynb"),
        ("\x00\x01", "n.ipynb"),
    ],
)
def test_what_is_no_notebook_is_one_line(tmp_path, content, line):
    if content is not None:
        (tmp_path / "n.ipynb").write_text(content)
    done = command("n.ipynb" if content is not None else "missing.ipynb", cwd=tmp_path)
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_notebook_without_code_or_for_another_language_is_refused(tmp_path):
    empty = write(tmp_path / "e.ipynb", new_markdown_cell("words"), new_code_cell(" "))
    with pytest.raises(NotebookError, match="no code"):
        read_cells(empty)
    r = write(
        tmp_path / "r.ipynb", new_code_cell("1"),
        kernelspec={"name": "ir", "display_name": "R", "language": "R"},
    )  # fmt: skip
    with pytest.raises(NotebookError, match="for R"):
        read_cells(r)


@pytest.mark.parametrize(
    "metadata",
    [
        {"kernelspec": {"language": ""}},
        {"kernelspec": {"language": "python"}, "language_info": {}},
        {"kernelspec": "no mapping", "language_info": {"name": "python"}},
        {"authors": "no list"},
    ],
)
def test_what_the_notebooks_own_metadata_lacks_does_not_matter(tmp_path, metadata):
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": [],
            "execution_count": None, "id": "a"}  # fmt: skip
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": [cell]}
    (tmp_path / "n.ipynb").write_text(json.dumps(content), encoding="utf-8-sig")
    assert len(read_cells(tmp_path / "n.ipynb")) == 1


@pytest.mark.long
async def test_cells_come_to_their_end_after_a_run_that_was_stopped(tmp_path):
    """A stop holds for the run that it was meant for."""
    endless = Code(source="import time\nprint('begun')\nwhile True: time.sleep(0.05)")
    slow = Code(source="import time\ntime.sleep(0.8)\nprint('done')")
    async with Session(model="offline", out=tmp_path / "out") as session:
        asked = []

        def stop_it(event):
            if isinstance(event, Output) and not asked:  # what is printed later is left behind
                asked.append(event)
                session.stop()

        stopped = await session.play([FixedCell(code=endless)], "stopped", on_event=stop_it)
        run = await session.play([FixedCell(code=slow)], "after it")
    assert stopped.status is ExitStatus.INTERRUPTED
    assert run.status is ExitStatus.ANSWERED
