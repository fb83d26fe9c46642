"""Taking steps back in real kernels: variables, files, tools, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.replies import cell

from kernel_agent import Budget, ScriptedModel, Session, verify
from kernel_agent.errors import SandboxError, UndoError
from kernel_agent.records.event import Event, Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Undone
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
@pytest.mark.long
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


async def test_the_notebook_after_an_undo_reproduces_and_shows_what_was_undone_folded(
    tmp_path: Path,
) -> None:
    cells = ["x = 1\nx", "x = 'no'\nfinal_answer(x)", "final_answer(x + 1)"]
    async with make(cells, tmp_path) as session:
        await session.run("How many?")
        await session.undo(reason="not a number")
        notebook = nbformat.read(session.notebook_path, as_version=4)
        assert notebook.cells[1].source.startswith("## Answer withdrawn")
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
        await asyncio.sleep(0.02)  # a moment: the clock of files ticks every 4 to 10 ms
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
        await asyncio.sleep(0.02)  # a moment: the clock of files ticks every 4 to 10 ms
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
        time.sleep(0.02)  # a moment: the clock of files ticks every 4 to 10 ms
        session.run_sync("Two", budget=ONE)
        stopper = threading.Thread(target=lambda: (playing.wait(30), session.stop()))
        stopper.start()
        with pytest.raises(UndoError, match="it was stopped"):
            session.undo_sync()
        stopper.join()
        assert session.execute_sync("x").ok


@pytest.mark.parametrize(
    "level",
    ["bubblewrap", "namespaces", "landlock", "none", "interpreter", "container",
     pytest.param("gvisor", marks=pytest.mark.long)],
)  # fmt: skip
async def test_steps_are_undone_at_every_level(tmp_path: Path, level: str) -> None:
    try:
        choose(level)
    except SandboxError as error:
        pytest.skip(str(error))
    made = "" if level == "interpreter" else "; open('made.txt', 'w').close()"
    cells = [f"x = [1]{made}", f"x.append(2){made}", "final_answer(x)"]
    async with make(cells, tmp_path, sandbox=level) as session:
        await session.run("One", budget=ONE)
        await session.run("Two", budget=ONE)
        assert not (await session.undo()).differences
        assert (await session.run("Three")).answer == [1]
