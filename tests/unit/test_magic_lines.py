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
        ("--in df --in df Go on -o a,b", Request(task="Go on", given=("df",), wanted=("a", "b"))),
        ("--background --model m Go", Request(task="Go", background=True, settings={"model": "m"})),
        ("--new --continues-not".replace("--continues-not", "Go"), Request(task="Go", new=True)),
        ("--continue Go", Request(task="Go", goes_on=True)),
        ("--timeout 1.5 --export a.ipynb --insert Go",
         Request(task="Go", settings={"max_seconds": 1.5}, export="a.ipynb", insert=True)),
        ("Is x -i or x-o? 3 -5", None),
        ("a -- b -inner -offset", Request(task="a -- b -inner -offset")),
    ],
)  # fmt: skip
def test_options_and_question_are_told_apart(line, request_):
    """Wherever they stand; a flag takes nothing of what comes after it."""
    if request_ is None:
        with pytest.raises(UsageError, match="--in needs"):
            read_request(line.replace("or", "--model"))
        return
    assert read_request(line) == request_


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("--contineu Go", "Did you mean --continue?"),
        ("-i", "--in needs a value, as in: %agent -i df,prices Which"),
        ("-i --new Go", "--in needs a value"),
        ("-i df, Go", "names of variables"),
        ("-o 1a Go", "names of variables"),
        ("--timeout soon Go", "number of seconds"),
        ("--timeout inf Go", "number of seconds"),
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
