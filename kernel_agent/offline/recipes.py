"""Recipes: cells that answer each kind of question.

A recipe is a function from a question and the table to cells: one that computes, prints and
draws, and one that hands over the answer, a sentence in which the kernel fills in the figures.
Where rows are selected first, a separate cell does that and prints how many are left, and
:func:`solve` looks at that number before it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from kernel_agent.errors import ModelError
from kernel_agent.offline import counting, measuring, relating, sharing
from kernel_agent.offline.cells import Cell, quote
from kernel_agent.offline.conversation import failure
from kernel_agent.offline.jobs import Job, Work, also
from kernel_agent.offline.question import Question
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Table
from kernel_agent.offline.writing import conditions, inside, item, tell


def solve(question: Question, table: Table) -> Generator[Cell, str, None]:
    """Yield the cells that answer a question; is sent the output of each.

    Raises
    ------
    ModelError
        A cell failed, or what came back leaves the question open (said in one line).
    """
    source, kept = table.variable, table.rows
    note = f"I read {' and '.join(question.readings)}. " if question.readings else ""
    if question.filters:
        source = f"{table.variable}_selected"
        observation = yield _selection(question, table, source, note)
        note = ""
        kept = _count_kept(observation)
        if question.single and not re.search(r"^1 rows at most", observation, re.MULTILINE):
            raise NotUnderstood(
                "whether groups rank by their average, total or highest "
                f"{question.measures[0].name}"
            )
        if kept == 0 or (question.kind == "lookup" and kept != 1):
            yield _nothing(question, source, kept)
            return
    thought, code, closing = _RECIPES[question.kind](
        Job(question=question, table=table, source=source, rows=kept)
    )
    observation = yield Cell(thought=note + thought, code=code)
    _check(observation)
    for sentence in (*_doubts(question, table), table.other_sheets):
        closing = also(closing, sentence) if sentence else closing
    yield Cell(thought="That answers it; I put the computed figures into a sentence.", code=closing)


def _doubts(question: Question, table: Table) -> list[str]:
    """Return remarks on how the columns that the answer uses were read."""
    uses = [(f.column, f.part) for f in (*question.filters, *question.target)]
    uses += [(g.column, g.part) for g in question.groups] + [(c, "") for c in question.measures]
    used = [column for column, part in uses if part != "year"] if uses else list(table.columns)
    told = [(c.doubt, c.said_missing) for c in table.columns if c in used]
    return [sentence for both in told for sentence in both if sentence]


def _selection(question: Question, table: Table, source: str, note: str) -> Cell:
    columns = [c for c in question.measures if c.missing and question.kind != "missing"]
    single = ""
    if question.single:
        group = item(source, question.groups[0].column)
        single = f'\nprint({group}.value_counts().max(), "rows at most for each")'
    counts = "".join(
        f'\nprint({item(source, c)}.notna().sum(), "of them with a value of {inside(c.name)}")'
        for c in columns
    )
    return Cell(
        thought=f"{note}The question is about some of the rows only ({tell(question.filters)}).",
        code=(
            f"{source} = {table.variable}[{conditions(table.variable, question.filters)}]\n"
            f'print(len({source}), "of", len({table.variable}), "rows selected"){counts}{single}'
        ),
    )


def _count_kept(observation: str) -> int:
    """Return how many usable rows the selection left, from what it printed."""
    _check(observation)
    found = re.search(r"^(\d+) of \d+ rows selected$", observation, re.MULTILINE)
    if not found:
        raise ModelError("The offline analyst could not read how many rows were selected.")
    usable = re.findall(r"^(\d+) of them with a value", observation, re.MULTILINE)
    return 0 if usable and max(map(int, usable)) == 0 else int(found[1])


def _nothing(question: Question, source: str, kept: int) -> Cell:
    """Return the answer when no row fits; more than one row for a single value is refused."""
    which = tell(question.filters)
    if kept > 1:
        raise NotUnderstood(
            f"which value of {question.measures[0].name}: {kept} rows match ({which}); ask for"
            " the average, total, lowest or highest"
        )
    noun = question.noun
    if question.kind in ("count", "counts"):
        sentence = f'f"There are {{len({source})}} {noun} ({inside(which)})."'
    else:
        sentence = quote(f"No {noun} with known values match ({which}), so there is no figure.")
    return Cell(thought="Nothing is left to calculate with.", code=f"final_answer({sentence})")


def _check(observation: str) -> None:
    failed = failure(observation)
    if failed:
        line = " ".join(failed[1].split())[:200]
        raise ModelError(
            f"The offline analyst's own cell failed ({failed[0]}: {line}); ask in another way, or"
            " configure a model: --model NAME --base-url URL with OPENAI_API_KEY."
        )


_RECIPES: dict[str, Callable[[Job], Work]] = {
    "describe": counting.describe,
    "missing": counting.missing,
    "count": counting.count,
    "counts": counting.counts,
    "distinct": counting.distinct,
    "distinct_by": counting.distinct_by,
    "share": sharing.share,
    "shares": sharing.shares,
    "share_of_sum": sharing.share_of_sum,
    "aggregate": measuring.aggregate,
    "by": measuring.by_group,
    "rows": measuring.rows,
    "lookup": measuring.lookup,
    "correlation": relating.correlation,
    "correlates": relating.correlates,
    "trend": relating.trend,
    "distribution": measuring.distribution,
    "matching": counting.matching,
}
# fmt: skip
