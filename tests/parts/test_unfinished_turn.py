"""What was written and paid stays in the trace, however and wherever in a turn the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.agent.context import Context
from kernel_agent.agent.decider import ModelDecider
from kernel_agent.agent.loop import Agent
from kernel_agent.errors import ModelError
from kernel_agent.formats import get_format
from kernel_agent.records.action import Action, Code
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.cell import CellResult
from kernel_agent.records.conversation import Message, Reply, ToolCall, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import ReplyText
from kernel_agent.records.stop import StopSignal
from kernel_agent.records.trace import Record, RunStart, RunStop, Step

START = RunStart(
    run_id="r", task="Why?", time="", model="m", format="fenced", sandbox={}, budget={}
)
ENDINGS = {
    "model error": ExitStatus.MODEL_ERROR,
    "stop": ExitStatus.INTERRUPTED,
    "time": ExitStatus.TIME_LIMIT,
    "tokens": ExitStatus.TOKEN_LIMIT,
    "cancelled": ExitStatus.INTERRUPTED,
    "bug": ExitStatus.INTERRUPTED,
}


class Ended:
    """A loop whose model says what it is told to, and then ends the run in the middle of a reply.

    Parameters
    ----------
    texts
        The replies that come whole.
    ending
        One of :data:`ENDINGS`.
    begun
        What is written of the last reply.
    """

    def __init__(self, texts: Sequence[str], ending: str, begun: Sequence[str] = ()) -> None:
        self.texts, self.ending, self.begun = iter(texts), ending, begun
        self.trace: list[Record] = []
        self.context = Context("system", get_format("fenced"), max_tokens=100_000)
        max_tokens = 10 * len(texts) if ending == "tokens" else None
        budget = Budget(max_seconds=0.2 if ending == "time" else None, max_tokens=max_tokens)
        self.meter = Meter(budget)
        self.stop = StopSignal()
        self.agent = Agent(
            ModelDecider(
                self._complete,
                format=get_format("fenced"),
                context=self.context,
            ),
            execute=self._execute,
            record=self.trace.append,
            meter=self.meter,
            on_event=lambda _event: None,
            stop=self.stop,
        )

    # A test may put another function in the place of these two.
    async def _complete(self, messages: list[Message]) -> Reply:
        return await self.complete(messages)

    async def _execute(self, action: Action, number: int) -> CellResult:
        return await self.execute(action, number)

    async def complete(self, _messages: list[Message]) -> Reply:
        for text in self.texts:
            self.agent.hear(ReplyText(text="an attempt that broke off"))
            return Reply(content=text, usage=Usage(prompt_tokens=10, calls=1))
        for piece in self.begun:
            self.agent.hear(ReplyText(text=piece))
        await self.end()
        raise AssertionError("the run has ended")

    async def end(self) -> None:
        match self.ending:
            case "model error":
                raise ModelError("gone")
            case "bug":
                raise ZeroDivisionError("a listener's")
            case "stop":
                self.stop.set()
            case "cancelled":
                asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(60)

    async def execute(self, _action: Action, _number: int) -> CellResult:
        return CellResult(status="ok")

    async def run(self) -> RunStop:
        try:
            return await self.agent.run(START, numbers=count(1))
        except (asyncio.CancelledError, ZeroDivisionError):
            assert self.ending in ("cancelled", "bug")
            stop = self.trace[-1]
            assert isinstance(stop, RunStop)
            return stop

    @property
    def steps(self) -> list[Step]:
        return [record for record in self.trace if isinstance(record, Step)]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_unreadable_replies_stay_whatever_ends_the_run(ending: str) -> None:
    """As a last step without an action, with what each reply was told and what they cost."""
    ended = Ended(["I will think.", "I will look."], ending)
    stop = await ended.run()
    assert stop.status is ENDINGS[ending]
    [step] = ended.steps
    assert (step.number, step.action, step.ok) == (1, None, False)
    assert [retry.content for retry in step.retries] == ["I will think.", "I will look."]
    assert all("No code was found" in retry.feedback for retry in step.retries)
    assert step.usage == stop.usage == Usage(prompt_tokens=20, calls=2)
    assert (stop.steps, stop.partial) == (1, "No step was completed.")


@pytest.mark.parametrize("ending", sorted(ENDINGS.keys() - {"tokens"}))
async def test_what_was_streamed_when_the_run_ended_stays_and_is_marked(ending: str) -> None:
    ended = Ended(["x", "```python\na = 1\n```"], ending, ["Now I ", "load the"])
    stop = await ended.run()
    first, last = ended.steps
    assert (len(first.retries), first.action) == (1, Code(source="a = 1"))
    [cut] = last.retries
    assert (cut.content, cut.cut_off) == ("Now I load the", True)
    assert cut.feedback == last.observation.text
    assert stop.message in cut.feedback
    assert not any(retry.cut_off for retry in first.retries)
    assert stop.partial.startswith("1 step ran, 1 without an error.")


async def test_nothing_is_added_when_nothing_was_written() -> None:
    ended = Ended(["```python\na = 1\n```"], "model error")
    stop = await ended.run()
    assert (stop.steps, len(ended.steps)) == (1, 1)
    assert await Ended([], "time").run()


async def test_what_broke_off_before_a_retry_is_not_taken_for_the_reply() -> None:
    from kernel_agent.records.event import Notice

    ended = Ended([], "model error")
    ended.begun = ()

    async def end() -> None:
        for event in (
            ReplyText(text="Half a"),
            Notice(text="trying again"),
            ReplyText(text="So", reasoning=True),
            ReplyText(text="python ", call=True),
            ReplyText(text='{"co', call=True),
        ):
            ended.agent.hear(event)
        raise ModelError("gone")

    ended.end = end  # type: ignore[method-assign]
    await ended.run()
    [step] = ended.steps
    assert [(r.content, r.cut_off) for r in step.retries] == [('python {"co', True)]
    assert step.reasoning == "So"


async def test_a_reply_that_was_read_and_not_carried_out_stays() -> None:
    """Stop came between the reply and its cell."""
    ended = Ended([], "stop")

    async def complete(_messages: list[Message]) -> Reply:
        ended.stop.set()
        call = ToolCall(id="1", name="python", arguments="{}")
        return Reply(content="Go.\n```python\nx = 1\n```", tool_calls=(call,), reasoning="Hm.")

    ended.complete = complete
    stop = await ended.run()
    [step] = ended.steps
    assert (stop.status, step.action, step.reasoning) == (ExitStatus.INTERRUPTED, None, "Hm.")
    assert step.retries[0].cut_off
    assert step.retries[0].content == "Go.\n```python\nx = 1\n```\npython({})"


async def test_a_cell_under_way_when_the_run_is_cancelled_is_kept_as_interrupted() -> None:
    ended = Ended(["```python\nx = 1\n```"], "cancelled")
    ended.execute = lambda _action, _number: ended.end()  # type: ignore[assignment, method-assign, return-value]
    await ended.run()
    [step] = ended.steps
    assert (step.code, step.ok) == ("x = 1", False)
    assert step.result is not None
    assert step.result.status == "interrupted"


GOOD, BAD = "```python\nx = 1\n```", "```python\nx = (\n```\n"


@given(
    st.lists(st.sampled_from([GOOD, BAD]), max_size=9),
    st.sampled_from(sorted(ENDINGS.keys() - {"time", "tokens"})),
    st.lists(st.text(min_size=1, max_size=5), max_size=3),
)
async def test_nothing_that_was_written_or_paid_is_lost(
    texts: list[str], ending: str, begun: list[str]
) -> None:
    """Every reply is in the trace once, in order, and the steps' usage is the run's."""
    ended = Ended([f"{text}{n}" if text == BAD else text for n, text in enumerate(texts)], ending)
    ended.begun = begun
    stop = await ended.run()
    kept = [r.content for step in ended.steps for r in step.retries if not r.cut_off]
    if stop.status is ExitStatus.LOOP_DETECTED:
        return
    assert kept == [f"{text}{n}" for n, text in enumerate(texts) if text == BAD]
    assert sum(step.code == "x = 1" for step in ended.steps) == texts.count(GOOD)
    assert sum((step.usage for step in ended.steps), Usage()) == stop.usage
    cut = [r.content for step in ended.steps for r in step.retries if r.cut_off]
    assert cut == (["".join(begun)] if begun else [])
    assert stop.steps == len(ended.steps)


async def test_the_next_run_goes_on_from_the_same_conversation() -> None:
    """The prefix is the same to the byte, also when it is made of the trace again; roles alternate
    as after any step that failed."""
    ended = Ended([GOOD, f"Talk.\n{BAD}", f"More Talk.\n{BAD}"], "model error", ["And y"])
    before: list[list[Message]] = []
    complete = ended.complete

    async def asked(messages: list[Message]) -> Reply:
        before.append(messages)
        return await complete(messages)

    ended.complete = asked
    await ended.run()
    again = Context("system", get_format("fenced"), max_tokens=100_000)
    for record in ended.trace:
        again.add(record)
    now = ended.context.messages()
    assert again.messages() == now
    history = before[1]  # the first request after the step, before any re-ask
    assert now[: len(history)] == history
    said, told, end = now[len(history) :]
    assert [m.role for m in (said, told, end)] == ["assistant", "user", "user"]
    assert (said.content, "cut off" in told.content) == ("And y", True)
    assert "Talk" not in "".join(m.content for m in now)
