"""The readings of a question: what it asks for, in full, in each way in which it can be read.

The letters of its marks are matched against a few patterns; what a pattern's parts stand for is then
looked up in the columns. A question with one reading is answered. :func:`read` refuses one that has
none, or several with different figures. Where only the statistic is open (total or average?) the
reading has both, and they are one answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kernel_agent.offline.marks import MOST_WAYS, Mark, left_over, tokens_of, ways
from kernel_agent.offline.table import Column, Table, stem
from kernel_agent.offline.words import LOWEST, NUMBERS, STATS, UNITS

_X = r"(?:UO+c|U|c)"
_BY = rf"O*(?P<by>[Bb])[BbO]*(?P<x>{_X}(?:A+[BbO]*{_X})*)"
_M = r"(?P<m>c(?:A+c)*)"
_S = r"(?:(?P<s>[SH])O*)?"
_TOP = r"(?P<top>N[Ht]|[Ht](?:A[Ht])?N?)"
_R = r"(?:kO*)?R"
_PATTERNS = [(kind, re.compile(pattern.replace(" ", ""))) for kind, pattern in (
    ("look", r"W?P | Y(?:O*P)? | W?C | (?:k?W?C?|k) I(?:O*[CR])* (?:[Bb]C)? (?:A+[kw])*"),
    ("rows", r"W?kR"),
    ("columns", r"W?kC"),
    ("head", r"(?P<top>fN|Nf)R"),
    ("distinct", r"kv(?P<x>c)"),
    ("count", r"W?vO*(?P<x>c)"),
    ("number", rf"W? {_S} {_M} E?"),
    ("number", rf"W?D?O* {_S} {_M} E?D? {_BY} E?"),
    ("number", rf"{_BY} A*W? {_S} {_M} E?"),
    ("number", rf"W?D?O* {_S} {_M} E?D? (?P<t>T) (?:{_BY})?"),
    ("number", rf"W?(?P<t>D)O* {_S} {_M} E?"),
    ("number", rf"W? {_S} {_M} E? (?P<t>D)"),
    ("number", rf"(?P<u>u) {_S} {_M} E? (?:{_BY})?"),
    ("count", rf"W? {_R} {_BY}"),
    ("count", rf"W?k {_BY} R?"),
    ("count", rf"{_BY} A*W? {_R}"),
    ("count", rf"W? {_R} (?P<t>T)"),
    ("count", rf"(?P<u>u) {_R}"),
    ("number", rf"(?P<which>W?N?) (?P<x>{_X}) i?(?P<h>[HK]) {_S} {_M} E?"),
    ("number", rf"(?P<which>W?) (?P<x>{_X}) (?P<sold>c) (?P<h>[HK])"),
    ("number", rf"(?P<which>W?) (?P<h>H) (?P<sold>c) (?P<x>{_X})"),
    ("count", rf"(?P<which>W?N?) (?P<x>{_X}) i?(?P<h>[HK]) {_R}"),
    ("number", rf"{_TOP} (?P<x>{_X}) b (?P<s>S)O* (?P<m>c)"),
    ("count", rf"{_TOP} (?P<x>{_X}) b {_R}"),
    ("names", rf"{_TOP} (?P<x>c) b (?P<m>c)"),
    ("top", rf"W? {_TOP} R? b (?P<m>c)"),
    ("top", r"(?P<top>W?N?Ri?[HK]) (?P<m>c)"),
    ("top", r"W?(?P<top>N[Ht]|[Ht]N) (?P<m>c) (?:(?:A+W?|i)c)*"),
)]  # fmt: skip
_COARSE = {"year": 0, "quarter": 1, "calendar quarter": 1, "month": 2, "calendar month": 2}
FEW = 5  # rows, where it is not said how many


@dataclass(frozen=True, kw_only=True)
class Group:
    """What rows are grouped by: a column, or a ``unit`` of its dates."""

    column: Column
    unit: str = ""

    @property
    def name(self) -> str:
        """Its name in the answer."""
        whole = self.unit in ("", self.column.finest)
        return self.column.name if whole else self.unit

    @property
    def is_time(self) -> bool:
        """Whether its values follow each other in time."""
        return bool(self.unit) or self.column.is_year


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is asked, in full.

    ``kind`` is ``look``, ``rows``, ``columns``, ``head``, ``tail``, ``distinct``, ``number`` (of
    ``measures``, or of rows where the only statistic is ``count``) or ``top`` (rows). ``n`` is how
    many of the ``highest`` or ``lowest``, or of ``both``; 0 for all.
    """

    kind: str
    measures: tuple[Column, ...] = ()
    stats: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    n: int = 0
    order: str = ""


class Refused(Exception):
    """A question that is not answered; ``readings`` are those between which it does not choose."""

    def __init__(self, reason: str, readings: Sequence[Reading] = ()) -> None:
        super().__init__(reason)
        self.readings = tuple(readings)


def read(question: str, table: Table) -> Reading:
    """Return the one reading of a question about a table.

    Raises
    ------
    Refused
        It has none, or several with different figures.
    """
    tokens = tokens_of(question)
    taken = list(ways(tokens, table))
    reasons: list[str] = []
    found: dict[Reading, tuple[str, ...]] = {}
    for way in taken:
        for reading in _readings(way, table, reasons):
            same = replace(reading, stats=() if not reading.n else reading.stats)
            found[same] = tuple(dict.fromkeys((*found.get(same, ()), *reading.stats)))
    readings = [replace(reading, stats=stats) for reading, stats in found.items()]
    if len(readings) == 1 and len(taken) < MOST_WAYS:
        return readings[0]
    if readings:
        raise Refused("it can be read in several ways, with different figures", readings)
    if word := left_over(tokens, table):
        raise Refused(f"the word “{word[:60]}” is no column's and none that it knows")
    raise Refused(reasons[0] if reasons else "it knows each word, but not what is asked")


def _readings(way: Sequence[Mark], table: Table, reasons: list[str]) -> Iterator[Reading]:
    """Yield the readings of one way to take the words; why there are none goes to ``reasons``."""
    marks = [mark for mark in way if mark.letter]
    letters = "".join(mark.letter for mark in marks)
    for kind, pattern in _PATTERNS:
        for said in dict.fromkeys((letters, re.sub(r"(?<=.)O*P$", "", letters.strip("A")))):
            start = len(letters) - len(letters.lstrip("A")) if said != letters else 0
            if match := pattern.fullmatch(said):
                spans = {
                    name: marks[start + match.start(name) : start + match.end(name)]
                    for name in pattern.groupindex
                }
                behind = [m for m in marks if m.letter == "E"]
                try:
                    yield from _Parts(spans, behind, table).readings(kind)
                except Refused as refused:
                    reasons.append(str(refused))


class _Parts:
    """The parts of a question by their names in the pattern, and what they stand for."""

    def __init__(self, spans: dict[str, list[Mark]], behind: list[Mark], table: Table) -> None:
        self._spans, self._behind, self._table = spans, behind, table

    def _has(self, name: str) -> bool:
        return bool(self._spans.get(name))

    def readings(self, kind: str) -> Iterator[Reading]:
        """Yield what the pattern of that kind asks for."""
        if kind in ("look", "rows", "columns"):
            yield Reading(kind=kind)
        elif kind == "head":
            last = any(mark.text == "last" for mark in self._spans["top"])
            yield Reading(kind="tail" if last else "head", n=self._order()[0])
        elif kind in ("top", "names"):
            yield from self._rows(kind)
        else:
            yield from self._numbers(kind)

    def _numbers(self, kind: str) -> Iterator[Reading]:
        measures = self._measures() if kind == "number" else ()
        n, order = self._order()
        for groups in product(*self._group_options()):
            if len({(g.column.name, g.unit) for g in groups}) < len(groups):
                raise Refused("it groups twice by the same")
            if same := {g.column.name for g in groups} & {m.name for m in measures}:
                raise Refused(f"{same.pop()} cannot be both the number and the group")
            if kind == "distinct":
                yield Reading(kind=kind, groups=groups)
                continue
            stats = ("count",) if kind == "count" else self._stats(order, grouped=bool(groups))
            for some in [(stat,) for stat in stats] if n else [stats]:
                yield Reading(kind="number", measures=measures, stats=some, groups=groups,
                              n=n, order=order)  # fmt: skip

    def _rows(self, kind: str) -> Iterator[Reading]:
        (measure,) = self._measures()
        n, order = self._order()
        yield Reading(kind="top", measures=(measure,), n=n or FEW, order=order)
        column = self._spans["x"][0].columns[0] if kind == "names" else None
        if column is not None and (column.distinct < self._table.rows or not column.is_group):
            for stat in ("sum", "mean"):
                yield Reading(kind="number", measures=(measure,), stats=(stat,),
                              groups=(Group(column=column),), n=n or FEW, order=order)  # fmt: skip

    # --- what the parts stand for --------------------------------------------------------------

    def _measures(self) -> tuple[Column, ...]:
        marks = [*self._spans.get("m", []), *self._spans.get("sold", [])]
        columns = tuple(dict.fromkeys(column for mark in marks for column in mark.columns))
        for column in columns:
            if not column.is_measure:
                raise Refused(f"{column.name} holds no numbers to calculate with")
        return columns

    def _stats(self, order: str, *, grouped: bool) -> tuple[str, ...]:
        said = {STATS[mark.text] for mark in self._behind}
        for mark in self._spans.get("s", []):
            lowest = mark.text in LOWEST
            said.add(STATS[mark.text] if mark.letter == "S" else "min" if lowest else "max")
        if len(said) > 1:
            raise Refused("it names two statistics for one number")
        if said:
            return tuple(said)
        if self._has("sold"):
            return ("sum",)
        if not grouped:
            raise Refused("it does not say which number: the average, the total, the highest?")
        return ("mean", "sum", "min" if order == "lowest" else "max") if order else ("mean", "sum")

    def _order(self) -> tuple[int, str]:
        """Return how many of which end are asked for."""
        marks = [m for name in ("which", "top", "h") for m in self._spans.get(name, ())]
        said = [int(NUMBERS.get(mark.text, mark.text)) for mark in marks if mark.letter == "N"]
        ends = {mark.text in LOWEST for mark in marks if mark.letter in "HKt"}
        order = "both" if len(ends) > 1 else "lowest" if True in ends else "highest" if ends else ""
        return (said or [FEW if self._has("top") else 0])[0], order

    def _group_options(self) -> list[list[Group]]:
        """Return for each group what it can be; several columns of dates are several readings."""
        marks = self._spans.get("x", [])
        loose = self._has("which") or any(mark.letter == "b" for mark in self._spans.get("by", ()))
        found: list[list[Group]] = []
        for part in re.finditer(r"UO+c|U|c", "".join(mark.letter for mark in marks)):
            mark, of = marks[part.start()], marks[part.end() - 1]
            if mark.letter == "c":
                found.append([_column_group(column) for column in mark.columns])
            elif of.letter == "c":
                found.append(_units(mark.text, of.columns))
            else:
                found.append(_units(mark.text, self._table.dates, loose=loose))
        if self._has("u"):
            found.append(_units(self._spans["u"][0].text, self._table.dates))
        if self._has("t"):
            found.append(self._times())
        return found

    def _times(self) -> list[Group]:
        """Return what “over time” can be: the dates in a readable number of parts, or the years."""
        years = [column for column in self._table.columns if column.is_year]
        groups = [Group(column=date, unit=readable_unit(date)) for date in self._table.dates]
        groups = groups or [_column_group(column) for column in years]
        if not groups:
            raise Refused("it asks about time, and no column holds dates or years")
        return groups


def _column_group(column: Column) -> Group:
    if not column.is_group:
        many = f"{column.distinct:,} different numbers" if column.kind == "number" else "lists"
        raise Refused(f"{column.name} makes no groups: it holds {many}")
    return Group(column=column, unit=column.finest if column.kind == "date" else "")


def _units(text: str, dates: Iterable[Column], *, loose: bool = False) -> list[Group]:
    """Return a unit of each column of dates; “by month” of several years has two readings."""
    unit = UNITS.get(text, text if " " in text else stem(text))
    found = []
    for date in dates:
        if date.kind != "date":
            raise Refused(f"{date.name} holds no dates{_doubt(date)}")
        if _COARSE.get(unit, 3) <= _COARSE.get(date.finest, 3):
            found.append(Group(column=date, unit=unit))
            if loose and unit in ("month", "quarter") and date.months > 12:
                found.append(Group(column=date, unit=f"calendar {unit}"))
    if not found:
        raise Refused(f"it asks by {unit}, and no column holds dates that tell it")
    return found


def _doubt(column: Column) -> str:
    return f" that can be read in one way only ({column.doubt} both fit)" if column.doubt else ""


def readable_unit(date: Column) -> str:
    """Return the unit that makes a readable number of parts of a column of dates."""
    if date.finest == "year" or date.months > 4 * 12:
        return "year"
    return "month" if date.finest == "month" or date.months >= 3 else "day"
