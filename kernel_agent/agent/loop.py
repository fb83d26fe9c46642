"""The loop: decide, act, observe, until the answer, a limit, a stop or a failure.

::

    until an ending:
        check the budget
        action      = decide()          a model: messages, reply, parse; or the next fixed cell
        decision    = admit(action)     what is denied is not carried out
        result      = execute(action)
        observation = observe(result)
        record the step, and judge it

The loop knows a decider and two callables, and nothing of what is behind them: ``execute`` carries
out an action, ``record`` keeps what happened. What is checked around them is :class:`Checks`. By
which rules a run ends is the decider's; every ending is an
:class:`~kernel_agent.records.ExitStatus`, and whatever was done before it is in the trace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterator

from kernel_agent.agent.checks import Checks
from kernel_agent.agent.decider import Decider
from kernel_agent.agent.observation import name_left_out, observe_action
from kernel_agent.agent.outcome import Stopped, cause, describe_progress, ending
from kernel_agent.agent.turn import Ledger, Turn
from kernel_agent.errors import TraceError
from kernel_agent.records import (
    Acting,
    Action,
    Answer,
    CellResult,
    Code,
    Event,
    ExitStatus,
    Final,
    Meter,
    Observation,
    Record,
    RunStart,
    RunStop,
    Step,
    StopSignal,
    denied_cell,
    now,
)
from kernel_agent.tools import answer_of

CHANGED = "(A person changed this cell before it ran: the code that you see above is what ran.)"

Execute = Callable[[Action, int], Awaitable[CellResult]]


class Agent:
    """One run of the loop.

    Parameters
    ----------
    decider
        Says what is done next, and when the run is over.
    execute
        Carries out an action as step number n and returns the result.
    record
        Keeps a record in the trace.
    meter
        What the run has spent and may spend.
    on_event
        Told what happens, as it happens.
    stop
        Set when somebody asks for the end: the run ends as interrupted, now if the model is
        thinking, else when the cell has ended.
    checks
        What is checked around it.
    """

    def __init__(
        self,
        decider: Decider,
        *,
        execute: Execute,
        record: Callable[[Record], None],
        meter: Meter,
        on_event: Callable[[Event], None],
        stop: StopSignal | None = None,
        checks: Checks | None = None,
    ) -> None:
        self.decider = decider
        self.steps: list[Step] = []
        self._execute = execute
        self._record_in_trace = record
        self._meter = meter
        self._on_event = on_event
        self._stop = stop or StopSignal()
        self._checks = checks or Checks()
        self._turn: Turn | None = None  # the one under way
        self._given = 0  # of the steps: the opening, which is not the agent's own
        self._unfinished = 0  # of the steps: the last one, where the run ended within it

    async def run(
        self, start: RunStart, *, numbers: Iterator[int], opening: Code | None = None
    ) -> RunStop:
        """Work on the task until it ends, one way or another.

        Parameters
        ----------
        start
            The run's first record.
        numbers
            The numbers of its steps; a session counts on.
        opening
            A cell that is the first step, before the decider is asked; it costs nothing.

        Raises
        ------
        TraceError
            The trace cannot be written: there is nowhere to put an ending.
        """
        self._record(start)
        ledger, answer = self._ledger(start.run_id), None
        try:
            if opening is not None:
                await self._open(Turn(ledger=ledger, number=next(numbers)), opening)
            while answer is None:
                self._meter.check()
                answer = await self._step(Turn(ledger=ledger, number=next(numbers)))
            status, message = ExitStatus.ANSWERED, ""
        except TraceError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            known = ending(error)
            status, message = known or (ExitStatus.INTERRUPTED, cause(error))
            self._keep_unfinished(message)
            if known is None:  # also of a model or a listener of somebody's own: the rest stays
                self._end(start.run_id, status, None, message)
                raise
        return self._end(start.run_id, status, answer, message)

    def hear(self, event: Event) -> None:
        """Hear what the model writes, piece by piece; called from the run's own event loop."""
        if self._turn is not None:
            self._turn.hear(event)

    # --- one turn --------------------------------------------------------------------------

    async def _step(self, turn: Turn) -> Answer | None:
        """Take one turn: decide, act, observe, record. Return the answer if it was given."""
        self._turn = turn
        action = await self._decide(turn)
        step = turn.step(action)
        if action is not None:
            turn.acting = step
            step = await self._act(step, action)
        self._turn = None
        self._meter.count_step()
        if remark := self.decider.remark(step, self._meter):
            step = dataclasses.replace(step, observation=_add(step.observation, after=remark))
        return self._finish(step)

    async def _open(self, turn: Turn, opening: Code) -> None:
        """Take the first step, which is given: it is not counted, and cannot be the answer."""
        step = await self._act(turn.step(opening), opening)
        self._given = 1
        self._finish(step)

    def _finish(self, step: Step) -> Answer | None:
        self.steps.append(step)
        self._record(step)
        return self.decider.judge(step, stopped=self._stop.is_set)

    async def _decide(self, turn: Turn) -> Action | None:
        """Ask the decider, until somebody stops the run."""
        self._check_stopped()
        deciding = asyncio.ensure_future(self.decider.decide(turn))
        try:
            with self._stop.calling(deciding.cancel):
                action = await deciding
        except asyncio.CancelledError:
            self._check_stopped()
            raise
        self._check_stopped()
        return action

    async def _act(self, step: Step, action: Action) -> Step:
        """Carry out the action, if it is allowed, and observe the result."""
        self._on_event(Acting(number=step.number, action=action))
        decision = await self._checks.admit(action, step.number)
        edited = decision.edited if decision else None
        if edited is not None and isinstance(action, Code):
            action = dataclasses.replace(action, source=edited, starts=())
        began = time.monotonic()
        if isinstance(action, Final):
            result = CellResult(status="ok", answer=answer_of(action))
        elif decision is not None and not decision.allowed:
            result = denied_cell(decision)
        else:
            result = await self._execute(action, step.number)
        observation = observe_action(
            action, result, step=step.number, max_chars=self.decider.observation_chars
        )
        if decision is None or decision.allowed:  # of what did not run, all words are ours
            observation = self._checks.show(observation, result)
        if edited is not None:
            observation = _add(observation, before=CHANGED)
        if left_out := name_left_out(action, result):
            observation = _add(observation, before=f"({left_out})")
        return dataclasses.replace(
            step,
            action=action,
            result=result,
            decision=decision,
            cell_seconds=time.monotonic() - began,
            observation=observation,
        )

    # --- records and endings ---------------------------------------------------------------

    def _ledger(self, run_id: str) -> Ledger:
        """Return the run as the decider sees it."""
        return Ledger(
            run_id=run_id,
            meter=self._meter,
            record=self._record,
            tell=self._on_event,
            check_stopped=self._check_stopped,
        )

    def _record(self, record: Record) -> None:
        self._record_in_trace(record)
        self.decider.take(record)
        self._on_event(record)

    def _check_stopped(self) -> None:
        if self._stop.is_set:
            raise Stopped

    def _keep_unfinished(self, why: str) -> None:
        """Record what was written in a turn that the run's end has cut short."""
        turn, self._turn = self._turn, None
        step = turn.unfinished(why) if turn else None
        if step is not None:
            self._unfinished = 1
            self.steps.append(step)
            self._record(step)

    def _end(self, run_id: str, status: ExitStatus, answer: Answer | None, message: str) -> RunStop:
        own = self.steps[self._given :]
        completed = own[: len(own) - self._unfinished]
        stop = RunStop(
            run_id=run_id,
            status=status,
            answer=answer,
            message=message,
            partial="" if answer else describe_progress(completed),
            steps=len(own),
            seconds=self._meter.seconds,
            usage=self._meter.usage,
            time=now(),
            network=self._checks.visits(),
            obeyed=self._checks.obeyed(),
            read=self._checks.read(),
        )
        self._record(stop)
        return stop


def _add(observation: Observation, *, before: str = "", after: str = "") -> Observation:
    """Return an observation with one more line."""
    head, tail = before and f"{before}\n", after and f"\n{after}"
    return dataclasses.replace(observation, text=f"{head}{observation.text}{tail}")
