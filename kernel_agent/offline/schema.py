"""The analyst's picture of a table: the content of its columns, and their names in words.

Nothing here touches data: a :class:`Table` is as much as one can know from the observation, and
that is what the question is understood against.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

Value = str | int | float | bool

_UNITS = {
    "g": "g", "kg": "kg", "mg": "mg", "lb": "lb", "lbs": "lb", "oz": "oz", "t": "t",
    "mm": "mm", "cm": "cm", "m": "m", "km": "km", "ft": "ft", "inch": "in", "inches": "in",
    "miles": "miles", "mi": "miles", "ms": "ms", "s": "s", "sec": "s", "secs": "s",
    "seconds": "s", "minutes": "min", "mins": "min", "hours": "h", "hrs": "h", "hr": "h", "h": "h",
    "days": "days", "weeks": "weeks", "months": "months", "years": "years", "yrs": "years",
    "usd": "USD", "eur": "EUR", "gbp": "GBP", "dollars": "USD", "euros": "EUR", "$": "USD",
    "€": "EUR", "£": "GBP", "pct": "%", "percent": "%", "%": "%", "kmh": "km/h", "kph": "km/h",
    "mph": "mph", "kw": "kW", "kwh": "kWh", "mwh": "MWh", "mw": "MW", "l": "l", "ml": "ml",
    "gb": "GB", "mb": "MB", "kb": "kB", "°c": "°C", "°f": "°F", "celsius": "°C",
    "fahrenheit": "°F", "km2": "km²", "m2": "m²", "sqm": "m²", "sqft": "sq ft", "hz": "Hz",
}  # fmt: skip
_UNIT_ONLY_WHERE_CLEAR = {"l", "h", "t", "miles", "mi", "days", "weeks", "months", "years"}
_ID_WORDS = {"id", "ids", "uuid", "guid", "index", "key", "zip", "zipcode", "postcode", "phone"}
_NUMBERING = {
    "day", "weekday", "week", "month", "hour", "minute", "quarter", "year", "yr", "decade",
    "season", "dow", "doy", "dayofweek", "dayofyear", "rank", "ranking", "position", "code", "no",
    "nr", "number", "serial", "account", "telephone", "tel", "fax", "postal", "isbn", "sku",
    "ean", "ssn",
}  # fmt: skip
"""Last words of names whose whole numbers say which one, and are no quantity."""
_PARTS = {"d": "day", "m": "month", "y": "year"}
_IRREGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "indices": "index",
    "species": "species", "series": "series", "sexes": "sex", "movies": "movie", "ties": "tie",
    "news": "news", "gas": "gas",
}  # fmt: skip
_TRUE = {"yes", "y", "true", "t"}
_FALSE = {"no", "n", "false", "f"}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column as a look at it showed.

    Attributes
    ----------
    kind
        ``number``, ``whole`` (numbers without decimals), ``date``, ``text``, ``bool`` or ``empty``.
    disguise
        ``number`` or ``date`` where a text looks like one; a conversion has to show it.
    doubt
        The sentence that says how else its dates may be read; empty where they may not.
    low, high
        Smallest and largest value as printed; None for text.
    values
        All distinct values, where they were listed (``listed``), else those that the question
        names.
    blanks
        What is written where pandas found no value: ``None``, ``NA``.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    low: str | None = None
    high: str | None = None
    values: tuple[Value, ...] = ()
    listed: bool = False
    disguise: str = ""
    sample: str = ""
    doubt: str = ""
    blanks: tuple[str, ...] = ()

    @property
    def words_lost(self) -> tuple[str, ...]:
        """The blanks that are words like its values: ``None``, and ``NA`` among such codes."""
        if self.kind != "text":
            return ()
        codes = {len(str(v)) for v in self.values if str(v).isupper()} if self.listed else set()
        one_size = len(codes) == 1 and all(str(v).isupper() for v in self.values)
        alike = {b for b in self.blanks if one_size and len(b) in codes and b.isupper()}
        return tuple(b for b in self.blanks if b == "None" or b in alike)

    @property
    def said_missing(self) -> str:
        """The sentence that names other texts taken for missing values; empty without any."""
        taken = [b for b in self.blanks if b not in self.words_lost]
        return f"{_list_words(taken)} in {self.name} was taken as missing." if taken else ""

    @property
    def numeric(self) -> bool:
        """Whether it can be averaged: finite numbers that are no identifiers."""
        finite = "inf" not in f"{self.low} {self.high}"
        return self.kind in ("number", "whole") and finite and not self.identifier

    @cached_property
    def identifier(self) -> bool:
        """Whether its name says that its values only name rows."""
        words = split_name(self.name)
        return self.name.startswith("Unnamed:") or bool(words and words[-1] in _ID_WORDS)

    @property
    def numbering(self) -> bool:
        """Whether its numbers only say which: the day of a month, a rank, a code, a year."""
        words = split_name(self.name) or ("",)
        parts = "of" in words and words[0] in _NUMBERING  # day of week, hour_of_day
        named = words[-1] in _NUMBERING or parts or words[-1] == "num" or self.year
        return self.identifier or (self.kind == "whole" and named)

    @property
    def counts(self) -> bool:
        """Whether it says how many: its name is a plural (``siblings``), and no calendar's."""
        last = self.words[-1] if self.words else ""
        return singular(last) != last and singular(last) not in _NUMBERING and not self.numbering

    @property
    def year(self) -> bool:
        """Whether it holds calendar years as whole numbers."""
        if self.kind != "whole" or self.low is None or self.high is None:
            return False
        return (
            float(self.low) >= 1000
            and float(self.high) <= 2200
            and bool({"year", "yr", "years", "season"} & set(split_name(self.name)))
        )

    @property
    def temporal(self) -> bool:
        """Whether it says when."""
        return self.kind == "date" or self.year

    @property
    def label(self) -> str:
        """The name as one would write it in a sentence, without its unit."""
        words = _name_words(self.name)
        kept = [w if w.isupper() and len(w) > 1 else w.lower() for w in words[: self._core]]
        if kept and kept[-1] in ("in", "per") and self._core < len(words):
            kept = kept[:-1]
        return " ".join(kept) or self.name

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The lower-case words of the name that a question may use, without the unit."""
        words = split_name(self.name)[: self._core]
        return tuple(w for w in words if w not in ("in", "of", "the", "per", "and")) or words

    @property
    def unit(self) -> str:
        """The unit that the name (or the way its text is written) states, or empty."""
        words = split_name(self.name)
        if self._core < len(words):
            return "min" if _minutes(words) else _UNITS.get(words[-1], "")
        return next((_UNITS[sign] for sign in "$€£%" if sign in self.sample), "")

    @property
    def _core(self) -> int:
        """Number of the name's words before its unit."""
        words = split_name(self.name)
        if len(words) < 2 or self.kind not in ("number", "whole") or words[-1] not in _UNITS:
            return len(words) - 1 if _minutes(words) else len(words)
        clear = "(" in self.name or "in" in words[:-1]
        if words[-1] in _UNIT_ONLY_WHERE_CLEAR and not clear:
            return len(words)
        return len(words) - 1

    @property
    def truth(self) -> tuple[Value, Value] | None:
        """The values that stand for yes and no, when the column is a yes-or-no one."""
        if self.kind == "bool":
            return True, False
        if self.kind == "whole" and self.listed and set(self.values) == {0, 1}:
            return 1, 0
        texts = {str(v).lower(): v for v in self.values}
        if self.kind == "text" and self.listed and len(texts) == 2:
            yes, no = _TRUE & set(texts), _FALSE & set(texts)
            if yes and no:
                return texts[yes.pop()], texts[no.pop()]
        return None

    @property
    def groups(self) -> bool:
        """Whether its values make sensible groups: text, yes or no, years, few whole numbers."""
        if self.kind in ("text", "bool") or self.year:
            return True
        return self.kind == "whole" and self.listed

    @property
    def low_cardinality(self) -> bool:
        """Whether its values are few enough to be categories rather than names."""
        return self.listed or self.distinct <= 30


@dataclass(frozen=True, kw_only=True)
class Table:
    """A loaded table: the kernel's variable, its file, its size and its columns.

    Attributes
    ----------
    columns
        Those that were seen; all ``width`` of them, unless the observation was shortened.
    others
        Names of columns that a closer look left out.
    odd_index
        Whether its rows are not simply numbered from 0.
    odd_names
        Whether some column is not named by a text; its name is then what ``str`` makes of it.
    sheet, sheets
        Of a workbook: which sheet this is, and how many there are.
    """

    variable: str
    rows: int
    columns: tuple[Column, ...]
    width: int = 0
    path: str = ""
    others: tuple[str, ...] = ()
    odd_index: bool = False
    odd_names: bool = False
    sheet: str = ""
    sheets: int = 1

    @property
    def other_sheets(self) -> str:
        """The sentence that says that other sheets were not read; empty where there are none."""
        if self.sheets < 2:
            return ""
        return (
            f"This is the sheet {self.sheet}, the first of {self.sheets}; to ask about another,"
            " save it as a file of its own."
        )

    @property
    def complete(self) -> bool:
        """Whether all its columns were seen."""
        return len(self.columns) >= self.width

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return next(c for c in self.columns if c.name == name)

    def key(self, column: Column) -> bool:
        """Whether each row has its own value in that column."""
        return column.distinct == self.rows and column.missing == 0

    def merged(self, newer: Table) -> Table:
        """Return this table with the columns of a later look at some of them."""
        columns = {c.name: c for c in self.columns}
        for column in newer.columns:
            older = columns.get(column.name)
            columns[column.name] = column if older is None else _better(older, column)
        others = tuple(name for name in newer.others if name not in columns)
        return dataclasses.replace(
            self, columns=tuple(columns.values()), others=others or self.others
        )

    def doubting(self, name: str, styles: Sequence[str]) -> Table:
        """Return this table with the doubt that a column's dates fit several styles."""
        parts = [re.findall("[dmy]", style.partition(" ")[0].lower()) for style in styles]
        read, other = ("/".join(map(_PARTS.__getitem__, part)) for part in parts)
        doubt = f"The dates of {name} were read as {read}; {other} would fit all of them too."
        columns = tuple(
            dataclasses.replace(c, doubt=doubt) if c.name == name else c for c in self.columns
        )
        return dataclasses.replace(self, columns=columns)

    def blank(self, name: str, words: tuple[str, ...]) -> Table:
        """Return this table with the text that a column has in place of missing values."""
        columns = tuple(
            dataclasses.replace(c, blanks=words) if c.name == name else c for c in self.columns
        )
        return dataclasses.replace(self, columns=columns)

    def naming(self, values: dict[str, tuple[Value, ...]]) -> Table:
        """Return this table with the values that the question names, by column."""
        columns = tuple(
            dataclasses.replace(c, values=values[c.name])
            if c.name in values and not c.listed
            else c
            for c in self.columns
        )
        return dataclasses.replace(self, columns=columns)

    @property
    def labels(self) -> tuple[Column, ...]:
        """The column that names a row (nearly a key), or first and last name; may be empty."""
        texts = [c for c in self.columns if c.kind == "text" and c.distinct > self.rows * 0.5]
        persons = tuple(c for c in texts if {"first", "last"} & set(split_name(c.name)))
        if len(persons) == 2:
            return persons
        for word in ("name", "title", "model", "label", self.row_noun):
            for column in texts:
                if word in split_name(column.name):
                    return (column,)
        return tuple(c for c in texts if c.distinct > self.rows * 0.7)[:1]

    @cached_property
    def panel(self) -> bool:
        """Whether the same things come back at several times, so that a row is not one of them."""
        times = [c.distinct for c in self.columns if c.temporal and c.distinct > 1]
        things = [c.distinct for c in self.columns if c.kind == "text" and c.distinct > 1]
        return any(0.6 * t * n <= self.rows <= t * n for t in times for n in things)

    @cached_property
    def row_noun(self) -> str:
        """Noun for one row, from the file's name (``penguins.csv`` -> ``penguin``), or ``row``."""
        stem = split_name(PurePosixPath(self.path).name.split(".")[0])
        plural = next((w for w in reversed(stem) if w.endswith("s") and len(w) > 3), "")
        return (
            singular(plural) if plural and not self.panel and singular(plural) != plural else "row"
        )


def _better(older: Column, newer: Column) -> Column:
    """Return the later look at a column, unless it says less; what its text showed is kept."""
    if newer.kind == older.kind and older.listed and not newer.listed:
        return older
    sample = newer.sample or older.sample
    return dataclasses.replace(newer, sample=sample, doubt=older.doubt, blanks=older.blanks)


def _list_words(words: Sequence[str]) -> str:
    return " or ".join(f"“{word}”" for word in words)


def _minutes(words: tuple[str, ...]) -> bool:
    """Whether a name's last word “min” is minutes and not a minimum."""
    return words[-1:] == ("min",) and words[-2:-1] in {("time",), ("duration",), ("runtime",)}


@lru_cache(maxsize=4096)  # asked for each word of a question and each column
def split_name(name: str) -> tuple[str, ...]:
    """Split a column or file name into lower-case words, at case changes too."""
    return tuple(w.lower() for w in _name_words(name))


def _name_words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.findall(r"[^\W_]+|[%$€£]|°[CF]", spaced)


def singular(word: str) -> str:
    """Return the singular of a plain English noun (``countries`` -> ``country``)."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def plural(word: str) -> str:
    """Return the plural of a plain English noun; a plural stays what it is."""
    if singular(word) != word or word.endswith("s"):
        return word
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return {"person": "people"}.get(word, word + "s")
