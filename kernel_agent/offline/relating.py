"""Recipes for two columns: correlation, and change over time."""

from __future__ import annotations

import re

from kernel_agent.offline import charts
from kernel_agent.offline.cells import quote
from kernel_agent.offline.jobs import (
    MOST_NAMED,
    Job,
    Work,
    final,
    listing,
    told_stat,
)
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column
from kernel_agent.offline.writing import (
    PLT,
    STAT_WORDS,
    capital,
    computed,
    group_by,
    inside,
    title_of,
    unit,
)


def correlation(job: Job) -> Work:
    """Return how two columns go together, in all rows or by group."""
    a, b = job.question.measures
    if job.question.groups:
        return _correlation_by(job, a, b)
    code = (
        f"pairs = {job.source}[[{quote(a.name)}, {quote(b.name)}]].dropna()\n"
        f'r = pairs[{quote(a.name)}].corr(pairs[{quote(b.name)}])\nprint(f"r = {{r:.3f}}")'
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
    return "Two columns of numbers: I correlate and draw them.", code, final(sentence, before)


def _correlation_by(job: Job, a: Column, b: Column) -> Work:
    by = job.question.groups[0]
    code = (
        f"by_{slug_name(by.name)} = {{\n"
        f"    group: rows[{quote(a.name)}].corr(rows[{quote(b.name)}])\n"
        f"    for group, rows in {group_by(job.source, (by,))}\n}}\n"
        f"print(by_{slug_name(by.name)})"
    )
    closing = listing(f"by_{slug_name(by.name)}.items()", "r = {r:.3f}", "r", few=job.few)
    sentence = (
        f"Correlation (Pearson's r) of {inside(a.label)} and {inside(b.label)} by"
        f" {inside(by.name)}{job.which}: {{listed}}."
    )
    return f"I correlate the two columns in each {by.name}.", code, final(sentence, closing)


def slug_name(text: str) -> str:
    """Return a group in words as part of a Python name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "group"


def correlates(job: Job) -> Work:
    """Return the correlations with a column, or of all pairs of columns."""
    numbers = [c for c in job.table.columns if c.numeric]
    names = f"[{', '.join(quote(c.name) for c in numbers)}]"
    if len(numbers) < 2:
        raise NotUnderstood("a correlation needs at least two columns of numbers")
    if job.question.measures:
        measure = job.measure
        code = (
            f"numbers = {job.source}[{names}]\n"
            f"r = numbers.corr()[{quote(measure.name)}].drop({quote(measure.name)}).dropna()\n"
            "r = r.sort_values(key=abs, ascending=False)\nprint(r.round(3))"
        )
        title = title_of(f"correlation with {measure.label}", job.question)
        code = (
            PLT + code + "\n\n" + charts.bars("r", title, x="column", y="Pearson's r", line=False)
        )
        closing = listing(
            "r.items()", "{value:+.3f}", "value", few=len(numbers) <= MOST_NAMED, label="{column}"
        )
        sentence = (
            f"Correlation (Pearson's r) with {inside(measure.label)}{job.which}, strongest first:"
            " {listed}."
        )
        return "I correlate it with every other column of numbers.", code, final(sentence, closing)
    code = (
        f"r = {job.source}[{names}].corr()\nprint(r.round(3))\n\n"
        "pairs = {(a, b): r.loc[a, b] for i, a in enumerate(r) for b in list(r)[i + 1 :]}\n"
        "pairs = {pair: value for pair, value in pairs.items() if pd.notna(value)}\n"
        "strongest = sorted(pairs, key=lambda pair: abs(pairs[pair]), reverse=True)[:5]"
    )
    code = PLT + code + "\n\n" + charts.matrix(title_of("correlations", job.question))
    closing = 'listed = "; ".join(f"{a} and {b} {pairs[a, b]:+.3f}" for a, b in strongest)\n'
    sentence = f"The strongest correlations (Pearson's r){job.which}: {{listed}}."
    return "I correlate all columns of numbers.", code, final(sentence, closing)


def _positive(measure: Column) -> bool:
    """Whether all its values are above zero, so that a change can be given in per cent."""
    return measure.numeric and float(measure.low or 0) > 0


def trend(job: Job) -> Work:
    """Return how a figure changes from one time to the next."""
    question = job.question
    time, others = question.groups[0], question.groups[1:]
    stat = question.stats[0]
    word = STAT_WORDS[stat]
    source = group_by(job.source, question.groups)
    measure = question.measures[0] if question.measures else None
    what = told_stat(stat, measure) if measure else f"number of {job.question.noun}"
    values = f"{source}[{quote(measure.name)}].{stat}()" if measure else f"{source}.size()"
    unstack = ".unstack()" if others else ".dropna()"
    code = f"trend = {values}{unstack}\nprint(trend)"
    per = f"by {time.name}" + (f" and {others[0].name}" if others else "")
    title = title_of(f"{what} {per}", question)
    y = (
        f"{word} {measure.label}" + (f" ({measure.unit})" if measure and measure.unit else "")
        if (measure)
        else what
    )
    code = (
        PLT
        + code
        + "\n\n"
        + charts.lines("trend", title, x=time.name, y=y, many=bool(others), years=time.years)
    )
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
            final(f"{capital(inside(what))} {per}{job.which}: {{listed}}.", closing),
        )
    closing, change = "first, last = trend.iloc[0], trend.iloc[-1]\n", "{change}"
    if measure is None or _positive(measure):
        change = " ({last / first - 1:+.1%})"
    else:
        closing += 'change = f" ({last / first - 1:+.1%})" if first > 0 else ""\n'
    closing += listing("trend.items()", f"{{value:{spec}}}", "value", few=job.few, sep=", ")
    sentence = (
        f"{capital(inside(what))} {inside(per)}{job.which} went from {{first:{spec}}} in"
        f" {{trend.index[0]}} to {{last:{spec}}}{mark} in {{trend.index[-1]}}{change};"
        f" highest in {{trend.idxmax()}} ({{trend.max():{spec}}}), lowest in {{trend.idxmin()}}"
        f" ({{trend.min():{spec}}}). All: {{listed}}."
    )
    return thought, code, final(sentence, closing)
