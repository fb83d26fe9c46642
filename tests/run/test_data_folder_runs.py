"""Runs about a folder of data: what a model is told, what was read, where the notebook travels."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.command import run_command
from support.replies import cell

from kernel_agent import FakeKernel, ScriptedModel, Session
from kernel_agent.errors import InputError
from kernel_agent.evaluation.tasks import read_tasks
from kernel_agent.inkernel.folders import Indexed
from kernel_agent.notebook import copy_read
from kernel_agent.records import Notice, load, read_trace
from kernel_agent.session import verify
from kernel_agent.session.folders import kept

TABLE = "day,region,rain\n2024-01-01,north,3\n2024-01-02,south,4\n"
READ = (
    "import pandas as pd\n"
    "path = find_data('rain Boston')['path'][0]\n"
    "final_answer(int(pd.read_csv(path)['rain'].sum()))"
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    for city in ("boston", "denver", "miami"):
        (folder / "rain").mkdir(parents=True, exist_ok=True)
        (folder / "rain" / f"{city}.csv").write_text(TABLE)
    (folder / ".env").write_text("KEY=1")
    return folder


def script(*cells: str) -> ScriptedModel:
    return ScriptedModel([cell(code) for code in cells], keep_requests=True)


async def test_a_run_finds_a_file_reads_it_in_place_and_says_so(tmp_path, lake):
    """Nothing is copied; what was opened is on record, with its content, and nothing else is."""
    model, notices = script(READ), list[str]()
    tell = lambda event: notices.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    async with Session(model=model, data=lake, out=tmp_path / "out", on_event=tell) as session:
        run = await session.run("How much rain fell in Boston?")
    assert run.value == 7
    assert [file.path for file in run.read] == ["data/lake/rain/boston.csv"]
    assert (tmp_path / "out/data/lake").is_symlink()
    asked = "\n".join(message.content for message in model.requests[0])
    assert "def find_data(" in asked
    assert "- data/lake/rain/boston.csv (CSV, 2 rows): day, region, rain" in asked
    assert len(asked[asked.index("- data/lake (a folder") :]) < 3_200
    assert any("3 files" in text and "left out: .env" in text for text in notices)
    start, *_, stop = read_trace(run.trace)
    assert start.data[0].files == 3
    assert stop.read == run.read


async def test_the_notebook_travels_with_what_it_read_and_runs_again(tmp_path, lake):
    async with Session(model=script(READ), data=lake, out=tmp_path / "out") as session:
        run = await session.run("How much rain fell in Boston?")
    away = tmp_path / "away"
    away.mkdir()
    told = run_command(away, "export", str(run.trace), "--with-data", "-o", "rain.ipynb")
    assert told.returncode == 0
    copied = {str(p.relative_to(away)) for p in away.rglob("*") if p.is_file()}
    assert copied == {"rain.ipynb", "replay_rain.py", "data/lake/rain/boston.csv"}
    shutil.rmtree(lake)
    assert verify(away / "rain.ipynb").reproduces
    first = next(c for c in nbformat.read(away / "rain.ipynb", 4).cells if c.cell_type == "code")
    assert "# Reads data/lake/rain/boston.csv beside this notebook" in first.source


@pytest.mark.long
def test_what_was_read_can_stay_in_the_run_s_own_folder(tmp_path, lake):
    """In the place of the link, so that the folder is a record to hand over."""
    (tmp_path / "replies.jsonl").write_text(json.dumps({"content": cell(READ)}))
    (tmp_path / "single.csv").write_text(TABLE)
    words = ["run", "How much rain fell in Boston?", "--data", "lake", "--data", "single.csv"]
    model = ["--model", "scripted:replies.jsonl", "--format", "fenced"]
    done = run_command(tmp_path, *words, *model, "--copy-data", "--out", "out")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(lake)
    copied = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out/data").rglob("*.csv")}
    assert copied == {"data/lake/rain/boston.csv", "data/single.csv"}
    assert verify(tmp_path / "out/run.ipynb").reproduces


@pytest.mark.long
async def test_verified_in_its_own_folder_it_reads_the_files_that_have_not_changed(tmp_path, lake):
    async with Session(model=script(READ), data=lake, out=tmp_path / "out") as session:
        run = await session.run("How much rain fell in Boston?")
    report = verify(run.notebook)
    assert report.reproduces
    assert not report.left_out
    (lake / "rain/boston.csv").write_text(TABLE.replace("3", "5"))
    report = verify(run.notebook)
    assert not report.reproduces
    assert report.left_out == ("data/lake/rain/boston.csv (it has changed since)",)
    told = run_command(tmp_path, "export", str(run.trace), "--with-data", "-o", "away.ipynb")
    assert "boston.csv (it has changed since the run)" in told.stdout
    assert not (tmp_path / "data/lake/rain/boston.csv").exists()


async def test_a_link_of_a_stranger_s_notebook_gives_nothing_that_they_did_not_know(tmp_path, lake):
    """The folder of data is a link: to somewhere else it is no data."""
    async with Session(model=script(READ), data=lake, out=tmp_path / "out") as session:
        run = await session.run("How much rain fell in Boston?")
    secret = tmp_path / "secret"
    (secret / "rain").mkdir(parents=True)
    (secret / "rain/boston.csv").write_text("day,region,rain\n2024-01-01,north,4242424\n")
    (tmp_path / "out/data/lake").unlink()
    (tmp_path / "out/data/lake").symlink_to(secret)
    report = verify(run.notebook)
    assert "4242424" not in json.dumps(report.to_json())
    assert not report.reproduces


async def test_a_trace_of_a_stranger_copies_no_file_that_it_does_not_know(tmp_path, lake):
    async with Session(model=script(READ), data=lake, out=tmp_path / "out") as session:
        run = await session.run("How much rain fell in Boston?")
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    away = tmp_path / "away"
    away.mkdir()
    text = run.trace.read_text()
    known = lake / "rain/boston.csv"
    for name, source in (("data/lake/rain/boston.csv", secret), ("conftest.py", known)):
        forged = text.replace(str(known), str(source)).replace(
            '"path": "data/lake/rain/boston.csv"', f'"path": "{name}"'
        )
        (tmp_path / "trace.jsonl").write_text(forged)
        records, _ = load(tmp_path / "trace.jsonl")
        assert copy_read(records, tmp_path, away)
        assert [path for path in away.rglob("*") if path.is_file()] == []


@pytest.mark.long
async def test_a_folder_that_holds_the_runs_is_data_without_them(tmp_path, lake, monkeypatch):
    """``--data .``: the session's own folder lies in it, and earlier ones."""
    monkeypatch.chdir(lake)
    look = "import glob\nfinal_answer(sorted(glob.glob('data/lake/runs/*/*')))"
    async with Session(model=script(READ), data=".") as session:
        first = await session.run("How much rain fell in Boston?")
        names = [line for line in session.list_data() if "runs/" in line]
    async with Session(model=script(look), data=".") as session:
        second = await session.run("What is there?")
    assert (first.value, names) == (7, [])
    assert all(Path(path).parts[3] == second.trace.parent.name for path in second.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="the cells of an ordinary user are that user")
async def test_files_that_the_cells_may_not_read_are_counted(tmp_path, lake):
    """Started by root they are another user: a private file is there and cannot be read."""
    (lake / "rain/denver.csv").chmod(0o600)
    (lake / "private").mkdir(mode=0o700)
    (lake / "private/a.csv").write_text(TABLE)
    notices = list[str]()
    tell = lambda event: notices.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    session = Session(model=script(), data=lake, out=tmp_path / "out", on_event=tell)
    async with session:
        listed = session.list_data()
    assert any("2 files cannot be read by the cells" in text for text in notices)
    assert any("denver.csv (not readable)" in line for line in listed)


@pytest.mark.long
async def test_several_folders_and_files_are_told_of_together(tmp_path, lake):
    other = tmp_path / "other" / "lake"  # of the same name
    other.mkdir(parents=True)
    (other / "snow.csv").write_text("day,snow\n2024-01-01,1\n")
    (tmp_path / "single.csv").write_text("a,b\n1,2\n")
    code = "final_answer(find_data('snow')['path'][0])"
    model = script(code)
    data = [lake, other, tmp_path / "single.csv"]
    async with Session(model=model, data=data, out=tmp_path / "out") as session:
        run = await session.run("Where is the snow?")
    assert run.value == "data/lake-2/snow.csv"
    asked = model.requests[0][-1].content
    assert "- data/single.csv (CSV" in asked
    assert "- data/lake (a folder" in asked
    assert "- data/lake-2 (a folder" in asked


@pytest.mark.long
async def test_an_agent_of_the_run_reads_the_same_folders(tmp_path, lake):
    """Without another look through them; what it read is on its own record and on that above."""
    model = script(
        "found = delegate('How much rain fell in Boston?')\nfinal_answer(found)",
        READ,
    )
    notices = list[str]()
    tell = lambda event: notices.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    session = Session(
        model=model, data=lake, tools=["delegate"], out=tmp_path / "out", on_event=tell
    )
    async with session:
        run = await session.run("Ask somebody about the rain in Boston.")
    assert run.value == 7
    (agent,) = run.agents
    *_, stop = read_trace(tmp_path / "out" / agent.folder)
    assert [file.path for file in stop.read] == ["data/lake/rain/boston.csv"]
    assert [file.path for file in run.read] == ["data/lake/rain/boston.csv"]
    assert sum("3 files" in text for text in notices) == 1


@pytest.mark.long
async def test_a_folder_that_goes_in_mid_run_is_an_error_of_the_cell(tmp_path, lake):
    model = script(
        "import pandas as pd\npd.read_csv('data/lake/rain/boston.csv')",
        "print(pd.read_csv('data/lake/rain/denver.csv'))",
        "final_answer('gone')",
    )
    async with Session(model=model, data=lake, out=tmp_path / "out") as session:
        first = await session.execute("open('data/lake/rain/boston.csv').read()")
        shutil.rmtree(lake)
        run = await session.run("What is there?")
    assert first.ok
    assert run.text == "gone"
    assert [step.result.error.ename for step in run.steps[:2]] == ["FileNotFoundError"] * 2
    assert [file.path for file in run.read] == []


async def test_a_file_that_grows_while_it_is_read_has_the_content_of_the_end(tmp_path, lake):
    code = "text = open('data/lake/rain/boston.csv').read()\nfinal_answer(len(text))"
    async with Session(model=script(code), data=lake, out=tmp_path / "out") as session:
        with (lake / "rain/boston.csv").open("a") as growing:
            growing.write("2024-01-03,east,5\n")
        run = await session.run("How long is it?")
    (read,) = run.read
    assert read.bytes == (lake / "rain/boston.csv").stat().st_size == run.value


async def test_untrusted_folders_are_marked_as_data_and_so_is_what_is_found(tmp_path, lake):
    model = script("print(find_data('rain')['path'][0])", "final_answer(1)")
    options = {"untrusted_data": True, "data": lake, "out": tmp_path / "out"}
    async with Session(model=model, **options) as session:
        await session.run("Where is rain?")
        assert session.tainted
    assert 'df = pd.read_csv("data/lake' not in model.requests[0][0].content
    begun = model.requests[0][-1].content
    assert begun.index("untrusted") < begun.index("data/lake")


async def test_a_kernel_that_cannot_look_through_folders_is_told_of_and_goes_on(tmp_path, lake):
    notices = list[str]()
    tell = lambda event: notices.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    model = script("final_answer(len(find_data('rain')))")
    session = Session(kernel=FakeKernel, model=model, data=lake, out=tmp_path / "o", on_event=tell)
    async with session:
        run = await session.run("Rain?")
    assert run.value == 0
    assert any("was not looked through" in text for text in notices)


class Looking(FakeKernel):
    """Looks through folders in this process, and counts how often."""

    looked = 0

    def __init__(self, *, cwd: Path, **options: Any) -> None:
        super().__init__(cwd=cwd, **options)
        self._cwd = cwd

    async def index(self, folders: Any, *, sample: int, seconds: float) -> Any:
        Looking.looked += 1
        with contextlib.chdir(self._cwd):
            return Indexed(folders, sample, seconds)._repr_mimebundle_()


async def test_a_folder_is_looked_through_again_only_when_a_file_has_changed(tmp_path, lake):
    """The index is the user's alone; one that others could have written is not believed."""
    for number in range(kept.MIN_FILES):
        (lake / f"other{number}.csv").write_text(TABLE)
    Looking.looked, count = 0, itertools.count()

    async def find(words: str) -> tuple[str, int]:
        model = script(f"final_answer(find_data({words!r})['path'][0])")
        out = tmp_path / f"out{next(count)}"
        async with Session(kernel=Looking, model=model, data=lake, out=out) as session:
            run = await session.run("Which?")
        return run.value, Looking.looked

    assert await find("rain boston") == ("data/lake/rain/boston.csv", 1)
    assert await find("rain denver") == ("data/lake/rain/denver.csv", 1)
    (index,) = (Path(os.environ["XDG_CACHE_HOME"]) / "kernel-agent/indexes").iterdir()
    assert index.stat().st_mode & 0o777 == 0o600
    (lake / "rain/denver.csv").write_text(TABLE.replace("rain", "snow"))
    assert await find("snow") == ("data/lake/rain/denver.csv", 2)
    for spoil in (lambda path: path.write_bytes(b"no index"), lambda path: path.chmod(0o666)):
        before = Looking.looked
        for path in index.parent.iterdir():
            spoil(path)
        assert await find("snow") == ("data/lake/rain/denver.csv", before + 1)


@pytest.mark.long
async def test_a_folder_of_the_settings_is_data_where_none_is_named(tmp_path, lake, monkeypatch):
    """Of one's own sessions; not of an agent's of the run, which has its folders already."""
    settings = tmp_path / "settings.toml"
    settings.write_text(f'data = ["{lake}"]')
    monkeypatch.setenv("KERNEL_AGENT_CONFIG", str(settings))
    async with Session(model=script(READ, "final_answer(1)"), out=tmp_path / "out") as session:
        run = await session.run("How much rain fell in Boston?")
    assert run.value == 7
    other = tmp_path / "other.csv"
    other.write_text(TABLE)
    async with Session(model=script(READ), data=other, out=tmp_path / "out2") as session:
        run = await session.run("How much rain fell in Boston?")
    assert [file.path for file in read_trace(run.trace)[0].data] == ["data/other.csv"]


async def test_a_level_that_shares_no_folder_says_so_and_leaves_nothing(tmp_path, lake):
    session = Session(model=script(), data=lake, sandbox="interpreter", out=tmp_path / "out")
    with pytest.raises(InputError, match="reads text files only"):
        await session.start()
    assert not (tmp_path / "out").exists()


def test_the_command_shows_what_a_folder_holds_and_which_files_fit(lake):
    told = run_command(lake, "data", ".")
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, HEAD)
    assert "left out: .env" in told.stderr
    found = run_command(lake, "data", ".", "rain", "in", "Boston", "--most", "1")
    assert found.stdout.splitlines() == [
        "data/lake/rain/boston.csv (CSV, 2 rows): day, region, rain — name: rain, boston"
    ]
    nothing = run_command(lake, "data", ".", "zebra")
    assert (nothing.returncode, nothing.stdout) == (1, "no file fits these words\n")


def test_the_command_says_first_that_nothing_confines_what_looks_through_a_folder(lake):
    """As of a run: who has chosen `none` and forgotten it is told."""
    told = run_command(lake, "data", ".", KERNEL_AGENT_SANDBOX="none")
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, HEAD)
    assert told.stderr.startswith("NOT SANDBOXED: ")


HEAD = "- data/lake (a folder with 3 files, 162 B)"


def test_an_evaluation_s_task_may_have_a_folder(tmp_path, lake):
    task = {"id": "rain", "task": "How much?", "data": ["lake"], "answer": 7}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    (read,) = read_tasks(tmp_path / "tasks.jsonl").tasks
    assert read.data == (str(lake.resolve()),)
