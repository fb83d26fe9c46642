"""DABench (InfiAgent), from a checkout: closed questions on tables, answers as ``@name[value]``.

``dabench:PATH`` names the folder with ``da-dev-questions.jsonl``, ``da-dev-labels.jsonl`` and
``da-dev-tables/``, or the repository that has it in ``examples/DA-Agent/data``. An answer is right
when every label is, as the suite's own script judges: the same text, or a number within 1e-6.

X. Hu et al., "InfiAgent-DABench", ICML 2024.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.suites import Origin, SuiteTask
from kernel_agent.errors import InputError, UsageError
from kernel_agent.evaluation.checks import RIGHT, Verdict, wrong
from kernel_agent.evaluation.tasks import TaskSet
from kernel_agent.session import Run
from kernel_agent.tools import Tool

PLACES = ("", "data", "examples/DA-Agent/data")
LABEL = re.compile(r"@(\w+)\[(.*?)\]", re.DOTALL)


def read(where: str) -> TaskSet:
    """Return the questions; exclude those without a right answer.

    Excluded are questions whose label has a name that the asked form does not have, whose label
    was cut by the suite's own pattern (a bracket that never closes), or whose table is missing.
    """
    folder = _folder(where)
    labels = {
        line["id"]: dict(line["common_answers"]) for line in _lines(folder / "da-dev-labels.jsonl")
    }
    tasks = tuple(
        _task(question, labels.get(question["id"]), folder / "da-dev-tables")
        for question in _lines(folder / "da-dev-questions.jsonl")
    )
    return TaskSet(
        name="DABench",
        tasks=tasks,
        remarks=(
            (
                "Text labels count with their case, as in the suite's own script; several are "
                "matters of convention (a test's name, a rounding)."
            ),
        ),
    )


def open_bench(task: SuiteTask) -> DABench:
    """Return the judge of one run."""
    return DABench(task.origin.ref["labels"])


class DABench:
    """Labels; there are no tools."""

    tools: Sequence[Tool] = ()

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels

    def turn_begins(self, number: int) -> None:
        """Do nothing: there is one question."""

    def judge(self, runs: Sequence[Run]) -> Verdict:
        """Compare each label with what the answer says under its name."""
        said = dict(LABEL.findall(runs[-1].text))
        for name, label in self._labels.items():
            if not _same(said.get(name), label):
                return wrong(f"expected @{name}[{label}], got {said.get(name)!r}")
        return RIGHT


def _same(said: str | None, label: str) -> bool:
    if said is None or said == label:
        return said == label
    try:
        return abs(float(said) - float(label)) < 1e-6
    except ValueError:
        return False


def _task(question: dict[str, Any], labels: dict[str, str] | None, tables: Path) -> SuiteTask:
    table = tables / question["file_name"]
    excluded = _defect(question, labels, table)
    return SuiteTask(
        id=f"dabench-{question['id']}",
        task=(
            f"{question['question']}\n\nConstraints: {question['constraints']}\n\nAnswer with one "
            f"text in exactly this form: {question['format']}"
        ),
        data=() if excluded else (str(table.resolve()),),
        kind=next(iter(question.get("concepts") or ()), "")[:60],
        level=str(question.get("level") or "")[:60],
        origin=Origin(suite="dabench", ref={"labels": labels or {}}),
        excluded=excluded,
    )


def _defect(question: dict[str, Any], labels: dict[str, str] | None, table: Path) -> str:
    if not labels:
        return "it has no label"
    unasked = [name for name in labels if f"@{name}[" not in question["format"]]
    if unasked:
        return f"its label {unasked[0]!r} is not in the form that is asked for"
    cut = [name for name, label in labels.items() if label.count("[") != label.count("]")]
    if cut:
        return f"its label {cut[0]!r} was cut at a bracket"
    return "" if table.is_file() else f"its table {table.name} is not in the checkout"


def _folder(where: str) -> Path:
    if not where:
        raise UsageError("name the checkout of InfiAgent: dabench:PATH")
    for place in PLACES:
        folder = Path(where) / place
        if (folder / "da-dev-questions.jsonl").is_file():
            return folder
    raise UsageError(f"{where} is no checkout of InfiAgent: da-dev-questions.jsonl is not in it")


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
