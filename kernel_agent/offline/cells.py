"""The cell that answers a reading: it computes, draws, and gives the value.

Time stands in its order, also in the figure; other groups stand from the highest to the lowest. What
is left out, because a value is missing, is said beside the answer.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_agent.offline.grammar import Group, Reading
from kernel_agent.offline.offers import WORDS, describe
from kernel_agent.offline.table import Column, Table, quote

MOST_BARS = 20
_PLOT = ("import matplotlib.pyplot as plt", "")
_KEYS = {
    "year": ".dt.year", "quarter": '.dt.to_period("Q").astype(str)',
    "month": '.dt.to_period("M").astype(str)', "week": '.dt.to_period("W").astype(str)',
    "day": '.dt.to_period("D").astype(str)', "calendar month": '.dt.strftime("%m %B")',
    "calendar quarter": ".dt.quarter", "weekday": '.dt.strftime("%u %A")',
}  # fmt: skip
_CALENDAR = (
    [name.lower() for name in calendar.month_name[1:]],
    [name.lower() for name in calendar.day_name],
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An action: the analyst's thought and the code it runs."""

    thought: str
    code: str


def answer(reading: Reading, table: Table) -> Cell:
    """Return the cell that answers a reading about a table."""
    what, lines = describe(reading), [_give(_value(reading, table), left_out(reading, table))]
    if reading.kind == "look":
        what, lines = f"what is in {table.path}", list(_overview(table))
    elif reading.kind == "top":
        lines = list(_rows(reading, table))
    elif reading.kind == "number" and reading.groups:
        lines = list(_grouped(reading, table))
    return Cell(thought=f"I read the question as: {what}.", code="\n".join(lines))


def left_out(reading: Reading, table: Table) -> str:
    """Return the sentences that say which rows have no value and are left out."""
    dates = [group.column for group in reading.groups if group.unit]
    counted = {c.name: c.missing for c in (*reading.measures, *dates) if c.missing}
    return " ".join(
        f"{missing:,} of {table.rows:,} rows have no {name} and are left out."
        for name, missing in counted.items()
    )


def _give(value: str, note: str = "", told: str = "") -> str:
    """Return the call that answers; ``told`` is the expression of what only the values can tell."""
    parts = [part for part in (told, quote(note) if note else "") if part]
    joined = ' + " " + '.join(parts)
    return f"final_answer({value}, note={joined})" if parts else f"final_answer({value})"


def _of(name: str, column: Column) -> str:
    return f"{name}[{quote(column.name)}]"


def _call(stat: str) -> str:
    return {"count": "size()", "sum": "sum(min_count=1)"}.get(stat, f"{stat}()")


def _value(reading: Reading, table: Table) -> str:
    """Return the expression of an answer that needs no more than one."""
    name, kind = table.variable, reading.kind
    if kind in ("rows", "columns"):
        return f"len({name})" if kind == "rows" else f"{name}.shape[1]"
    if kind in ("head", "tail"):
        return f"{name}.{kind}({reading.n})"
    if kind == "distinct":
        return f"{_of(name, reading.groups[0].column)}.nunique()"
    if len(reading.measures) == len(reading.stats) == 1:
        return f"{_of(name, reading.measures[0])}.{_call(reading.stats[0])}"
    measures = ", ".join(quote(column.name) for column in reading.measures)
    return f"{name}[[{measures}]].agg({list(reading.stats)}).T.rename_axis(\"column\").reset_index()"


def _overview(table: Table) -> Iterator[str]:
    name = table.variable
    yield "result = pd.DataFrame({"
    yield f'    "type": {name}.dtypes.astype(str),'
    yield f'    "missing": {name}.isna().sum(),'
    if table.is_whole and all(column.kind != "other" for column in table.columns):
        yield f'    "different": {name}.nunique(),'
    yield f'    "first": {name}.iloc[0].astype(str),'
    yield f'    "last": {name}.iloc[-1].astype(str),'
    yield '}).rename_axis("column").reset_index()'
    yield _give("result", f"{table.rows:,} rows, {table.width:,} columns")


# --- by groups ---------------------------------------------------------------------------------


def _grouped(reading: Reading, table: Table) -> Iterator[str]:
    """Yield the lines that compute by groups, sort, draw and answer."""
    name, groups = table.variable, reading.groups
    dates = list(dict.fromkeys(group.column for group in groups if group.unit))
    yield from _PLOT
    for date in dates:
        if date.style:
            read = f"pd.to_datetime({_of(name, date)}, format={quote(date.style)})"
            yield f"{_of(name, date)} = {read}"
        if date.missing:
            yield f"{name} = {name}.dropna(subset=[{quote(date.name)}])"
    names = _names(groups)
    keys = [_key(group, name, called) for group, called in zip(groups, names, strict=True)]
    by = keys[0] if len(keys) == 1 else f"[{', '.join(keys)}]"
    lost = any(group.column.missing and not group.unit for group in groups)
    yield f"grouped = {name}.groupby({by}{', dropna=False' if lost else ''})"
    values = dict(_values(reading, names))
    yield "result = pd.DataFrame({"
    yield from (f"    {quote(called)}: {value}," for called, value in values.items())
    yield "})"
    yield from _sorted(reading, next(iter(values)))
    yield from _drawn(reading, list(values))
    if reading.order and not reading.n and len(groups) == 1:
        end = "min" if reading.order == "lowest" else "max"
        yield "leading = {"
        yield f'    name: ", ".join(map(str, column.index[column == column.{end}()]))'
        yield "    for name, column in result.items()"
        yield "}"
        told = f'"; ".join(f"{reading.order} {{name}}: {{group}}" for name, group in leading.items())'
        yield _give("result.reset_index()", left_out(reading, table), f"{told} + \".\"")
    else:
        yield _give("result.reset_index()", left_out(reading, table))


def _names(groups: Sequence[Group]) -> list[str]:
    """Return a name for each group; a unit that is called like another one says of what it is."""
    names = [group.name for group in groups]
    return [
        f"{group.unit} of {group.column.name}" if group.unit and names.count(name) > 1 else name
        for group, name in zip(groups, names, strict=True)
    ]


def _key(group: Group, name: str, called: str) -> str:
    if not group.unit:
        return quote(group.column.name)
    return f"{_of(name, group.column)}{_KEYS[group.unit]}.rename({quote(called)})"


def _values(reading: Reading, taken: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the expression of each column of the answer."""
    if reading.stats == ("count",):
        yield "number of rows" if "rows" in taken else "rows", "grouped.size()"
        return
    for measure in reading.measures:
        for stat in reading.stats:
            called = f"{WORDS[stat]} {measure.name}"
            called += " (computed)" if called in taken else ""
            yield called, f"grouped[{quote(measure.name)}].{_call(stat)}"


def _sorted(reading: Reading, by: str) -> Iterator[str]:
    """Yield the lines that put groups in order, and take the few that are asked for."""
    (group, *more) = reading.groups
    rising = f"ascending={reading.order == 'lowest'}"
    if reading.n:
        yield f"result = result.dropna().sort_values({quote(by)}, {rising})"
        yield f"result = {_few('result', reading)}"
    elif not more and (order := _calendar_of(group.column)):
        yield f"order = {order}"
        yield "result = result.sort_index(key=lambda names: names.str.lower().str[:3].map(order))"
    elif not more and not group.is_time and (group.column.kind in ("text", "bool") or reading.order):
        yield f"result = result.sort_values({quote(by)}, {rising})"


def _calendar_of(column: Column) -> dict[str, int]:
    """Return the order of the months or days that a text names, by its ends; empty for others."""
    ends = (column.low.lower(), column.high.lower())
    for names in _CALENDAR:
        if column.kind == "text" and all(e in names or e in [n[:3] for n in names] for e in ends):
            return {name[:3]: at for at, name in enumerate(names)}
    return {}


def _few(rows: str, reading: Reading) -> str:
    if reading.order != "both":
        return f"{rows}.head({reading.n})"
    at = f"i < {reading.n} or i >= len({rows}) - {reading.n}"
    return f"{rows}.iloc[[i for i in range(len({rows})) if {at}]]"


def _drawn(reading: Reading, values: Sequence[str]) -> Iterator[str]:
    """Yield the lines that draw: time as a line in its order, other groups as sorted bars."""
    groups = reading.groups
    line = not reading.n and any(group.is_time for group in groups)
    size = f"figsize=({7 if len(values) == 1 else 5 * len(values)}, 4)"
    title = f"title={quote(describe(reading))}"
    shown = "result.rename(str)"
    if len(groups) == 2 and len(values) == 1:
        within = "0" if groups[1].is_time and not groups[0].is_time else "1"
        shown = f"result[{quote(values[0])}].unstack({within}).rename(str)"
        shown += "" if line else f".head({MOST_BARS})[::-1]"
        yield f"ax = {shown}.iloc[:, :10].plot{'' if line else '.barh'}({title}, {size})"
    elif len(groups) == 1:
        shown += "" if line else f".head({MOST_BARS})[::-1]"
        kind = '(marker="o", ' if line else ".barh("
        several = f"subplots=True, layout=(1, {len(values)}), sharex={line}, "
        yield (
            f"ax = {shown}.plot{kind}{several if len(values) > 1 else ''}legend=False, "
            f"{title if len(values) == 1 else ''}{', ' if len(values) == 1 else ''}{size})"
        )
    else:
        return
    yield "plt.show()"


# --- the first and last few --------------------------------------------------------------------


def _rows(reading: Reading, table: Table) -> Iterator[str]:
    """Yield the lines that sort the rows by a number, take a few, draw and answer."""
    (measure,), name = reading.measures, table.variable
    by, rising = quote(measure.name), reading.order == "lowest"
    known = f"{name}.dropna(subset=[{by}])" if measure.missing else name
    yield from _PLOT
    yield f'ordered = {known}.sort_values({by}, ascending={rising}, kind="stable")'
    yield f"result = {_few('ordered', reading)}"
    if reading.n <= MOST_BARS:
        texts = [c for c in table.columns if c.kind == "text"][:1]
        times = [c for c in table.columns if c.kind == "date" or c.is_year]
        labels = [f"{_of('result', c)}.astype(str)" for c in dict.fromkeys(texts + times)][:2]
        joined = ' + ", " + '.join(labels)
        bars = f"result.set_axis({joined})" if labels else "result"
        yield f"{bars}[{by}][::-1].plot.barh(title={quote(describe(reading))}, figsize=(7, 4))"
        yield "plt.show()"
    give, note = "result.reset_index(drop=True)", left_out(reading, table)
    if reading.order == "both":
        yield _give(give, note)
        return
    yield f"last = result[{by}].iloc[-1]"
    yield f"more = (ordered[{by}] == last).sum() - (result[{by}] == last).sum()"
    yield _give(give, note, 'f"Rows with the same last value that are not shown: {more}."')
