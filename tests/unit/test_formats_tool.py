"""The tool format against what real models and servers write where a native call was asked for."""

from __future__ import annotations

import json

import pytest

from kernel_agent.errors import FormatError
from kernel_agent.formats import parse
from kernel_agent.records.action import Code
from kernel_agent.records.conversation import Reply, ToolCall


def native(*arguments, name="python", content="", reason="tool_calls"):
    calls = tuple(ToolCall(id=f"c{n}", name=name, arguments=a) for n, a in enumerate(arguments))
    return Reply(content=content, tool_calls=calls, finish_reason=reason)


def source(reply):
    return parse(reply, "tool").source


def kind(reply):
    with pytest.raises(FormatError) as raised:
        parse(reply, "tool")
    return raised.value.kind


ARGUMENTS = [
    ("as asked", '{"code": "x = 1\\nf(x)"}', "x = 1\nf(x)"),
    ("a bare string", "x = 1\nf(x)", "x = 1\nf(x)"),
    ("a JSON string", '"x = 1\\nf(x)"', "x = 1\nf(x)"),
    ("encoded twice", json.dumps('{"code": "x = 1\\nf(x)"}'), "x = 1\nf(x)"),
    ("encoded three times", json.dumps(json.dumps('{"code": "f()"}')), "f()"),
    ("fenced object", '```json\n{"code": "f()"}\n```', "f()"),
    ("fenced code", "```python\nf()\n```", "f()"),
    ("fence inside", '{"code": "```python\\nf()\\n```"}', "f()"),
    ("another key", '{"source": "f()"}', "f()"),
    ("upper case", '{"CODE": "f()"}', "f()"),
    ("a list of lines", '{"code": ["x = 1", "f(x)"]}', "x = 1\nf(x)"),
    ("with a thought", '{"thought": "Now.", "code": "f()"}', "f()"),
    ("another key and a thought", '{"thought": "Now.", "script": "f()"}', "f()"),
    ("raw line breaks", '{"code": "x = 1\nf(x)"}', "x = 1\nf(x)"),
    ("trailing comma", '{"code": "f()",}', "f()"),
    ("single quotes", "{'code': 'f(\"a\")'}", 'f("a")'),
    ("text after it", '{"code": "f()"} and so on', "f()"),
    ("line breaks escaped twice", '{"code": "import os\\\\nf()"}', "import os\nf()"),
    ("a bare name", "df", "df"),
    ("a whole call", '{"name": "python", "arguments": {"code": "f()"}}', "f()"),
    ("a whole call as text", '{"name": "run", "arguments": "{\\"code\\": \\"f()\\"}"}', "f()"),
    ("Python said", '{"language": "python", "source": "f()"}', "f()"),
    ("a comment and escaped breaks", '{"code": "# Go.\\\\nf()"}', "# Go.\nf()"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code"), [a[1:] for a in ARGUMENTS], ids=[a[0] for a in ARGUMENTS]
)
def test_the_arguments_of_a_native_call_are_read_in_any_notation(arguments, code):
    """Each was seen in recorded calls of real models or in reports about servers."""
    assert source(native(arguments)) == code


@pytest.mark.parametrize(
    "name",
    ["python", "execute", "code_interpreter", "Python", "functions.python", "", "run code",
     "execute_ipython_cell", "Python_REPL", "python_repl_ast", "executeCode", "run_python_code"],
)  # fmt: skip
def test_the_function_may_be_called_what_the_model_likes(name):
    """There is only one function: what matters is that there is code."""
    assert source(native('{"code": "f()"}', name=name)) == "f()"
    assert source(native("f()", name=name)) == "f()"


TEXTS = {
    "hermes": 'Go.\n<tool_call>\n{"name": "python", "arguments": {"code": "f()"}}\n</tool_call>',
    "never closed": '<tool_call>\n{"name": "python", "arguments": {"code": "f()"}}',
    "in a fence": '```json\n{"name": "python", "parameters": {"code": "f()"}}\n```',
    "in a list": '[TOOL_CALLS] [{"name": "python", "arguments": {"code": "f()"}}]',
    "arguments as text": '{"name": "python", "arguments": "{\\"code\\": \\"f()\\"}"}',
    "the protocol's own": '{"tool_calls": [{"type": "function", "function": {"name": "python",'
    ' "arguments": "{\\"code\\": \\"f()\\"}"}}]}',
    "an action": '{"tool": "python", "tool_input": {"code": "f()"}}',
    "a tag with an object": '<function=python>{"code": "f()"}</function>',
    "tags": "<tool_call>\n<function=python>\n<parameter=code>\nf()\n</parameter>\n</function>\n"
    "</tool_call>",
    "after reasoning": '<think>{"name": "python", "arguments": {"code": "bad()"}}</think>\n'
    '<tool_call>{"name": "python", "arguments": {"code": "f()"}}</tool_call>',
    "tags after reasoning": "<think><function=python><parameter=code>bad()</parameter></function>"
    "</think><function=python><parameter=code>f()</parameter></function>",
    "tags never closed": "Go.\n<function=run_cell>\n<parameter=code>f()</parameter>\n",
    "named tags": 'Go.\n<function_calls>\n<invoke name="python">\n<parameter name="code">f()'
    "</parameter>\n</invoke>\n</function_calls>",
    "tags in a namespace": '<minimax:tool_call><minimax:invoke name="python">'
    '<minimax:parameter name="code">f()</minimax:parameter></minimax:invoke></minimax:tool_call>',
    "tags between bars": '<\uff5cDSML\uff5cfunction_calls><\uff5cDSML\uff5cinvoke name="python">'
    '<\uff5cDSML\uff5cparameter name="code" string="true">f()</\uff5cDSML\uff5cparameter>\n'
    "</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>",
    "keys and values": "<tool_call>python\n<arg_key>code</arg_key>\n<arg_value>f()</arg_value>\n"
    "</tool_call>",
    "in Python": 'python(code="f()")',
    "in Python, listed": "<|tool_call_start|>[python(code='f()')]<|tool_call_end|>",
    "in Python, fenced": "Go.\n```tool_code\npython(code='f()')\n```",
    "after a draft": 'Go.\n```python\nbad()\n```\n<tool_call>\n{"name": "python", "arguments": '
    '{"code": "f()"}}\n</tool_call>',
    "named after a draft": "Go.\n```python\nbad()\n```\n<|tool_call_begin|>functions.python:0"
    '<|tool_call_argument_begin|>{"code": "f()"}<|tool_call_end|>',
    "before an invented turn": "<function=python><parameter=code>f()</parameter></function>\n"
    "Observation: 3\n<function=python><parameter=code>bad()</parameter></function>",
    "an action and its input": 'Action:\n{"action": "python", "action_input": "f()"}',
    "uses of tools": '{"tool_uses": [{"recipient_name": "functions.python", "parameters": '
    '{"code": "f()"}}]}',
    "a function call": '{"function_call": {"name": "python", "arguments": "{\\"code\\": '
    '\\"f()\\"}"}}',
    "an envelope": '{"thought": "Go.", "code": "f()"}',
    "a block": "Go.\n```python\nf()\n```",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_call_that_stands_in_the_text_is_read_as_one(text):
    """Servers without a parser for the model pass it on as text; some models write none else."""
    action = parse(Reply(content=text, finish_reason="stop"), "tool")
    assert action == Code(source="f()", thought="Go." if "Go." in text else "")


def test_a_call_beside_text_takes_the_text_as_its_thought():
    """A block in the text is a draft of the same code, and reasoning is not shown."""
    text = "<think>hm</think>I look first.\n```python\nbad()\n```"
    assert parse(native('{"code": "f()"}', content=text), "tool") == Code(
        source="f()", thought="I look first."
    )


def test_several_calls_are_one_cell_in_their_order():
    """A second call does not correct the first; the same call twice in a row is one."""
    assert source(native('{"code": "x = 1"}', '{"code": "f(x)"}')) == "x = 1\n\nf(x)"
    assert source(native('{"code": "f()"}', '{"code": "f()"}')) == "f()"
    assert source(native('{"code": "f()"}', '{"code": "g()"}')) == "display(f())\n\ng()"
    assert source(native('{"code": "x = 1\\nx + 1  # two"}', '{"code": "g()"}')) == (
        "x = 1\ndisplay(x + 1)  # two\n\ng()"
    )
    assert source(native('{"code": "f()"}', "")) == "f()"
    assert kind(native('{"code": "f()"}', '{"code": "%%time\\ng()"}')) == "syntax"


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("final_answer", '{"answer": "4 EUR"}', "final_answer('4 EUR')"),
        ("final_answer", '{"a": 1, "b": null}', "final_answer({'a': 1, 'b': None})"),
        ("final_answer", "4 EUR", "final_answer('4 EUR')"),
        ("rate", '{"currency": "USD", "year": 2020}', "rate(currency='USD', year=2020)"),
        ("rate", '{"to what": 1}', "rate(**{'to what': 1})"),
        ("list_tables", "{}", "list_tables()"),
    ],
)
def test_a_call_of_another_function_is_the_cell_that_calls_it(name, arguments, code):
    """The model takes a stub in the kernel for a native function: what it wants is clear."""
    assert source(native(arguments, name=name)) == code


REFUSED = [
    ("no arguments", "", "missing"),
    ("null", "null", "missing"),
    ("empty object", "{}", "missing"),
    ("empty code", '{"code": ""}', "missing"),
    ("null code", '{"code": null}', "missing"),
    ("only a comment", '{"code": "# later"}', "missing"),
    ("two texts", '{"a": "f()", "b": "g()"}', "missing"),
    ("a schema", '{"type": "object", "properties": {"code": {"type": "string"}}}', "missing"),
    ("another language", '{"language": "bash", "code": "ls -la"}', "missing"),
    ("another language by another name", '{"language": "r", "script": "x = f(1)"}', "missing"),
    ("an answer", '{"final_answer": "42"}', "missing"),
    ("cut off", '{"code": "x = 1', "truncated"),
    ("cut before the brace", '{"code": "x = 1"', "truncated"),
    ("ambiguous quotes", '{"code": "x = "" + y"}', "malformed"),
    ("a number", '{"code": 5}', "malformed"),
    ("prose", "I would look at the table", "syntax"),
    ("not Python", '{"code": "x = ("}', "syntax"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_arguments_without_certain_code_run_nothing(arguments, expected):
    """Also when the endpoint says that the call is whole."""
    assert kind(native(arguments)) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command": "ls -la"}',
        '{"name": "python", "args": {"command": "ls -la"}}',
        '{"cmd": "pwd"}',
    ],
)
def test_a_command_of_a_shell_is_refused_though_it_may_be_valid_python(arguments):
    call = ToolCall(id="1", name="python", arguments=arguments)
    with pytest.raises(FormatError, match="another language") as caught:
        parse(Reply(content="", tool_calls=(call,)), "tool")
    assert "only Python is" in caught.value.feedback


@pytest.mark.parametrize("code", ["df.head()", "!ls -la", "%pwd"])
def test_python_in_an_argument_named_command_runs(code):
    call = ToolCall(id="1", name="python", arguments=json.dumps({"command": code}))
    assert parse(Reply(content="", tool_calls=(call,)), "tool").source == code


def test_a_call_that_the_endpoint_cut_off_never_runs():
    """Whatever is left of it may compile by accident."""
    assert kind(native('{"code": "x = 1"}', reason="length")) == "truncated"
    cut = '{"name": "python", "arguments": {"code": "f()"}} {"name": "python", "arguments": {"co'
    assert kind(Reply(content=cut)) == "truncated"


@pytest.mark.parametrize(
    "text",
    [
        "<function=python>\n<parameter=code>\nx = 1\ny = 2",
        "<function=python>\n<parameter=code>x = 1</parameter>\n<parameter=",
        "<tool_call>python\n<arg_key>code</arg_key>\n<arg_value>x = 1",
        'f()\n```python\nf()\n```\n<tool_call>{"name": "python", "arguments": {"code": "x',
    ],
)
def test_a_call_in_the_text_that_never_closes_never_runs(text):
    """Nor does a block before it."""
    assert kind(Reply(content=text)) == "truncated"


@pytest.mark.parametrize(
    "call",
    [
        "[TOOL_CALLS]{name}{arguments}",
        "[TOOL_CALLS]{name}[ARGS]{arguments}",
        "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        "<\uff5ctool\u2581call\u2581begin\uff5c>{name}<\uff5ctool\u2581sep\uff5c>{arguments}",
        "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>{name}\n```json\n{arguments}\n```",
        "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}",
    ],
)
def test_calls_named_before_their_arguments_are_all_made_in_their_order(call):
    """The second does not replace the first, and an answer is an answer."""
    first = call.format(name="python", arguments='{"code": "x = 1"}')
    second = call.format(name="final_answer", arguments='{"answer": "4 EUR"}')
    assert source(Reply(content=second)) == "final_answer('4 EUR')"
    if "commentary" not in call:  # its next message hides the one before, as reasoning
        assert source(Reply(content=f"{first}\n{second}")) == "x = 1\n\nfinal_answer('4 EUR')"


def test_a_template_token_in_the_string_of_a_call_stays():
    """Only those around the call are the template's."""
    text = "<|tool_call_start|>[python(code='s = \"<|im_end|>\"')]<|tool_call_end|><|im_end|>"
    assert source(Reply(content=text)) == 's = "<|im_end|>"'


def test_an_answer_in_the_form_of_an_action_is_one():
    """Agents of another kind end with an action that is called Final Answer."""
    text = '{"action": "Final Answer", "action_input": "4 EUR"}'
    assert source(Reply(content=text)) == "final_answer('4 EUR')"


def test_what_is_told_about_a_missing_call_shows_the_call():
    """A model that answered in prose learns how to answer."""
    with pytest.raises(FormatError) as raised:
        parse("The answer is 4.", "tool")
    assert "python({" in raised.value.feedback
    assert "final_answer(value)" in raised.value.feedback
    assert "```" not in raised.value.feedback


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"thought": "x", "code": "f()', "truncated"),
        ("```python\nf(\n```", "syntax"),
        ('{"thought": "x", "code": ""}', "missing"),
    ],
)
def test_code_that_no_call_holds_is_refused_for_what_is_wrong_with_it(text, expected):
    """And not for the missing call, unless there is no code either."""
    with pytest.raises(FormatError) as raised:
        parse(Reply(content=text), "tool")
    assert raised.value.kind == expected
    assert ("No call was found" in raised.value.feedback) is (expected == "missing")


@pytest.mark.parametrize("other", ["x.python(code='g()')", "g", "3", "other(code='g()')"])
def test_a_list_that_begins_with_a_call_and_holds_something_else_makes_no_call(other):
    """It is a list of Python, and no way to write calls."""
    with pytest.raises(FormatError) as raised:
        parse(Reply(content=f"[python(code='f()'), {other}]"), "tool")
    assert raised.value.kind == "missing"


def test_a_joined_cell_knows_where_each_of_its_calls_begins():
    joined = parse(native('{"code": "x = 1\\nf(x)"}', '{"code": "g()"}', '{"code": "h()"}'), "tool")
    lines = joined.source.split("\n")
    assert [lines[start - 1] for start in joined.starts] == ["x = 1", "display(g())", "h()"]
    assert parse(native('{"code": "f()"}'), "tool").starts == ()


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (('{"code": "f()"}',), 0),
        (("{'code': 'f()'}",), 1),
        (('{"code": "f()",}', '{"code": "g()"}'), 1),
        (('"f()"', "f(1)"), 2),
    ],
)
def test_repaired_calls_are_counted(arguments, count):
    assert parse(native(*arguments), "tool").repaired == count
