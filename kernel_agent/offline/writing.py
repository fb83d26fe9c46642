"""Write values, names and charts as small pieces of code."""

from __future__ import annotations

import re

from kernel_agent.offline.cells import quote
from kernel_agent.offline.question import Group, Question
from kernel_agent.offline.reader import Filter
from kernel_agent.offline.schema import Column, singular

STAT_WORDS = {
    "mean": "average", "median": "median", "sum": "total", "min": "lowest", "max": "highest",
    "std": "standard deviation of", "var": "variance of", "count": "number of",
}  # fmt: skip


_MONEY = {"USD", "EUR", "GBP"}  # counted to the cent, as are totals of anything
# Three to four digits that count, by the largest value: a mean of some thousand g has no decimals.
_DIGITS = ((1000, ",.0f"), (100, ",.1f"), (1, ",.2f"), (0.1, ".3f"), (0.001, ".4f"))


def literal(value: object) -> str:
    """Return a value as Python source."""
    return quote(value) if isinstance(value, str) else repr(value)


def inside(text: str) -> str:
    """Return text as it stands inside an f-string."""
    return quote(text)[1:-1].replace("{", "{{").replace("}", "}}")


def slug(text: str) -> str:
    """Return a file name's stem for a chart's title."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "chart"


def inflect(count: int, noun: str) -> str:
    """Return a plural noun in the number that so many have."""
    return singular(noun) if count == 1 else noun


def capital(text: str) -> str:
    """Return text with a first capital letter and the rest as it is."""
    return text[:1].upper() + text[1:]


def with_unit(column: Column) -> str:
    """Return the label of an axis: the column in words and its unit."""
    return f"{column.label} ({column.unit})" if column.unit else column.label


def unit(column: Column) -> str:
    """Return the unit as it follows a number in a sentence."""
    return f" {inside(column.unit)}" if column.unit else ""


def computed(column: Column, stat: str = "mean") -> str:
    """Return the format of a number that was calculated from a column."""
    if stat in ("count", "nunique"):
        return ",.0f"
    if stat in ("min", "max", "sum") and column.kind == "whole":
        return ".0f" if column.year else ",.0f"
    if stat in ("min", "max"):
        return raw(column)
    if column.year:
        return ".1f"
    size = _size(column)
    if stat == "sum" or column.unit in _MONEY:
        return ",.2f" if size < 1e6 else ",.1f"
    return next((spec for least, spec in _DIGITS if size >= least), ".4g")


def raw(column: Column) -> str:
    """Return the format of a number as it stands in a column."""
    if column.kind == "date":
        return "%Y-%m-%d" if (column.low or "")[10:] in ("", " 00:00:00") else "%Y-%m-%d %H:%M"
    if column.kind == "whole":
        return ".0f" if column.year or column.identifier else ",.0f"
    if column.kind == "number":
        return ",.8g" if _size(column) < 1e6 else ",.2f"
    return ""


def insert(expression: str, spec: str) -> str:
    """Return a replacement field of an f-string."""
    return f"{{{expression}:{spec}}}" if spec else f"{{{expression}}}"


def _size(column: Column) -> float:
    try:
        return max(abs(float(column.low or 0)), abs(float(column.high or 0)))
    except ValueError:
        return 1.0


def item(variable: str, column: Column) -> str:
    """Return the expression of a column of a table."""
    return f"{variable}[{quote(column.name)}]"


def key(variable: str, group: Group) -> str:
    """Return the argument of ``groupby`` for a group."""
    if not group.part:
        return quote(group.column.name)
    return f"{series(variable, group)}.rename({quote(group.name)})"


def series(variable: str, group: Group) -> str:
    """Return the expression of a group's values, row by row."""
    parts = {
        "year": ".dt.year", "month": ".dt.month", "weekday": ".dt.day_name()",
        "quarter": '.dt.to_period("Q")', "period": '.dt.to_period("M")',
        "week": '.dt.to_period("W")', "day": '.dt.to_period("D")',
    }  # fmt: skip
    return item(variable, group.column) + parts.get(group.part, "")


def group_by(variable: str, groups: tuple[Group, ...]) -> str:
    """Return the ``groupby`` call of one or two groups."""
    keys = [key(variable, g) for g in groups]
    return f"{variable}.groupby({keys[0] if len(keys) == 1 else '[' + ', '.join(keys) + ']'})"


def condition(variable: str, filter_: Filter) -> str:
    """Return a filter as a boolean expression over a table."""
    series = item(variable, filter_.column)
    part = {"year": ".dt.year", "month": ".dt.month", "period": '.dt.strftime("%Y-%m")'}
    series += part.get(filter_.part, "")
    values = [literal(v) for v in filter_.values]
    if filter_.test == "between":
        return f"{series}.between({values[0]}, {values[1]})"
    if filter_.test == "in":
        return f"{series}.isin([{', '.join(values)}])"
    if filter_.test == "not in":
        return f"~{series}.isin([{', '.join(values)}])"
    if filter_.column.kind == "date" and not filter_.part:
        series += ".dt.normalize()"
    return f"{series} {filter_.test} {values[0]}"


def conditions(variable: str, filters: tuple[Filter, ...]) -> str:
    """Return filters joined to one boolean expression."""
    if len(filters) == 1:
        return condition(variable, filters[0])
    parts = [condition(variable, f) for f in filters]
    operators = (" == ", " != ", " < ", " > ", " <= ", " >= ")
    return " & ".join(f"({p})" if any(o in p for o in operators) else p for p in parts)


def tell(filters: tuple[Filter, ...]) -> str:
    """Return filters in words, for titles and sentences."""
    return ", ".join(f.told for f in filters)


def title_of(subject: str, question: Question) -> str:
    """Return a chart's title: the subject, and which rows it is of."""
    which = tell(question.filters)
    return capital(f"{subject} ({which})" if which else subject)


def finish_chart(title: str, *, x: str, y: str) -> str:
    """Return the lines that label, save and show a chart."""
    return (
        f"ax.set(title={quote(title)}, xlabel={quote(capital(x))}, ylabel={quote(capital(y))})\n"
        f'fig.savefig("{slug(title)}.png", dpi=150, bbox_inches="tight")\n'
        "plt.show()"
    )


START_CHART = "fig, ax = plt.subplots(figsize=(7, 4))"
PLT = "import matplotlib.pyplot as plt\n\n"
