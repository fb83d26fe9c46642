"""Taking steps back in real kernels: variables, files, tools, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.replies import cell

from kernel_agent import Budget, ScriptedModel, Session, tool, verify
from kernel_agent.agent.context import Context
from kernel_agent.errors import SandboxError, UndoError, UsageError
from kernel_agent.formats import get_format
from kernel_agent.records.event import Event, Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart, Undone
from kernel_agent.sandbox.chooser import choose

ONE = Budget(max_steps=1)
SEEN = """
import pathlib
print(sorted((k, repr(v)) for k, v in globals().items() if k in ("a", "b", "c", "rows")))
print(sorted((p.name, p.read_text()) for p in pathlib.Path().glob("*.txt")))
"""


def make(cells: Sequence[str], out: Path, **options: Any) -> Session:
    model = ScriptedModel([cell(code) for code in cells], keep_requests=True)
    return Session(model=model, out=out, **options)


async def seen(session: Session) -> str:
    result = await session.execute(SEEN)
    assert result.ok, result.error
    return "".join(output["text"] for output in result.outputs)


# --- the state is that of a session that never ran the undone cells ------------------------------

CELLS = (
    "a = 1",
    "b = [a]",
    "a = a + 1",
    "b.append(len(b))",
    "c = dict(b=b); rows = 0",
    "del a",
    "a = 5; rows = 1; 1/0",
    "for rows in range(3): pass",
    "open('one.txt', 'a').write('x')",
    "open('two.txt', 'w').write(repr(sorted(k for k in globals() if len(k) == 1)))",
    "import os; os.replace('one.txt', 'three.txt')",
    "import os; os.remove('two.txt')",
)


@st.composite
def doings(draw: st.DrawFn) -> list[str | int]:
    """Return cells, and between them numbers of steps to undo that there are."""
    made: list[str | int] = []
    standing = 0
    for _ in range(draw(st.integers(3, 8))):
        if standing and draw(st.integers(0, 3)) == 0:
            count = draw(st.integers(1, min(standing, 3)))
            made.append(count)
            standing -= count
        else:
            made.append(draw(st.sampled_from(CELLS)))
            standing += 1
    return made


@settings(max_examples=10)
@given(doings())
def test_after_undos_the_session_is_as_if_the_undone_cells_had_never_run(
    tmp_path_factory: pytest.TempPathFactory, doing: list[str | int]
) -> None:
    """Variables, shared objects and files, also when cells fail, append, rename and remove."""

    async def both() -> tuple[str, str, Undone | None]:
        cells = [each for each in doing if isinstance(each, str)]
        kept: list[str] = []
        undone = None
        async with make(cells, tmp_path_factory.mktemp("undone"), sandbox="none") as session:
            for each in doing:
                if isinstance(each, int):
                    undone = await session.undo(each)
                    del kept[-each:]
                else:
                    await session.run("Next", budget=ONE)
                    kept.append(each)
            with_undos = await seen(session)
        async with make(kept, tmp_path_factory.mktemp("plain"), sandbox="none") as session:
            for _ in kept:
                await session.run("Next", budget=ONE)
            return with_undos, await seen(session), undone

    with_undos, without, undone = asyncio.run(both())
    assert with_undos == without
    assert undone is None or not undone.differences


# --- tools ---------------------------------------------------------------------------------------


async def test_a_tool_is_called_once_and_its_answers_are_given_again(tmp_path: Path) -> None:
    """Results, errors, calls side by side, in any order."""
    calls: list[int] = []

    @tool(effects=True)
    def book(n: int) -> int:
        """Book something, once and for all."""
        calls.append(n)
        if n < 0:
            raise ValueError(f"{n} is too few")
        return 100 * len(calls)

    cells = [
        "first = book(1)\nagain = book(1)\nmany = book.map([2, 3])",
        "try:\n    book(-1)\nexcept ValueError as error:\n    told = str(error)",
        "first = book(4)",
        "final_answer([first, again, sorted(many), told])",
    ]
    async with make(cells, tmp_path, tools=[book], approve="never") as session:
        for _ in range(3):
            await session.run("Book", budget=ONE)
        undone = await session.undo()
        assert undone.differences == ()
        run = await session.run("What was booked?")
    assert run.answer == [100, 200, [300, 400], "-1 is too few"]
    assert calls == [1, 1, 2, 3, -1, 4]


async def test_a_call_that_was_not_made_before_is_not_made_in_an_undo_and_said(
    tmp_path: Path,
) -> None:
    calls: list[float] = []

    @tool(effects=True)
    def send(amount: float) -> str:
        """Send money."""
        calls.append(amount)
        return "sent"

    cells = ["import os\nsend(int.from_bytes(os.urandom(6), 'big'))\nafter = 1", "x = 2"]
    async with make(cells, tmp_path, tools=[send], approve="never") as session:
        await session.run("Send", budget=ONE)
        await session.run("More", budget=ONE)
        undone = await session.undo()
        assert len(calls) == 1
        assert undone.differences == ("Step 1 asked for a call not made before; it was not made.",)
        gone = await session.execute("after")
        assert gone.error is not None


# --- the conversation, the trace and the notebook ------------------------------------------------


async def test_the_model_is_told_in_one_line_and_a_trace_read_back_gives_the_same_prompt(
    tmp_path: Path,
) -> None:
    cells = ["x = 1", "x = 2\nfinal_answer(x)", "final_answer(x)"]
    async with make(cells, tmp_path) as session:
        first = await session.run("How many?")
        assert first.answer == 2
        undone = await session.undo(reason="it is not two")
        second = await session.run("How many really?")
        assert second.answer == 1
        assert [step.number for step in second.steps] == [3]
        sent = session._model.requests[-1]  # type: ignore[union-attr]
    text = "\n".join(message.content for message in sent)
    assert "(Step 2 was undone by the user: it is not two." in text
    assert "x = 2" not in text
    records = read_trace(tmp_path)
    assert undone in records
    start = records[0]
    assert isinstance(start, RunStart)
    context = Context(start.system_prompt, get_format("fenced"), max_tokens=100_000)
    for record in records[:-2]:  # without the last step and ending
        context.add(record)
    assert context.messages() == list(sent)


async def test_the_notebook_after_an_undo_reproduces_and_shows_what_was_undone_folded(
    tmp_path: Path,
) -> None:
    cells = ["x = 1\nx", "x = 'no'\nfinal_answer(x)", "final_answer(x + 1)"]
    async with make(cells, tmp_path) as session:
        await session.run("How many?")
        await session.undo(reason="not a number")
        notebook = nbformat.read(session.notebook_path, as_version=4)
        assert notebook.cells[-1].source.startswith("## Answer withdrawn")
        run = await session.run("And one more?")
    assert run.notebook is not None
    report = await asyncio.to_thread(verify, run.notebook)
    assert report.reproduces, report.summary
    assert report.counts == {"skipped": 1, "same": 3}
    text = run.notebook.read_text()
    assert "Step 2 was undone by the user" in text


# --- files ---------------------------------------------------------------------------------------


async def test_files_of_undone_steps_are_kept_aside_and_the_user_s_own_stay(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    first = "import os\nos.makedirs('plots/a')\nopen('plots/a/one.csv', 'w').write('1')"
    second = (
        "open('plots/a/two.csv', 'w').write('2')\nopen('plots/a/one.csv', 'a').write('!')\n"
        f"os.symlink({str(secret)!r}, 'link.txt')\nos.mkfifo('pipe')\nos.mkdir('empty')"
    )
    async with make([first, second], out) as session:
        await session.run("One", budget=ONE)
        (out / "mine.csv").write_text("the user's")
        await session.run("Two", budget=ONE)
        undone = await session.undo()
    assert sorted(undone.files) == ["link.txt", "pipe", "plots/a/one.csv", "plots/a/two.csv"]
    assert (out / "plots/a/one.csv").read_text() == "1"
    assert (out / "undone/step-2/plots/a/one.csv").read_text() == "1!"
    assert (out / "undone/step-2/plots/a/two.csv").read_text() == "2"
    assert (out / "undone/step-2/link.txt").is_symlink()
    assert (out / "mine.csv").read_text() == "the user's"
    assert secret.read_text() == "mine"
    assert sorted(p.name for p in out.iterdir()) == [
        "data", "mine.csv", "plots", "run.ipynb", "trace.jsonl", "undone",
    ]  # fmt: skip
    assert sorted(p.name for p in (out / "undone").iterdir()) == ["step-2"]


async def test_a_folder_that_code_put_a_link_in_the_way_of_is_not_followed(
    tmp_path: Path,
) -> None:
    """The undo does not happen, and nothing is written where the link leads."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    cells = [
        "x = 1",
        f"import os\nos.symlink({str(elsewhere)!r}, 'undone')\nopen('a.csv', 'w').write('1')",
    ]
    async with make(cells, out) as session:
        await session.run("One", budget=ONE)
        await session.run("Two", budget=ONE)
        with pytest.raises(UndoError, match=r"nothing was undone: a file cannot be put aside"):
            await session.undo()
        assert (await session.execute("x, os")).ok
    assert list(elsewhere.iterdir()) == []
    assert (out / "a.csv").read_text() == "1"


# --- what goes wrong -----------------------------------------------------------------------------


async def test_a_kernel_that_is_lost_while_cells_are_played_again_leaves_the_session_as_it_was(
    tmp_path: Path,
) -> None:
    """The old kernel goes on with all its variables; files and conversation are untouched."""
    cells = [
        "import os\nif os.path.exists('mark.csv'):\n    os._exit(3)",
        "x = 2\nopen('made.csv', 'w').write('2')",
        "final_answer(x)",
    ]
    async with make(cells, tmp_path) as session:
        await session.run("One", budget=ONE)
        (tmp_path / "mark.csv").write_text("put here by the user")
        await session.run("Two", budget=ONE)
        with pytest.raises(UndoError, match=r"lost while step 1 was played again") as caught:
            await session.undo()
        assert "\n" not in str(caught.value)
        assert (tmp_path / "made.csv").read_text() == "2"
        assert not (tmp_path / "undone").exists()
        run = await session.run("What is x?")
    assert run.answer == 2
    assert not any(isinstance(record, Undone) for record in read_trace(tmp_path))


async def test_undoing_the_step_that_lost_the_kernel_brings_its_variables_back(
    tmp_path: Path,
) -> None:
    cells = ["x = 1", "import os\nos._exit(1)", "final_answer(x)"]
    async with make(cells, tmp_path) as session:
        await session.run("One", budget=ONE)
        lost = await session.run("Two")
        assert lost.status == "kernel_lost"
        undone = await session.undo()
        assert (undone.first, undone.differences) == (2, ())
        assert (await session.run("Three")).answer == 1


async def test_a_cell_that_does_something_else_when_played_again_is_named_with_its_step(
    tmp_path: Path,
) -> None:
    cells = [
        "import os\nn = int(os.path.exists('mark.csv'))\nprint(n)",
        "k = 1 / (1 - n)",
        "x = 3",
    ]
    async with make(cells, tmp_path) as session:
        await session.run("One", budget=ONE)
        await session.run("Two", budget=ONE)
        (tmp_path / "mark.csv").write_text("put here by the user")
        await session.run("Three", budget=ONE)
        undone = await session.undo()
    assert undone.differences == (
        "Step 1 shows something else than before: -0 +1",
        "Step 2 worked before and ended now as error (ZeroDivisionError: division by zero).",
    )
    assert undone.changes is not None
    assert {v.name for v in undone.changes.added} >= {"n"}


async def test_cells_that_were_interrupted_are_not_played_again_and_that_is_said(
    tmp_path: Path,
) -> None:
    cells = ["x = 1", "y = 2\nwhile True: pass", "z = 3"]
    async with make(cells, tmp_path, budget=Budget(max_steps=1, max_seconds=3)) as session:
        for _ in cells:
            await session.run("Next")
        undone = await session.undo()
        left = await session.execute("sorted(k for k in globals() if k in 'xyz')")
    assert len(undone.differences) == 1
    assert undone.differences[0].startswith("Step 2 had been ended early (timeout)")
    assert left.outputs[0]["data"]["text/plain"] == "['x']"


async def test_cells_of_the_person_s_own_before_the_step_are_played_and_those_after_it_go(
    tmp_path: Path,
) -> None:
    async with make(["a = own + 1", "b = 1"], tmp_path) as session:
        await session.execute("own = 1")
        await session.run("One", budget=ONE)
        await session.execute("later = a")
        undone = await session.undo()
        left = await session.execute("sorted(k for k in globals() if k in ('own', 'a', 'later'))")
    assert undone.cells == 1
    assert left.outputs[0]["data"]["text/plain"] == "['own']"


async def test_an_undo_in_a_run_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    async with make(["import time\ntime.sleep(1)\nfinal_answer(1)"], tmp_path) as session:
        running = asyncio.ensure_future(session.run("Slow"))
        await asyncio.sleep(0.3)
        with pytest.raises(UsageError, match="stop the run first, then undo"):
            await session.undo()
        assert (await running).answer == 1
    with pytest.raises(UsageError, match="closed"):
        await session.undo()


async def test_more_steps_than_there_are_cannot_be_undone(tmp_path: Path) -> None:
    async with make(["x = 1"], tmp_path) as session:
        with pytest.raises(UsageError, match="there is no step to undo"):
            await session.undo()
        await session.run("One", budget=ONE)
        with pytest.raises(UsageError, match="2 steps cannot be undone: the session has 1 step"):
            await session.undo(2)
        await session.undo()
        with pytest.raises(UsageError, match="there is no step to undo"):
            await session.undo()


def test_an_undo_can_be_stopped_and_nothing_was_undone(tmp_path: Path) -> None:
    """With the synchronous face: stop() from another thread, as Ctrl-C does."""
    cells = ["import time, os\ntime.sleep(20 * os.path.exists('mark.csv'))", "x = 2"]
    playing = threading.Event()

    def heard(event: Event) -> None:
        if isinstance(event, Notice) and event.text.startswith("Playing"):
            playing.set()

    with make(cells, tmp_path, on_event=heard) as session:
        session.run_sync("One", budget=ONE)
        (tmp_path / "mark.csv").write_text("put here by the user")
        session.run_sync("Two", budget=ONE)
        stopper = threading.Thread(target=lambda: (playing.wait(30), session.stop()))
        stopper.start()
        with pytest.raises(UndoError, match="it was stopped"):
            session.undo_sync()
        stopper.join()
        assert session.execute_sync("x").ok


@pytest.mark.parametrize(
    "level",
    ["bubblewrap", "namespaces", "landlock", "none", "interpreter", "container", "gvisor"],
)
async def test_steps_are_undone_at_every_level(tmp_path: Path, level: str) -> None:
    try:
        choose(level)
    except SandboxError as error:
        pytest.skip(str(error))
    cells = ["x = [1]", "x.append(2)", "final_answer(x)"]
    async with make(cells, tmp_path, sandbox=level) as session:
        await session.run("One", budget=ONE)
        await session.run("Two", budget=ONE)
        assert not (await session.undo()).differences
        assert (await session.run("Three")).answer == [1]
