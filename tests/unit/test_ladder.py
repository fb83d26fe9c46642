"""Which format is chosen for a model, from what was measured."""

from __future__ import annotations

import pytest

from kernel_agent.formats import get_format
from kernel_agent.formats.ladder import RUNGS, Measure, billions, choose, honoured, lower, rungs
from kernel_agent.records import Reply, ToolCall


def measure(name, unreadable=0, *, supported=True):
    return Measure(format=name, supported=supported, replies=2, unreadable=unreadable)


@pytest.mark.parametrize(
    ("measures", "chosen"),
    [
        ([measure("tool")], "tool"),
        ([measure("tool", supported=False), measure("envelope")], "envelope"),
        ([measure("tool", 1), measure("envelope", supported=False), measure("fenced")], "fenced"),
        ([measure("tool", 1), measure("envelope", 2), measure("fenced", 2)], "tool"),
        ([measure("tool", 1), measure("envelope", 1), measure("fenced", 1)], "fenced"),
        ([measure("fenced", 1), measure("envelope", 1), measure("tool")], "tool"),
        ([measure("fenced", 2), measure("envelope", 2), measure("tool", 2)], "fenced"),
    ],
)
def test_the_first_that_nothing_breaks_else_the_one_that_least_does(measures, chosen):
    """Of two that break equally often, the one that asks for less."""
    name, reason = choose(measures)
    assert name == chosen
    assert reason.count(";") == len(measures) - 1


def test_nothing_is_chosen_where_nothing_is_supported():
    """An endpoint that refuses everything is down, which is for the run to say."""
    assert choose([]) is None
    assert choose([measure(name, supported=False) for name in RUNGS]) is None


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("gpt-5-mini", None), ("qwen2.5-coder:7b", 7.0), ("Llama-3.1-70B-Instruct", 70.0),
        ("qwen3-30b-a3b", 30.0), ("phi-3.5-3.8b", 3.8), ("gpt-oss-120b", 120.0),
        ("mixtral-8x7b", None), ("model-4bit", None), ("", None), ("9" * 500 + "b", None),
    ],
)  # fmt: skip
def test_a_size_is_what_the_name_states(model, size):
    """Unknown when it states none: then the model is taken as capable until it is measured."""
    assert billions(model) == size


def test_a_small_model_begins_with_the_least_formatting():
    """And a large or unknown one with the most."""
    assert rungs("qwen2.5-coder:7b") == ("fenced", "envelope", "tool")
    assert rungs("Llama-3.1-70B") == rungs("gpt-5-mini") == ("tool", "envelope", "fenced")


def test_a_rung_leads_to_the_next_one_and_json_to_none():
    """Another agent is only ever the user's choice."""
    assert [lower(name) for name in (*RUNGS, "json", "shouted")] == [
        "envelope",
        "fenced",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "reply", "expected"),
    [
        ("tool", Reply(content="", tool_calls=(ToolCall(id="", name="p", arguments=""),)), True),
        ("tool", Reply(content="```python\nf()\n```"), False),
        ("envelope", Reply(content='{"thought": "", "code": "f()"}'), True),
        ("envelope", Reply(content='```json\n{"thought": "", "code": "f()"}\n```'), False),
        ("envelope", Reply(content='{"code": "f()"}'), False),
        ("envelope", Reply(content='[1]'), False),
        ("fenced", Reply(content="anything"), True),
    ],
)  # fmt: skip
def test_an_option_is_honoured_when_the_reply_is_exactly_what_it_asks_for(name, reply, expected):
    """What only a lenient reader can make out shows that the endpoint ignored it."""
    assert honoured(get_format(name).options(), reply) is expected
