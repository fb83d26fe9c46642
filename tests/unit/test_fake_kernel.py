"""The kernel without a process: what tests that use it may rely on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import begin

from kernel_agent import FakeKernel, ScriptedModel, Session, tool
from kernel_agent.errors import InputError, SandboxError, UsageError
from kernel_agent.records import CellResult
from kernel_agent.sandbox.chooser import MODULES

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"


def text(result: CellResult) -> str:
    return "".join(
        o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"]
        for o in result.outputs
        if o["output_type"] != "error"
    )


EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_documents_are_tests_that_pass(example: str, tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(example, str(DOCUMENT), "exec"), namespace)
    (test,) = [value for name, value in namespace.items() if name.startswith("test_")]
    if inspect.iscoroutinefunction(test):
        asyncio.run(test())
    else:
        test(tmp_path)


async def test_a_cell_shows_what_it_prints_and_the_value_of_its_last_line(tmp_path: Path) -> None:
    told: list[str] = []
    async with FakeKernel(cwd=tmp_path) as kernel:
        result = await kernel.execute(
            "import sys\nprint('a')\nprint('b', file=sys.stderr)\n1 + 1",
            on_output=lambda output: told.append(output["output_type"]),
        )
        silent = await kernel.execute("1 + 1;")
        printed = await kernel.execute("outputs[1]")
    assert (result.status, text(result)) == ("ok", "a\nb\n2")
    assert told == ["stream", "stream", "execute_result"]
    assert text(silent) == ""
    assert "a\\nb\\n2" in text(printed)


async def test_an_error_has_the_lines_of_the_cell(tmp_path: Path) -> None:
    async with FakeKernel(cwd=tmp_path) as kernel:
        result = await kernel.execute("def f():\n    return 1 / 0\n\nf()")
        broken = await kernel.execute("x = = 1")
    assert result.error is not None
    assert result.error.ename == "ZeroDivisionError"
    shown = "\n".join(result.error.traceback)
    assert "Cell In[1], line 4" in shown
    assert "----> 2     return 1 / 0" in shown
    assert "inkernel" not in shown
    assert broken.error is not None
    assert (broken.status, broken.error.ename) == ("error", "SyntaxError")


@pytest.mark.parametrize(
    "forever",
    ["while True: pass", "import time; time.sleep(60)", "import asyncio\nawait asyncio.sleep(60)"],
)
async def test_a_cell_that_takes_too_long_is_interrupted_and_the_variables_stay(
    tmp_path: Path, forever: str
) -> None:
    async with FakeKernel(cwd=tmp_path) as kernel:
        await kernel.execute("x = 1")
        assert (await kernel.execute(forever, timeout_s=0.05)).status == "timeout"
        running = await begin(kernel, forever)
        await kernel.interrupt()
        interrupted = await running
        assert (interrupted.status, text(interrupted)) == ("interrupted", "on it\n")
        assert text(await kernel.execute("x")) == "1"
    assert time.sleep.__module__ == "time"


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Python loses an exception that arrives in a callback of its collector, and reports it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
async def test_a_cell_is_interrupted_at_whatever_moment_of_asyncio(tmp_path: Path) -> None:
    async with FakeKernel(cwd=tmp_path) as kernel:
        for tries in range(200):  # what is left half made, pytest reports
            forever = "import asyncio\nawait asyncio.sleep(60)"
            late = await kernel.execute(forever, timeout_s=tries * 2e-5)
            assert late.status == "timeout"
        assert text(await kernel.execute("await asyncio.sleep(0, 'on it')")) == "'on it'"


async def test_the_loss_of_a_kernel_is_played_with_an_exception(tmp_path: Path) -> None:
    die = "from kernel_agent.errors import KernelDied\nraise KernelDied('out of memory')"
    async with FakeKernel(cwd=tmp_path) as kernel:
        result = await kernel.execute(die)
    assert result.error is not None
    assert (result.status, result.error.evalue) == ("dead", "out of memory")


async def test_a_cell_that_is_cancelled_ends_and_the_kernel_goes_on(tmp_path: Path) -> None:
    async with FakeKernel(cwd=tmp_path) as kernel:
        running = await begin(kernel, "while True: pass")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert (await kernel.execute("1")).ok


async def test_values_cross_as_they_do_on_the_wire(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    async with FakeKernel(cwd=tmp_path) as kernel:
        await kernel.execute("import pandas as pd\ntable = pd.DataFrame({'a': [1, 2]})\nf = open")
        found = await kernel.get(["table"])
        pd.testing.assert_frame_equal(found["table"], pd.DataFrame({"a": [1, 2]}))
        with pytest.raises(InputError, match="there is no variable nothing"):
            await kernel.get(["nothing"])
        with pytest.raises(InputError, match="f cannot be taken"):
            await kernel.get(["f"])


async def test_what_cells_have_changed_is_reported(tmp_path: Path) -> None:
    async with FakeKernel(cwd=tmp_path) as kernel:
        await kernel.execute("rows = [1]")
        result = await kernel.execute("rows.append(2)\nother = 'x'")
    assert result.changes is not None
    assert [v.name for v in result.changes.added] == ["other"]
    assert [v.name for v in result.changes.changed] == ["rows"]


async def test_kernels_side_by_side_mix_neither_folders_nor_what_is_printed(tmp_path: Path) -> None:
    folders = [tmp_path / str(n) for n in range(4)]
    for folder in folders:
        folder.mkdir()
    before = Path.cwd()

    async def use(folder: Path) -> list[str]:
        async with FakeKernel(cwd=folder) as kernel:
            cell = (
                "import os, time\nfor _ in range(5):\n    print(os.getcwd())\n    time.sleep(0.01)"
            )
            return text(await kernel.execute(cell)).split()

    assert await asyncio.gather(*map(use, folders)) == [[str(f)] * 5 for f in folders]
    assert Path.cwd() == before
    print("here", file=sys.stdout)  # it is as it was
    assert type(sys.stdout).__name__ != "_Routed"


@pytest.fixture
def giving_way() -> Iterator[None]:
    """Python's collector lets another thread run, whenever it is: Hypothesis's callback may."""

    def give_way(*_: object) -> None:
        time.sleep(1e-5)  # a moment: gives up the interpreter's lock

    before = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(100)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("giving_way")
async def test_cells_that_are_read_side_by_side_are_read_as_alone(tmp_path: Path) -> None:
    """CPython 3.11.7 counts their depth together, and then finds that the count is wrong."""
    source = "x.append((1 + 1, {'a': [2]}))\n" * 50

    async def use() -> list[tuple[str, list[str]]]:
        async with FakeKernel(cwd=tmp_path) as kernel:
            await kernel.execute("x = []")
            results = [await kernel.execute(source) for _ in range(20)]
            return [(r.status, [v.name for v in r.changes.changed]) for r in results]

    assert await asyncio.gather(*[use() for _ in range(4)]) == [[("ok", ["x"])] * 20] * 4


def session(tmp_path: Path, cells: list[str], **options: Any) -> Session:
    replies = [f"Next.\n\n```python\n{code}\n```" for code in cells]
    return Session(model=ScriptedModel(replies), kernel=FakeKernel, out=tmp_path / "out", **options)


def test_a_session_with_it_says_that_nothing_is_protected(tmp_path: Path) -> None:
    with session(tmp_path, ["final_answer(1)"]) as one:
        run = one.run_sync("One?")
        assert "NOT SANDBOXED" in one.sandbox_line
    assert (run.answer, run.sandbox) == (1, "none")


@pytest.mark.parametrize(
    "options",
    [{"sandbox": "bubblewrap"}, {"sandbox": "auto"}, {"allow_hosts": ["example.com"]}],
)
def test_it_does_not_stand_in_for_a_sandbox_that_was_asked_for(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="without a sandbox"):
        session(tmp_path, [], **options)


@pytest.mark.parametrize("name", ["fake", "FakeKernel"])
def test_no_setting_chooses_it(tmp_path: Path, name: str) -> None:
    assert name not in MODULES
    with pytest.raises(SandboxError, match="there is no sandbox level"):
        Session(model=ScriptedModel([]), sandbox=name, out=tmp_path / "out")


async def test_it_cannot_be_hibernated(tmp_path: Path) -> None:
    async with session(tmp_path, []) as one:
        with pytest.raises(SandboxError, match="cannot be hibernated"):
            await one.hibernate(tmp_path / "frozen")


@tool
def double(n: int) -> int:
    """Return twice a number."""
    return 2 * n


def test_tools_are_called_from_cells_side_by_side_and_from_threads(tmp_path: Path) -> None:
    cell = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as threads:\n"
        "    final_answer([*double.map([1, 2]), *threads.map(double, [3, 4])])"
    )
    with session(tmp_path, [cell], tools=[double]) as one:
        assert one.run_sync("Double").answer == [2, 4, 6, 8]


def test_a_kernel_that_is_lost_is_replaced(tmp_path: Path) -> None:
    die = "from kernel_agent.errors import KernelDied\nraise KernelDied('gone')"
    with session(tmp_path, [die, "final_answer('alive')"]) as one:
        assert one.run_sync("Die").status == "kernel_lost"
        assert one.run_sync("Live").answer == "alive"


def test_cells_run_in_this_very_process(tmp_path: Path) -> None:
    """Nobody should think otherwise."""
    with session(tmp_path, ["import os\nfinal_answer(os.getpid())"]) as one:
        assert one.run_sync("Where?").answer == os.getpid()


def test_a_picture_is_shown_as_in_a_real_kernel(tmp_path: Path) -> None:
    cell = "from PIL import Image\none = Image.new('RGB', (3, 2))\ndisplay(one)\none"
    with session(tmp_path, [cell, "final_answer(1)"]) as one:
        seen = one.run_sync("Draw").steps[0].observation
    assert seen.text.splitlines()[:2] == [
        "[figure 1 of step 1, PNG 3x2]",
        "[figure 2 of step 1, PNG 3x2]",
    ]
