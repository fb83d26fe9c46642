"""The tree of a run and those that it delegated, as the one at its top reports it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernel_agent.records.cell import Delegated, HostCall
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import Step
from kernel_agent.safe import one_line

TASK_CHARS = 100
ANSWER_CHARS = 200


def agents_of(steps: Iterable[Step]) -> tuple[Delegated, ...]:
    """Return the runs that steps delegated, in the order in which they were asked for."""
    calls = [call for step in steps if step.result for call in step.result.calls]
    return agents_of_calls(calls)


def agents_of_calls(calls: Iterable[HostCall]) -> tuple[Delegated, ...]:
    """Return the runs that calls delegated, in the order in which they were asked for."""
    made = sorted((call for call in calls if call.delegated), key=lambda call: call.number)
    return tuple(call.delegated for call in made if call.delegated)


def tree_lines(agents: Iterable[Delegated], indent: str = "") -> Iterator[str]:
    """Yield the tree as lines of plain text: what was asked, how it ended, what it cost."""
    for agent in agents:
        yield f"{indent}Agent {agent.name}: {one_line(agent.task, TASK_CHARS)}"
        yield f"{indent}  {spent(agent)}{gave(agent)}"
        yield from tree_lines(agent.agents, f"{indent}    ")


def spent(agent: Delegated) -> str:
    """Return how an agent ended and what it cost, its own agents included."""
    ended = str(agent.status).replace("_", " ")
    steps = f"{agent.steps} {'step' if agent.steps == 1 else 'steps'}"
    return f"{ended} · {steps} · {agent.seconds:.1f} s{usage_text(agent.usage)}"


def gave(agent: Delegated) -> str:
    """Return the beginning of an agent's answer, or why there is none; empty for neither."""
    text = agent.answer if agent.status is ExitStatus.ANSWERED else agent.message
    return f" · {one_line(text, ANSWER_CHARS)}" if text.strip() else ""


def usage_text(usage: Usage) -> str:
    """Return tokens and cost, as far as they are known; empty when there are none."""
    text = ""
    if usage.total_tokens:
        text += f" · {'about ' if usage.estimated else ''}{usage.total_tokens:,} tokens"
    if usage.cost_usd is not None:
        text += f" · ${usage.cost_usd:.4f}"
    return text
