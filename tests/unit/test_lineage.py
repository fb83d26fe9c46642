"""The tree of delegated runs, as text and as Markdown; whatever hostile text they hold."""

from __future__ import annotations

from kernel_agent.notebook.agents import agents_markdown
from kernel_agent.records.cell import Delegated, HostCall
from kernel_agent.records.codec import from_json
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.reading import agents_of_calls, tree_lines
from kernel_agent.records.trace import to_json

CHILD = Delegated(
    run_id="c",
    name="1-look",
    folder="agents/1-look",
    task="Look",
    status=ExitStatus.STEP_LIMIT,
    message="the limit of 2 steps was reached",
    steps=2,
    seconds=1.24,
)
PARENT = Delegated(
    run_id="p",
    name="2-sum-up",
    folder="agents/2-sum-up",
    task="Sum up",
    status=ExitStatus.ANSWERED,
    answer="7",
    steps=1,
    seconds=3.0,
    usage=Usage(prompt_tokens=1000, completion_tokens=234, cost_usd=0.0123),
    agents=(CHILD,),
)


def test_the_tree_says_what_was_asked_how_it_ended_and_what_it_cost() -> None:
    """One agent after another, those beneath it indented."""
    assert list(tree_lines([PARENT])) == [
        "Agent 2-sum-up: Sum up",
        "  answered · 1 step · 3.0 s · 1,234 tokens · $0.0123 · 7",
        "    Agent 1-look: Look",
        "      step limit · 2 steps · 1.2 s · the limit of 2 steps was reached",
    ]


def test_the_notebook_links_each_agents_notebook_through_those_above_it() -> None:
    """Relative to the notebook, so that the folder can be moved."""
    text = agents_markdown([PARENT])
    assert "- [2-sum-up](agents/2-sum-up/run.ipynb)" in text
    assert "  - [1-look](agents/2-sum-up/agents/1-look/run.ipynb)" in text
    assert "**step limit** · 2 steps" in text


def test_hostile_text_stays_text() -> None:
    """Task and answer come from kernels and a model."""
    bad = Delegated(
        run_id="x",
        name="1-x",
        folder="agents/1-x",
        task="<script>alert(1)</script>\n\n# Title [a](javascript:b)",
        status=ExitStatus.ANSWERED,
        answer="![x](http://tracker/x.png) <img src=x>\x1b[31m",
    )
    text = agents_markdown([bad])
    assert "<script" not in text
    assert "<img" not in text
    assert "![x](" not in text
    assert "\x1b" not in text
    assert "\n#" not in text


def test_agents_are_in_the_order_in_which_they_were_asked_for() -> None:
    """Their calls are recorded as they were answered."""
    calls = [
        HostCall(name="delegate", arguments=None, ok=True, number=2, delegated=CHILD),
        HostCall(name="llm", arguments=None, ok=True, number=3),
        HostCall(name="delegate", arguments=None, ok=True, number=1, delegated=PARENT),
    ]
    assert agents_of_calls(calls) == (PARENT, CHILD)


def test_the_record_survives_the_trace() -> None:
    """With its status and those beneath it."""
    call = HostCall(name="delegate", arguments=None, ok=True, delegated=PARENT)
    assert from_json(to_json(call)) == call
