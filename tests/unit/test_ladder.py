"""Which format is chosen for a model, from what was measured."""

from __future__ import annotations

import pytest

from kernel_agent.formats import get_format
from kernel_agent.formats.auto import (
    RUNGS,
    Measure,
    billions,
    choose,
    describe_measures,
    honours,
    lower_rung,
    rungs,
)
from kernel_agent.records.conversation import Reply, ToolCall


def measure(name, unreadable=0, outcome="honoured", notation=None):
    return Measure(
        format=name, outcome=outcome, replies=2, unreadable=unreadable, notation=notation
    )


@pytest.mark.parametrize(
    ("measures", "chosen"),
    [
        ([measure("tool")], "tool"),
        ([measure("tool", outcome="refused"), measure("envelope")], "envelope"),
        ([measure("tool", 1), measure("envelope", outcome="ignored"), measure("fenced")], "fenced"),
        ([measure("tool", 1), measure("envelope", 2), measure("fenced", 2)], "tool"),
        ([measure("tool", 1), measure("envelope", 1), measure("fenced", 1)], "fenced"),
        ([measure("fenced", 1), measure("envelope", 1), measure("tool")], "tool"),
        ([measure("fenced", 2), measure("envelope", 2), measure("tool", 2)], "fenced"),
    ],
)
def test_the_first_that_nothing_breaks_else_the_one_that_least_does(measures, chosen):
    """Of two that break equally often, the one that asks for less."""
    assert choose(measures).format == chosen
    assert describe_measures(measures).count(";") == len(measures) - 1


def test_nothing_is_chosen_where_nothing_is_supported():
    """An endpoint that refuses everything is down, which is for the run to say."""
    assert choose([]) is None
    assert choose([measure(name, outcome="refused") for name in RUNGS]) is None


def test_what_was_measured_says_in_which_notation():
    """For the notice, and for whoever wants to ask another program likewise."""
    measures = [measure("tool", notation="forced"), measure("envelope", outcome="refused")]
    assert describe_measures(measures) == (
        "native calls (named as the choice): 0 of 2 test replies unreadable; "
        "the endpoint does not honour a JSON schema"
    )


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("gpt-5-mini", None), ("qwen2.5-coder:7b", 7.0), ("Llama-3.1-70B-Instruct", 70.0),
        ("qwen3-30b-a3b", 30.0), ("phi-3.5-3.8b", 3.8), ("gpt-oss-120b", 120.0),
        ("smollm2-135m", 0.135), ("gemma3:270m", 0.27), ("SmolLM2-135M-Instruct.Q4_1.gguf", 0.135),
        ("qwen:500m", 0.5), ("qwen2.5-7b-instruct-1m", 7.0), ("long-context-1m", None),
        ("qwen_7b_chat", 7.0), ("mixtral-8x7b", None), ("model-4bit", None), ("", None),
        ("9" * 500 + "b", None),
    ],
)  # fmt: skip
def test_a_size_is_what_the_name_states(model, size):
    """Unknown when it states none: then the model is taken as capable until it is measured."""
    assert billions(model) == size


def test_a_small_model_is_asked_for_the_least_formatting_only():
    """What breaks that breaks more where more is asked; a large or unknown one begins on top."""
    assert rungs("qwen2.5-coder:7b") == rungs("gemma3:270m") == ("fenced",)
    assert rungs("Llama-3.1-70B") == rungs("gpt-5-mini") == ("tool", "envelope", "fenced")


def test_a_rung_leads_to_the_next_one_and_json_to_none():
    """Another agent is only ever the user's choice."""
    assert [lower_rung(name) for name in (*RUNGS, "json", "shouted")] == [
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
    assert honours(get_format(name).options(), reply) is expected
