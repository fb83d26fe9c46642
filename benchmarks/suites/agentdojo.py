"""AgentDojo, from its package (``pip install agentdojo``): user tasks, no attacks.

Each run has an environment of its own. The suite's utility function judges the end state, the
answer and the calls, as its authors wrote it. Benchmark version v1.2.2, 97 user tasks:
E. Debenedetti et al., "AgentDojo", NeurIPS 2024.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.suites import GoldCall, GoldTask, GoldTurn, Origin, SuiteTask, needs_package
from kernel_agent.errors import ToolError, UsageError
from kernel_agent.evaluation.checks import RIGHT, Verdict, wrong
from kernel_agent.evaluation.tasks import TaskSet
from kernel_agent.records import Json
from kernel_agent.session import Run
from kernel_agent.tools import Tool

VERSION = "v1.2.2"
ADVICE = "pip install agentdojo"


def read(where: str) -> TaskSet:
    """Return the user tasks of all suites, or of the one named; broken ones are left out.

    A task whose own gold calls fail its own utility function has no right answer: each is
    tried, and what fails is excluded with that as its reason.
    """
    tasks = tuple(
        SuiteTask(
            id=f"{name}.{task.ID}",
            task=task.PROMPT,
            kind=name,
            origin=Origin(suite="agentdojo", ref={"suite": name, "task": task.ID}),
            excluded="" if _gold_passes(suite, task) else "its gold calls fail its own check",
        )
        for name, suite in _suites(where).items()
        for task in suite.user_tasks.values()
    )
    return TaskSet(
        name=f"AgentDojo {VERSION}",
        tasks=tasks,
        remarks=("User tasks only, without injected attacks: this measures use, not safety.",),
    )


def open_bench(task: SuiteTask) -> AgentDojoBench:
    """Return a fresh environment for one run."""
    ref = task.origin.ref
    suite = _suites(ref["suite"])[ref["suite"]]
    return AgentDojoBench(suite, suite.user_tasks[ref["task"]])


def gold(where: str) -> Iterator[GoldTask]:
    """Yield the gold calls of each task with what they return."""
    for name, suite in _suites(where).items():
        for task in suite.user_tasks.values():
            bench = AgentDojoBench(suite, task)
            yield GoldTask(
                id=f"{name}.{task.ID}",
                turns=(GoldTurn(request=task.PROMPT, calls=bench.play_gold()),),
                tools=tuple(bench.tools),
            )


class AgentDojoBench:
    """One environment, its tools, and a record of the calls."""

    def __init__(self, suite: Any, task: Any) -> None:
        from agentdojo.functions_runtime import FunctionsRuntime

        self._task = task
        self._environment = task.init_environment(suite.load_and_inject_default_environment({}))
        self._before = self._environment.model_copy(deep=True)
        self._runtime = FunctionsRuntime(suite.tools)
        self._called: list[Any] = []
        self.tools: Sequence[Tool] = tuple(self._tool(function) for function in suite.tools)

    def turn_begins(self, number: int) -> None:
        """Do nothing: there is one question."""

    def judge(self, runs: Sequence[Run]) -> Verdict:
        """Ask the suite's own functions: by the calls if it has one for that, else by the state."""
        said = self._task.utility_from_traces(
            runs[-1].text, self._before, self._environment, self._called
        )
        if said is None:
            said = self._task.utility(runs[-1].text, self._before, self._environment)
        return RIGHT if said else wrong("the suite's utility function said no")

    def play_gold(self) -> tuple[GoldCall, ...]:
        """Carry out the gold calls."""
        return tuple(
            GoldCall(
                name=call.function,
                arguments=dict(call.args),
                result=self._call(call.function, dict(call.args)),
            )
            for call in self._task.ground_truth(self._before.model_copy(deep=True))
        )

    def gold_passes(self) -> bool:
        """Whether the gold calls satisfy the task's own check."""
        self.play_gold()
        output = self._task.GROUND_TRUTH_OUTPUT
        said = self._task.utility_from_traces(output, self._before, self._environment, self._called)
        if said is None:
            said = self._task.utility(output, self._before, self._environment)
        return bool(said)

    def _call(self, name: str, arguments: dict[str, Any]) -> Json:
        from agentdojo.functions_runtime import FunctionCall
        from pydantic_core import to_jsonable_python

        self._called.append(FunctionCall(function=name, args=arguments))
        result, error = self._runtime.run_function(self._environment, name, arguments)
        if error is not None:
            raise ToolError(str(error))
        return to_jsonable_python(result, fallback=str)

    def _tool(self, function: Any) -> Tool:
        """Return the suite's function without the parameters that the environment fills in."""

        def call(*args: Any, **kwargs: Any) -> Json:
            return self._call(function.name, dict(signature.bind(*args, **kwargs).arguments))

        whole = inspect.signature(function.run, eval_str=True)
        kept = [p for p in whole.parameters.values() if p.name not in function.dependencies]
        signature = inspect.Signature(kept)
        call.__name__ = call.__qualname__ = function.name
        call.__doc__ = function.full_docstring
        call.__annotations__ = {p.name: p.annotation for p in kept}
        call.__signature__ = signature  # type: ignore[attr-defined]
        return Tool(call)


def _gold_passes(suite: Any, task: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return AgentDojoBench(suite, task).gold_passes()
        except ToolError:
            return False


def _suites(where: str) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside the package
            from agentdojo.task_suite.load_suites import get_suites
    except ModuleNotFoundError as error:
        raise needs_package(f"agentdojo ({error.name} is missing)", ADVICE) from None
    suites: dict[str, Any] = get_suites(VERSION)
    if where and where not in suites:
        raise UsageError(f"AgentDojo has no suite {where!r}; choose one of: {', '.join(suites)}")
    return {name: suite for name, suite in suites.items() if where in ("", name)}
