"""Cells in the interpreter of pure Python end as cells in a kernel do."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pydantic_monty")
from support.waiting import DEADLINE_S, begin, until

from kernel_agent import ScriptedModel, Session, tool, verify
from kernel_agent.errors import InputError, KernelDied, SandboxError, UsageError
from kernel_agent.kernel.interpreted import without_libraries
from kernel_agent.kernel.interpreter import MAX_CHARS, InterpreterSession
from kernel_agent.records.cell import CellResult, OutputDict
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.store import OUTPUTS_BYTES, size_in_trace
from kernel_agent.sandbox.interpreter import LACKS, LEVEL, MODULES, probe
from kernel_agent.tools import Tool


def text(result: CellResult) -> str:
    """What a cell has put out, as one text."""
    return "".join(
        o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"]
        for o in result.outputs
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sales.csv").write_text("region,amount\nnorth,3\nsouth,4\n")
    (tmp_path / "secret").write_text("SECRET")
    return tmp_path


def test_it_is_here_and_says_what_it_lacks() -> None:
    assert probe().works
    assert LEVEL.covered
    assert LEVEL.not_covered
    assert "numpy" in LACKS[0]


async def test_what_a_cell_shows_is_bounded_as_everywhere(folder: Path) -> None:
    """And what the host itself says of it stands there all the same."""
    async with InterpreterSession(cwd=folder) as kernel:
        flood = "while True: display('x' * 1_000_000)"
        result = await kernel.execute(flood, timeout_s=2)
        assert result.status == "timeout"
        assert size_in_trace(list(result.outputs)) < OUTPUTS_BYTES + 1_000
        left_out, went_back = result.outputs[-2:]
        assert "more outputs were not kept" in left_out["text"]
        assert "went back to the state before this cell" in went_back["text"]


async def test_state_lives_on_and_outputs_come_in_order(folder: Path) -> None:
    seen: list[OutputDict] = []
    async with InterpreterSession(cwd=folder) as kernel:
        assert (await kernel.execute("x = 41")).outputs == ()
        result = await kernel.execute("print('a')\nprint('b')\nx + 1", on_output=seen.append)
        assert (result.status, text(result)) == ("ok", "a\nb\n42")
        assert [o["output_type"] for o in result.outputs] == ["stream", "execute_result"]
        assert "".join(o["text"] for o in seen[:-1]) == "a\nb\n"
        assert text(await kernel.execute("outputs[2]")) == repr("a\nb\n42\n")
        assert (await kernel.execute("x;")).outputs == ()
        assert text(await kernel.execute("{'a': [1, 2.5, None]}")) == "{'a': [1, 2.5, None]}"
        assert kernel.steps == 5
        assert text(await kernel.execute("sorted(outputs)")) == "[1, 2, 3, 4, 5]"
        assert text(await kernel.execute("outputs = 'mine'\noutputs")) == "'mine'"
        assert text(await kernel.execute("outputs")) == "'mine'"


@pytest.mark.parametrize(
    ("source", "name", "told"),
    [
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("def f(:", "SyntaxError", "Expected"),
        ("import numpy", "ModuleNotFoundError", "numpy"),
        ("def f():\n    yield 1", "NotImplementedError", "yield"),
        ("%matplotlib inline", "SyntaxError", "Expected"),
        ("!ls", "SyntaxError", "Expected"),
        ("[0] * 10**9", "MemoryError", "limit"),
        ("open('/etc/passwd').read()", "PermissionError", "passwd"),
        ("open('secret').read()", "PermissionError", "secret"),
        ("open('data/../secret').read()", "PermissionError", "secret"),
        ("open('data/link').read()", "PermissionError", "link"),
        ("open('data/new', 'w')", "PermissionError", "new"),
        ("import os\nos.environ['HOME']", "", ""),
        ("import os\nos.system('id')", "AttributeError", "system"),
        ("import socket", "ModuleNotFoundError", "socket"),
        ("import subprocess", "ModuleNotFoundError", "subprocess"),
        ("().__class__.__subclasses__()", "", ""),
        ("input()", "NameError", "input"),
    ],
)
async def test_what_it_cannot_or_must_not_do_is_an_error_of_the_cell(
    folder: Path, source: str, name: str, told: str
) -> None:
    (folder / "data" / "link").symlink_to(folder / "secret")
    async with InterpreterSession(cwd=folder) as kernel:
        result = await kernel.execute(source)
        assert result.status == "error"
        assert result.error is not None
        assert name in result.error.ename
        assert told in result.error.evalue
        assert "SECRET" not in text(result)
        assert (await kernel.execute("1 + 1")).ok


async def test_dependencies_in_a_comment_install_nothing(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        source = '# /// script\n# dependencies = ["cowsay"]\n# ///\nimport cowsay'
        result = await kernel.execute(source)
    assert result.error is not None
    assert result.error.ename == "ModuleNotFoundError"


async def test_a_cell_that_takes_too_long_costs_its_own_variables_only(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        await kernel.execute("x = 1")
        first = kernel.pid
        result = await kernel.execute("x = 2\nprint('on')\nwhile True:\n    pass", timeout_s=0.5)
        assert (result.status, result.seconds < 30) == ("timeout", True)
        assert text(result).startswith("on\n")
        assert "state before this cell" in text(result)
        assert text(await kernel.execute("x")) == "1"
        running = await begin(kernel, "x = 3\nwhile True:\n    pass")
        await kernel.interrupt()
        assert (await running).status == "interrupted"
        running = await begin(kernel, "x = 4\nwhile True:\n    pass")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert text(await kernel.execute("x")) == "1"
        last = kernel.pid
        assert last not in (None, first)
    for pid in (first, last):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_worker_that_dies_ends_the_session(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        running = await begin(kernel, "while True:\n    pass")
        os.kill(kernel.pid, 9)
        result = await running
        assert (result.status, kernel.alive) == ("dead", False)
        with pytest.raises(KernelDied):
            await kernel.execute("1")
        await kernel.close()


FILLING = "kept = []\nfor i in range(10**9):\n    kept.append('a' * 1000 + str(i))"


async def test_a_worker_that_has_ended_before_a_cell_is_a_kernel_that_has_died(
    folder: Path,
) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        assert (await kernel.execute("x = 1")).ok
        os.kill(kernel.pid, 9)
        result = await kernel.execute("x")
        assert (result.status, kernel.alive) == ("dead", False)
        assert result.error is not None
        assert "crashed" in result.error.evalue
        with pytest.raises(KernelDied, match="crashed"):
            await kernel.execute("x")


async def test_a_worker_that_its_memory_ends_within_a_cell_is_a_kernel_that_has_died(
    folder: Path,
) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        await kernel.execute("x = [0]\nwhile True:\n    x = x + x")
        result = await kernel.execute("1")
        assert (result.status, kernel.alive) == ("dead", False)
        assert result.error is not None
        assert result.error.evalue == "the interpreter's process ended"


async def test_a_variable_that_is_asked_of_a_worker_that_has_ended_is_no_missing_one(
    folder: Path,
) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        await kernel.execute("x = 1")
        os.kill(kernel.pid, 9)
        with pytest.raises(KernelDied):
            await kernel.get(["x"])


async def test_a_full_memory_loses_the_kernel_and_the_next_run_has_a_new_one(
    tmp_path: Path,
) -> None:
    """What the cell kept is there still, so that there is no room to write the state."""
    replies = [f"```python\n{source}\n```" for source in (FILLING, "len(kept)", "final_answer(7)")]
    async with Session(
        model=ScriptedModel(replies), sandbox="interpreter", out=tmp_path / "out"
    ) as session:
        lost = await session.run("How many?")
        assert [step.result.status for step in lost.steps] == ["error", "dead"]
        assert lost.status == ExitStatus.KERNEL_LOST
        again = await session.run("And now?")
        assert (again.status, again.answer) == (ExitStatus.ANSWERED, 7)


async def test_an_interrupt_between_cells_ends_nothing(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        await kernel.execute("x = 1")
        await kernel.interrupt()
        assert text(await kernel.execute("x")) == "1"


async def test_a_cell_that_is_ended_does_not_wait_for_what_the_host_does_for_it(
    folder: Path,
) -> None:
    asked: list[str] = []
    given_up: list[str] = []

    async def never(prompt: str) -> str:
        asked.append(prompt)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.Event().wait()
        finally:
            given_up.append(prompt)
        return ""

    async with InterpreterSession(cwd=folder, tools=[{"name": "look"}]) as kernel:
        await kernel.execute("x = 1")
        for waiting in ("look()", "import time\ntime.sleep(3600)"):
            late = await kernel.execute(f"x = 2\n{waiting}", timeout_s=0.3, on_request=never)
            assert (late.status, text(await kernel.execute("x"))) == ("timeout", "1")
        running = asyncio.create_task(kernel.execute("look()", on_request=never))
        await until(lambda: len(asked) == 2)
        await kernel.interrupt()
        assert (await running).status == "interrupted"
        running = asyncio.create_task(kernel.execute("look()", on_request=never))
        await until(lambda: len(asked) == 3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert sorted(given_up) == asked  # as the kernel ended, for nobody did before


async def test_a_stop_cancels_the_tool_that_a_cell_waits_for(tmp_path: Path) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def look() -> int:
        """Look for ever."""
        begun.set()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 1

    async with (
        asyncio.timeout(DEADLINE_S),
        Session(
            model=ScriptedModel(["```python\nlook()\n```"]), sandbox="interpreter", tools=[look],
            out=tmp_path / "out",
        ) as session,
    ):  # fmt: skip
        running = asyncio.create_task(session.run("Which?"))
        await begun.wait()
        session.stop()
        run = await running
        assert run.status == ExitStatus.INTERRUPTED
        await cancelled.wait()
        assert run.steps[0].result is not None
        (call,) = run.steps[0].result.calls
        assert (call.name, call.ok) == ("look", False)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
async def test_a_worker_that_computes_does_not_outlive_a_host_that_was_killed(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        await kernel.execute("sum(range(10))", timeout_s=7)
        soft, _hard = resource.prlimit(kernel.pid, resource.RLIMIT_CPU)
        assert 7 <= soft <= 20
        used = "for i in range(3_000_000):\n    pass"
        assert (await kernel.execute(used, timeout_s=60)).ok
        assert (await kernel.execute("1", timeout_s=100)).ok
        assert resource.prlimit(kernel.pid, resource.RLIMIT_CPU)[0] >= 105
        # What the limit does to a worker that computes:
        pid = kernel.pid
        running = await begin(kernel, "while True:\n    pass", timeout_s=None)
        resource.prlimit(pid, resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))
        assert (await running).status == "dead"


async def test_a_flood_is_cut_and_counted(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        result = await kernel.execute("for i in range(300):\n    print('x' * 9_999)")
        assert result.ok
        assert MAX_CHARS <= len(text(result)) < MAX_CHARS + 200
        assert "2,000,000 more characters" in text(result)
        assert len(text(await kernel.execute("'y' * 5_000_000"))) == MAX_CHARS


async def test_host_tools_are_called_as_plain_functions(folder: Path) -> None:
    asked: list[Any] = []

    async def answer(prompt: str) -> str:
        request = json.loads(prompt.removeprefix("kernel-agent/1 "))
        (call,) = request["calls"]
        asked.append(call)
        if call["args"] == ["bad"]:
            result = {"ok": False, "type": "KeyError", "message": "no such thing"}
        else:
            result = {"ok": True, "value": {"got": call["args"]}}
        return json.dumps({"id": request["id"], "results": [result]})

    async with InterpreterSession(cwd=folder, tools=[{"name": "look"}]) as kernel:

        async def run(source: str) -> CellResult:
            return await kernel.execute(source, on_request=answer)

        assert text(await run("[look(i)['got'] for i in range(2)]")) == "[[0], [1]]"
        assert asked == [{"name": "look", "args": [i], "kwargs": {}} for i in range(2)]
        caught = "try:\n    look('bad')\nexcept KeyError as e:\n    print('caught', e)"
        assert "no such thing" in text(await run(caught))
        failed = await run("look(object())")
        assert failed.status == "error"
        assert (await run("other()")).error.ename == "NameError"


class Point(NamedTuple):
    x: int
    y: Any


def test_a_tools_result_has_only_types_that_the_interpreter_has() -> None:
    table = pd.DataFrame({"day": pd.to_datetime(["2024-01-02", None])})
    assert without_libraries(table) == [{"day": datetime(2024, 1, 2)}, {"day": None}]
    assert without_libraries((Fraction(1, 3), np.arange(2))) == ("1/3", [0, 1])
    assert without_libraries(np.array([1j])) == ["1j"]
    assert without_libraries(Point(1, np.int64(2))) == (1, 2)


async def test_what_is_no_answer_is_an_error_of_the_cell(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        for expression in ("print(1)", "''", "..."):
            result = await kernel.execute(f"final_answer({expression})")
            assert (result.status, result.answer) == ("error", None)
            assert result.error is not None
            assert " is no answer: " in result.error.evalue
        assert (await kernel.execute("final_answer(None)")).answer is not None


async def test_a_run_answers_from_a_file_and_its_notebook_re_runs_in_jupyter(
    tmp_path: Path,
) -> None:
    table = tmp_path / "sales.csv"
    table.write_text("region,amount\nnorth,3\nsouth,4\n")

    @tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    replies = [
        "import csv\nrows = list(csv.DictReader(open('data/sales.csv')))\nrows",
        "import pandas",
        "final_answer(double(sum(int(r['amount']) for r in rows)))",
    ]
    replies = [f"Next.\n\n```python\n{source}\n```" for source in replies]
    async with Session(
        model=ScriptedModel(replies), sandbox="interpreter", data=[table], tools=[double],
        out=tmp_path / "out",
    ) as session:  # fmt: skip
        run = await session.run("What are the sales, doubled?")
        assert "interpreter" in session.sandbox_line
    assert (run.status, run.answer, run.sandbox) == (ExitStatus.ANSWERED, 14, "interpreter")
    assert "ModuleNotFoundError" in run.steps[1].observation.text
    assert run.steps[2].result is not None
    assert [call.name for call in run.steps[2].result.calls] == ["double"]
    assert run.notebook is not None
    nbformat.validate(nbformat.read(run.notebook, 4))
    verdicts = {c.id: str(c.verdict) for c in verify(run.notebook).cells}
    assert verdicts["run-1-step-01-code"] == "same"
    assert verdicts["run-1-step-03-code"] == "same"
    trace = run.trace.read_text()
    assert "small interpreter of pure Python" in trace


async def test_values_go_to_an_agent_beneath_and_come_back_as_what_they_are(tmp_path: Path) -> None:
    above = (
        "from datetime import date\n"
        "back = delegate('Beneath', {'days': (date(2026, 1, 31),), 'none': float('nan')})\n"
        "final_answer(repr(back))"
    )
    replies = [
        {"for": "Above", "content": f"Next.\n\n```python\n{above}\n```"},
        {"for": "Beneath", "content": "```python\nfinal_answer((days, none != none))\n```"},
    ]
    async with Session(
        model=ScriptedModel(replies), sandbox="interpreter", tools=["delegate"],
        out=tmp_path / "out",
    ) as session:  # fmt: skip
        run = await session.run("Above")
    assert run.answer == "((datetime.date(2026, 1, 31),), True)", run.partial


async def test_the_prompt_promises_no_help_and_no_map_because_it_has_none(tmp_path: Path) -> None:
    """However many tools there are, and however long their descriptions."""

    def numbered(n: int) -> Tool:
        def look(what: str) -> str:
            return what

        look.__name__, look.__doc__ = f"look_{n}", "Look it up.\n" + "A line of words.\n" * 500
        return Tool(look)

    model = ScriptedModel(["```python\nfinal_answer(1)\n```"], keep_requests=True)
    tools = [*(numbered(n) for n in range(21)), "delegate", "llm"]
    async with Session(
        model=model, sandbox="interpreter", tools=tools, out=tmp_path / "out"
    ) as session:
        await session.run("Which?")
    shown = model.requests[0][0].content
    assert "def look_20(what: str) -> str:" in shown
    assert "help(" not in shown.replace("input(), help()", "")
    assert ".map" not in shown


def test_what_it_cannot_do_is_said_before_anything_runs(tmp_path: Path) -> None:
    import pandas as pd

    table = tmp_path / "sales.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(table)

    def start(**options: Any) -> None:
        with Session(
            model=ScriptedModel([]), sandbox="interpreter", out=tmp_path / "out", **options
        ):
            pass

    with pytest.raises(InputError, match="reads text files only"):
        start(data=[table])
    with pytest.raises(InputError, match=r"is a folder: .* Name its files"):
        start(data=[tmp_path])
    with pytest.raises(UsageError, match="--max-operations does not work"):
        start(max_operations=5)
    with pytest.raises(SandboxError, match="interpreter cannot open single hosts"):
        start(allow_hosts=["www.example.org"])
    assert not (tmp_path / "out").exists()


async def test_the_modules_that_are_named_are_there(folder: Path) -> None:
    async with InterpreterSession(cwd=folder) as kernel:
        for module in MODULES:
            assert (await kernel.execute(f"import {module}")).ok, module


ENDINGS = """
import asyncio, os, sys
from pathlib import Path
import pydantic_monty
from kernel_agent.kernel.interpreter import InterpreterSession

async def main():
    async with InterpreterSession(cwd=Path()) as kernel:
        pass

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
codes = []
for _ in range(30):
    pid = os.fork()
    if not pid:
        asyncio.run(main())
        sys.exit()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(codes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processors are chosen by Linux")
@pytest.mark.long
def test_a_process_ends_well_on_one_processor_too(tmp_path: Path) -> None:
    """A thread of the library that still wants Python as it ends would abort one in twenty."""
    command = [sys.executable, "-c", ENDINGS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0] * 30
