"""A comparison as Markdown tables. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kernel_agent.evaluation.specs import RunResult
from kernel_agent.evaluation.statistics import Interval
from kernel_agent.evaluation.tables import MEASURES, Comparison
from kernel_agent.safe import one_line

MAX_TASKS = 200  # that are listed; all of them are in results.jsonl
MAX_QUESTION = 100  # characters of one


def arms_markdown(comparison: Comparison) -> str:
    """Return the arms as a Markdown table."""
    head = ["arm", "tasks", "success (95 % Wilson)", "not judged",
            *(name for name, _ in MEASURES.values())]  # fmt: skip
    rows = [
        [
            row.arm, str(row.tasks), _share(row.success), str(row.not_judged),
            *map(_number, row.means.values()),
        ]
        for row in comparison.arms
    ]  # fmt: skip
    return _markdown(head, rows)


def pairs_markdown(comparison: Comparison) -> str:
    """Return success of the pairs, and what they needed, as two Markdown tables."""
    head = ["first", "second", "tasks", "only first", "only second", "McNemar p", "adjusted",
            "success"]  # fmt: skip
    rows = [
        [
            pair.first, pair.second, str(pair.tasks), str(pair.only_first), str(pair.only_second),
            f"{pair.p:.3g}", f"{pair.p_adjusted:.3g}", _write_interval(pair.success),
        ]
        for pair in comparison.pairs
    ]  # fmt: skip
    needs = [
        [
            pair.first, pair.second, name, _write_interval(pair.differences[measure]),
            _write_ratio(pair.ratios[measure]),
        ]
        for pair in comparison.pairs
        for measure, (name, _) in MEASURES.items()
        if pair.differences[measure] is not None
    ]  # fmt: skip
    second = ["first", "second", "a task needs", "second minus first", "second over first"]
    return f"{_markdown(head, rows)}\n\n{_markdown(second, needs)}"


def endings_markdown(comparison: Comparison) -> str:
    """Return how the runs of each arm ended, as a Markdown table."""
    statuses = sorted({status for row in comparison.arms for status in row.statuses})
    rows = [
        [row.arm, *(str(row.statuses.get(s, 0)) for s in statuses), str(row.not_judged)]
        for row in comparison.arms
    ]
    return _markdown(["arm", *statuses, "not judged"], rows)


def kinds_markdown(comparison: Comparison) -> str:
    """Return each arm's successes by kind of task; first where the arms differ most."""
    arms = [row.arm for row in comparison.arms]
    told = comparison.plan.get("told", {})
    by_kind: dict[str, dict[str, list[RunResult]]] = defaultdict(lambda: defaultdict(list))
    for result in comparison.results:
        by_kind[_kind_of(told, result.task_id)][result.arm].append(result)
    rows = []
    for kind in sorted(by_kind, key=lambda kind: -_spread(by_kind[kind])):
        runs = by_kind[kind]
        tasks = {result.task_id for of_arm in runs.values() for result in of_arm}
        name = one_line(kind, 60) or "no kind"
        rows.append([name, str(len(tasks)), *(_of_kind(runs[arm]) for arm in arms)])
    return _markdown(["kind", "tasks", *arms], rows)


def has_kinds(comparison: Comparison) -> bool:
    """Whether the tasks are of several kinds."""
    told = comparison.plan.get("told", {})
    return len({_kind_of(told, task) for task in comparison.plan["task_ids"]}) > 1


def tasks_markdown(comparison: Comparison, *, most: int = MAX_TASKS) -> str:
    """Return the tasks, and of each arm what it got right and the steps of its runs, with links."""
    arms = [row.arm for row in comparison.arms]
    cells: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
    for result in comparison.results:
        cells[result.task_id, result.arm].append(result)
    told = comparison.plan.get("told", {})
    ids = list(comparison.plan["task_ids"])
    rows = [
        [
            task,
            *(quote(told.get(task, {}).get(part, ""), MAX_QUESTION)
              for part in ("question", "kind", "level")),
            *(_runs_of(cells[task, arm]) for arm in arms),
        ]
        for task in ids[:most]
    ]  # fmt: skip
    more = f"\n\n{len(ids) - most} more tasks are in results.jsonl." if len(ids) > most else ""
    return _markdown(["task", "question", "kind", "level", *arms], rows) + more


def quote(text: str, most: int) -> str:
    """Return a text, which may hold anything, as inert Markdown."""
    return f"`{one_line(text, most).replace('`', chr(39))}`" if text else ""


def _kind_of(told: Mapping[str, Mapping[str, str]], task: str) -> str:
    about = told.get(task, {})
    return about.get("kind") or about.get("level") or ""


def _of_kind(results: Sequence[RunResult]) -> str:
    """Return right of judged answers, and the mean of requests."""
    if not results:
        return "-"
    requests = sum(r.model_calls for r in results) / len(results)
    return f"{_right_of([r.success for r in results])}, {_number(requests)} requests"


def _spread(of_arms: Mapping[str, Sequence[RunResult]]) -> float:
    judged = [[r.success for r in rs if r.success is not None] for rs in of_arms.values()]
    shares = [sum(one) / len(one) for one in judged if one]
    return max(shares, default=0.0) - min(shares, default=0.0)


def _runs_of(results: Sequence[RunResult]) -> str:
    """Return right of judged answers, and the steps of each run, which link to its notebook."""
    steps = (f"[{r.steps}]({r.notebook})" if r.notebook else str(r.steps) for r in results)
    return f"{_right_of([r.success for r in results])}" + (
        f" in {', '.join(steps)} steps" if results else ""
    )


def _right_of(successes: Sequence[bool | None]) -> str:
    judged = [s for s in successes if s is not None]
    if not successes:
        return "-"
    return f"{sum(judged)}/{len(judged)}" if judged else "?"


def _share(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "-"
    return f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def _write_ratio(interval: Interval | None) -> str:
    return (
        "-"
        if interval is None
        else f"{interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"
    )


def _write_interval(interval: Interval | None) -> str:
    if interval is None or math.isnan(interval.value):
        return "-"
    return f"{interval.value:+.3g} ({interval.low:+.3g} to {interval.high:+.3g})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )
