"""What a good analyst would type for each kind of question.

A recipe is a function from a question and the table to cells: one that computes, prints and
draws, and one that hands over the answer, a sentence in which the kernel fills in the figures.
Where rows are selected first, a cell of its own does that and prints how many are left, and
:func:`solve` looks at that number before it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from keyword import iskeyword

from kernel_agent.errors import ModelError
from kernel_agent.models.offline import charts
from kernel_agent.models.offline.conversation import failure
from kernel_agent.models.offline.filters import NotUnderstood
from kernel_agent.models.offline.loading import Cell, quoted
from kernel_agent.models.offline.question import Group, Question
from kernel_agent.models.offline.schema import Column, Table, plural
from kernel_agent.models.offline.writing import (
    PLT,
    STAT_WORDS,
    capital,
    computed,
    conditions,
    grouped,
    inside,
    item,
    raw,
    shown,
    title_of,
    told,
    unit,
)  # fmt: skip
from kernel_agent.models.offline.writing import (
    series as group_series,
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a recipe is given.

    Attributes
    ----------
    source
        The variable that holds the rows in question: the table's, or that of the selection.
    """

    question: Question
    table: Table
    source: str

    @property
    def measure(self) -> Column:
        """The column that is calculated with."""
        return self.question.measures[0]

    @property
    def which(self) -> str:
        """The conditions in words, as they follow the subject of a sentence."""
        return f" ({inside(told(self.question.filters))})" if self.question.filters else ""


Work = tuple[str, str, str]
"""Thought, computing code, and the closing code that calls ``final_answer``."""


def solve(question: Question, table: Table) -> Generator[Cell, str, None]:
    """Yield the cells that answer a question; is sent what each of them printed.

    Raises
    ------
    ModelError
        A cell failed, or what came back leaves the question open (told in one line).
    """
    source = table.variable
    note = f"I read {' and '.join(question.readings)}. " if question.readings else ""
    if question.filters and question.kind != "share":
        source = f"{table.variable}_selected"
        observation = yield _selection(question, table, source, note)
        note = ""
        kept = _kept(observation)
        if question.single and not re.search(r"^1 rows at most", observation, re.MULTILINE):
            raise NotUnderstood(
                f"whether groups rank by their average, total or highest {question.measures[0].name}"
            )
        if kept == 0 or (question.kind == "lookup" and kept != 1):
            yield _nothing(question, table, source, kept)
            return
    thought, code, closing = _RECIPES[question.kind](
        Job(question=question, table=table, source=source)
    )
    observation = yield Cell(thought=note + thought, code=code)
    _check(observation)
    yield Cell(thought="That answers it; I put the computed figures into a sentence.", code=closing)


def _selection(question: Question, table: Table, source: str, note: str) -> Cell:
    columns = [c for c in question.measures if c.missing and question.kind != "missing"]
    single = ""
    if question.single:
        group = item(source, question.groups[0].column)
        single = f'\nprint({group}.value_counts().max(), "rows at most for each")'
    counts = "".join(
        f'\nprint({item(source, c)}.notna().sum(), "of them with a value of {inside(c.name)}")'
        for c in columns
    )
    return Cell(
        thought=f"{note}The question is about some of the rows only ({told(question.filters)}).",
        code=(
            f"{source} = {table.variable}[{conditions(table.variable, question.filters)}]\n"
            f'print(len({source}), "of", len({table.variable}), "rows selected"){counts}{single}'
        ),
    )


def _kept(observation: str) -> int:
    """Return how many usable rows the selection left, from what it printed."""
    _check(observation)
    found = re.search(r"^(\d+) of \d+ rows selected$", observation, re.MULTILINE)
    if not found:
        raise ModelError("The offline analyst could not read how many rows were selected.")
    usable = re.findall(r"^(\d+) of them with a value", observation, re.MULTILINE)
    return 0 if usable and max(map(int, usable)) == 0 else int(found[1])


def _nothing(question: Question, table: Table, source: str, kept: int) -> Cell:
    """Return the answer when no row fits; more than one row for a single value is refused."""
    which = told(question.filters)
    if kept > 1:
        raise NotUnderstood(
            f"which value of {question.measures[0].name}: {kept} rows match ({which}); ask for"
            " the average, total, lowest or highest"
        )
    noun = question.noun
    if question.kind in ("count", "counts"):
        sentence = f'f"There are {{len({source})}} {noun} ({inside(which)})."'
    else:
        sentence = quoted(f"No {noun} with known values match ({which}), so there is no figure.")
    return Cell(thought="Nothing is left to calculate with.", code=f"final_answer({sentence})")


def _check(observation: str) -> None:
    failed = failure(observation)
    if failed:
        line = " ".join(failed[1].split())[:200]
        raise ModelError(
            f"The offline analyst's own cell failed ({failed[0]}: {line}); ask in another way, or"
            " configure a model: --model NAME --base-url URL with OPENAI_API_KEY."
        )


def _final(sentence: str, before: str = "") -> str:
    return f'{before}final_answer(\n    f"{sentence}"\n)'


def _known(job: Job) -> str:
    """Return the clause that says how many rows have a value, when some have not."""
    if not job.measure.missing:
        return ""
    return (
        f" ({{known:,}} of {{len({job.source}):,}} {job.question.noun} have a known"
        f" {inside(job.measure.label)})"
    )


def _known_line(job: Job) -> str:
    if not job.measure.missing:
        return ""
    return f"known = {item(job.source, job.measure)}.notna().sum()\n"


# --- the table as a whole -----------------------------------------------------------------------


def _describe(job: Job) -> Work:
    numbers = [c for c in job.table.columns if c.numeric]
    texts = [c for c in job.table.columns if c.kind in ("text", "bool") and c.low_cardinality]
    source = job.source
    code = f'{source}.describe(include="all").transpose()'
    if numbers:
        code = charts.histograms(source, numbers[:6]) + "\n\n" + code
    said = [f"{{len({source}):,}} rows and {{{source}.shape[1]}} columns"]
    parts = [
        f"{inside(c.label)} {{{name}['min']:{raw(c)}}} to {{{name}['max']:{raw(c)}}}{unit(c)}"
        f" (average {{{name}['mean']:{computed(c)}}})"
        for c, name in zip(numbers[:6], _names(numbers[:6]), strict=True)
    ]
    before = "".join(
        f'{name} = {item(source, c)}.agg(["min", "max", "mean"])\n'
        for c, name in zip(numbers[:6], _names(numbers[:6]), strict=True)
    )
    before += f"missing = int({source}.isna().sum().sum())\n"
    for c in texts[:3]:
        before += (
            f'{_name(c)}_values = ", ".join({item(source, c)}.value_counts().head(8).index'
            ".astype(str))\n"
        )
        parts.append(f"{inside(c.label)}: {{{_name(c)}_values}}")
    sentence = f"The table has {said[0]}, with {{missing:,}} missing values. " + "; ".join(parts)
    return (
        "The question asks for an overview; I summarise every column.",
        code,
        _final(sentence + ".", before),
    )


def _names(columns: list[Column]) -> list[str]:
    return [_name(c) for c in columns]


_TAKEN = {
    "missing",
    "known",
    "value",
    "row",
    "parts",
    "listed",
    "top",
    "shared",
    "extreme",
    "counts",
}


def _name(column: Column) -> str:
    """Return a Python name for a column's value."""
    text = re.sub(r"[^a-z0-9]+", "_", column.label.lower()).strip("_") or "column"
    return (
        text
        if text.isidentifier() and text not in _TAKEN and not iskeyword(text)
        else f"column_{text}"
    )


def _missing(job: Job) -> Work:
    names = [c.name for c in job.question.measures]
    if len(names) == 1:
        series = item(job.source, job.measure)
        code = f'missing = {series}.isna().sum()\nprint(missing, "of", len({job.source}))'
        sentence = (
            f"{{missing}} of {{len({job.source})}} {job.question.noun} have no"
            f" {inside(job.measure.label)} ({{missing / len({job.source}):.1%}})."
        )
        return "I count the rows without a value.", code, _final(sentence)
    chosen = f"[[{', '.join(map(quoted, names))}]]" if names else ""
    code = (
        f"missing = {job.source}{chosen}.isna().sum().sort_values(ascending=False)\n"
        "missing = missing[missing > 0]\nprint(missing)"
    )
    closing = (
        'listed = ", ".join(f"{column} {count}" for column, count in missing.items()) or "none"\n'
        f"incomplete = {job.source}{chosen}.isna().any(axis=1).sum()\n"
    )
    sentence = (
        f"{{missing.sum()}} values are missing, in {{incomplete}} of {{len({job.source})}}"
        f" {job.question.noun}. By column: {{listed}}."
    )
    return "I count the missing values of each column.", code, _final(sentence, closing)


# --- counting -----------------------------------------------------------------------------------


def _count(job: Job) -> Work:
    code = f"count = len({job.source})\nprint(count)"
    of = f", of {{len({job.table.variable}):,}} in all" if job.question.filters else ""
    sentence = f"There are {{count:,}} {job.question.noun}{job.which}{of}."
    return "Each row counts as one, so I count rows.", code, _final(sentence)


def _counts(job: Job) -> Work:
    question, groups = job.question, job.question.groups
    by = " and ".join(g.name for g in groups)
    noun = job.question.noun
    ascending = question.direction == "lowest"
    sizes = f"{grouped(job.source, groups)}.size()"
    ordered = _ordered(groups) and not question.n
    order = "" if ordered else f".sort_values(ascending={ascending})"
    code = f"counts = {sizes}{order}" + _month_names("counts", groups) + "\nprint(counts)"
    if len(groups) == 1:
        title = title_of(f"number of {noun} by {by}", question)
        code = PLT + code + "\n\n" + charts.bars("counts", title, x=by, y=f"number of {noun}",
                                               line=ordered)  # fmt: skip
    thought = f"I count the {noun} in each {by}."
    if question.n:
        return thought, code, _top_counts(job, by, noun)
    closing = _listed("counts.items()", _group_label(groups), "{count:,}", len(groups), "count")
    closing += _unknown_groups(job)
    sentence = f"{capital(noun)} by {inside(by)}{job.which}: {{listed}}; {{counts.sum():,}} in all{_unknown_said(job)}."
    return thought, code, _final(sentence, closing)


def _top_counts(job: Job, by: str, noun: str) -> str:
    n, lowest = job.question.n, job.question.direction == "lowest"
    word = "fewest" if lowest else "most"
    pick = "nsmallest" if lowest else "nlargest"
    before = f'top = counts.{pick}({n}, keep="all")\n' + _listed(
        "top.items()", _group_label(job.question.groups), "{count:,}", 1, "count"
    )
    lead = f"{n} {plural(by)}" if n > 1 else by
    return _final(f"The {inside(lead)} with the {word} {noun}{job.which}: {{listed}}.", before)


def _ordered(groups: tuple[Group, ...]) -> bool:
    """Whether groups have an order of their own that a list of them should keep."""
    return groups[0].temporal or groups[0].part == "month"


def _month_names(variable: str, groups: tuple[Group, ...]) -> str:
    """Return the line that turns month numbers of an index into names."""
    if len(groups) != 1 or groups[0].part != "month":
        return ""
    return (
        f"\n{variable}.index = [pd.Timestamp(2000, month, 1).month_name()"
        f" for month in {variable}.index]"
    )


def _group_label(groups: tuple[object, ...]) -> str:
    return "{first}, {second}" if len(groups) == 2 else "{group}"


def _listed(items: str, label: str, figures: str, groups: int, value: str) -> str:
    """Return the code that joins groups and their figures to a text, the long ones shortened."""
    names = "(first, second)" if groups == 2 else "group"
    return (
        f'parts = [f"{label} {figures}" for {names}, {value} in {items}]\n'
        'listed = "; ".join(parts if len(parts) <= 24 else [*parts[:12], "…", *parts[-6:]])\n'
    )


def _incomplete(job: Job) -> list[Group]:
    """Return the groups that some rows lack; rows chosen by a value of it have one."""
    chosen = {f.column.name for f in job.question.filters if f.test in ("==", "in", "between")}
    return [g for g in job.question.groups if g.column.missing and g.column.name not in chosen]


def _unknown_groups(job: Job) -> str:
    missing = _incomplete(job)
    if not missing:
        return ""
    names = ", ".join(quoted(g.column.name) for g in missing)
    return f"unknown = {job.source}[[{names}]].isna().any(axis=1).sum()\n"


def _unknown_said(job: Job) -> str:
    missing = _incomplete(job)
    if not missing:
        return ""
    names = " or ".join(inside(g.name) for g in missing)
    return f" ({{unknown}} {job.question.noun} without a known {names} are left out)"


def _distinct(job: Job) -> Work:
    series = item(job.source, job.measure)
    code = f'values = {series}.dropna().unique()\nprint(len(values), "different values")'
    closing = (
        'listed = ", ".join(map(str, sorted(values)[:12])) + (", …" if len(values) > 12 else "")\n'
    )
    sentence = f"There are {{len(values):,}} different values of {inside(job.measure.label)}"
    return (
        f"I count the different values of {job.measure.name}.",
        code,
        _final(f"{sentence}{job.which}: {{listed}}.", closing),
    )


def _distinct_by(job: Job) -> Work:
    question = job.question
    by = " and ".join(g.name for g in question.groups)
    ascending = question.direction == "lowest"
    code = (
        f"distinct = {grouped(job.source, question.groups)}[{quoted(job.measure.name)}].nunique()"
        f".sort_values(ascending={ascending})\nprint(distinct)"
    )
    what = f"different values of {inside(job.measure.label)}"
    items = "distinct.items()"
    before, lead = "", f"Number of {what} by {inside(by)}"
    if question.n:
        pick = "nsmallest" if ascending else "nlargest"
        before = f'top = distinct.{pick}({question.n}, keep="all")\n'
        items = "top.items()"
        lead = f"The {inside(by)} with the {'fewest' if ascending else 'most'} {what}"
    label = _group_label(question.groups)
    before += _listed(items, label, "{count}", len(question.groups), "count")
    sentence = f"{lead}{job.which}: {{listed}}."
    return f"I count what is different in each {by}.", code, _final(sentence, before)


# --- shares -------------------------------------------------------------------------------------


def _share(job: Job) -> Work:
    question, source = job.question, job.table.variable
    lines = []
    base = "base"
    lines.append(
        f"base = {source}[{conditions(source, question.base)}]"
        if question.base
        else f"base = {source}"
    )
    target = conditions(base, question.filters)
    known = [f.column for f in question.filters if f.column.missing]
    noun = job.question.noun
    of = f" ({inside(told(question.base))})" if question.base else ""
    what = inside(told(question.filters))
    if question.groups:
        return _share_by(job, lines, target, what, of)
    lines += [f"matching = base[{target}]", 'print(len(matching), "of", len(base))']
    before, tail = "", ""
    if known:
        names = ", ".join(quoted(c.name) for c in known)
        before = f"known = len(base.dropna(subset=[{names}]))\n"
        tail = (
            f"; of the {{known:,}} with a known {inside(known[0].label)} it is"
            " {len(matching) / known:.1%}"
        )
    sentence = (
        f"{{len(matching) / len(base):.1%}} of the {noun}{of} have {what}:"
        f" {{len(matching):,}} of {{len(base):,}}{tail}."
    )
    return (
        f"I count the rows with {told(question.filters)} and divide.",
        "\n".join(lines),
        _final(sentence, before),
    )


def _share_by(job: Job, lines: list[str], target: str, what: str, of: str) -> Work:
    by = job.question.groups[0]
    known = [quoted(f.column.name) for f in job.question.filters if f.column.missing]
    if known:
        lines.append(f"base = base.dropna(subset=[{', '.join(known)}])")
    keyed = grouped("base", (by,)).removeprefix("base.groupby(").removesuffix(")")
    if not by.part:
        keyed = item("base", by.column)
    lines.append(f"matching = {target}".replace("base[", "base["))
    lines.append(
        f'shares = matching.groupby({keyed}).agg(["mean", "sum", "count"])'
        '.sort_values("mean", ascending=False)'
    )
    lines.append("print(shares)")
    title = capital(f"share with {told(job.question.filters)} by {by.name}")
    chart = charts.bars('shares["mean"] * 100', title, x=by.name, y="share (%)", line=by.temporal)
    closing = _listed("shares.iterrows()", "{group}",
                      "{row['mean']:.1%} ({row['sum']:.0f} of {row['count']:.0f})", 1, "row")  # fmt: skip
    sentence = f"Share with {what} by {inside(by.name)}{of}: {{listed}}."
    code = PLT + "\n".join(lines) + "\n\n" + chart
    return f"I compute the share in each {by.name}.", code, _final(sentence, closing)


def _shares(job: Job) -> Work:
    """Return each value of a column with its count and share."""
    by = job.question.groups[0]
    counts = (
        f"{item(job.source, by.column)}.value_counts()"
        if not by.part
        else f"{grouped(job.source, (by,))}.size()"
    )
    order = ".sort_index()" if by.temporal else ""
    code = (
        f"counts = {counts}{order}\n"
        'shares = counts / counts.sum()\nprint(shares.map("{:.1%}".format))'
    )
    noun = job.question.noun
    title = title_of(f"{noun} by {by.name}", job.question)
    code = PLT + code + "\n\n" + charts.bars("counts", title, x=by.name, y=f"number of {noun}",
                                             line=by.temporal)  # fmt: skip
    closing = (
        'parts = [f"{group} {count:,} ({shares[group]:.1%})" for group, count in counts.items()]\n'
        'listed = "; ".join(parts if len(parts) <= 24 else [*parts[:12], "…", *parts[-6:]])\n'
    )
    closing += _unknown_groups(job)
    sentence = (
        f"{{len(counts)}} values of {inside(by.name)} among {{counts.sum():,}} {noun}{job.which}:"
        f" {{listed}}{_unknown_said(job)}."
    )
    return f"I count each {by.name} and its share.", code, _final(sentence, closing)


def _share_of_sum(job: Job) -> Work:
    by, measure = job.question.groups[0], job.measure
    code = (
        f"totals = {grouped(job.source, (by,))}[{quoted(measure.name)}].sum()"
        ".sort_values(ascending=False)\nshares = totals / totals.sum()\n"
        'print(shares.map("{:.1%}".format))'
    )
    title = title_of(f"share of {measure.label} by {by.name}", job.question)
    code = PLT + code + "\n\n" + charts.bars("shares * 100", title, x=by.name,
                                             y=f"share of {measure.label} (%)", line=False)  # fmt: skip
    figures = f"{{shares[group]:.1%}} ({{total:{computed(measure, 'sum')}}}{unit(measure)})"
    closing = _listed("totals.items()", "{group}", figures, 1, "total")
    sentence = (
        f"Share of the {inside(_of('sum', measure))} by {inside(by.name)}{job.which}: {{listed}}."
    )
    return f"I add up {measure.name} in each {by.name} and divide.", code, _final(sentence, closing)


# --- aggregates ---------------------------------------------------------------------------------


def _aggregate(job: Job) -> Work:
    """Return one or more aggregates of one or more whole columns."""
    lines, said = [], []
    for column in job.question.measures:
        for stat in job.question.stats:
            name = f"{stat}_{_name(column)}" if stat != "mean" else f"average_{_name(column)}"
            lines.append(f"{name} = {item(job.source, column)}.{stat}()")
            said.append(f"the {inside(_of(stat, column))} is {_value(name, column, stat)}")
    code = "\n".join([*lines, f"print({', '.join(x.partition(' =')[0] for x in lines)})"])
    sentence = capital(", ".join(said)) + job.which
    before = ""
    missing = any(c.missing for c in job.question.measures)
    if missing or job.question.filters:
        before = f"known = {item(job.source, job.measure)}.notna().sum()\n"
        sentence += (
            f" ({{known:,}} of {{len({job.source}):,}} {job.question.noun} have a known"
            f" {inside(job.measure.label)})"
        )
    else:
        sentence += f" (over {{len({job.source}):,}} {job.question.noun})"
    return "I calculate it over the column.", code, _final(sentence + ".", before)


def _of(stat: str, column: Column) -> str:
    """Return “average body mass”; a column whose name says so already is not told twice."""
    word = STAT_WORDS[stat]
    return column.label if column.label.startswith(word) else f"{word} {column.label}"


def _value(name: str, column: Column, stat: str) -> str:
    mark = "" if stat == "var" else unit(column)
    return shown(name, computed(column, stat)) + mark


def _by(job: Job) -> Work:
    """Return aggregates by one or two groups, all of them or the first few."""
    question, measure = job.question, job.measure
    groups = question.groups
    by = " and ".join(g.name for g in groups)
    stats = list(dict.fromkeys([*question.stats, "count"]))
    stat = question.stats[0]
    lowest = question.direction == "lowest"
    order = f'.sort_values("{stat}", ascending={lowest})'
    if len(groups) == 2 or (_ordered(groups) and not question.n):
        order = ""
    code = (
        f"summary = {grouped(job.source, groups)}[{quoted(measure.name)}]"
        f".agg([{', '.join(map(quoted, stats))}]).dropna(){order}"
    )
    what = _of(stat, measure)
    code += _month_names("summary", groups) + "\nprint(summary)"
    title = title_of(f"{what} by {by}", question)
    code = PLT + code + "\n\n" + charts.groups(f'summary["{stat}"]', title, groups, measure, what)
    lead = f"{capital(inside(what))} by {inside(by)}{job.which}"
    figures = ", ".join(
        (f"{STAT_WORDS[s].removesuffix(' of')} " if len(question.stats) > 1 else "")
        + _value(f"row['{s}']", measure, s)
        for s in question.stats
    )
    figures += " (n = {row['count']:.0f})"
    label = _group_label(groups)
    before = _listed("summary.iterrows()", label, figures, len(groups), "row")
    thought = f"I compare the {what} of each {by}."
    if question.n:
        before, sentence = _top_groups(job, figures)
    else:
        before, sentence = _all_groups(job, before, lead)
    return thought, code, _final(sentence, before)


def _top_groups(job: Job, figures: str) -> tuple[str, str]:
    """Return the closing lines and sentence for the groups with the highest or lowest figure."""
    question, measure, stat = job.question, job.measure, job.question.stats[0]
    lowest = question.direction == "lowest"
    pick = "nsmallest" if lowest else "nlargest"
    before = f'top = summary.{pick}({question.n}, "{stat}", keep="all")\n'
    before += _listed("top.iterrows()", "{group}", figures, 1, "row")
    by = inside(question.groups[0].name)
    what = f"{question.direction} {inside(_of(stat, measure))}"
    lead = f"{question.n} {plural(by)}" if question.n > 1 else by
    sentence = f"The {lead} with the {what}{job.which}: {{listed}}, of {{len(summary)}} compared"
    if not question.stated and stat == "mean":
        edge = "min" if lowest else "max"
        series = item(job.source, measure)
        group = group_series(job.source, question.groups[0])
        before += (
            f"extreme = {series}.{edge}()\n"
            f"single = {group}[{series} == extreme].dropna().astype(str).unique()\n"
            'single = ", ".join(single)\n'
        )
        sentence += (
            f" (by the {question.direction} single value, {{extreme:"
            f"{raw(measure)}}}{unit(measure)}: {{single}})"
        )
    return before, sentence + "."


def _all_groups(job: Job, before: str, lead: str) -> tuple[str, str]:
    """Return the closing lines and sentence that list all groups, with what was left out."""
    question = job.question
    left_out = f"{job.source}[[{', '.join(_needed(job))}]].isna().any(axis=1).sum()"
    tail = ""
    if job.measure.missing or any(g.column.missing for g in question.groups):
        before += (
            f"left_out = {left_out}\n"
            f'note = f" ({{left_out}} {job.question.noun} with a missing value are left out)"'
            ' if left_out else ""\n'
        )
        tail = "{note}"
    two = len(question.groups) == 1 and question.groups[0].column.distinct == 2
    one_stat = len(question.stats) == 1
    picked = [f for f in question.filters if f.column == question.groups[0].column]
    two = two or any(f.test == "in" and len(f.values) == 2 for f in picked)
    if two and one_stat and len(question.groups) == 1:
        stat = question.stats[0]
        before += f'difference = summary["{stat}"].max() - summary["{stat}"].min()\n'
        tail = f"; the difference is {_value('difference', job.measure, 'mean')}{tail}"
    return before, f"{lead}: {{listed}}{tail}."


def _needed(job: Job) -> list[str]:
    names = [job.measure.name, *(g.column.name for g in job.question.groups)]
    return [quoted(n) for n in dict.fromkeys(names)]


def _rows(job: Job) -> Work:
    """Return the rows with the highest or lowest values of a column; ties are kept and named."""
    question, measure = job.question, job.measure
    lowest = question.direction == "lowest"
    pick = "nsmallest" if lowest else "nlargest"
    labels = [g.column for g in question.groups] or list(job.table.labels)
    code = (
        f'top = {job.source}.{pick}({question.n}, {quoted(measure.name)}, keep="all")\nprint(top)'
    )
    what = f"{question.direction} {inside(measure.label)}"
    columns = [c for c in labels or _telling(job) if c.name != measure.name]
    fields = ", ".join(shown(_name(c), raw(c) if c.kind == "date" else "") for c in columns)
    value = f"{shown('value', raw(measure))}{unit(measure)}"
    if question.n > 1 and labels and measure.numeric:
        title = title_of(
            f"the {question.n} {question.direction} values of {measure.label}", question
        )
        code = PLT + code + "\n\n" + charts.top_bars(labels[0], measure, title)
    names = ", ".join([*(_name(c) for c in columns), "value"])
    series = ", ".join(item("top", c) for c in [*columns, measure])
    one = question.n == 1 and columns
    part = fields if one else f"{fields}: {value}" if fields else value
    before = (
        f'parts = [\n    f"{part}"\n    for {names} in zip({series})\n]\n'
        'listed = "; ".join(parts if len(parts) <= 20 else [*parts[:10], "…"])\n'
    )
    if question.n == 1:
        end = "min" if lowest else "max"
        before = f"extreme = {item(job.source, measure)}.{end}()\n" + before
        before += 'shared = f", shared by {len(top)} rows" if len(top) > 1 else ""\n'
        sentence = f"The {what}{job.which} is {shown('extreme', raw(measure))}{unit(measure)}"
        sentence += "{shared}: {listed}."
    else:
        before += (
            f'shared = " (more than asked, because of equal values)" if len(top) > {question.n}'
            ' else ""\n'
        )
        n = question.n
        sentence = f"The {n} {job.question.noun} with the {what}{job.which}{{shared}}: {{listed}}."
    if measure.missing:
        before += _known_line(job)
        sentence = sentence[:-1] + f"{_known(job)}."
    return (
        f"I take the rows with the {question.direction} {measure.label}.",
        code,
        _final(sentence, before),
    )


def _telling(job: Job) -> list[Column]:
    """Return the first few columns that tell a row without a name from the others."""
    columns = [c for c in job.table.columns if c.kind in ("text", "date", "bool") or c.year]
    return columns[:4]


def _lookup(job: Job) -> Work:
    series = item(job.source, job.measure)
    code = f"value = {series}.iloc[0]\nprint(value)"
    spec = raw(job.measure)
    sentence = (
        f"The {inside(job.measure.label)}{job.which} is {shown('value', spec)}{unit(job.measure)}."
    )
    return "One row fits; I read its value.", code, _final(sentence)


def _matching(job: Job) -> Work:
    """Name the rows that meet the conditions, as far as a sentence holds them."""
    columns = list(job.table.labels) or _telling(job)
    fields = ", ".join(shown(_name(c), raw(c) if c.kind == "date" else "") for c in columns)
    names = ", ".join(_name(c) for c in columns)
    series = ", ".join(item(job.source, c) for c in columns)
    loop = f"in zip({series})" if len(columns) > 1 else f"in {series}"
    code = f"print({job.source}.head(30).to_string())"
    before = (
        f'parts = [f"{fields}" for {names} {loop}]\n'
        'listed = "; ".join(parts if len(parts) <= 20 else [*parts[:20], "…"])\n'
    )
    sentence = f"{{len({job.source}):,}} {job.question.noun} match{job.which}: {{listed}}."
    return "I list the rows that match.", code, _final(sentence, before)


# --- relations and time -------------------------------------------------------------------------


def _correlation(job: Job) -> Work:
    a, b = job.question.measures
    if job.question.groups:
        return _correlation_by(job, a, b)
    code = (
        f"pairs = {job.source}[[{quoted(a.name)}, {quoted(b.name)}]].dropna()\n"
        f'r = pairs[{quoted(a.name)}].corr(pairs[{quoted(b.name)}])\nprint(f"r = {{r:.3f}}")'
    )
    title = title_of(f"{a.label} and {b.label}", job.question)
    code = PLT + code + "\n\n" + charts.scatter("pairs", a, b, title)
    before = (
        'strength = "a strong" if abs(r) >= 0.7 else "a moderate" if abs(r) >= 0.4 else '
        '"a weak" if abs(r) >= 0.1 else "practically no"\n'
        'direction = "" if abs(r) < 0.1 else "positive " if r > 0 else "negative "\n'
    )
    sentence = (
        f"There is {{strength}} {{direction}}linear relation between {inside(a.label)} and"
        f" {inside(b.label)}{job.which}: Pearson's r = {{r:.3f}} over {{len(pairs):,}}"
        f" {job.question.noun} with both values. It does not say what causes what."
    )
    return "Two columns of numbers: I correlate and draw them.", code, _final(sentence, before)


def _correlation_by(job: Job, a: Column, b: Column) -> Work:
    by = job.question.groups[0]
    code = (
        f"by_{_slug_name(by.name)} = {{\n"
        f"    group: rows[{quoted(a.name)}].corr(rows[{quoted(b.name)}])\n"
        f"    for group, rows in {grouped(job.source, (by,))}\n}}\n"
        f"print(by_{_slug_name(by.name)})"
    )
    closing = _listed(f"by_{_slug_name(by.name)}.items()", "{group}", "r = {r:.3f}", 1, "r")
    sentence = (
        f"Correlation (Pearson's r) of {inside(a.label)} and {inside(b.label)} by"
        f" {inside(by.name)}{job.which}: {{listed}}."
    )
    return f"I correlate the two columns in each {by.name}.", code, _final(sentence, closing)


def _slug_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "group"


def _correlates(job: Job) -> Work:
    numbers = [c for c in job.table.columns if c.numeric]
    names = f"[{', '.join(quoted(c.name) for c in numbers)}]"
    if len(numbers) < 2:
        raise NotUnderstood("a correlation needs at least two columns of numbers")
    if job.question.measures:
        measure = job.measure
        code = (
            f"numbers = {job.source}[{names}]\n"
            f"r = numbers.corr()[{quoted(measure.name)}].drop({quoted(measure.name)}).dropna()\n"
            "r = r.sort_values(key=abs, ascending=False)\nprint(r.round(3))"
        )
        title = title_of(f"correlation with {measure.label}", job.question)
        code = (
            PLT + code + "\n\n" + charts.bars("r", title, x="column", y="Pearson's r", line=False)
        )
        closing = _listed("r.items()", "{column}", "{value:+.3f}", 1, "value")
        closing = closing.replace("for group,", "for column,")
        sentence = (
            f"Correlation (Pearson's r) with {inside(measure.label)}{job.which}, strongest first:"
            " {listed}."
        )
        return "I correlate it with every other column of numbers.", code, _final(sentence, closing)
    code = (
        f"r = {job.source}[{names}].corr()\nprint(r.round(3))\n\n"
        "pairs = {(a, b): r.loc[a, b] for i, a in enumerate(r) for b in list(r)[i + 1 :]}\n"
        "strongest = sorted(pairs, key=lambda pair: abs(pairs[pair]), reverse=True)[:5]"
    )
    code = PLT + code + "\n\n" + charts.matrix(title_of("correlations", job.question))
    closing = 'listed = "; ".join(f"{a} and {b} {pairs[a, b]:+.3f}" for a, b in strongest)\n'
    sentence = f"The strongest correlations (Pearson's r){job.which}: {{listed}}."
    return "I correlate all columns of numbers.", code, _final(sentence, closing)


def _trend(job: Job) -> Work:
    question = job.question
    time, others = question.groups[0], question.groups[1:]
    stat = question.stats[0]
    word = STAT_WORDS[stat]
    source = grouped(job.source, question.groups)
    measure = question.measures[0] if question.measures else None
    what = _of(stat, measure) if measure else f"number of {job.question.noun}"
    values = f"{source}[{quoted(measure.name)}].{stat}()" if measure else f"{source}.size()"
    unstack = ".unstack()" if others else ".dropna()"
    code = f"trend = {values}{unstack}\nprint(trend)"
    per = f"by {time.name}" + (f" and {others[0].name}" if others else "")
    title = title_of(f"{what} {per}", question)
    y = (
        f"{word} {measure.label}" + (f" ({measure.unit})" if measure and measure.unit else "")
        if (measure)
        else what
    )
    code = PLT + code + "\n\n" + charts.lines("trend", title, x=time.name, y=y, many=bool(others))
    spec = computed(measure, stat) if measure else ",.0f"
    mark = unit(measure) if measure else ""
    thought = f"I follow the {what} from one {time.name} to the next."
    if others:
        closing = (
            "parts = []\nfor group, values in trend.items():\n    values = values.dropna()\n"
            "    first, last = values.iloc[0], values.iloc[-1]\n"
            f'    parts.append(f"{{group}} from {{first:{spec}}} ({{values.index[0]}}) to'
            f' {{last:{spec}}}{mark} ({{values.index[-1]}})")\n'
            'listed = "; ".join(parts if len(parts) <= 24 else [*parts[:24], "…"])\n'
        )
        return (
            thought,
            code,
            _final(f"{capital(inside(what))} {per}{job.which}: {{listed}}.", closing),
        )
    closing = (
        "first, last = trend.iloc[0], trend.iloc[-1]\n"
        'change = f" ({last / first - 1:+.1%})" if first > 0 else ""\n'
        + _listed("trend.items()", "{group}", f"{{value:{spec}}}", 1, "value")
    )
    closing = closing.replace('"; ".join', '", ".join')
    sentence = (
        f"{capital(inside(what))} {inside(per)}{job.which} went from {{first:{spec}}} in"
        f" {{trend.index[0]}} to {{last:{spec}}}{mark} in {{trend.index[-1]}}{{change}};"
        f" highest in {{trend.idxmax()}} ({{trend.max():{spec}}}), lowest in {{trend.idxmin()}}"
        f" ({{trend.min():{spec}}}). All: {{listed}}."
    )
    return thought, code, _final(sentence, closing)


def _distribution(job: Job) -> Work:
    question, measure = job.question, job.measure
    if not measure.numeric:
        shares = replace(question, groups=(Group(column=measure),))
        return _shares(Job(question=shares, table=job.table, source=job.source))
    title = title_of(f"distribution of {measure.label}", question)
    if question.groups:
        return _distribution_by(job, title)
    code = (
        f"values = {item(job.source, measure)}.dropna()\nsummary = values.describe()\n"
        "print(summary)\n\n" + charts.histogram("values", measure, title)
    )
    spec, fine = raw(measure), computed(measure)
    sentence = (
        f"{capital(inside(measure.label))}{job.which} ranges from {{summary['min']:{spec}}} to"
        f" {{summary['max']:{spec}}}{unit(measure)}: average {{summary['mean']:{fine}}}, median"
        f" {{summary['50%']:{fine}}}, standard deviation {{summary['std']:{fine}}}, the middle half"
        f" between {{summary['25%']:{fine}}} and {{summary['75%']:{fine}}} ({{len(values):,}} of"
        f" {{len({job.source}):,}} {job.question.noun} have a value)."
    )
    return "I summarise and draw the values.", PLT + code, _final(sentence)


def _distribution_by(job: Job, title: str) -> Work:
    measure, by = job.measure, job.question.groups[0]
    code = (
        f"summary = {grouped(job.source, (by,))}[{quoted(measure.name)}].describe()\n"
        "print(summary)\n\n" + charts.boxes(job.source, by, measure, f"{title} by {by.name}")
    )
    spec, fine = raw(measure), computed(measure)
    figures = (
        f"{{row['min']:{spec}}} to {{row['max']:{spec}}}{unit(measure)}, median"
        f" {{row['50%']:{fine}}}, average {{row['mean']:{fine}}}, standard deviation"
        f" {{row['std']:{fine}}} (n = {{row['count']:.0f}})"
    )
    closing = _listed("summary.iterrows()", "{group}", figures, 1, "row")
    sentence = f"{capital(inside(measure.label))} by {inside(by.name)}{job.which}: {{listed}}."
    return f"I compare the spread in each {by.name}.", PLT + code, _final(sentence, closing)


_RECIPES: dict[str, Callable[[Job], Work]] = {
    "describe": _describe, "missing": _missing, "count": _count, "counts": _counts,
    "distinct": _distinct, "distinct_by": _distinct_by, "share": _share, "shares": _shares,
    "share_of_sum": _share_of_sum, "aggregate": _aggregate, "by": _by, "rows": _rows,
    "lookup": _lookup, "correlation": _correlation, "correlates": _correlates, "trend": _trend,
    "distribution": _distribution, "matching": _matching,
}  # fmt: skip
