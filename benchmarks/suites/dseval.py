"""DSEval, from a checkout: notebooks of questions, each with reference code.

``dseval:PATH`` names a benchmark's folder (``benchmarks/exercise``) or one problem set (a ``.py``
file). A question becomes one task: the cells before it run in the kernel first, with their
reference code, so that one wrong step does not spoil the next. Expected is what the reference code
gives in a kernel of its own, in the same environment; it is compared as the suite's matcher does.

Y. Zhang et al., "Benchmarking Data Science Agents", ACL 2024.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suites import Cells, Origin, SuiteTask
from kernel_agent.errors import InputError, UsageError
from kernel_agent.evaluation.checks import RIGHT, Verdict, near, not_judged, wrong
from kernel_agent.evaluation.tasks import Number, TaskSet
from kernel_agent.records import Answer, Json
from kernel_agent.session import Run

CELL = "# %%\n"
PROBLEM = re.compile(r'r?"""([\s\S]+?)"""\n([\s\S]+)')
"""A question over its reference code, as the suite's own reader finds it."""
INPUTS = "import os\nif os.path.isdir('data') and not os.path.exists('inputs'):\n    os.symlink('data', 'inputs')\n"  # noqa: E501
"""The suite's code reads ``inputs/``; a session keeps its data in ``data/``."""
VALUE = (
    "Give the value that is asked for as the answer (a number, a text, a list, a table), not a "
    "sentence about it."
)
HONOURED = frozenset({
    "ignore_order", "ignore_index", "ignore_dtypes", "value_only", "atol", "rtol", "metrictol",
})  # fmt: skip
"""Options of the suite's matcher that :func:`compare` has; of types JSON keeps none."""


@dataclass(frozen=True, kw_only=True)
class _Problem:
    question: str
    code: str
    validator: dict[str, Any]

    @property
    def rule(self) -> dict[str, Any]:
        rule = self.validator.get("result")
        return rule if isinstance(rule, dict) else {}


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
                "Only the result is judged: that other variables stay as they were, and limits on "
                "time and names, are not. The index of a table counts where it has a name; types "
                "of columns do not."
            ),
            (
                "Where the reference code fails with the installed packages (written for an older "
                "pandas), or gives what cannot be compared whole, the answer is not judged."
            ),
        ),
    )


def cells_of(task: SuiteTask) -> Cells:
    """Return the cells before the question, its reference code, and the rule to compare by."""
    ref = task.origin.ref
    return Cells(
        setup=ref["setup"], reference=ref["reference"], compare=partial(compare, rule=ref["rule"])
    )


def _tasks(file: Path) -> Iterator[SuiteTask]:
    before: list[str] = [INPUTS]
    data = _data(file)
    number = 0
    # What stands before the first cell is a comment, often with the solution in it.
    for part in file.read_text(encoding="utf-8").split(CELL)[1:]:
        problem = _problem(part.strip(), file)
        if problem.question:
            number += 1
            yield _task(f"{file.stem}.{number}"[:120], problem, before, data, file)
        before.append(problem.code)


def _task(
    name: str, problem: _Problem, before: list[str], data: list[Path], file: Path
) -> SuiteTask:
    run_already = "\n\n".join(part for part in before[1:] if part)
    answer = _with_answer(problem.code)
    excluded = _defect(problem, answer, _missing(run_already + problem.code, data))
    done = f"\n\nThese cells have been run already:\n```python\n{run_already}\n```"
    return SuiteTask(
        id=re.sub(r"[^\w.-]", "-", name),
        task=f"{problem.question.strip()}\n\n{VALUE}{done if run_already else ''}",
        data=() if excluded else tuple(str(path.resolve()) for path in data),
        kind=file.stem[:60],
        origin=Origin(
            suite="dseval",
            ref={
                "file": file.name,
                "setup": "\n\n".join(part for part in before if part),
                "reference": answer or "",
                "rule": {} if excluded else problem.rule,
            },
        ),
        excluded=excluded,
    )


def _defect(problem: _Problem, answer: str | None, missing: str) -> str:
    others = ", ".join(sorted(set(problem.validator) - {"result"}))
    unknown = ", ".join(sorted(set(problem.rule) - HONOURED))
    if missing:
        return f"its file {missing} is not in the checkout: the suite downloads it first"
    if others:
        return f"it is judged by {others}, not by its result"
    if unknown or isinstance(problem.validator.get("result"), str):
        return f"its result is compared by {unknown or 'code of its own'}"
    return "" if answer else "its reference code has no result"


def _problem(part: str, file: Path) -> _Problem:
    """Return a cell's question and code; of other cells the code alone."""
    found = PROBLEM.match(part)
    if found is None:
        return _Problem(question="", code=part, validator={})
    import yaml

    try:
        said = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        raise InputError(f"{file}: a question is not YAML: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{file}: a question is not YAML: {found[1][:80]!r}")
    validator = said.get("validator")
    return _Problem(
        question=str(said.get("question") or ""),
        code=found[2].strip(),
        validator=validator if isinstance(validator, dict) else {},
    )


# --- the comparison ------------------------------------------------------------------------


def compare(expected: Answer, run: Run, *, rule: Mapping[str, Any]) -> Verdict:
    """Compare an answer with what the reference code gave, by the suite's options.

    Numbers are near each other as in ``numpy.isclose``; a number may also stand alone in a text.
    """
    want, got = expected.value, run.answer
    if want is None and re.search(r"\.\.| at 0x", expected.text):
        return not_judged("the reference code's result cannot be compared whole")
    if want is None:
        same = _words(expected.text) == _words(run.text)
        return RIGHT if same else wrong(f"expected {expected.text}, got {run.text}")
    if rule.get("value_only"):
        want, got = _strip(want), _strip(got)
    if isinstance(want, int | float) and not isinstance(want, bool) and isinstance(got, str):
        return near(_number(rule), want, got, got)
    if expected.kind == "Series" and _differs_in_order(want, got, rule):
        return wrong(f"expected the order of {want}, got {got}")
    return RIGHT if _same(want, got, rule) else wrong(f"expected {want!r}, got {got!r}")


def _number(rule: Mapping[str, Any]) -> Number:
    return Number(tolerance=float(rule.get("atol", 1e-8)), relative=float(rule.get("rtol", 1e-5)))


def _same(want: Json, got: Json, rule: Mapping[str, Any]) -> bool:
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        least = rule.get("metrictol")
        if least is not None:
            return bool(got >= want * float(least))
        by = _number(rule)
        return bool(abs(got - want) <= by.tolerance + by.relative * abs(want))
    if isinstance(want, dict) and isinstance(got, dict):
        if rule.get("ignore_index"):
            return _same(list(want.values()), list(got.values()), rule)
        return want.keys() == got.keys() and all(_same(want[k], got[k], rule) for k in want)
    if isinstance(want, list | tuple) and isinstance(got, list | tuple):
        pair = [sorted(v, key=_order) if rule.get("ignore_order") else v for v in (want, got)]
        return len(want) == len(got) and all(map(partial(_same, rule=rule), *pair))
    if isinstance(want, str) and isinstance(got, str):
        return _words(want) == _words(got)
    return bool(want == got)


def _differs_in_order(want: Json, got: Json, rule: Mapping[str, Any]) -> bool:
    if not (isinstance(want, dict) and isinstance(got, dict)) or want.keys() != got.keys():
        return False
    return list(want) != list(got) and not (rule.get("ignore_order") or rule.get("ignore_index"))


def _strip(value: Json) -> Json:
    """Return the values without their container: the rows of a table, a single value itself."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        value = [_strip(part) for part in value]
        return value[0] if len(value) == 1 else value
    return value


def _order(value: Json) -> str:
    """Return a key by which equal values stand at the same place, whatever their last digits."""
    if isinstance(value, dict):
        return str([_order(value[key]) for key in sorted(value)])
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.5g}"
    return str(value)


def _words(text: str) -> str:
    return " ".join(text.split())


# --- the checkout --------------------------------------------------------------------------


def _with_answer(code: str) -> str | None:
    """Return the code with its last expression given to ``final_answer``."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return None
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
