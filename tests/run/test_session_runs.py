"""A session and its runs, with a scripted model and a kernel in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.replies import cell

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session, tool
from kernel_agent.errors import InputError, TraceError, UsageError
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Event, Output, ReplyText
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart, RunStop, Step


def make(replies: list[str], out: Path, **options: object) -> Session:
    return Session(kernel=FakeKernel, model=ScriptedModel(replies), out=out, **options)  # type: ignore[arg-type]  # options are passed on


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
    async with Session(kernel=FakeKernel, model=model, out=tmp_path) as session:
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


async def test_a_cell_of_ones_own_in_mid_run_takes_no_number_of_its_steps(tmp_path: Path) -> None:
    """``outputs[k]`` is of one cell: a step's, or the person's own."""
    own: list[asyncio.Task[Any]] = []

    def interrupt(event: Event) -> None:
        if isinstance(event, Acting) and not own:
            own.append(asyncio.ensure_future(session.execute("print('mine')")))

    replies = [cell("print('one')"), cell("print('two')"), cell("final_answer('three')")]
    session = make(replies, tmp_path, on_event=interrupt)
    async with session:
        run = await session.run("Count")
        await own[0]
        shown = await session.execute("print(*(outputs[k].strip() for k in (1, 2, 3)))")
    assert [step.number for step in run.steps] == [1, 3, 4]
    assert shown.outputs[0]["text"] == "one mine two\n"


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
    async with Session(kernel=FakeKernel, model=model, out=tmp_path, tools=[rate]) as session:
        run = await session.run("Ten dollars?")
    assert run.answer == 9.0
    assert "def rate(currency" in model.requests[0][0].content
    calls = [call for step in run.steps for call in (step.result.calls if step.result else ())]
    assert [(c.name, c.ok) for c in calls] == [("rate", False), ("rate", True)]


@pytest.mark.parametrize(
    ("budget", "status"),
    [
        (Budget(max_steps=1), ExitStatus.STEP_LIMIT),
        (Budget(max_seconds=0.5), ExitStatus.TIME_LIMIT),
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
    with pytest.raises(UsageError, match=r"module|greater than 0"):
        make([], tmp_path / "out", **options)


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


async def test_what_was_done_stays_when_a_model_of_ones_own_breaks(tmp_path: Path) -> None:
    """Its error arrives as it is; trace and notebook have the steps, and an ending."""

    def replies() -> Iterator[str]:
        yield cell("x = 41 + 1")
        raise RuntimeError("no such weights")

    async with Session(
        kernel=FakeKernel, model=ScriptedModel(replies()), out=tmp_path / "out"
    ) as session:
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
