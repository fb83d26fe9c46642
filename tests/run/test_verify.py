"""A notebook runs again in a real kernel, and what became of each cell is told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from support.command import run_command
from support.golden import DATA

from kernel_agent import ScriptedModel, Session, export
from kernel_agent.errors import NotebookError, SandboxError
from kernel_agent.notebook.comparison import Verdict
from kernel_agent.notebook.reader import read_notebook
from kernel_agent.session.verification import (
    certify,
    verify,
    verify_notebook,
)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / "golden.ipynb", tmp_path / "run.ipynb"))


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write a notebook of cells into a folder of its own."""

    def write(*cells: Any) -> Path:
        path = tmp_path / "run.ipynb"
        nbformat.write(new_notebook(cells=list(cells)), path)
        return path

    return write


def printed(source: str, text: str, **more: Any) -> Any:
    return new_code_cell(source, outputs=[new_output("stream", text=text)], **more)


def verdicts(path: Path) -> list[str]:
    return [str(cell.verdict) for cell in verify(path).cells]


def test_an_exported_notebook_reproduces(golden: Path) -> None:
    before = golden.read_bytes()
    report = verify(golden)
    assert report.reproduces, report.to_json()
    assert report.counts == {"skipped": 2, "same": 7}
    assert report.summary.startswith("reproduces: 2 skipped, 7 same (")
    assert golden.read_bytes() == before
    assert [p.name for p in golden.parent.iterdir()] == ["run.ipynb"]


def test_an_exported_notebook_runs_in_plain_jupyter(golden: Path) -> None:
    """With nbclient and the python3 kernel, in a process that cannot import this package."""
    from nbclient import NotebookClient

    notebook = nbformat.read(golden, as_version=4)
    notebook.cells.insert(0, new_code_cell("import sys; sys.modules['kernel_agent'] = None"))
    recorded = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = [[out.get("text") for out in cell.outputs] for cell in recorded]
    NotebookClient(
        notebook,
        timeout=60,
        kernel_name="python3",
        resources={"metadata": {"path": str(golden.parent)}},
    ).execute()
    assert [[out.get("text") for out in cell.outputs] for cell in recorded] == texts


def test_a_clock_in_what_was_printed_and_help_make_no_false_alarm(
    save: Callable[..., Path],
) -> None:
    """The date of a regression's summary; a time that an earlier cell took; `name?`."""
    path = save(
        printed("import datetime as dt; now = dt.datetime.now()\nprint(now)",
                "2024-03-01 10:11:12.131415\n"),
        printed("print(f'Date: {now:%a, %d %b %Y}  n = 5\\nTime: {now:%H:%M:%S}    R2 = 1.0')",
                "Date: Fri, 01 Mar 2024  n = 5\nTime: 10:11:12    R2 = 1.0\n"),
        new_code_cell("len?"),
        new_code_cell("%timeit -n 7 -r 2 1", outputs=[new_output("stream", text=(
            "The slowest run took 9.05 times longer than the fastest. This could mean that an "
            "intermediate result is being cached.\n"
            "63.9 ns ± 44 ns per loop (mean ± std. dev. of 2 runs, 9 loops each)\n"))]),
        printed("print(dt.date(2024, 5, 6))", "2024-05-07\n"),
    )  # fmt: skip
    assert verdicts(path) == ["volatile", "volatile", "same", "volatile", "different"]


@pytest.mark.parametrize(
    "name",
    ["a-1", *(pytest.param(name, marks=pytest.mark.long) for name in ("not a sound id", 7, None))]
)  # fmt: skip
def test_ids_in_a_format_that_does_not_know_them_yet_mean_nothing(
    name: Any, tmp_path: Path
) -> None:
    cell = {"cell_type": "code", "source": "print(1)", "metadata": {}, "execution_count": 1,
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "1\n"}]}  # fmt: skip
    content = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [
        {**cell, "id": name}, {**cell, "id": name}, cell]}  # fmt: skip
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps(content))
    report = verify(path)
    assert report.counts == {"same": 3}
    assert json.loads(path.read_text()) == content


def test_each_cell_has_its_verdict(save: Callable[..., Path]) -> None:
    path = save(
        new_markdown_cell("# words"),
        printed("print(1)", "1\n"),
        printed("print(object())", "<object object at 0x7f0011223344>\n"),
        printed("print(2)", "3\n"),
        new_code_cell("1 / 0"),
        printed("x = 5; print(x)", "5\n"),
        new_code_cell(""),
        new_code_cell("x", outputs=[new_output("execute_result", data={"text/plain": "5"})]),
        new_code_cell(
            "1 / 0",
            metadata={"tags": ["raises-exception"]},
            outputs=[
                new_output("error", ename="ZeroDivisionError", evalue="division by zero"),
            ],
        ),
    )
    report = verify(path)
    assert [c.verdict for c in report.cells] == [
        Verdict.SAME, Verdict.VOLATILE, Verdict.DIFFERENT, Verdict.ERROR, Verdict.SAME,
        Verdict.SAME, Verdict.SAME,
    ]  # fmt: skip
    assert not report.reproduces
    assert "-3\n+2" in report.cells[2].detail
    assert "ZeroDivisionError: division by zero" in report.cells[3].detail
    assert json.loads(json.dumps(report.to_json()))["counts"]["same"] == 4


def test_a_cell_that_takes_the_kernel_with_it_does_not_hang_the_rest(
    save: Callable[..., Path],
) -> None:
    path = save(new_code_cell("import os; os._exit(3)"), new_code_cell("1"))
    report = verify(path)
    assert [c.verdict for c in report.cells] == [Verdict.ERROR, Verdict.ERROR]
    assert "exit code 3" in report.cells[0].detail
    assert report.cells[1].detail.startswith("not run")


async def test_a_cell_that_takes_too_long_is_interrupted(save: Callable[..., Path]) -> None:
    path = save(new_code_cell("import time; time.sleep(60)"), printed("print(1)", "1\n"))
    report = await verify_notebook(path, timeout_s=0.5)
    assert [c.verdict for c in report.cells] == [Verdict.ERROR, Verdict.SAME]
    assert report.cells[0].detail == "interrupted after 0.5 s"


@pytest.mark.long
async def test_sets_are_printed_in_the_same_order_in_each_kernel(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    source = "words = {'ab', 'cd', 'ef', 'gh', 'ij'}\nprint(*words, {w: 1 for w in words})"
    async with Session(model=ScriptedModel([]), out=tmp_path / "session") as session:
        shown = await session.execute(source)
    path = save(printed(source, shown.outputs[0]["text"]))
    told = [await verify_notebook(path) for _ in range(2)]
    assert [report.counts for report in told] == [{"same": 1}, {"same": 1}]


async def test_verify_works_where_a_loop_is_running(save: Callable[..., Path]) -> None:
    """As in a notebook."""
    assert verify(save(printed("print(1)", "1\n"))).reproduces


def test_cells_find_their_inputs_and_change_nothing(
    save: Callable[..., Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    secret.write_text("outside")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.csv").write_text("a\n1\n")
    (tmp_path / "data" / "in.csv").chmod(0o444)
    (tmp_path / "data" / "linked.csv").symlink_to(secret)
    (tmp_path / "linked").symlink_to(secret.parent)
    (tmp_path / "trace.jsonl").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    listing = "import os; print(sorted(os.listdir('data')), sorted(os.listdir()))"
    path = save(
        printed("print(open('data/in.csv').read())", "a\n1\n\n"),
        printed("n = open('out.txt', 'w').write('made'); print(n)", "4\n"),
        printed(listing, "['in.csv'] ['data', 'out.txt']\n"),
    )
    report = verify(path)
    assert report.reproduces, report.to_json()
    assert report.left_out == ("data/linked.csv", "linked", "pipe")
    assert not (tmp_path / "out.txt").exists()


def test_a_notebook_in_a_home_is_given_nothing_of_it(
    save: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in a folder that holds one; in a folder of its own it is run."""
    path = save(printed("print(open('Documents/tax.txt').read())", "secret\n"))
    (tmp_path / "Documents").mkdir()
    (tmp_path / "Documents" / "tax.txt").write_text("secret")
    for home in (tmp_path, tmp_path / "person"):
        home.mkdir(exist_ok=True)
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(NotebookError, match="into a folder of its own") as refused:
            verify(path)
        assert "\n" not in str(refused.value)
    monkeypatch.setenv("HOME", str(tmp_path / "Documents"))
    (tmp_path / "mine").mkdir()
    assert verify(path.rename(tmp_path / "mine" / "run.ipynb")).counts == {"error": 1}


def test_files_with_holes_keep_them_in_the_copy(save: Callable[..., Path], tmp_path: Path) -> None:
    """Three of 400 MB that take nothing of the disk take nothing of it a second time."""
    for number in range(3):
        with (tmp_path / f"{number}.bin").open("wb") as file:
            file.seek(200_000_000)
            file.write(b"here")
            file.truncate(400_000_000)
    source = (
        "import os\n"
        "found = [os.stat(f'{n}.bin') for n in range(3)]\n"
        "print({s.st_size for s in found}, sum(s.st_blocks for s in found) * 512 < 1_000_000)\n"
        "with open('1.bin', 'rb') as file:\n    file.seek(199_999_999); print(file.read(6))\n"
    )
    report = verify(save(printed(source, "{400000000} True\nb'\\x00here\\x00'\n")))
    assert report.reproduces, report.to_json()


async def test_inputs_that_are_not_those_of_the_run_are_named(tmp_path: Path) -> None:
    """Figures that differ are then explained; a file that the run was not given is no input."""
    table, out = tmp_path / "t.csv", tmp_path / "out"
    table.write_text("a\n1\n")
    model = ScriptedModel(["```python\nfinal_answer(len(open('data/t.csv').read()))\n```"])
    async with Session(model=model, data=table, out=out) as session:
        await session.run("How long is it?")
    (out / "data" / "other.csv").write_text("a\n1\n")
    assert (await verify_notebook(out / "run.ipynb")).changed == ()
    (out / "data" / "t.csv").unlink()
    (out / "data" / "t.csv").write_text("a\n1\n2\n")
    done = await asyncio.to_thread(run_command, tmp_path, "verify", "out")
    assert (done.returncode, "not copied" in done.stdout) == (1, False)
    assert "\ninputs that have changed since the run: data/t.csv\n" in done.stdout
    told = await asyncio.to_thread(run_command, tmp_path, "verify", "out", "--json")
    assert json.loads(told.stdout)["changed"] == ["data/t.csv"]


def test_what_the_run_made_is_made_again(golden: Path) -> None:
    """A file that a cell makes is not there before it runs."""
    notebook = read_notebook(golden)
    notebook.cells.append(
        printed("import os; print(os.path.exists('plot.png'))", "False\n", id="last")
    )
    nbformat.write(notebook, golden)
    (golden.parent / "plot.png").write_bytes(b"made by the run")
    assert verdicts(golden)[-1] == "same"


def test_what_a_strangers_notebook_makes_is_not_there_before(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    path = save(
        new_code_cell(
            "%%writefile x.py\nx = 1", outputs=[new_output("stream", text="Writing x.py\n")]
        ),
        printed("import os; print(os.path.exists('out.csv'))", "False\n"),
        printed("open('out.csv', 'w').write('1')\nprint(open('given.csv').read())", "7\n"),
        new_code_cell(
            "%nothing",
            outputs=[
                new_output(
                    "stream",
                    name="stderr",
                    text="UsageError: Line magic function `%nothing` not found.\n",
                )
            ],
        ),
    )
    for name in ("x.py", "out.csv", "given.csv"):
        (tmp_path / name).write_text("7")
    assert verdicts(path) == ["same"] * 4


@pytest.mark.parametrize(
    "role", ["answer", *(pytest.param(role, marks=pytest.mark.long) for role in ("task", "figure"))]
)
def test_a_text_that_is_not_what_the_run_gave_is_different(tmp_path: Path, role: str) -> None:
    path = export(DATA / "golden.jsonl", tmp_path / "run.ipynb")  # reproduces: see above
    notebook = read_notebook(path)
    place = [cell.metadata.kernel_agent.role for cell in notebook.cells].index(role)
    notebook.cells[place].source += " 0.99"
    nbformat.write(notebook, path)
    report = verify(path)
    assert not report.reproduces
    (changed,) = [cell for cell in report.cells if cell.verdict == Verdict.DIFFERENT]
    assert (changed.index, changed.role) == (place, role)
    del notebook.cells[place]
    nbformat.write(notebook, path)
    assert "is missing" in verify(path).cells[-1].detail


@pytest.mark.long
def test_another_first_figure_is_different_and_one_that_was_run_again_is_not(
    tmp_path: Path,
) -> None:
    path = export(DATA / "golden.jsonl", tmp_path / "run.ipynb")
    notebook = read_notebook(path)
    (cell,) = [c for c in notebook.cells if c.metadata.kernel_agent.role == "figure"]
    drawn = cell.outputs
    cell.outputs = []
    nbformat.write(notebook, path)
    report = verify(path)
    assert report.reproduces
    assert "figure" not in [c.role for c in report.cells]
    for change in ({"outputs": [new_output("display_data", {"image/png": "AAAA"})]},
                   {"outputs": [], "source": "import os"}):  # fmt: skip
        cell.update({"outputs": drawn, **change})
        nbformat.write(notebook, path)
        assert [c.role for c in verify(path).cells if c.verdict == Verdict.DIFFERENT] == ["figure"]


def test_nothing_is_said_of_the_texts_of_a_stranger(save: Callable[..., Path]) -> None:
    about = {"kernel_agent": {"role": "answer", "run": 1}}
    assert verdicts(save(new_markdown_cell("42", metadata=about), printed("print(1)", "1"))) == [
        "same"
    ]


def test_a_certificate_is_written_when_asked_and_only_for_the_same_code(golden: Path) -> None:
    report = verify(golden)
    certify(golden, report)
    notebook = read_notebook(golden)
    certificate = notebook.metadata.kernel_agent.certificate
    assert certificate.reproduces
    assert certificate.counts == {"skipped": 2, "same": 7}
    assert certificate.sources_sha256 == report.sources_sha256
    assert notebook.metadata.kernel_agent.runs[0].run_id == "one"
    (line,) = [c.source for c in notebook.cells if c.metadata.kernel_agent.role == "verified"]
    assert line.startswith("Verified on 20")
    assert ": 7 of 7 cells show the same when run again" in line
    certify(golden, report)
    assert len(read_notebook(golden).cells) == len(notebook.cells), "the line stands once"
    [cell for cell in notebook.cells if cell.cell_type == "code"][-1].source = "changed"
    nbformat.write(notebook, golden)
    with pytest.raises(NotebookError, match="has changed since it was verified"):
        certify(golden, report)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the notebook .*No such file"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "JSON, but not a notebook"),
        (b'{"cells": []}', "JSON, but not a notebook"),
        (b'{"nbformat": 1, "cells": []}', "notebook format 1, which is unknown"),
        (b'{"nbformat": 3, "worksheets": []}', "format 3: convert it with `jupyter nbconvert"),
        (b'{"nbformat": 2, "worksheets": 7}', "format 2: convert it with `jupyter nbconvert"),
        (b'{"nbformat": 9, "metadata": {}, "cells": []}', "notebook format 9, which is unknown"),
        (b'{"nbformat": 4, "nbformat_minor": 5, "cells": 7, "metadata": {}}', "not a valid noteb"),
        (b'{"nbformat": 4, "nbformat_minor": 5, "cells": [7], "metadata": {}}', "not a valid note"),
        (b'{"nbformat": 4, "cells": [], "metadata": {}}', "not a valid notebook"),
    ],
)
def test_what_is_not_a_notebook_is_one_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "x.ipynb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NotebookError, match=message) as caught:
        verify(path)
    assert "\n" not in str(caught.value)


def test_a_notebook_for_another_language_is_not_run(tmp_path: Path) -> None:
    content = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("x <- 1")], metadata={"language_info": {"name": "R"}}
    )
    nbformat.write(content, tmp_path / "r.ipynb")
    with pytest.raises(NotebookError, match="for R, and only Python is run"):
        verify(tmp_path / "r.ipynb")


def test_a_folder_is_not_a_notebook(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match="it is a folder"):
        verify(tmp_path)


@pytest.mark.parametrize("minor", [0, 2, 4])
def test_older_notebooks_of_format_4_are_read(tmp_path: Path, minor: int) -> None:
    cell = {"cell_type": "code", "source": ["1\n", "+1"], "metadata": {}, "outputs": [],
            "execution_count": None}  # fmt: skip
    content = {"nbformat": 4, "nbformat_minor": minor, "metadata": {}, "cells": [cell]}
    (tmp_path / "old.ipynb").write_text(json.dumps(content))
    assert read_notebook(tmp_path / "old.ipynb").cells[0].source == "1\n+1"


DISPLAYED = (
    "first = display('a', display_id='k')",
    "second = display('x', display_id=True)\nsecond",
    "first.update('b')\nsecond.update('y')",
    "import ipywidgets\nwith ipywidgets.Output():\n    print(1)\nprint(2)",
    "ipywidgets.interact(lambda n: print('got', n), n=3);",
)


@pytest.mark.long
def test_displays_that_change_later_and_widgets_are_as_jupyter_recorded_them(
    save: Callable[..., Path],
) -> None:
    from nbclient import NotebookClient

    path = save(*map(new_code_cell, DISPLAYED))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    assert notebook.cells[0].outputs[0].data["text/plain"] == "'b'"
    nbformat.write(notebook, path)
    report = verify(path)
    assert report.reproduces, report.to_json()


@pytest.mark.long
async def test_what_a_later_step_updates_is_updated_in_the_notebook_and_not_in_the_trace(
    tmp_path: Path,
) -> None:
    cells = [*DISPLAYED, "final_answer(1)"]
    model = ScriptedModel([f"```python\n{source}\n```" for source in cells])
    async with Session(model=model, out=tmp_path / "out") as session:
        run = await session.run("Show.")
    path = tmp_path / "out" / "run.ipynb"
    codes = [
        cell for cell in read_notebook(path).cells
        if cell.metadata.get("kernel_agent", {}).get("role") == "code"
    ]  # fmt: skip
    assert codes[0].outputs[0].data["text/plain"] == "'b'"
    assert [output.get("text") for output in codes[2].outputs] == []
    assert [output.get("text") for output in codes[3].outputs] == ["2\n"]
    recorded = run.steps[0].result
    assert recorded is not None
    assert recorded.outputs[0]["data"]["text/plain"] == "'a'"
    assert "'b'" in run.steps[2].observation.text
    assert "1" in run.steps[3].observation.text
    report = await asyncio.to_thread(verify, path)
    assert report.reproduces, report.to_json()


@pytest.mark.long
async def test_an_answer_that_was_none_fails_again_wherever_the_notebook_runs(
    tmp_path: Path,
) -> None:
    """In our kernel, and in plain Jupyter by the module that lies beside the notebook."""
    from nbclient import NotebookClient

    cells = [
        "x = 3\nfinal_answer(n for n in range(x))",
        "final_answer(print(x))",
        "final_answer(x)",
    ]
    replies = [f"Next.\n\n```python\n{source}\n```" for source in cells]
    async with Session(model=ScriptedModel(replies), out=tmp_path / "out") as session:
        run = await session.run("What is x?")
    assert (run.answer, len(run.steps)) == (3, 3)
    assert "list(...)" in run.steps[0].observation.text
    assert run.notebook is not None
    assert (await verify_notebook(run.notebook)).reproduces
    notebook = nbformat.read(run.notebook, as_version=4)
    notebook.cells.insert(0, new_code_cell("import sys; sys.modules['kernel_agent'] = None"))
    beside = {"metadata": {"path": str(run.notebook.parent)}}
    client = NotebookClient(notebook, timeout=60, kernel_name="python3", resources=beside)
    await client.async_execute()
    outputs = [out for c in notebook.cells for out in c.get("outputs", [])]
    told = [out.evalue.partition(":")[0] for out in outputs if out.output_type == "error"]
    assert told == ["a generator is no answer", "None is no answer"]


WIDE = """import pandas as pd
table = pd.DataFrame([range(8)], columns=[f"column {n:06}" for n in range(8)])
print(table)"""


@pytest.mark.parametrize(
    ("ours", "width"),
    [
        pytest.param(None, 80, marks=pytest.mark.long),
        pytest.param({"schema": 1}, 80, marks=pytest.mark.long),
        ({"schema": 1, "texts": {"a": "b"}}, 160),
    ],
)
def test_a_wide_table_is_printed_again_at_the_width_at_which_it_was(
    tmp_path: Path, ours: dict[str, Any] | None, width: int
) -> None:
    """Pandas' own in notebooks of others and in early ones of ours, ours in the rest."""
    with pd.option_context("display.width", width, "display.max_columns", 20):  # as in a kernel
        text = str(pd.DataFrame([range(8)], columns=[f"column {n:06}" for n in range(8)]))
    assert (len(text.split("\n")) == 2) == (width == 160)
    notebook = new_notebook(cells=[printed(WIDE, f"{text}\n")])
    if ours is not None:
        notebook.metadata["kernel_agent"] = ours
    path = tmp_path / "run.ipynb"
    nbformat.write(notebook, path)
    (cell,) = [cell for cell in verify(path).cells if cell.index == 0 and not cell.role]
    assert cell.verdict == Verdict.SAME, cell.detail


def test_the_command_leaves_its_verdict_with_the_day_until_the_code_is_changed(
    golden: Path,
) -> None:
    """And says what was compared."""
    done = run_command(golden.parent, "verify", golden.name)
    assert done.returncode == 0
    assert "Compared: texts, the text of tables, types and messages of errors" in done.stdout
    assert "The verdict stands near the top of the notebook." in done.stdout
    notebook = read_notebook(golden)
    roles = [cell.metadata.kernel_agent.role for cell in notebook.cells]
    assert roles[roles.index("verified") - 1] == "head"
    assert run_command(golden.parent, "verify", golden.name).stdout.count("other code") == 0
    [cell for cell in notebook.cells if cell.cell_type == "code"][-1].source = "1 + 1"
    nbformat.write(notebook, golden)
    again = run_command(golden.parent, "verify", golden.name, "--json")
    assert (
        json.loads(again.stdout)["voided"] == notebook.metadata.kernel_agent.certificate.time[:10]
    )
    notebook = read_notebook(golden)
    (line,) = [c.source for c in notebook.cells if c.metadata.kernel_agent.role == "verified"]
    assert json.loads(again.stdout)["sources_sha256"][:8] in line


def test_a_notebook_of_somebody_else_stays_as_it_is(save: Callable[..., Path]) -> None:
    path = save(printed("print(1)", "1"))
    before = path.read_bytes()
    done = run_command(path.parent, "verify", path.name)
    assert done.returncode == 0
    assert "The verdict stands" not in done.stdout
    assert path.read_bytes() == before


def test_a_notebook_that_cannot_be_written_is_verified_all_the_same(golden: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("permission bits do not hold for root")
    golden.parent.chmod(0o500)
    try:
        done = run_command(golden.parent, "verify", golden.name)
    finally:
        golden.parent.chmod(0o700)
    assert "The verdict is not in the notebook" in done.stdout


# --- the level ------------------------------------------------------------------------------------


def test_a_level_that_starts_no_jupyter_kernel_here_is_refused_by_name(golden: Path) -> None:
    for level in ("interpreter", "remote"):
        with pytest.raises(SandboxError, match=f"^the level {level} runs no notebook"):
            verify(golden, sandbox=level)
    with pytest.raises(SandboxError, match="Did you mean bubblewrap"):
        verify(golden, sandbox="bubblewarp")


@pytest.mark.long
def test_the_command_takes_its_level_from_the_setting_and_an_option_goes_before_it(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    """Told by what a cell does to a file beside the notebook's folder; `none` is said first."""
    canary = tmp_path / "home" / "canary"
    canary.parent.mkdir()
    path = save(printed(f"print(open({str(canary)!r}, 'w').write('x'))", "1\n"))
    free = {"KERNEL_AGENT_SANDBOX": "none"}
    done = run_command(tmp_path, "verify", path.name, "--sandbox", "auto", **free)
    assert (done.returncode, done.stderr, canary.exists()) == (1, "", False)
    done = run_command(tmp_path, "verify", path.name, **free)
    assert (done.returncode, canary.exists()) == (0, True), done.stdout
    assert done.stderr.startswith("NOT SANDBOXED")
