"""The json format: native calls of host tools, any number of them side by side."""

from __future__ import annotations

import pytest

from kernel_agent.errors import FormatError, UsageError
from kernel_agent.formats import get_format, parse
from kernel_agent.records.action import Call, Calls, Final
from kernel_agent.records.conversation import Reply, ToolCall


def native(*calls, content="", reason="tool_calls"):
    made = tuple(ToolCall(id=f"c{n}", name=c, arguments=a) for n, (c, a) in enumerate(calls))
    return Reply(content=content, tool_calls=made, finish_reason=reason)


def read(reply):
    return parse(reply, "json")


def kind(reply):
    with pytest.raises(FormatError) as raised:
        read(reply)
    return raised.value.kind


def test_all_calls_of_a_reply_are_read_in_order_with_their_thought():
    """Also the same call twice: it may mean something the second time."""
    found = read(native(("f", '{"x": [1, 2]}'), ("g", "{}"), ("g", "{}"), content="Both."))
    assert found == Calls(
        calls=(
            Call(name="f", arguments={"x": [1, 2]}, id="c0"),
            Call(name="g", arguments={}, id="c1"),
            Call(name="g", arguments={}, id="c2"),
        ),
        thought="Both.",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        '{"x": 1}',
        '{"x": 1,}',
        "{'x': 1}",
        '"{\\"x\\": 1}"',
        '```json\n{"x": 1}\n```',
        "{x: 1}",
        '{"x": 1 // one\n}',
    ],
)
def test_arguments_are_repaired_where_only_their_notation_is_wrong(arguments):
    """Trailing commas, quotes, fences and double encoding lose nothing."""
    (made,) = read(native(("f", arguments))).calls
    assert made.arguments == {"x": 1}
    assert made.repaired == (arguments != '{"x": 1}')


@pytest.mark.parametrize("arguments", ["", "null", "{}"])
def test_missing_arguments_are_no_arguments(arguments):
    """One real provider sends no arguments at all for a function without parameters."""
    assert read(native(("f", arguments))).calls == (Call(name="f", arguments={}, id="c0"),)


@pytest.mark.parametrize("arguments", ['{"x": 1', '{"x": ', "berlin", "[1, 2]", "5"])
def test_arguments_that_cannot_be_read_are_answered_beside_those_that_can(arguments):
    """The readable call is made; the other one carries what is wrong with it."""
    good, bad = read(native(("f", '{"x": 1}'), ("g", arguments))).calls
    assert (good.arguments, good.error) == ({"x": 1}, "")
    assert bad.arguments == {}
    assert "JSON object" in bad.error
    assert kind(native(("g", arguments))) == "malformed"


@pytest.mark.parametrize("arguments", ["", "{}", '{"answer": ""}', '{"answer": " "}'])
def test_an_answer_of_nothing_is_asked_for_again(arguments):
    """And beside other calls, which are made, it does not end the run."""
    assert kind(native(("final_answer", arguments))) == "malformed"
    _, answer = read(native(("f", "{}"), ("final_answer", arguments))).calls
    assert "say what was found" in answer.error


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ('{"answer": "4 EUR"}', "4 EUR"),
        ('{"value": 4}', 4),
        ('{"a": 1, "b": 2}', {"a": 1, "b": 2}),
        ("4 EUR", "4 EUR"),
        ('{"answer": null}', None),
        ('{"answer": [1, 2]}', [1, 2]),
    ],
)
def test_final_answer_alone_ends_the_run_whatever_its_argument_is_called(arguments, answer):
    """Any JSON value is an answer."""
    given = read(native(("final_answer", arguments), content="So."))
    assert isinstance(given, Final)
    assert (given.answer, given.thought) == (answer, "So.")
    assert given.repaired == (arguments == "4 EUR")


def test_of_two_answers_the_last_that_can_be_read_counts():
    """Nothing else was asked for, so there is nothing to wait for."""
    found = read(native(("final_answer", '{"answer": 1}'), ("final_answer", '{"answer": 2}')))
    assert found.answer == 2
    found = read(native(("final_answer", '{"answer": 1}'), ("final_answer", '{"answer": ')))
    assert found.answer == 1


@pytest.mark.parametrize(
    "arguments",
    ['{"x": "a"b", "y": 1', '{"x": ["a" b"]}', '{"x": "a", "y": "the "best", "z": "c"}'],
)
def test_a_repair_that_guesses_is_not_made(arguments):
    """Where a string ends is for the model to say: a wrong argument is worse than none."""
    assert kind(native(("f", arguments))) == "malformed"


def test_quotes_inside_of_a_string_are_kept_where_it_is_certain_how_it_ends():
    """What is read stands in the reply character by character."""
    found = read(native(("f", '{"x": "say "hi" to them"}')))
    assert found.calls[0].arguments == {"x": 'say "hi" to them'}


@pytest.mark.parametrize("arguments", ["{'x': {1, 2}}", "{'x': b'a'}", "{'x': 1j}", "{1, 2}"])
def test_what_is_python_but_not_json_is_no_argument(arguments):
    """It could neither be sent to a tool nor be written down."""
    assert kind(native(("f", arguments))) == "malformed"


def test_numbers_that_json_does_not_know_become_null():
    """An endpoint refuses a history that holds them."""
    assert read(native(("f", '{"x": [NaN, Infinity]}'))).calls[0].arguments == {"x": [None, None]}


def test_final_answer_beside_other_calls_waits_for_them():
    """The model has not seen their results yet; whoever makes the calls decides."""
    found = read(native(("send", '{"to": "x"}'), ("final_answer", '{"answer": "sent"}')))
    assert [call.name for call in found.calls] == ["send", "final_answer"]
    assert found.calls[1].arguments == {"answer": "sent"}


@pytest.mark.parametrize(
    "text",
    [
        'Go.\n<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>',
        'Go.\n```json\n[{"name": "f", "parameters": {"x": 1}}]\n```',
        "Go.\n<function=f><parameter=x>1</parameter></function>",
        '<think>{"name": "bad", "arguments": {}}</think>Go.\n{"name": "f", "arguments": {"x": 1}}',
    ],
)
def test_calls_in_the_text_are_read_as_calls(text):
    """Where the server has no parser for what the model writes."""
    found = read(Reply(content=text, finish_reason="stop"))
    assert [(c.name, c.arguments) for c in found.calls] == [("f", {"x": 1})]
    assert found.thought == "Go."


@pytest.mark.parametrize(
    "text", ["The answer is 4.", "", '{"x": 1}', "```python\nf(1)\n```", "<tool_call></tool_call>"]
)
def test_a_text_without_calls_is_missing_them(text):
    """It is asked for again, as in every format; code is not run here either."""
    assert kind(Reply(content=text, finish_reason="stop")) == "missing"


def test_what_the_endpoint_cut_off_calls_nothing():
    """Neither natively nor in the text."""
    assert kind(native(("f", "{}"), reason="length")) == "truncated"
    assert kind(Reply(content='{"name": "f", "arguments": {"x": ')) == "truncated"


@pytest.mark.parametrize("count", [100, 101])
def test_more_calls_than_a_turn_can_mean_are_refused(count):
    """None of them is made, and the model is told how many it may make."""
    texts = Reply(content='{"name": "f", "arguments": {}}\n' * min(count, 100))
    assert len(read(texts).calls) == 100
    for reply in (
        native(*[("f", "{}")] * count),
        Reply(content="<function=f>{}</function>" * count),
    ):
        if count > 100:
            assert kind(reply) == "malformed"
        else:
            assert len(read(reply).calls) == count


def test_there_is_no_code_in_this_format():
    """What writes cells cannot use it, and says so."""
    with pytest.raises(UsageError, match="choose another --format"):
        get_format("json").compose(thought="", code="f()")
