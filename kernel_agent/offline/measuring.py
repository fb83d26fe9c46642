"""Recipes that calculate with a column: aggregates, extremes, single values, distributions."""

from __future__ import annotations

from dataclasses import replace

from kernel_agent.offline import charts
from kernel_agent.offline.cells import quote
from kernel_agent.offline.jobs import (
    Job,
    Work,
    final,
    group_label,
    in_order,
    incomplete,
    known_clause,
    known_line,
    labels_of,
    lacking,
    listing,
    month_names,
    name_of,
    telling_columns,
    told_stat,
    told_value,
)
from kernel_agent.offline.question import Group, date_part
from kernel_agent.offline.schema import plural
from kernel_agent.offline.sharing import shares
from kernel_agent.offline.writing import (
    PLT,
    STAT_WORDS,
    capital,
    computed,
    group_by,
    insert,
    inside,
    item,
    raw,
    title_of,
    unit,
)
from kernel_agent.offline.writing import series as group_series


def aggregate(job: Job) -> Work:
    """Return one or more aggregates of one or more whole columns."""
    lines, said = [], []
    for column in job.question.measures:
        for stat in job.question.stats:
            name = f"{stat}_{name_of(column)}" if stat != "mean" else f"average_{name_of(column)}"
            lines.append(f"{name} = {item(job.source, column)}.{stat}()")
            said.append(
                f"the {inside(told_stat(stat, column))} is {told_value(name, column, stat)}"
            )
    code = "\n".join([*lines, f"print({', '.join(x.partition(' =')[0] for x in lines)})"])
    sentence = capital(", ".join(said)) + job.which
    before = ""
    missing = any(c.missing for c in job.question.measures)
    if missing:
        before = f"known = {item(job.source, job.measure)}.notna().sum()\n"
        sentence += (
            f" ({{known:,}} of {{len({job.source}):,}} {job.question.noun} have a known"
            f" {inside(job.measure.label)})"
        )
    else:
        sentence += f" (over {{len({job.source}):,}} {job.question.noun})"
    return "I calculate it over the column.", code, final(sentence + ".", before)


def by_group(job: Job) -> Work:
    """Return aggregates by one or two groups, all of them or the first few."""
    question, measure = job.question, job.measure
    groups = question.groups
    by = " and ".join(g.name for g in groups)
    stats = list(dict.fromkeys([*question.stats, "count"]))
    stat = question.stats[0]
    lowest = question.direction == "lowest"
    order = f'.sort_values("{stat}", ascending={lowest})'
    if len(groups) == 2 or (in_order(groups) and not question.n):
        order = ""
    code = (
        f"summary = {group_by(job.source, groups)}[{quote(measure.name)}]"
        f".agg([{', '.join(map(quote, stats))}]).dropna(){order}"
    )
    what = told_stat(stat, measure)
    code += month_names("summary", groups) + "\nprint(summary)"
    title = title_of(f"{what} by {by}", question)
    code = (
        PLT
        + code
        + "\n\n"
        + charts.groups(f'summary["{stat}"]', title, groups, measure, what, few=job.few)
    )
    lead = f"{capital(inside(what))} by {inside(by)}{job.which}"
    figures = ", ".join(
        (f"{STAT_WORDS[s].removesuffix(' of')} " if len(question.stats) > 1 else "")
        + told_value(_NAMES.get(s, s), measure, s)
        for s in question.stats
    )
    before, after, sentence = _top_groups(job) if question.n else _all_groups(job, lead)
    listed = listing(
        f"{'top' if question.n else 'summary'}.itertuples()",
        f"{figures} (n = {{n}})",
        ", ".join(_NAMES.get(s, s) for s in stats),
        few=job.few,
        label=group_label(groups),
    )
    thought = f"I compare the {what} of each {by}."
    return thought, code, final(sentence, before + listed + after)


# Statistics in a loop: pandas' names are those of Python functions.
_NAMES = {"sum": "total", "min": "lowest", "max": "highest", "count": "n"}


def _top_groups(job: Job) -> tuple[str, str, str]:
    """Return the lines around the list of groups and the sentence: the highest or lowest."""
    question, measure, stat = job.question, job.measure, job.question.stats[0]
    lowest = question.direction == "lowest"
    pick = "nsmallest" if lowest else "nlargest"
    before = f'top = summary.{pick}({question.n}, "{stat}", keep="all")\n'
    after = ""
    by = inside(question.groups[0].name)
    what = f"{question.direction} {inside(told_stat(stat, measure))}"
    lead = f"{question.n} {plural(by)}" if question.n > 1 else by
    verb = ":" if question.n > 1 else " is"
    sentence = (
        f"The {lead} with the {what}{job.which}{verb} {{listed}}, of {{len(summary)}} compared"
    )
    if not question.stated and stat == "mean":
        edge = "min" if lowest else "max"
        series = item(job.source, measure)
        group = group_series(job.source, question.groups[0])
        after = (
            f"extreme = {series}.{edge}()\n"
            f"single = {group}[{series} == extreme].dropna().astype(str).unique()\n"
            'single = ", ".join(single)\n'
        )
        sentence += (
            f" (by the {question.direction} single value, {{extreme:"
            f"{raw(measure)}}}{unit(measure)}: {{single}})"
        )
    sentence += "."
    if question.why:
        after += 'each = top["sum"] / top["count"]\n'
        after += 'usual = summary["sum"].sum() / summary["count"].sum()\n'
        each, usual = (told_value(name, measure, "mean") for name in ("each.iloc[0]", "usual"))
        sentence += (
            f" The table says as much about why: it has {{top['count'].iloc[0]:,}}"
            f" {question.noun} where the average {by} has {{summary['count'].mean():,.1f}}, with"
            f" {each} each where the average of all is {usual}."
        )
    return before, after, sentence


def _all_groups(job: Job, lead: str) -> tuple[str, str, str]:
    """Return the lines around the list of groups and the sentence: all, and what is left out."""
    question = job.question
    after, tail = "", ""
    needed = dict.fromkeys([job.measure, *(g.column for g in question.groups)])
    missing = incomplete(job, needed)
    if missing:
        after = f"left_out = {lacking(job.source, missing)}\n"
        tail = f" ({{left_out}} {question.noun} with a missing value are left out)"
    if missing and question.filters:  # then there may be none
        after += f'note = f"{tail}" if left_out else ""\n'
        tail = "{note}"
    two = len(question.groups) == 1 and question.groups[0].column.distinct == 2
    one_stat = len(question.stats) == 1
    picked = [f for f in question.filters if f.column == question.groups[0].column]
    two = two or any(f.test == "in" and len(f.values) == 2 for f in picked)
    if two and one_stat and len(question.groups) == 1:
        stat = question.stats[0]
        after += f'difference = summary["{stat}"].max() - summary["{stat}"].min()\n'
        tail = f"; the difference is {told_value('difference', job.measure, 'mean')}{tail}"
    return "", after, f"{lead}: {{listed}}{tail}."


def rows(job: Job) -> Work:
    """Return the rows with the highest or lowest values of a column; ties are kept and named."""
    question, measure = job.question, job.measure
    lowest = question.direction == "lowest"
    pick = "nsmallest" if lowest else "nlargest"
    labels = [g.column for g in question.groups] or list(job.table.labels)
    code = f'top = {job.source}.{pick}({question.n}, {quote(measure.name)}, keep="all")\nprint(top)'
    what = f"{question.direction} {inside(measure.label)}"
    columns = [c for c in labels or telling_columns(job) if c.name != measure.name]
    fields = ", ".join(insert(name_of(c), raw(c) if c.kind == "date" else "") for c in columns)
    value = f"{insert('value', raw(measure))}{unit(measure)}"
    if question.n > 1 and columns and measure.numeric:
        title = title_of(
            f"the {question.n} {question.direction} values of {measure.label}", question
        )
        code = PLT + code + "\n\n" + charts.top_bars(columns, measure, title)
    names = ", ".join([*(name_of(c) for c in columns), "value"])
    series = ", ".join([*labels_of("top", columns), item("top", measure)])
    series = f"zip({series})" if columns else series
    one = question.n == 1 and columns
    part = fields if one else f"{fields}: {value}" if fields else value
    before = (
        f'parts = [\n    f"{part}"\n    for {names} in {series}\n]\n'
        'listed = "; ".join(parts if len(parts) <= 20 else [*parts[:10], "…"])\n'
    )
    if question.n == 1:
        end = "min" if lowest else "max"
        before = f"extreme = {item(job.source, measure)}.{end}()\n" + before
        before += 'shared = f", shared by {len(top)} rows" if len(top) > 1 else ""\n'
        sentence = f"The {what}{job.which} is {insert('extreme', raw(measure))}{unit(measure)}"
        sentence += "{shared}: {listed}."
    else:
        before += (
            f'shared = " (more than asked, because of equal values)" if len(top) > {question.n}'
            ' else ""\n'
        )
        n = question.n
        sentence = f"The {n} {job.question.noun} with the {what}{job.which}{{shared}}: {{listed}}."
    if measure.missing:
        before += known_line(job)
        sentence = sentence[:-1] + f"{known_clause(job)}."
    return (
        f"I take the rows with the {question.direction} {measure.label}.",
        code,
        final(sentence, before),
    )


def lookup(job: Job) -> Work:
    """Return the one value that fits."""
    series = item(job.source, job.measure)
    code = f"value = {series}.iloc[0]\nprint(value)"
    spec = raw(job.measure)
    sentence = (
        f"The {inside(job.measure.label)}{job.which} is {insert('value', spec)}{unit(job.measure)}."
    )
    return "One row fits; I read its value.", code, final(sentence)


def distribution(job: Job) -> Work:
    """Return the spread of a column, as figures and a histogram."""
    question, measure = job.question, job.measure
    if not measure.numeric or measure.numbering:
        counted = replace(question, groups=(Group(column=measure, part=date_part(measure)),))
        return shares(replace(job, question=counted))
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
    return "I summarise and draw the values.", PLT + code, final(sentence)


def _distribution_by(job: Job, title: str) -> Work:
    measure, by = job.measure, job.question.groups[0]
    code = (
        f"summary = {group_by(job.source, (by,))}[{quote(measure.name)}].describe()\n"
        "print(summary)\n\n" + charts.boxes(job.source, by, measure, f"{title} by {by.name}")
    )
    spec, fine = raw(measure), computed(measure)
    figures = (
        f"{{row['min']:{spec}}} to {{row['max']:{spec}}}{unit(measure)}, median"
        f" {{row['50%']:{fine}}}, average {{row['mean']:{fine}}}, standard deviation"
        f" {{row['std']:{fine}}} (n = {{row['count']:.0f}})"
    )
    closing = listing("summary.iterrows()", figures, "row", few=job.few)
    sentence = f"{capital(inside(measure.label))} by {inside(by.name)}{job.which}: {{listed}}."
    return f"I compare the spread in each {by.name}.", PLT + code, final(sentence, closing)
