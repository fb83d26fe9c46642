"""From understood words to a question that a recipe can answer, or a refusal.

:func:`understand` first lets :class:`~kernel_agent.models.offline.filters.Reader` use up the
conditions, then the groups, and then asks the kinds of questions one after another whether the
words that are left are theirs. What no kind uses up makes the question not understood: it is
refused rather than answered in part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_agent.models.offline.filters import Filter, NotUnderstood, Reader
from kernel_agent.models.offline.mentions import canonical, day_column, mentions_of
from kernel_agent.models.offline.schema import Column, Table, plural, singular
from kernel_agent.models.offline.words import ADDITIVE, TELLING

_WEAK = {"verb", "which", "ask", "noun", "and", "from", "list", "context"}
_PARTS = {"year", "month", "quarter", "week", "day", "weekday"}


@dataclass(frozen=True, kw_only=True)
class Group:
    """What rows are grouped by: a column, or a part of a date.

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
    def temporal(self) -> bool:
        """Whether the groups follow each other in time."""
        return (self.column.kind == "date" and self.part not in ("month", "weekday")) or (
            self.column.year
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, in full.

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
    base
        For shares: the conditions on what the share is of.
    readings
        Misspelt words and how they were read.
    noun
        What the question calls the rows, in the plural.
    single
        Whether it only makes sense when every group has one row, which a look has to show.
    """

    kind: str
    measures: tuple[Column, ...] = ()
    stats: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    filters: tuple[Filter, ...] = ()
    base: tuple[Filter, ...] = ()
    n: int = 0
    direction: str = ""
    stated: bool = True
    readings: tuple[str, ...] = ()
    noun: str = "rows"
    single: bool = False


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
        raise NotUnderstood(_list(f"“{word}”" for word in unknown))
    if len([m for m in mentions if m.kind not in _WEAK | {"stop"}]) == 0:
        raise NotUnderstood("what it asks for")
    reader = _Asker(table, mentions)
    question = reader.read()
    left = [
        m for i, m in enumerate(reader.mentions) if i not in reader.used and m.kind not in _WEAK
    ]
    if left:
        raise NotUnderstood(_list(f"“{m.text}”" for m in left) + " in this place")
    nouns = [plural(m.text.lower()) for m in mentions if m.kind == "noun"]
    noun = nouns[0] if nouns else "rows"
    return replace(question, readings=tuple(readings), noun=noun)


def _list(words: object) -> str:
    return ", ".join(words)  # type: ignore[call-overload,no-any-return]  # any iterable of str


class _Asker(Reader):
    """The reader of the conditions, gone on to the groups and the kind of question."""

    groups: tuple[Group, ...] = ()
    n: int = 0
    direction: str = ""
    counting: bool = False

    def read(self) -> Question:
        self._top_n()
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

    # --- parts that several kinds share ------------------------------------------------------

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
        for at in self.places("by"):
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
        return Group(column=column, part="year" if _all_new_year(column) else "day")

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
        return Question(kind=kind, **(common | fields))  # type: ignore[arg-type]  # named above

    def _measures(self) -> tuple[Column, ...]:
        """Use up the column mentions that are left as what is calculated with."""
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

    # --- the kinds of questions ------------------------------------------------------------

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
                group = self.groups[0].column
                self.groups = ()
                columns.append(group)
            else:
                return self._correlates(columns)
        numbers = [c for c in columns if c.numeric]
        if len(numbers) == 2:
            return self._question("correlation", measures=tuple(columns))
        if len(numbers) == 1:
            other = next(c for c in columns if not c.numeric)
            if other.temporal:
                group = Group(column=other, part=_date_part(other))
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

    def _share(self) -> Question | None:
        places = self.places("share")
        if not places:
            return None
        rate = any(self.mentions[at].text.lower() == "rate" for at in places)
        self.use(*places)
        self.use_all("compare")
        self._use_dependent_counts()
        if any(self.is_numeric(at) and not self._truth_at(at) for at in self.places("col")):
            return self._share_of_sum()
        loose = [at for at in self.places("col") if not self._truth_at(at)]
        if loose and not rate and not self.filters and not self.has("sup", "hint", "agg"):
            column = self.resolve(loose[0], "groups")
            self.use(loose[0])
            self._add_group(Group(column=column))
        if self.groups and not self.filters and not self.places("col"):
            if len(self.groups) > 1:
                raise NotUnderstood("the share of what, by two groups")
            if rate:
                raise NotUnderstood("the rate of what")
            return self._question("shares")
        self.truths()
        if not self.filters:
            raise NotUnderstood("the share of what")
        if len(self.groups) > 1:
            raise NotUnderstood("a share by two groups")
        target, base = self._target_and_base()
        return self._question("share", filters=target, base=base)

    def _truth_at(self, at: int) -> bool:
        return any(c.truth for c in self.mentions[at].columns)

    def _use_dependent_counts(self) -> None:
        self.use_all("count", "by", "distinct")

    def _share_of_sum(self) -> Question:
        measures = self._measures()
        if self.has("agg"):
            if self.use_all("agg") != ["sum"]:
                raise NotUnderstood("the share of an average")
        if len(measures) != 1 or len(self.groups) != 1:
            raise NotUnderstood("the share of a column's total needs one column and “by” a group")
        return self._question("share_of_sum", measures=measures, stats=("sum",))

    def _target_and_base(self) -> tuple[tuple[Filter, ...], tuple[Filter, ...]]:
        """Split conditions into what has the share and what it is the share of.

        “What share of Adelie penguins *are* female”: the base stands before the verb. “The share
        of females *among* Adelie penguins”: the base stands after. One condition is the target.
        """
        filters = sorted(self.filters, key=lambda f: f.at)
        if len(filters) == 1:
            return tuple(filters), ()
        for at, mention in enumerate(self.mentions):
            low = mention.text.lower()
            left = tuple(f for f in filters if f.at < at)
            right = tuple(f for f in filters if f.at >= at)
            if mention.kind == "by" and low in ("among", "among the", "across") and left and right:
                return left, right
            verb = mention.kind == "verb" and low not in ("with", "having", "where", "whose")
            if verb and left and right:
                timed = tuple(f for f in right if f.column.temporal)
                target = tuple(f for f in right if not f.column.temporal)
                return (target, (*left, *timed)) if target else (left, timed)
            noun = mention.kind == "noun" and at > 0 and not left
            later = [i for i in range(at + 1, len(self.mentions)) if self.kind(i) == "verb"]
            if noun and later and right:
                between = tuple(f for f in right if f.at < later[0])
                after = tuple(f for f in right if f.at > later[0])
                if between and after:
                    return after, between
        timed = tuple(f for f in filters if f.column.temporal)
        target = tuple(f for f in filters if not f.column.temporal)
        if len(target) == 1:
            return target, timed
        truths = tuple(f for f in filters if f.column.truth)
        last = truths and (truths[0] is filters[-1] or self.kind(truths[0].at - 1) == "verb")
        if len(truths) == 1 and last:  # “what percentage of women survived”
            return truths, tuple(f for f in filters if f not in truths)
        if self.kind(filters[-1].at) == "cmphint":  # “what share of Gentoos weigh more than …”
            return (filters[-1],), tuple(filters[:-1])
        raise NotUnderstood("which of the conditions is the share and which is the whole")

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
        group = Group(column=column, part=_date_part(column))
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
        counted = self._counted(at, entity, when)
        if entity is not None:
            self.use(entity)
        if counted is not None:
            return self._extreme_count(group or (when and when.column), when, counted, stats)
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

    def _counted(self, at: int, entity: int | None, when: Group | None) -> str | None:
        """Say what “the most …” counts: ``rows``, a column's name, or None for a measure."""
        if self.has("count") and not any(self.is_numeric(p) for p in self.places("col")):
            self.use_all("count")
        elif not (self.kind(at + 1) in ("noun", "val") and (entity is not None or when)):
            if self.kind(at + 1) != "col" or at + 1 == entity or self.is_numeric(at + 1):
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

    def _extreme_count(
        self, column: Column | None, when: Group | None, counted: str, stats: tuple[str, ...]
    ) -> Question:
        if column is None or stats or self.groups:
            raise NotUnderstood("which group has the most or fewest")
        group = when or Group(column=column, part=_date_part(column))
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
            columns = [c for c in self.mentions[places[0]].columns if c.numeric]
            hints = {*about.split(), "max" if self.direction == "highest" else "min"}
            hinted = [
                c for c in columns if set(map(canonical, hints)) & set(map(canonical, c.words))
            ]
            if len(columns) > 1 and len(hinted) == 1:
                return hinted[0]
            return self.resolve(places[0], "numeric")
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
            target = Group(column=group, part=_date_part(group))
        else:
            target = None
        if target is None:
            return self._extreme_plain(measure, stats)
        if measure.temporal:
            raise NotUnderstood("the latest or earliest of a group")
        additive = _additive(measure)
        if not stats and self.n > 1 and not additive:
            if self.filters and not target.part:
                # Where the rows left have one of each, they can be ranked; solve() looks.
                return self._question("rows", measures=(measure,), groups=(target,), single=True)
            raise NotUnderstood(
                f"whether groups rank by their average, total or highest {measure.label}"
            )
        chosen = stats or (("sum",) if additive else ("mean",))
        return self._question("by", measures=(measure,), stats=chosen, groups=(target,),
                              n=self.n or 1, stated=bool(stats))  # fmt: skip

    def _one_row_per(self, group: Group) -> bool:
        """Whether every period has one row at most, so that rows are ranked and not averages."""
        column = group.column
        if not self.table.key(column) or not column.low or not column.high:
            return False
        if group.part == "month" and column.low[8:10] == column.high[8:10]:
            return self.table.rows <= _months(column) + 1
        return group.part in ("", "day") or (group.part == "year" and _all_new_year(column))

    def _extreme_plain(self, measure: Column, stats: tuple[str, ...]) -> Question:
        """Read “the highest price”, “the five heaviest penguins”, “top 5 islands by average mass”."""
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

    def _trend(self) -> Question | None:
        timed = [g for g in self.groups if g.temporal]
        asked = self.has("trend")
        plotted = self._versus_time()
        if not asked and not plotted:
            return None
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
        time = timed[0] if timed else self._trend_time()
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

    def _trend_time(self) -> Group:
        column = self.time_column()
        return Group(column=column, part=_date_part(column))

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
        return self._question("shares", groups=(Group(column=column, part=_date_part(column)),))

    def _comparison_of_groups(self) -> Question | None:
        """Read “compare X between A and B”, “do males and females differ in X”."""
        hinted = [at for at in self.places("cmphint")]
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
        if word == singular(word) or column.kind != "whole" or column.listed:
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
        """Read “revenue by region”, “body mass by species”: a total or an average, which is said."""
        measures = self._measures()
        stats = ("sum",) if _additive(measures[0]) else ("mean",)
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


def _additive(column: Column) -> bool:
    """Whether a column's values add up to something that one would ask for."""
    words = {singular(w) for w in column.words}
    return bool(ADDITIVE & words) and not TELLING & set(column.words)


def _date_part(column: Column) -> str:
    """Choose the period that makes a readable number of groups of a date column."""
    if column.kind != "date" or not column.low or not column.high:
        return ""
    if _all_new_year(column) or int(column.high[:4]) - int(column.low[:4]) >= 4:
        return "year"
    return "period" if _months(column) >= 3 else "day"


def _months(column: Column) -> int:
    low, high = column.low or "", column.high or ""
    return (int(high[:4]) - int(low[:4])) * 12 + int(high[5:7]) - int(low[5:7])


def _all_new_year(column: Column) -> bool:
    """Whether dates only stand for years: one a year, each on 1 January."""
    if not column.low or not column.high:
        return False
    span = int(column.high[:4]) - int(column.low[:4]) + 1
    return column.low[5:10] == column.high[5:10] == "01-01" and column.distinct <= span


__all__ = ["Group", "NotUnderstood", "Question", "day_column", "understand"]
