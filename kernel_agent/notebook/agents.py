"""A list of the runs that a step delegated, for the notebook of the run above them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import quote

from kernel_agent.notebook.markdown import verbatim
from kernel_agent.records import TASK_CHARS, Delegated, agent_cost, agent_outcome
from kernel_agent.safe import encodable, one_line, plain


def agents_markdown(agents: Iterable[Delegated]) -> str:
    """Return a nested list: each agent with a link to its notebook, its task, end, cost and answer.

    Parameters
    ----------
    agents
        In the order in which they were asked for.
    """
    return "\n".join(["**Agents at work in this step**", "", *_items(agents, folder="", depth=0)])


def _items(agents: Iterable[Delegated], *, folder: str, depth: int) -> Iterator[str]:
    for agent in agents:
        at = f"{folder}{agent.folder}/"
        link = f"[{agent.name}]({quote(encodable(at))}run.ipynb)"
        indent = "  " * depth
        yield f"{indent}- {link}: {verbatim(one_line(plain(agent.task), TASK_CHARS))}  "
        ended, _, rest = agent_cost(agent).partition(" · ")
        result = verbatim(agent_outcome(agent))
        yield f"{indent}  **{ended}** · {rest}{f' · {result}' if result else ''}"
        yield from _items(agent.agents, folder=at, depth=depth + 1)
