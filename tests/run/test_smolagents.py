"""The released smolagents package with our kernel as its executor."""

import os
import signal
import subprocess
import sys
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytest.importorskip("smolagents", reason="the package smolagents is not installed")

from smolagents import CodeAgent, Tool
from smolagents.models import ChatMessage, MessageRole, Model

from kernel_agent.adapters.smolagents import CellFailed, KernelExecutor
from kernel_agent.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, and those of what they import


class Replies(Model):
    """A model that plays back cells, in the form that smolagents asks for."""

    def __init__(self, *cells):
        super().__init__(model_id="replies")
        self.cells = list(cells)
        self.seen = []

    def generate(self, messages, **options):
        self.seen.append(str(messages))
        content = f"Thought: go on.\n<code>\n{self.cells.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=content)


class Lookup(Tool):
    name = "lookup"
    description = "Returns the table of prices."
    inputs = {"currency": {"type": "string", "description": "A currency."}}  # noqa: RUF012
    output_type = "object"

    def forward(self, currency):
        if currency == "XXX":
            raise ValueError("no such currency")
        return pd.DataFrame({"price": [1.0, 2.5], "currency": currency})


@pytest.fixture
def executor():
    with KernelExecutor() as made:
        yield made


def agent_with(executor, *cells, **options):
    return CodeAgent(
        tools=[Lookup()], model=Replies(*cells), executor=executor, verbosity_level=0, **options
    )


def test_an_agent_works_step_by_step_and_a_table_is_its_answer(executor):
    agent = agent_with(
        executor,
        "prices = lookup('CHF')\nprint(type(prices).__name__, len(prices))",
        "prices['double'] = prices['price'] * 2\nfinal_answer(prices)",
    )
    answer = agent.run("What do they cost?")
    assert isinstance(answer, pd.DataFrame)
    assert answer["double"].tolist() == [2.0, 5.0]
    assert "DataFrame 2" in agent.model.seen[1]


@pytest.mark.long
def test_pictures_and_arrays_of_the_caller_are_variables_in_the_kernel(executor):
    agent = agent_with(
        executor, "final_answer([photo.size, int(numbers.sum()), numbers.dtype.name])"
    )
    variables = {"photo": Image.new("RGB", (4, 2)), "numbers": np.arange(4, dtype="i2")}
    assert agent.run("Look", additional_args=variables) == [(4, 2), 6, "int16"]


@pytest.mark.long
def test_a_picture_can_be_the_answer_and_figures_are_kept(executor):
    executor("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert executor.images[0].size[0] > 100
    agent = agent_with(
        executor, "from PIL import Image\nfinal_answer(Image.new('RGB', (5, 6), (9, 9, 9)))"
    )
    assert agent.run("Draw").to_raw().size == (5, 6)


@pytest.mark.long
def test_an_error_is_told_to_the_model_and_the_state_lives_on(executor):
    agent = agent_with(
        executor,
        "x = 41\nprint('before')\n1 / 0",
        "try:\n    lookup('XXX')\nexcept ValueError as error:\n    y = str(error)",
        "try:\n    final_answer([x + 1, y])\nexcept Exception:\n    print('swallowed')",
    )
    assert agent.run("Try") == [42, "no such currency"]
    assert "before" in agent.model.seen[1]
    assert "ZeroDivisionError: division by zero" in agent.model.seen[1]


@pytest.mark.long
def test_a_second_agent_as_a_tool_runs_in_a_kernel_of_its_own():
    with KernelExecutor() as outer, KernelExecutor() as inner:
        helper = CodeAgent(
            tools=[], model=Replies("secret = 1\nfinal_answer('from the helper')"),
            executor=inner, name="helper", description="Helps.", verbosity_level=0,
        )  # fmt: skip
        agent = CodeAgent(
            tools=[], model=Replies("final_answer([helper('please'), 'secret' in globals()])"),
            executor=outer, managed_agents=[helper], verbosity_level=0,
        )  # fmt: skip
        told, leaked = agent.run("Ask the helper")
    assert "from the helper" in told
    assert leaked is False


def test_the_last_expression_is_the_output_and_what_cannot_be_sent_is_said(executor):
    executor.send_tools({"final_answer": lambda answer: answer})
    assert executor("6 * 7").output == "42"
    assert executor("x = 1").output == "1", "what is assigned last, as smolagents' own executor"
    assert executor("for x in (): pass").output is None
    with pytest.raises(CellFailed, match="a generator cannot be sent"):
        executor("final_answer(i for i in ())")


def test_a_lost_kernel_is_said_and_the_next_cell_has_tools_and_variables_again(executor):
    executor.send_variables({"given": [1, 2]})
    executor.send_tools({"final_answer": lambda answer: answer, "lookup": Lookup()})
    with pytest.raises(CellFailed, match="variables that the code made are gone"):
        executor("import os; os._exit(1)")
    assert executor("len(lookup('EUR')), given").output == "(2, [1, 2])"


@pytest.mark.long
def test_what_fails_is_told_in_the_words_of_the_agent(executor):
    executor.send_tools({"numbers": lambda n: iter(range(n)), "lookup": Lookup()})
    with pytest.raises(CellFailed) as told:
        executor("numbers(3)")
    _cell, line, message = str(told.value).splitlines()
    assert line.strip() == "numbers(3)"
    assert message.startswith("TypeError: the result of numbers cannot be sent: a range_iterator")
    with pytest.raises(UsageError, match="the variable model cannot be sent: a object"):
        executor.send_variables({"model": object()})


@pytest.mark.long
def test_the_tools_of_a_run_are_those_that_were_sent_last(executor):
    executor.send_tools({"old": lambda: 1, "both": lambda: 2})
    executor.send_tools({"both": lambda: 3, "new": lambda: 4})
    assert executor("both() + new()").output == "7"
    with pytest.raises(CellFailed, match="'old' is not defined"):
        executor("old()")


@pytest.mark.long
def test_a_tool_works_in_the_context_of_the_step_that_calls_it(executor):
    span = ContextVar("span", default="none")
    executor.send_tools({"current": span.get})
    span.set("the step's")
    assert executor("current()").output == '"the step\'s"'


@pytest.mark.long
def test_what_is_displayed_is_in_the_logs_and_long_logs_say_that_they_were_cut():
    with KernelExecutor(max_logs=100) as executor:
        assert "2    b" in executor("import pandas as pd\ndisplay(pd.Series(list('aab')))").logs
        logs = executor("for n in range(1000): print(n)").logs
    assert logs.startswith("0\n1\n")
    assert logs.endswith("998\n999\n")
    assert "content has been truncated" in logs


def test_an_executor_serves_one_agent_at_a_time_and_none_after_its_end(executor):
    def make(cell, **options):
        return CodeAgent(
            tools=[], model=Replies(*cell), executor=executor, verbosity_level=0, **options
        )

    helper = make([], name="helper", description="Helps.")
    agent = make(
        ["try:\n    helper('please')\nexcept Exception as error:\n    final_answer(str(error))"],
        managed_agents=[helper],
    )
    assert "a KernelExecutor of its own" in agent.run("Ask the helper")
    agent.cleanup()
    with pytest.raises(UsageError, match="cleaned up"):
        agent.run("Again")


def test_the_interrupt_of_a_person_ends_the_run_and_not_only_the_cell(executor):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    executor.send_tools({"interrupt": interrupt})
    with pytest.raises(KeyboardInterrupt):
        executor("interrupt()\nimport time; time.sleep(60)")
    assert executor("1 + 1").output == "2"


def test_a_program_that_ends_without_cleaning_up_leaves_no_folder():
    program = """
from kernel_agent.adapters.smolagents import KernelExecutor
print(KernelExecutor()("import os; os.getcwd()").output.strip("'"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert not Path(done.stdout.strip()).exists()


@pytest.mark.long
def test_a_cell_that_takes_too_long_is_interrupted():
    with KernelExecutor(cell_seconds=0.5) as executor:
        with pytest.raises(CellFailed, match="took longer than it may"):
            executor("import time; time.sleep(60)")
        assert executor("1 + 1").output == "2"


def test_data_files_and_the_folder_are_where_they_should_be(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    with KernelExecutor(data=[tmp_path / "a.csv"], out=tmp_path / "work") as executor:
        executor("open('made.txt', 'w').write(open('data/a.csv').read())")
    assert (tmp_path / "work" / "made.txt").read_text() == "n\n1\n"


def test_nothing_is_left_when_it_ends(executor):
    folder = Path(executor("import os; os.getcwd()").output.strip("'"))
    kernel = executor._session._kernel
    assert kernel is not None
    assert kernel.pid is not None  # the host's number, not the sandbox's
    pid = kernel.pid
    executor.cleanup()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
