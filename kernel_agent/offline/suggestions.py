"""Questions that can be answered about a table, in the words of its own columns.

They stand beside a refusal: each of them is read by :func:`~.understanding.understand` before it is
offered, so that none is refused in its turn. Only a few are read, however many columns a table has:
those about the first columns whose names are plain words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from kernel_agent.offline.question import additive
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column, Table, split_name
from kernel_agent.offline.understanding import understand
from kernel_agent.offline.words import CUES, STOP

MOST = 3
TRIED = 3  # columns of numbers, and columns of groups; at most 19 questions are read for a refusal
MOST_COLUMNS, LONGEST_NAME = 40, 60


def suggest(table: Table, read: Callable[[str, Table], object] = understand) -> list[str]:
    """Return up to three questions of different kinds that ``read`` understands about a table."""
    return [
        found
        for questions in (_extremes(table), _changes(table), _counts(table), _wholes(table))
        if (found := next((q for q in questions if _is_understood(q, table, read)), ""))
    ][:MOST]


def _is_understood(question: str, table: Table, read: Callable[[str, Table], object]) -> bool:
    try:
        read(question, table)
    except NotUnderstood:
        return False
    return True


def _extremes(table: Table) -> Iterator[str]:
    for measure, group in product(_measures(table), _groups(table)):
        if measure != group:
            of = "total" if additive(measure) else "average"
            yield f"Which {group.name} has the highest {of} {measure.name}?"


def _changes(table: Table) -> Iterator[str]:
    if any(column.temporal for column in table.columns):
        for measure in _measures(table):
            yield f"How did {measure.name} change over time?"


def _counts(table: Table) -> Iterator[str]:
    for group in _groups(table):
        yield f"How many rows are there for each {group.name}?"


def _wholes(table: Table) -> Iterator[str]:
    for measure in _measures(table):
        yield f"What is the average {measure.name}?"
    yield "How many rows are there?"


def _measures(table: Table) -> list[Column]:
    """Return a few columns of numbers; what also makes groups comes last."""
    found = [c for c in _sayable(table) if c.numeric and not c.numbering and not c.temporal]
    return sorted(found, key=lambda c: c.listed)[:TRIED]


def _groups(table: Table) -> list[Column]:
    """Return a few columns of groups; what also holds numbers comes last."""
    found = [c for c in _sayable(table) if c.groups and c.low_cardinality and not c.temporal]
    return sorted(found, key=lambda c: c.numeric)[:TRIED]


def _sayable(table: Table) -> list[Column]:
    """Return the first columns with short names, those of plain words before others."""
    found = [c for c in table.columns[:MOST_COLUMNS] if len(c.name) <= LONGEST_NAME]
    return sorted(found, key=_is_odd)


def _is_odd(column: Column) -> bool:
    """Whether a question may take a word of the name for a number or for one of its own words."""
    return any(
        not word.isalpha() or word in STOP or (word,) in CUES for word in split_name(column.name)
    )
