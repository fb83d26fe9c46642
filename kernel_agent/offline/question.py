"""The parsed question: the record that recipes work from."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_agent.offline.reader import Filter
from kernel_agent.offline.schema import Column, singular
from kernel_agent.offline.words import ADDITIVE, TELLING


@dataclass(frozen=True, kw_only=True)
class Group:
    """A grouping key: a column, or a part of a date.

    ``part`` is empty, ``year``, ``quarter``, ``period`` (month of a year), ``month`` (January to
    December, years together), ``week``, ``day`` or ``weekday``.
    """

    column: Column
    part: str = ""

    @property
    def name(self) -> str:
        """The group in words."""
        names = {"": self.column.label, "period": "month", "month": "calendar month"}
        return names.get(self.part, self.part)

    @property
    def most(self) -> int:
        """Upper bound on the number of groups."""
        low, high = self.column.low or "0", self.column.high or "0"
        if not self.part:
            return self.column.distinct
        if self.part in ("month", "weekday"):
            return 12 if self.part == "month" else 7
        years = int(high[:4]) - int(low[:4]) + 1
        months = {"year": years, "quarter": 4 * years, "period": months_of(self.column) + 1}
        return min(months.get(self.part, self.column.distinct), self.column.distinct)

    @property
    def years(self) -> bool:
        """Whether the groups are years, as whole numbers."""
        return self.part == "year" or (self.column.year and not self.part)

    @property
    def temporal(self) -> bool:
        """Whether the groups follow each other in time."""
        return (self.column.kind == "date" and self.part not in ("month", "weekday")) or (
            self.column.year
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """A parsed question.

    Attributes
    ----------
    kind
        Names the recipe.
    stats
        pandas names of aggregates, in the order asked.
    stated
        Whether the question said the aggregate, or it was chosen here.
    n, direction
        How many of the ``highest`` or ``lowest``; 0 for all.
    target
        For shares: the conditions on what has the share; ``filters`` say of what.
    readings
        Misspelt words and how they were read.
    noun
        What the question calls the rows, in the plural.
    single
        Whether it only makes sense when every group has one row, which a look has to show.
    why
        Whether the first of the groups is to be explained by how many rows it has, and how large.
    """

    kind: str
    measures: tuple[Column, ...] = ()
    stats: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    filters: tuple[Filter, ...] = ()
    target: tuple[Filter, ...] = ()
    n: int = 0
    direction: str = ""
    stated: bool = True
    readings: tuple[str, ...] = ()
    noun: str = "rows"
    single: bool = False
    why: bool = False

    @property
    def calculates(self) -> bool:
        """Whether its measures are added up or averaged, rather than counted or picked from."""
        return bool(set(self.stats) - {"min", "max", "count"})


def additive(column: Column) -> bool:
    """Whether a column's values add up to something that one would ask for."""
    words = {singular(w) for w in column.words}
    return bool(ADDITIVE & words) and not TELLING & set(column.words)


def date_part(column: Column) -> str:
    """Choose the period that makes a readable number of groups of a date column."""
    if column.kind != "date" or not column.low or not column.high:
        return ""
    if all_new_year(column) or int(column.high[:4]) - int(column.low[:4]) >= 4:
        return "year"
    return "period" if months_of(column) >= 3 else "day"


def months_of(column: Column) -> int:
    """Return how many months lie between the first and the last date of a column."""
    low, high = column.low or "", column.high or ""
    return (int(high[:4]) - int(low[:4])) * 12 + int(high[5:7]) - int(low[5:7])


def all_new_year(column: Column) -> bool:
    """Whether dates only stand for years: one a year, each on 1 January."""
    if not column.low or not column.high:
        return False
    span = int(column.high[:4]) - int(column.low[:4]) + 1
    return column.low[5:10] == column.high[5:10] == "01-01" and column.distinct <= span
