"""One run of a suite's task: its tools are offered, its code is run, and it judges."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suites import Bench, Cells, SuiteTask, cells_of, open_bench
from kernel_agent.config import Config
from kernel_agent.errors import InputError
from kernel_agent.evaluation.checks import Verdict, not_judged, wrong
from kernel_agent.evaluation.runs import ask_and_judge, config_of, questions
from kernel_agent.evaluation.specs import Arm, RunSpec
from kernel_agent.formats import ParallelCalls
from kernel_agent.models import ScriptedModel
from kernel_agent.records import CellResult, ExitStatus
from kernel_agent.session import Run, Session
from kernel_agent.tools import Tool


async def play(spec: RunSpec, folder: Path) -> tuple[list[Run], Verdict]:
    """Ask a task's questions and let its suite judge; called by ``carry_out``."""
    task = spec.task
    if not isinstance(task, SuiteTask):  # the smoke test
        return await ask_and_judge(spec, folder)
    bench, cells, config = open_bench(task), cells_of(task), config_of(spec)
    tools = offered_tools(bench, spec.arm) if bench else ()
    runs: list[Run] = []
    async with Session(config=config, tools=tools, data=task.data, out=folder) as session:
        if cells is not None:
            prepared = await session.execute(cells.setup)
            if not prepared.ok:
                raise InputError(f"the task's own setup failed: {_describe_error(prepared)}")
        for number, turn in enumerate(questions(spec), start=1):
            if bench:
                bench.turn_begins(number)
            runs.append(await session.run(turn, typed=False))
            if runs[-1].status not in (ExitStatus.ANSWERED, ExitStatus.STEP_LIMIT):
                break
    if bench is not None:
        return runs, await _by_bench(bench, runs, len(task.turns))
    assert cells is not None
    if runs[-1].status is not ExitStatus.ANSWERED:
        return runs, wrong(runs[-1].message or str(runs[-1].status))
    return runs, await _by_reference(cells, runs[-1], config, task.data, folder / "reference")


def offered_tools(bench: Bench, arm: Arm) -> list[Tool]:
    """Return a suite's tools: in code without those that would hide a built-in of Python's.

    ``min(rows, key=…)`` is Python's business there: no generator and no function can be sent.
    """
    in_calls = arm.format == ParallelCalls.name
    return [tool for tool in bench.tools if in_calls or not hasattr(builtins, tool.name)]


async def _by_bench(bench: Bench, runs: Sequence[Run], turns: int) -> Verdict:
    if len(runs) < turns:
        return wrong(f"ended at question {len(runs)} of {turns}: {runs[-1].message}")
    return await asyncio.to_thread(bench.judge, runs)


async def _by_reference(
    cells: Cells, run: Run, config: Config, data: Sequence[str], folder: Path
) -> Verdict:
    """Compare the answer with the one that reference code gives in a kernel of its own."""
    async with Session(model=ScriptedModel([]), config=config, data=data, out=folder) as session:
        results = [await session.execute(code) for code in (cells.setup, cells.reference)]
    failed = next((result for result in results if not result.ok), None)
    if failed is not None:
        return not_judged(f"the suite's reference code fails here: {_describe_error(failed)}")
    expected = results[-1].answer
    if expected is None:
        return not_judged("the suite's reference code gives no answer")
    return cells.compare(expected, run)


def _describe_error(result: CellResult) -> str:
    error = result.error
    return f"{error.ename}: {error.evalue}" if error else str(result.status)
