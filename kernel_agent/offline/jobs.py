"""Input and output of recipes, and the phrases that several recipes share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from keyword import iskeyword

from kernel_agent.offline.cells import quote
from kernel_agent.offline.question import Group, Question
from kernel_agent.offline.schema import Column, Table
from kernel_agent.offline.writing import (
    STAT_WORDS,
    computed,
    insert,
    inside,
    item,
    tell,
    unit,
)

MOST_NAMED = 24  # groups that a sentence names; of more it names the first and the last


@dataclass(frozen=True, kw_only=True)
class Job:
    """Input of a recipe.

    Attributes
    ----------
    source
        The variable that holds the rows in question: the table's, or that of the selection.
    rows
        How many rows it holds.
    """

    question: Question
    table: Table
    source: str
    rows: int

    @property
    def measure(self) -> Column:
        """The column that is calculated with."""
        return self.question.measures[0]

    @property
    def few(self) -> bool:
        """Whether what was seen of the columns says that a sentence can name all groups."""
        return math.prod(g.most for g in self.question.groups) <= MOST_NAMED

    @property
    def which(self) -> str:
        """The conditions in words, as they follow the subject of a sentence."""
        return f" ({inside(tell(self.question.filters))})" if self.question.filters else ""


Work = tuple[str, str, str]
"""Thought, computing code, and the closing code that calls ``final_answer``."""


def final(sentence: str, before: str = "") -> str:
    """Return the closing code: its preparation and the call with an f-string."""
    return f'{before}final_answer({"f" * ("{" in sentence)}"{sentence}")'


def also(closing: str, sentence: str) -> str:
    """Return the closing code with one more sentence in its answer."""
    is_template = 'final_answer(f"' in closing
    more = inside(sentence) if is_template else quote(sentence)[1:-1]
    return f'{closing.removesuffix(chr(34) + ")")} {more}")'


def known_clause(job: Job) -> str:
    """Return the clause that says how many rows have a value, when some have not."""
    if not job.measure.missing:
        return ""
    return (
        f" ({{known:,}} of {{len({job.source}):,}} {job.question.noun} have a known"
        f" {inside(job.measure.label)})"
    )


def known_line(job: Job) -> str:
    """Return the line that counts the rows with a value, when some have none."""
    if not job.measure.missing:
        return ""
    return f"known = {item(job.source, job.measure)}.notna().sum()\n"


def names_of(columns: list[Column]) -> list[str]:
    """Return a Python name for each column."""
    return [name_of(c) for c in columns]


_TAKEN_TEXT = "missing known value row parts listed top shared extreme counts pd plt fig ax"
_TAKEN = set(_TAKEN_TEXT.split())


def name_of(column: Column) -> str:
    """Return a Python name for a column's value."""
    text = re.sub(r"[^a-z0-9]+", "_", column.label.lower()).strip("_") or "column"
    return (
        text
        if text.isidentifier() and text not in _TAKEN and not iskeyword(text)
        else f"column_{text}"
    )


def in_order(groups: tuple[Group, ...]) -> bool:
    """Whether groups have an order of their own that a list of them should keep."""
    return groups[0].temporal or groups[0].part == "month"


def month_names(variable: str, groups: tuple[Group, ...]) -> str:
    """Return the line that turns month numbers of an index into names."""
    if len(groups) != 1 or groups[0].part != "month":
        return ""
    return (
        f"\n{variable}.index = [pd.Timestamp(2000, month, 1).month_name()"
        f" for month in {variable}.index]"
    )


def group_label(groups: tuple[object, ...]) -> str:
    """Return how one or two group keys stand in a list."""
    return "{first}, {second}" if len(groups) == 2 else "{group}"


def listing(
    items: str, figures: str, value: str, *, few: bool, label: str = "{group}", sep: str = "; "
) -> str:
    """Return the code that joins groups and their figures to a text.

    Parameters
    ----------
    items
        What is gone through: a group and its ``value`` (or several) at a time.
    figures
        How those stand in the text.
    few
        Whether there are so few that they need no shortening.
    label
        How the group stands in the text; its names are those that the loop gives.
    sep
        What stands between groups.
    """
    names = ", ".join(re.findall(r"\{(\w+)\}", label))
    each = f'f"{label} {figures}" for {f"({names})" if "," in names else names}, {value} in {items}'
    if few:
        return f'listed = "{sep}".join({each})\n'
    return (
        f"parts = [{each}]\n"
        f'listed = "{sep}".join(parts if len(parts) <= {MOST_NAMED} else'
        ' [*parts[:12], "…", *parts[-6:]])\n'
    )


def incomplete(job: Job, columns: Iterable[Column]) -> list[Column]:
    """Return the columns that some of the rows lack; rows chosen by a value of one have it."""
    chosen = {f.column.name for f in job.question.filters if f.test not in ("!=", "not in")}
    return [c for c in columns if c.missing and c.name not in chosen]


def _incomplete(job: Job) -> list[Group]:
    lacking = incomplete(job, [g.column for g in job.question.groups])
    return [g for g in job.question.groups if g.column in lacking]


def unknown_groups(job: Job) -> str:
    """Return the line that counts the rows which belong to no group."""
    missing = _incomplete(job)
    if not missing:
        return ""
    return f"unknown = {lacking(job.source, [g.column for g in missing])}\n"


def lacking(source: str, columns: list[Column]) -> str:
    """Return the expression that counts the rows without a value in one of the columns."""
    if len(columns) == 1:
        return f"{item(source, columns[0])}.isna().sum()"
    return f"{source}[[{', '.join(quote(c.name) for c in columns)}]].isna().any(axis=1).sum()"


def unknown_said(job: Job) -> str:
    """Return the clause about the rows that belong to no group."""
    missing = _incomplete(job)
    if not missing:
        return ""
    names = " or ".join(inside(g.name) for g in missing)
    return f" ({{unknown}} {job.question.noun} without a known {names} are left out)"


def labels_of(variable: str, columns: list[Column]) -> list[str]:
    """Return the expressions of columns that name rows, with a word where a name is missing."""
    unknown = '.fillna("unknown")'
    return [
        item(variable, c) + (unknown if c.missing and c.kind == "text" else "") for c in columns
    ]


def telling_columns(job: Job) -> list[Column]:
    """Return the first few columns that tell a row without a name from the others."""
    columns = [c for c in job.table.columns if c.kind in ("text", "date", "bool") or c.year]
    return columns[:4]


def told_stat(stat: str, column: Column) -> str:
    """Return “average body mass”; a column whose name says so already is not repeated."""
    word = STAT_WORDS[stat]
    return column.label if column.label.startswith(word) else f"{word} {column.label}"


def told_value(name: str, column: Column, stat: str) -> str:
    """Return the replacement field of a figure, with its unit."""
    mark = "" if stat == "var" else unit(column)
    return insert(name, computed(column, stat)) + mark
