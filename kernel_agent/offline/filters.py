"""Row filters of a question: values, comparisons and times, read from its mentions."""

from __future__ import annotations

from dataclasses import replace

from kernel_agent.offline.reader import SKIPPED, Filter, NotUnderstood, Reader
from kernel_agent.offline.schema import Column, Value

_COPULA = {"is", "are", "was", "were", "be", "has", "have", "had"}
_LINKS = {"and", "or", "versus", "not", "noun", "context", "cmp", "cmphint", "col", "verb"}


class Conditions(Reader):
    """A reader that turns values, comparisons and times into conditions on rows."""

    def read_filters(self) -> None:
        """Use up every value, comparison and time in the question and collect their conditions."""
        spans = {
            "cmp": self._comparison, "cmphint": self._comparison, "orcmp": self._or_more,
            "when": self._time_span, "from": self._time_span, "by": self._read_between,
        }  # fmt: skip
        single = {
            "num": self._equality, "date": self._at_moment, "monthname": self._at_moment,
            "val": self._value,
        }  # fmt: skip
        for readers in (spans, single):
            for at, mention in enumerate(self.mentions):
                if at not in self.used and mention.kind in readers:
                    readers[mention.kind](at)
        self._check_or()
        self.filters = self._merge()

    def _number_at(self, at: int) -> tuple[float, str, int]:
        """Return the number at a place, the unit said after it, and the place behind both."""
        unit = self.mentions[at + 1].meaning if self.kind(at + 1) == "unit" else ""
        self.use(at, *([at + 1] if unit else []))
        return self.mentions[at].number, unit, at + 1 + bool(unit)

    def _comparison(self, at: int) -> None:
        mention = self.mentions[at]
        sign, _, about = mention.meaning.partition(" ")
        place = self.step(at, 1, ("verb", "than"))
        if self.kind(place) != "num":
            return  # "heavier than females" is a comparison of groups; the kind decides
        before = self._named_before(at)
        self.use(at, *range(at + 1, place))
        number, unit, behind = self._number_at(place)
        if about:
            column = self.by_hint(about, before)
        elif self.is_numeric(before) and before not in self.used:
            column = self.resolve(before, "numeric")
            self.use(before)
        elif self.is_numeric(behind) and behind not in self.used:
            column = self._counted_column(behind)
        elif self.filters and self.kind(before) == "and" and before - 1 in self.used:
            column = self.filters[-1].column
        else:
            raise NotUnderstood(f"“{mention.text} {number:g}” of which column")
        self._add(column, sign, (_tidy(number),), unit, at)

    def _named_before(self, at: int) -> int:
        """Return the place of what stands before a comparison, over “is” but not over “with”."""
        before = at - 1
        while self.kind(before) == "verb" and self.mentions[before].text.lower() in _COPULA:
            before -= 1
        return before

    def _counted_column(self, at: int) -> Column:
        """Return the column of “6 cylinders”; “3 flippers” does not count a flipper's length."""
        column = self.resolve(at, "numeric")
        if column.unit and not self.mentions[at].exact:
            raise NotUnderstood(f"a number of “{self.mentions[at].text}”")
        self.use(at)
        return column

    def _or_more(self, at: int) -> None:
        place = at - 1 - (self.kind(at - 1) == "unit")
        if self.kind(place) != "num":
            raise NotUnderstood(f"“{self.mentions[at].text}” than what")
        self.use(at)
        number, unit, _ = self._number_at(place)
        before = self.step(place, -1)
        beside = before if self.is_numeric(before) else self.step(at, 1)
        if not self.is_numeric(beside) or beside in self.used:
            raise NotUnderstood(f"“{number:g} {self.mentions[at].text}” of which column")
        column = self._counted_column(beside)
        self._add(column, self.mentions[at].meaning, (_tidy(number),), unit, at)

    def _read_between(self, at: int) -> None:
        if self.mentions[at].text.lower() == "between":
            self._time_span(at)

    def _at_moment(self, at: int) -> None:
        self._moment(at, "==", ())

    def _time_span(self, at: int) -> None:
        """Read “between A and B”, “from A to B”, “before A”, “since A”."""
        mention = self.mentions[at]
        first = self.step(at, 1)
        if self.kind(first) in ("date", "monthname"):
            if mention.kind != "when":
                raise NotUnderstood("a span between two dates; name whole years instead")
            self.use(at)
            self._moment(first, mention.meaning, (at,))
            return
        if self.kind(first) != "num":
            return
        second = self.step(first, 1, ("and", "when", "cmp", "unit", "verb"))
        pair = self.kind(second) == "num" and mention.kind != "when"
        if mention.kind == "from" and not pair:
            self.use(at)
            if self.kind(first + 1) == "onwards":
                self.use(first + 1)
                self._year((self.mentions[first].number,), ">=", first, at)
            return
        self.use(at)
        if mention.kind == "when":
            self._year((self.mentions[first].number,), mention.meaning, first, at)
            return
        if not pair:
            raise NotUnderstood("“between” needs two numbers or two groups")
        self.use(*range(first, second))
        low, high = self.mentions[first].number, self.mentions[second].number
        before = self.step(at, -1)
        if self.is_numeric(before) and before not in self.used and not self._years(low, high):
            self.use(before)
            _, unit, _ = self._number_at(second)
            column = self.resolve(before, "numeric")
            self._add(column, "between", (_tidy(low), _tidy(high)), unit, at)
        else:
            self._year((low, high), "between", second, at)

    def _years(self, *numbers: float) -> bool:
        timed = any(c.temporal for c in self.table.columns)
        return timed and all(1000 <= n <= 2200 and n == int(n) for n in numbers)

    def _year(self, numbers: tuple[float, ...], test: str, place: int, at: int) -> None:
        self.use(place)
        if not self._years(*numbers):
            raise NotUnderstood(f"“{numbers[0]:g}” is not a year that this table could hold")
        column = self.time_column(at)
        part = "year" if column.kind == "date" else ""
        self.filters.append(
            Filter(column=column, test=test, values=tuple(map(int, numbers)), part=part, at=at)
        )
        self._in_range(column, numbers, test)

    def _in_range(self, column: Column, years: tuple[float, ...], test: str) -> None:
        if column.low is None or column.high is None:
            return
        low, high = (float(t[:4]) for t in (column.low, column.high))
        outside = years[0] < low or years[0] > high
        if test == "==" and outside:
            raise NotUnderstood(
                f"the table has nothing for {years[0]:.0f}: {column.name} goes from"
                f" {low:.0f} to {high:.0f}"
            )

    def _moment(self, at: int, test: str, used: tuple[int, ...]) -> None:
        """Read a date (2014-05-01), a month of a year (2014-05, May 2014) or a month (in May)."""
        mention = self.mentions[at]
        self.use(at, *used)
        column = self.time_column(used[0] if used else at)
        if column.kind != "date":
            raise NotUnderstood(f"“{mention.text}”: the table knows years only")
        if mention.kind == "date":
            parts = [int(p) for p in mention.meaning.split("-")]
            text = "-".join(f"{p:02d}" for p in parts)
            part = "period" if len(parts) == 2 else ""
            self.filters.append(Filter(column=column, test=test, values=(text,), part=part, at=at))
            return
        after = at + 1
        if self.kind(after) == "num" and self._years(self.mentions[after].number):
            self.use(after)
            text = f"{self.mentions[after].number:.0f}-{mention.number:02.0f}"
            self.filters.append(
                Filter(column=column, test=test, values=(text,), part="period", at=at)
            )
        elif self.kind(after) == "num":
            raise NotUnderstood(f"“{mention.text} {self.mentions[after].text}”; write 2014-05-31")
        elif test == "==":
            values = (int(mention.number),)
            self.filters.append(
                Filter(column=column, test="==", values=values, part="month", at=at)
            )
        else:
            raise NotUnderstood(f"“{mention.text}” of which year")

    def _equality(self, at: int) -> None:
        """Read a number that no comparison took: “8 cylinders”, “class is 3”, “in 2009”."""
        number = self.mentions[at].number
        before, after = self.step(at, -1, ("verb",)), at + 1
        told = self.kind(at - 1) == "verb" and self.mentions[at - 1].text.lower() in ("is", "are")
        column: Column | None = None
        if self.kind(before) == "col" and before not in self.used:
            near = [c for c in self.mentions[before].columns if c.kind in ("whole", "number")]
            if len(near) == 1 and (near[0].temporal or told or _holds(near[0], number)):
                column = near[0]
                self.use(before)
        if column is None and self._years(number) and self.kind(after) != "unit":
            self._year((number,), "==", at, at)
            return
        if column is None and self.kind(after) == "col" and after not in self.used:
            near = [c for c in self.mentions[after].columns if _holds(c, number)]
            if len(near) == 1:
                column = near[0]
                self.use(after)
        if column is None:
            raise NotUnderstood(f"what the number {self.mentions[at].text} stands for")
        _, unit, _ = self._number_at(at)
        self._add(column, self._sign(at, before), (_tidy(number),), unit, at)

    def _sign(self, at: int, *between: int) -> str:
        """Return ``!=`` when a negation stands right before a place (or what it belongs to)."""
        for place in (at, *between):
            before = self.step(place, -1, (*SKIPPED, "from"))
            if self.kind(before) == "not":
                self.use(before)
                return "!="
        return "=="

    def _value(self, at: int) -> None:
        mention = self.mentions[at]
        before = self.step(at, -1, ("verb", "not", "cmp", "ask"))
        after = self.step(at, 1, ())
        candidates = list(zip(mention.columns, mention.values, strict=True))
        for place in (before, after):
            beside = self.mentions[place].columns if self.kind(place) == "col" else ()
            own = [(c, v) for c, v in candidates if c in beside]
            taken = self.kind(place - 1) in ("by", "which", "distinct") or place in self.used
            if own and not taken:
                candidates = own
                self.use(place)
                break
        if len({c.name for c, _ in candidates}) > 1:
            names = ", ".join(c.name for c, _ in candidates)
            raise NotUnderstood(f"“{mention.text}” is a value of several columns ({names})")
        self.use(at, *(p for p in range(before, at) if self.mentions[p].meaning == "=="))
        column = candidates[0][0]
        sign = self._sign(at, before if self.kind(before) == "col" else at)
        chained = self.kind(at - 1) in ("and", "or") and self.filters
        if chained and self.filters[-1].column == column and self.filters[-1].test == "!=":
            sign = "!="
        values = tuple(v for _, v in candidates)
        for value in values:
            self.filters.append(Filter(column=column, test=sign, values=(value,), at=at))

    def _merge(self) -> list[Filter]:
        """Join the values of each column; they must stand in one chain of “and” or “or”."""
        merged: list[Filter] = []
        last: list[int] = []
        for new in sorted(self.filters, key=lambda f: f.at):
            for i, old in enumerate(merged):
                both = _join_conditions(old, new)
                if both:
                    between = {self.kind(p) for p in range(last[i] + 1, new.at)}
                    if not between <= _LINKS:
                        raise NotUnderstood("conditions that belong to each other in pairs")
                    merged[i], last[i] = both, new.at
                    break
            else:
                merged.append(new)
                last.append(new.at)
        return merged

    def truths(self) -> None:
        """Read the yes-or-no columns that are left as conditions: “survived”, “non-smokers”."""
        for at in self.places("col"):
            columns = [c for c in self.mentions[at].columns if c.truth]
            if len(columns) != 1 or len(self.mentions[at].columns) != 1:
                continue
            yes, no = columns[0].truth or (1, 0)
            after = self.step(at, 1, ("verb", "cmp"))
            value = no if self._sign(at) == "!=" else yes
            if self.kind(after) == "truth":
                self.use(after)
            elif self.kind(after) == "not" and self.mentions[after].text.lower() == "no":
                self.use(after)
                value = no
            self.use(at, *(p for p in range(at + 1, after) if self.kind(p) == "cmp"))
            self.filters.append(Filter(column=columns[0], test="==", values=(value,), at=at))

    def _add(
        self, column: Column, test: str, values: tuple[Value, ...], unit: str, at: int
    ) -> None:
        if unit and column.unit and unit != column.unit:
            raise NotUnderstood(f"{column.name} is in {column.unit}, the question says {unit}")
        if unit and not column.unit and unit not in ("%", "USD", "EUR", "GBP", "years"):
            raise NotUnderstood(f"whether {column.name} is in {unit}")
        self.filters.append(Filter(column=column, test=test, values=values, at=at))

    def _check_or(self) -> None:
        """Refuse an “or” that does not stand between two values of one column."""
        for at in self.places("or"):
            before, after = self.step(at, -1), self.step(at, 1, (*SKIPPED, "not"))
            sides = [f.column.name for f in self.filters if f.at in (before, after)]
            if len(sides) < 2 or len(set(sides)) > 1:
                raise NotUnderstood("“or” between conditions on different things")
            self.use(at)


def _join_conditions(old: Filter, new: Filter) -> Filter | None:
    """Return two conditions on one column as one: Adelie and Gentoo become an ``in``."""
    if old.column != new.column or old.part != new.part:
        return None
    for one, many in (("==", "in"), ("!=", "not in")):
        if {old.test, new.test} <= {one, many}:
            values = tuple(dict.fromkeys((*old.values, *new.values)))
            return replace(old, test=many if len(values) > 1 else one, values=values)
    return None


def _holds(column: Column, number: float) -> bool:
    """Whether a number is one of the few listed values of a column."""
    return column.kind == "whole" and column.listed and number in column.values


def _tidy(number: float) -> Value:
    return int(number) if number == int(number) else number
