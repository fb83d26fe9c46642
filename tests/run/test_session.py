"""A session with a real kernel and a scripted model: what a developer who embeds it relies on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from support.replies import cell
from support.waiting import until

from kernel_agent import ScriptedModel, Session, tool, verify
from kernel_agent.errors import InputError, SandboxError, UsageError
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Event, Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart, RunStop


def make(replies: list[str], out: Path, **options: object) -> Session:
    return Session(model=ScriptedModel(replies), out=out, **options)  # type: ignore[arg-type]  # options are passed on


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "sales 2024.csv"
    path.write_text("region,amount\nnorth,3\nsouth,4\n")
    return path


async def test_a_run_leaves_answer_trace_notebook_data_and_files(
    tmp_path: Path, table: Path
) -> None:
    replies = [
        cell("import pandas as pd\nsales = pd.read_csv('data/sales 2024.csv')\nsales"),
        cell("sales.to_csv('copy.csv', index=False)\nfinal_answer(int(sales.amount.sum()))"),
    ]
    async with make(replies, tmp_path / "out", data=[table]) as session:
        run = await session.run("What were the total sales?")
    assert (run.status, run.answer, run.text) == (ExitStatus.ANSWERED, 7, "7")
    assert len(run.steps) == 2
    assert "2 rows x 2 columns" in run.steps[0].observation.text
    assert run.files == ("copy.csv",)
    assert run.sandbox in ("bubblewrap", "namespaces", "landlock")
    assert run.sandbox_report["report"]["holds"]["network"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "copy.csv",
        "data",
        "run.ipynb",
        "trace.jsonl",
    ]
    assert (tmp_path / "out/data/sales 2024.csv").stat().st_mode & 0o222 == 0
    notebook = nbformat.read(run.notebook, as_version=4)
    nbformat.validate(notebook)
    start, *_, stop = read_trace(run.trace)
    assert isinstance(start, RunStart)
    assert isinstance(stop, RunStop)
    assert start.data[0].path == "data/sales 2024.csv"
    assert start.sandbox["level"] == run.sandbox


async def test_stop_ends_a_running_cell_at_once(tmp_path: Path) -> None:
    cells = "print('on it')\nopen('here', 'w').close()\nimport time; time.sleep(60)"
    async with make([cell(cells)], tmp_path) as session:
        running = asyncio.create_task(session.run("Wait"))
        await until(lambda: list(tmp_path.rglob("here")))
        session.stop()
        run = await asyncio.wait_for(running, 2)
    assert run.status is ExitStatus.INTERRUPTED
    assert "on it" in run.steps[0].observation.text
    assert run.trace.exists()


async def test_a_lost_kernel_ends_the_run_and_the_next_one_is_told(tmp_path: Path) -> None:
    events: list[Event] = []
    replies = [cell("import os; os._exit(9)"), cell("final_answer('alive')")]
    async with make(replies, tmp_path, on_event=events.append) as session:
        lost = await session.run("Die")
        again = await session.run("Live")
    assert lost.status is ExitStatus.KERNEL_LOST
    assert "exit code 9" in lost.message
    assert again.answer == "alive"
    assert any(isinstance(e, Notice) and "all variables are gone" in e.text for e in events)


def test_the_interrupt_of_a_person_ends_a_cell_of_theirs_and_the_session_goes_on(
    tmp_path: Path,
) -> None:
    @tool
    def interrupt() -> None:
        """Press Ctrl-C."""
        os.kill(os.getpid(), signal.SIGINT)

    with make([], tmp_path, tools=[interrupt]) as session:
        result = session.execute_sync("x = 1\ninterrupt()\nimport time; time.sleep(60)")
        assert (result.status, result.seconds < 10) == ("interrupted", True)
        assert session.execute_sync("assert x == 1").ok


def test_a_process_that_was_forked_is_told_that_the_session_is_not_its_own(tmp_path: Path) -> None:
    """It has the session's objects without the thread that they need."""
    program = """
import os, sys
from kernel_agent import Session
from kernel_agent.errors import UsageError
with Session(model="offline", out=sys.argv[1]) as session:
    session.execute_sync("x = 1")
    child = os.fork()
    if not child:
        try:
            session.execute_sync("x")
        except UsageError as error:
            print(error, flush=True)
        session.close_sync()
        os._exit(0)
    os.waitpid(child, 0)
    print(session.execute_sync("x").status)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "this session belongs to the process that started it: make one after the fork",
        "ok",
    ]


async def test_wrong_use_is_one_line(tmp_path: Path, table: Path) -> None:
    with pytest.raises(UsageError, match="not started"):
        await make([], tmp_path / "a").run("Why?")
    with pytest.raises(SandboxError, match="strict"):
        make([], tmp_path / "b", sandbox="strict")
    with pytest.raises(InputError, match=r"nothing\.csv"):
        async with make([], tmp_path / "c", data=[tmp_path / "nothing.csv"]):
            pass
    assert not (tmp_path / "c").exists()
    with pytest.raises(InputError, match="--out"):
        async with make([], table / "below a file"):
            pass

    async def never_awaited(event: Event) -> None: ...

    with pytest.raises(UsageError, match="plain function"):
        make([], tmp_path / "e", on_event=never_awaited)
    async with make([], tmp_path / "d") as session:
        with pytest.raises(UsageError, match="plain function"):
            await session.run("Why?", on_event=never_awaited)  # type: ignore[arg-type]  # refused
        with pytest.raises(UsageError, match="empty"):
            await session.run("  ")
        with pytest.raises(UsageError, match="event loop"):
            session.run_sync("Why?")


async def test_a_cell_that_forges_trace_and_notebook_changes_neither(tmp_path: Path) -> None:
    """Where the level does not hide the files, both are written from what the host recorded."""
    forge = (
        "import os\n"
        "for name in ('trace.jsonl', 'run.ipynb'):\n"
        "    if os.path.lexists(name): os.remove(name)\n"
        "    os.symlink(os.path.abspath('../secret'), name)"
    )
    (tmp_path / "secret").write_text("SECRET")
    told: list[Event] = []
    replies = [cell("print('before')"), cell(forge), cell("final_answer(42)")]
    async with make(replies, tmp_path / "out", on_event=told.append) as session:
        run = await session.run("forge")
        session._parts.trace.restore()  # nothing is left to be done
    assert (run.status, run.answer) == (ExitStatus.ANSWERED, 42)
    assert len(read_trace(run.trace)) == 5
    assert run.notebook is not None
    assert not run.notebook.is_symlink()
    assert "before" in run.notebook.read_text()
    assert (tmp_path / "secret").read_text() == "SECRET"
    if run.sandbox == "none":
        assert any("written again" in e.text for e in told if isinstance(e, Notice))


async def test_a_cell_that_puts_folders_in_the_place_of_trace_and_notebook_destroys_neither(
    tmp_path: Path,
) -> None:
    replies = [
        cell("print('before')"),
        cell(
            "import os\n"
            "for name in ('trace.jsonl', 'run.ipynb'):\n"
            "    if os.path.lexists(name): os.remove(name)\n"
            "    os.makedirs(f'{name}/theirs')"
        ),
        cell("final_answer(42)"),
    ]
    told: list[Event] = []
    options = {"sandbox": "none", "on_event": told.append}
    async with make(replies, tmp_path / "out", **options) as session:
        run = await session.run("forge")
    assert len(read_trace(run.trace)) == 5
    assert run.notebook is not None
    assert "before" in run.notebook.read_text()
    for name in ("trace.jsonl", "run.ipynb"):
        assert (tmp_path / "out" / f"{name}.other" / "theirs").is_dir()
    assert any("written again" in e.text for e in told if isinstance(e, Notice))


async def test_a_trace_that_changes_after_its_run_is_whole_again_at_the_end(tmp_path: Path) -> None:
    """A thread of a cell lives until the kernel ends."""
    told: list[Event] = []
    async with make([cell("final_answer(42)")], tmp_path / "out", on_event=told.append) as session:
        run = await session.run("answer")
        with run.trace.open("a") as file:
            file.write("forged\n")
    assert len(read_trace(run.trace)) == 3
    assert any("written again" in e.text for e in told if isinstance(e, Notice))


async def test_the_notebook_of_a_run_stays_out_of_reach_of_later_cells(tmp_path: Path) -> None:
    """What the host writes while the kernel lives is hidden from it like what was there before."""
    reach = (
        "import os\ndone = []\n"
        "for do in (lambda: open('run.ipynb').read(1), lambda: open('run.ipynb', 'a').write('x'),"
        " lambda: os.rename('run.ipynb', 'x'), lambda: os.remove('run.ipynb')):\n"
        "    try: done.append(do())\n"
        "    except OSError: pass\n"
        "print('done:', [d for d in done if d != ''])"
    )
    replies = [cell("final_answer('first')"), cell("final_answer('second')")]
    async with make(replies, tmp_path / "out") as session:
        if session.sandbox in ("none", "landlock"):
            pytest.skip(f"the level {session.sandbox} hides no file")
        for answer in ("first", "second"):
            run = await session.run("answer")
            before = session.notebook_path.read_bytes()
            result = await session.execute(reach)
            assert result.outputs[0]["text"] == "done: []\n"
            assert session.notebook_path.read_bytes() == before
            assert answer in before.decode()
    assert run.notebook is not None
    assert run.notebook.stat().st_nlink == 1


async def test_what_a_cell_leaves_in_the_folder_neither_hangs_nor_misleads_the_host(
    tmp_path: Path,
) -> None:
    leave = (
        "import os\n"
        "os.mkfifo('pipe'); os.symlink('/etc/passwd', 'link'); os.symlink('.', 'loop')\n"
        "open('line\\nbreak\\x1b[2J.txt', 'w').write('x')\n"
        "open('huge.bin', 'wb').truncate(1 << 29)\n"
        "os.makedirs('/'.join(['d'] * 60))\n"
        "final_answer('done')"
    )
    async with make([cell(leave)], tmp_path / "out") as session:
        run = await session.run("leave things")
    assert run.status is ExitStatus.ANSWERED
    assert run.files == ("huge.bin", "line\nbreak\x1b[2J.txt")
    report = verify(run.notebook)
    assert {"pipe", "link", "loop", "huge.bin"}.isdisjoint(report.left_out)


# A process of its own: what other tests leave on the heap would be measured, too.
TOOLS_THAT_GIVE_MUCH = """
import asyncio, ctypes, gc, re, sys
from pathlib import Path
from kernel_agent import Session, tool

@tool
def large(n: int) -> str:
    'Return a large text.'
    return "x" * n

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\\s+(\\d+)", status)[1]) // 1024

async def main():
    async with Session(model="offline", out=sys.argv[1], tools=[large]) as session:
        for _ in range(4):
            result = await session.execute("for _ in range(10):\\n    large(20_000_000)")
            assert result.ok
            print(resident(), flush=True)

asyncio.run(main())
"""


@pytest.mark.long
def test_what_tools_give_does_not_pile_up_on_the_host(tmp_path: Path) -> None:
    """A session keeps answers for an undo, and no more than it has room for."""
    command = [sys.executable, "-c", TOOLS_THAT_GIVE_MUCH, str(tmp_path / "out")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    megabytes = [int(line) for line in done.stdout.split()]
    # Each round gives 200 MB: all that was kept would be 600 more at the end.
    assert len(megabytes) == 4
    assert megabytes[-1] - megabytes[0] < 100, megabytes
