"""Reading records, for every renderer: the runs of a trace, and the words for them. Pure.

Terminal, page, notebook, panel and the agents' trees read these here, so they cannot say different
things of one run: which runs are a session's own, which steps hold, what was spent, and when. The
words for an ending stand in :mod:`kernel_agent.records.endings`, those for an undo in
:mod:`kernel_agent.records.undo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kernel_agent.records.cell import Delegated, HostCall
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    Condensation,
    DataFile,
    FormatChange,
    Given,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
)
from kernel_agent.safe import one_line

TASK_CHARS = 100
ANSWER_CHARS = 200
UNFINISHED = "Unfinished"
SHOWED_LAST = " showed last:\n"
"""What stands between the step that a partial result quotes and the quotation."""
NO_CAPS: Mapping[str, Any] = {}


# --- which runs, which steps ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunRecords:
    """The records of one run; ``stop`` is None while it goes on or when it was killed.

    ``number`` counts a session's own runs, from 1. ``undone`` says by step number what took a step
    back; ``given`` are the variables that were put before the run and that no undo has taken out
    again; ``children`` are the runs that it delegated.
    """

    start: RunStart
    number: int = 0
    given: tuple[Given, ...] = ()
    parts: list[Step | FormatChange | Condensation] = field(default_factory=list)
    stops: list[RunStop] = field(default_factory=list)
    undone: dict[int, Undone] = field(default_factory=dict)
    children: list[RunRecords] = field(default_factory=list)

    @property
    def stop(self) -> RunStop | None:
        """The run's last record."""
        return self.stops[-1] if self.stops else None

    @property
    def steps(self) -> list[Step]:
        """The steps, undone ones included."""
        return [record for record in self.parts if isinstance(record, Step)]

    @property
    def last_good(self) -> Step | None:
        """The last step without an error."""
        return next((step for step in reversed(self.steps) if step.ok), None)

    @property
    def read(self) -> tuple[DataFile, ...]:
        """The files of folders of data that its cells opened."""
        return tuple(file for stop in self.stops for file in stop.read)

    @property
    def withdrawn(self) -> Undone | None:
        """The undo that took the ending back, with the last step."""
        steps = self.steps
        return self.undone.get(steps[-1].number) if steps else None

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer that holds."""
        answered = self.stop is not None and self.stop.status is ExitStatus.ANSWERED
        return answered and self.withdrawn is None


def runs_of(records: Sequence[Record]) -> list[RunRecords]:
    """Return a session's own runs in order, each with those that it delegated.

    Parameters
    ----------
    records
        A trace, in order; its last run may be unfinished.
    """
    runs: dict[str, RunRecords] = {}
    own, ungiven = own_runs(records), undone_given(records)
    numbers = {run_id: number for number, run_id in enumerate(own, start=1)}
    for record in records:
        known = runs.get(getattr(record, "run_id", ""))
        if isinstance(record, RunStart):
            run_id, given = record.run_id, () if record.run_id in ungiven else record.given
            run = RunRecords(start=record, number=numbers.get(run_id, 0), given=given)
            runs.setdefault(run_id, run)
        elif known is not None and isinstance(record, RunStop):
            known.stops.append(record)
        elif known is not None and isinstance(record, Step | FormatChange | Condensation):
            known.parts.append(record)
    for (run_id, number), undone in undone_steps(records).items():
        runs[run_id].undone[number] = undone
    for run_id, run in runs.items():
        if run_id not in own:
            runs[str(run.start.parent_id)].children.append(run)
    return [run for run_id, run in runs.items() if run_id in own]


def window_text(start: RunStart) -> str:
    """Return what a run knew of its model's window; empty where it knew nothing.

    Examples
    --------
    >>> from kernel_agent.records import ModelWindow
    >>> known = ModelWindow(tokens=131_072, known_by="max_model_len")
    >>> start = RunStart(run_id="", task="", time="", model="", format="", sandbox={}, budget={},
    ...                  window=known, allowance=64_000)
    >>> window_text(start)
    'window 131,072 tokens, up to 64,000 used'
    """
    if start.window is None:
        return ""
    most = "at most " if start.window.is_bound else ""
    return f"window {most}{start.window.tokens:,} tokens, up to {start.allowance:,} used"


def own_runs(records: Iterable[Record]) -> dict[str, RunStart]:
    """Return the runs of a session that none of its runs delegated, by their ids.

    In a damaged trace parents may go in a circle: each run of it is one of the session's own.
    """
    starts: dict[str, RunStart] = {}
    for record in records:
        if isinstance(record, RunStart):
            starts.setdefault(record.run_id, record)
    return {run_id: start for run_id, start in starts.items() if _is_own(start, starts)}


def _is_own(start: RunStart, starts: Mapping[str, RunStart]) -> bool:
    seen: set[str] = set()
    above = starts.get(start.parent_id or "")
    if above is None:
        return True
    while above is not None and above.run_id not in seen:
        seen.add(above.run_id)
        above = starts.get(above.parent_id or "")
    return above is not None


def undone_steps(records: Sequence[Record]) -> dict[tuple[str, int], Undone]:
    """Return the undo of each undone step, by the step's run and number.

    Parameters
    ----------
    records
        A trace, in order. Delegated runs have kernels and numbers of their own: their steps are
        never undone themselves.
    """
    found: dict[tuple[str, int], Undone] = {}
    steps: list[Step] = []
    own = own_runs(records)
    for record in records:
        if isinstance(record, Step) and record.run_id in own:
            steps.append(record)
        elif isinstance(record, Undone):
            while steps and steps[-1].number >= record.first:
                step = steps.pop()
                found[step.run_id, step.number] = record
    return found


def undone_given(records: Sequence[Record]) -> set[str]:
    """Return the runs before which variables were put that an undo took out again."""
    gone: set[str] = set()
    before: dict[str, int] = {}  # each run's last step before it
    own, last = own_runs(records), 0
    for record in records:
        if isinstance(record, Step) and record.run_id in own:
            last = max(last, record.number)
        elif isinstance(record, RunStart) and record.run_id in own and record.given:
            before[record.run_id] = last
        elif isinstance(record, Undone):
            gone |= {run_id for run_id, number in before.items() if number >= record.first}
    return gone


def standing_steps(records: Sequence[Record]) -> list[Step]:
    """Return the steps of a session's own runs that hold, in order."""
    own, gone = own_runs(records), undone_steps(records)
    steps = (r for r in records if isinstance(r, Step) and r.run_id in own)
    return [step for step in steps if (step.run_id, step.number) not in gone]


# --- words ---------------------------------------------------------------------------------------


def count_text(number: int, noun: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> count_text(1, "step"), count_text(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def split_partial(partial: str, good: Step | None) -> tuple[str, Step | None]:
    """Return the counts of a partial result and the step that it quotes, if it is ``good``.

    The quotation is what the model read; views show that step as they show all others.

    Parameters
    ----------
    partial
        What a run without an answer has achieved.
    good
        The last step without an error.
    """
    counts, quoted, _ = partial.partition(SHOWED_LAST)
    if quoted and good is not None and counts.endswith(f" Step {good.number}"):
        return counts.rpartition(" Step ")[0], good
    return partial, None


def minute_text(time: str) -> str:
    """Return an ISO time as a person reads it; text that is no time as it is, in one line.

    Examples
    --------
    >>> minute_text("2026-01-02T03:04:05+00:00")
    '2026-01-02 03:04 UTC'
    """
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return one_line(time)


def spent_texts(
    *,
    steps: int,
    seconds: float | None,
    usage: Usage,
    budget: Mapping[str, Any] = NO_CAPS,
) -> Iterator[str]:
    """Yield a run's spending, each with its cap where that is known.

    Parameters
    ----------
    steps, usage
        So far.
    seconds
        None when they were not recorded.
    budget
        The caps, as in a trace.

    Examples
    --------
    >>> list(spent_texts(steps=1, seconds=2.54, usage=Usage(prompt_tokens=1200)))
    ['1 step', '2.5 s', '1,200 tokens']
    >>> list(spent_texts(steps=1, seconds=None, usage=Usage(), budget={"max_steps": 30}))
    ['1 of 30 steps']
    """
    cap = budget.get("max_steps")
    yield f"{steps:,}{cap_text(cap)} step{'' if (cap or steps) == 1 else 's'}"
    if seconds is not None:
        yield f"{seconds:,.1f}{cap_text(budget.get('max_seconds'))} s"
    yield from usage_texts(usage, budget)


def usage_texts(usage: Usage, caps: Mapping[str, Any], between: str = " of ") -> Iterator[str]:
    """Yield tokens and cost, as far as they are known or capped."""
    if usage.total_tokens or caps.get("max_tokens"):
        about = "about " if usage.estimated else ""
        yield f"{about}{usage.total_tokens:,}{cap_text(caps.get('max_tokens'), between)} tokens"
    if usage.cost_usd is not None or caps.get("max_cost"):
        yield f"${usage.cost_usd or 0.0:.4f}{cap_text(caps.get('max_cost'), between)}"


def cap_text(cap: Any, between: str = " of ") -> str:
    """Return a cap as text behind the amount spent; empty without one."""
    return f"{between}{cap:,.10g}" if isinstance(cap, int | float) else ""


# --- delegated runs ------------------------------------------------------------------------------


def agents_of(steps: Iterable[Step]) -> tuple[Delegated, ...]:
    """Return the runs that steps delegated, in the order in which they were asked for."""
    calls = [call for step in steps if step.result for call in step.result.calls]
    return agents_of_calls(calls)


def agents_of_calls(calls: Iterable[HostCall]) -> tuple[Delegated, ...]:
    """Return the runs that calls delegated, in the order in which they were asked for."""
    made = sorted((call for call in calls if call.delegated), key=lambda call: call.number)
    return tuple(call.delegated for call in made if call.delegated)


def agents_notes(calls: Iterable[HostCall]) -> str:
    """Return what agents noted beside their answers, a line each: code has their values alone."""
    noted = (agent for agent in agents_of_calls(calls) if agent.note)
    return "\n".join(f"(Agent {agent.name}. {agent.note})" for agent in noted)


def tree_lines(agents: Iterable[Delegated], indent: str = "") -> Iterator[str]:
    """Yield the tree as lines of plain text: task, ending, cost."""
    for agent in agents:
        yield f"{indent}Agent {agent.name}: {one_line(agent.task, TASK_CHARS)}"
        yield f"{indent}  {agent_line(agent)}"
        yield from tree_lines(agent.agents, f"{indent}    ")


def agent_line(agent: Delegated) -> str:
    """Return a line on an agent: its ending, its cost, its answer."""
    return " · ".join(filter(None, [agent_cost(agent), agent_outcome(agent)]))


def agent_cost(agent: Delegated) -> str:
    """Return an agent's ending and cost, its own agents included."""
    spent = spent_texts(steps=agent.steps, seconds=agent.seconds, usage=agent.usage)
    return " · ".join([agent.status.words, *spent])


def agent_outcome(agent: Delegated) -> str:
    """Return the first line of an agent's answer and its note, or of the reason for its absence."""
    if agent.status is not ExitStatus.ANSWERED:
        return one_line(agent.message, ANSWER_CHARS)
    beside = [one_line(agent.note, ANSWER_CHARS)] if agent.note else []
    return " · ".join([one_line(agent.answer, ANSWER_CHARS), *beside])
