"""Recipes for shares: of rows, of each value, of a total."""

from __future__ import annotations

from kernel_agent.models.offline import charts
from kernel_agent.models.offline.jobs import (
    Job,
    Work,
    final,
    listing,
    told_stat,
    unknown_groups,
    unknown_said,
)
from kernel_agent.models.offline.loading import quoted
from kernel_agent.models.offline.writing import (
    PLT,
    capital,
    computed,
    conditions,
    grouped,
    inside,
    item,
    title_of,
    told,
    unit,
)


def share(job: Job) -> Work:
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
        final(sentence, before),
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
    closing = listing("shares.iterrows()", "{group}",
                      "{row['mean']:.1%} ({row['sum']:.0f} of {row['count']:.0f})", 1, "row")  # fmt: skip
    sentence = f"Share with {what} by {inside(by.name)}{of}: {{listed}}."
    code = PLT + "\n".join(lines) + "\n\n" + chart
    return f"I compute the share in each {by.name}.", code, final(sentence, closing)


def shares(job: Job) -> Work:
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
    closing += unknown_groups(job)
    sentence = (
        f"{{len(counts)}} values of {inside(by.name)} among {{counts.sum():,}} {noun}{job.which}:"
        f" {{listed}}{unknown_said(job)}."
    )
    return f"I count each {by.name} and its share.", code, final(sentence, closing)


def share_of_sum(job: Job) -> Work:
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
    closing = listing("totals.items()", "{group}", figures, 1, "total")
    sentence = f"Share of the {inside(told_stat('sum', measure))} by {inside(by.name)}{job.which}: {{listed}}."
    return f"I add up {measure.name} in each {by.name} and divide.", code, final(sentence, closing)
