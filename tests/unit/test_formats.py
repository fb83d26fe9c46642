"""What every format promises: names, prompts, history, and a round trip that loses nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.replies import outcome

from kernel_agent.errors import FormatError, UsageError
from kernel_agent.formats import format_names, get_format, parse
from kernel_agent.formats.reading.objects import in_python
from kernel_agent.formats.reading.source import (
    MAX_CODE_CHARS,
    Trials,
    compile_error,
    is_evidently_code,
    makes_a_call,
)
from kernel_agent.records.action import Call, Calls, Code, Final
from kernel_agent.records.cell import Observation
from kernel_agent.records.conversation import Image, Message, Reply, RequestOptions, ToolCall
from kernel_agent.records.trace import Retry, Step, to_json

BUILT = ("fenced", "envelope", "tool", "json")
WRITES_CODE = ("fenced", "envelope", "tool")


def step(action, *, text="it ran", retries=(), images=()):
    observation = Observation(text=text, images=images)
    return Step(run_id="r", number=7, action=action, observation=observation, retries=retries)


def test_auto_is_the_fenced_format():
    """The default name leads to the format that every model can write."""
    assert get_format("auto").name == get_format().name == "fenced"
    assert [get_format(name).name for name in BUILT] == list(BUILT)
    assert format_names() == ("auto", *BUILT)


def test_an_unknown_format_lists_the_known_ones():
    """A typing error is answered with the names that exist."""
    with pytest.raises(UsageError, match=", ".join(format_names())):
        parse("x", format="yaml")


def test_an_unknown_format_is_taken_for_one_known_one_at_most():
    """Also where two are near."""
    for name, meant in (("jsn", ["json"]), ("autool", ["tool"]), ("yaml", [])):
        with pytest.raises(UsageError) as raised:
            parse("x", format=name)
        assert re.findall(r"Did you mean (\w+)\?", str(raised.value)) == meant


def test_importing_the_formats_loads_nothing_heavy():
    """Reading plain Python needs neither IPython nor json_repair."""
    code = (
        "import sys; from kernel_agent.formats import parse; parse('```python\\nx = 1\\n```');"
        "parse('{\"code\": \"x = 1\"}', 'envelope');"
        "print({'IPython', 'json_repair', 'pandas', 'openai'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


# --- prompts -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITES_CODE)
def test_every_example_of_a_prompt_is_read_back_and_compiles(name):
    """A model is shown only what its format can read, and the code is the run's own look."""
    look = 'import pandas as pd\n\ndf = pd.read_csv("data/a \\"b\\" ```.csv")\ndf.head()'
    prompt = get_format(name, look=look).system_prompt()
    [example] = re.finditer(r"^(```+)\w+\n.*?^\1$", prompt, re.MULTILINE | re.DOTALL)
    assert parse(as_asked(example[0], name), name).source == look


def as_asked(example, name):
    """Return an example as the reply that it stands for: a block, an object, or arguments."""
    if name != "tool":
        return Reply(content=example)
    body = example.removeprefix("```json\n").removesuffix("```")
    return Reply(content="", tool_calls=(ToolCall(id="a", name="python", arguments=body),))


@pytest.mark.parametrize("name", WRITES_CODE)
def test_a_prompt_is_stable_and_has_tools_only_when_there_are_any(name):
    """The same arguments give the same bytes; tool stubs come last."""
    plain = get_format(name).system_prompt()
    stubs = "def lookup(name: str) -> int: ..."
    assert plain == get_format(name).system_prompt(tools=" ")
    assert "## Tools" not in plain
    with_tools = get_format(name).system_prompt(tools=stubs)
    assert with_tools.startswith(plain)
    assert with_tools.endswith(stubs)


@pytest.mark.parametrize("name", WRITES_CODE)
def test_a_prompt_says_what_the_kernel_is(name):
    """The facts that a model cannot guess are in every prompt."""
    prompt = get_format(name).system_prompt()
    for fact in ("final_answer(value)", "outputs[k]", "no network", "input()", "working directory"):
        assert fact in prompt


def test_the_json_prompt_has_no_code_and_leaves_the_tools_to_their_schemas():
    """There is no cell to write; every tool comes with the request, final_answer the last."""
    made = get_format("json")
    assert "```" not in made.system_prompt()
    assert made.system_prompt(tools="def lookup(name: str) -> int: ...") == made.system_prompt()
    lookup = {"name": "lookup", "description": "d", "parameters": {"type": "object"}}
    asked = made.options(tools=[lookup])
    assert [t["function"]["name"] for t in asked.tools] == ["lookup", "final_answer"]
    assert asked.tools[0] == {"type": "function", "function": lookup}
    assert asked.parallel_tool_calls is None


def test_a_format_asks_the_endpoint_for_no_more_than_it_needs():
    """Plain text needs no option; the envelope sends a strict schema, the tool one function."""
    assert get_format("fenced").options(tools=[{"name": "x"}]) == RequestOptions()
    function = get_format("tool").options(tools=[{"name": "x"}])
    assert [t["function"]["name"] for t in function.tools] == ["python"]
    assert function.parallel_tool_calls is False
    assert function.stop == ()
    asked = get_format("envelope").options().response_format
    assert asked["json_schema"]["strict"] is True
    assert asked["json_schema"]["schema"]["required"] == ["thought", "code"]
    assert json.loads(json.dumps(asked)) == asked


# --- history -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fenced", "envelope"])
def test_a_step_stands_in_the_history_once_with_its_observation(name):
    """Two messages: the action, which the format reads back, and the observation with pictures."""
    code = Code(source="print('héllo')\nx = {'a': 1}", thought="Look first.")
    picture = Image(media_type="image/png", data="AA==", width=1, height=1)
    said, seen = get_format(name).write(step(code, text="héllo", images=(picture,)))
    assert (said.role, seen.role) == ("assistant", "user")
    assert parse(said.content, name) == code
    assert said.content.count("héllo") == 1
    assert seen.content == "Observation (step 7):\nhéllo"
    assert seen.images == (picture,)


def test_a_step_of_the_tool_format_stands_in_the_history_as_a_native_call():
    """The call with its code, once, and a tool message with the call's id and the pictures."""
    code = Code(source="print('héllo')", thought="Look first.")
    picture = Image(media_type="image/png", data="AA==", width=1, height=1)
    said, seen = get_format("tool").write(step(code, text="it ran", images=(picture,)))
    [call] = said.tool_calls
    assert (said.role, said.content, call.name) == ("assistant", "Look first.", "python")
    assert json.loads(call.arguments) == {"code": "print('héllo')"}
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", call.id)
    assert (seen.role, seen.tool_call_id, seen.images) == ("tool", call.id, (picture,))
    assert seen.content == "Observation (step 7):\nit ran"
    reply = Reply(content=said.content, tool_calls=said.tool_calls, finish_reason="tool_calls")
    assert parse(reply, "tool") == code


def test_calls_stand_in_the_history_with_an_answer_to_each():
    """In their order, with ids of their own; what follows the answers goes with the last."""
    calls = Calls(
        calls=(Call(name="f", arguments={"x": "é"}), Call(name="g", arguments={})), thought="Both."
    )
    made = step(calls, text="1\n\n2\n(one step is left)")
    made = replace(made, observation=replace(made.observation, parts=("1", "2")))
    said, first, second = get_format("json").write(made)
    assert [(c.name, json.loads(c.arguments)) for c in said.tool_calls] == [
        ("f", {"x": "é"}),
        ("g", {}),
    ]
    assert said.content == "Both."
    assert len({c.id for c in said.tool_calls}) == 2
    assert (first, second) == (
        Message(role="tool", content="1", tool_call_id=said.tool_calls[0].id),
        Message(role="tool", content="2\n(one step is left)", tool_call_id=said.tool_calls[1].id),
    )


def test_an_observation_that_was_shortened_since_stands_with_the_first_call():
    """Every call still has its answer: endpoints refuse a history in which one is missing."""
    calls = Calls(calls=(Call(name="f", arguments={}), Call(name="g", arguments={})))
    masked = step(calls, text="two numbers [… 9,000 characters left out]")
    masked = replace(masked, observation=replace(masked.observation, parts=("1" * 9000, "2")))
    said, first, second = get_format("json").write(masked)
    assert first.content == "two numbers [… 9,000 characters left out]"
    assert second.content == "(see the answer to the first call)"
    assert [first.tool_call_id, second.tool_call_id] == [c.id for c in said.tool_calls]


def test_an_answer_of_an_earlier_run_stands_in_the_history_as_the_call_that_gave_it():
    """The next run of the session reads it in the form in which it would give its own."""
    said, seen = get_format("json").write(
        step(Final(answer={"sum": 3}), text="The answer was given.")
    )
    assert parse(Reply(content="", tool_calls=said.tool_calls), "json").answer == {"sum": 3}
    assert seen.role == "tool"


@pytest.mark.parametrize("name", BUILT)
def test_a_step_of_any_kind_can_stand_in_the_history_of_any_format(name):
    """A session goes on in another format, and what was done before stays readable."""
    for action in (
        Code(source="f()"),
        Calls(calls=(Call(name="g", arguments={}),)),
        Final(answer=1),
    ):
        messages = get_format(name).write(step(action))
        assert [m.role for m in messages] in (["assistant", "user"], ["assistant", "tool"])
        assert "it ran" in messages[-1].content


@pytest.mark.parametrize("name", BUILT)
def test_an_unreadable_step_shows_the_reply_shortened_and_what_was_told(name):
    """The model sees that it failed and why, without the whole reply again."""
    retries = (Retry(content="x", feedback="no"), Retry(content="a" * 9000, feedback="Write code."))
    said, seen = get_format(name).write(step(None, retries=retries))
    assert said.content.startswith("aaa")
    assert "8,600 characters left out" in said.content
    assert len(said.content) < 500
    assert seen.content == "Observation (step 7):\nWrite code."


def test_an_empty_reply_is_still_a_message():
    """Endpoints refuse empty messages."""
    said, _ = get_format("fenced").write(step(None, retries=(Retry(content="", feedback="f"),)))
    assert said.content == "(empty reply)"


def test_code_that_holds_fences_gets_a_longer_fence():
    """The delimiter never occurs in the code."""
    code = 'text = """\n`````\n```python\n`````\n"""\nprint(text)'
    written = get_format("fenced").compose(thought="", code=code)
    assert written.startswith("``````python\n")
    assert parse(written).source == code


CODE = st.lists(
    st.sampled_from(
        ["x = 1", "print('</code>')", "s = '```'", "t = '''\n```\nOutput:\n'''", "# <think>",
         'u = """\n~~~\n</execute>\n"""', "if x:\n    y = '<execute>'", "%matplotlib inline",
         "await f()", "v = 'é😀\\n'", "!ls", "{'code': 'x'}", "Output: int = 5"]
    ),
    min_size=1, max_size=6,
).map("\n".join).filter(lambda code: code != "# <think>" * (code.count("\n") + 1))  # fmt: skip


@pytest.mark.parametrize("name", WRITES_CODE)
@settings(max_examples=examples(20), deadline=None)
@given(code=CODE, thought=st.sampled_from(["", "Look.", "Two\n\nparts: a, b."]))
def test_what_a_format_composes_it_reads_back_without_loss(name, code, thought):
    """Delimiters inside of the code cut nothing."""
    lines = [line for line in code.splitlines() if not line.startswith("#")]
    if lines:
        composed = get_format(name).compose(thought=thought, code=code)
        assert parse(composed, name) == Code(source=code, thought=thought)


PIECES = [
    "```python\n", "```\n", "```", "~~~\n", "<execute>", "</execute>", "<code>", "</code>",
    "<think>", "</think>", "<thought>", "</thought>", "<solution>", "</solution>", "Output:\n",
    "Observation: 1\n", "User: a\n", "x = 1\n", "print(x)\n", "if x:\n", "'", '"', '"""', "(", "\\",
    "<tool_call>", "</tool_call>", '{"name": "python", "arguments": ', "<function=python>",
    "<parameter=code>", "</parameter>", "</function>", "[", "]",
    "{", "}", '{"code": "', '"}', "{'code': '", ",", ":", "\0", "\ud800", "\r\n", "%x\n", "y?\n",
    "Some words of prose.\n", "  ", "9" * 5000, "[", "null", '"thought": "a", ',
]  # fmt: skip


MIXED = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=20).map("".join)


@pytest.mark.parametrize("name", BUILT)
@settings(max_examples=examples(40), deadline=None)
@given(
    content=MIXED,
    calls=st.lists(st.tuples(st.sampled_from(["python", "f", "final_answer", "", "\0"]), MIXED)),
    reason=st.sampled_from([None, "stop", "length", "tool_calls"]),
)
def test_a_reply_of_any_kind_gives_an_action_or_a_format_error(name, content, calls, reason):
    """Nothing else ever leaves the parser, and what is cut off never runs."""
    native = tuple(ToolCall(id="", name=called, arguments=text) for called, text in calls)
    action = outcome(Reply(content=content, tool_calls=native, finish_reason=reason), name)
    if isinstance(action, FormatError):
        assert action.kind in {"missing", "truncated", "syntax", "malformed"}
        assert 20 < len(action.feedback) < 2000
    else:
        assert reason != "length"
        json.dumps(to_json(action)).encode()
        if isinstance(action, Code):
            assert compile_error(action.source) is None
            assert action.source.strip()
            action.source.encode()


FLOODS = [
    "<think>", "</think>", "```", "```python\n", "{", '{"a":', "<execute>", "(", "Output:\n",
    '{"code":"x"}', " ", "\n", "<execute>\n(\n</execute>\n", "```python\n(\n```\n", "- ", "%x\n",
]  # fmt: skip


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("piece", FLOODS, ids=repr)
def test_a_flood_of_delimiters_is_refused_without_running_anything(name, piece):
    """A model in a loop costs time in proportion to what it wrote."""
    action = outcome(piece * (10_000 // len(piece)), name)
    if isinstance(action, FormatError):
        assert len(action.feedback) < 2000
    elif isinstance(action, Code):
        assert action.source == "x"


def test_a_source_of_blank_lines_is_read_in_no_time() -> None:
    """A model that repeats itself may write line ends only; from each all others were once read."""
    began = time.process_time()
    assert compile_error("x = (\n" + "\n" * 100_000)
    assert time.process_time() - began < 5


def test_guesses_together_cost_no_more_than_two_of_the_longest_cells() -> None:
    trials = Trials()
    longest = "#" * MAX_CODE_CHARS
    assert not trials.affords(MAX_CODE_CHARS + 1)
    for _ in range(2):
        assert trials.affords(len(longest))
        trials.compiles(longest)
    assert not trials.affords(1)


def test_a_literal_is_read_up_to_the_length_of_the_longest_cell() -> None:
    longest = repr("a" * (MAX_CODE_CHARS - 2))
    assert in_python(longest) == longest[1:-1]
    with pytest.raises(ValueError, match="too long"):
        in_python(f"{longest} ")


@pytest.mark.parametrize(("chars", "is_read"), [(60_000, True), (99_000, True), (101_000, False)])
def test_a_cell_with_a_magic_is_read_up_to_100_000_characters(chars, is_read) -> None:
    """IPython's transformer reads the cell again for each magic."""
    source = f"%pip list\nx = '{'a' * (chars - 20)}'"
    assert (compile_error(source) is None) is is_read


def test_code_that_no_cell_can_run_calls_nothing() -> None:
    """Also where its tree could be had."""
    assert makes_a_call("f(x)")
    assert not makes_a_call("return f(x)")
    assert not is_evidently_code("x = f(x)\nreturn x")


def test_after_its_allowance_no_guess_compiles() -> None:
    trials = Trials()
    assert all(trials.compiles("x = 1") for _ in range(200))
    assert not trials.compiles("x = 1")
    assert not Trials().compiles("x = 1\n" * 100_000)
