"""Readings in words: the question that has one reading alone, and five that a table answers.

A name is put in quotation marks unless it is one plain word that the vocabulary does not hold and
no other column shares. So what is offered is answered, without being tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kernel_agent.offline.grammar import Group, Reading, readable_unit
from kernel_agent.offline.table import Column, Table, stem
from kernel_agent.offline.words import PHRASES

MOST = 5
_LONGEST = 60  # characters of a name that stands in a question
WORDS = {"mean": "average", "median": "median", "sum": "total", "max": "highest", "min": "lowest"}
"""A statistic -> its word, in questions and in answers."""


def say(reading: Reading, table: Table) -> str:
    """Return the question that has this reading."""
    measures = " and ".join(_name(column, table) for column in reading.measures)
    by = " and ".join(_group(group, table) for group in reading.groups)
    by = by if by.startswith("per ") or not by else f"by {by}"
    ends = {"highest": "top", "lowest": "bottom", "both": "top and bottom"}.get(reading.order, "")
    if reading.kind == "top":
        return f"{ends} {reading.n} {_rows(table)} by {measures}"
    rows = _rows(table)
    what = f"number of {rows}"
    if reading.stats != ("count",):
        words = [WORDS[stat] for stat in reading.stats]
        what = f"{words[0]} {measures}" if len(words) == 1 else measures
    if reading.kind == "number" and reading.n:
        return f"{ends} {reading.n} {by.removeprefix('by ').removeprefix('per ')} by {what}"
    return f"{what} {by}".strip()


def describe(reading: Reading) -> str:
    """Return a reading in the words of the columns, for a thought or a title."""
    measures = " and ".join(column.name for column in reading.measures)
    words = [WORDS.get(stat, stat) for stat in reading.stats]
    what = "number of rows" if words == ["count"] else f"{' and '.join(words)} {measures}"
    by = f" by {' and '.join(group.name for group in reading.groups)}" if reading.groups else ""
    few = f", the {reading.n} {reading.order.replace('both', 'highest and lowest')}"
    return f"{what}{by}{few if reading.n else ''}"


def offers(table: Table, readings: tuple[Reading, ...] = ()) -> list[str]:
    """Return five questions that are answered: these readings, then one of each kind."""
    said = [say(reading, table) for reading in readings if _can_be_said(reading)]
    asked = (f"{text[0].upper()}{text[1:]}" for text in (*said, *_kinds(table)))
    return list(islice(dict.fromkeys(asked), MOST))


def _kinds(table: Table) -> Iterator[str]:
    sayable = [column for column in table.columns if _is_sayable(column)] if table.is_whole else []
    numbers = [column for column in sayable if column.is_measure and not column.is_year]
    numbers.sort(key=lambda column: (column.kind == "whole" and column.distinct <= 12, "id" in column.words))
    groups = [c for c in sayable if c.is_group and c.kind != "date" and 1 < c.distinct <= 30]
    groups.sort(key=lambda column: column.kind != "text")
    times = [Group(column=c, unit=readable_unit(c)) for c in sayable if c.kind == "date"]
    times += [Group(column=c) for c in sayable if c.is_year]
    for reading in _readings(numbers, groups, times):
        yield say(reading, table)
    rows = _rows(table)
    yield from ("what is in the table?", f"how many {rows} are there?", f"first 5 {rows}")
    yield from (f"last 5 {rows}", "how many columns are there?")


def _readings(
    numbers: list[Column], groups: list[Column], times: list[Group]
) -> Iterator[Reading]:
    for number in numbers[:1]:
        for group in [Group(column=c) for c in groups if c != number][:1] + times[:1]:
            yield Reading(kind="number", measures=(number,), stats=("mean",), groups=(group,))
    for column in groups[:1]:
        yield Reading(kind="number", stats=("count",), groups=(Group(column=column),))
    for number in numbers[:1]:
        yield Reading(kind="top", measures=(number,), n=5, order="highest")


def _group(group: Group, table: Table) -> str:
    name = _name(group.column, table)
    if group.unit in ("", group.column.finest):
        return name
    return f"{group.unit} of {name}" if group.unit.startswith("calendar") else f"per {group.unit} of {name}"


def _can_be_said(reading: Reading) -> bool:
    columns = (*reading.measures, *(group.column for group in reading.groups))
    return all(_is_sayable(column) for column in columns)


def _is_sayable(column: Column) -> bool:
    return 0 < len(column.name) <= _LONGEST and '"' not in column.name and column.name.isprintable()


def _name(column: Column, table: Table) -> str:
    """Return a name as a question has it; in quotation marks where it could be taken otherwise."""
    shared = [other for other in table.columns if set(column.words) <= set(other.words)]
    plain = column.name.isidentifier() and column.name.isascii() and len(shared) == 1
    return column.name if plain and (column.name.lower(),) not in PHRASES else f'"{column.name}"'


def _rows(table: Table) -> str:
    """Return a word for rows that no column has."""
    taken = {word for column in table.columns for word in column.words}
    return next((w for w in ("rows", "records", "entries", "lines") if stem(w) not in taken), "rows")
