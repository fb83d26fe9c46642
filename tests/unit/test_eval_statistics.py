"""The statistics of a comparison, against published and independently computed values."""

import math
import random

import pytest

from kernel_agent.evaluation.statistics import (
    bootstrap_difference,
    bootstrap_ratio,
    holm,
    mcnemar_exact,
    paired_shares,
    smallest_p,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # R. G. Newcombe, Statist. Med. 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_the_published_one(successes, n, low, high):
    """To the four digits that are printed."""
    interval = wilson(successes, n)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)
    assert interval.value == successes / n


def test_wilsons_interval_reaches_its_ends_and_says_nothing_about_nothing():
    """All right ends at one, all wrong begins at zero, no task is the whole range."""
    assert wilson(7, 7).high == 1.0
    assert wilson(0, 7).low == 0.0
    nothing = wilson(0, 0)
    assert math.isnan(nothing.value)
    assert (nothing.low, nothing.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [(0, 0, 1.0), (5, 0, 0.0625), (0, 6, 0.03125), (2, 10, 0.03857421875), (4, 4, 1.0)],
)
def test_mcnemars_exact_test_gives_the_binomial_values(only_first, only_second, p):
    """The third is scipy.stats.binomtest(2, 12).pvalue."""
    assert mcnemar_exact(only_first, only_second) == pytest.approx(p, abs=1e-12)
    assert mcnemar_exact(only_second, only_first) == mcnemar_exact(only_first, only_second)


def test_five_tasks_can_never_show_a_difference_and_six_can():
    """That is what "too few tasks to tell" rests on."""
    assert smallest_p(5) > 0.05 >= smallest_p(6)


def test_holms_adjustment_keeps_the_order_and_the_textbook_values():
    """Each p-value times the number of hypotheses that are left, never falling."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([]) == ()


def test_the_bootstrap_agrees_with_the_normal_interval_where_that_holds():
    """Two hundred tasks with normal differences: the ends agree within a tenth of the width."""
    draw = random.Random(1)
    first = [draw.gauss(10, 3) for _ in range(200)]
    second = [value + draw.gauss(0.5, 2) for value in first]
    differences = [b - a for a, b in zip(first, second, strict=True)]
    mean = sum(differences) / 200
    half = 1.96 * math.sqrt(sum((d - mean) ** 2 for d in differences) / 199 / 200)
    interval = bootstrap_difference(first, second)
    assert interval.value == pytest.approx(mean)
    assert interval.low == pytest.approx(mean - half, abs=0.2 * half)
    assert interval.high == pytest.approx(mean + half, abs=0.2 * half)


def test_the_bootstrap_is_paired_and_gives_the_same_twice():
    """A constant difference has no spread, however far the tasks lie apart."""
    first = [1.0, 100.0, 10_000.0]
    interval = bootstrap_difference(first, [value + 2 for value in first])
    assert (interval.low, interval.value, interval.high) == pytest.approx((2.0, 2.0, 2.0))
    assert bootstrap_difference([1, 2, 3], [3, 1, 9]) == bootstrap_difference([1, 2, 3], [3, 1, 9])
    assert bootstrap_difference([], []).low == -math.inf


def test_a_ratio_is_of_means_and_paired_and_none_where_the_first_needed_nothing():
    """Twice as many in each task is twice as many for sure; the delta method agrees elsewhere."""
    assert bootstrap_ratio([1.0, 5.0], [2.0, 10.0]).low == pytest.approx(2.0)
    assert bootstrap_ratio([0.0, 1.0], [1.0, 1.0]) is None
    assert bootstrap_ratio([], []) is None
    draw = random.Random(2)
    first = [draw.uniform(5, 15) for _ in range(200)]
    second = [1.5 * value + draw.gauss(0, 2) for value in first]
    mean = sum(first) / 200
    ratio = sum(second) / sum(first)
    spread = sum((b - ratio * a) ** 2 for a, b in zip(first, second, strict=True)) / 199
    half = 1.96 * math.sqrt(spread / 200) / mean
    interval = bootstrap_ratio(first, second)
    assert interval.value == pytest.approx(ratio)
    assert interval.low == pytest.approx(ratio - half, abs=0.2 * half)
    assert interval.high == pytest.approx(ratio + half, abs=0.2 * half)


def coverage(n, only_first, only_second):
    """How often the interval holds the true difference, over all outcomes of n tasks."""
    true, held = only_second - only_first, 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            chance = (
                math.comb(n, a) * math.comb(n - a, b)
                * only_first**a * only_second**b * (1 - only_first - only_second) ** (n - a - b)
            )  # fmt: skip
            ends = paired_shares(
                [1.0] * a + [0.0] * (n - a), [0.0] * a + [1.0] * b + [0.0] * (n - a - b)
            )
            held += chance * (ends.low <= true <= ends.high)
    return held


@pytest.mark.parametrize("n", [6, 10, 20])
@pytest.mark.parametrize(("first", "second"), [(0.1, 0.05), (0.25, 0.25), (0.5, 0.1), (0.0, 0.8)])
def test_the_interval_of_a_difference_of_shares_holds_it_as_often_as_few_tasks_allow(
    n, first, second
):
    """Nine times in ten at six tasks, where a bootstrap may hold it half of the time."""
    assert coverage(n, first, second) > 0.9


def test_tasks_that_all_speak_alike_leave_a_width():
    """Nineteen to none is no certainty; nothing at all is none either."""
    interval = paired_shares([1.0] * 19, [0.0] * 19)
    assert (interval.value, interval.low) == (-1.0, -1.0)
    assert interval.high == pytest.approx(-0.7483, abs=1e-4)
    assert paired_shares([0.5, 0.5], [0.5, 0.5]).high == pytest.approx(0.4900, abs=1e-4)
    assert math.isnan(paired_shares([], []).value)
