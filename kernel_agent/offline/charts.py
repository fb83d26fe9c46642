"""Labelled matplotlib charts, one for each shape of result, as code."""

from __future__ import annotations

from kernel_agent.offline.cells import quote
from kernel_agent.offline.question import Group
from kernel_agent.offline.schema import Column
from kernel_agent.offline.writing import (
    PLT,
    START_CHART,
    capital,
    finish_chart,
    group_by,
    item,
    slug,
    with_unit,
)  # fmt: skip


def bars(
    values: str, title: str, *, x: str, y: str, line: bool, few: bool = False, years: bool = False
) -> str:
    """Return bars of a series by its index, the first ones unless ``few``; a line over time."""
    if line:
        return lines(values, title, x=x, y=y, many=False, years=years)
    shown = f"({values})" if " " in values else values
    head = "" if few else ".head(20)"
    return f"{START_CHART}\n{shown}{head}[::-1].plot.barh(ax=ax)\n" + finish_chart(title, x=y, y=x)


def groups(
    values: str, title: str, by: tuple[Group, ...], measure: Column, what: str, *, few: bool
) -> str:
    """Return the chart of an aggregate by one or two groups."""
    label = f"{what} ({measure.unit})" if measure.unit else what
    head = "" if few else ".head(20)"
    if len(by) == 2:
        return f"{START_CHART}\n{values}.unstack(){head}.plot.bar(ax=ax, rot=0)\n" + finish_chart(
            title, x=by[0].name, y=label
        )
    group = by[0]
    return bars(
        values, title, x=group.name, y=label, line=group.temporal, few=few, years=group.years
    )


def lines(values: str, title: str, *, x: str, y: str, many: bool, years: bool = False) -> str:
    """Return one line, or one for each column, over time; years have no fractions on the axis."""
    values = f"({values})" if " " in values else values
    style = "" if many else ', marker="o", markersize=3'
    whole = 'ax.locator_params(axis="x", integer=True)\n' if years else ""
    return f"{START_CHART}\n{values}.plot(ax=ax{style})\n{whole}" + finish_chart(title, x=x, y=y)


def top_bars(labels: list[Column], measure: Column, title: str) -> str:
    """Return bars of single rows, the first on top, named by one column or by several."""
    names = f"{item('top', labels[0])}.astype(str)"
    if len(labels) > 1:
        listed = ", ".join(quote(c.name) for c in labels)
        names = f'top[[{listed}]].astype(str).agg(", ".join, axis=1)'
    return (
        f"{START_CHART}\n"
        f"names = {names}\n"
        f"ax.barh(range(len(top)), {item('top', measure)}, tick_label=names)\n"
        "ax.invert_yaxis()\n"
        + finish_chart(title, x=with_unit(measure), y=", ".join(c.label for c in labels))
    )


def scatter(pairs: str, a: Column, b: Column, title: str) -> str:
    """Return points with a straight line through them."""
    x, y = item(pairs, a), item(pairs, b)
    return (
        "import numpy as np\n\n"
        f"slope, intercept = np.polyfit({x}, {y}, 1)\n"
        f"{START_CHART}\nax.scatter({x}, {y}, s=14, alpha=0.6)\n"
        f'ax.plot({x}, slope * {x} + intercept, color="black", linewidth=1)\n'
        + finish_chart(title, x=with_unit(a), y=with_unit(b))
    )


def histogram(values: str, measure: Column, title: str) -> str:
    """Return a histogram with its median marked."""
    return (
        f'{START_CHART}\nax.hist({values}, bins=20, edgecolor="white")\n'
        f'ax.axvline({values}.median(), color="black", linestyle="--", label="median")\n'
        "ax.legend()\n" + finish_chart(title, x=with_unit(measure), y="number of rows")
    )


def histograms(source: str, columns: list[Column]) -> str:
    """Return small histograms of several columns."""
    names = ", ".join(quote(c.name) for c in columns)
    title = "Distributions of the numeric columns"
    return (
        f"{PLT}axes = {source}[[{names}]].hist(bins=20, figsize=(9, 5))\n"
        "fig = axes.flat[0].figure\n"
        f"fig.suptitle({quote(title)})\nfig.tight_layout()\n"
        f'fig.savefig("{slug(title)}.png", dpi=150, bbox_inches="tight")\nplt.show()'
    )


def boxes(source: str, by: Group, measure: Column, title: str) -> str:
    """Return one box for each group."""
    return (
        f"groups = {{str(g): v.dropna() for g, v in {group_by(source, (by,))}"
        f"[{quote(measure.name)}]}}\n"
        f"{START_CHART}\nax.boxplot(list(groups.values())[:20], tick_labels=list(groups)[:20])\n"
        + finish_chart(title, x=by.name, y=with_unit(measure))
    )


def matrix(title: str) -> str:
    """Return the picture of a correlation matrix."""
    return (
        "fig, ax = plt.subplots(figsize=(7, 6))\n"
        'image = ax.imshow(r, cmap="RdBu_r", vmin=-1, vmax=1)\n'
        'ax.set_xticks(range(len(r)), r.columns, rotation=45, ha="right")\n'
        "ax.set_yticks(range(len(r)), r.columns)\n"
        'fig.colorbar(image, label="Pearson\'s r")\n'
        f"ax.set_title({quote(capital(title))})\n"
        f'fig.savefig("{slug(title)}.png", dpi=150, bbox_inches="tight")\nplt.show()'
    )
