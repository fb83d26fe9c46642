"""A reply that proves by itself that it is whole, and source as it is taken out of a reply."""

from __future__ import annotations

import pytest

from kernel_agent.formats import parse
from kernel_agent.formats.fenced import closes
from kernel_agent.records.conversation import Reply, ToolCall


@pytest.mark.parametrize(
    "text",
    [
        "So:\n```python\nf()\n```",
        "```\nf()\n```",
        "<execute>\nf()\n</execute>",
        "<code>f()</code>",
        '{"thought": "", "code": "f()"}',
        "<function=python><parameter=code>f()</parameter></function>\n",
        "<tool_call>anything</tool_call>",
        "```python\nf()\n```\nThen:\n```python\ng(",
    ],
)
def test_code_that_is_closed_in_its_own_notation_is_whole(text: str) -> None:
    assert closes(Reply(content=text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f()",
        "share = n / 24",
        "So:\n```python\nf()",
        "<execute>\nf()",
        '{"thought": "", "code": "f()"',
        '["f()"]',
        "```python\n" * 6000,
    ],
    ids=lambda text: text[:20],
)
def test_what_is_closed_by_nothing_may_be_half_of_something(text: str) -> None:
    """Bare code, what never closes, and what nobody can read."""
    assert not closes(Reply(content=text))


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (['{"code": "f()"}'], True),
        (["{}", '{"code": "f()"}'], True),
        (['{"code": "f()"}', '{"code": "g('], False),
        (["f()"], False),
        (['"f()"'], False),
    ],
)
def test_native_calls_are_whole_when_each_has_an_object_of_arguments(
    arguments: list[str], whole: bool
) -> None:
    """Whatever the text beside them is."""
    calls = tuple(ToolCall(id="a", name="python", arguments=each) for each in arguments)
    assert closes(Reply(content="```python\nf()\n```", tool_calls=calls)) is whole
    assert closes(Reply(content="", tool_calls=calls)) is whole


@pytest.mark.parametrize("indent", [1, 2, 4])
def test_lines_that_are_indented_alike_are_code_at_the_margin(indent: int) -> None:
    lines = ["if x:", "    f()", "g()"]
    written = "\n".join(" " * indent + line for line in lines)
    assert parse(f"```python\n  \n{written}\n```").source == "\n".join(lines)
