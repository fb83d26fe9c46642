"""Suites: checkouts of the layout that their authors publish, and packages where installed."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from benchmarks.oracle import measure
from benchmarks.suites import cells_of, open_bench, read_suite
from benchmarks.suites.dseval import compare
from benchmarks.suites.m3tooleval import arithmetic
from benchmarks.suites.runs import offered_tools, play
from kernel_agent.errors import UsageError
from kernel_agent.evaluation.runs import carry_out
from kernel_agent.evaluation.specs import Arm, RunSpec
from kernel_agent.evaluation.tasks import sample
from kernel_agent.records.cell import Answer


def said(text, answer=None):
    return [SimpleNamespace(text=text, answer=text if answer is None else answer)]


# --- DABench ---------------------------------------------------------------------------------


def dabench(folder):
    tables = folder / "examples" / "DA-Agent" / "data" / "da-dev-tables"
    tables.mkdir(parents=True)
    (tables / "t.csv").write_text("a\n1\n")
    form = "@mean[value], @kind[name]"
    common = {
        "question": "Mean?",
        "constraints": "Two digits.",
        "format": form,
        "file_name": "t.csv",
    }
    questions = [{**common, "id": n} for n in range(4)] + [
        {**common, "id": 4, "file_name": "x.csv"}
    ]
    labels = [
        [["mean", "0.50"], ["kind", "linear"]], [["median", "1"]], [["kind", "["]], None,
        [["mean", "1"]],
    ]  # fmt: skip
    lines = [
        json.dumps({"id": n, "common_answers": ls}) for n, ls in enumerate(labels) if ls is not None
    ]
    (tables.parent / "da-dev-questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (tables.parent / "da-dev-labels.jsonl").write_text("\n".join(lines))
    return read_suite(f"dabench:{folder}")


def test_dabench_is_read_and_what_cannot_be_right_is_listed_with_its_reason(tmp_path):
    """A label that is not asked for, one that was cut, none at all, a table that is not there."""
    tasks = dabench(tmp_path).tasks
    assert [bool(task.excluded) for task in tasks] == [False, True, True, True, True]
    reasons = " / ".join(task.excluded for task in tasks)
    for what in ("'median' is not in the form", "cut at a bracket", "no label", "x.csv is not in"):
        assert what in reasons


def test_a_line_of_dabench_ends_where_a_file_has_its_end_of_line(tmp_path):
    """Not at another sign that Unicode calls one, inside a question."""
    dabench(tmp_path)
    path = tmp_path / "examples" / "DA-Agent" / "data" / "da-dev-questions.jsonl"
    path.write_text(path.read_text().replace("Mean?", "Mean\u2028of all?"))
    assert "Mean\u2028of all?" in read_suite(f"dabench:{tmp_path}").tasks[0].task


def test_dabench_counts_an_answer_when_every_label_is_right(tmp_path):
    """As the suite's own script does."""
    bench = open_bench(dabench(tmp_path).tasks[0])
    assert bench.judge(said("@mean[0.5] and @kind[linear]")).success
    assert not bench.judge(said("@mean[0.5] @kind[Linear]")).success
    assert not bench.judge(said("@mean[0.5]")).success


# --- M3ToolEval ------------------------------------------------------------------------------

BASE = """
from collections import namedtuple
ToolType = namedtuple("ToolType", ["name", "description", "function", "fn_signature"])
task_iterators = []
class Task:
    def __init__(self, name, tools, instruction, expected_output, is_single_tool_task=True):
        self.name, self.instruction, self.expected_output = name, instruction, expected_output
        self.tools = tools() if callable(tools) else tools
        print("noise")
def register_task_iterator(tasks, length):
    task_iterators.append((tasks, length))
"""
TASKS = """
from .base import Task, ToolType, register_task_iterator
class Counter:
    n = 0
    def up(self, by):
        self.n += by
        return self.n
def calculator(expression):
    return eval(expression)
def tools():
    return {
        "up": ToolType("up", "Counts.", Counter().up, "up(by: int) -> int"),
        "calculator": ToolType("calculator", "Adds.", calculator, "calculator(expression: str)"),
        "max": ToolType("max", "Finds the largest.", max, "max(*args: float) -> float"),
    }
register_task_iterator([
    Task("shop/price of 3", tools, "Answer in the format of 'xx.xx'", 3 * 0.333),
    Task("shop/list", tools, "List them", [1.1, 2.2]),
    Task("shop/name", tools, "Who?", "Ann"),
    Task("shop/counts", tools, "How many of each?", {"a": 1, "b": 2}),
    Task("message_decoder/longest_decoded_string", tools, "Find the longest message", 3),
], 5)
"""


def m3tooleval(folder):
    package = folder / "scripts" / "eval" / "m3tooleval" / "tasks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import impl\n")
    (package / "base.py").write_text(BASE)
    (package / "impl.py").write_text(TASKS)
    return read_suite(f"m3tooleval:{folder}")


def test_m3tooleval_is_loaded_silently_and_its_corrections_are_said(tmp_path, capsys):
    """Nothing of it stays imported."""
    import sys

    suite = m3tooleval(tmp_path)
    assert [task.id for task in suite.tasks[:3]] == ["shop.price.of.3", "shop.list", "shop.name"]
    assert suite.tasks[0].corrected == "the comparison of numbers and the calculator"
    assert "calculator evaluates any Python" in " ".join(suite.remarks)
    assert capsys.readouterr().out == ""
    assert not [name for name in sys.modules if name.startswith("_m3tooleval")]


def test_m3tooleval_judges_numbers_to_the_digits_that_it_asks_for(tmp_path):
    """The suite itself compares 0.999 with 1.00 and says no, and raises for lists."""
    price, many, name, counts, _ = (open_bench(task) for task in m3tooleval(tmp_path).tasks)
    assert price.judge(said("1.00")).success
    assert not price.judge(said("1.01")).success
    assert many.judge(said("[1.1, 2.2]")).success
    assert many.judge(said("a list", [1.1, 2.2])).success
    assert not many.judge(said("[1.1]")).success
    assert many.judge(said("Answer: [1.1, 2.2]")).success
    assert counts.judge(said("counts", {"b": 2, "a": 1})).success
    assert not counts.judge(said("counts", {"b": 2, "a": 2})).success
    assert name.judge(said(" Ann ")).success
    assert not name.judge(said("Bob")).success


def test_m3tooleval_asks_for_the_answer_and_nothing_else_as_its_own_prompt_does(tmp_path):
    """A sentence around the answer would be wrong by its check."""
    suite = m3tooleval(tmp_path)
    assert suite.tasks[2].task == (
        "Who?\n\nPlease ONLY output the answer (e.g., single number), without any other text."
    )


def test_m3tooleval_lists_tasks_whose_answer_cannot_be_told_from_the_question(tmp_path):
    """With the reason; nothing of them is corrected."""
    task = m3tooleval(tmp_path).tasks[-1]
    assert task.excluded == "it asks for a message and expects a length"
    assert task.corrected == ""


@pytest.mark.parametrize(("fmt", "offered"), [("json", True), ("fenced", False), ("auto", False)])
async def test_a_function_that_python_has_itself_is_a_tool_only_where_calls_are_made(
    tmp_path, fmt, offered
):
    """In code it would hide Python's own, which takes a generator and a key."""
    bench = open_bench(m3tooleval(tmp_path).tasks[0])
    names = {tool.name for tool in offered_tools(bench, Arm(format=fmt))}
    assert names == ({"up", "calculator", "max"} if offered else {"up", "calculator"})
    largest = next(tool for tool in bench.tools if tool.name == "max")
    assert largest.schema["parameters"]["properties"]["args"]["items"] == {"type": "number"}
    assert await largest.call([1, 3, 2], {}) == 3


async def test_m3tooleval_gives_each_run_tools_with_a_state_of_their_own(tmp_path):
    """And a calculator that is no way to run code on this side."""
    task = m3tooleval(tmp_path).tasks[0]
    for _ in range(2):
        up, calculator, _ = open_bench(task).tools
        assert await up.call([2], {}) == 2
        assert await calculator.call(["2 + (3 * 4)"], {}) == 14
        with pytest.raises(Exception, match="not arithmetic"):
            await calculator.call(["__import__('os').getpid()"], {})
    assert "def up(by: int)" in up.stub()


@pytest.mark.parametrize(
    "hostile", ["2 ** 9 ** 9", "'a' * 9", "(" * 400 + ")" * 400, "x", "", "1" * 2000]
)
def test_the_calculator_does_arithmetic_and_nothing_else(hostile):
    """Whatever is written, it raises at once."""
    with pytest.raises((ValueError, SyntaxError, MemoryError)):
        arithmetic(hostile)


# --- DSEval ----------------------------------------------------------------------------------

PROBLEMS = '''\
"The solution is 2, says whoever wrote this set."

# %%
import pandas as pd

# %%
"""
question: Load `inputs/t.csv` into df.
validator:
  namespace_check:
    df:
"""

df = pd.read_csv('inputs/t.csv')

# %%
"""
question: How many rows?
"""

n = df.shape[0]
n

# %%
"""
question: How many signs '\\n'?
"""

# none
0

# %%
"""
question: Which, by a rule of its own?
validator:
  result: {match_partial: true, ignore_order: true}
"""

[1]

# %%
"""
question: And in the other file?
"""

pd.read_csv('inputs/gone.csv').shape[0]
'''


def dseval(folder):
    (folder / "_inputs").mkdir()
    (folder / "_inputs" / "t.csv").write_text("a\n1\n2\n")
    (folder / "set.py").write_text(PROBLEMS)
    return read_suite(f"dseval:{folder}")


def test_dseval_asks_each_question_alone_after_the_cells_before_it(tmp_path):
    """What its result does not judge, and what it lacks a file for, is listed as excluded."""
    load, rows, signs, own, other = dseval(tmp_path).tasks
    assert "judged by namespace_check" in load.excluded
    assert "gone.csv is not in the checkout" in other.excluded
    assert own.excluded == "its result is compared by match_partial"
    assert rows.excluded == ""
    assert "df = pd.read_csv" in rows.task
    assert "not a sentence about it" in rows.task
    assert "How many signs '\\n'?" in signs.task
    assert "solution" not in signs.task
    cells = cells_of(rows)
    assert cells.setup.endswith("df = pd.read_csv('inputs/t.csv')")
    assert cells.reference == "n = df.shape[0]\nfinal_answer(n)"


@pytest.mark.parametrize(("answer", "success"), [("len(df)", True), ("len(df) + 1", False)])
async def test_dseval_compares_with_what_the_reference_code_gives_here(tmp_path, answer, success):
    """A whole run in two kernels."""
    task = dseval(tmp_path).tasks[1]
    reply = {"content": f"```python\nfinal_answer({answer})\n```"}
    (tmp_path / "s.jsonl").write_text(json.dumps(reply) + "\n")
    spec = RunSpec.of(
        task=task,
        arm=Arm(format="fenced", model=f"scripted:{tmp_path}/s.jsonl", sandbox="none"),
        trial=1,
        folder=str(tmp_path / "out"),
        settings={},
    )
    result = await carry_out(spec, play=play)
    assert (result.success, result.status) == (success, "answered"), result.reason


def given(value, text="", kind="list"):
    return Answer(value=value, text=text or str(value), kind=kind)


@pytest.mark.parametrize(
    ("expected", "answer", "rule", "success"),
    [
        (given(15.25), 15.2500001, {}, True),
        (given(15.25), 15.26, {}, False),
        (given(15.25), "It is 15.25.", {}, True),
        (given(0.1), 0.2, {"atol": 0.2}, True),
        (given(0.9), 0.95, {"metrictol": 0.99}, True),
        (given(0.9), 0.88, {"metrictol": 0.99}, False),
        (given(True), 1, {}, False),
        (given([1 / 3, 2]), [0.3333333, 2], {}, True),
        (given([1, 2]), [2, 1], {}, False),
        (given([1.0, 2]), [2, 1], {"ignore_order": True}, True),
        (given([{"a": 1}, {"a": 2}]), [{"a": 2}, {"a": 1}], {"ignore_order": True}, True),
        (given({"x": 5}, kind="Series"), 5, {}, False),
        (given({"x": 5}, kind="Series"), 5, {"value_only": True}, True),
        (given({"x": 5}), {"y": 5}, {"ignore_index": True}, True),
        (given({"x": 1, "y": 2}), {"y": 2, "x": 1}, {}, True),
        (given({"x": 1, "y": 2}, kind="Series"), {"y": 2, "x": 1}, {}, False),
        (given({"x": 1, "y": 2}, kind="Series"), {"y": 2, "x": 1}, {"ignore_order": True}, True),
        (given(None, "a  int64"), None, {}, True),
        (given(None, "0  0\n    ..\n9  0"), None, {}, None),
        (given(None, "<GroupBy object at 0x7f>"), None, {}, None),
    ],
)
def test_dseval_compares_as_the_suites_matcher_with_the_tasks_own_options(
    expected, answer, rule, success
):
    """What was cut short, or is an address, is not judged: equal heads and tails prove nothing."""
    run = SimpleNamespace(answer=answer, text="a int64" if answer is None else str(answer))
    assert compare(expected, run, rule=rule).success is success


def test_a_suite_that_cannot_be_read_is_told_in_one_line():
    """No such suite, no checkout, another folder."""
    for source, what in (
        ("penguins", "unknown suite 'penguins'; choose one of: agentdojo, "),
        ("dabench", "name the checkout of InfiAgent"),
        ("m3tooleval:.", "is no checkout of code-act"),
        ("dseval:none", "name a benchmark of a DSEval checkout"),
    ):
        with pytest.raises(UsageError, match=what):
            read_suite(source)
    with pytest.raises(UsageError, match="only agentdojo and bfcl have gold calls"):
        measure("dabench")


# --- packages --------------------------------------------------------------------------------


def test_a_package_that_is_missing_is_told_with_what_to_install():
    """One line."""
    for name, package in (("agentdojo", "agentdojo"), ("bfcl", "bfcl_eval")):
        try:
            __import__(package)
        except ModuleNotFoundError:
            with pytest.raises(UsageError, match=r"the suite needs the package.*pip install"):
                read_suite(name)


@pytest.mark.filterwarnings("ignore")
def test_agentdojo_gold_calls_pass_its_own_judgement_and_the_oracle_gives_the_known_turns():
    """97 user tasks: 4.49, 3.02 and 2.00 turns."""
    pytest.importorskip("agentdojo")
    suite = read_suite("agentdojo")
    assert len(suite.tasks) == 97
    turns = [round(need.turns, 2) for need in measure("agentdojo").needs.values()]
    assert turns == [4.49, 3.02, 2.00]
    told: list[str] = []
    assert measure("agentdojo", limit=8, tell=told.append).tasks == 8
    assert told == list(sample(suite, 8).remarks[len(suite.remarks) :])
    assert sum(bool(task.excluded) for task in suite.tasks) <= 2
    bench = open_bench(next(task for task in suite.tasks if task.id.startswith("banking")))
    names = {tool.name for tool in bench.tools}
    assert "get_balance" in names
    balance = next(tool for tool in bench.tools if tool.name == "get_balance")
    assert isinstance(asyncio.run(balance.call([], {})), float)
    with pytest.raises(UsageError, match="no suite 'moon'"):
        read_suite("agentdojo:moon")


@pytest.mark.filterwarnings("ignore")
def test_bfcl_gold_calls_pass_its_own_checker_and_the_oracle_gives_the_known_turns():
    """200 tasks: 9.38, 7.72 and 7.33 turns; ten of them through the tools that a model gets."""
    pytest.importorskip("bfcl_eval")
    pytest.importorskip("mpmath")
    from benchmarks.suites.bfcl import gold

    suite = read_suite("bfcl")
    assert len(suite.tasks) == 200
    turns = [f"{need.turns:.2f}" for need in measure("bfcl").needs.values()]
    assert turns == ["9.38", "7.72", "7.33"]
    offered = 0
    for task, calls in list(zip(suite.tasks, gold(""), strict=True))[:10]:
        bench, idle = open_bench(task), open_bench(task)
        tools = {tool.name: tool for tool in bench.tools}
        for number, turn in enumerate(calls.turns, start=1):
            bench.turn_begins(number)
            idle.turn_begins(number)
            for call in turn.calls:
                offered += call.name in tools
                asyncio.run(tools[call.name].call([], dict(call.arguments)))
        assert bench.judge(()).success, task.id
        assert not idle.judge(()).success
    assert offered > 20
