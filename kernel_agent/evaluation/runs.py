"""One run, loop and kernel together: ``run_one(spec) -> result``, the same on every machine.

A result is kept on disk beside the run's trace and notebook before it is returned, and the first
one stays: a run that a scheduler repeats returns what is there already. Whatever goes wrong in a
run becomes its result; nothing but a stop is raised.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_agent.config import Config, load_config
from kernel_agent.errors import KernelAgentError, KernelError, ModelError
from kernel_agent.evaluation.checks import Ask, Verdict, form_of, judge, not_judged, wrong
from kernel_agent.evaluation.specs import REFUSED, Arm, RunResult, RunSpec
from kernel_agent.records import (
    ExitStatus,
    Message,
    Reply,
    RequestOptions,
    Usage,
    now,
    repaired_calls,
)
from kernel_agent.safe import FILE_MODE, make_private, one_line
from kernel_agent.session import Run, Session, whole_answer
from kernel_agent.tools import load_tools

RESULT_NAME = "result.json"
MAX_ANSWER = 20_000  # characters of an answer in a result; the trace has all of it

Play = Callable[[RunSpec, Path], Awaitable[tuple[list[Run], Verdict]]]
"""Asks a spec's questions, with the files of its runs in a folder, and judges what came of it."""


def run_one(spec: RunSpec) -> RunResult:
    """Carry out a run and wait for it; called by engines on their workers."""
    return asyncio.run(carry_out(spec))


async def carry_out(spec: RunSpec, *, play: Play | None = None) -> RunResult:
    """Carry out a run, or return the result that is there already.

    Parameters
    ----------
    play
        What is done for the result: :func:`ask_and_judge` by default.

    Raises
    ------
    asyncio.CancelledError
        It was stopped; nothing is kept as its result.
    """
    kept = kept_result(Path(spec.folder), spec.run_id)
    if kept is not None:
        return kept
    folder = _attempt_folder(spec)
    started = now()
    try:
        runs, verdict = await (play or ask_and_judge)(spec, folder)
        result = _result(spec, runs, verdict, started)
    except KernelAgentError as error:
        result = _make_failed(spec, _status(error), str(error), started)
    except Exception as error:  # tools and checks are the user's: a task never stops the rest
        result = _make_failed(spec, REFUSED, f"{type(error).__name__}: {error}", started)
    return _keep(spec, result) if result.finished else result


def kept_result(folder: Path, run_id: str, name: str = RESULT_NAME) -> RunResult | None:
    """Return the result of a run that has ended, if it has; damaged files count as none."""
    try:
        return RunResult.model_validate_json((folder / "runs" / run_id / name).read_bytes())
    except (OSError, ValueError):
        return None


def spent(folder: Path, *, unknown: float) -> float:
    """Return the US dollars of all attempts at runs; ``unknown`` for each that was cut off."""
    files = folder.glob("runs/*/*.json")  # those that were set aside, too
    kept = [kept_result(folder, path.parent.name, path.name) for path in files]
    costs = [result.total_cost_usd for result in kept if result]
    attempts = len(list(folder.glob("runs/*/[0-9]*")))
    return sum(costs) + max(0, attempts - len(costs)) * unknown


def forget(folder: Path, run_id: str) -> None:
    """Set a kept result aside, so that the run is carried out again."""
    path = folder / "runs" / run_id / RESULT_NAME
    if path.exists():
        path.rename(path.with_name(f"set-aside-{os.urandom(4).hex()}.json"))


# --- the session ---------------------------------------------------------------------------------


async def ask_and_judge(spec: RunSpec, folder: Path) -> tuple[list[Run], Verdict]:
    """Ask a task's questions in one session and judge the last answer."""
    tools = [tool for module in spec.task.tools for tool in load_tools(module)]
    runs: list[Run] = []
    async with Session(
        config=config_of(spec), tools=tools, data=spec.task.data, out=folder
    ) as session:
        for turn in questions(spec):
            runs.append(await session.run(turn, typed=spec.task.check.kind == "dataframe"))
            if runs[-1].status not in (ExitStatus.ANSWERED, ExitStatus.STEP_LIMIT):
                break
    return runs, await _verdict(spec, runs[-1])


def questions(spec: RunSpec) -> tuple[str, ...]:
    """Return what is asked; the last question says the form of answer that its check reads.

    The offline analyst is asked as the task stands: it answers with values, and reads every word.
    """
    *before, last = spec.task.turns
    form = "" if spec.arm.model == "offline" else form_of(spec.task)
    return (*before, f"{last}\n\n{form}" if form else last)


async def _verdict(spec: RunSpec, last: Run) -> Verdict:
    if last.status is not ExitStatus.ANSWERED:
        return wrong(last.message or str(last.status))
    if spec.judge is None or spec.task.check.kind != "rubric":
        return await judge(spec.task, await asyncio.to_thread(whole_answer, last), last.text)
    return await _judged_by_model(spec, spec.judge, last)


async def _judged_by_model(spec: RunSpec, by: Arm, run: Run) -> Verdict:
    try:
        async with judging(spec, by) as ask:
            return await judge(spec.task, run.answer, run.text, ask=ask)
    except KernelAgentError as error:
        return not_judged(f"the judge failed: {error}")


@asynccontextmanager
async def judging(spec: RunSpec, by: Arm, *, max_cost: float | None = None) -> AsyncIterator[Ask]:
    """Give what asks the model that judges a run; with a cap on money it needs prices."""
    from kernel_agent.formats import get_format
    from kernel_agent.session import choose_model

    config = config_of(spec).merged(model=_model_name(by.model, spec), base_url=by.base_url)
    config = dataclasses.replace(config, max_cost=max_cost)
    model = await choose_model(config, get_format(), lambda _event: None)

    async def ask(messages: list[Message]) -> Reply:
        return await model.complete(messages, RequestOptions(), lambda _event: None)

    try:
        yield ask
    finally:
        await model.close()


def config_of(spec: RunSpec) -> Config:
    """Return this machine's settings with those of the evaluation over them."""
    return dataclasses.replace(
        load_config(),
        **spec.settings,
        model=_model_name(spec.arm.model, spec),
        base_url=spec.arm.base_url or load_config().base_url,
        format=spec.arm.format,
        sandbox=spec.arm.sandbox,
        data=(),
    )


def _model_name(model: str, spec: RunSpec) -> str:
    """Return the model's name; a script may be one for each task, format and trial."""
    if not model.startswith("scripted:"):
        return model
    names = {"{task}": spec.task.id, "{format}": spec.arm.format, "{trial}": str(spec.trial)}
    for sign, name in names.items():
        model = model.replace(sign, name)
    return model


# --- the result ----------------------------------------------------------------------------------


def _result(spec: RunSpec, runs: Sequence[Run], verdict: Verdict, started: str) -> RunResult:
    last = runs[-1]
    usage = sum((run.usage for run in runs), Usage())
    steps = [step for run in runs for step in run.steps]
    calls = [call for step in steps if step.result for call in step.result.calls]
    return RunResult(
        run_id=spec.run_id,
        task_id=spec.task.id,
        arm=spec.arm.name,
        trial=spec.trial,
        status=str(last.status),
        success=verdict.success,
        reason=verdict.reason,
        form=verdict.form,
        answer=_short(last.answer),
        steps=len(steps),
        model_calls=usage.calls,
        tool_calls=len(calls),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        tokens_estimated=usage.estimated,
        cost_usd=usage.cost_usd,
        judge_cost_usd=verdict.usage.cost_usd,
        parse_failures=sum(not retry.cut_off for step in steps for retry in step.retries),
        failed_cells=sum(step.result is not None and not step.result.ok for step in steps),
        failed_calls=sum(not call.ok for call in calls),
        repaired_calls=sum(repaired_calls(step.action) for step in steps),
        unseen=any(step.answered_unseen for step in steps[-1:]),
        seconds=round(sum(run.seconds for run in runs), 3),
        started=started,
        notebook=_relative(last.notebook, spec),
    )


def _make_failed(spec: RunSpec, status: str, reason: str, started: str) -> RunResult:
    return RunResult(
        run_id=spec.run_id, task_id=spec.task.id, arm=spec.arm.name, trial=spec.trial,
        status=status, success=False, reason=one_line(reason, 300), started=started,
    )  # fmt: skip


def _status(error: KernelAgentError) -> str:
    if isinstance(error, ModelError):
        return str(ExitStatus.MODEL_ERROR)
    return str(ExitStatus.KERNEL_LOST) if isinstance(error, KernelError) else REFUSED


def _short(answer: Any) -> Any:
    from pydantic_core import to_json

    text = to_json(answer, inf_nan_mode="constants").decode("utf-8", "replace")
    return answer if len(text) <= MAX_ANSWER else text[:MAX_ANSWER] + "…"


def _relative(path: Path | None, spec: RunSpec) -> str | None:
    return None if path is None else os.path.relpath(path, spec.folder)


def _attempt_folder(spec: RunSpec) -> Path:
    """Return a new folder for this attempt: an earlier one, killed on the way, keeps its trace."""
    run = Path(spec.folder) / "runs" / spec.run_id
    make_private(run, exist_ok=True)
    number = 1
    while True:
        try:
            make_private(run / str(number))
        except FileExistsError:
            number += 1
        else:
            return run / str(number)


def _keep(spec: RunSpec, result: RunResult) -> RunResult:
    """Write the result whole or not at all; when another attempt was first, return that one's."""
    path = Path(spec.folder) / "runs" / spec.run_id / RESULT_NAME
    draft = path.with_name(f".{RESULT_NAME}.{os.urandom(4).hex()}")
    draft.touch(mode=FILE_MODE)
    draft.write_text(result.model_dump_json(), encoding="utf-8", errors="backslashreplace")
    try:
        os.link(draft, path)
    except FileExistsError:
        return kept_result(Path(spec.folder), spec.run_id) or result
    finally:
        draft.unlink()
    return result
