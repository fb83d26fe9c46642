"""The loop with everything around it in memory: scripted replies, scripted results, all records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import count

from kernel_agent.agent.checks import Checks
from kernel_agent.agent.context import Context
from kernel_agent.agent.decider import Decider, ModelDecider
from kernel_agent.agent.loop import Agent
from kernel_agent.agent.rules import Lower
from kernel_agent.formats import get_format
from kernel_agent.records.action import Action, Code
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.cell import Answer, CellError, CellResult
from kernel_agent.records.conversation import Message, Reply, Usage
from kernel_agent.records.event import Event
from kernel_agent.records.stop import StopSignal
from kernel_agent.records.trace import Record, RunStart, RunStop, Step

START = RunStart(
    run_id="r", task="Why?", time="", model="m", format="fenced", sandbox={}, budget={}
)
OK = CellResult(status="ok", outputs=({"output_type": "stream", "name": "stdout", "text": "42"},))
ANSWER = CellResult(status="ok", answer=Answer(text="because", value="because"))
ERROR = CellResult(
    status="error", error=CellError(ename="KeyError", evalue="'x' at 0x7f0012345678")
)
LONG = CellResult(
    status="ok", outputs=({"output_type": "stream", "name": "stdout", "text": "y" * 7000},)
)
TALK = Reply(content="I will look.")


def cell(code: str) -> Reply:
    """A reply with a cell in the format ``fenced``."""
    return Reply(content=f"Think.\n```python\n{code}\n```", usage=Usage(prompt_tokens=10, calls=1))


class Bench:
    """A loop with scripted ends, and everything that it recorded.

    Parameters
    ----------
    replies
        What the model writes, or what it raises, one after the other.
    results
        What comes of each cell that is run.
    budget, meter
        What the run may cost.
    max_tokens
        The allowance of the conversation.
    summaries
        What the model writes when it is asked for one; None for a model that writes none.
    format, lower
        How the model writes its actions, and the way down the ladder.
    checks
        What is checked around it.
    decider
        Who decides in the place of the model.
    """

    def __init__(
        self,
        replies: Iterable[Reply | Exception] = (),
        results: Iterable[CellResult | Exception] = (),
        budget: Budget | None = None,
        *,
        meter: Meter | None = None,
        max_tokens: int = 100_000,
        summaries: Iterable[str | Reply | Exception] | None = None,
        names: frozenset[str] = frozenset(),
        format: str = "fenced",  # noqa: A002 - the project's word
        lower: Lower = lambda _: None,
        checks: Checks | None = None,
        decider: Decider | None = None,
    ) -> None:
        self._replies, self._results = iter(replies), iter(results)
        self._summaries = iter(summaries or ())
        self.asked: list[list[Message]] = []
        self.asked_for_summary: list[list[Message]] = []
        self.ran: list[str] = []
        self.actions: list[tuple[int, Action]] = []
        self.trace: list[Record] = []
        self.events: list[Event] = []
        self.during_cell: Callable[[], Awaitable[None]] | None = None
        self.meter = meter or Meter(budget or Budget())
        self.context = Context("system", get_format(format), max_tokens=max_tokens)
        self.stopping = StopSignal()
        self.agent = Agent(
            decider
            or ModelDecider(
                self._complete,
                format=get_format(format),
                context=self.context,
                lower=lower,
                summarise=None if summaries is None else self._summarise,
                names=names,
            ),
            execute=self._execute,
            record=self.trace.append,
            meter=self.meter,
            on_event=self.events.append,
            stop=self.stopping,
            checks=checks,
        )

    # A test may put another function in the place of each of these three.
    async def _complete(self, messages: list[Message]) -> Reply:
        return await self.complete(messages)

    async def _summarise(self, messages: list[Message]) -> Reply:
        return await self.summarise(messages)

    async def _execute(self, action: Action, number: int) -> CellResult:
        return await self.execute(action, number)

    async def complete(self, messages: list[Message]) -> Reply:
        self.asked.append(messages)
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def summarise(self, messages: list[Message]) -> Reply:
        self.asked_for_summary.append(messages)
        text = next(self._summaries)
        if isinstance(text, Exception):
            raise text
        if isinstance(text, Reply):
            return text
        return Reply(content=text, usage=Usage(prompt_tokens=3, calls=1))

    async def execute(self, action: Action, number: int) -> CellResult:
        self.actions.append((number, action))
        if isinstance(action, Code):
            self.ran.append(action.source)
        if self.during_cell:
            await self.during_cell()
        result = next(self._results)
        if isinstance(result, Exception):
            raise result
        return result

    def stop(self) -> None:
        """Ask for the end of the run, as a person does."""
        self.stopping.set()

    async def run(self, **options: object) -> RunStop:
        """Run to the end; what was recorded and what was told of it are the same."""
        stop = await self.agent.run(START, **{"numbers": count(1), **options})  # type: ignore[arg-type]
        assert self.trace[0] is START
        assert self.trace[-1] is stop
        assert [e for e in self.events if isinstance(e, Record)] == self.trace
        return stop

    @property
    def steps(self) -> list[Step]:
        return [record for record in self.trace if isinstance(record, Step)]
