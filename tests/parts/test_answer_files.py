"""The answer as a file in the run's folder, and alone on standard output."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from support.command import environment, run_command
from support.replies import cell

from kernel_agent import ScriptedModel, Session
from kernel_agent.session import answer_bytes, answer_files, keep_answer

TABLE = """import pandas as pd
final_answer(pd.DataFrame({'region': ['N', '=S'], 'sold': [1234567.5, None]}))"""
FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nfinal_answer(plt.gcf())"


def script(folder: Path, code: str) -> str:
    (folder / "script.jsonl").write_text(json.dumps({"content": cell(code)}) + "\n")
    return "--model=scripted:script.jsonl"


def alone(folder: Path, code: str, into: int = subprocess.PIPE) -> subprocess.CompletedProcess:
    options = ("run", "What?", script(folder, code), "--answer-only", "--out=out")
    command = [sys.executable, "-m", "kernel_agent", *options]
    return subprocess.run(
        command, cwd=folder, env=environment(), stdout=into, stderr=subprocess.PIPE, check=False
    )


def test_a_table_is_written_with_all_its_rows_and_named(tmp_path):
    done = run_command(tmp_path, "run", "What?", script(tmp_path, TABLE), "--out=out")
    assert "answer.csv" in done.stdout
    assert (tmp_path / "out/answer.csv").read_text() == "region,sold\nN,1234567.5\n=S,\n"


DAYS = """import sys
sys.modules['pyarrow'] = None
import pandas as pd
days = pd.to_datetime(['2026-01-31', None])
t = pd.DataFrame({'region': ['N', '=S, ö'], 'day': days})
final_answer(t)"""
TABLES = {
    DAYS: 'region,day\nN,2026-01-31\n"=S, ö",\n',
    "final_answer(t.set_index('region').day)": 'region,day\nN,2026-01-31\n"=S, ö",\n',
    "final_answer(t.loc[[0] * 400])": "region,day\n" + "N,2026-01-31\n" * 400,
    "final_answer(pd.DataFrame({'a': [1, 'x']}))": "a\n1\nx\n",  # has no form but text
}
OTHERS = {
    "final_answer(1234567.5)": "1234567.5\n",
    "final_answer({'a': [1, None]})": '{"a": [1, null]}\n',
    "final_answer('North, by far')": "North, by far\n",
    "from decimal import Decimal\nfinal_answer(Decimal('1234.50'))": "1234.50\n",
}


@pytest.mark.long
async def test_all_of_an_answer_is_written_where_pyarrow_is_not_installed(tmp_path):
    """A table with all its rows, also into a file; what is no table for a program alone."""
    answers = TABLES | OTHERS
    async with Session(model=ScriptedModel([*map(cell, answers)]), out=tmp_path / "out") as session:
        for code, written in answers.items():
            run = await session.run("What?")
            assert answer_bytes(run).decode() == written, code
            name = keep_answer(run)
            assert bool(name) == (code in TABLES)
            assert not name or (tmp_path / "out" / name).read_text() == written


def test_the_answer_alone_can_be_read_by_a_program(tmp_path):
    assert alone(tmp_path, TABLE).stdout == b"region,sold\nN,1234567.5\n=S,\n"


@pytest.mark.long
def test_a_figure_is_a_png_alone_and_as_a_file(tmp_path):
    done = alone(tmp_path, FIGURE)
    for png in (io.BytesIO(done.stdout), tmp_path / "out/answer.png"):
        with Image.open(png) as picture:
            assert picture.size == (640, 480)


def test_without_an_answer_nothing_is_written_and_the_code_says_so(tmp_path):
    done = alone(tmp_path, "x = 1")
    assert done.stdout == b""
    assert done.returncode == 4
    assert b"not answered" in done.stderr


@pytest.mark.long
async def test_a_long_answer_is_whole_for_a_program_and_shortened_in_the_trace(tmp_path):
    long = (
        "import pandas as pd\n"
        "final_answer({'numbers': set(range(40_000)), 'table': pd.DataFrame({'n': range(300)})})"
    )
    async with Session(model=ScriptedModel([cell(long)]), out=tmp_path / "out") as session:
        run = await session.run("What?")
    assert run.answer["numbers"]["length"] == 40_000
    numbers, table = json.loads(answer_bytes(run)).values()
    assert numbers == list(range(40_000))
    assert table == [{"n": n} for n in range(300)]


HOSTILE = "N\\x1b]0;owned\\x07\\x9b2J"


@pytest.mark.parametrize(
    ("code", "shown"),
    [(TABLE.replace("=S", HOSTILE), "region,sold\nN,1234567.5\nN2J,\n"),
     pytest.param(f"final_answer({{'a': '{HOSTILE}'}})", '{"a": "N\\u001b]0;owned\\u00072J"}\n',
                  marks=pytest.mark.long),
     pytest.param(FIGURE, "", marks=pytest.mark.long)],
    ids=["table", "dict", "figure"],
)  # fmt: skip
def test_a_terminal_gets_no_escape_sequence_and_no_picture(tmp_path, code, shown):
    ours, theirs = pty.openpty()
    done = alone(tmp_path, code, into=theirs)
    os.close(theirs)
    with contextlib.suppress(OSError), open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123
        assert terminal.read(10_000).decode() == shown.replace("\n", "\r\n")
    assert done.returncode == (0 if shown else 2)
    assert bool(shown) != (b"--answer-only > answer.png" in done.stderr)
    assert (tmp_path / "out/answer.png").exists() != bool(shown)


@pytest.mark.long
async def test_a_long_text_is_whole_for_a_program(tmp_path):
    code = cell("final_answer('é' * 1_500_000)")
    async with Session(model=ScriptedModel([code]), out=tmp_path / "out") as session:
        assert answer_bytes(await session.run("What?")).decode() == "é" * 1_500_000 + "\n"


@pytest.mark.long
async def test_the_next_answer_gets_a_name_of_its_own_and_is_no_file_of_the_cells(tmp_path):
    """Where something is already, nothing is replaced; a link there is not followed."""
    outside = tmp_path / "outside"
    model = ScriptedModel([cell(TABLE), cell(TABLE), cell(TABLE)])
    async with Session(model=model, out=tmp_path / "out") as session:
        (tmp_path / "out/answer.csv").symlink_to(outside)
        assert keep_answer(await session.run("What?")) == "answer-2.csv"
        second = await session.run("What?")
        assert keep_answer(second) == "answer-3.csv"
        third = await session.run("What?")
    assert (second.files, third.files) == ((), ())
    assert not outside.exists()


async def test_a_folder_that_is_gone_is_an_error_of_the_machine(tmp_path):
    async with Session(model=ScriptedModel([cell(TABLE)]), out=tmp_path / "out") as session:
        run = await session.run("What?")
    (tmp_path / "out").rename(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        keep_answer(run)


@pytest.mark.long
async def test_a_large_table_is_parquet_but_for_a_program_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(answer_files, "MAX_CSV", 3)
    async with Session(model=ScriptedModel([cell(TABLE)]), out=tmp_path / "out") as session:
        run = await session.run("What?")
    assert keep_answer(run) == "answer.parquet"
    assert answer_bytes(run) == b"region,sold\nN,1234567.5\n=S,\n"
    assert pd.read_parquet(tmp_path / "out/answer.parquet").shape == (2, 2)
