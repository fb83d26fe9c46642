"""Questions with a superlative: of rows, of groups, of counts, of moments."""

from __future__ import annotations

from kernel_agent.offline.grouping import Grouping
from kernel_agent.offline.matching import canonical
from kernel_agent.offline.question import (
    Group,
    Question,
    additive,
    all_new_year,
    date_part,
    months_of,
)
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column


class Superlatives(Grouping):
    """A reader of “the heaviest”, “top 5”, “the most common”, “when was it highest”."""

    def _common(self) -> Question | None:
        places = self.places("common")
        if not places:
            return None
        self.direction = self.mentions[places[0]].meaning
        self.use(*places)
        self.use_all("count")
        columns = self.places("col")
        if len(columns) != 1 or self.groups:
            raise NotUnderstood("the most common of what")
        column = self.resolve(columns[0], "groups")
        self.use(columns[0])
        group = Group(column=column, part=date_part(column))
        self.n = self.n or 1
        return self._question("counts", groups=(group,))

    def _extreme(self) -> Question | None:
        """Read superlatives: of rows, of groups, of counts, or of a column alone."""
        places = self.places("sup", "hint")
        if self.has("which", "whenwas") and not places:
            places = self.places("comparative")
        if not places:
            return None
        if len(places) > 1:
            raise NotUnderstood("two superlatives at once")
        at = places[0]
        mention = self.mentions[at]
        self.direction, _, about = mention.meaning.partition(" ")
        self.use(at)
        stats = tuple(self.use_all("agg"))
        if len(stats) > 1:
            raise NotUnderstood("two aggregates at once")
        when = self._when_group() or self._period_after(at)
        entity = self._label_or_group() if when is None else None
        group = self.resolve(entity, "groups") if entity is not None else None
        counted = self._read_counted(at, entity, when)
        if entity is not None:
            self.use(entity)
        if counted is not None:
            return self._extreme_count(
                group or (when.column if when else None), when, counted, stats
            )
        measure = self._extreme_measure(about, at)
        if self.groups and (group or when):
            raise NotUnderstood("the highest within each group")
        return self._extreme_of(measure, group, when, stats)

    def _when_group(self) -> Group | None:
        places = self.places("whenwas")
        if not places:
            return None
        self.use(*places)
        word = next((p for p in ("year", "month", "day") if p in self.mentions[places[0]].text), "")
        if word:
            return self._period(word, trend=False)
        return Group(column=self.time_column(), part="")

    def _period_after(self, at: int) -> Group | None:
        """Read “the driest month”."""
        place = self.step(at, 1, ("num",))
        if self.kind(place) != "periodnoun":
            return None
        self.use(place)
        return self._period(self.mentions[place].meaning, trend=False)

    def _read_counted(self, at: int, entity: int | None, when: Group | None) -> str | None:
        """Return what “the most …” counts: ``rows``, a column's name, or None for a measure."""
        if self.has("count") and not any(self.is_numeric(p) for p in self.places("col")):
            self.use_all("count")
        elif not (self._rows_follow(at) and (entity is not None or when)) and (
            self.kind(at + 1) != "col" or at + 1 == entity or self.is_numeric(at + 1)
        ):
            self.use_all("count")
            return None
        others = [p for p in self.places("col") if p != entity and not self._truth_at(p)]
        if any(self.is_numeric(p) for p in others):
            return None
        if not others:
            return "rows" if self.mentions[at].kind == "sup" else None
        if len(others) == 1 and entity is not None:
            column = self.resolve(others[0])
            self.use(others[0])
            return column.name
        return None

    def _rows_follow(self, at: int) -> bool:
        return self.kind(at + 1) in ("noun", "val")

    def _extreme_count(
        self, column: Column | None, when: Group | None, counted: str, stats: tuple[str, ...]
    ) -> Question:
        if column is None or stats or self.groups:
            raise NotUnderstood("which group has the most or fewest")
        group = when or Group(column=column, part=date_part(column))
        self.n = self.n or 1
        if counted == "rows":
            return self._question("counts", groups=(group,))
        measures = (self.table.column(counted),)
        return self._question("distinct_by", measures=measures, groups=(group,))

    def _extreme_measure(self, about: str, at: int) -> Column:
        places = [p for p in self.places("col") if self.is_numeric(p) and not self._truth_at(p)]
        after = self.step(at, 1)
        if about and after in places:
            places = [after]
        if len(places) > 1:
            raise NotUnderstood("which column the highest or lowest is of")
        if places:
            self.use(places[0])
            return self._fitting(places[0], about)
        if about:
            return self.by_hint(about)
        if self.mentions[at].text.lower() in ("maximum", "minimum"):
            raise NotUnderstood("the extreme of what")
        dates = [p for p in self.places("col") if self.mentions[p].columns[0].temporal]
        if len(dates) == 1:
            self.use(dates[0])
            return self.resolve(dates[0], "time")
        left = self.places("col")
        if left:
            self.resolve(left[0], "numeric")
        raise NotUnderstood(f"“{self.mentions[at].text}” by which column")

    def _fitting(self, at: int, about: str) -> Column:
        """Return the column at a place that an adjective can be said of (“longest flippers”)."""
        columns = [c for c in self.mentions[at].columns if c.numeric]
        extreme = "maximum" if self.direction == "highest" else "minimum"
        wanted = {canonical(w) for w in about.split()} or {extreme}
        hinted = [c for c in columns if wanted & set(map(canonical, c.words))]
        if about and not hinted:
            raise NotUnderstood(f"the superlative of “{self.mentions[at].text}”")
        return hinted[0] if len(hinted) == 1 else self.resolve(at, "numeric")

    def _extreme_of(
        self, measure: Column, group: Column | None, when: Group | None, stats: tuple[str, ...]
    ) -> Question:
        if when is not None:
            moment = when.part == "" and not when.column.year
            if not stats and (moment or self._one_row_per(when)):
                return self._question("rows", measures=(measure,), groups=(when,), n=self.n or 1)
            target: Group | None = when
        elif group is not None:
            rare = group.distinct > 0.5 * self.table.rows and not group.truth
            if (self.table.key(group) or rare) and not stats:
                asked = (Group(column=group),)
                return self._question("rows", measures=(measure,), groups=asked, n=self.n or 1)
            target = Group(column=group, part=date_part(group))
        else:
            target = None
        if target is None:
            return self._extreme_plain(measure, stats)
        if measure.temporal:
            raise NotUnderstood("the latest or earliest of a group")
        adds_up = additive(measure)
        if not stats and self.n > 1 and not adds_up:
            if self.filters and not target.part:
                # Where the rows left have one of each, they can be ranked; solve() looks.
                return self._question("rows", measures=(measure,), groups=(target,), single=True)
            raise NotUnderstood(
                f"whether groups rank by their average, total or highest {measure.label}"
            )
        chosen = stats or (("sum",) if adds_up else ("mean",))
        explains = chosen == ("sum",) and self.n in (0, 1) and bool(self.use_all("why"))
        return self._question("by", measures=(measure,), stats=chosen, groups=(target,),
                              n=self.n or 1, stated=bool(stats), why=explains)  # fmt: skip

    def _one_row_per(self, group: Group) -> bool:
        """Whether every period has one row at most, so that rows are ranked and not averages."""
        column = group.column
        if not self.table.key(column) or not column.low or not column.high:
            return False
        if group.part == "month" and column.low[8:10] == column.high[8:10]:
            return self.table.rows <= months_of(column) + 1
        return group.part in ("", "day") or (group.part == "year" and all_new_year(column))

    def _extreme_plain(self, measure: Column, stats: tuple[str, ...]) -> Question:
        """Read “the highest price”, “the five heaviest”, “top 5 islands by average mass”."""
        if stats and len(self.groups) == 1:
            return self._question("by", measures=(measure,), stats=stats, n=self.n or 1)
        if stats:
            raise NotUnderstood("the highest or lowest of one average")
        if self.groups:
            if self.n > 1 or measure.temporal:
                raise NotUnderstood("the first few of each group")
            stat = "max" if self.direction == "highest" else "min"
            return self._question("by", measures=(measure,), stats=(stat,), n=0)
        return self._question("rows", measures=(measure,), n=self.n or 1)
