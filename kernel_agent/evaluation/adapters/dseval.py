"""DSEval, from a checkout: notebooks of questions, each with reference code.

``dseval:PATH`` names a benchmark's folder (``benchmarks/exercise``) or one problem set (a ``.py``
file). A question becomes one task: the cells before it run in the kernel first, with their
reference code, so that one wrong step does not spoil the next. Expected is what the reference code
gives in a kernel of its own, in the same environment.

Y. Zhang et al., "Benchmarking Data Science Agents", ACL 2024.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_agent.errors import UsageError
from kernel_agent.evaluation.tasks import BySuite, Origin, Task, TaskSet

CELL = re.compile(r"^# %%.*$", re.MULTILINE)
INPUTS = "import os\nif os.path.isdir('data') and not os.path.exists('inputs'):\n    os.symlink('data', 'inputs')\n"  # noqa: E501
"""The suite's code reads ``inputs/``; a session keeps its data in ``data/``."""


@dataclass(frozen=True, kw_only=True)
class _Problem:
    question: str
    code: str
    validator: dict[str, Any]


def read(where: str) -> TaskSet:
    """Return the questions that are judged by their result; the others are listed as excluded."""
    files = _files(where)
    tasks = tuple(task for file in files for task in _tasks(file))
    return TaskSet(
        name=f"DSEval {Path(where).name}",
        tasks=tasks,
        remarks=(
            (
                "Each question is asked alone, after the reference code of those before it; "
                "the suite's own runs let errors carry over."
            ),
            (
                "Where the reference code fails with the installed packages (written for an older "
                "pandas), the answer is not judged."
            ),
        ),
    )


def _tasks(file: Path) -> Iterator[Task]:
    before: list[str] = [INPUTS]
    data = _data(file)
    number = 0
    for part in CELL.split(file.read_text(encoding="utf-8")):
        problem = _problem(part)
        if problem is None:
            before.append(part.strip())
            continue
        number += 1
        yield _task(f"{file.stem}.{number}"[:120], problem, before, data, file)
        before.append(problem.code)


def _task(name: str, problem: _Problem, before: list[str], data: list[Path], file: Path) -> Task:
    run_already = "\n\n".join(part for part in before[1:] if part)
    missing = _missing(run_already + problem.code, data)
    answer = _with_answer(problem.code)
    excluded = ""
    if missing:
        excluded = f"its file {missing} is not in the checkout: the suite downloads it first"
    elif set(problem.validator) - {"result"}:
        kinds = ", ".join(sorted(set(problem.validator) - {"result"}))
        excluded = f"it is judged by {kinds}, not by its result"
    elif answer is None:
        excluded = "its reference code has no result"
    done = f"\n\nThese cells have been run already:\n```python\n{run_already}\n```"
    return Task(
        id=re.sub(r"[^\w.-]", "-", name),
        task=f"{problem.question.strip()}{done if run_already else ''}",
        data=() if excluded else tuple(str(path.resolve()) for path in data),
        check=BySuite(),
        origin=Origin(
            suite="dseval",
            ref={
                "file": file.name,
                "setup": "\n\n".join(part for part in before if part),
                "reference": answer or "",
            },
        ),
        excluded=excluded,
    )


def _problem(part: str) -> _Problem | None:
    """Return the question of a cell: a docstring in YAML over the reference code."""
    try:
        tree = ast.parse(part)
    except SyntaxError:
        return None
    described = ast.get_docstring(tree)
    if described is None:
        return None
    import yaml

    try:
        said = yaml.safe_load(described)
    except yaml.YAMLError:
        return None
    if not isinstance(said, dict) or "question" not in said:
        return None
    code = "\n".join(ast.unparse(node) for node in tree.body[1:])
    validator = said.get("validator")
    return _Problem(
        question=str(said["question"]),
        code=code,
        validator=validator if isinstance(validator, dict) else {},
    )


def _with_answer(code: str) -> str | None:
    """Return the code with its last expression given to ``final_answer``."""
    body = ast.parse(code).body
    if not body or not isinstance(body[-1], ast.Expr):
        return None
    lines = [ast.unparse(node) for node in body[:-1]]
    return "\n".join([*lines, f"final_answer({ast.unparse(body[-1].value)})"])


def _missing(code: str, data: list[Path]) -> str:
    names = {path.name for path in data}
    asked = re.findall(r"inputs/([\w.@ -]+(?:/[\w.@ -]+)*)", code)
    return next((name for name in asked if name not in names), "")


def _data(file: Path) -> list[Path]:
    found: dict[str, Path] = {}
    for place in ("inputs", "_inputs", f"_inputs/{file.stem}"):
        folder = file.parent / place
        if folder.is_dir():
            found |= {p.name: p for p in sorted(folder.iterdir()) if p.is_file()}
    used = file.read_text(encoding="utf-8")
    return [path for name, path in found.items() if json.dumps(name)[1:-1] in used]


def _files(where: str) -> list[Path]:
    path = Path(where) if where else None
    if path is None or not path.exists():
        raise UsageError(f"name a benchmark of a DSEval checkout: dseval:PATH, not {where!r}")
    files = [path] if path.is_file() else sorted(path.glob("[!_]*.py"))
    if not files:
        raise UsageError(f"{where} holds no problem set (*.py)")
    return files
