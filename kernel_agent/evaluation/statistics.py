"""The statistics of a comparison: few, exact where they can be, and paired by task. Pure.

The unit is the *task*: several trials of one task are averaged first, because they are not
independent of each other. So an interval never gets narrow by repeating the same few tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

RESAMPLES = 10_000
SEED = 20_240_501  # fixed: the same results give the same table


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0 or self.high < 0


def wilson(successes: float, n: int, *, level: float = 0.95) -> Interval:
    """Return a share with Wilson's score interval.

    Parameters
    ----------
    successes
        How many of ``n``; a mean over trials may be a fraction.
    n
        Independent units (tasks).
    level
        Of confidence.

    Notes
    -----
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22
    (1927), equation 4; without continuity correction.
    """
    if n <= 0:
        return Interval(value=math.nan, low=0.0, high=1.0)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(value=share, low=low, high=high)


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    Parameters
    ----------
    only_first, only_second
        Tasks on which one arm did better than the other. Ties say nothing about the difference.

    Notes
    -----
    Q. McNemar, Psychometrika 12 (1947); exact by the binomial distribution with one half. With
    one trial a task this is McNemar's test; with several it is the sign test over tasks.
    """
    n, smaller = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(smaller + 1))
    return float(min(1.0, 2 * tail / 2**n))


def smallest_p(discordant: int) -> float:
    """Return the p-value if every task that tells the arms apart spoke for the same one."""
    return mcnemar_exact(discordant, 0)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for being several (S. Holm, Scand. J. Statist. 6, 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, so_far = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = so_far
    return tuple(adjusted)


def paired_shares(
    first: Sequence[float], second: Sequence[float], *, level: float = 0.95
) -> Interval:
    """Return the mean of ``second - first`` for shares of success, with an interval.

    Parameters
    ----------
    first, second
        One share a task (0 or 1, with several trials between them), in the same order of tasks.

    Notes
    -----
    A. Agresti, Y. Min, "Simple improved confidence intervals for comparing matched proportions",
    Statistics in Medicine 24 (2005): Wald's interval after two tasks more, which half speak for
    each arm and half for none. A bootstrap has no width when all tasks speak alike; this one has.
    """
    differences = [b - a for a, b in zip(first, second, strict=True)]
    n, total = len(differences), math.fsum(differences)
    if n == 0:
        return Interval(value=math.nan, low=-1.0, high=1.0)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = total / (n + 2)
    spread = (math.fsum(d * d for d in differences) + 1) / (n + 2) - centre * centre
    half = z * math.sqrt(spread / (n + 2))
    return Interval(value=total / n, low=max(-1.0, centre - half), high=min(1.0, centre + half))


def bootstrap_difference(
    first: Sequence[float], second: Sequence[float], *, level: float = 0.95
) -> Interval:
    """Return the mean of ``second - first`` with its bootstrap interval, by percentiles.

    Parameters
    ----------
    first, second
        One value a task, in the same order of tasks; tasks are drawn, pairs stay together.
    """
    if not first:
        return Interval(value=math.nan, low=-math.inf, high=math.inf)
    one, other = _resampled_means(first, second)
    value = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    return _percentiles(value, other - one, level)


def bootstrap_ratio(
    first: Sequence[float], second: Sequence[float], *, level: float = 0.95
) -> Interval | None:
    """Return the mean of ``second`` over the mean of ``first``, with its bootstrap interval.

    None where the first has tasks without any: a share of nothing is no number.
    """
    if not first or min(first) <= 0:
        return None
    one, other = _resampled_means(first, second)
    return _percentiles(math.fsum(second) / math.fsum(first), other / one, level)


def _resampled_means(*columns: Sequence[float]) -> Any:
    """Return the means of each column over tasks that are drawn again, the same for all."""
    import numpy as np

    values = np.asarray(columns, dtype=float)
    tasks = values.shape[1]
    draw = np.random.default_rng(SEED)
    means = np.empty((len(columns), RESAMPLES))
    chunk = max(1, 1_000_000 // tasks)  # bounded memory, whatever the number of tasks
    for start in range(0, RESAMPLES, chunk):
        size = (min(chunk, RESAMPLES - start), tasks)
        drawn = draw.integers(0, tasks, size)
        means[:, start : start + size[0]] = values[:, drawn].mean(axis=2)
    return means


def _percentiles(value: float, drawn: Any, level: float) -> Interval:
    import numpy as np

    low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(value=value, low=float(low), high=float(high))
