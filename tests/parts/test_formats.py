"""What every format promises: names, prompts, history, and a round trip that loses nothing."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_agent.errors import FormatError, UsageError
from kernel_agent.formats import FORMATS, get_format, parse
from kernel_agent.records import Code, Image, Observation, Reply, Retry, Step

BUILT = ("fenced", "envelope")


def outcome(reply, name):
    try:
        return parse(reply, name)
    except FormatError as error:
        return error


def step(action, *, text="it ran", retries=(), images=()):
    observation = Observation(text=text, images=images)
    return Step(run_id="r", number=7, action=action, observation=observation, retries=retries)


def test_auto_is_the_fenced_format():
    """The default name leads to the format that every model can write."""
    assert get_format("auto").name == get_format().name == "fenced"
    assert [get_format(name).name for name in BUILT] == list(BUILT)


@pytest.mark.parametrize("name", ["tool", "json"])
def test_a_format_of_the_contract_that_is_not_built_says_so(name):
    """The name is known; the message says that it is not there yet and what is."""
    with pytest.raises(UsageError, match=r"not built yet.*fenced, envelope"):
        get_format(name)


def test_an_unknown_format_lists_the_known_ones():
    """A typing error is answered with the names that exist."""
    with pytest.raises(UsageError, match=", ".join(FORMATS)):
        parse("x", format="yaml")


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


@pytest.mark.parametrize("name", BUILT)
def test_every_example_of_a_prompt_is_read_back_and_compiles(name):
    """A model is shown only what its format can read, and the code is valid Python."""
    prompt = get_format(name).system_prompt()
    examples = re.findall(r"^```\w+\n.*?^```$", prompt, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        source = parse(example, name).source
        compile(source, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert "final_answer(" in source


@pytest.mark.parametrize("name", BUILT)
def test_a_prompt_is_stable_and_has_tools_only_when_there_are_any(name):
    """The same arguments give the same bytes; tool stubs come last."""
    plain = get_format(name).system_prompt()
    stubs = "def lookup(name: str) -> int: ..."
    assert plain == get_format(name).system_prompt(tools=" ")
    assert "## Tools" not in plain
    with_tools = get_format(name).system_prompt(tools=stubs)
    assert with_tools.startswith(plain)
    assert with_tools.endswith(stubs)


@pytest.mark.parametrize("name", BUILT)
def test_a_prompt_says_what_the_kernel_is(name):
    """The facts that a model cannot guess are in every prompt."""
    prompt = get_format(name).system_prompt()
    for fact in ("final_answer(value)", "outputs[k]", "no network", "input()", "working directory"):
        assert fact in prompt


def test_only_the_envelope_asks_the_endpoint_for_something():
    """Plain text needs no option; the envelope sends a strict schema with both fields."""
    assert get_format("fenced").options().response_format is None
    asked = get_format("envelope").options().response_format
    assert asked["json_schema"]["strict"] is True
    assert asked["json_schema"]["schema"]["required"] == ["thought", "code"]
    assert json.loads(json.dumps(asked)) == asked


# --- history -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT)
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


@pytest.mark.parametrize("name", BUILT)
@settings(max_examples=20, deadline=None)
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
    "{", "}", '{"code": "', '"}', "{'code': '", ",", ":", "\0", "\ud800", "\r\n", "%x\n", "y?\n",
    "Some words of prose.\n", "  ", "9" * 5000, "[", "null", '"thought": "a", ',
]  # fmt: skip


@pytest.mark.parametrize("name", BUILT)
@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=20),
    reason=st.sampled_from([None, "stop", "length"]),
)
def test_a_reply_of_any_kind_gives_code_that_compiles_or_a_format_error(name, pieces, reason):
    """Nothing else ever leaves the parser, and what is cut off never runs."""
    action = outcome(Reply(content="".join(pieces), finish_reason=reason), name)
    if isinstance(action, FormatError):
        assert action.kind in {"missing", "truncated", "syntax", "malformed"}
        assert 20 < len(action.feedback) < 2000
    else:
        assert reason != "length"
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
    action = outcome(piece * (30_000 // len(piece)), name)
    if isinstance(action, FormatError):
        assert len(action.feedback) < 2000
    else:
        assert action.source == "x"
