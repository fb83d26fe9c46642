"""The oracle arm: turns and tokens that each protocol needs when nothing goes wrong. No model.

    python -m benchmarks.oracle agentdojo[:SUITE]|bfcl [--limit N] [--out DIR]

From a suite's gold calls, carried out once to have their results:

``json, one call a turn``
    a turn for each call and one for the reply, for each thing that is asked;
``json, parallel calls``
    a turn for each *level*: calls that wait for nothing from each other go out together;
``code``
    one cell for all calls of what is asked, and the reply. It assumes that the model needs no look
    in between, so it is a lower bound; real work lies between it and the column before.

A call waits for an earlier one of the same request if an argument of it is *taken from* that
one's result: if it equals a value there, a key, or a line of a text, and is not a word of the
request itself. This is a rule about values, not about meaning: ``cd`` followed by ``mv`` counts as
parallel, because no value flows. :data:`RULES` holds other rules that are as defensible, so that
a reader sees how far the middle column depends on it.

Tokens are estimated at four characters each, as everywhere in this program where an endpoint does
not count: the prompt of each turn (all that was said, and the tools as Python stubs, the same for
all protocols though JSON schemas are longer) and what is written.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.suites import GoldCall, GoldTask, GoldTurn, gold_of, read_suite
from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.evaluation import sample
from kernel_agent.records import Json

CHARS_PER_TOKEN = 4
REPLY_CHARS = 80  # of the closing sentence; the same for all protocols


@dataclass(frozen=True, kw_only=True)
class Need:
    """Turns and tokens that a protocol needs for one task, or on average."""

    turns: float
    prompt_tokens: float
    completion_tokens: float


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The means over a suite's tasks, by protocol; ``other_rules`` are turns of parallel calls."""

    name: str
    tasks: int
    needs: Mapping[str, Need]
    other_rules: Mapping[str, float]


# --- which call waits for which ------------------------------------------------------------------

Rule = Callable[[str, Json, str], bool]
Write = Callable[[Sequence[GoldCall]], str]
Group = Callable[[GoldTurn], list[list[GoldCall]]]


def levels(turn: GoldTurn, taken: Rule) -> list[list[GoldCall]]:
    """Return the calls in the order in which they can go out together."""
    depth: list[int] = []
    for number, call in enumerate(turn.calls):
        values = set(_texts(list(call.arguments.values()), deep=False))
        waits = [
            depth[earlier] + 1
            for earlier in range(number)
            if any(taken(v, turn.calls[earlier].result, turn.request) for v in values)
        ]
        depth.append(max(waits, default=0))
    return [
        [call for call, at in zip(turn.calls, depth, strict=True) if at == level]
        for level in range(max(depth, default=-1) + 1)
    ]


def taken_from(value: str, result: Json, request: str) -> bool:
    """Whether an argument is taken from a result: it stands there, and not in the request."""
    return not _is_word_of(value, request) and value in set(_texts(result, deep=True))


def equal_to_a_value(value: str, result: Json, request: str) -> bool:  # noqa: ARG001 - a rule
    """Whether an argument equals a value of a result, wherever else it may stand."""
    return value in set(_texts(result, deep=False))


def part_of_a_text(value: str, result: Json, request: str) -> bool:
    """Whether an argument stands anywhere in a result's text, and not in the request."""
    return not _is_word_of(value, request) and any(value in t for t in _texts(result, deep=True))


RULES: Mapping[str, Rule] = {
    "taken from a result": taken_from,
    "equal to a value": equal_to_a_value,
    "part of a text": part_of_a_text,
}


def _is_word_of(value: str, text: str) -> bool:
    pattern = rf"(?<!\w){re.escape(value)}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _texts(value: Json, *, deep: bool) -> Iterator[str]:
    """Yield the values as text; ``deep`` adds keys, and the lines of texts."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if deep:
                yield str(key)
            yield from _texts(inner, deep=deep)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, deep=deep)
    else:
        yield str(value)
        if deep and isinstance(value, str):
            yield from (line.strip() for line in value.splitlines())


# --- what it comes to ----------------------------------------------------------------------------


def measure(
    source: str, *, limit: int | None = None, tell: Callable[[str], None] = lambda _line: None
) -> Suite:
    """Return the means over a suite.

    Parameters
    ----------
    source
        ``bfcl`` or ``agentdojo[:SUITE]``.
    limit
        So many tasks only, the same that an evaluation draws.
    tell
        Told which those are.

    Raises
    ------
    UsageError
        The suite has no gold calls, or its package is not installed.
    """
    needs: list[dict[str, Need]] = []
    others: dict[str, int] = dict.fromkeys(RULES, 0)
    gold = gold_of(source)
    drawn = None if limit is None else _draw(source, limit, tell)
    for task in gold:
        if drawn is not None and task.id not in drawn:
            continue
        needs.append(needs_of(task))
        for name, rule in RULES.items():
            others[name] += sum(len(levels(turn, rule)) + 1 for turn in task.turns)
    if not needs:
        raise UsageError(f"{source} has no task")
    count = len(needs)
    return Suite(
        name=source,
        tasks=count,
        needs={name: _mean([need[name] for need in needs]) for name in needs[0]},
        other_rules={name: total / count for name, total in others.items()},
    )


def _draw(source: str, most: int, tell: Callable[[str], None]) -> frozenset[str]:
    """Return the ids of the tasks that an evaluation of the suite would draw."""
    given = read_suite(source)
    drawn = sample(given, most)
    for remark in drawn.remarks[len(given.remarks) :]:
        tell(remark)
    return frozenset(task.id for task in drawn.tasks if not task.excluded)


def needs_of(task: GoldTask) -> dict[str, Need]:
    """Return what one task needs, by protocol."""
    stubs = "\n\n".join(tool.stub() for tool in task.tools)
    each: dict[str, tuple[Write, Group]] = {
        "json, one call a turn": (_as_json, lambda t: [[call] for call in t.calls]),
        "json, parallel calls": (_as_json, lambda t: levels(t, taken_from)),
        "code": (_as_code, lambda t: [list(t.calls)] if t.calls else []),
    }
    return {name: _conversation(task, stubs, write, group) for name, (write, group) in each.items()}


def _conversation(
    task: GoldTask,
    described: str,
    write: Write,
    group: Group,
) -> Need:
    """Follow a conversation and count the tokens that each turn sends and writes."""
    history, turns, prompt, written = len(described), 0, 0, 0
    for turn in task.turns:
        history += len(turn.request)
        for calls in group(turn):
            action = len(write(calls))
            turns, prompt, written = turns + 1, prompt + history, written + action
            history += action + sum(len(_result_text(call)) for call in calls)
        turns, prompt, written = turns + 1, prompt + history, written + REPLY_CHARS
        history += REPLY_CHARS
    return Need(
        turns=turns,
        prompt_tokens=prompt / CHARS_PER_TOKEN,
        completion_tokens=written / CHARS_PER_TOKEN,
    )


def _as_json(calls: Sequence[GoldCall]) -> str:
    return json.dumps([{"name": c.name, "arguments": c.arguments} for c in calls], default=str)


def _as_code(calls: Sequence[GoldCall]) -> str:
    lines = (
        f"print({c.name}({', '.join(f'{k}={v!r}' for k, v in c.arguments.items())}))" for c in calls
    )
    return "```python\n" + "\n".join(lines) + "\n```"


def _result_text(call: GoldCall) -> str:
    return call.result if isinstance(call.result, str) else json.dumps(call.result, default=str)


def _mean(needs: Sequence[Need]) -> Need:
    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(needs)

    return Need(
        turns=mean(n.turns for n in needs),
        prompt_tokens=mean(n.prompt_tokens for n in needs),
        completion_tokens=mean(n.completion_tokens for n in needs),
    )


def oracle_text(suite: Suite) -> str:
    """Return the suite's table as Markdown."""
    lines = [
        f"{suite.name}, {suite.tasks} tasks, means per task when nothing goes wrong:",
        "",
        "| protocol | turns | prompt tokens | written tokens |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {need.turns:.2f} | {need.prompt_tokens:,.0f} |"
            f" {need.completion_tokens:,.0f} |"
            for name, need in suite.needs.items()
        ),
        "",
        "Turns of parallel calls under each rule of what waits for what: "
        + ", ".join(f"{name} {turns:.2f}" for name, turns in suite.other_rules.items())
        + ".",
    ]
    return "\n".join(lines)


def write_oracle(suite: Suite, folder: Path) -> Path:
    """Keep the numbers as JSON; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", suite.name)
    path = folder / f"oracle-{name}.json"
    data: dict[str, Any] = asdict(suite)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Print a suite's table and keep its numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle")
    parser.add_argument("suite")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    suite = measure(options.suite, limit=options.limit, tell=print)
    print(oracle_text(suite))
    if options.out is not None:
        print(write_oracle(suite, options.out))


if __name__ == "__main__":
    try:
        main()
    except KernelAgentError as error:
        sys.exit(f"oracle: {error}")
