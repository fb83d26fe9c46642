"""From understood words to a question that a recipe can answer, or a refusal.

:func:`understand` first lets :class:`~kernel_agent.offline.filters.Reader` use up the
conditions, then the groups, and then asks the kinds of questions one after another whether the
words that are left are theirs. What no kind uses up makes the question not understood: it is
refused rather than answered in part.
"""

from __future__ import annotations

from dataclasses import replace

from kernel_agent.offline.matching import canonical
from kernel_agent.offline.mentions import mentions_of
from kernel_agent.offline.portions import Portions
from kernel_agent.offline.question import (
    Group,
    Question,
    additive,
    date_part,
)
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column, Table, plural, singular
from kernel_agent.offline.superlatives import Superlatives
from kernel_agent.offline.words import VALUE_WORDS

_WEAK = {"verb", "which", "ask", "noun", "and", "from", "list", "context"}


def understand(text: str, table: Table) -> Question:
    """Read a question about a table.

    Raises
    ------
    NotUnderstood
        Some part of the question has no meaning here; the message says which.
    """
    mentions, readings = mentions_of(text, table)
    unknown = list(dict.fromkeys(m.text for m in mentions if m.kind == "unknown"))
    if unknown:
        raise NotUnderstood(", ".join(f"“{word}”" for word in unknown))
    if len([m for m in mentions if m.kind not in _WEAK | {"stop"}]) == 0:
        raise NotUnderstood("what it asks for")
    reader = _Asker(table, mentions)
    question = reader.read()
    left = [
        m for i, m in enumerate(reader.mentions) if i not in reader.used and m.kind not in _WEAK
    ]
    if left:
        raise NotUnderstood(", ".join(f"“{m.text}”" for m in left) + " in this place")
    nouns = [plural(m.text.lower()) for m in mentions if m.kind == "noun"]
    noun = nouns[0] if nouns else "rows"
    return replace(question, readings=tuple(readings), noun=noun)


class _Asker(Superlatives, Portions):
    """The reader of the conditions, gone on to the kind of question."""

    def read(self) -> Question:
        self._top_n()
        self._refuse_counted_values()
        self.read_filters()
        self._read_groups()
        for ask in (
            self._missing, self._correlation, self._describe, self._share, self._common,
            self._extreme, self._trend, self._distribution, self._comparison_of_groups,
            self._distinct, self._count, self._aggregate, self._listing, self._lookup,
        ):  # fmt: skip
            question = ask()
            if question:
                return question
        raise NotUnderstood("what is asked about it")

    def _refuse_counted_values(self) -> None:
        """Refuse “how many deaths” where ``Death`` is a value: the rows may be deaths, too."""
        for at in self.places("count", "sup", "share"):
            after = at + 1
            mention = self.mentions[after] if self.kind(after) == "val" else None
            if mention is None or self.kind(after + 1) in ("noun", "context"):
                continue
            word = mention.text.lower()
            one = singular(word)
            of_persons = one in VALUE_WORDS  # “how many females”: nobody calls the rows so
            if one != word and not of_persons and one in map(str.lower, map(str, mention.values)):
                raise NotUnderstood(
                    f"whether “{mention.text}” means all rows or those whose"
                    f" {mention.columns[0].name} is {mention.values[0]}"
                )

    def _missing(self) -> Question | None:
        if not self.has("missing"):
            return None
        self.use_all("missing", "describe", "count", "sup", "by", "trend", "agg", "share")
        columns = []
        for at in self.places("col"):
            columns.append(self.resolve(at))
            self.use(at)
        if self.filters or self.groups:
            raise NotUnderstood("missing values of only some rows")
        return self._question("missing", measures=tuple(columns))

    def _describe(self) -> Question | None:
        if not self.has("describe"):
            return None
        self.use_all("describe", "dist", "compare")
        places = self.places("col")
        if not places:
            if self.groups:
                raise NotUnderstood("which column to summarise by group")
            return self._question("describe")
        columns = tuple(self.resolve(at) for at in places)
        self.use(*places)
        if len(columns) > 1:
            raise NotUnderstood("a summary of several columns at once")
        return self._question("distribution", measures=columns)

    def _correlation(self) -> Question | None:
        explicit = self.has("corr")
        if not explicit and not self._versus_numbers():
            return None
        self.use_all("corr", "by", "versus", "compare", "trend", "describe")
        self.use_all("strength", "sup")
        places = self.places("col")
        columns = [self.resolve(at) for at in places]
        self.use(*places)
        if len(columns) > 2:
            raise NotUnderstood("a relation between more than two columns")
        if len(columns) < 2:
            if self.groups:
                columns.append(self.groups[0].column)
                self.groups = ()
            else:
                return self._correlates(columns)
        numbers = [c for c in columns if c.numeric]
        if len(numbers) == 2:
            return self._question("correlation", measures=tuple(columns))
        if len(numbers) == 1:
            other = next(c for c in columns if not c.numeric)
            if other.temporal:
                group = Group(column=other, part=date_part(other))
                return self._question("trend", measures=(numbers[0],), stats=("mean",),
                                      groups=(group,), stated=False)  # fmt: skip
            if other.groups and other.low_cardinality and not self.groups:
                return self._question("by", measures=(numbers[0],), stats=("mean",),
                                      groups=(Group(column=other),), stated=False)  # fmt: skip
        raise NotUnderstood(f"a correlation needs two columns of numbers ({columns[0].name})")

    def _versus_numbers(self) -> bool:
        around = [(self.step(at, -1), self.step(at, 1)) for at in self.places("versus")]
        return any(
            self.is_numeric(a) and self.is_numeric(b) and not self.mentions[b].columns[0].temporal
            for a, b in around
        )

    def _correlates(self, columns: list[Column]) -> Question:
        if self.table.others:
            raise NotUnderstood("correlations among more than 60 columns")
        if columns and not columns[0].numeric:
            raise NotUnderstood(f"a correlation with {columns[0].name}, which is not a number")
        return self._question("correlates", measures=tuple(columns))

    def _trend(self) -> Question | None:
        timed = [g for g in self.groups if g.temporal]
        asked = self.has("trend")
        plotted = self._versus_time()
        if not asked and not plotted:
            return None
        by_year = any("years" in self.mentions[at].text.lower() for at in self.places("trend"))
        self.use_all("trend", "versus", "compare")
        stats = tuple(self.use_all("agg"))
        counted = bool(self.use_all("count"))
        if len(stats) > 1:
            raise NotUnderstood("two aggregates at once")
        if plotted:
            self.use(plotted)
        self._drop_time_mentions()
        measures = self._measures()
        if len(measures) > 1 or (not measures and not counted):
            raise NotUnderstood("the change of what" if not measures else "several trends at once")
        others = tuple(g for g in self.groups if not g.temporal)
        if len(others) > 1:
            raise NotUnderstood("a trend by two groups")
        time = timed[0] if timed else self._trend_time(by_year=by_year)
        stat = stats or (("count",) if counted and not measures else ("mean",))
        if counted and measures and not stats:
            stat = ("sum",)
        return self._question("trend", measures=measures, stats=stat, groups=(time, *others),
                              stated=bool(stats) or stat != ("mean",))  # fmt: skip

    def _drop_time_mentions(self) -> None:
        """Use up “year” in “over the years” and the like once the question is about time."""
        for at in self.places("col", "periodnoun"):
            mention = self.mentions[at]
            if mention.kind == "periodnoun" or all(c.temporal for c in mention.columns):
                self.use(at)

    def _versus_time(self) -> int | None:
        for at in self.places("versus"):
            place = self.step(at, 1)
            if self.kind(place) == "col" and all(c.temporal for c in self.mentions[place].columns):
                return place
        return None

    def _trend_time(self, *, by_year: bool) -> Group:
        """Return the steps of a trend: years where it says “over the years” and there are some."""
        column = self.time_column()
        part = date_part(column)
        if by_year and part and (column.low or "")[:4] != (column.high or "")[:4]:
            part = "year"
        return Group(column=column, part=part)

    def _distribution(self) -> Question | None:
        if not self.has("dist"):
            return None
        self.use_all("dist", "by")
        places = [at for at in self.places("col") if not self._truth_at(at)] or self.places("col")
        if not places and len(self.groups) == 1:
            return self._question("shares")
        if len(places) != 1 or self.has("agg"):
            raise NotUnderstood("the distribution of which one column")
        column = self.resolve(places[0])
        self.use(places[0])
        if column.numeric:
            if len(self.groups) > 1:
                raise NotUnderstood("a distribution by two groups")
            return self._question("distribution", measures=(column,))
        if self.groups:
            raise NotUnderstood(f"the distribution of {column.name} by group")
        return self._question("shares", groups=(Group(column=column, part=date_part(column)),))

    def _comparison_of_groups(self) -> Question | None:
        """Read “compare X between A and B”, “do males and females differ in X”."""
        hinted = self.places("cmphint")
        if not self.has("compare", "versus") and not hinted:
            return None
        about = [self.mentions[at].meaning.partition(" ")[2] for at in hinted]
        self.use(*hinted)
        self.use_all("compare", "versus", "by", "than")
        stats = tuple(self.use_all("agg")) or ("mean",)
        counted = bool(self.use_all("count"))
        self._groups_from_columns()
        self._groups_from_values()
        measures = (self.by_hint(about[0]),) if about else self._measures()
        if not self.groups:
            raise NotUnderstood("which groups to compare")
        if not measures and counted:
            return self._question("counts")
        if len(measures) != 1 or len(stats) != 1:
            raise NotUnderstood("by which one column of numbers to compare")
        return self._question("by", measures=measures, stats=stats, n=0, stated=True)

    def _distinct(self) -> Question | None:
        if not self.has("distinct"):
            return None
        counted = bool(self.use_all("count"))
        self.use_all("distinct")
        return self._distinct_of(counted=counted)

    def _distinct_of(self, *, counted: bool) -> Question:
        places = self.places("col")
        if len(places) != 1:
            raise NotUnderstood("the different values of which one column")
        column = self._to_count(places[0])
        self.use(places[0])
        if not counted:
            if self.groups:
                raise NotUnderstood("the values of each group")
            return self._question("shares", groups=(Group(column=column),), n=0)
        kind = "distinct_by" if self.groups else "distinct"
        return self._question(kind, measures=(column,))

    def _to_count(self, at: int) -> Column:
        columns = self.mentions[at].columns
        ids = [c for c in columns if c.identifier]
        return ids[0] if len(columns) > 1 and len(ids) == 1 else self.resolve(at)

    def _count(self) -> Question | None:
        """Read “how many …”: rows, different values, or the sum of a column that counts."""
        places = self.places("count")
        if self.has("agg") and places:  # “the average number of siblings”, “the total number of”
            self.use(*places)
            self.counting = True
        if not places or self.has("agg"):
            return None
        self.use(*places)
        if len(places) > 1:
            raise NotUnderstood("two counts at once")
        loose = [at for at in self.places("col") if not self._truth_at(at)]
        if loose and loose[0] < places[0]:
            raise NotUnderstood(f"“{self.mentions[loose[0]].text}” in this place")
        if not loose:
            if self.table.panel and self.kind(places[0] + 1) == "context":
                raise NotUnderstood(f"what counts as one of “{self.mentions[places[0] + 1].text}”")
            self._which_values()
            return self._question("counts" if self.groups else "count")
        columns = self.mentions[loose[0]].columns
        if any(c.numeric and not c.year for c in columns):
            return self._sum_of(loose[0])
        column = self._to_count(loose[0])
        if self.table.key(column):
            self.use(loose[0])
            return self._question("counts" if self.groups else "count")
        return self._distinct_of(counted=True)

    def _which_values(self) -> None:
        """Values of one column that a count lists (“Adelie and Gentoo”) are also shown apart."""
        if not self.groups and len(self.filters) == 1 and self.filters[0].test == "in":
            self._groups_from_values()

    def _sum_of(self, at: int) -> Question:
        column = self.resolve(at, "numeric")
        word = self.mentions[at].text.lower().split()[-1]
        one_row = any(not f.column.low_cardinality and f.test == "==" for f in self.filters)
        self.use(at)
        if one_row and not self.groups:
            return self._question("lookup", measures=(column,))
        counts = column.counts and column.kind == "whole" and not column.listed
        if word == singular(word) or not counts:
            raise NotUnderstood(
                f"whether “how many {self.mentions[at].text}” means the total or the different"
                " values"
            )
        kind = "by" if self.groups else "aggregate"
        return self._question(kind, measures=(column,), stats=("sum",))

    def _aggregate(self) -> Question | None:
        said = [self.mentions[at].meaning for at in self.places("agg")] or self._said_in_column()
        if not said:
            return None
        self.use_all("agg")
        stats: list[str] = []
        for meaning in said:
            stats += ["min", "max"] if meaning == "range" else [meaning]
        self.use_all("ask")
        measures = self._measures()
        if not measures and stats == ["sum"] and self.counting:
            return self._question("counts" if self.groups else "count")
        if not measures:
            raise NotUnderstood("the column to calculate with")
        if not self.groups and not any(m.kind == "or" for m in self.mentions):
            self._groups_from_values()  # “of Adelie and Gentoo”: of each
        if len(measures) > 1 and (len(stats) > 1 or self.groups):
            raise NotUnderstood("several columns and several aggregates or groups at once")
        if "sum" in stats and any(m.year for m in measures):
            raise NotUnderstood("a sum of years")
        kind = "by" if self.groups else "aggregate"
        if kind == "by" and len(stats) > 1 and len(self.groups) > 1:
            raise NotUnderstood("several aggregates by two groups")
        if kind == "by" and len(self.groups) == 1 and self.groups[0].temporal:
            return self._question("trend" if len(stats) == 1 else "by", measures=measures,
                                  stats=tuple(stats))  # fmt: skip
        return self._question(kind, measures=measures, stats=tuple(stats), n=0)

    def _said_in_column(self) -> list[str]:
        """Return the aggregate that stands in the column's own name: “the maximum temperature”."""
        stats = {"maximum": "max", "minimum": "min", "total": "sum", "average": "mean"}
        words = [
            canonical(w)
            for at in self.places("col")
            if self.mentions[at].exact and self.is_numeric(at)
            for w in self.mentions[at].text.split()[:1]
        ]
        return [stats[w] for w in words if w in stats]

    def _listing(self) -> Question | None:
        """Read “which species are there”, “list the islands”."""
        places = [at for at in self.places("col") if self.is_group(at)]
        asked = self.has("list", "which")
        if not asked or len(places) != 1 or len(self.places("col")) != 1 or self.groups:
            return None
        first = self.step(places[0], -1, ("verb", "ask", "noun", "by"))
        if self.kind(first) not in ("list", "which") or (self._numeric_only(places[0])):
            return None
        column = self.resolve(places[0], "groups")
        if column.kind == "date":
            return None
        if any(f.at < places[0] for f in self.filters):
            return None
        self.use(places[0])
        return self._question("shares", groups=(Group(column=column),), n=0)

    def _by_itself(self) -> Question:
        """Read “revenue by region”, “body mass by species”: a total or average, which is said."""
        measures = self._measures()
        stats = ("sum",) if additive(measures[0]) else ("mean",)
        timed = len(self.groups) == 1 and self.groups[0].temporal
        kind = "trend" if timed else "by"
        return self._question(kind, measures=measures, stats=stats, stated=False, n=0)

    def _lookup(self) -> Question | None:
        """Read “the population of France in 2005”: one value of one row; and “price by year”."""
        places = [at for at in self.places("col") if not self._truth_at(at)]
        if len(places) == 1 and self.groups and self.is_numeric(places[0]):
            return self._by_itself()
        single = [f for f in self.filters if f.test == "=="]
        if len(places) == 1 and single and not self.groups:
            column = self.resolve(places[0])
            self.use(places[0])
            return self._question("lookup", measures=(column,))
        if not places and not self.groups and self.has("which", "list", "noun"):
            self.truths()
            return self._question("matching") if self.filters else None
        return None
