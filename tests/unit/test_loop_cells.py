"""Fixed cells decide in the same loop: all of them run, or as far as it goes."""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import count

import pytest
from support.loop import ANSWER, ERROR, OK, Bench

from kernel_agent.errors import KernelDied, UsageError
from kernel_agent.records.action import Code
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.cell import Answer, CellError, CellResult
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting
from kernel_agent.records.trace import RunStop
from kernel_agent.session.pipeline import FixedCell, FixedCells

LOST = CellResult(status="dead", error=CellError(ename="KernelDied", evalue="exit code 3"))


def cells(*sources: str, may_fail: bool = False) -> list[FixedCell]:
    return [FixedCell(code=Code(source=source), may_fail=may_fail) for source in sources]


def bench(fixed: list[FixedCell], results, budget=None, chars: int = 8000) -> Bench:
    decider = FixedCells(fixed, observation_chars=chars)
    return Bench(results=results, budget=budget, decider=decider)


async def test_every_cell_runs_in_order_and_is_a_step():
    """With its number; nothing is asked of a model, and nothing is spent but steps."""
    made = bench(cells("a", "b", "c"), [OK] * 3)
    stop = await made.run(numbers=count(5))
    assert made.ran == ["a", "b", "c"]
    assert [(s.number, s.code, s.observation.text) for s in made.steps] == [
        (5, "a", "42"), (6, "b", "42"), (7, "c", "42")
    ]  # fmt: skip
    assert [e.number for e in made.events if isinstance(e, Acting)] == [5, 6, 7]
    assert (stop.status, stop.answer) == (ExitStatus.ANSWERED, Answer(text="All 3 cells ran."))
    assert (stop.steps, stop.usage, stop.partial) == (3, Usage(), "")
    assert all(s.model_seconds == 0 and s.reasoning == "" for s in made.steps)


async def test_one_cell_is_called_one():
    stop = await bench(cells("a"), [OK]).run()
    assert stop.answer == Answer(text="The cell ran.")


async def test_the_first_answer_counts_and_the_cells_after_it_run():
    second = dataclasses.replace(ANSWER, answer=Answer(text="later"))
    made = bench(cells("a", "b", "c", "d"), [OK, ANSWER, second, OK])
    stop = await made.run()
    assert made.ran == ["a", "b", "c", "d"]
    assert stop.answer == ANSWER.answer


async def test_a_cell_that_the_end_of_the_time_cut_short_is_a_limit_of_the_run():
    """With the exit code of a limit, as in a run with a model."""
    clock = [0.0]
    meter = Meter(Budget(max_seconds=2), clock=lambda: clock[0])
    late = CellResult(status="timeout", seconds=2.0)
    decider = FixedCells(cells("a", "b"), observation_chars=100)
    made = Bench(results=[late, OK], meter=meter, decider=decider)

    async def passes() -> None:
        clock[0] += 2.0

    made.during_cell = passes
    stop = await made.run()
    assert (stop.status, made.ran) == (ExitStatus.TIME_LIMIT, ["a"])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ERROR, "step 2 failed: KeyError: 'x' at 0x7f0012345678"),
        (CellResult(status="timeout", seconds=61.2), "step 2 took longer than it may (61 s)"),
        (CellResult(status="interrupted"), "step 2 failed: interrupted"),
    ],
)
async def test_the_first_cell_that_fails_ends_it(result, message):
    made = bench(cells("a", "b", "c"), [OK, result, OK])
    stop = await made.run()
    assert made.ran == ["a", "b"]
    assert (stop.status, stop.message, stop.answer) == (ExitStatus.CELL_FAILED, message, None)
    stopped = ", 1 stopped" if result.status == "interrupted" else ""
    told = f"2 steps ran, 1 without an error{stopped}. Step 1 showed last:\n42"
    assert stop.partial.startswith(told)


async def test_a_cell_that_may_fail_does_not_end_it_and_the_same_failure_is_no_loop():
    """Nobody learns from it: the rules for models do not hold for a list."""
    made = bench(cells(*["x"] * 5, may_fail=True), [ERROR] * 5)
    stop = await made.run()
    assert (stop.status, stop.steps) == (ExitStatus.ANSWERED, 5)


async def test_a_lost_kernel_ends_it_even_where_a_cell_may_fail_or_it_was_stopped():
    stop = await bench(cells("a", "b", may_fail=True), [LOST]).run()
    assert (stop.status, stop.message) == (
        ExitStatus.KERNEL_LOST, "the kernel was lost: exit code 3"
    )  # fmt: skip
    made = bench(cells("a", "b"), [LOST])
    made.during_cell = stopping(made)
    assert (await made.run()).status is ExitStatus.KERNEL_LOST
    stop = await bench(cells("a"), [KernelDied("exit code 3")]).run()
    assert stop.status is ExitStatus.KERNEL_LOST


def stopping(made: Bench):
    async def stop() -> None:
        made.stop()

    return stop


@pytest.mark.parametrize("result", [OK, ANSWER, ERROR, CellResult(status="interrupted")])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_stop_ends_it_when_the_cell_ends(result, count):
    """As interrupted, whatever came of the cell and whether it was the last."""
    made = bench(cells("a", "b")[:count], [result, OK])
    made.during_cell = stopping(made)
    stop = await made.run()
    assert (stop.status, stop.message) == (ExitStatus.INTERRUPTED, "stopped on request")
    assert (made.ran, stop.answer) == (["a"], None)


async def test_a_stop_before_the_first_cell_runs_nothing():
    made = bench(cells("a"), [OK])
    made.stop()
    stop = await made.run()
    assert (stop.status, made.ran, stop.steps) == (ExitStatus.INTERRUPTED, [], 0)


async def test_a_cap_ends_it_before_the_next_cell_and_not_after_the_last():
    stop = await bench(cells("a", "b", "c"), [OK] * 3, Budget(max_steps=2)).run()
    assert (stop.status, stop.steps) == (ExitStatus.STEP_LIMIT, 2)
    made = bench(cells("a", "b"), [OK] * 2, Budget(max_steps=2))
    assert (await made.run()).status is ExitStatus.ANSWERED
    assert not any("last" in s.observation.text for s in made.steps)  # nobody is warned


async def test_what_is_kept_of_a_cells_output_has_its_limit():
    long = dataclasses.replace(OK, outputs=({**OK.outputs[0], "text": "y" * 7000},))
    made = bench(cells("a"), [long], chars=1000)
    await made.run()
    assert 900 < len(made.steps[0].observation.text) <= 1000


async def test_a_run_of_cells_that_is_cancelled_is_recorded_as_any():
    """With the cell that was under way."""
    made = bench(cells("a", "b"), [])

    async def forever() -> None:
        await asyncio.sleep(60)

    made.during_cell = forever
    run = asyncio.create_task(made.run())
    while not made.ran:
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    [step] = made.steps
    assert (step.code, step.result.status) == ("a", "interrupted")
    assert isinstance(made.trace[-1], RunStop)
    assert made.trace[-1].status is ExitStatus.INTERRUPTED


def test_a_list_without_a_cell_is_refused():
    with pytest.raises(UsageError, match="no cell"):
        FixedCells([], observation_chars=100)
