"""The fenced format against what real models write."""

from __future__ import annotations

import json

import pytest

from kernel_agent.errors import FormatError
from kernel_agent.formats import parse
from kernel_agent.formats.reading.source import compile_error
from kernel_agent.records.conversation import Reply, ToolCall


def kind(reply, name="fenced"):
    with pytest.raises(FormatError) as raised:
        parse(reply, name)
    return raised.value.kind


READABLE = [
    ("plain", "Hi.\n```python\nx = 1\n```", "x = 1"),
    ("capital", "```Python\nx = 1\n```", "x = 1"),
    ("py", "```py\nx = 1\n```", "x = 1"),
    ("python3", "```python3\nx = 1\n```", "x = 1"),
    ("braces", "```{python}\nx = 1\n```", "x = 1"),
    ("info", '```python title="a.py"\nx = 1\n```', "x = 1"),
    ("tildes", "~~~\nprint(1)\n~~~", "print(1)"),
    ("no language", "```\nprint(1)\n```", "print(1)"),
    ("longer fence", '````python\ns = """\n```\n"""\n````', 's = """\n```\n"""'),
    ("indented", "- do:\n   ```python\n   if x:\n       y = 2\n   ```", "if x:\n    y = 2"),
    ("after text", "Here: ```python\nprint(x)\n```", "print(x)"),
    ("one line", "```python print(1)```", "print(1)"),
    ("closed after code", "```python\nprint(x)```", "print(x)"),
    ("windows", "```python\r\nx = 1\r\ny = 2\r\n```", "x = 1\ny = 2"),
    ("execute", '<execute> print("a") </execute>', 'print("a")'),
    ("upper case", "<EXECUTE>\nx = 1\n</EXECUTE>", "x = 1"),
    ("code tag", "<code>\nx = 1\n</code>", "x = 1"),
    ("attribute", '<code class="python">\nx = 1\n</code>', "x = 1"),
    ("python tag", "<python>x = 1</python>", "x = 1"),
    ("fence in tag", "<execute>\n```python\nx = 1\n```\n</execute>", "x = 1"),
    ("fence in open tag", "<execute>\n```python\nx = 1\n```\n", "x = 1"),
    ("tag in fence", "```python\n<execute>\nx = 1\n</execute>\n```", "x = 1"),
    ("closer begun", "<execute>\nx = 1\n</execu", "x = 1"),
    ("closer just begun", "<execute>\nx = 1\n</e", "x = 1"),
    ("other closer", "<execute>\nx = 1\n</code>", "x = 1"),
    ("magic", "```python\n%pip list\n!ls\ndf?\n```", "%pip list\n!ls\ndf?"),
    ("await", "```python\nawait f()\n```", "await f()"),
    ("bare", "import os\nprint(os.name)", "import os\nprint(os.name)"),
    ("bare after a role", "Assistant:\nx = f(1)\nx", "x = f(1)\nx"),
    ("bare before a turn", "print(1)\nOutput:\n1", "print(1)"),
    ("bare with comments", "f(1)\n# Output: 1\nf(2)", "f(1)\n# Output: 1\nf(2)"),
    ("bare after a thought", "<thought>Go.</thought>\nprint(1)", "print(1)"),
    ("solution", "<solution>\n```python\nf()\n```\n</solution>", "f()"),
    ("prompts", "```python\n>>> if x:\n...     g(x)\n7\n```", "if x:\n    g(x)"),
    ("language on its own line", "```\npython\nx = f(1)\n```", "x = f(1)"),
    ("bare after the language", "Python\nx = f(1)", "x = f(1)"),
    ("end of turn", "```python\nx = 1\n```<|im_end|>", "x = 1"),
    ("end of turn for a closer", "<execute>\nx = 1\n<|eot_id|>", "x = 1"),
    ("bare before an end of turn", "x = f(1)<|im_end|>", "x = f(1)"),
    ("Llama's token", "Go.\n<|python_tag|>x = 1<|eom_id|>", "x = 1"),
    ("Harmony's tool", "<|channel|>analysis to=python code<|message|>x = 1<|call|>", "x = 1"),
    ("interpreter tag", "<code_interpreter>\nx = 1\n</code_interpreter>", "x = 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "source"), [r[1:] for r in READABLE], ids=[r[0] for r in READABLE]
)
def test_a_form_that_models_write_is_read(text, source):
    """Each of these was seen in recorded turns or in reports about peers."""
    assert parse(text).source == source


CHOICES = [
    (
        "the last block corrects the first",
        "```python\na()\n```\nBetter:\n```python\nb()\n```",
        "b()",
    ),
    (
        "an observation ends the reply",
        "```python\na()\n```\nObservation: 3\n```python\nb()\n```",
        "a()",
    ),
    (
        "a bold output ends it",
        "<execute>a()</execute>\n**Output:**\n3\n<execute>b()</execute>",
        "a()",
    ),
    ("a role ends it", "```python\na()\n```\nUser: go on\n```python\nb()\n```", "a()"),
    (
        "an unclosed block ends at it",
        "<execute>\na()\n\nOutput:\n5\n\n<execute>\nb()\n</execute>",
        "a()",
    ),
    ("output in a fence", "```python\na()\nOutput:\n```\n5\n```", "a()"),
    ("expected output is not code", "```python\na()\n```\nIt prints:\n```\nx = 5\n```", "a()"),
    ("other languages are not code", "```python\na()\n```\n```bash\nls\n```", "a()"),
    ("a word in code style is not code", "```python\na()\n```\nThe <code>mean</code> is", "a()"),
    (
        "a solution is not code",
        "<execute>a()</execute><solution>\n```python\nb()\n```\n</solution>",
        "a()",
    ),
    ("a mention is not a block", "I use the <execute> tag.\n<execute>\na()\n</execute>", "a()"),
    ("a shown form is not a block", "```python\na()\n```\nAs in <execute>...</execute>.", "a()"),
    (
        "a formula at the start of a line is code, whatever stands before",
        f"{'So. ' * 80}\n<code>x = f</code>",
        "x = f",
    ),
    ("a call in code style is", "I run <code>print(a)</code>.", "print(a)"),
    ("a quoted tag is not a block", "Use `<execute>`.\n```python\na()\n```", "a()"),
    ("a fence in a sentence", "Use the ```python``` tag:\n```python\na()\n```", "a()"),
    (
        "a draft in a thought",
        "<thought><execute>b()</execute></thought><execute>a()</execute>",
        "a()",
    ),
    (
        "an output fence ends it",
        "```python\na()\n```\n```output\n3\n```\n```python\nb()\n```",
        "a()",
    ),
    ("a bold title ends it", "```python\na()\n```\n**Output**\n3\n```python\nb()\n```", "a()"),
    ("a heading ends it", "```python\na()\n```\n## Observation\n3\n```python\nb()\n```", "a()"),
    (
        "a numbered output ends it",
        "```python\na()\n```\nStep 1 Output: 3\n```python\nb()\n```",
        "a()",
    ),
    (
        "a tag of results ends it",
        "```python\na()\n```\n<function_results>3</function_results>\n```python\nb()\n```",
        "a()",
    ),
    (
        "another language's output ends it",
        "```python\na()\n```\n\u89c2\u5bdf\uff1a3\n```python\nb()\n```",
        "a()",
    ),
    (
        "a template's turn ends it",
        "```python\na()\n```<|im_end|>\n<|im_start|>user\n3<|im_end|>\n```python\nb()\n```",
        "a()",
    ),
    (
        "a template's result ends it",
        "```python\na()\n```\n[TOOL_RESULTS]3\n```python\nb()\n```",
        "a()",
    ),
    ("an output fence without code ends nothing", "```output\n3\n```\n```python\na()\n```", "a()"),
    (
        "what an invented turn thinks belongs to it",
        "```python\na()\n```\nOutput: 3\n<think>So:</think>\n```python\nb()\n```",
        "a()",
    ),
    (
        "an invented turn may break off in a thought",
        "```python\na()\n```\nOutput: 3\n<think>So",
        "a()",
    ),
    ("bare code before a thought that never closes", "x = f(1)\n<think>\nOr x = f(2)", "x = f(1)"),
    ("an unclosed thought hides nothing", "<thought> Go.\n<execute>\na()\n</execute>", "a()"),
]


@pytest.mark.parametrize(("text", "source"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES])
def test_exactly_one_block_is_chosen_by_rule(text, source):
    """Never the first of two, never several joined, never what follows an invented turn."""
    assert parse(text).source == source


@pytest.mark.parametrize(
    "text",
    [
        "<think>```python\nbad()\n```</think>\n```python\ngood()\n```",
        "<think>I could ```python\nbad()\n``` or so </think>\n```python\ngood()\n```",
        "<THINK>\n<execute>bad()</execute>\n</THINK>\n<execute>good()</execute>",
        "Try ```python\nbad()\n```\nno\n</think>\n```python\ngood()\n```",
        "Try\n```python\nbad(\n</think>\n```python\ngood()\n```",
        "[THINK]```python\nbad()\n```[/THINK]```python\ngood()\n```",
        "```python\ngood()\n```\n<think>\n```python\nbad()\n```",
        "```python\ngood()\n```\n<think>bad()</think>\nThat is all.",
        "```python\nbad()\n```\nOutput:\n5\n\nUser: no\n</think>\n```python\ngood()\n```",
        "<thinking><think>bad()</think></thinking>\n```python\ngood()\n```",
    ],
)
def test_nothing_inside_reasoning_is_run_or_shown(text):
    """Closed, unclosed and headless reasoning alike."""
    action = parse(text)
    assert action.source == "good()"
    assert "bad" not in action.thought


REASONING = [
    ("<seed:think>", "</seed:think>"),
    ("<antThinking>", "</antThinking>"),
    ("<reasoning_content>", "</reasoning_content>"),
    ("<inner_monologue>", "</inner_monologue>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|think|>", "<|/think|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<unused94>thought\n", "<unused95>"),
    ("<|channel>thought\n", "<channel|>"),
    (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    ("analysis", "assistantfinal"),
    ("analysis", "assistantfinalSo: "),
]  # fmt: skip


@pytest.mark.parametrize(("opening", "closing"), REASONING)
@pytest.mark.parametrize(
    "draft",
    [
        "```python\nbad()\n```",
        '{"name": "python", "arguments": {"code": "bad()"}}',
        '{"thought": "", "code": "bad()"}',
        "<function=python><parameter=code>bad()</parameter></function>",
    ],
)
@pytest.mark.parametrize("name", ["fenced", "envelope", "tool", "json"])
def test_reasoning_in_the_marks_of_any_family_is_hidden_in_every_format(
    opening, closing, draft, name
):
    """A server that does not know the model's template passes its reasoning on as text."""
    drafted = f"{opening}Perhaps\n{draft}\nor not.{closing}"
    assert kind(f"{drafted}\nWhich column do you mean?", name) == "missing"
    if name != "json":
        action = parse(f"{drafted}\n```python\ngood()\n```", name)
        assert action.source == "good()"
        assert "bad" not in action.thought


@pytest.mark.parametrize("name", ["fenced", "envelope", "tool", "json"])
@pytest.mark.parametrize("tag", ["</code>", "</execute>", "</thought>", "</tool_call>", "<think>"])
def test_only_its_own_end_ends_reasoning(tag, name):
    """Any other tag in it is spoken about; what follows it is a draft, whole or cut short."""
    for draft in ('{"thought": "", "code": "bad()"}', '{"thought": "", "code": "bad('):
        text = f"<think>Perhaps {tag} and then\n{draft}"
        assert kind(text, name) == "missing"
        if name != "json":
            good = "```python\ngood()\n```"
            assert parse(f"{text}\nor not.</think>\n{good}", name).source == "good()"


@pytest.mark.parametrize("name", ["fenced", "envelope", "tool"])
def test_a_call_written_as_tags_hides_what_its_code_holds(name):
    """A fence or an object in a string of the code is no action."""
    for held in ("```python\nbad()\n```", '{"code": "bad()"}', "<think>bad()</think>"):
        code = f'text = """\n{held}\n"""'
        text = f"<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>"
        if name == "tool":
            assert parse(text, name).source == code
        else:
            assert kind(text, name) == "missing"


@pytest.mark.parametrize(
    "text", ["<think>\n```python\nbad()\n```", "```python\nbad()\n```</think>"]
)
def test_a_reply_of_reasoning_only_has_no_action(text):
    """A draft is not an action, even when nothing else is there."""
    assert kind(text) == "missing"


@pytest.mark.parametrize(
    "code",
    [
        'print("</code> ``` </execute>")',
        'text = """\n```\n```python\nx\n```\n"""',
        's = """\nObservation: 1\nOutput:\nUser: a\n"""',
        're.sub("<think>.*?</think>", "", text)',
        "x = 1  # the </execute> tag\ny = 2",
        "a = 1\n\n\n\nb = '   '\n",
        'm = """\n   \n  indented\n"""',
    ],
)
@pytest.mark.parametrize(
    ("opening", "closing"),
    [("```python", "```"), ("<execute>", "</execute>"), ("<code>", "</code>")],
)
def test_delimiters_inside_of_literals_cut_nothing(code, opening, closing):
    """The code that was written is the code that is run."""
    assert parse(f"Go.\n{opening}\n{code}\n{closing}\nDone.").source == code.strip()


@pytest.mark.parametrize(("fences", "is_read"), [(7, True), (8, False)])
def test_of_a_block_eight_ends_are_tried(fences, is_read):
    """So that a reply of fences alone costs no more than others."""
    code = 's = """' + "\n```" * fences + '\n"""'
    text = f"Go.\n```python\n{code}\n```\nDone."
    if is_read:
        assert parse(text).source == code
    else:
        assert kind(text) == "syntax"


# --- truncated -----------------------------------------------------------------------------

CUT = [
    "```python\nx = 1",
    "```python\nx = (",
    "<execute>\ntotal += g",
    "```python",
    "```python\nfinal_answer(good())\n```\nBetter:\n```python\nfinal_answer(better())",
    "<solution>\n```python\na()\n```\n</solution>\n```python\nb()",
    "```\na()\n```\n```python\nb()",
    "<think>\n```python\na()\n```\n</think>\n```python\nb()",
    "<execute>\nx = f(1)\n\na and b o",
    "I write <execute>\nx = (",
    "<execute>\nx = f(1) # see <code>",
    "```python\nx = f(1) # </answer> more",
    "<execute>\nx = 1 # </",
    "<execute>\nfrom typing impor",
    '<execute>\ns = """\n```python\nbad()\n```\n',
]


@pytest.mark.parametrize("text", CUT)
def test_a_block_that_never_closes_is_not_run(text):
    """Nor an answer, a draft or a guess in its place. A string has no word on how it ended."""
    assert kind(text) == "truncated"


@pytest.mark.parametrize("cut", ["```python\na()\nb", "<execute>\nc(1,", "```python\n"])
@pytest.mark.parametrize("reason", [None, "content_filter"])
def test_the_complete_block_before_one_that_never_closes_is_the_action(cut, reason):
    """What was cut repeats it or goes on from it; the model sees its output and writes on."""
    text = f"First.\n```python\na()\n```\nThen.\n<execute>\nb()\n</execute>\nAgain.\n{cut}"
    action = parse(Reply(content=text, finish_reason=reason))
    assert action.source == "b()"
    assert action.thought == "First.\n\nThen."


def test_code_that_was_found_and_not_run_is_told_with_the_error():
    """Extracted and run are different things."""
    for text in ("<execute>\ntotal += g", "```python\ntotal += g +\n```"):
        with pytest.raises(FormatError) as raised:
            parse(text)
        assert raised.value.code.startswith("total += g")


@pytest.mark.parametrize(
    "text", ["```python\nx = 1\n```", "x = f(1)", "<execute>x = 1</execute>", *CUT, ""]
)
@pytest.mark.parametrize("name", ["fenced", "envelope"])
def test_a_reply_that_the_endpoint_cut_off_is_never_run(text, name):
    """Whatever is left of it may compile by accident."""
    assert kind(Reply(content=text, finish_reason="length"), name) == "truncated"


def test_an_open_block_is_read_when_the_model_stopped_by_itself():
    """The endpoint's word settles it, and only for code that compiles."""
    assert parse(Reply(content="```python\nx = 1", finish_reason="stop")).source == "x = 1"
    assert kind(Reply(content="```python\nx = (", finish_reason="stop")) == "truncated"
    assert kind(Reply(content="```python\nx = 1", finish_reason="content_filter")) == "truncated"


@pytest.mark.parametrize(
    "after",
    [
        "\nThis code computes the mean of x.\n",
        "\nLet's look at the result of it now.",
        "\nNow we wait.\n",
        "\nA table of means follows.\n",
        "<thought>done</thought>",
        "<solution>3</solution>",
        "Observation:\n3\n",
    ],
)
def test_prose_after_an_unclosed_tag_shows_that_the_code_was_finished(after):
    """The code before it is taken, the prose is not."""
    assert parse(f"Go.\n<execute>\nx = f(1)\n{after}").source == "x = f(1)"


# --- no code, wrong code -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "Done", "yes", "42", "3.5", "(1, 2)", "Mean: 5", "pass", "{'a': 1}",
     "Which column do you mean?", "The answer is 4.", "<solution>42</solution>",
     "<solution>\ndef f():\n    return 1\n</solution>", "```\nDone\n```", "```\n5\n```",
     "```json\n{}\n```", "```bash\nls\n```", "```text\nx = 1\n```", "```python\n```",
     "```python\n# later\n```", "use the ```python``` tag", "<thought>print(1)</thought>",
     "<solution>\nprint(1)", "<thought>Done.</thought>\n<solution>\nx = f(1)\nx",
     "Write it between <execute>...</execute>.", "```python\n...\n```", "<execute>\n…\n</execute>",
     "It is <code>E = m * c ** 2</code>.", "Take <code>a / b</code> of it."],
)  # fmt: skip
def test_a_reply_without_code_is_missing_its_action(text):
    """Prose, answers, output and comments are not run, whether they compile or not."""
    assert kind(text) == "missing"


@pytest.mark.parametrize(
    "code",
    ["df?", "df??", "?df", "??df", "? df", "df.mean??", "np.a*?", "rows[0].name?", "%timeit?",
     "!ls", "!!ls", "! echo why?", "x = !ls", "%timeit x", "%%time\nx = 1", "if x:\n    !ls",
     's = """\nIs it?\n"""\n!ls', "x = 1\nx?"],
)  # fmt: skip
def test_help_is_for_a_name_and_a_command_says_what_it_runs(code):
    """IPython's own syntax is code."""
    assert parse(f"```python\n{code}\n```").source == code


@pytest.mark.parametrize(
    "prose",
    ["Is 17 a prime number?", "is 17%20prime? true?", "What? Yes?", "? what is it", "!", "?", "??",
     "!!", "%", "!?", "x = 1\nIs it so?", "a?b?"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["fenced", "envelope", "tool"])
def test_a_question_mark_makes_no_help_of_prose(prose, name):
    """IPython takes the last word of any line that ends in one for a name."""
    written = {"fenced": f"```python\n{prose}\n```", "envelope": json.dumps({"code": prose})}
    call = ToolCall(id="1", name="python", arguments=json.dumps({"code": prose}))
    calls = (call,) if name == "tool" else ()
    reply = Reply(content=written.get(name, ""), tool_calls=calls)
    assert kind(reply, name) == "syntax"


def test_the_feedback_for_missing_code_shows_the_format_and_how_to_answer():
    """What the model is told is enough to write the reply again."""
    with pytest.raises(FormatError) as raised:
        parse("The answer is 4.")
    assert "```python\n" in raised.value.feedback
    assert "final_answer(value)" in raised.value.feedback
    with pytest.raises(FormatError, match="no code") as raised:
        parse("```bash\nls\n```")
    assert "tagged bash" in raised.value.feedback


def test_a_syntax_error_is_shown_with_line_text_and_caret():
    """The model can correct it without running anything."""
    with pytest.raises(FormatError) as raised:
        parse("```python\nx = 1\nprint(x y)\n```")
    assert raised.value.kind == "syntax"
    assert "(line 2)\n    print(x y)\n          ^" in raised.value.feedback


@pytest.mark.parametrize(
    "code",
    ["x = (", "return 5", "print 'a'", "x\0", "x = 9" * 3, "x = " + "9" * 5000, "(" * 5000,
     "-" * 200_000 + "1", "+".join(["1"] * 190_000), "x" + ".a" * 190_000, '"' * 9999,
     "%magic\nx = (", "x = 1\n   y = 2", "x" * 300 + " y"],
    ids=lambda code: code[:12],
)  # fmt: skip
def test_source_that_breaks_the_compiler_is_a_syntax_error(code):
    """Null bytes, huge numbers and deep nesting are the model's fault, not a crash."""
    with pytest.raises(FormatError) as raised:
        parse(f"```python\n{code}\n```")
    assert raised.value.kind == "syntax"
    assert len(raised.value.feedback) < 1000


@pytest.mark.parametrize(
    "code", ["-" * 200_000 + "1", "x" + ".a" * 190_000], ids=["memory", "recursion"]
)
def test_what_the_compiler_raised_is_told_in_its_words_and_if_it_has_none_in_ours(code):
    error = compile_error(code)
    why = str(error) or "the compiler gave up on this source"
    with pytest.raises(FormatError) as raised:
        parse(f"```python\n{code}\n```")
    assert f"{type(error).__name__}: {why}" in raised.value.feedback


def test_a_broken_last_block_is_no_reason_to_run_an_earlier_one():
    """The correction was meant to replace the draft."""
    assert kind("```python\na()\n```\nBetter:\n```python\nb(\n```") == "syntax"
    assert kind("<execute>\na()\n# Output: 5\nb(\n</execute>") == "syntax"


def test_code_that_is_far_too_long_is_not_compiled():
    """A cell of half a megabyte is a mistake; the model is told the limit."""
    with pytest.raises(FormatError, match="too long") as raised:
        parse("```python\n" + "x = 1\n" * 80_000 + "```")
    assert "400,000" in raised.value.feedback


def test_the_thought_is_what_the_reader_sees_before_the_code():
    """Without reasoning, superseded drafts, labels and tags; lines and paragraphs stay."""
    text = (
        "<think>hm</think>Assistant: <thought>First\nlook.</thought>\n\n```python\na()\n```\n"
        "No.\n\n```text\nkept\n```\n```python\nb()\n```\nafter"
    )
    assert parse(text).thought == "First\nlook.\n\nNo.\n\n```text\nkept\n```"


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("Now.<thought>Or <execute>b()</execute>?</thought>\n<execute>a()</execute>", "Now.Or ?"),
        ("First:\n```\nf()\n```\nThen:\n```\na()\n```", "First:\n\nThen:"),
        ("<execute>b()</execute>\nNo:\n<execute>a()</execute>", "No:"),
        ("<execute>b(</execute><execute>a()</execute>", ""),
    ],
)
def test_no_code_that_was_not_chosen_is_left_in_the_thought(text, thought):
    """Neither an earlier block with its delimiters nor a draft."""
    action = parse(text)
    assert (action.source, action.thought) == ("a()", thought)


@pytest.mark.parametrize("before", ["", "Observation: 1\n", "```bash\nls\n```\n"])
def test_a_broken_block_of_two_delimiters_is_shown_without_either(before):
    """The model is told about its code, not about its tags."""
    with pytest.raises(FormatError) as raised:
        parse(f"{before}<execute>\n```python\nx = (\n```\n</execute>")
    assert (raised.value.kind, raised.value.code) == ("syntax", "x = (")


def test_an_empty_block_whose_closing_tag_was_cut_short_is_empty_and_not_cut_off():
    """The tag was begun, so there was nothing more to come."""
    assert kind("<execute></exec") == "missing"


def test_a_tag_that_is_spoken_about_opens_no_block():
    """A sentence goes on after it, and what follows is no code."""
    assert kind("I write <execute> and then\nx = (") == "missing"
    assert kind("I write <execute> and then nothing.") == "missing"


def test_a_fence_that_names_its_language_closes_no_other():
    """Such a line opens a block; the code before it was never closed, and is not run without."""
    assert kind("```python\na()\n```python\nb()\n```") == "syntax"


def blocks(*sources):
    return "\n\n".join(f"Then:\n```python\n{source}\n```" for source in sources)


LOAD = "import pandas as pd\ndf = pd.read_csv('a.csv')"


@pytest.mark.parametrize(
    ("sources", "run"),
    [
        ((LOAD, "df.head()"), 2),
        ((LOAD, "x = 1", "print(df)"), 3),
        (("def half(n):\n    return n / 2", "print([half(n) for n in range(3)])"), 2),
        ((LOAD, "def mean():\n    return df.a.mean()\nprint(mean())"), 2),
        ((LOAD, "import pandas as pd\ndf = pd.read_csv('b.csv')\ndf.head()"), 1),  # corrects it
        ((LOAD, "print(len(other))"), 1),
        (("x = 1", "x = 2\nprint(x)"), 1),
        (("print = 1", "len([1])"), 1),
        (("n = 1", "def two():\n    n = 2\n    return n\nprint(two())"), 1),  # its own n
    ],
)
def test_fences_run_together_where_the_last_needs_the_earlier_ones(sources, run):
    assert parse(blocks(*sources)).source == "\n\n".join(sources[-run:])


def test_between_tags_each_block_is_an_attempt_and_the_last_one_runs():
    text = "<execute>\nx = 1\n</execute>\nBetter:\n<execute>\nprint(x)\n</execute>"
    assert parse(text).source == "print(x)"


def left_out(text, **fields):
    return parse(Reply(content=text, **fields)).left_out


def test_blocks_that_did_not_run_are_named_by_how_they_begin():
    assert left_out(blocks("x = 1", "x = 2\nprint(x)")) == (
        'Not run of your reply: the block that begins "x = 1". '
        "One block runs: write again what is still needed."
    )
    several = left_out(blocks(*(f"x = {n}\nf(x)" for n in range(6))))
    assert 'begins "x = 2"; the block that begins "x = 3"; the block that begins "x = 4"' in several
    assert "; 2 before them." in several


def test_a_block_that_was_cut_off_is_named_unless_it_repeats_what_ran():
    ran = blocks("total = 1\nprint(total)")
    assert 'begins "mean = 2", which was cut off' in left_out(
        f"{ran}\nThen:\n```python\nmean = 2\npri"
    )
    assert left_out(f"{ran}\nAgain:\n```python\ntotal = 1\npri") == ""


@pytest.mark.parametrize(
    "sources", [("x = 1", "print(x)"), ("x = 1", "x = 1\nprint(x)"), ("x = 1", "x = 1"), ("f()",)]
)
def test_nothing_is_named_where_all_code_ran(sources):
    assert left_out(blocks(*sources)) == ""
