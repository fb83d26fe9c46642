"""Questions that can be answered about a table, in the words of its own columns.

They stand beside a refusal: each of them is read by :func:`~.understanding.understand` before it is
offered, so that none is refused in its turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernel_agent.offline.question import additive
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column, Table
from kernel_agent.offline.understanding import understand

MOST = 3
MOST_COLUMNS, LONGEST_NAME = 40, 60


def suggest(table: Table) -> list[str]:
    """Return up to three questions of different kinds that are understood about a table."""
    return [
        found
        for questions in (_extremes(table), _changes(table), _counts(table), _wholes(table))
        if (found := next((q for q in questions if _is_understood(q, table)), ""))
    ][:MOST]


def _is_understood(question: str, table: Table) -> bool:
    try:
        understand(question, table)
    except NotUnderstood:
        return False
    return True


def _extremes(table: Table) -> Iterator[str]:
    for measure in _measures(table):
        for group in _groups(table):
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
    return [c for c in _sayable(table) if c.numeric and not c.numbering and not c.temporal]


def _groups(table: Table) -> list[Column]:
    return [c for c in _sayable(table) if c.groups and c.low_cardinality and not c.temporal]


def _sayable(table: Table) -> list[Column]:
    return [c for c in table.columns[:MOST_COLUMNS] if len(c.name) <= LONGEST_NAME]
