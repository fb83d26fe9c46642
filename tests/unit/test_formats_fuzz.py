"""Every parser against replies that were mutated or cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.replies import outcome

from kernel_agent.errors import FormatError
from kernel_agent.formats import get_format
from kernel_agent.formats.reading.source import compile_error
from kernel_agent.records.action import Code
from kernel_agent.records.conversation import Reply, ToolCall
from kernel_agent.records.trace import to_json

FORMATS = ("fenced", "envelope", "tool", "json")
WRITES_CODE = ("fenced", "envelope", "tool")

CELLS = (
    "x = 1",
    "import pandas as pd\n\ndf = pd.read_csv('data/a b.csv')\ndf.head()",
    "print(\"it's\", 'a \"quote\"', r'\\w+\\s', '''three''')",
    "text = '''\n```python\nno\n```\nObservation: 1\n</code>\n'''\nlen(text)",
    "d = {'a': [1, {'b': (2, 3)}], \"c\": '}'}\nfor k in d:\n    print(k, '\\n')",
    "final_answer(f\"{best.idxmax()}: {best.max():,.0f} EUR é😀\")",
)  # fmt: skip
SEEDS = (
    *(get_format(n).compose(thought="Look first.", code=c) for n in WRITES_CODE for c in CELLS),
    "<think>\n```python\nbad()\n```\n</think>\nNow:\n<execute>\nx = 1\n</execute>\nOutput:\n1",
    "Assistant: <thought>Go.</thought>\n~~~py\nprint(1)\n~~~\nUser: more",
    '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": "{}"}]',
    "<tool_call><function=f><parameter=x>\n[1, 2]\n</parameter></function></tool_call>",
    '{"tool_calls": [{"function": {"name": "f", "arguments": "{\\"x\\": 1}"}}]}',
    "{'thought': 'it is', 'code': '''x = \"1\"''',}",
    '"{\\"code\\": \\"f()\\"}"',
)  # fmt: skip
SNIPPETS = (
    "```", "~~~", "\n", "{", "}", '"', "'", '"""', "\\", "<think>", "</think>", "<execute>", "[",
    "]", "</execute>", "<tool_call>", "</function>", "<parameter=code>", "Output:\n", "\0",
    "\ud800", "\r\n", "%%time\n", "?", ",", ":", "null", "NaN", "9" * 5000, "(" * 300, "\u2028",
    "\ufeff", "é" * 10,
)  # fmt: skip


@st.composite
def mutated(draw, seeds=SEEDS):
    """Return a reply with pieces of it left out, doubled, moved, replaced or put in."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 8))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        piece = text[start:end]
        match draw(st.integers(0, 5)):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + piece + text[end:]
            case 2:
                text = piece + text[:start] + text[end:]
            case 3:
                text = text[:start] + draw(st.sampled_from(SNIPPETS)) + text[end:]
            case 4:
                text = text[:start] + piece.swapcase() + text[end:]
            case _:
                text = text[:start] + draw(st.sampled_from(SNIPPETS)) + text[start:]
    return text[:20_000]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=examples(150))
@given(
    content=mutated(),
    calls=st.lists(
        st.tuples(st.sampled_from(["python", "f", "final_answer", "é"]), mutated()), max_size=3
    ),
    reason=st.sampled_from([None, "stop", "tool_calls", "length"]),
)  # fmt: skip
def test_a_mutated_reply_gives_an_action_or_a_format_error(name, content, calls, reason):
    """Code that is run compiles, what is sent on can be written down, and feedback is short."""
    native = tuple(ToolCall(id="", name=called, arguments=text) for called, text in calls)
    action = outcome(Reply(content=content, tool_calls=native, finish_reason=reason), name)
    if isinstance(action, FormatError):
        assert action.kind in {"missing", "truncated", "syntax", "malformed"}
        assert 20 < len(action.feedback) < 2000
        return
    assert reason != "length"
    json.dumps(to_json(action))
    if isinstance(action, Code):
        assert compile_error(action.source) is None
        assert action.source.strip()


def without_reasoning_tags(text):
    lowered = text.lower()
    tags = ("think", "reasoning", "reflection", "scratchpad")
    return not any(tag in lowered for tag in tags)


@pytest.mark.parametrize("name", WRITES_CODE)
@settings(max_examples=examples(100))
@given(draft=mutated().filter(without_reasoning_tags))
def test_whatever_stands_inside_of_reasoning_what_is_after_it_is_read(name, draft):
    """Unclosed fences, half objects and invented turns of a draft change nothing after it."""
    good = get_format(name).compose(thought="", code="good(1)")
    action = outcome(Reply(content=f"<think>{draft}\n</think>\n{good}", finish_reason="stop"), name)
    assert action == Code(source="good(1)", thought="")


@pytest.mark.parametrize("code", CELLS)
@pytest.mark.parametrize("name", WRITES_CODE)
def test_a_reply_that_is_cut_at_any_place_runs_as_a_whole_or_not_at_all(name, code):
    """Nothing is known about how it ended; what is left of code often compiles."""
    whole = get_format(name).compose(thought="Look first.", code=code)
    for end in range(len(whole)):
        action = outcome(Reply(content=whole[:end]), name)
        assert isinstance(action, FormatError) or action.source == code, whole[:end]


@pytest.mark.parametrize("code", CELLS)
def test_a_native_call_that_is_cut_at_any_place_runs_as_a_whole_or_not_at_all(code):
    """Also when the endpoint says that the call is whole: its JSON says otherwise."""
    arguments = json.dumps({"code": code})
    for end in range(len(arguments)):
        native = (ToolCall(id="", name="python", arguments=arguments[:end]),)
        reply = Reply(content="", tool_calls=native, finish_reason="tool_calls")
        assert isinstance(outcome(reply, "tool"), FormatError), arguments[:end]
