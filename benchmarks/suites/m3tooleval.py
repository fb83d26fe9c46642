"""M3ToolEval, from a checkout of code-act: tasks that take several calls of several tools.

``m3tooleval:PATH`` names the repository, or its ``scripts/eval/m3tooleval``. The suite's modules
are imported from there (they need ``tqdm`` and IPython), anew for each run, because its tools keep
state that its own reset does not reset. Its judgement is replaced, see :data:`DEFECTS`.

X. Wang et al., "Executable Code Actions Elicit Better LLM Agents", ICML 2024.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import operator
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.suites import Origin, SuiteTask, needs_package
from kernel_agent.errors import ToolError, UsageError
from kernel_agent.evaluation.checks import RIGHT, Verdict, wrong
from kernel_agent.evaluation.tasks import TaskSet
from kernel_agent.records import Json
from kernel_agent.session import Run
from kernel_agent.tools import Tool

PLACES = ("", "scripts/eval/m3tooleval")
ONLY = "Please ONLY output the answer (e.g., single number), without any other text."
"""The last sentence of the suite's own prompt: its check takes the answer and nothing around it."""
DEFECTS = (
    (
        "The suite's check compares decimals exactly though it asks for two digits, and raises "
        "where it compares lists: here numbers may differ by half of the last digit asked for, and "
        "lists and counts by name are compared member by member."
    ),
    (
        "Functions that Python has itself (max, min, sum) are offered where calls are the action; "
        "in code they would hide Python's own, which are there anyway."
    ),
    (
        "The suite's loop tells the model when an answer is wrong and lets it try again: here an "
        "answer is final."
    ),
    "The suite's calculator evaluates any Python on this side: here it does arithmetic only.",
)
UNTELLABLE = {
    "message_decoder/longest_decoded_string": "it asks for a message and expects a length",
    "cryptobotanists_plant_dna_sequencer/find_most_common_nucleotide_and_transcribe": (
        "three nucleotides are equally common, and one is expected"
    ),
    "cryptobotanists_plant_dna_sequencer/find_most_common_nucleotide_combined_sequence": (
        "all four nucleotides are equally common, and one is expected, with its count"
    ),
    "trade_calculator/estimate_final_value": (
        "it gives the tariff in units, and what is expected takes it for a percentage"
    ),
    "trade_calculator/quantity_tariff_tradeoff": (
        "it asks which option is more profitable, and expects that option's value"
    ),
    "travel_itinerary_planning/plan_trip_to_0": ("two hotels fit, and the dearer one is expected"),
    "travel_itinerary_planning/cultural_exploration_tour": (
        "it asks for cheaper flights only, and expects the cheapest hotels in two cities of three"
    ),
}
"""Tasks whose expected output cannot be told from the question: found by reading all of them."""


def read(where: str) -> TaskSet:
    """Return the suite's tasks, with remarks on what is corrected and why some are excluded."""
    with _suite(where) as module:
        tasks = tuple(_task(one, where) for one in _all(module))
    return TaskSet(name="M3ToolEval", tasks=tasks, remarks=DEFECTS)


def open_bench(task: SuiteTask) -> M3Bench:
    """Return the task's tools, of a suite that was loaded for this run."""
    ref = task.origin.ref
    with _suite(ref["where"]) as module:
        found = next((one for one in _all(module) if one.name == ref["name"]), None)
    if found is None:
        raise UsageError(f"the checkout has no task {ref['name']!r} any more")
    return M3Bench(found)


class M3Bench:
    """One task's tools and expected output."""

    def __init__(self, task: Any) -> None:
        self._expected = task.expected_output
        self._digits = 2 if "xx.xx" in task.instruction else None
        self.tools: Sequence[Tool] = tuple(_tool(one) for one in task.tools.values())

    def turn_begins(self, number: int) -> None:
        """Do nothing: there is one question."""

    def judge(self, runs: Sequence[Run]) -> Verdict:
        """Compare the answer with the expected output."""
        run = runs[-1]
        # The suite asks for "Answer: …" in some tasks, and takes what follows it.
        said = run.text.partition("Answer:")[2] or run.text
        for answer in (run.answer, _literal(said)):
            if _same(answer, self._expected, self._digits):
                return RIGHT
        return wrong(f"expected {self._expected!r}, got {run.text!r}")


def _task(one: Any, where: str) -> SuiteTask:
    excluded, corrected = UNTELLABLE.get(one.name, ""), []
    if isinstance(one.expected_output, list | tuple | dict):
        corrected.append("the comparison of members")
    elif "xx.xx" in one.instruction or isinstance(one.expected_output, float):
        corrected.append("the comparison of numbers")
    if "calculator" in one.tools:
        corrected.append("the calculator")
    return SuiteTask(
        id=re.sub(r"[^\w.-]", ".", one.name)[:120],
        task=f"{one.instruction.rstrip()}\n\n{ONLY}",
        kind=one.name.partition("/")[0][:60],
        origin=Origin(
            suite="m3tooleval", ref={"where": str(Path(where).resolve()), "name": one.name}
        ),
        excluded=excluded,
        corrected="" if excluded else " and ".join(corrected),
    )


def _same(answer: Any, expected: Any, digits: int | None) -> bool:
    if isinstance(answer, dict) and isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(
            _same(answer[key], expected[key], digits) for key in expected
        )
    if isinstance(answer, list | tuple) and isinstance(expected, list | tuple):
        pairs = zip(answer, expected, strict=False)
        return len(answer) == len(expected) and all(_same(a, e, digits) for a, e in pairs)
    numbers = [_as_number(value) for value in (answer, expected)]
    if numbers[0] is not None and numbers[1] is not None:
        allowed = 0.5 * 10**-digits if digits else 1e-6 * max(1.0, abs(numbers[1]))
        return abs(numbers[0] - numbers[1]) <= allowed * (1 + 1e-9)
    return str(answer).strip() == str(expected).strip()


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


# --- tools ---------------------------------------------------------------------------------


def _tool(one: Any) -> Tool:
    function = arithmetic if one.name == "calculator" else one.function

    def call(*args: Any, **kwargs: Any) -> Json:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # the suite's functions raise what they like
            raise ToolError(f"{type(error).__name__}: {error}") from None

    signature = _signature(one.fn_signature, function)
    call.__name__ = call.__qualname__ = one.name
    call.__doc__ = f"{one.description}"
    call.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    call.__signature__ = signature  # type: ignore[attr-defined]
    return Tool(call)


_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def _signature(written: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return the function's own parameters, with the types that the suite writes beside it."""
    types: dict[str, Any] = {}
    with contextlib.suppress(SyntaxError, AttributeError, IndexError):
        define = ast.parse(f"def {written}: ...").body[0]
        assert isinstance(define, ast.FunctionDef)
        arguments = [*define.args.args, define.args.vararg, *define.args.kwonlyargs]
        for argument in (a for a in arguments if a and a.annotation):
            name = ast.unparse(argument.annotation or ast.Constant(None)).partition("[")[0]
            types[argument.arg] = _TYPES.get(name.lower(), Any)
    try:
        own = inspect.signature(function)
    except ValueError:  # a built-in without one; the suite gives them any number of values
        own = inspect.signature(lambda *args: args)
    return inspect.Signature([
        p.replace(annotation=types.get(p.name, Any)) for p in own.parameters.values()
    ])  # fmt: skip


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
MAX_EXPRESSION = 1000


def arithmetic(expression: str) -> float:
    """Evaluate + - * / // % and parentheses on numbers, and nothing else."""
    if len(expression) > MAX_EXPRESSION:
        raise ValueError("the expression is too long")
    return float(_value(ast.parse(expression.strip(), mode="eval").body))


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        return float(result)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return float(_OPERATORS[type(node.op)](_value(node.operand)))
    raise ValueError(f"not arithmetic: {ast.unparse(node)}")


# --- the checkout --------------------------------------------------------------------------


@contextlib.contextmanager
def _suite(where: str) -> Iterator[ModuleType]:
    """Load the suite's package under a name of its own, silently, and let go of it again."""
    package = _folder(where) / "tasks"
    name = f"_m3tooleval_{secrets.token_hex(6)}"
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                spec.loader.exec_module(module)
            except ModuleNotFoundError as error:
                raise needs_package(str(error.name), f"pip install {error.name}") from None
        yield module
    finally:
        for loaded in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
            del sys.modules[loaded]


def _all(module: ModuleType) -> list[Any]:
    base = sys.modules[f"{module.__name__}.base"]
    return [task for tasks, _ in base.task_iterators for task in tasks]


def _folder(where: str) -> Path:
    if not where:
        raise UsageError("name the checkout of code-act: m3tooleval:PATH")
    for place in PLACES:
        folder = Path(where) / place
        if (folder / "tasks" / "base.py").is_file():
            return folder
    raise UsageError(f"{where} is no checkout of code-act: tasks/base.py is not in it")
