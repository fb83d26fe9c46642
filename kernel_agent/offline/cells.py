"""The cell that answers a reading: it computes, draws, and gives the value.

Time stands in its order, also in the figure; other groups stand from the highest to the lowest.
What is left out, because a value is missing, is said beside the answer.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence

from kernel_agent.offline.grammar import Group, Reading
from kernel_agent.offline.offers import WORDS, say
from kernel_agent.offline.table import Column, Table, quote

_MOST_BARS = 20
_KEYS = {
    "year": ".dt.year", "quarter": '.dt.to_period("Q").astype(str)',
    "month": '.dt.to_period("M").astype(str)', "week": '.dt.to_period("W").astype(str)',
    "day": '.dt.to_period("D").astype(str)', "calendar month": '.dt.strftime("%m %B")',
    "calendar quarter": ".dt.quarter", "weekday": '.dt.strftime("%u %A")',
}  # fmt: skip
_CALENDAR = [[n.lower() for n in names] for names in (calendar.month_name[1:], calendar.day_name)]


def answer_code(reading: Reading, table: Table) -> str:
    """Return the code that answers a reading about a table."""
    if reading.kind == "look":
        return "\n".join(_overview(table))
    if reading.kind == "top" or reading.groups:
        lines = _rows(reading, table) if reading.kind == "top" else _grouped(reading, table)
        return "\n".join(("import matplotlib.pyplot as plt\n", *lines))
    value = {"rows": "len(data)", "columns": "data.shape[1]"}.get(reading.kind, "")
    if reading.kind in ("head", "tail"):
        value = f"data.{reading.kind}({reading.n})"
    elif reading.kind == "number":
        numbers = [f"{_of('data', m)}.{_call(s)}" for m in reading.measures for s in reading.stats]
        named = zip(_names(reading), numbers, strict=True)
        listed = ", ".join(f"{quote(name)}: {number}" for name, number in named)
        value = numbers[0] if len(numbers) == 1 else f"pd.Series({{{listed}}})"
    return _give(value, reading, table)


def _give(value: str, reading: Reading, table: Table, told: str = "") -> str:
    """Return the call that answers; ``told`` is the expression of what only the values can tell."""
    dates = [group.column for group in reading.groups if group.unit]
    counted = {c.name: c.missing for c in (*reading.measures, *dates) if c.missing}
    out = [
        f"{n:,} of {table.rows:,} rows have no {c} and are left out." for c, n in counted.items()
    ]
    note = ' + ". " + '.join([told] * bool(told) + [quote(" ".join(out))] * bool(out))
    return f"final_answer({value}, note={note})" if note else f"final_answer({value})"


def _of(name: str, column: Column) -> str:
    return f"{name}[{quote(column.name)}]"


def _call(stat: str) -> str:
    return "sum(min_count=1)" if stat == "sum" else f"{stat}()"


def _names(reading: Reading) -> list[str]:
    """Return the names of the columns that are computed."""
    named = [f"{WORDS[stat]} {m.name}" for m in reading.measures for stat in reading.stats]
    taken = {group.name for group in reading.groups}
    return [f"{name} (computed)" if name in taken else name for name in named or ["rows"]]


def _overview(table: Table) -> Iterator[str]:
    yield 'result = pd.DataFrame({\n    "type": data.dtypes.astype(str),'
    yield '    "missing": data.isna().sum(),'
    if table.is_whole and all(column.kind != "other" for column in table.columns):
        yield '    "different": data.nunique(),'
    yield '    "first": data.head(1).astype(str).iloc[0],'
    yield '    "last": data.tail(1).astype(str).iloc[0],'
    yield '}).rename_axis("column").reset_index()'
    yield f'final_answer(result, note="{table.rows:,} rows, {table.width:,} columns")'


def _grouped(reading: Reading, table: Table) -> Iterator[str]:
    """Yield the lines that compute by groups, sort, draw and answer."""
    groups, names = reading.groups, _names(reading)
    if dates := list(dict.fromkeys(g.column.name for g in groups if g.unit and g.column.missing)):
        yield f"data = data.dropna(subset={dates})"
    keys = ", ".join(map(_key, groups))
    lost = any(group.column.missing and not group.unit for group in groups)
    by = keys if len(groups) == 1 else f"[{keys}]"
    yield f"grouped = data.groupby({by}{', dropna=False' if lost else ''})"
    numbers = [f"{_of('grouped', m)}.{_call(s)}" for m in reading.measures for s in reading.stats]
    yield "result = pd.DataFrame({"
    for name, number in zip(names, numbers or ["grouped.size()"], strict=True):
        yield f"    {quote(name)}: {number},"
    yield "})"
    yield from _sorted(reading, names[0])
    yield from _drawn(reading, say(reading, table), names)
    told = ""
    if reading.order and not reading.n and len(groups) == 1:
        end = "min" if reading.order == "lowest" else "max"
        yield "best = {"
        yield f'    name: ", ".join(map(str, column.index[column == column.{end}()]))'
        yield "    for name, column in result.items()\n}"
        yield f'told = "; ".join(f"{reading.order} {{name}}: {{best[name]}}" for name in best)'
        told = "told"
    yield _give("result.reset_index()", reading, table, told)


def _key(group: Group) -> str:
    if not group.unit:
        return quote(group.column.name)
    return f"{_of('data', group.column)}{_KEYS[group.unit]}.rename({quote(group.name)})"


def _sorted(reading: Reading, name: str) -> Iterator[str]:
    """Yield the lines that put groups in order, and take the few that are asked for."""
    (group, *more) = reading.groups
    by = f"{quote(name)}, ascending={reading.order == 'lowest'}"
    if reading.n:
        yield f"ordered = result.dropna().sort_values({by})\nresult = {_few(reading)}"
    elif not more and (order := _calendar(group.column)):
        yield f"order = {order}"
        yield "result = result.sort_index(key=lambda names: names.str.lower().str[:3].map(order))"
    elif (
        not more and not group.is_time and (group.column.kind in ("text", "bool") or reading.order)
    ):
        yield f"result = result.sort_values({by})"


def _calendar(column: Column) -> dict[str, int]:
    """Return the order of the months or days that a text names, by its ends; empty for others."""
    for names in _CALENDAR:
        known = {*names, *(name[:3] for name in names)}
        if column.kind == "text" and {column.low.lower(), column.high.lower()} <= known:
            return {name[:3]: at for at, name in enumerate(names)}
    return {}


def _few(reading: Reading) -> str:
    if reading.order == "both":
        return (
            f"ordered.iloc[sorted({{*range(len(ordered))[:{reading.n}], "
            f"*range(len(ordered))[-{reading.n}:]}})]"
        )
    return f"ordered.head({reading.n})"


def _drawn(reading: Reading, title: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the lines that draw: time as a line in its order, other groups as sorted bars."""
    groups, several = reading.groups, len(names) > 1
    if len(groups) > 2 or (len(groups) == 2 and several):
        return
    line = not reading.n and any(group.is_time for group in groups)
    shown, options = "result", f"title={quote(title)}, figsize=(7, 4)"
    if len(groups) == 2:
        level = int(groups[0].is_time or not groups[1].is_time)
        shown = f"result[{quote(names[0])}].unstack({level}).iloc[:, :10]"
    elif several:
        options = f"subplots=True, layout=(1, {len(names)}), sharex={line}, legend=False, "
        options += f"figsize=({5 * len(names)}, 4)"
    else:
        options += ", legend=False"
    some = "" if line else f".head({_MOST_BARS})[::-1]"
    yield f"{shown}{some}.rename(str).plot{'' if line else '.barh'}(\n    {options}\n)\nplt.show()"


def _rows(reading: Reading, table: Table) -> Iterator[str]:
    """Yield the lines that sort the rows by a number, take a few, draw and answer."""
    by, rising = quote(reading.measures[0].name), reading.order == "lowest"
    known = f"data.dropna(subset=[{by}])" if reading.measures[0].missing else "data"
    yield f'ordered = {known}.sort_values({by}, ascending={rising}, kind="stable")'
    yield f"result = {_few(reading)}"
    if reading.n <= _MOST_BARS:
        texts = [c for c in table.columns if c.kind == "text"][:1]
        times = [c for c in table.columns if c.kind == "date" or c.is_year]
        labels = ' + ", " + '.join(f"{_of('result', c)}.astype(str)" for c in (texts + times)[:2])
        bars = f"result.set_axis({labels})" if labels else "result"
        options = f"title={quote(say(reading, table))}, figsize=(7, 4)"
        yield f"{bars}[{by}][::-1].plot.barh(\n    {options}\n)\nplt.show()"
    yield _give("result.reset_index(drop=True)", reading, table)
