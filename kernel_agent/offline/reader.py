"""The mentions of a question, used up one by one; what is left over was not understood."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_agent.offline.matching import canonical
from kernel_agent.offline.mentions import Mention
from kernel_agent.offline.schema import Column, Table, Value
from kernel_agent.offline.words import MONTHS, TELLING

_SIGNS = {">": "above", "<": "below", ">=": "at least", "<=": "at most"}
_WHEN = {"==": "in", "<": "before", ">": "after", ">=": "since", "<=": "until"}
SKIPPED = ("verb", "noun", "which", "ask", "context")


class NotUnderstood(Exception):
    """A question, or a part of it, that the rules cannot read; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A condition on rows.

    Attributes
    ----------
    test
        ``==``, ``!=``, ``>``, ``>=``, ``<``, ``<=``, ``in``, ``not in`` or ``between`` (inclusive).
    values
        One value, the list of ``in``, or the two ends of ``between``.
    part
        For dates, what of them is compared: ``year``, ``month`` (1 to 12), ``period`` (a month of
        a year), or empty for the whole value.
    at
        Where in the question it stands.
    """

    column: Column
    test: str
    values: tuple[Value, ...]
    part: str = ""
    at: int = 0

    @property
    def told(self) -> str:
        """The condition in words, for titles and sentences."""
        said = " and ".join if self.test == "between" else " or ".join
        values = (
            [MONTHS[int(v) - 1].title() for v in self.values]
            if self.part == "month"
            else (self.values)
        )
        texts = said(_write_value(v) for v in values)
        if self.column.temporal:
            word = "between" if self.test == "between" else _WHEN.get(self.test, "in")
            return f"{'not ' if self.test in ('!=', 'not in') else ''}{word} {texts}"
        if self.column.truth and self.test == "==":
            yes = self.values[0] == self.column.truth[0]
            return self.column.label if yes else f"not {self.column.label}"
        unit = f" {self.column.unit}" if self.column.unit else ""
        if self.test in _SIGNS:
            return f"{self.column.label} {_SIGNS[self.test]} {texts}{unit}"
        if self.test == "between":
            return f"{self.column.label} between {texts}{unit}"
        negation = "not " if self.test in ("!=", "not in") else ""
        return f"{self.column.label} {negation}{texts}"


def _write_value(value: Value) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


class Reader:
    """The mentions of one question, each of which must be used up before it counts as understood.

    Parameters
    ----------
    table
        What the question is about.
    mentions
        Its pieces in order; words without weight are left out.
    """

    def __init__(self, table: Table, mentions: list[Mention]) -> None:
        self.table = table
        self.mentions = [m for m in mentions if m.kind != "stop"]
        self.used: set[int] = set()
        self.filters: list[Filter] = []

    # --- walking ---------------------------------------------------------------------------

    def kind(self, at: int) -> str:
        """Return the kind of the mention at a place, or empty beyond the ends."""
        return self.mentions[at].kind if 0 <= at < len(self.mentions) else ""

    def step(self, at: int, by: int, skipped: tuple[str, ...] = SKIPPED) -> int:
        """Return the next place before (-1) or after (+1) a place, over words without weight."""
        at += by
        while self.kind(at) in skipped:
            at += by
        return at

    def places(self, *kinds: str) -> list[int]:
        """Return the unused places whose mention is of one of the kinds."""
        return [i for i, m in enumerate(self.mentions) if m.kind in kinds and i not in self.used]

    def has(self, *kinds: str) -> bool:
        """Whether a mention of one of the kinds is still unused."""
        return bool(self.places(*kinds))

    def use(self, *places: int) -> None:
        """Mark mentions as understood."""
        self.used.update(places)

    def use_all(self, *kinds: str) -> list[str]:
        """Mark all mentions of the kinds as understood and return their meanings."""
        places = self.places(*kinds)
        self.use(*places)
        return [self.mentions[i].meaning for i in places]

    # --- columns ---------------------------------------------------------------------------

    def resolve(self, at: int, want: str = "any") -> Column:
        """Return the one column that a mention can mean in its role; ambiguity is refused."""
        mention = self.mentions[at]
        fits = [c for c in mention.columns if _fits(c, want)]
        if len(fits) == 1:
            return fits[0]
        if not fits:
            name = mention.columns[0].name
            what = {"numeric": "numbers to calculate with", "groups": "groups", "time": "dates"}
            raise NotUnderstood(f"the column {name} does not hold {what.get(want, want)}")
        names = ", ".join(c.name for c in fits)
        raise NotUnderstood(f"“{mention.text}” could mean several columns ({names})")

    def is_numeric(self, at: int) -> bool:
        """Whether a place holds a column that could be calculated with."""
        return self.kind(at) == "col" and any(c.numeric for c in self.mentions[at].columns)

    def is_group(self, at: int) -> bool:
        """Whether a place holds a column whose values make groups."""
        return self.kind(at) == "col" and any(_fits(c, "groups") for c in self.mentions[at].columns)

    def by_hint(self, about: str, named: int | None = None) -> Column:
        """Return the one numeric column that an adjective such as “heaviest” is about.

        A column that is named beside it (“bills longer than”) comes first, if the adjective fits.
        """
        if named is not None and self.is_numeric(named) and named not in self.used:
            hints = set(map(canonical, about.split()))
            near = [c for c in self.mentions[named].columns if hints & set(map(canonical, c.words))]
            if len(near) == 1:
                self.use(named)
                return near[0]
        words = [canonical(w) for w in about.split()]
        extremes = {"maximum", "minimum"} & set(words)
        main = set(words) - extremes
        wants_time = bool({"date", "year"} & main)
        scored: dict[int, list[Column]] = {}
        for column in self.table.columns:
            own = {canonical(w) for w in column.words}
            clear = not {w for w in column.words if w in TELLING and canonical(w) not in words}
            if main & own and clear and (column.temporal if wants_time else column.numeric):
                scored.setdefault(len(own & set(words)), []).append(column)
        best = scored[max(scored)] if scored else []
        if len(best) == 1:
            return best[0]
        meant = " or ".join(about.split()[:2])
        if best:
            names = ", ".join(c.name for c in best)
            raise NotUnderstood(f"it could be about several columns ({names})")
        raise NotUnderstood(f"this table has no column for {meant}")

    def time_column(self, at: int | None = None) -> Column:
        """Return the column that says when; one named right before a place comes first."""
        if at is not None:
            before = self.step(at, -1)
            if self.kind(before) == "col" and before not in self.used:
                near = [c for c in self.mentions[before].columns if c.temporal]
                if len(near) == 1:
                    self.use(before)
                    return near[0]
        columns = [c for c in self.table.columns if c.temporal]
        if len(columns) == 1:
            return columns[0]
        dates = [c for c in columns if c.kind == "date"]
        if len(columns) == 2 and len(dates) == 1 and at is None:
            return dates[0]
        if not columns:
            raise NotUnderstood("this table has no column with years or dates")
        names = ", ".join(c.name for c in columns)
        raise NotUnderstood(f"it is not clear which of the columns {names} says when")


def _fits(column: Column, want: str) -> bool:
    if want == "numeric":
        return column.numeric
    if want == "groups":
        return (column.groups and not column.identifier) or column.kind == "date"
    if want == "time":
        return column.temporal
    return True
