"""Published suites as tasks: from a checkout that is named, or from an installed package.

Nothing of a suite is copied into this project. An adapter is one module with

``read(source) -> TaskSet``
    the suite's tasks; known defects excluded or corrected, each with its reason;
``open_bench(task) -> Bench``
    for suites with tools or a judgement of their own: what a run needs, made anew for each;
``cells_of(task) -> Cells``
    for suites that judge by reference code;
``gold(source) -> Iterator[GoldTask]``
    for suites with gold call sequences: what the oracle arm replays.

``m3tooleval:PATH`` ``dseval:PATH`` ``dabench:PATH`` name a checkout; ``bfcl`` and
``agentdojo[:SUITE]`` name a package. ``python -m benchmarks.suites`` carries one out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from kernel_agent.errors import UsageError
from kernel_agent.evaluation.checks import Verdict
from kernel_agent.evaluation.tasks import Task, TaskSet
from kernel_agent.records import Answer, Json
from kernel_agent.session import Run
from kernel_agent.tools import Tool

ADAPTERS = ("agentdojo", "bfcl", "dabench", "dseval", "m3tooleval")


class BySuite(BaseModel):
    """The check of a task that its suite judges."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["suite"] = "suite"


class Origin(BaseModel):
    """The place of a task in its suite; ``ref`` belongs to the adapter."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    suite: str
    ref: dict[str, Any] = Field(default_factory=dict)


class SuiteTask(Task):
    """A task that its suite judges."""

    check: BySuite = BySuite()  # type: ignore[assignment] # none of those that a file may name
    origin: Origin


class Bench(Protocol):
    """The environment of one run of a suite's task: made for it, used once."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The functions that the model may call; they change the bench's own state."""
        ...

    def turn_begins(self, number: int) -> None:
        """Note that the question with this number is asked now."""
        ...

    def judge(self, runs: Sequence[Run]) -> Verdict:
        """Judge the end state and the answers; called once, after the last question."""
        ...


@dataclass(frozen=True, kw_only=True)
class GoldCall:
    """A call of a gold sequence, with what it returned when it was carried out."""

    name: str
    arguments: dict[str, Json]
    result: Json


@dataclass(frozen=True, kw_only=True)
class GoldTurn:
    """A question, and the calls that answer it."""

    request: str
    calls: tuple[GoldCall, ...]


@dataclass(frozen=True, kw_only=True)
class GoldTask:
    """A task with its gold calls; ``tools`` are the descriptions that the model would be shown."""

    id: str
    turns: tuple[GoldTurn, ...]
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Code that a suite runs in the kernel.

    Parameters
    ----------
    setup
        Before the question, in the session of the run.
    reference
        After ``setup`` in a kernel of its own; its answer is the expected one.
    compare
        Judges a run by the expected answer.
    """

    setup: str
    reference: str
    compare: Callable[[Answer, Run], Verdict]


def read_suite(source: str) -> TaskSet:
    """Return the tasks of a suite named as ``NAME`` or ``NAME:WHERE``.

    Raises
    ------
    UsageError
        There is no such suite, no checkout is named, or the package is not installed.
    """
    name, _, where = source.partition(":")
    found: TaskSet = _adapter(name).read(where)
    return found


def open_bench(task: SuiteTask) -> Bench | None:
    """Return the bench for a run of a task; None where reference code judges."""
    opens = getattr(_adapter(task.origin.suite), "open_bench", None)
    bench: Bench | None = opens(task) if opens else None
    return bench


def cells_of(task: SuiteTask) -> Cells | None:
    """Return the code that a suite runs for a task; None for most."""
    of_task = getattr(_adapter(task.origin.suite), "cells_of", None)
    cells: Cells | None = of_task(task) if of_task else None
    return cells


def gold_of(source: str) -> Iterator[GoldTask]:
    """Return the gold call sequences of a suite, which are played one by one.

    Raises
    ------
    UsageError
        The suite has none, or cannot be read.
    """
    name, _, where = source.partition(":")
    gold = getattr(_adapter(name), "gold", None)
    if gold is None:
        raise UsageError(f"only agentdojo and bfcl have gold calls, not {source!r}")
    found: Iterator[GoldTask] = gold(where)
    return found


def needs_package(name: str, advice: str) -> UsageError:
    """Return the error for a package that is not installed."""
    return UsageError(f"the suite needs the package {name}: {advice}")


def _adapter(name: str) -> Any:
    if name not in ADAPTERS:
        raise UsageError(f"unknown suite {name!r}; choose one of: {', '.join(ADAPTERS)}")
    return importlib.import_module(f"benchmarks.suites.{name}")
