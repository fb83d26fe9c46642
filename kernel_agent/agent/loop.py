"""The loop: Thought, Code, Observation, until the answer, a limit, a stop or a failure.

The agent knows three callables and nothing of what is behind them: ``complete`` asks a model,
``execute`` carries out an action, ``record`` keeps what happened. Every ending is an
:class:`~kernel_agent.records.ExitStatus`; whatever was done before it is in the trace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from kernel_agent.agent.context import Context
from kernel_agent.agent.observation import observe
from kernel_agent.agent.summary import ask_again, check
from kernel_agent.agent.turn import Turn, written
from kernel_agent.errors import (
    BudgetExceeded,
    ContextLengthError,
    FormatError,
    KernelError,
    ModelError,
    TraceError,
)
from kernel_agent.formats import Format
from kernel_agent.formats import written as written_call
from kernel_agent.records import (
    Acting,
    Action,
    Answer,
    Calls,
    CellResult,
    Code,
    Condensation,
    Decision,
    Event,
    ExitStatus,
    Final,
    FormatChange,
    Message,
    Meter,
    Notice,
    Observation,
    Record,
    Reply,
    Retry,
    RunStart,
    RunStop,
    Step,
    StopSignal,
    Usage,
    Visit,
    decided,
    decision_line,
    denials,
    denied_cell,
)
from kernel_agent.safe import one_line, shorten
from kernel_agent.tools import answer_of, observe_calls, shortened

RE_ASKS = 2  # how often an unreadable reply is asked for again before it counts as a step
SAME_FAILURES = 3  # identical failures of an identical action that make a loop
SAME_DENIALS = 3  # denials of an identical action, or steps in a row with a denial at all …
DENIALS_IN_A_ROW = 5  # … that end a run as denied
KEEPS_BREAKING = 3  # unreadable replies, at least half of all, after which another format is tried
RE_ASK_CHARS = 4000  # of an unreadable reply that are shown back to the model
CUT_CHARS = 400  # of one that was cut off: all of it again would leave less room for the next
LEAST_REPLY_TOKENS = 100  # a thought and a cell of a few lines
PARTIAL_CHARS = 2000
CHANGED = "(A person changed this cell before it ran: the code that you see above is what ran.)"
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")

LARGER_WINDOW = "start the server with a larger context, or use another model"

LIMITS = {
    "steps": ExitStatus.STEP_LIMIT,
    "seconds": ExitStatus.TIME_LIMIT,
    "tokens": ExitStatus.TOKEN_LIMIT,
    "cost": ExitStatus.COST_LIMIT,
}

Complete = Callable[[list[Message]], Awaitable[Reply]]
Execute = Callable[[Action, int], Awaitable[CellResult]]
RecordIt = Callable[[Record], None]
Admit = Callable[[Action, int], Awaitable[Decision | None]]
Show = Callable[[Observation, CellResult], Observation]
Lower = Callable[[Format], tuple[Format, str] | None]


class LoopDetected(Exception):
    """The same action failed in the same way too often."""


class Denied(Exception):
    """What the model wants to do was denied again and again."""


class Stopped(Exception):
    """Somebody asked for the end of the run."""


ENDINGS = {
    LoopDetected: ExitStatus.LOOP_DETECTED,
    Denied: ExitStatus.DENIED,
    Stopped: ExitStatus.INTERRUPTED,
    ModelError: ExitStatus.MODEL_ERROR,
    KernelError: ExitStatus.KERNEL_LOST,
}


class Agent:
    """One run of the loop.

    Parameters
    ----------
    complete
        Sends messages to the model and returns its reply.
    execute
        Carries out an action as step number n and returns what came of it.
    record
        Keeps a record in the trace.
    format
        How the model writes actions.
    context
        The conversation; it outlives the run when a session has several.
    meter
        What the run has spent and may spend.
    on_event
        Told what happens, as it happens.
    stop
        Set when somebody asks for the end: the run ends as interrupted, now if the model is
        thinking, else when the cell has ended.
    observation_chars
        Characters of an observation that the model is shown at most; fewer where its window is
        small.
    visits
        What was asked of the network since the last time.
    obeyed
        What cells made since the last time that programs obey.
    summarise
        Asks the model for plain text, for a summary; None for a model that cannot write one.
    names
        What cells can use without defining it, beside the variables: the host tools.
    lower
        Gives the format that asks for less than another, with its system prompt, or None when
        there is none or the user chose the format.
    admit
        Decides whether an action may be carried out as step number n; None where there is nothing
        to decide beforehand. A person may have changed the cell.
    show
        Marks what the model is shown where it must be told that it is data.
    """

    def __init__(
        self,
        *,
        complete: Complete,
        execute: Execute,
        record: RecordIt,
        format: Format,  # noqa: A002 - the project's word
        context: Context,
        meter: Meter,
        on_event: Callable[[Event], None],
        stop: StopSignal | None = None,
        observation_chars: int = 8000,
        visits: Callable[[], tuple[Visit, ...]] = tuple,
        obeyed: Callable[[], tuple[str, ...]] = tuple,
        summarise: Complete | None = None,
        names: frozenset[str] = frozenset(),
        lower: Lower = lambda _: None,
        admit: Admit | None = None,
        show: Show = lambda observation, _result: observation,
    ) -> None:
        self._complete = complete
        self._execute = execute
        self._record_in_trace = record
        self.format = format
        self._lower = lower
        self._admit = admit
        self._show = show
        self._replies = self._unreadable = 0  # since the format was chosen
        self._context = context
        self._meter = meter
        self._on_event = on_event
        self._observation_chars = observation_chars
        self._visits = visits
        self._obeyed = obeyed
        self._summarise = summarise
        self._names = names
        self._failures: Counter[tuple[str, str]] = Counter()
        self._denials: Counter[str] = Counter()
        self._denied_in_a_row = 0
        self._turn: Turn | None = None  # the one under way
        self._stop = stop or StopSignal()
        self.steps: list[Step] = []
        self._given = 0  # of the steps: not the agent's own
        self._unfinished = 0  # of the steps: the last one, where the run ended within it

    async def run(
        self, start: RunStart, *, first_step: int = 1, opening: Code | None = None
    ) -> RunStop:
        """Work on the task until it ends, one way or another.

        Parameters
        ----------
        start
            The run's first record.
        first_step
            The number of the first step; a session counts on.
        opening
            A cell that is the first step, before the model is asked; it costs nothing.

        Raises
        ------
        TraceError
            The trace cannot be written: there is nowhere to put an ending.
        """
        self._record(start)
        run_id, answer = start.run_id, None
        try:
            if opening is not None:
                await self._open(run_id, first_step, opening)
            while answer is None:
                self._meter.check()
                answer = await self._step(run_id, first_step + len(self.steps))
            status, message = ExitStatus.ANSWERED, ""
        except TraceError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            ending = _ending(error)
            status, message = ending or (ExitStatus.INTERRUPTED, _cause(error))
            self._keep_unfinished(message)
            if ending is None:  # also of a model or a listener of somebody's own: the rest stays
                self._stop_record(run_id, status, None, message)
                raise
        return self._stop_record(run_id, status, answer, message)

    def hear(self, event: Event) -> None:
        """Take in what the model says while it writes; called from the run's own event loop."""
        if self._turn is not None:
            self._turn.hear(event)

    async def _open(self, run_id: str, number: int, opening: Code) -> None:
        """Take the first step, which is given."""
        made = Step(
            run_id=run_id,
            number=number,
            action=opening,
            time=now(),
            observation=Observation(text=""),
        )
        step = await self._act(made, opening)
        self._given = 1
        self.steps.append(step)
        self._record(step)
        self._judge(step)

    # --- one turn --------------------------------------------------------------------------

    async def _step(self, run_id: str, number: int) -> Answer | None:
        """Take one turn: decide, act, observe, record. Return the answer if it was given."""
        turn = self._turn = Turn(run_id=run_id, number=number)
        action, reply = await self._decide(turn)
        model_seconds = turn.seconds
        self._check_stopped()
        retries = turn.retries
        step = Step(
            run_id=run_id,
            number=number,
            action=action,
            reasoning=reply.reasoning,
            retries=retries,
            usage=turn.usage,
            time=now(),
            model_seconds=model_seconds,
            observation=Observation(text=retries[-1].feedback if retries else ""),
        )
        if action is not None:
            turn.acting = step
            step = await self._act(step, action)
        self._turn = None
        self._meter.count_step()
        step = self._with_warning(step)
        self.steps.append(step)
        self._record(step)
        return self._judge(step)

    async def _decide(self, turn: Turn) -> tuple[Action | None, Reply]:
        """Ask for the next action; ask again for its form when it cannot be read."""
        told: tuple[Retry, ...] = ()  # those of the retries that are about this format
        while True:
            reply = await self._ask_within_limits(turn.run_id, _re_ask(told))
            turn.take(reply)
            self._replies += 1
            try:
                action = self.format.parse(reply)
            except FormatError as error:
                retry = Retry(content=written(reply), feedback=error.feedback)
                turn.retries, told = (*turn.retries, retry), (*told, _shown_again(retry, error))
                if self._keeps_breaking(error) and self._move_down(turn.run_id):
                    told = ()
                if len(told) > RE_ASKS:
                    return None, reply
                self._on_event(Notice(text=f"The reply could not be read ({error}); asking again."))
                self._meter.check()
            else:
                turn.reply = reply
                return action, reply

    def _keeps_breaking(self, error: FormatError) -> bool:
        """Count an unreadable reply, unless its length is to blame and not its format."""
        self._unreadable += error.kind != "truncated"
        return self._unreadable >= KEEPS_BREAKING and 2 * self._unreadable >= self._replies

    def _move_down(self, run_id: str) -> bool:
        """Go on in the format that asks for less, if there is one."""
        lower = self._lower(self.format)
        if lower is None:
            return False
        reason = f"{self._unreadable} of {self._replies} replies in {self.format.name} unreadable"
        self.format, system_prompt = lower
        self._replies = self._unreadable = 0
        self._record(
            FormatChange(
                run_id=run_id,
                format=self.format.name,
                reason=reason,
                system_prompt=system_prompt,
                time=now(),
            )
        )
        return True

    async def _ask_within_limits(self, run_id: str, beside: list[Message]) -> Reply:
        """Ask for a reply; shorten the conversation before, and when the model accepts less."""
        await self._make_room(run_id, "it had outgrown its allowance")
        while True:
            try:
                reply = await self._ask([*self._context.messages(), *beside], self._complete)
            except ContextLengthError as error:
                self._context.refused(
                    limit_tokens=error.limit_tokens, used_tokens=error.used_tokens
                )
                if not await self._make_room(run_id, "it was too long for the model"):
                    if not beside:
                        raise self._without_room(error) from None
                    beside = []  # what was unreadable is asked for anew
                continue
            if not beside:
                self._context.calibrate(reply.usage)
            if reply.window_tokens:
                await self._meet_window(run_id, reply, reply.window_tokens, beside)
            return reply

    def _without_room(self, error: ContextLengthError) -> ContextLengthError:
        """Return the error of a conversation that is too long and cannot be shortened."""
        limit, used = error.limit_tokens, error.used_tokens
        if limit is None:
            return error
        need = used or f"more than {limit}"
        return ContextLengthError(
            f"{self._alone} need {need} tokens, the model's window is {limit}: {LARGER_WINDOW}",
            status_code=error.status_code,
            limit_tokens=limit,
            used_tokens=used,
        )

    @property
    def _alone(self) -> str:
        """What is left of a conversation that cannot be shortened."""
        return f"the instructions{', the task and the last step' * self._context.has_steps} alone"

    async def _meet_window(
        self, run_id: str, reply: Reply, window: int, beside: list[Message]
    ) -> None:
        """Shorten the conversation when a reply ended because the model's window was full.

        Raises
        ------
        ContextLengthError
            There is nothing to shorten, and no room for a reply.
        """
        used = reply.usage.prompt_tokens
        self._context.met(window, prompt_tokens=used, beside=beside)
        shorter = await self._make_room(run_id, "a reply had no room left in the model's window")
        no_room = reply.usage.completion_tokens < LEAST_REPLY_TOKENS
        if not shorter and no_room and not beside and not self._context.has_steps:
            raise ContextLengthError(
                f"{self._alone} take {used} of the {window} tokens of the model's window"
                f": {LARGER_WINDOW}",
                limit_tokens=window,
                used_tokens=used,
            )

    async def _make_room(self, run_id: str, reason: str) -> bool:
        """Shorten the conversation until it fits; say whether it became shorter."""
        shorter = False
        while (planned := self._context.relief(reason)) is not None:
            if planned.kind == "summarised" and self._summarise is not None:
                planned = await self._summary(planned, self._summarise)
            self._record(dataclasses.replace(planned, run_id=run_id, time=now()))
            shorter = True
        return shorter

    async def _summary(self, planned: Condensation, ask: Complete) -> Condensation:
        """Let the model write the summary; by rules it stays when it cannot.

        What names a variable that does not exist is asked for again once, and then dropped.
        """
        messages = self._context.summary_request(planned.last)
        told = messages[-1].content
        usage = Usage()
        for is_last in (False, True):
            self._meter.check()
            try:
                reply = await self._ask(messages, ask)
            except ModelError as error:
                self._on_event(Notice(text=f"The model wrote no summary ({error})."))
                return dataclasses.replace(planned, usage=usage)
            usage += reply.usage
            checked = check(
                reply.content,
                names=self._context.variables.names | self._names,
                told=told,
                max_chars=self._context.summary_chars,
            )
            if is_last or not checked.unknown:
                break
            said = Message(role="assistant", content=reply.content[:RE_ASK_CHARS])
            messages = [*messages, said, ask_again(checked.unknown)]
        if not checked.text:
            return dataclasses.replace(planned, usage=usage, dropped=checked.dropped)
        return dataclasses.replace(
            planned, text=checked.text, by="model", dropped=checked.dropped, usage=usage
        )

    async def _ask(self, messages: list[Message], ask: Complete) -> Reply:
        """Call the model within the time that is left, and charge what it used."""
        self._check_stopped()
        thinking = asyncio.ensure_future(ask(messages))
        try:
            with self._stop.calling(thinking.cancel):
                async with asyncio.timeout(self._meter.seconds_left):
                    reply = await thinking
        except TimeoutError:
            raise self._time_is_up() from None
        except asyncio.CancelledError:
            self._check_stopped()
            raise
        self._meter.charge(reply.usage)
        return reply

    async def _act(self, step: Step, action: Action) -> Step:
        """Carry out the action, if it may be, and look at what came of it."""
        self._on_event(Acting(number=step.number, action=action))
        decision = await self._admit(action, step.number) if self._admit else None
        edited = decision.edited if decision else None
        if edited is not None and isinstance(action, Code):
            action = dataclasses.replace(action, source=edited)
        began = time.monotonic()
        if isinstance(action, Final):
            result = CellResult(status="ok", answer=answer_of(action.answer))
        elif decision is not None and not decision.allowed:
            result = denied_cell(decision)
        else:
            result = await self._execute(action, step.number)
        observation = self._observe(action, result, step.number)
        if decision is None or decision.allowed:  # of what did not run, all words are ours
            observation = self._show(observation, result)
        if edited is not None:
            text = f"{CHANGED}\n{observation.text}"
            observation = dataclasses.replace(observation, text=text)
        return dataclasses.replace(
            step,
            action=action,
            result=result,
            decision=decision,
            cell_seconds=time.monotonic() - began,
            observation=observation,
        )

    def _observe(self, action: Action, result: CellResult, number: int) -> Observation:
        if isinstance(action, Final):
            return Observation(text="The answer was given.")
        max_chars = min(self._observation_chars, self._context.observation_chars)
        if isinstance(action, Calls):
            return observe_calls(action, result, max_chars=max_chars)
        return observe(result, step=number, max_chars=max_chars)

    def _judge(self, step: Step) -> Answer | None:
        """Return the answer, nothing to go on, or raise what ends the run."""
        result = step.result
        if result is not None and result.answer is not None:
            return result.answer
        self._check_stopped()
        if result is not None and result.status == "dead":
            raise KernelError(f"the kernel was lost: {result.error.evalue if result.error else ''}")
        self._count_denial(step)
        if not step.ok:
            self._count_failure(step)
        return None

    def _count_denial(self, step: Step) -> None:
        """End the run when the model does not take no for an answer."""
        denied = denials(step)
        if not denied:
            self._denied_in_a_row = 0
            return
        key = _what_was_done(step)
        self._denials[key] += 1
        self._denied_in_a_row += 1
        last = decision_line([d for d in decided(step) if not d.decision.allowed][-1])
        if self._denials[key] >= SAME_DENIALS:
            raise Denied(f"the same action was denied {SAME_DENIALS} times ({last})")
        if self._denied_in_a_row >= DENIALS_IN_A_ROW:
            raise Denied(f"something was denied in {DENIALS_IN_A_ROW} steps in a row ({last})")

    def _count_failure(self, step: Step) -> None:
        error = step.result.error if step.result else None
        source = _what_was_done(step)
        signature = f"{error.ename}: {error.evalue}" if error else step.observation.text
        key = (source, ADDRESS.sub("0x…", signature))
        self._failures[key] += 1
        if self._failures[key] >= SAME_FAILURES:
            first_line = key[1].splitlines()[0] if key[1] else "no readable action"
            raise LoopDetected(
                f"the same action failed {SAME_FAILURES} times in the same way ({first_line})"
            )

    def _with_warning(self, step: Step) -> Step:
        """Tell the model when the next step is its last."""
        cap = self._meter.budget.max_steps
        answered = step.result is not None and step.result.answer is not None
        if cap is None or cap < 2 or self._meter.steps != cap - 1 or answered:
            return step
        warning = "(The next step is the last one: call final_answer in it.)"
        observation = dataclasses.replace(
            step.observation, text=f"{step.observation.text}\n{warning}"
        )
        return dataclasses.replace(step, observation=observation)

    # --- endings ---------------------------------------------------------------------------

    def _check_stopped(self) -> None:
        if self._stop.is_set:
            raise Stopped("stopped on request")

    def _time_is_up(self) -> BudgetExceeded:
        try:
            self._meter.check()
        except BudgetExceeded as error:
            return error
        cap = self._meter.budget.max_seconds or self._meter.seconds
        return BudgetExceeded("seconds", used=self._meter.seconds, cap=cap)

    def _record(self, record: Record) -> None:
        self._record_in_trace(record)
        self._context.add(record)
        self._on_event(record)

    def _keep_unfinished(self, why: str) -> None:
        """Keep what was written in a turn that the run's end has cut short."""
        turn, self._turn = self._turn, None
        step = turn.unfinished(why, time=now()) if turn else None
        if step is not None:
            self._unfinished = 1
            self.steps.append(step)
            self._record(step)

    def _stop_record(
        self, run_id: str, status: ExitStatus, answer: Answer | None, message: str
    ) -> RunStop:
        own = self.steps[self._given :]
        completed = own[: len(own) - self._unfinished]
        stop = RunStop(
            run_id=run_id,
            status=status,
            answer=answer,
            message=message,
            partial="" if answer else achieved(completed),
            steps=len(own),
            seconds=self._meter.seconds,
            usage=self._meter.usage,
            time=now(),
            network=self._visits(),
            obeyed=self._obeyed(),
        )
        self._record(stop)
        return stop


def _ending(error: BaseException) -> tuple[ExitStatus, str] | None:
    """Return the ending that an error of the loop's own means, and its message."""
    if isinstance(error, BudgetExceeded):
        return LIMITS[error.limit], limit_text(error)
    status = next((ENDINGS[kind] for kind in ENDINGS if isinstance(error, kind)), None)
    return None if status is None else (status, str(error))


def _cause(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "the run was cancelled"
    return one_line(f"{type(error).__name__}: {error}", 300)


def achieved(steps: list[Step]) -> str:
    """Say what a run without an answer has achieved: counts, and the last thing that it saw.

    Only observations are quoted, never the model's own words: those are not a result.
    """
    if not steps:
        return "No step was completed."
    good = [step for step in steps if step.ok]
    text = (
        f"{len(steps)} {'step' if len(steps) == 1 else 'steps'} ran, {len(good)} without an error."
    )
    if good:
        seen = shortened(good[-1].observation.text, PARTIAL_CHARS)
        text += f" Step {good[-1].number} showed last:\n{seen}"
    return text


def now() -> str:
    """Return the time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _what_was_done(step: Step) -> str:
    if isinstance(step.action, Calls):
        return "\n".join(written_call(call) for call in step.action.calls)
    return step.code or (step.retries[-1].content if step.retries else "")


def limit_text(error: BudgetExceeded) -> str:
    """Say which cap was reached."""
    unit = {"seconds": " s", "cost": " USD"}.get(error.limit, f" {error.limit}")
    return f"the limit of {error.cap:g}{unit} was reached"


def _shown_again(retry: Retry, error: FormatError) -> Retry:
    """Return what the model is shown of an unreadable reply; the trace has all of it."""
    if error.kind != "truncated":
        return retry
    return dataclasses.replace(retry, content=shorten(retry.content, CUT_CHARS))


def _re_ask(retries: tuple[Retry, ...]) -> list[Message]:
    """Return the last unreadable reply and what to do about it; neither enters the history."""
    if not retries:
        return []
    last = retries[-1]
    return [
        Message(role="assistant", content=last.content[:RE_ASK_CHARS] or "(empty)"),
        Message(role="user", content=last.feedback),
    ]
