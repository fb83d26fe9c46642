"""Pictures of a comparison, as PNG bytes; the same results give the same picture."""

from __future__ import annotations

import contextlib
import io
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kernel_agent.evaluation.tables import MEASURES, Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTTED = ("requests", "steps", "prompt_tokens", "completion_tokens", "cost", "seconds")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""Told apart by people who see few colours (M. Okabe, K. Ito, 2008)."""


def success_png(comparison: Comparison) -> bytes:
    """Return the share of tasks that each arm got right, with Wilson's interval."""
    rows = [row for row in comparison.arms if row.tasks]
    figure, axes = _figure(len(rows), columns=1)
    places = range(len(rows))
    shares = [row.success.value for row in rows]
    errors = [
        [max(0.0, r.success.value - r.success.low) for r in rows],
        [max(0.0, r.success.high - r.success.value) for r in rows],
    ]
    axes[0].barh(places, shares, color=_colours(len(rows)), height=0.6)
    axes[0].errorbar(shares, places, xerr=errors, fmt="none", ecolor="black", capsize=4)
    axes[0].set_yticks(places, [f"{row.arm}\n({row.tasks} tasks)" for row in rows])
    axes[0].set_xlim(0, 1)
    axes[0].set_xlabel("share of tasks done right, 95 % interval")
    axes[0].invert_yaxis()
    return _png(figure)


def measures_png(comparison: Comparison) -> bytes:
    """Plot each arm's needs: the distribution over tasks, one panel for each measure."""
    arms = [row.arm for row in comparison.arms if row.runs]
    shown: dict[str, dict[str, list[float]]] = {}
    for measure in PLOTTED:
        value = MEASURES[measure][1]
        by_arm: dict[str, list[float]] = defaultdict(list)
        for result in comparison.results:
            if (one := value(result)) is not None:
                by_arm[result.arm].append(one)
        if any(by_arm.values()):
            shown[measure] = by_arm
    figure, axes = _figure(len(arms), columns=max(1, len(shown)))
    for axis, (measure, by_arm) in zip(axes, shown.items(), strict=False):
        boxes = axis.boxplot(
            [by_arm[arm] or [0.0] for arm in arms], orientation="horizontal", patch_artist=True,
            widths=0.6, medianprops={"color": "black"},
        )  # fmt: skip
        for box, colour in zip(boxes["boxes"], _colours(len(arms)), strict=True):
            box.set_facecolor(colour)
        axis.set_yticks(range(1, len(arms) + 1), arms if axis is axes[0] else [""] * len(arms))
        axis.set_xlabel(MEASURES[measure][0])
        axis.set_xlim(left=0)
        axis.invert_yaxis()
    return _png(figure)


def _figure(rows: int, *, columns: int) -> tuple[Figure, list[Any]]:
    with contextlib.chdir("/"):  # it would obey a matplotlibrc in the working directory
        from matplotlib.figure import Figure

    figure = Figure(figsize=(max(7.0, 2.6 * columns + 2.5), 1.2 + 0.6 * max(1, rows)), dpi=110)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", bbox_inches="tight", metadata={"Software": None})
    return stream.getvalue()
