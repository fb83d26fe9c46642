"""A reading in words: the question that has this reading, and five that a table answers.

A name is put in quotation marks unless it is one plain word that the vocabulary does not hold and
no other column shares. So what is offered is answered, without being tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from kernel_agent.offline.grammar import Group, Reading, readable_unit
from kernel_agent.offline.table import Column, Table, stem
from kernel_agent.offline.words import PHRASES

WORDS = {"mean": "average", "median": "median", "sum": "total", "max": "highest", "min": "lowest"}
"""A statistic -> its word, in questions and in answers."""

_MOST = 5
_LONGEST_NAME = 60  # characters
_ENDS = {"highest": "top", "lowest": "bottom", "both": "top and bottom"}


def say(reading: Reading, table: Table) -> str:
    """Return the question that has this reading."""
    kind, rows = reading.kind, _rows(table)
    if kind in ("look", "rows", "columns"):
        what = "What is in the table?" if kind == "look" else f"How many {kind} are there?"
        return what.replace("rows", rows)
    if kind in ("head", "tail"):
        return f"{'First' if kind == 'head' else 'Last'} {reading.n} {rows}"
    measures = " and ".join(_name(column, table) for column in reading.measures)
    groups = [_group(group, table) for group in reading.groups]
    stats = [WORDS.get(stat, f"number of {rows}") for stat in reading.stats]
    said = f"{' and '.join(stats)} {measures}".strip()
    if reading.n:
        some = "".join(groups).removeprefix("by ").removeprefix("per ")
        said = f"{_ENDS[reading.order]} {reading.n} {some or rows} by {said}"
    elif groups:
        said = f"{said} {' and '.join(groups)}"
    return f"{said[0].upper()}{said[1:]}"


def offers(table: Table, question: str, readings: Sequence[Reading] = ()) -> list[str]:
    """Return five questions that are answered: these readings, then one of each kind.

    Columns that the refused question names come first.
    """
    asked = [*filter(_can_be_said, readings), *_kinds(table, question)]
    return list(islice(dict.fromkeys(say(reading, table) for reading in asked), _MOST))


def _kinds(table: Table, question: str) -> Iterator[Reading]:
    words = {stem(word) for word in re.findall(r"\w+", question.lower())}
    sayable = [column for column in table.columns if _is_sayable(column)] if table.is_whole else []
    sayable.sort(key=lambda c: not words & {stem(word) for word in c.words})
    numbers = [c for c in sayable if c.is_measure and not c.is_year]
    numbers.sort(key=lambda c: (c.kind == "whole" and c.distinct <= 12, "id" in c.words))
    groups = [c for c in sayable if c.is_group and c.kind != "date" and 1 < c.distinct <= 30]
    groups.sort(key=lambda c: (c.kind != "text", c in numbers[:1]))
    times = [Group(column=c, unit=readable_unit(c)) for c in sayable if c.kind == "date"]
    times += [Group(column=c) for c in sayable if c.is_year]
    for number in numbers[:1]:
        for group in [Group(column=c) for c in groups[:1] if c != number] + times[:1]:
            yield Reading(kind="number", measures=(number,), stats=("mean",), groups=(group,))
    for column in groups[:1]:
        yield Reading(kind="number", stats=("count",), groups=(Group(column=column),))
    for number in numbers[:1]:
        yield Reading(kind="top", measures=(number,), n=5, order="highest")
    yield from (Reading(kind="look"), Reading(kind="rows"), Reading(kind="head", n=5))
    yield from (Reading(kind="tail", n=5), Reading(kind="columns"))


def _group(group: Group, table: Table) -> str:
    name = _name(group.column, table)
    if group.unit in ("", group.column.finest):
        return f"by {name}"
    return f"{'by' if ' ' in group.unit else 'per'} {group.unit} of {name}"


def _can_be_said(reading: Reading) -> bool:
    return all(map(_is_sayable, [*reading.measures, *(group.column for group in reading.groups)]))


def _is_sayable(column: Column) -> bool:
    name = column.name
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable() and not set(name) & set('"“”')


def _name(column: Column, table: Table) -> str:
    """Return a name as a question has it; in quotation marks where it could be taken otherwise."""
    shared = [other for other in table.columns if set(column.words) <= set(other.words)]
    letter = PHRASES.get(column.name.lower())
    known = letter is not None and not (letter == "U" and not table.dates)
    plain = column.name.isidentifier() and column.name.isascii() and len(shared) == 1
    return column.name if plain and not known else f'"{column.name}"'


def _rows(table: Table) -> str:
    """Return a word for rows that no column has."""
    taken = {word for column in table.columns for word in column.words}
    return next(
        (w for w in ("rows", "records", "entries", "lines") if stem(w) not in taken), "rows"
    )
