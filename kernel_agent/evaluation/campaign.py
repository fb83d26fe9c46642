"""An evaluation: a smoke test of each arm, then every run that is still missing, within the caps.

A failing task never stops the rest. What stops the whole is Ctrl-C, the cap on money, and a disk
that is full; whatever was finished by then is on disk, and the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_agent import __version__
from kernel_agent.errors import UsageError
from kernel_agent.evaluation.engines import Engine, WorkerLost
from kernel_agent.evaluation.runs import forget, judging, spent
from kernel_agent.evaluation.smoke import smoke_task
from kernel_agent.evaluation.specs import LOST, REFUSED, Arm, RunResult, RunSpec, short_names
from kernel_agent.evaluation.store import Store
from kernel_agent.evaluation.tasks import Task, TaskSet
from kernel_agent.formats import get_format
from kernel_agent.records import ExitStatus, now
from kernel_agent.safe import one_line

GIVE_UP_AFTER = 5
"""Endpoint errors in a row, without one reply, after which an arm is left alone."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arms, tasks and caps of a comparison.

    Parameters
    ----------
    settings
        Settings that hold for every run, the caps of one run among them.
    max_total_cost
        US dollars for everything, earlier evaluations in the same folder included.
    judge
        The model that judges rubrics.
    repeat
        Statuses of results that are not to stand.
    """

    tasks: TaskSet
    arms: tuple[Arm, ...]
    trials: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    max_total_cost: float | None = None
    judge: Arm | None = None
    repeat: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len({arm.name for arm in self.arms}) != len(self.arms):
            raise UsageError("the same arm is named twice")
        if not self.arms or not 1 <= self.trials <= 1000:
            raise UsageError("an evaluation needs an arm, and from 1 to 1000 trials")
        rubrics = [task.id for task in self.tasks.tasks if task.check.kind == "rubric"]
        if rubrics and self.judge is None:
            raise UsageError(
                f"task {rubrics[0]!r} is judged by a rubric: name a judging model with --judge NAME"
            )
        if self.max_total_cost is not None and not self.settings.get("max_cost"):
            raise UsageError(
                "--max-total-cost needs --max-cost, too: what one run may cost is set aside "
                "before it starts"
            )

    def specs(self, folder: str) -> list[RunSpec]:
        """Return every run: tasks in the outer loop, so that a part is a fair comparison, too."""
        return [
            RunSpec.of(
                task=task, arm=arm, trial=trial, folder=folder, settings=self.settings,
                judge=self.judge,
            )
            for trial in range(1, self.trials + 1)
            for task in self.tasks.tasks
            if not task.excluded
            for arm in self.arms
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the folder keeps it."""
        return {
            "kernel_agent": __version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "written": now(),
            "tasks": self.tasks.name,
            "remarks": list(self.tasks.remarks),
            "task_ids": [task.id for task in self.tasks.tasks if not task.excluded],
            "told": {task.id: _tell(task) for task in self.tasks.tasks if not task.excluded},
            "excluded": {task.id: task.excluded for task in self.tasks.tasks if task.excluded},
            "corrected": {task.id: task.corrected for task in self.tasks.tasks if task.corrected},
            "arms": [arm.model_dump() | {"name": arm.name} for arm in self.arms],
            "trials": self.trials,
            "settings": self.settings,
            "max_total_cost": self.max_total_cost,
            "judge": self.judge.model_dump() if self.judge else None,
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of an evaluation: runs with results, and why the others are missing."""

    planned: int
    done: int
    failed_arms: dict[str, str]
    failed_smoke: dict[str, str] = field(default_factory=dict)
    out_of_money: bool = False
    lost: int = 0

    @property
    def complete(self) -> bool:
        """Whether every planned run has a result."""
        return self.done == self.planned


Tell = Callable[[str], None]


class Campaign:
    """One evaluation under way; use :func:`evaluate`."""

    def __init__(self, plan: Plan, store: Store, engine: Engine, tell: Tell) -> None:
        self._plan, self._store, self._engine, self._tell = plan, store, engine, tell
        self._specs = plan.specs(str(store.folder))
        self._done: dict[str, RunResult] = {}
        self._names, _ = short_names(plan.arms)
        self._failed_arms: dict[str, str] = {}
        self._failed_smoke: dict[str, str] = {}
        self._errors_in_a_row: Counter[str] = Counter()
        self._spent = self._reserved = 0.0
        self._out_of_money = False
        self._lost = 0
        self._whole: asyncio.Task[Any] | None = None

    async def run(self, at_once: int) -> Outcome:
        """Smoke-test the arms with missing runs, then carry those runs out."""
        self._whole = asyncio.current_task()
        self._done = self._store.finished(self._specs, repeat=self._plan.repeat)
        if self._done:
            self._tell(f"{len(self._done)} of {len(self._specs)} runs are there already")
        arms = {s.arm for s in self._specs if s.run_id not in self._done}
        capped = self._plan.max_total_cost is not None
        if capped:
            unknown = max(map(self._price, self._specs), default=0.0)
            self._spent = spent(self._store.folder, unknown=unknown)
        # One after the other where money is short: none waits for what another has set aside.
        places = asyncio.Semaphore(1 if capped else at_once)
        # All of them before the first is asked: the table of one is the table of all.
        asked = [(arm, self._smoke_spec(arm)) for arm in self._plan.arms if arm in arms]
        await asyncio.gather(*(self._smoke(arm, spec, places) for arm, spec in asked))
        waiting = iter([s for s in self._specs if s.run_id not in self._done])
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._work_off(waiting))
        return Outcome(
            planned=len(self._specs),
            done=len(self._done),
            failed_arms=self._failed_arms,
            failed_smoke=self._failed_smoke,
            out_of_money=self._out_of_money,
            lost=self._lost,
        )

    # --- smoke test ------------------------------------------------------------------------

    def _smoke_spec(self, arm: Arm) -> RunSpec:
        return RunSpec.of(
            task=smoke_task(arm.format, self._store.folder),
            arm=arm, trial=1, folder=str(self._store.folder), settings=self._plan.settings,
        )  # fmt: skip

    async def _smoke(self, arm: Arm, spec: RunSpec, places: asyncio.Semaphore) -> None:
        """Ask an arm a small question; exclude it if it cannot even begin."""
        forget(self._store.folder, spec.run_id)  # what was up yesterday may be down today
        result: RunResult | None = None
        try:
            async with places:
                result = await self._carry_out(spec)
        except WorkerLost as error:
            self._failed_arms[arm.name] = str(error)
        if result and _never_began(result):
            self._failed_arms[arm.name] = f"{result.status}: {result.reason}"
        name = self._names[arm.name]
        if arm.name in self._failed_arms:
            self._tell(f"arm left out: {name}: {self._failed_arms[arm.name]}")
        elif result and (why := _how_it_failed(result)):
            self._failed_smoke[arm.name] = why
            self._tell(f"arm fails the smoke test: {name}: {why}; it takes part all the same")
        elif result:
            self._tell(f"arm works: {name}")

    # --- the runs --------------------------------------------------------------------------

    async def _work_off(self, waiting: Iterator[RunSpec]) -> None:
        for spec in waiting:
            if spec.arm.name in self._failed_arms:
                continue
            try:
                result = await self._carry_out(spec)
            except WorkerLost as error:
                result = _make_lost(spec, str(error))
                self._lost += 1
            if result is None:
                return
            self._take(spec, result)

    async def _carry_out(self, spec: RunSpec) -> RunResult | None:
        """Let the engine carry out a run, if there is money for it.

        One that is cancelled without a stop is lost: a task group takes a cancelled task for one
        that has ended well. What a lost run may have cost stays set aside.
        """
        if not self._reserve(spec):
            return None
        try:
            result = await self._engine.result(spec)
        except asyncio.CancelledError:
            if any(task.cancelling() for task in (self._whole, asyncio.current_task()) if task):
                raise
            raise WorkerLost("it was cancelled from within") from None
        self._reserved -= self._price(spec)
        self._spent += result.total_cost_usd
        return result

    def _take(self, spec: RunSpec, result: RunResult) -> None:
        if result.finished:
            self._done[spec.run_id] = result
        self._store.append(result)
        self._tell(_line(self._names[result.arm], result, len(self._done), len(self._specs)))
        unreachable = result.status == ExitStatus.MODEL_ERROR and not result.model_calls
        name = spec.arm.name
        self._errors_in_a_row[name] = self._errors_in_a_row[name] + 1 if unreachable else 0
        from_endpoint = spec.arm.model != "offline" and not spec.arm.model.startswith("scripted:")
        if from_endpoint and self._errors_in_a_row[name] >= GIVE_UP_AFTER:
            self._failed_arms.setdefault(name, f"{GIVE_UP_AFTER} endpoint errors in a row")
            self._tell(f"arm given up: {self._names[name]}: {self._failed_arms[name]}")

    def _reserve(self, spec: RunSpec) -> bool:
        """Set aside what a run may cost; False when the money for that is not there."""
        cap, taken = self._plan.max_total_cost, self._spent + self._reserved
        if cap is not None and taken + self._price(spec) > cap + 1e-9:
            if not self._out_of_money:
                self._tell(
                    f"no more runs are started: {taken:.4f} of {cap:g} USD spent or set aside"
                )
            self._out_of_money = True
            return False
        self._reserved += self._price(spec)
        return True

    def _price(self, spec: RunSpec) -> float:
        return (self._plan.settings.get("max_cost") or 0.0) * len(spec.task.turns)


async def evaluate(
    plan: Plan,
    store: Store,
    engine: Engine,
    *,
    at_once: int | None = None,
    tell: Tell = lambda _line: None,
) -> Outcome:
    """Carry out the missing runs of a plan.

    Parameters
    ----------
    plan
        What is to be compared.
    store
        The folder, locked.
    engine
        Where; entered here.
    at_once
        Runs at a time; as many as the engine has places by default.
    tell
        Given one line for each run and each thing to know.

    Raises
    ------
    UsageError
        The engine cannot be reached, or needs a package; or the judge cannot be asked.
    TraceError
        The disk is full.
    """
    specs = plan.specs(str(store.folder))
    told = plan.to_json() | {"run_ids": [spec.run_id for spec in specs]}
    judged = next((spec for spec in specs if spec.task.check.kind == "rubric"), None)
    if judged and plan.judge:  # before anything is paid for
        async with judging(judged, plan.judge, max_cost=plan.max_total_cost):
            pass
    store.plan(told, specs)
    try:
        async with engine:
            campaign = Campaign(plan, store, engine, tell)
            outcome = await campaign.run(at_once or engine.places)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    ended = {"left_out": outcome.failed_arms, "smoke": outcome.failed_smoke}
    store.plan(told | ended, ())
    return outcome


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _never_began(result: RunResult) -> bool:
    """Whether a run shows that no run of its arm can begin: no kernel, or no reply.

    A model that answers nothing has taken part: leaving it out would hide how weak it is.
    """
    without_reply = not result.model_calls
    ended = (ExitStatus.MODEL_ERROR, ExitStatus.KERNEL_LOST)
    return result.status == REFUSED or (without_reply and result.status in ended)


def _how_it_failed(smoked: RunResult) -> str:
    if smoked.status != ExitStatus.ANSWERED:
        return f"it gave no answer ({smoked.status}: {smoked.reason})"
    if smoked.success is None:
        return f"its answer could not be judged ({smoked.reason})"
    return "" if smoked.success else f"its answer was wrong ({smoked.reason})"


def _tell(task: Task) -> dict[str, str]:
    """Return what a report says of a task."""
    return {"question": one_line(task.turns[0], 200), "kind": task.kind, "level": task.level}


def _make_lost(spec: RunSpec, reason: str) -> RunResult:
    return RunResult(
        run_id=spec.run_id, task_id=spec.task.id, arm=spec.arm.name, trial=spec.trial,
        status=LOST, success=None, reason=reason,
    )  # fmt: skip


def _line(arm: str, result: RunResult, done: int, planned: int) -> str:
    """Return the line on a run; what is expected is for the report, not for who looks on."""
    mark = {True: "right", False: "wrong", None: "not judged"}[result.success]
    answered = result.status == ExitStatus.ANSWERED
    why = f": {result.reason}" if result.reason and not answered else ""
    return (
        f"[{done}/{planned}] {arm}  {result.task_id}  {result.status}, {mark}, "
        f"{result.steps} steps, {result.model_calls} requests, {result.seconds:.1f} s{why}"
    )


def arms_of(
    formats: Sequence[str],
    models: Sequence[str],
    sandboxes: Sequence[str],
    base_url: str | None = None,
) -> tuple[Arm, ...]:
    """Return formats times models times sandbox levels, each once.

    Raises
    ------
    UsageError
        The caller's: there is no such format. It is said before anything is done.
    """
    for name in formats:
        get_format(name)
    return tuple(dict.fromkeys(
        Arm(format=f, model=m, sandbox=s, base_url=_at_endpoint(m, base_url))
        for m in models for f in formats for s in sandboxes
    ))  # fmt: skip


def _at_endpoint(model: str, base_url: str | None) -> str | None:
    return None if model == "offline" or model.startswith("scripted:") else base_url
