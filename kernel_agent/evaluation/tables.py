"""Results -> paired numbers, and in words what they can and cannot show. Pure but for reading.

Everything is paired by task: a task counts in a comparison when both arms have a judged result of
it. Trials of one task are averaged first (see :mod:`kernel_agent.evaluation.statistics`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from kernel_agent.evaluation.specs import Arm, RunResult, short_names
from kernel_agent.evaluation.statistics import (
    Interval,
    bootstrap_difference,
    bootstrap_ratio,
    holm,
    mcnemar_exact,
    paired_shares,
    smallest_p,
    wilson,
)
from kernel_agent.evaluation.store import read_plan, read_results
from kernel_agent.records import count_text
from kernel_agent.safe import one_line

LEVEL = 0.05  # below this a difference is called shown
MEASURES: Mapping[str, tuple[str, Callable[[RunResult], float | None]]] = {
    "requests": ("requests", lambda r: float(r.model_calls)),
    "steps": ("steps", lambda r: float(r.steps)),
    "prompt_tokens": ("prompt tokens", lambda r: float(r.prompt_tokens)),
    "completion_tokens": ("completion tokens", lambda r: float(r.completion_tokens)),
    "cost": ("cost (USD)", lambda r: r.cost_usd),
    "seconds": ("seconds", lambda r: r.seconds),
    "parse_failures": ("unreadable replies", lambda r: float(r.parse_failures)),
    "failed_calls": ("failed calls", lambda r: float(r.failed_calls)),
    "repaired_calls": ("repaired calls", lambda r: float(r.repaired_calls)),
}


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One arm: success over its judged tasks, and the mean of each measure over its tasks.

    ``of_form`` of the answers that were ``not_judged`` could not be for their form; ``unseen``
    answers stood beside calls whose results the model had not seen.
    """

    arm: str
    tasks: int
    runs: int
    success: Interval
    means: Mapping[str, float | None]
    statuses: Mapping[str, int]
    not_judged: int
    of_form: int
    unseen: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two arms on the tasks that both have: ``second`` compared with ``first``.

    ``differences`` are second minus first, for each measure, ``ratios`` second over first where
    the first needed some in each task. ``share_of_first`` is what the first did right.
    """

    first: str
    second: str
    tasks: int
    share_of_first: float
    only_first: int
    only_second: int
    p: float
    p_adjusted: float
    success: Interval
    differences: Mapping[str, Interval | None]
    ratios: Mapping[str, Interval | None]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All findings of the results; ``words`` is the text for a reader.

    Arms are called by what they differ in; ``common`` says what all of them have.
    """

    plan: Mapping[str, Any]
    common: str
    arms: tuple[ArmRow, ...]
    pairs: tuple[Pair, ...]
    words: tuple[str, ...]
    results: tuple[RunResult, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON types."""
        from dataclasses import asdict

        return {
            "common": self.common,
            "arms": [asdict(row) for row in self.arms],
            "pairs": [asdict(pair) for pair in self.pairs],
            "words": list(self.words),
        }


def compare_folder(folder: str | Path) -> Comparison:
    """Return the comparison of an evaluation's folder.

    Raises
    ------
    InputError
        The folder holds no evaluation.
    """
    plan = read_plan(folder)
    return compare_results(plan, read_results(folder).values())


def compare_results(plan: Mapping[str, Any], results: Iterable[RunResult]) -> Comparison:
    """Compare the arms of a plan by their results; others, and unfinished ones, do not count."""
    names, common = short_names(
        [Arm.model_validate({k: v for k, v in arm.items() if k != "name"}) for arm in plan["arms"]]
    )
    planned = set(plan.get("run_ids", ()))  # a folder of an earlier version has none
    kept = tuple(
        r.model_copy(update={"arm": names[r.arm]}) for r in results
        if r.finished and r.arm in names and (not planned or r.run_id in planned)
    )  # fmt: skip
    by_arm: dict[str, list[RunResult]] = {name: [] for name in names.values()}
    for result in kept:
        by_arm[result.arm].append(result)
    rows = tuple(_row(name, of_arm) for name, of_arm in by_arm.items())
    pairs = _pairs({name: of_arm for name, of_arm in by_arm.items() if of_arm})
    words = tuple(_words(plan, rows, pairs, names))
    return Comparison(plan=plan, common=common, arms=rows, pairs=pairs, words=words, results=kept)


# --- numbers -----------------------------------------------------------------------------------


def _by_task(
    results: Iterable[RunResult], value: Callable[[RunResult], float | None]
) -> dict[str, float]:
    """Return the mean over trials for each task, of the runs that have the value."""
    values: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if (one := value(result)) is not None:
            values[result.task_id].append(one)
    return {task: sum(several) / len(several) for task, several in values.items()}


def _success(result: RunResult) -> float | None:
    return None if result.success is None else float(result.success)


def _row(name: str, results: Sequence[RunResult]) -> ArmRow:
    successes = _by_task(results, _success)
    means: dict[str, float | None] = {}
    for measure, (_, value) in MEASURES.items():
        values = _by_task(results, value)
        means[measure] = sum(values.values()) / len(values) if values else None
    return ArmRow(
        arm=name,
        tasks=len(successes),
        runs=len(results),
        success=wilson(sum(successes.values()), len(successes)),
        means=means,
        statuses=dict(Counter(r.status for r in results)),
        not_judged=sum(r.success is None for r in results),
        of_form=sum(r.form for r in results),
        unseen=sum(r.unseen for r in results),
    )


def _pairs(by_arm: Mapping[str, Sequence[RunResult]]) -> tuple[Pair, ...]:
    pairs = [
        _pair(first, second, by_arm[first], by_arm[second])
        for first, second in combinations(by_arm, 2)
    ]
    adjusted = holm([pair.p for pair in pairs])
    return tuple(
        Pair(**{**vars(pair), "p_adjusted": p}) for pair, p in zip(pairs, adjusted, strict=True)
    )


def _pair(
    first: str, second: str, of_first: Sequence[RunResult], of_second: Sequence[RunResult]
) -> Pair:
    one, other = _by_task(of_first, _success), _by_task(of_second, _success)
    both = sorted(one.keys() & other.keys())
    only_first = sum(one[t] > other[t] for t in both)
    only_second = sum(other[t] > one[t] for t in both)
    p = mcnemar_exact(only_first, only_second)
    differences: dict[str, Interval | None] = {}
    ratios: dict[str, Interval | None] = {}
    for measure, (_, value) in MEASURES.items():
        a, b = _by_task(of_first, value), _by_task(of_second, value)
        shared = sorted(a.keys() & b.keys())
        values = [a[t] for t in shared], [b[t] for t in shared]
        differences[measure] = bootstrap_difference(*values) if shared else None
        ratios[measure] = bootstrap_ratio(*values)
    return Pair(
        first=first,
        second=second,
        tasks=len(both),
        share_of_first=sum(one[t] for t in both) / max(1, len(both)),
        only_first=only_first,
        only_second=only_second,
        p=p,
        p_adjusted=p,
        success=paired_shares([one[t] for t in both], [other[t] for t in both]),
        differences=differences,
        ratios=ratios,
    )


# --- words -------------------------------------------------------------------------------------


def _words(
    plan: Mapping[str, Any],
    rows: Sequence[ArmRow],
    pairs: Sequence[Pair],
    names: Mapping[str, str],
) -> Iterable[str]:
    planned = len(plan["task_ids"]) * plan["trials"]
    left_out, failed = (
        {names[arm]: why for arm, why in plan.get(key, {}).items()} for key in ("left_out", "smoke")
    )
    for row in rows:
        yield from _arm_in_words(row, planned, left_out.get(row.arm))
        if row.arm in failed:
            yield f"**{row.arm}** failed the smoke test: {one_line(failed[row.arm], 200)}."
    for pair in pairs:
        yield _success_in_words(pair)
        yield from _measures_in_words(pair)
    with_results = [row for row in rows if row.runs]
    if len(with_results) < 2:
        some = "Only one arm has results" if with_results else "No arm has a result"
        yield f"{some}: nothing can be compared."
    elif len(pairs) > 1:
        yield (
            f"{len(pairs)} pairs were compared; the p-values are adjusted for that (Holm), the "
            "intervals are not."
        )
    if plan["trials"] == 1 and with_results:
        yield (
            "Each task was tried once: how much an arm changes its mind from one time to the next "
            "is not measured."
        )


def _arm_in_words(row: ArmRow, planned: int, left_out: str | None) -> Iterable[str]:
    if left_out:
        part = "was given up" if row.runs else "took no part"
        yield f"**{row.arm}** {part}: {one_line(left_out, 200)}."
    if 0 < row.runs < planned:
        yield (
            f"**{row.arm}** has {row.runs} of {planned} runs: what is said about it holds for "
            "those only."
        )
    elif row.runs < planned and not left_out:
        yield f"**{row.arm}** has no result yet."
    if row.not_judged:
        yield (
            f"{count_text(row.not_judged, 'answer')} of **{row.arm}** could not be judged"
            + (f", {row.of_form} of them for their form" if row.of_form else "")
            + ": right and wrong are counted without."
        )
    if row.unseen:
        yield (
            f"{count_text(row.unseen, 'answer')} of **{row.arm}** stood in one reply beside calls: "
            "the model had not seen their results when it answered."
        )
    down = row.statuses.get("model_error", 0)
    if down:
        yield (
            f"In {count_text(down, 'run')} of **{row.arm}** the model gave no usable reply: "
            "counted as failures. Run them again with `--repeat model_error`."
        )


def _success_in_words(pair: Pair) -> str:
    discordant = pair.only_first + pair.only_second
    head = f"**{pair.first}** against **{pair.second}**, success on {_tasks(pair.tasks)}: "
    if pair.tasks == 0:
        return head + "no task has a judged answer of both, so they cannot be compared."
    if discordant == 0:
        upper = 1 - LEVEL ** (1 / pair.tasks)
        return head + (
            f"no task tells them apart{_alike(pair)}. That is not proof that they are equally "
            f"good: a difference on up to {upper:.0%} of such tasks could have stayed unseen."
        )
    split = f"{pair.only_first} for {pair.first}, {pair.only_second} for {pair.second}"
    tell = "tells" if discordant == 1 else "tell"
    if smallest_p(discordant) > LEVEL:
        return head + (
            f"too few tasks to tell. Only {_tasks(discordant)} {tell} them apart ({split}); even "
            "if all spoke for one arm, chance could explain it "
            f"(p = {smallest_p(discordant):.2f})."
        )
    better = pair.second if pair.only_second > pair.only_first else pair.first
    interval = (
        f"{pair.second} minus {pair.first} {_points(pair.success)}, p = {pair.p_adjusted:.3g}"
    )
    if pair.p_adjusted <= LEVEL:
        return head + f"**{better}** is better ({split}; {interval})."
    return head + (
        f"no difference is shown ({split}; {interval}). The interval says how "
        "large one could still be."
    )


def _measures_in_words(pair: Pair) -> Iterable[str]:
    for measure, (name, _) in MEASURES.items():
        difference = pair.differences[measure]
        if difference is None or not difference.excludes_zero or pair.tasks < 6:
            continue  # below six tasks the bootstrap's intervals are too short to be believed
        word = "fewer" if difference.value < 0 else "more"
        ratio = pair.ratios[measure]
        times = f", {ratio.value:.2f} times as many ({_ends(ratio)})" if ratio else ""
        yield (
            f"**{pair.second}** needs {word} {name} than **{pair.first}**: {difference.value:+.3g} "
            f"a task on average (95 % interval {difference.low:+.3g} to {difference.high:+.3g})"
            f"{times}."
        )


def _ends(ratio: Interval) -> str:
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def _alike(pair: Pair) -> str:
    """Say when the tasks are too hard, or too easy, for both."""
    return {0.0: ": both got all wrong", 1.0: ": both got all right"}.get(pair.share_of_first, "")


def _tasks(count: int) -> str:
    return count_text(count, "task")


def _points(share: Interval) -> str:
    value, low, high = (100 * part for part in (share.value, share.low, share.high))
    return f"{value:+.0f} points, 95 % interval {low:+.0f} to {high:+.0f}"
