"""A session with a real kernel and a scripted model: what a developer who embeds it relies on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kernel_agent import Budget, ScriptedModel, Session, tool, verify
from kernel_agent.errors import InputError, SandboxError, TraceError, UsageError
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Event, Notice, Output, ReplyText
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart, RunStop, Step


def cell(code: str, thought: str = "Next.") -> str:
    return f"{thought}\n\n```python\n{code}\n```"


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


async def test_the_namespace_lives_on_between_runs_and_steps_count_on(tmp_path: Path) -> None:
    replies = [cell("x = 5\nfinal_answer(x)"), cell("final_answer(x + 1)")]
    async with make(replies, tmp_path) as session:
        first = await session.run("First?")
        second = await session.run("And then?")
    assert (first.answer, second.answer) == (5, 6)
    assert [s.number for s in second.steps] == [2]
    notebook = nbformat.read(second.notebook, as_version=4)
    text = "\n".join(c.source for c in notebook.cells)
    assert "First?" in text
    assert "And then?" in text


async def test_the_model_sees_the_runs_before(tmp_path: Path) -> None:
    model = ScriptedModel([cell("final_answer(1)"), cell("final_answer(2)")], keep_requests=True)
    async with Session(model=model, out=tmp_path) as session:
        await session.run("First?")
        await session.run("Second?")
    first, second = model.requests
    assert list(second[: len(first)]) == list(first)
    assert "Second?" in second[-1].content


async def test_events_tell_the_story_as_it_happens(tmp_path: Path) -> None:
    events: list[Event] = []
    async with make([cell("print('hi')\nfinal_answer(1)")], tmp_path, on_event=events.append) as s:
        await s.run("Say hi")
    kinds = [type(e).__name__ for e in events if not isinstance(e, ReplyText)]
    assert kinds == ["RunStart", "Acting", "Output", "Output", "Step", "RunStop"]
    assert "".join(e.text for e in events if isinstance(e, ReplyText)).startswith("Next.")
    outputs = [e.output for e in events if isinstance(e, Output)]
    assert outputs[0]["text"] == "hi\n"


async def test_a_cell_without_a_model(tmp_path: Path) -> None:
    async with make([cell("final_answer(y)")], tmp_path) as session:
        result = await session.execute("y = 3\nprint(y)")
        assert (result.status, result.outputs[0]["text"]) == ("ok", "3\n")
        assert (await session.execute("import time; time.sleep(9)", timeout_s=0.2)).status == (
            "timeout"
        )
        assert (await session.run("What is y?")).answer == 3


async def test_tools_are_called_from_cells_and_recorded(tmp_path: Path) -> None:
    @tool
    def rate(currency: str) -> float:
        """Return the value of a currency in euros."""
        return {"USD": 0.9}[currency]

    replies = [
        cell("try:\n    rate('XXX')\nexcept KeyError as error:\n    print('no', error)"),
        cell("final_answer(rate('USD') * 10)"),
    ]
    model = ScriptedModel(replies, keep_requests=True)
    async with Session(model=model, out=tmp_path, tools=[rate]) as session:
        run = await session.run("Ten dollars?")
    assert run.answer == 9.0
    assert "def rate(currency" in model.requests[0][0].content
    calls = [call for step in run.steps for call in (step.result.calls if step.result else ())]
    assert [(c.name, c.ok) for c in calls] == [("rate", False), ("rate", True)]


@pytest.mark.parametrize(
    ("budget", "status"),
    [
        (Budget(max_steps=1), ExitStatus.STEP_LIMIT),
        (Budget(max_seconds=3), ExitStatus.TIME_LIMIT),
    ],
)
async def test_a_limit_is_an_ending_with_what_was_achieved(
    tmp_path: Path, budget: Budget, status: ExitStatus
) -> None:
    replies = [cell("print('found 42')"), cell("import time; time.sleep(30)"), cell("1")]
    async with make(replies, tmp_path, budget=budget) as session:
        run = await session.run("How?")
    assert run.status is status
    assert run.answer is None
    assert "found 42" in run.partial
    assert run.notebook is not None
    assert run.notebook.exists()
    assert run.seconds < 20


async def test_stop_ends_a_running_cell_at_once(tmp_path: Path) -> None:
    async with make([cell("print('on it')\nimport time; time.sleep(60)")], tmp_path) as session:
        running = asyncio.create_task(session.run("Wait"))
        while not session._kernel or not session._kernel._running:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
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


async def test_a_script_that_runs_out_is_a_model_error(tmp_path: Path) -> None:
    async with make([cell("print(1)")], tmp_path) as session:
        run = await session.run("Go on")
    assert run.status is ExitStatus.MODEL_ERROR
    assert len(run.steps) == 1


def test_the_synchronous_face(tmp_path: Path) -> None:
    with make([cell("final_answer(2)"), cell("final_answer(3)")], tmp_path) as session:
        assert session.run_sync("One?").answer == 2
        assert session.execute_sync("1 + 1").ok
        assert session.run_sync("Two?").answer == 3


def test_the_synchronous_face_without_a_context_manager(tmp_path: Path) -> None:
    session = make([cell("final_answer(2)")], tmp_path)
    assert session.run_sync("One?").answer == 2
    session.close_sync()


def test_threads_that_use_a_session_for_the_first_time_at_once_share_one_kernel(
    tmp_path: Path,
) -> None:
    session = make([], tmp_path)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(session.execute_sync, [f"x{n} = {n}" for n in range(4)]))
    assert [result.status for result in results] == ["ok"] * 4
    assert session.execute_sync("assert (x0, x1, x2, x3) == (0, 1, 2, 3)").ok
    session.close_sync()


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


async def test_a_session_says_when_it_is_used_on_another_loop_or_after_its_end(
    tmp_path: Path,
) -> None:
    async with make([], tmp_path) as session:
        elsewhere = asyncio.to_thread(lambda: asyncio.run(session.execute("1")))
        with pytest.raises(UsageError, match="another event loop"):
            await elsewhere
        with pytest.raises(UsageError, match="started already"):
            await session.start()
    for use in (session.execute("1"), session.run("Why?"), session.start()):
        with pytest.raises(UsageError, match="closed"):
            await use
    with pytest.raises(UsageError, match="closed"):
        session.execute_sync("1")


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


async def test_a_disk_that_is_full_is_said_in_one_line(tmp_path: Path) -> None:
    """The run cannot go on without its trace; what was written before stays."""
    async with make([cell("print(1)"), cell("print(2)")], tmp_path) as session:
        assert session._parts is not None
        session._parts.trace._file.close()
        session._parts.trace._file = Path("/dev/full").open("ab")  # noqa: SIM115 - the session closes it
        with pytest.raises(TraceError, match="No space left"):
            await session.run("Fill")


def test_each_line_of_the_trace_is_json_with_its_version(tmp_path: Path) -> None:
    with make([cell("final_answer(1)")], tmp_path) as session:
        run = session.run_sync("One?")
    lines = [json.loads(line) for line in run.trace.read_text().splitlines()]
    assert [(line["v"], line["$"]) for line in lines] == [
        (1, "RunStart"),
        (1, "Step"),
        (1, "RunStop"),
    ]


async def test_a_cell_that_the_guard_refuses_is_an_observation_and_does_not_run(
    tmp_path: Path,
) -> None:
    replies = [
        cell("open('made.txt', 'w').close()\nimport subprocess"),
        cell("!touch made.txt"),
        cell("n = 0\nwhile True:\n    n += 1"),
        cell("import math\nfinal_answer(math.floor(n / 100))"),
    ]
    options = {"guard_imports": ["math"], "max_operations": 1000}
    async with make(replies, tmp_path / "out", **options) as session:
        run = await session.run("guarded")
    shown = [step.observation.text for step in run.steps]
    assert "GuardError: the import of subprocess is not allowed" in shown[0]
    assert "allowed: math." in shown[0]
    assert "shell command" in shown[1]
    assert "GuardError: the cell did more than 1,000 operations" in shown[2]
    assert "n += 1" in shown[2]  # the source is shown as it was written
    assert (run.status, run.answer, run.files) == (ExitStatus.ANSWERED, 10, ())
    # What was refused or ended is not done again by those who run the notebook.
    assert run.notebook is not None
    sources = [c.source for c in nbformat.read(run.notebook, 4).cells if c.cell_type == "code"]
    assert [s for s in sources if "subprocess" in s or "touch" in s or "while True" in s] == []
    start = read_trace(run.trace)[0]
    assert isinstance(start, RunStart)
    assert "Cells may import: math." in start.system_prompt
    assert start.config["max_operations"] == 1000


@pytest.mark.parametrize(
    "options", [{"guard_imports": ["no module"]}, {"guard_imports": [""]}, {"max_operations": 0}]
)
def test_a_guard_that_makes_no_sense_is_one_line(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"module|at least 1"):
        make([], tmp_path / "out", **options)


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


WHO: ContextVar[str] = ContextVar("who")


async def test_tools_and_listeners_belong_to_whoever_asks(tmp_path: Path) -> None:
    """In a notebook what they print then stands below the cell that asked."""
    heard: list[str] = []

    @tool
    def who() -> str:
        """Return who asks."""
        return WHO.get()

    def listen(event: Event) -> None:
        if isinstance(event, Output):
            heard.append(WHO.get())

    WHO.set("who started")
    replies = [cell("print('x')\nfinal_answer(who())")]
    async with make(replies, tmp_path / "out", tools=[who], on_event=listen) as session:
        WHO.set("who asks")
        run = await session.run("who?")
    assert run.answer == "who asks"
    assert set(heard) == {"who asks"}


async def test_a_session_without_a_run_leaves_no_notebook(tmp_path: Path) -> None:
    async with make([], tmp_path / "out") as session:
        await session.execute("1 + 1")
    assert not (tmp_path / "out" / "run.ipynb").exists()


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


async def test_what_was_done_stays_when_a_model_of_ones_own_breaks(tmp_path: Path) -> None:
    """Its error arrives as it is; trace and notebook have the steps, and an ending."""

    def replies() -> Iterator[str]:
        yield cell("x = 41 + 1")
        raise RuntimeError("no such weights")

    async with Session(model=ScriptedModel(replies()), out=tmp_path / "out") as session:
        with pytest.raises(RuntimeError, match="no such weights"):
            await session.run("One?")
        *_, step, stop = read_trace(session.trace_path)
    assert isinstance(step, Step)
    assert isinstance(stop, RunStop)
    assert (stop.status, stop.message) == ("interrupted", "RuntimeError: no such weights")
    notebook = nbformat.read(tmp_path / "out" / "run.ipynb", as_version=4)
    assert "x = 41 + 1" in [c.source for c in notebook.cells]


async def test_a_folder_that_holds_a_session_is_not_mixed_with_another(tmp_path: Path) -> None:
    async with make([cell("final_answer(1)")], tmp_path) as session:
        await session.run("One?")
    before = session.trace_path.read_bytes()
    with pytest.raises(InputError, match="--out"):
        async with make([cell("final_answer(2)")], tmp_path):
            pass
    assert session.trace_path.read_bytes() == before


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


def test_what_tools_give_does_not_pile_up_on_the_host(tmp_path: Path) -> None:
    """A session keeps answers for an undo, and no more than it has room for."""
    command = [sys.executable, "-c", TOOLS_THAT_GIVE_MUCH, str(tmp_path / "out")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    megabytes = [int(line) for line in done.stdout.split()]
    # Each round gives 200 MB: all that was kept would be 600 more at the end.
    assert len(megabytes) == 4
    assert megabytes[-1] - megabytes[0] < 100, megabytes


async def test_a_kernel_ends_with_its_session_whatever_else_of_it_cannot_be_closed(
    tmp_path: Path,
) -> None:
    class Stuck(ScriptedModel):
        async def close(self) -> None:
            raise OSError("the model hangs on")

    session = Session(model=Stuck([]), out=tmp_path / "out")
    await session.start()
    kernel: Any = session._kernel
    session._closing.add("what came last", lambda: 1 / 0)  # type: ignore[arg-type,return-value]  # never returns
    with pytest.raises(ZeroDivisionError):
        await session.close()
    assert not kernel.alive
    assert kernel.pid is None
