"""Groups and measures of a question."""

from __future__ import annotations

from kernel_agent.offline.filters import Conditions
from kernel_agent.offline.matching import canonical
from kernel_agent.offline.question import (
    Group,
    Question,
    all_new_year,
)
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column, singular

_PARTS = {"year", "month", "quarter", "week", "day", "weekday"}


class Grouping(Conditions):
    """A reader that, beside conditions, finds groups, measures and how many are asked for."""

    groups: tuple[Group, ...] = ()
    n: int = 0
    direction: str = ""
    counting: bool = False

    def _top_n(self) -> None:
        """Take the number of “top 5”, “5 largest”, “three heaviest”."""
        for at in self.places("sup", "hint", "common"):
            for place in (at + 1, at - 1):
                number = self.mentions[place].number if self.kind(place) == "num" else 0
                if number and any(
                    c.distinct <= 12 and number in c.values
                    for c in (
                        self.mentions[place + 1].columns if self.kind(place + 1) == "col" else ()
                    )
                ):
                    continue  # “the lightest 4 cylinder car”
                if 1 <= number <= 100 and number == int(number) and self.kind(place + 1) != "unit":
                    self.use(place)
                    self.n = int(number)
                    break

    def _read_groups(self) -> None:
        """Take “by species and sex”, “per year”, “for each island”; not “by population”."""
        ranking = self.n > 0 or self.has("sup", "common")
        for at in self._group_words():
            place = at + 1
            while self.kind(place) in ("by", "distinct", "verb") and place not in self.used:
                place += 1
            if self.kind(place) == "count" and self.is_group(place + 1) and not ranking:
                place += 1  # “per number of cylinders”
            first = place
            while place not in self.used and self._group_at(place, ranking=ranking):
                place += 1
                if self.kind(place) == "and":
                    place += 1
            word = self.mentions[at].text.lower()
            if place > first:
                self.use(*(p for p in range(at, first)))
            elif self.kind(first) == "val" or (
                ranking and (self.is_numeric(first) or self.kind(first) in ("agg", "count"))
            ):
                self.use(at)  # “among Gentoo penguins”, “between males and females”, “by price”
            elif word in ("between", "across", "among", "across all", "among the", "for all") and (
                self.kind(first) in ("col", "noun")
            ):
                self.use(at)
        for at in self.places("period"):
            self._add_group(self._period(self.mentions[at].meaning, trend=self.has("trend")))
            self.use(at)

    def _group_words(self) -> list[int]:
        """Return where a word for groups stands; “a correlation between” names two columns."""
        pair = self.has("corr")
        return [
            at
            for at in self.places("by")
            if not (pair and self.mentions[at].text.lower() == "between")
        ]

    def _group_at(self, at: int, *, ranking: bool) -> bool:
        """Try to take a group at a place; say whether there was one."""
        kind = self.kind(at)
        if kind == "periodnoun" or (kind == "noun" and self.mentions[at].text.lower() == "day"):
            part = self.mentions[at].meaning or "day"
            self._add_group(self._period(part, trend=self.has("trend")))
        elif self.is_group(at) and not (ranking and self.is_numeric(at)):
            column = self.resolve(at, "groups")
            if column.kind == "date":
                word = singular(self.mentions[at].text.lower().split()[-1])
                self._add_group(self._date_group(column, word, trend=self.has("trend")))
            else:
                self._add_group(Group(column=column))
        else:
            return False
        self.use(at)
        return True

    def _add_group(self, group: Group) -> None:
        if group not in self.groups:
            self.groups = (*self.groups, group)
        if len(self.groups) > 2:
            raise NotUnderstood("more than two groupings at once")

    def _period(self, part: str, *, trend: bool) -> Group:
        """Return the grouping by a period, from a column of that name or from the dates."""
        for column in self.table.columns:
            if (
                part in map(canonical, column.words)
                and len(column.words) == 1
                and (column.kind != "date")
            ):
                return Group(column=column)
        dates = [c for c in self.table.columns if c.kind == "date"]
        if len(dates) != 1:
            what = "several date columns" if dates else "no date column"
            raise NotUnderstood(f"“{part}”: this table has {what}")
        return self._date_group(dates[0], part, trend=trend)

    def _date_group(self, column: Column, word: str, *, trend: bool) -> Group:
        if word == "calendar":
            return Group(column=column, part="month")
        if word == "month":
            one_year = (column.low or "")[:4] == (column.high or "")[:4]
            return Group(column=column, part="period" if trend or one_year else "month")
        if word in _PARTS:
            return Group(column=column, part=word)
        return Group(column=column, part="year" if all_new_year(column) else "day")

    def _question(self, kind: str, **fields: object) -> Question:
        self.truths()
        fixed = {f.column.name for f in self.filters if f.test == "==" and not f.part}
        groups: tuple[Group, ...] = fields.get("groups", self.groups)  # type: ignore[assignment]
        for group in groups:
            if group.column.name in fixed and not group.column.temporal:
                raise NotUnderstood(f"groups of {group.column.name}, of which one is chosen")
        common: dict[str, object] = {
            "groups": self.groups, "filters": tuple(self.filters), "n": self.n,
            "direction": self.direction,
        }  # fmt: skip
        question = Question(kind=kind, **(common | fields))  # type: ignore[arg-type]  # named above
        if question.calculates:
            for column in question.measures:
                if column.numbering:
                    raise NotUnderstood(f"a calculation with {column.name}, which numbers things")
        return question

    def _measures(self) -> tuple[Column, ...]:
        """Use up the remaining column mentions as the measures."""
        found: list[Column] = []
        for at in self.places("col"):
            if any(c.truth for c in self.mentions[at].columns) and found:
                continue  # a condition: “average age of the passengers who survived”
            if all(c.truth and not self._asked_of(at) for c in self.mentions[at].columns):
                continue
            column = self.resolve(at, "numeric")
            self.use(at)
            if column not in found:
                found.append(column)
        return tuple(found)

    def _asked_of(self, at: int) -> bool:
        """Whether an aggregate stands right before a place, so that it is what is aggregated."""
        return self.kind(self.step(at, -1)) in ("agg", "count", "sup")

    def _label_or_group(self) -> int | None:
        """Return the place of the column that “which …” or “top n …” asks for, if there is one."""
        for at in self.places("col"):
            before = self.step(at, -1, ("verb", "ask", "num", "distinct", "noun"))
            asked = self.kind(before) in ("which", "sup", "hint", "list", "common")
            asked = asked or before < 0 or self.kind(at - 1) == "which"
            if self.kind(before) in ("sup", "hint") and not self.n and self.is_numeric(at):
                continue  # “the highest rating”, where one of several ratings is a text
            if asked and self.is_group(at) and not self._numeric_only(at):
                return at
        return None

    def _numeric_only(self, at: int) -> bool:
        columns = self.mentions[at].columns
        return all(c.numeric and not c.year for c in columns) and not all(c.truth for c in columns)

    def _truth_at(self, at: int) -> bool:
        return any(c.truth for c in self.mentions[at].columns)

    def _groups_from_columns(self) -> None:
        if self.groups:
            return
        for at in self.places("col"):
            if self.is_group(at) and not any(c.numeric for c in self.mentions[at].columns):
                self._add_group(Group(column=self.resolve(at, "groups")))
                self.use(at)

    def _groups_from_values(self) -> None:
        """Two values of one column that are compared become its groups."""
        grouped = {g.column.name for g in self.groups}
        for filter_ in self.filters:
            if filter_.test == "in" and filter_.column.name not in grouped:
                self._add_group(Group(column=filter_.column, part=filter_.part))
