"""What becomes of a line of ``%agent``: its options, and where the cell can wait."""

import pytest
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager
from kernel_agent_extension.options import HELP, OPTIONS, Request, read_request
from kernel_agent_extension.transform import await_calls, keep_questions


def as_python(cell):
    """Return what a notebook's kernel runs for a cell."""
    manager = TransformerManager()
    manager.cleanup_transforms.append(keep_questions)
    return "".join(await_calls(manager.transform_cell(cell).splitlines(keepends=True)))


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("-i df,sales -o result Go", Request(task="Go", given=("df", "sales"), wanted=("result",))),
        ("--in df -i df -o a,b Go on", Request(task="Go on", given=("df",), wanted=("a", "b"))),
        ("--background --model m Go", Request(task="Go", background=True, settings={"model": "m"})),
        ("--new --continues-not".replace("--continues-not", "Go"), Request(task="Go", new=True)),
        ("--continue Go", Request(task="Go", goes_on=True)),
        ("--max-seconds 1.5 --export a.ipynb --insert Go",
         Request(task="Go", settings={"max_seconds": 1.5}, export="a.ipynb", insert=True)),
        ("  --new   Go", Request(task="Go", new=True)),
        ("Is it x-i or x-o? 3 -5", Request(task="Is it x-i or x-o? 3 -5")),
        ("a -- b -inner -offset", Request(task="a -- b -inner -offset")),
        ("--new -- --sandbox none? $df", Request(task="--sandbox none? $df", new=True)),
        ('Why "--sandbox none" or `-i`?', Request(task='Why "--sandbox none" or `-i`?')),
        ("-5 degrees", Request(task="-5 degrees")),
    ],
)  # fmt: skip
def test_options_and_question_are_told_apart(line, request_):
    """Options come first; a flag takes nothing of what comes after it."""
    assert read_request(line, names={"df"}) == request_


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("How many? --sandbox none", "--sandbox"),
        ("--new How many? --approve=always", "--approve"),
        ("Is x -i or -o?", "-i"),
        ("How many?\n--mcp x", "--mcp"),
        ("How many? --sandbxo none", "--sandbxo"),
        ("How many? --Sandbox none", "--Sandbox"),
        ("What's it --export x and isn't", "--export"),
        ("--new? Go", "--new"),
    ],
)
def test_an_option_behind_the_question_is_neither_read_nor_lost(line, word):
    """The line is refused, and says what to write."""
    with pytest.raises(UsageError, match="put options first") as told:
        read_request(line)
    assert str(told.value).startswith(f"{word} stands in the question")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "line", ["\N{EM DASH}approve always Go", "\N{EN DASH}sandbox none Go", "-model=x Go"]
)
def test_an_option_with_other_dashes_is_not_taken_for_the_question(line):
    """Word processors and mails make one dash of two hyphens."""
    with pytest.raises(UsageError, match=r"is no option as it is written: --\w+ is"):
        read_request(line)


@pytest.mark.parametrize("line", ["Which of $df matter?", "{df}?", "How many are {df.shape[0]}?"])
def test_a_variable_in_the_question_is_not_filled_in_and_the_line_says_so(line):
    """It used to be: a question about the two letters after the dollar would help nobody."""
    with pytest.raises(UsageError, match="pass the variable in with -i df"):
        read_request(line, names={"df"})
    asked = Request(task=line, given=("df",))
    assert read_request(f"-i df {line}", names={"df"}) == asked
    assert read_request(line) == Request(task=line)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("--contineu Go", "Did you mean --continue?"),
        ("-i", "--in needs a value, as in: %agent -i df,prices Which"),
        ("-i --new Go", "--in needs a value"),
        ("-i df, Go", "names of variables"),
        ("-o 1a Go", "names of variables"),
        ("--data -- Go", "--data needs a value"),
        ("--new=yes Go", "--new takes no value"),
        ("--max-seconds soon Go", "number of seconds"),
        ("--max-seconds inf Go", "number of seconds"),
        ("--max-steps 0 Go", "whole number"),
        ("--approve perhaps Go", "one of never, risky, always"),
        ("--new --continue Go", "contradict"),
        ("--insert --background Go", "leave --background out"),
    ],
)
def test_wrong_options_are_one_line_with_what_to_write(line, fault):
    """Never a traceback."""
    with pytest.raises(UsageError, match=fault) as told:
        read_request(line)
    assert "\n" not in str(told.value)


def test_the_help_lists_every_option_within_a_screen():
    """It is shown by ``%agent`` and by ``%agent?``."""
    assert all(f"--{option.name}" in HELP for option in OPTIONS)
    assert max(map(len, HELP.splitlines())) <= 100
    assert "%agent --data PATH TASK           about a file, or a folder of them" in HELP
    assert "--data PATH         a file or folder to ask about; again for more" in HELP
    assert "passed in are there again; with --new they are not" in HELP


@pytest.mark.parametrize(
    "cell",
    [
        "%agent How many?",
        'run = %agent What\'s "it"?',
        "%%agent --model m\nIs it\nso?",
        "for q in 'ab':\n    r[q] = %agent {q}?",
        "with a:\n    %agent x\nif b:\n    %agent y",
        "z = 'ü'; get_ipython().run_line_magic('agent', 'é?')",
    ],
)
def test_a_call_at_the_top_level_of_a_cell_is_awaited(cell):
    """So that the kernel hears the stop button while the cell waits."""
    source = as_python(cell)
    assert source.count("(await get_ipython().run_") == source.count("'agent_awaited'") > 0
    assert "'agent'" not in source
    compile(source, "<cell>", "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize(
    "cell",
    [
        "def f(q):\n    return %agent {q}",
        "class A:\n    x = get_ipython().run_line_magic('agent', 'x')",
        "f = lambda: get_ipython().run_line_magic('agent', 'x')",
        "[get_ipython().run_line_magic('agent', q) for q in 'ab']",
        "%%time\n%agent x",
        "x = 'run_line_magic agent'",
        "this is no Python: run_line_magic('agent'",
    ],
)
def test_what_cannot_be_awaited_stays_as_it_is(cell):
    """There the call blocks until the run has ended."""
    assert "await" not in as_python(cell)
