"""Agents beneath a run: real kernels side by side, a scripted model, one folder with the tree."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from support.replies import cell

from kernel_agent import Budget, ScriptedModel, Session, verify
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Event, Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart, RunStop

ROOT = Path(__file__).parents[2]
SLEEP = "import time\ntime.sleep(100)"


def reply(key: str, code: str, **fields: Any) -> dict[str, Any]:
    return {"for": key, "content": cell(code), **fields}


def make(replies: Sequence[Any], out: Path, **options: Any) -> Session:
    options.setdefault("tools", ["delegate", "llm"])
    return Session(model=ScriptedModel(list(replies)), out=out, **options)


def kernels_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder or below it."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


async def gone(folder: Path) -> bool:
    """Wait for the processes of a folder to be gone; say whether they are."""
    for _ in range(50):
        if not kernels_in(folder):
            return True
        await asyncio.sleep(0.1)
    return False


PARTS = """
import pandas as pd
sales = pd.DataFrame({
    "region": pd.Categorical(["north", "south", "west"] * 4),
    "amount": pd.Series(range(12), dtype="int16"),
    "day": pd.date_range("2024-01-01", periods=12, tz="UTC"),
})
parts = [part for _, part in sales.groupby("region", observed=True)]
"""

SIDE_BY_SIDE = [
    cell(
        PARTS
        + "results = delegate.map([f'Sum up {p.region.iloc[0]}' for p in parts], data=parts)\n"
        "for result in results:\n    print(type(result).__name__, str(result).splitlines()[0])"
    ),
    cell(
        "north = results[0]\nassert list(north.dtypes.astype(str)) == ['category', 'int16', "
        "str(sales.day.dtype), 'int64'], north.dtypes\n"
        "failed = [str(r).partition(':')[0] for r in results if isinstance(r, Exception)]\n"
        "final_answer({'north': int(north.total.iloc[0]), 'failed': failed})"
    ),
    reply("Sum up north", "final_answer(data.assign(total=int(data.amount.sum())))"),
    *[reply("Sum up south", "data.amont.sum()")] * 3,
    *[reply("Sum up west", f"data.amount.head({n})") for n in range(9)],
]


@pytest.mark.long
async def test_three_agents_work_side_by_side_one_fails_one_reaches_its_limit(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    out = tmp_path / "out"
    budget = Budget(max_steps=18, max_seconds=200, max_tokens=100_000)
    async with make(SIDE_BY_SIDE, out, on_event=events.append, budget=budget) as session:
        run = await session.run("Compare the regions")
    assert run.status is ExitStatus.ANSWERED
    assert run.answer == {"north": 18, "failed": ["loop_detected", "step_limit"]}

    north, south, west = run.agents
    statuses = [agent.status for agent in run.agents]
    assert statuses == [
        ExitStatus.ANSWERED,
        ExitStatus.LOOP_DETECTED,
        ExitStatus.STEP_LIMIT,
    ]
    assert [agent.task for agent in run.agents] == [
        f"Sum up {name}" for name in ("north", "south", "west")
    ]
    assert [agent.steps for agent in run.agents] == [1, 3, 4]
    beneath = north.usage + south.usage + west.usage
    own = sum(step.usage.total_tokens for step in run.steps)
    assert run.usage.total_tokens == own + beneath.total_tokens

    start = next(r for r in read_trace(run.trace) if isinstance(r, RunStart))
    kernels = set()
    for agent in run.agents:
        first, *_, last = read_trace(out / agent.folder)
        assert isinstance(first, RunStart)
        assert isinstance(last, RunStop)
        assert (first.parent_id, first.run_id) == (start.run_id, agent.run_id)
        assert last.status is agent.status
        assert first.sandbox["level"] == start.sandbox["level"]
        assert first.budget["max_steps"] == 4
        assert first.budget["max_tokens"] < 25_000
        kernels.add(json.dumps(first.sandbox["report"]))
        assert (await asyncio.to_thread(verify, out / agent.folder / "run.ipynb")).reproduces
    assert run.notebook is not None
    assert (await asyncio.to_thread(verify, run.notebook)).reproduces
    text = "\n".join(c.source for c in nbformat.read(run.notebook, as_version=4).cells)
    for agent in run.agents:
        assert f"[{agent.name}]({agent.folder}/run.ipynb)" in text
    assert "**step limit** · 4 steps" in text

    told = [e for e in events if isinstance(e, Notice) and e.run_id]
    assert {e.run_id for e in told} == {agent.run_id for agent in run.agents}
    assert [type(e).__name__ for e in events].count("RunStart") == 1
    started = [i for i, e in enumerate(told) if "started" in e.text]
    assert started == [0, 1, 2] or len(started) == 3
    assert await gone(out)


async def test_the_run_above_sees_and_changes_nothing_of_its_agents(tmp_path: Path) -> None:
    replies = [
        cell("delegate('Count')"),
        cell(
            "import os\nseen = os.listdir('agents')\n"
            "try:\n    open('agents/planted', 'w')\nexcept OSError:\n    seen.append('no')\n"
            "try:\n    os.rename('agents', 'others')\nexcept OSError:\n    seen.append('no')\n"
            "final_answer(seen)"
        ),
        reply("Count", "final_answer(1)"),
    ]
    async with make(replies, tmp_path, sandbox="bubblewrap") as session:
        run = await session.run("Look at them")
    assert run.answer == ["no", "no"]
    assert [p.name for p in (tmp_path / "agents").iterdir()] == ["1-count"]


async def test_where_nothing_can_be_hidden_agents_work_beside_the_folder(tmp_path: Path) -> None:
    replies = [
        cell("final_answer(delegate('Count', [1, 2]))"),
        reply("Count", "final_answer(sum(data))"),
    ]
    async with make(replies, tmp_path / "out", sandbox="landlock") as session:
        run = await session.run("Ask somebody")
    assert (run.answer, run.agents[0].folder) == (3, "../out.agents/1-count")
    assert (tmp_path / "out.agents/1-count/trace.jsonl").is_file()
    assert not (tmp_path / "out/agents").exists()


async def test_stopping_the_run_stops_its_agents_and_leaves_no_kernel(tmp_path: Path) -> None:
    slow = "import time\nopen('here', 'w').close()\ntime.sleep(100)"
    replies = [
        cell("delegate.map(['Wait a', 'Wait b'])"),
        reply("Wait a", slow),
        reply("Wait b", slow),
    ]
    out = tmp_path / "out"
    async with make(replies, out) as session:
        running = asyncio.ensure_future(session.run("Wait"))
        while len(list(out.glob("agents/*/here"))) < 2:
            await asyncio.sleep(0.1)
        began = time.monotonic()
        session.stop()
        run = await running
        assert time.monotonic() - began < 20
        assert run.status is ExitStatus.INTERRUPTED
        assert [agent.status for agent in run.agents] == [ExitStatus.INTERRUPTED] * 2
        assert not any(kernels_in(path) for path in out.glob("agents/*"))
    for agent in run.agents:
        assert (out / agent.folder / "run.ipynb").is_file()
    assert await gone(out)


@pytest.mark.long
async def test_a_kernel_that_dies_takes_its_agents_with_it(tmp_path: Path) -> None:
    replies = [
        cell(
            "import os, threading\nthreading.Timer(6, lambda: os._exit(9)).start()\n"
            "delegate('Wait')"
        ),
        reply("Wait", "import time\ntime.sleep(100)"),
    ]
    out = tmp_path / "out"
    began = time.monotonic()
    async with make(replies, out) as session:
        run = await session.run("Die")
        assert not any(kernels_in(path) for path in out.glob("agents/*"))
    assert run.status is ExitStatus.KERNEL_LOST
    assert time.monotonic() - began < 60
    assert [agent.status for agent in run.agents] == [ExitStatus.INTERRUPTED]


@pytest.mark.long
async def test_every_kind_of_value_goes_in_and_comes_back(tmp_path: Path) -> None:
    replies = [
        cell(
            "import datetime, decimal\nimport numpy as np, pandas as pd\n"
            "df = pd.DataFrame({'a': pd.array([1, None], dtype='Int8'), 'b': ['x', None]},"
            " index=pd.Index(['p', 'q'], name='key'))\n"
            "given = {'df': df, 'series': df.a, 'array': np.arange(6.0).reshape(2, 3),\n"
            "         'text': 'é' * 2000, 'many': list(range(1000)), 'nan': float('nan'),\n"
            "         'when': datetime.datetime(2024, 1, 2, 3), 'money': decimal.Decimal('1.10'),\n"
            "         'pair': (1, {2, 3}), 'table_of': {'t': df}, 'raw': b'\\xff', 'none': None}\n"
            "back = delegate('Give back', given)"
        ),
        cell(
            "pd.testing.assert_frame_equal(back['df'], df)\n"
            "pd.testing.assert_frame_equal(back['table_of']['t'], df)\n"
            "assert back['series'].dtype == 'Int8' and list(back['series'].index) == ['p', 'q']\n"
            "assert (back['array'] == given['array']).all() and back['array'].dtype == float\n"
            "plain = ['text', 'many', 'when', 'money', 'pair', 'raw', 'none']\n"
            "final_answer([name for name in plain if back[name] != given[name]])"
        ),
        reply(
            "Give back",
            "final_answer({name: globals()[name] for name in ['df', 'series', 'array', 'text', "
            "'many', 'nan', 'when', 'money', 'pair', 'table_of', 'raw', 'none']})",
        ),
    ]
    async with make(replies, tmp_path) as session:
        run = await session.run("Round trip")
    assert run.status is ExitStatus.ANSWERED, run.steps[-1].observation.text
    assert run.answer == []
    assert run.notebook is not None
    assert (await asyncio.to_thread(verify, run.notebook)).reproduces
    assert (
        await asyncio.to_thread(verify, tmp_path / run.agents[0].folder / "run.ipynb")
    ).reproduces


@pytest.mark.long
async def test_cancelling_the_run_leaves_no_agent(tmp_path: Path) -> None:
    replies = [cell("delegate('Sleep')"), reply("Sleep", "open('here', 'w').close()\n" + SLEEP)]
    out = tmp_path / "out"
    async with make(replies, out) as session:
        running = asyncio.ensure_future(session.run("Ask"))
        while not list(out.glob("agents/*/here")):
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not any(kernels_in(path) for path in out.glob("agents/*"))
    (folder,) = (out / "agents").iterdir()
    stop = read_trace(folder)[-1]
    assert isinstance(stop, RunStop)
    assert stop.status is ExitStatus.INTERRUPTED


@pytest.mark.parametrize(
    "seconds", [0.4, *(pytest.param(s, marks=pytest.mark.long) for s in (0.05, 0.2, 0.8))]
)
async def test_a_run_may_be_stopped_while_its_agents_start(tmp_path: Path, seconds: float) -> None:
    replies = [cell("open('here', 'w').close()\ndelegate.map(['Sleep'] * 6)")]
    replies += [reply("Sleep", SLEEP)] * 6
    out = tmp_path / "out"
    async with make(replies, out) as session:
        running = asyncio.ensure_future(session.run("Ask"))
        while not (out / "here").exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)
        session.stop()
        run = await running
        assert run.status is ExitStatus.INTERRUPTED
        assert not any(kernels_in(path) for path in out.glob("agents/*"))
    left = [path for path in out.glob("agents/*") if not (path / "trace.jsonl").is_file()]
    assert not left
    assert len(run.agents) == len(list(out.glob("agents/*")))


def test_a_host_that_is_killed_leaves_no_kernel(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = tmp_path / "script.jsonl"
    lines = [
        {"content": cell("delegate.map(['Sleep', 'Sleep'])")},
        *[reply("Sleep", "open('here', 'w').close()\n" + SLEEP)] * 2,
    ]
    script.write_text("\n".join(map(json.dumps, lines)))
    command = [sys.executable, "-m", "kernel_agent", "run", "Ask", "--tools", "delegate"]
    command += ["--model", f"scripted:{script}", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as host:
        deadline = time.monotonic() + 60
        while len(list(out.glob("agents/*/here"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert kernels_in(out)
        host.kill()
    assert asyncio.run(gone(out))


@pytest.mark.long
def test_the_command_shows_the_tree_and_counts_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = tmp_path / "script.jsonl"
    lines = [
        {"content": cell("final_answer(delegate('Count', [1, 2, 3]))")},
        reply("Count", "final_answer(sum(data))"),
    ]
    script.write_text("\n".join(map(json.dumps, lines)))
    command = [sys.executable, "-m", "kernel_agent"]
    options = ["--tools", "delegate", "--tools", "llm", "--model", f"scripted:{script}", "--json"]
    made = subprocess.run(
        [*command, "run", "Ask", *options, "--out", str(out)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    result = json.loads(made.stdout)
    (agent,) = result["agents"]
    assert result["answer"] == 6
    assert (agent["status"], agent["answer"], agent["steps"]) == ("answered", "6", 1)
    assert result["usage"]["calls"] == 2
    assert "Agent 1-count: started (at most 14 steps, " in made.stderr
    assert "Agent 1-count: answered · 1 step" in made.stderr
    shown = subprocess.run(
        [*command, "show", str(out)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "! Agent 1-count: Count\n!   answered · 1 step" in shown.stdout


@pytest.mark.long
def test_the_example_reports_the_agent_that_failed_and_the_one_at_its_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernel_agent", "run", "Does mass grow on every island?"]
    command += ["--data", "example_notebooks/data/penguins.csv", "--tools", "delegate", "--json"]
    command += ["--model", "scripted:example_scripts/three_islands.jsonl", "--max-steps", "20"]
    made = subprocess.run(
        [*command, "--quiet", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    result = json.loads(made.stdout)
    assert result["answer"].splitlines() == [
        "Biscoe, Adelie: 38 g more for each mm (n = 44)",
        "Biscoe, Gentoo: 55 g more for each mm (n = 123)",
        "Dream: no result, its agent ended as loop_detected",
        "Torgersen: no result, its agent ended as step_limit",
    ]
    assert [agent["status"] for agent in result["agents"]] == [
        "answered",
        "loop_detected",
        "step_limit",
    ]
    assert verify(tmp_path / "out/run.ipynb").reproduces
