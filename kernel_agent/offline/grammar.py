"""The readings of a question: what it asks for, in full, in each way in which it can be read.

The letters of its marks are matched against patterns; what a pattern's parts stand for is then
looked up in the columns. A question with one reading is answered. :func:`read` refuses one that has
none, or several with different figures. Where only the statistic is open (total or average?) the
reading has both, and they are one answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kernel_agent.offline.marks import MOST_WAYS, Mark, left_over, tokens_of, ways
from kernel_agent.offline.table import Column, Table, stem
from kernel_agent.offline.words import COUNTED, LENGTHS, LOWEST, NUMBERS, SIZES, STATS, UNITS

_X = r"(?:UO+c|U|c)"
_BY = rf"A*O*(?P<by>[Bb][BbO]*)(?P<x>{_X}(?:(?:A+[BbO]*|O*[Bb][BbO]*){_X})*)"
_M = r"(?P<m>[cZ](?:A+[cZ])*)"
_S = r"(?:(?P<s>[SH](?:A+[SH])*)O*)?"
_R = r"(?:kO*)?R"
_N = r"(?P<n>N[Ht]|[Ht](?:A[Ht])?N)"
_PATTERNS = [(kind, re.compile(pattern.replace(" ", ""))) for kind, pattern in (
    ("look", r"W?O*P | Y(?:O*P)? | W?C"),
    ("look", r"W?C?I(?:O*[CRP])* (?:[Bb]C)? (?:A+[kw])* | kIR?[Bb]C"),
    ("rows", r"W?kRE?"),
    ("columns", r"W?kC"),
    ("head", r"(?P<n>fN|Nf)R"),
    ("list", r"W(?P<x>c)"),
    ("count", r"W?vg?O*(?P<x>c)"),
    ("count", rf"W? {_R} (?:{_BY}|(?P<t>T))"),
    ("count", rf"W?k {_BY} R?"),
    ("count", rf"{_BY} A*W? {_R}"),
    ("count", rf"(?P<u>u) {_R}"),
    ("count", rf"(?P<which>W?N?) (?P<x>{_X}) i?(?P<h>[HK]) {_R}"),
    ("count", rf"W?(?P<which>N?) (?P<h>K) R (?P<x>{_X})"),
    ("count", rf"{_N} (?P<x>{_X}) b {_R}"),
    ("number", rf"W? {_S} {_M} E?"),
    ("number", rf"W? {_S} {_M} E?(?P<d>D?) (?:{_BY}|(?P<t>T)) E?"),
    ("number", rf"W? {_S} {_M} E?D? (?P<t>T) {_BY}"),
    ("number", rf"{_BY} A*W? {_S} {_M} E?"),
    ("number", rf"W?(?P<t>e)O* {_S} {_M} E?T?"),
    ("number", rf"W?(?P<d>e)O* {_S} {_M} E? {_BY}"),
    ("number", rf"W? {_S} {_M} E? (?P<t>D)"),
    ("number", rf"(?P<u>u) {_S} {_M} E? (?:{_BY})?"),
    ("number", rf"(?P<which>W?N?) (?P<x>{_X}) i?(?P<h>[HK]) {_S} {_M} E?"),
    ("number", rf"(?P<which>W) (?P<x>{_X}) {_S} (?P<m>c) E?(?P<h>[HK])"),
    ("number", rf"(?P<which>W?) (?P<x>{_X}) (?P<sold>Z) (?P<h>[HK])"),
    ("number", rf"(?P<which>W?) (?P<h>H) (?P<sold>Z) (?P<x>{_X})"),
    ("number", rf"{_N} (?P<x>{_X}) b (?P<s>[SH])O* (?P<m>c)"),
    ("names", rf"{_N} (?P<x>{_X}) b (?P<m>c)"),
    ("top", r"W? (?P<n>N[Ht]|[Ht](?:A[Ht])?N?) R? b (?P<m>c)"),
    ("top", r"(?P<n>W?N?Ri?[HK]) (?P<m>c)"),
    ("top", r"W?(?P<n>N[Ht]|[Ht]N) (?P<m>c) (?:(?:A+W?|A*i)c)*"),
)]  # fmt: skip
_SIZE = {"year": 0, "quarter": 1, "calendar quarter": 1, "month": 2, "calendar month": 2}
FEW = 5  # rows, where it is not said how many


@dataclass(frozen=True, kw_only=True)
class Group:
    """What rows are grouped by: a column, or a ``unit`` of its dates."""

    column: Column
    unit: str = ""

    @property
    def name(self) -> str:
        """Its name in the answer."""
        return self.column.name if self.unit in ("", self.column.finest) else self.unit

    @property
    def is_time(self) -> bool:
        """Whether its values follow each other in time."""
        return bool(self.unit) or self.column.is_year


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is asked, in full.

    ``kind`` is ``look``, ``rows``, ``columns``, ``head``, ``tail``, ``top`` (rows) or ``number``:
    of ``measures``, or of rows where the only statistic is ``count``. ``n`` is how many of the
    ``highest`` or ``lowest``, or of ``both``; 0 for all.
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
    taken = ways(tokens, table)
    reasons: list[str] = []
    found: dict[Reading, tuple[str, ...]] = {}
    for way in taken:
        for reading in _readings(way, table, reasons):
            same = reading if reading.n else replace(reading, stats=())
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
    marks: list[Mark] = []
    for mark in way:
        named = marks and (marks[-1].columns or marks[-1].letter == "I")
        if mark.letter and not (named and mark.letter == "g"):
            marks.append(mark)
    while marks and marks[0].letter in "AO":
        del marks[0]
    whole = "".join(mark.letter for mark in marks)
    for letters in dict.fromkeys((whole, re.sub(r"(?<=.)O*P?A*$", "", whole))):
        for kind, pattern in _PATTERNS:
            if match := pattern.fullmatch(letters):
                parts = {name: marks[slice(*match.span(name))] for name in pattern.groupindex}
                parts["behind"] = [mark for mark in marks if mark.letter == "E"]
                try:
                    yield from _meant(kind, parts, table)
                except Refused as refused:
                    reasons.append(str(refused))


def _meant(kind: str, parts: Mapping[str, Sequence[Mark]], table: Table) -> Iterator[Reading]:
    """Yield what a pattern of that kind asks for, by what its parts stand for."""
    measures, (n, order) = _measures(parts, table), _order(parts)
    if kind in ("look", "rows", "columns"):
        yield Reading(kind=kind)
    elif kind == "head":
        last = any(mark.text == "last" for mark in parts["n"])
        yield Reading(kind="tail" if last else "head", n=n)
    elif kind == "top" or (kind == "names" and parts["x"][0].letter == "c"):
        if any(column.is_measure for mark in parts.get("x", ()) for column in mark.columns):
            raise Refused("it names two numbers to sort by")
        yield Reading(kind="top", measures=measures, n=n, order=order)
    if kind in ("list", "count", "number", "names"):
        for groups in product(*_group_options(parts, table)):
            _check(kind, parts, measures, groups)
            if n and measures and len(groups) == 1 and _is_row(groups[0], table):
                yield Reading(kind="top", measures=measures, n=n, order=order)
                continue
            stats = _stats(parts, order, grouped=bool(groups)) if measures else ("count",)
            for some in [(stat,) for stat in stats] if n else [stats]:
                yield Reading(kind="number", measures=measures, stats=some, groups=groups, n=n,
                              order=order)  # fmt: skip


def _check(
    kind: str,
    parts: Mapping[str, Sequence[Mark]],
    measures: Sequence[Column],
    groups: Sequence[Group],
) -> None:
    """Refuse groups that make no sense of what is asked."""
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise Refused("it groups twice by the same")
    if same := {group.column.name for group in groups} & {m.name for m in measures}:
        raise Refused(f"{same.pop()} cannot be both the number and the group")
    if kind == "list" and groups[0].column.kind not in ("text", "bool"):
        raise Refused(f"it does not say what of {names[0]}")
    if parts.get("d") and not any(g.is_time or g.column.is_measure for g in groups):
        raise Refused("it asks for a change, and by no time")


def _measures(parts: Mapping[str, Sequence[Mark]], table: Table) -> tuple[Column, ...]:
    """Return the columns to calculate with; codes are not added up, and not the largest."""
    marks = [*parts.get("m", ()), *parts.get("sold", ())]
    columns = {column: mark for mark in marks for column in mark.columns}
    ends = {mark.text for name in ("s", "n", "h") for mark in parts.get(name, ())}
    for column, mark in columns.items():
        if not column.is_measure:
            raise Refused(f"{column.name} holds no numbers to calculate with")
        codes = column.kind == "whole" and len(column.words) == 1
        codes = codes and 2 * column.distinct < table.rows
        plural = mark.text.endswith("s") and not column.name.lower().endswith("s")
        plural = plural and ends <= {"total", "sum"}
        if codes and (plural or ends & SIZES):
            raise Refused(f"{column.name} may only say which, and not how many or how large")
        if ends & {"longest", "shortest"} and not LENGTHS & set(column.words):
            raise Refused(f"it is not clear what is long in {column.name}")
        if column.is_year and not ends:
            raise Refused(f"{column.name} holds years")
    return tuple(columns)


def _order(parts: Mapping[str, Sequence[Mark]]) -> tuple[int, str]:
    """Return how many of which end are asked for."""
    marks = [mark for name in ("which", "n", "h") for mark in parts.get(name, ())]
    said = [int(NUMBERS.get(mark.text, mark.text)) for mark in marks if mark.letter == "N"]
    ends = {mark.text in LOWEST for mark in marks if mark.letter in "HKt"}
    order = "both" if len(ends) > 1 else "lowest" if True in ends else "highest" if ends else ""
    return (said or [FEW if parts.get("n") else 0])[0], order


def _stats(parts: Mapping[str, Sequence[Mark]], order: str, *, grouped: bool) -> tuple[str, ...]:
    """Return the statistics that are named; where none is, those that can be meant."""
    said = [mark for mark in parts.get("s", ()) if mark.letter != "A"]
    ends = {True: "min", False: "max"}
    stats = tuple(STATS.get(mark.text, ends[mark.text in LOWEST]) for mark in said)
    behind = tuple(STATS[mark.text] for mark in parts["behind"])
    if behind and stats and behind != stats:
        raise Refused("it names two statistics for one number")
    if not (stats or behind or grouped):
        raise Refused("it does not say which number: the average, the total, the highest?")
    open_ = ("mean", "sum", *([ends[order == "lowest"]] if order else []))
    return stats or behind or (("sum",) if parts.get("sold") else open_)


def _group_options(parts: Mapping[str, Sequence[Mark]], table: Table) -> Iterator[list[Group]]:
    """Yield for each group what it can be; several columns of dates are several readings."""
    marks, by = parts.get("x", ()), parts.get("by", ())
    loose = bool(parts.get("which")) or any(mark.letter == "b" for mark in by)
    per = any(mark.text == "per" for mark in by) and "m" in parts
    for part in re.finditer(r"UO+c|U|c", "".join(mark.letter for mark in marks)):
        mark, of = marks[part.start()], marks[part.end() - 1]
        if mark.letter == "c":
            yield [_column_group(mark.columns[0], table, per=per)]
        elif of.letter == "c":
            yield _units(mark.text, of.columns)
        else:
            yield _units(mark.text, table.dates, loose=loose)
    if parts.get("u"):
        yield _units(parts["u"][0].text, table.dates)
    if parts.get("t"):
        years = [_column_group(column, table) for column in table.columns if column.is_year]
        times = [Group(column=date, unit=readable_unit(date)) for date in table.dates] or years
        if not times:
            raise Refused("it asks about time, and no column holds dates or years")
        yield times


def _column_group(column: Column, table: Table, *, per: bool = False) -> Group:
    numbers = column.is_measure and column.distinct > max(30, table.rows // 2)
    if not column.is_group or (numbers and not column.is_year):
        raise Refused(f"{column.name} makes no groups: it holds {column.distinct:,} numbers")
    plural = column.name.lower().endswith("s") and column.name.lower() not in column.words
    if per and column.is_measure and (plural or COUNTED & set(column.words)):
        raise Refused(f"“per {column.name}” may be a ratio: for a group say “by”")
    return Group(column=column, unit=column.finest if column.kind == "date" else "")


def _units(text: str, dates: Iterable[Column], *, loose: bool = False) -> list[Group]:
    """Return a unit of each column of dates; “by month” of several years has two readings."""
    unit = UNITS.get(text, text if " " in text else stem(text))
    found = []
    for date in dates:
        if date.kind == "date" and _SIZE.get(unit, 3) <= _SIZE.get(date.finest, 3):
            found.append(Group(column=date, unit=unit))
            if loose and unit in ("month", "quarter") and date.months > 12:
                found.append(Group(column=date, unit=f"calendar {unit}"))
    if not found:
        raise Refused(f"it asks by {unit}, and no column holds dates in one style that tell it")
    return found


def readable_unit(date: Column) -> str:
    """Return the unit that makes a readable number of parts of a column of dates."""
    if date.finest == "year" or date.months > 4 * 12:
        return "year"
    return "month" if date.finest == "month" or date.months >= 3 else "day"


def _is_row(group: Group, table: Table) -> bool:
    """Whether each row is a group by itself."""
    column = group.column
    timed = column.kind == "date" and not (column.low[10:] == column.high[10:] == " 00:00:00")
    alone = group.unit in ("", "day", column.finest) and not timed
    return alone and column.distinct == table.rows
