"""Recipes for shares: of rows, of each value, of a total."""

from __future__ import annotations

from kernel_agent.offline import charts
from kernel_agent.offline.cells import quote
from kernel_agent.offline.jobs import (
    Job,
    Work,
    final,
    listing,
    told_stat,
    unknown_groups,
    unknown_said,
)
from kernel_agent.offline.writing import (
    PLT,
    computed,
    conditions,
    group_by,
    inside,
    item,
    tell,
    title_of,
    unit,
)
from kernel_agent.offline.writing import series as group_series


def share(job: Job) -> Work:
    """Return the share of rows that meet the target's conditions."""
    question, source = job.question, job.source
    if question.groups:
        return _share_by(job)
    what = tell(question.target)
    code = (
        f"matching = {source}[{conditions(source, question.target)}]\n"
        f'print(len(matching), "of", len({source}))'
    )
    before, tail = "", ""
    incomplete = [f.column for f in question.target if f.column.missing]
    if incomplete:
        names = ", ".join(quote(c.name) for c in incomplete)
        before = f"known = len({source}.dropna(subset=[{names}]))\n"
        tail = (
            f"; of the {{known:,}} with a known {inside(incomplete[0].label)} it is"
            " {len(matching) / known:.1%}"
        )
    sentence = (
        f"{{len(matching) / len({source}):.1%}} of the {question.noun}{job.which} have"
        f" {inside(what)}: {{len(matching):,}} of {{len({source}):,}}{tail}."
    )
    return f"I count the rows with {what} and divide.", code, final(sentence, before)


def _share_by(job: Job) -> Work:
    """Return the share in each group; rows where the condition cannot be known are left out."""
    question, source, by = job.question, job.source, job.question.groups[0]
    lines = []
    incomplete = [quote(f.column.name) for f in question.target if f.column.missing]
    if incomplete:
        lines.append(f"known = {source}.dropna(subset=[{', '.join(incomplete)}])")
        source = "known"
    lines += [
        f"matching = {conditions(source, question.target)}",
        f'shares = matching.groupby({group_series(source, by)}).agg(["mean", "sum", "count"])',
        'shares = shares.sort_values("mean", ascending=False)' if not by.temporal else "",
        "print(shares)",
    ]
    what = tell(question.target)
    title = title_of(f"share with {what} by {by.name}", question)
    chart = charts.bars(
        'shares["mean"] * 100',
        title,
        x=by.name,
        y="share (%)",
        line=by.temporal,
        few=job.few,
        years=by.years,
    )
    figures = "{share:.1%} ({hits} of {n})"
    closing = listing("shares.itertuples()", figures, "share, hits, n", few=job.few)
    sentence = f"Share with {inside(what)} by {inside(by.name)}{job.which}: {{listed}}."
    code = PLT + "\n".join(filter(None, lines)) + "\n\n" + chart
    return f"I compute the share in each {by.name}.", code, final(sentence, closing)


def shares(job: Job) -> Work:
    """Return each value of a column with its count and share."""
    by = job.question.groups[0]
    counts = (
        f"{item(job.source, by.column)}.value_counts()"
        if not by.part
        else f"{group_by(job.source, (by,))}.size()"
    )
    order = ".sort_index()" if by.temporal else ""
    code = (
        f"counts = {counts}{order}\n"
        'shares = counts / counts.sum()\nprint(shares.map("{:.1%}".format))'
    )
    noun = job.question.noun
    title = title_of(f"{noun} by {by.name}", job.question)
    code = PLT + code + "\n\n" + charts.bars("counts", title, x=by.name, y=f"number of {noun}",
                                             line=by.temporal, few=job.few,
                                             years=by.years)  # fmt: skip
    closing = listing("counts.items()", "{count:,} ({shares[group]:.1%})", "count", few=job.few)
    closing += unknown_groups(job)
    sentence = (
        f"{{len(counts)}} values of {inside(by.name)} among {{counts.sum():,}} {noun}{job.which}:"
        f" {{listed}}{unknown_said(job)}."
    )
    return f"I count each {by.name} and its share.", code, final(sentence, closing)


def share_of_sum(job: Job) -> Work:
    """Return each group's share of the total of a column."""
    by, measure = job.question.groups[0], job.measure
    code = (
        f"totals = {group_by(job.source, (by,))}[{quote(measure.name)}].sum()"
        ".sort_values(ascending=False)\nshares = totals / totals.sum()\n"
        'print(shares.map("{:.1%}".format))'
    )
    title = title_of(f"share of {measure.label} by {by.name}", job.question)
    y = f"share of {measure.label} (%)"
    chart = charts.bars("shares * 100", title, x=by.name, y=y, line=False, few=job.few)
    code = f"{PLT}{code}\n\n{chart}"
    figures = f"{{shares[group]:.1%}} ({{total:{computed(measure, 'sum')}}}{unit(measure)})"
    closing = listing("totals.items()", figures, "total", few=job.few)
    total = inside(told_stat("sum", measure))
    sentence = f"Share of the {total} by {inside(by.name)}{job.which}: {{listed}}."
    return f"I add up {measure.name} in each {by.name} and divide.", code, final(sentence, closing)
