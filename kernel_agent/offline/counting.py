"""Recipes that count: rows, groups, different values, missing ones; and the overview of a table."""

from __future__ import annotations

from kernel_agent.offline import charts
from kernel_agent.offline.cells import quote
from kernel_agent.offline.jobs import (
    Job,
    Work,
    final,
    group_label,
    in_order,
    labels_of,
    listing,
    month_names,
    name_of,
    names_of,
    telling_columns,
    unknown_groups,
    unknown_said,
)
from kernel_agent.offline.schema import plural
from kernel_agent.offline.writing import (
    PLT,
    capital,
    computed,
    group_by,
    inflect,
    insert,
    inside,
    item,
    raw,
    title_of,
    unit,
)


def describe(job: Job) -> Work:
    """Return an overview of the whole table."""
    numbers = [c for c in job.table.columns if c.numeric and not c.numbering]
    texts = [c for c in job.table.columns if c.kind in ("text", "bool") and c.low_cardinality]
    source = job.source
    code = f'{source}.describe(include="all").transpose()'
    if numbers:
        code = charts.histograms(source, numbers[:6]) + "\n\n" + code
    rows, columns = inflect(job.rows, "rows"), inflect(job.table.width, "columns")
    said = f"{{len({source}):,}} {rows} and {{{source}.shape[1]}} {columns}"
    overall = [f"all_{name}" for name in names_of(numbers[:6])]  # sales is the table of sales.csv
    parts = [
        f"{inside(c.label)} {{{name}['min']:{raw(c)}}} to {{{name}['max']:{raw(c)}}}{unit(c)}"
        f" (average {{{name}['mean']:{computed(c)}}})"
        for c, name in zip(numbers[:6], overall, strict=True)
    ]
    before = "".join(
        f'{name} = {item(source, c)}.agg(["min", "max", "mean"])\n'
        for c, name in zip(numbers[:6], overall, strict=True)
    )
    before += f"missing = int({source}.isna().sum().sum())\n"
    for c in texts[:3]:
        before += (
            f'{name_of(c)}_values = ", ".join({item(source, c)}.value_counts().head(8).index'
            ".astype(str))\n"
        )
        parts.append(f"{inside(c.label)}: {{{name_of(c)}_values}}")
    sentence = f"The table has {said}, with {{missing:,}} missing values." + (
        f" {'; '.join(parts)}." if parts else ""
    )
    return (
        "The question asks for an overview; I summarise every column.",
        code,
        final(sentence, before),
    )


def missing(job: Job) -> Work:
    """Return the number of missing values, by column or of one."""
    names = [c.name for c in job.question.measures]
    if len(names) == 1:
        series = item(job.source, job.measure)
        code = f'missing = {series}.isna().sum()\nprint(missing, "of", len({job.source}))'
        sentence = (
            f"{{missing}} of {{len({job.source})}} {job.question.noun} have no"
            f" {inside(job.measure.label)} ({{missing / len({job.source}):.1%}})."
        )
        return "I count the rows without a value.", code, final(sentence)
    chosen = f"[[{', '.join(map(quote, names))}]]" if names else ""
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
    return "I count the missing values of each column.", code, final(sentence, closing)


def count(job: Job) -> Work:
    """Return how many rows there are."""
    code = f"count = len({job.source})\nprint(count)"
    of = f", of {{len({job.table.variable}):,}} in all" if job.question.filters else ""
    are = "is" if job.rows == 1 else "are"
    noun = inflect(job.rows, job.question.noun)
    sentence = f"There {are} {{count:,}} {noun}{job.which}{of}."
    return "Each row counts as one, so I count rows.", code, final(sentence)


def counts(job: Job) -> Work:
    """Return how many rows each group has, all of them or the most and fewest."""
    question, groups = job.question, job.question.groups
    by = " and ".join(g.name for g in groups)
    noun = job.question.noun
    ascending = question.direction == "lowest"
    sizes = f"{group_by(job.source, groups)}.size()"
    ordered = in_order(groups) and not question.n
    order = "" if ordered else f".sort_values(ascending={ascending})"
    code = f"counts = {sizes}{order}" + month_names("counts", groups) + "\nprint(counts)"
    if len(groups) == 1:
        title = title_of(f"number of {noun} by {by}", question)
        code = PLT + code + "\n\n" + charts.bars("counts", title, x=by, y=f"number of {noun}",
                                               line=ordered, few=job.few,
                                               years=groups[0].years)  # fmt: skip
    thought = f"I count the {noun} in each {by}."
    if question.n:
        return thought, code, _top_counts(job, by, noun)
    closing = listing(
        "counts.items()", "{count:,}", "count", few=job.few, label=group_label(groups)
    )
    closing += unknown_groups(job)
    sentence = (
        f"{capital(noun)} by {inside(by)}{job.which}: {{listed}}; {{counts.sum():,}} in all"
        f"{unknown_said(job)}."
    )
    return thought, code, final(sentence, closing)


def _top_counts(job: Job, by: str, noun: str) -> str:
    n, lowest = job.question.n, job.question.direction == "lowest"
    word = "fewest" if lowest else "most"
    pick = "nsmallest" if lowest else "nlargest"
    label = group_label(job.question.groups)
    before = f'top = counts.{pick}({n}, keep="all")\n'
    before += listing("top.items()", "{count:,}", "count", few=job.few, label=label)
    lead = f"{n} {plural(by)}" if n > 1 else by
    verb = ":" if n > 1 else " is"
    sentence = f"The {inside(lead)} with the {word} {noun}{job.which}{verb} {{listed}}."
    return final(sentence, before)


def distinct(job: Job) -> Work:
    """Return how many different values a column has."""
    series = item(job.source, job.measure)
    code = f'values = {series}.dropna().unique()\nprint(len(values), "different values")'
    closing = 'listed = ", ".join(map(str, sorted(values)))\n'
    if job.measure.distinct > 12:
        closing = (
            'listed = ", ".join(map(str, sorted(values)[:12]))'
            ' + (", …" if len(values) > 12 else "")\n'
        )
    sentence = f"There are {{len(values):,}} different values of {inside(job.measure.label)}"
    return (
        f"I count the different values of {job.measure.name}.",
        code,
        final(f"{sentence}{job.which}: {{listed}}.", closing),
    )


def distinct_by(job: Job) -> Work:
    """Return how many different values of a column each group has."""
    question = job.question
    by = " and ".join(g.name for g in question.groups)
    ascending = question.direction == "lowest"
    code = (
        f"distinct = {group_by(job.source, question.groups)}[{quote(job.measure.name)}].nunique()"
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
    label = group_label(question.groups)
    before += listing(items, "{count}", "count", few=job.few, label=label)
    sentence = f"{lead}{job.which}: {{listed}}."
    return f"I count what is different in each {by}.", code, final(sentence, before)


def matching(job: Job) -> Work:
    """Name the rows that meet the conditions, as far as a sentence holds them."""
    columns = list(job.table.labels) or telling_columns(job)
    fields = ", ".join(insert(name_of(c), raw(c) if c.kind == "date" else "") for c in columns)
    names = ", ".join(name_of(c) for c in columns)
    series = ", ".join(labels_of(job.source, columns))
    loop = f"in zip({series})" if len(columns) > 1 else f"in {series}"
    code = f"print({job.source}.head(30).to_string())"
    before = (
        f'parts = [f"{fields}" for {names} {loop}]\n'
        'listed = "; ".join(parts if len(parts) <= 20 else [*parts[:20], "…"])\n'
    )
    sentence = f"{{len({job.source}):,}} {job.question.noun} match{job.which}: {{listed}}."
    return "I list the rows that match.", code, final(sentence, before)
