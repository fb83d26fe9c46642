"""BFCL v4 multi-turn (base), from the package ``bfcl-eval``: several questions in one session.

The functions keep their state from question to question; the suite's own checker compares state and
results with the gold calls after each. The package asks for dozens of others that this needs none
of (``pip install --no-deps bfcl-eval mpmath`` is enough, and leaves numpy as it is).

Shishir Patil et al., "The Berkeley Function Calling Leaderboard", ICML 2025.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites import GoldCall, GoldTask, GoldTurn, Origin, SuiteTask, needs_package
from kernel_agent.errors import ToolError, UsageError
from kernel_agent.evaluation.checks import RIGHT, Verdict, wrong
from kernel_agent.evaluation.tasks import TaskSet
from kernel_agent.records import Json
from kernel_agent.session import Run
from kernel_agent.tools import Tool

CATEGORY = "BFCL_v4_multi_turn_base.json"
ADVICE = "pip install --no-deps bfcl-eval mpmath"
TYPES = {
    "string": str, "integer": int, "float": float, "number": float, "boolean": bool,
    "array": list, "dict": dict, "tuple": list, "any": Any,
}  # fmt: skip


def read(where: str) -> TaskSet:
    """Return the multi-turn base tasks.

    A task whose gold calls raise in the suite's own functions is excluded, with the error.
    """
    if where:
        raise UsageError("bfcl takes no further name: it is the multi-turn base category")
    tasks = []
    for entry, answer in _entries():
        tasks.append(
            SuiteTask(
                id=entry["id"],
                task=tuple(_request(turn) for turn in entry["question"]),
                origin=Origin(suite="bfcl", ref={"id": entry["id"]}),
                excluded=_defect(entry, answer),
            )
        )
    return TaskSet(
        name="BFCL v4 multi-turn base",
        tasks=tuple(tasks),
        remarks=(
            (
                "Functions that the suite excludes for a task are not offered. Docstrings are "
                "those of the suite's descriptions."
            ),
        ),
    )


def open_bench(task: SuiteTask) -> BfclBench:
    """Return fresh instances of the suite's classes for one run."""
    for entry, answer in _entries():
        if entry["id"] == task.origin.ref["id"]:
            return BfclBench(entry, answer)
    raise UsageError(f"this version of bfcl-eval has no task {task.origin.ref['id']!r}")


def gold(where: str) -> Iterator[GoldTask]:
    """Yield the gold calls of each task with what they return."""
    if where:
        raise UsageError("bfcl takes no further name")
    for entry, answer in _entries():
        bench = BfclBench(entry, answer)
        turns = []
        for question, calls in zip(entry["question"], answer, strict=True):
            played = tuple(bench.play(call) for call in calls)
            turns.append(GoldTurn(request=_request(question), calls=played))
        yield GoldTask(id=entry["id"], turns=tuple(turns), tools=tuple(bench.tools))


class BfclBench:
    """Instances of the suite's classes, their functions as tools, and the calls by question."""

    def __init__(self, entry: dict[str, Any], answer: list[list[str]]) -> None:
        self._entry, self._answer = entry, answer
        self._calls: list[list[str]] = []
        self._functions: dict[str, Any] = {}
        left_out = set(entry.get("excluded_function") or ())
        tools = []
        for name in entry["involved_classes"]:
            instance = _instance(name, entry["initial_config"])
            for document in _documents(name):
                self._functions[document["name"]] = getattr(instance, document["name"])
                if document["name"] not in left_out:
                    tools.append(self._tool(document))
        self.tools: Sequence[Tool] = tuple(tools)

    def turn_begins(self, number: int) -> None:
        """Begin the list of calls of a question."""
        while len(self._calls) < number:
            self._calls.append([])

    def judge(self, runs: Sequence[Run]) -> Verdict:  # noqa: ARG002 - calls count, not words
        """Ask the suite's checker, which carries out the calls again beside the gold ones."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        said = multi_turn_checker(
            [[calls] for calls in self._calls],
            self._answer,
            self._entry,
            "multi_turn_base",
            # The suite keeps instances in a global table by this name: each run needs its own.
            f"run_{secrets.token_hex(8)}",
        )
        return RIGHT if said["valid"] else wrong(said.get("error_message", "the checker said no"))

    def play(self, source: str) -> GoldCall:
        """Carry out a gold call, which is written as Python."""
        call = ast.parse(source, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        function = self._functions[call.func.id]
        args = [ast.literal_eval(value) for value in call.args]
        kwargs = {k.arg or "": ast.literal_eval(k.value) for k in call.keywords}
        bound = inspect.signature(function).bind(*args, **kwargs)
        return GoldCall(
            name=call.func.id,
            arguments=dict(bound.arguments),
            result=_plain(function(*args, **kwargs)),
        )

    def _tool(self, document: dict[str, Any]) -> Tool:
        name, function = document["name"], self._functions[document["name"]]

        def call(*args: Any, **kwargs: Any) -> Json:
            given = dict(signature.bind(*args, **kwargs).arguments)
            if self._calls:
                self._calls[-1].append(
                    f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})"
                )
            try:
                return _plain(function(**given))
            except Exception as error:  # the suite's functions raise what they like
                raise ToolError(f"{type(error).__name__}: {error}") from None

        signature = inspect.Signature(_parameters(document, function))
        call.__name__ = call.__qualname__ = name
        call.__doc__ = document["description"].rpartition("Tool description: ")[2]
        call.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        call.__signature__ = signature  # type: ignore[attr-defined]
        return Tool(call)


def _parameters(document: dict[str, Any], function: Any) -> list[inspect.Parameter]:
    """Return the parameters as described; defaults are the function's own."""
    own = inspect.signature(function).parameters
    described = document["parameters"]["properties"]
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=own[name].default if name in own else inspect.Parameter.empty,
            annotation=_annotation(kind, own.get(name)),
        )
        for name, kind in described.items()
    ]
    return sorted(parameters, key=lambda p: p.default is not inspect.Parameter.empty)


def _annotation(described: dict[str, Any], own: inspect.Parameter | None) -> Any:
    kind = TYPES.get(described.get("type", "any"), Any)
    optional = own is not None and own.default is None and kind is not Any
    return kind | None if optional else kind


def _instance(name: str, config: dict[str, Any]) -> Any:
    from bfcl_eval.constants.executable_backend_config import (
        CLASS_FILE_PATH_MAPPING,
        STATELESS_CLASSES,
    )

    made = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
    if name not in STATELESS_CLASSES:
        made._load_scenario(copy.deepcopy(config.get(name, {})), long_context=False)
    return made


def _defect(entry: dict[str, Any], answer: list[list[str]]) -> str:
    bench = BfclBench(entry, answer)
    for calls in answer:
        for call in calls:
            try:
                bench.play(call)
            except Exception as error:  # whatever the suite's function raises is the defect
                return f"its gold call {call} raises {type(error).__name__}: {error}"
    return ""


def _plain(value: Any) -> Json:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


def _request(turn: list[dict[str, str]]) -> str:
    return "\n".join(message["content"] for message in turn)


def _documents(name: str) -> list[dict[str, Any]]:
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    return _lines(_data() / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[name])


def _entries() -> Iterator[tuple[dict[str, Any], list[list[str]]]]:
    data = _data()
    answers = {line["id"]: line for line in _lines(data / "possible_answer" / CATEGORY)}
    for entry in _lines(data / CATEGORY):
        yield entry, answers[entry["id"]]["ground_truth"]


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"bfcl-eval has no {path.name}: {error.strerror}") from None
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _data() -> Path:
    try:
        import bfcl_eval
        import mpmath  # noqa: F401 - one of the suite's classes needs it
    except ModuleNotFoundError as error:
        raise needs_package(f"bfcl-eval ({error.name} is missing)", ADVICE) from None
    return Path(bfcl_eval.__path__[0]) / "data"
