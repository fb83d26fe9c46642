"""Caps end a run; waiting for a person does not count; a child charges its parent."""

from __future__ import annotations

from contextlib import ExitStack

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


def test_a_parent_without_room_refuses_what_its_child_could_afford():
    """And the other way round: both have to afford it."""
    parent = Meter(Budget(max_tokens=100))
    child = Meter(Budget(max_tokens=1000), parent=parent)
    with child.expecting(60):
        assert child.affords(40)
        assert not child.affords(41)
    with parent.expecting(60):
        assert child.affords(40)
        assert not child.affords(41)
    small = Meter(Budget(max_tokens=50), parent=Meter(Budget(max_tokens=1000)))
    with small.expecting(30):
        assert small.affords(20)
        assert not small.affords(21)


def test_calls_under_way_are_expected_until_they_are_over():
    """Also when one fails, and in every parent."""
    parent = Meter(Budget(max_tokens=100))
    child = Meter(Budget(), parent=parent)

    def fail() -> None:
        with child.expecting(60), child.expecting(30):
            assert not parent.affords(11)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with parent.expecting(1):
        assert parent.affords(99)


def test_what_calls_will_cost_is_judged_by_what_they_have_cost():
    """In dollars by the price of a token so far; without any caps everything fits."""
    meter = Meter(Budget(max_cost=2.0))
    meter.charge(Usage(prompt_tokens=60, completion_tokens=40, cost_usd=1.0))
    with meter.expecting(50):
        assert meter.affords(50)
        assert not meter.affords(51)
    used = Meter(Budget(max_tokens=200))
    used.charge(Usage(prompt_tokens=100))
    with used.expecting(50):
        assert used.affords(50)
        assert not used.affords(51)
    free = Meter(Budget())
    with free.expecting(10**9):
        assert free.affords(10**9)
    unpaid = Meter(Budget(max_cost=2.0))
    with unpaid.expecting(10**9):
        assert unpaid.affords(10**9)  # nobody knows a price yet


def test_what_passed_before_the_meter_began_counts():
    """Finding out the format is charged to the first run, with its seconds."""
    clock = Clock()
    parent = Meter(Budget(max_seconds=10), clock=clock)
    child = Meter(Budget(max_seconds=10), parent=parent, clock=clock)
    child.charge(Usage(prompt_tokens=5, calls=1), seconds=3)
    assert (child.seconds, parent.seconds, child.seconds_left) == (3, 3, 7)
    assert child.usage == parent.usage == Usage(prompt_tokens=5, calls=1)
    child.charge(Usage(prompt_tokens=1))
    assert (child.seconds, parent.seconds) == (3, 3)


def test_time_passes_for_children_side_by_side():
    """Each gets half of what is left, whatever the others have; a parent's cap holds for it."""
    clock = Clock()
    parent = Meter(Budget(max_steps=None, max_seconds=100), clock=clock)
    clock.now += 20
    with parent.shared() as one, parent.shared(0.1) as two:
        assert (one.budget.max_seconds, two.budget.max_seconds) == (40, 40)
    free = Meter(Budget(max_steps=None, max_seconds=None), clock=clock)
    with free.shared() as child:
        assert child.budget == Budget(max_steps=None, max_seconds=None)
        assert child.parent is free


def test_money_is_shared_to_the_last_cent_and_things_are_counted_whole():
    """A share of what is left, never less than one where there is one."""
    parent = Meter(Budget(max_steps=5, max_seconds=None, max_tokens=3, max_cost=1.0))
    parent.charge(Usage(cost_usd=0.5))
    with parent.shared(0.1) as child:
        assert child.budget.max_cost == pytest.approx(0.05)
        assert (child.budget.max_steps, child.budget.max_tokens) == (1, 1)
    with pytest.raises(BudgetExceeded, match="cost"), parent.shared(-1):
        pass  # a share below nothing is nothing


@pytest.mark.parametrize(
    ("budget", "limit", "used", "cap"),
    [
        (Budget(max_steps=2, max_seconds=None), "steps", 2, 2),
        (Budget(max_steps=None, max_seconds=None, max_cost=1.0), "cost", 1.0, 1.0),
    ],
)
def test_nothing_left_to_share_is_said_with_what_was_used(budget, limit, used, cap):
    """With what is set apart for others counted as used."""
    parent = Meter(budget)
    with ExitStack() as children:

        def share_until_nothing_is_left() -> None:
            while True:
                children.enter_context(parent.shared())

        with pytest.raises(BudgetExceeded) as caught:
            share_until_nothing_is_left()
    assert (caught.value.limit, caught.value.used, caught.value.cap) == (limit, used, cap)


def test_what_is_left_of_a_cap_is_never_less_than_nothing():
    meter = Meter(Budget(max_steps=2, max_tokens=10, max_cost=1.5))
    meter.count_step()
    meter.charge(Usage(prompt_tokens=99, cost_usd=0.5))
    assert (meter.left("steps"), meter.left("tokens"), meter.left("cost")) == (1, 0, 1.0)
    assert Meter(Budget(max_steps=None)).left("steps") == 0
    assert Meter(Budget()).left("cost") == 0


def test_the_tightest_cap_on_time_is_the_one_that_counts():
    clock = Clock()
    parent = Meter(Budget(max_seconds=50), clock=clock)
    assert Meter(Budget(max_seconds=9), parent=parent, clock=clock).seconds_left == 9
    assert Meter(Budget(max_seconds=90), parent=parent, clock=clock).seconds_left == 50
    assert Meter(Budget(max_seconds=None), parent=parent, clock=clock).seconds_left == 50


def test_a_cap_of_a_part_of_one_is_a_cap():
    """And one cap is refused by its own name."""
    assert Budget(max_cost=0.01).max_cost == 0.01
    for name in ("max_steps", "max_seconds", "max_tokens", "max_cost"):
        with pytest.raises(UsageError, match=f"^{name} must be greater than 0, not 0$"):
            Budget(**{name: 0})


def test_a_run_has_thirty_steps_and_a_quarter_of_an_hour_unless_said_otherwise():
    assert (Budget().max_steps, Budget().max_seconds) == (30, 900.0)
    assert (Budget().max_tokens, Budget().max_cost) == (None, None)


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


def test_steps_that_are_kept_for_the_run_are_never_told_as_more_than_the_cap() -> None:
    parent = Meter(Budget(max_steps=8, max_seconds=None))
    for _ in range(7):
        parent.count_step()
    with pytest.raises(BudgetExceeded, match="8 of 8"), parent.shared():
        pass


def test_a_run_that_has_reached_a_cap_delegates_nothing() -> None:
    parent = Meter(Budget(max_tokens=10))
    parent.charge(tokens(10))
    with pytest.raises(BudgetExceeded, match="tokens"), parent.shared():
        pass
