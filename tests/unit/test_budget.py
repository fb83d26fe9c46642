"""Caps end a run; waiting for a person does not count; a child charges its parent."""

from __future__ import annotations

import pytest

from kernel_agent.errors import BudgetExceeded, UsageError
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.conversation import Usage


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spend(meter: Meter, clock: Clock, limit: str) -> None:
    if limit == "steps":
        meter.count_step()
    elif limit == "seconds":
        clock.now += 1
    elif limit == "tokens":
        meter.charge(Usage(prompt_tokens=600, completion_tokens=400))
    else:
        meter.charge(Usage(cost_usd=1.0))


@pytest.mark.parametrize(
    ("limit", "budget"),
    [
        ("steps", Budget(max_steps=2)),
        ("seconds", Budget(max_seconds=2)),
        ("tokens", Budget(max_tokens=2000)),
        ("cost", Budget(max_cost=2.0)),
    ],
)
def test_a_cap_is_reached_exactly_when_it_is_spent(limit: str, budget: Budget) -> None:
    clock = Clock()
    meter = Meter(budget, clock=clock)
    spend(meter, clock, limit)
    meter.check()
    spend(meter, clock, limit)
    with pytest.raises(BudgetExceeded) as caught:
        meter.check()
    assert caught.value.limit == limit
    assert caught.value.used == caught.value.cap


def test_waiting_for_a_person_stops_the_clock() -> None:
    clock = Clock()
    meter = Meter(Budget(max_seconds=10), clock=clock)
    clock.now += 4
    with meter.paused():
        clock.now += 3600
        assert meter.seconds == 4
        with meter.paused():
            clock.now += 1
    assert meter.seconds == 4
    assert meter.seconds_left == 6
    assert meter.waited == 3601


def test_a_child_spends_its_parents_money_and_obeys_its_caps() -> None:
    clock = Clock()
    parent = Meter(Budget(max_tokens=1000, max_seconds=5), clock=clock)
    child = Meter(Budget(max_seconds=100), parent=parent, clock=clock)
    assert child.seconds_left == 5
    child.charge(Usage(prompt_tokens=1000))
    assert parent.usage.prompt_tokens == 1000
    with pytest.raises(BudgetExceeded, match="tokens"):
        child.check()


def test_no_cap_means_no_end() -> None:
    meter = Meter(Budget(max_steps=None, max_seconds=None))
    for _ in range(1000):
        meter.count_step()
    meter.check()
    assert meter.seconds_left is None


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_cap_that_allows_nothing_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="max_seconds"):
        Budget(max_seconds=value)


def test_the_clock_goes_on_when_nobody_waits_any_more() -> None:
    """Two children of a run may both wait for a person, and one is answered first."""
    clock = Clock()
    parent = Meter(Budget(max_seconds=10), clock=clock)
    first, second = (Meter(Budget(), parent=parent, clock=clock) for _ in range(2))
    waits = [first.paused(), second.paused()]
    for wait in waits:
        wait.__enter__()
        clock.now += 5
    assert (parent.waited, first.waited, second.waited) == (10, 10, 5)
    waits[0].__exit__(None, None, None)
    clock.now += 7
    assert (parent.seconds, second.seconds, first.seconds) == (0, 5, 7)
    waits[1].__exit__(None, None, None)
    clock.now += 1
    assert (parent.seconds, parent.waited) == (1, 17)


def test_a_child_counts_its_parents_steps() -> None:
    """So that a cap holds for a run and all beneath it together."""
    parent = Meter(Budget(max_steps=10))
    with parent.shared() as child, child.shared() as grandchild:
        grandchild.count_step()
        child.count_step()
    assert (grandchild.steps, child.steps, parent.steps) == (1, 2, 2)


def test_a_share_is_of_what_is_left_and_comes_back() -> None:
    """Two steps stay: the one under way and one to answer in."""
    parent = Meter(Budget(max_steps=12, max_seconds=100, max_tokens=1000), clock=Clock())
    with parent.shared() as one:
        assert (one.budget.max_steps, one.budget.max_tokens) == (5, 500)
        assert one.budget.max_seconds == 50
        one.charge(Usage(prompt_tokens=100))
    with parent.shared(0.25) as other:
        assert (other.budget.max_steps, other.budget.max_tokens) == (2, 225)


def test_a_child_may_ask_for_less_and_not_for_more() -> None:
    """Neither by its share nor by caps of its own."""
    parent = Meter(Budget(max_steps=22, max_seconds=100))
    with parent.shared(99, at_most=Budget(max_steps=1000, max_seconds=1)) as child:
        assert (child.budget.max_steps, child.budget.max_seconds) == (10, 1)
    with parent.shared(at_most=Budget(max_steps=3, max_tokens=50)) as child:
        assert (child.budget.max_steps, child.budget.max_tokens) == (3, 50)


def test_what_is_set_apart_for_others_is_not_given_again() -> None:
    """And when nothing is left, that is said."""
    parent = Meter(Budget(max_steps=6, max_seconds=None))
    with parent.shared() as one, parent.shared() as two:
        assert (one.budget.max_steps, two.budget.max_steps) == (2, 2)
        with pytest.raises(BudgetExceeded, match="steps"), parent.shared():
            pass
    with parent.shared() as three:
        assert three.budget.max_steps == 2


def tokens(count: int, cost: float | None = None) -> Usage:
    return Usage(prompt_tokens=count, cost_usd=cost)


def test_one_call_alone_is_always_afforded() -> None:
    """What it costs is known afterwards; the next one is refused."""
    meter = Meter(Budget(max_tokens=100, max_cost=0.01))
    meter.charge(tokens(90, 0.009))
    assert meter.affords(1_000_000)


def test_calls_side_by_side_fit_into_what_is_left_of_the_tokens() -> None:
    meter = Meter(Budget(max_tokens=1000))
    meter.charge(tokens(500))
    with meter.expecting(300):
        assert meter.affords(200)
        assert not meter.affords(201)
        with meter.expecting(100):
            assert meter.affords(100)
            assert not meter.affords(101)
        assert meter.affords(200)
    assert meter.affords(501)


def test_calls_side_by_side_fit_into_what_is_left_of_the_money() -> None:
    """At the price of the tokens so far."""
    meter = Meter(Budget(max_cost=2.0))
    meter.charge(tokens(1000, 1.0))
    with meter.expecting(600):
        assert meter.affords(400)
        assert not meter.affords(401)


def test_calls_side_by_side_have_no_end_where_nothing_is_capped() -> None:
    meter = Meter(Budget(max_seconds=1))
    with meter.expecting(1e9):
        assert meter.affords(1e9)


def test_a_call_of_a_child_fits_into_its_parents_caps() -> None:
    """Beside the calls of the parent's other children."""
    parent = Meter(Budget(max_tokens=1000))
    one, two = (Meter(Budget(), parent=parent) for _ in range(2))
    with one.expecting(600):
        assert two.affords(400)
        assert not two.affords(401)
    assert two.affords(401)


def test_what_a_call_took_before_the_meter_began_is_its_time() -> None:
    parent = Meter(Budget(max_seconds=10), clock=Clock())
    child = Meter(Budget(), parent=parent, clock=parent._clock)
    child.charge(tokens(1), seconds=4)
    assert (child.seconds, parent.seconds, child.seconds_left) == (4, 4, 6)


def test_the_time_that_is_left_is_the_tightest_of_all() -> None:
    clock = Clock()
    parent = Meter(Budget(max_seconds=50), clock=clock)
    child = Meter(Budget(max_seconds=10), parent=parent, clock=clock)
    clock.now += 3
    assert (child.seconds_left, parent.seconds_left) == (7, 47)


def test_a_share_of_money_is_of_what_is_left_beside_that_of_others() -> None:
    parent = Meter(Budget(max_steps=None, max_cost=10.0))
    parent.charge(tokens(1, 2.0))
    with parent.shared() as one, parent.shared(0.25) as two, parent.shared() as three:
        caps = [child.budget.max_cost for child in (one, two, three)]
        assert caps == [4.0, 2.0, 2.0]
        with pytest.raises(BudgetExceeded) as caught, parent.shared():
            pass
        assert (caught.value.limit, caught.value.used, caught.value.cap) == ("cost", 10.0, 10.0)
    assert parent.left("cost") == 8.0


def test_what_a_child_has_spent_of_its_share_is_not_set_apart_any_more() -> None:
    parent = Meter(Budget(max_steps=None, max_tokens=1000))
    with parent.shared() as one:
        one.charge(tokens(300))
        with parent.shared() as two:
            assert two.budget.max_tokens == 350
    assert (parent.left("tokens"), parent.left("steps")) == (700, 0)


def test_the_least_share_is_one_step_and_one_token() -> None:
    parent = Meter(Budget(max_steps=10, max_tokens=10, max_seconds=None))
    with parent.shared(0.0) as child:
        assert (child.budget.max_steps, child.budget.max_tokens) == (1, 1)


def test_a_run_that_has_reached_a_cap_delegates_nothing() -> None:
    parent = Meter(Budget(max_tokens=10))
    parent.charge(tokens(10))
    with pytest.raises(BudgetExceeded, match="tokens"), parent.shared():
        pass
