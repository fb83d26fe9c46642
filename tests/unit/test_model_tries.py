"""How often an endpoint is asked again, how long is waited, and what is said of it."""

from __future__ import annotations

from typing import Any

from kernel_agent.models.errors import EndpointError
from kernel_agent.models.retries import RESTART_PAUSE_S, Transport, Tries

REFUSED = EndpointError("refused", advice="", retry=True, trouble="refused")
CUT = EndpointError("broke off", advice="", retry=True)
LOADING = EndpointError("failed (503: Loading model)", advice="", retry=True, status=503)
TIMED_OUT = EndpointError("sent nothing", advice="", retry=True, trouble="timed out")
SILENT = EndpointError("ended", advice="", retry=True, trouble="silent")
UNFINISHED = EndpointError("ended early", advice="", retry=True, trouble="unfinished")


class Clock:
    """A clock that is moved by what is waited."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tries(clock: Clock | None = None, **settings: Any) -> Tries:
    return Tries(Transport(**{"max_retries": 4, **settings}), clock=clock or Clock())


def waited(made: Tries, clock: Clock, *errors: EndpointError, answered: bool = True) -> float:
    """Return how long the last error of all is asked again for."""
    began = clock.now
    for error in (*errors, *[errors[-1]] * 1000):
        again = made.after(error, streamed=True, answered=answered)
        if again is None:
            return clock.now - began
        clock.now += again.pause_s
    raise AssertionError("it is asked for ever")


def test_a_server_that_has_answered_is_waited_for_a_minute() -> None:
    """It restarts; a look costs it nothing, so there is one every two seconds."""
    clock = Clock()
    made = tries(clock)
    assert waited(made, clock, REFUSED) == 60.0
    assert made.summary() == "refused, 33 times"


def test_breaks_and_refusals_are_told_apart() -> None:
    """Each with its own number, the latest last."""
    clock = Clock()
    made = tries(clock)
    assert 60.0 < waited(made, clock, CUT, REFUSED) <= 60.5
    assert made.summary() == "broke off, then refused, 33 times"


def test_one_that_never_answered_is_not_waited_for() -> None:
    """Nothing runs there, or the address is wrong: that is said within seconds."""
    clock = Clock()
    assert waited(tries(clock), clock, REFUSED, answered=False) < 8


def test_waiting_is_told_once_and_does_not_use_up_tries() -> None:
    """A server that says 503 while it loads its model belongs to the wait; a break does not."""
    clock = Clock()
    made = tries(clock, max_retries=1)
    told = []
    for error in [REFUSED] * 5 + [LOADING] * 5 + [CUT]:
        again = made.after(error, streamed=True, answered=True)
        assert again is not None
        assert again.pause_s <= RESTART_PAUSE_S
        told.append(again.notice)
    assert told[0] == "refused: waiting for it to come back, 60 s at most"
    assert [bool(notice) for notice in told] == [True] + [False] * 9 + [True]
    assert made.after(CUT, streamed=True, answered=True) is None


def test_without_retries_nothing_is_waited_for() -> None:
    """Who wants no retries gets none."""
    made = tries(max_retries=0)
    for error in (REFUSED, LOADING, CUT, UNFINISHED):
        assert made.after(error, streamed=True, answered=True) is None


def test_503_alone_is_tried_as_often_as_anything() -> None:
    """A server that is up and overloaded is no server that restarts."""
    made = tries(max_retries=2)
    outcomes = [made.after(LOADING, streamed=True, answered=True) for _ in range(3)]
    assert [outcome is not None for outcome in outcomes] == [True, True, False]


def test_a_reply_in_one_piece_that_took_too_long_is_not_asked_for_again() -> None:
    """The server goes on working on each; with streaming, silence means that it does not."""
    assert tries().after(TIMED_OUT, streamed=False, answered=True) is None
    assert tries().after(TIMED_OUT, streamed=True, answered=True) is not None


def test_after_a_stream_in_which_nothing_came_it_is_asked_without_streaming() -> None:
    """At once, and beside the tries; and so for the rest of the call."""
    made = tries(max_retries=0)
    again = made.after(SILENT, streamed=True, answered=False)
    assert again is not None
    assert (again.pause_s, made.plainly) == (0.0, True)
    assert made.after(SILENT, streamed=False, answered=False) is None


def test_whoever_was_cut_for_another_waits_longer_than_after_a_break() -> None:
    """So that the other can end; the waits differ, so that one of two comes through."""
    pauses = [tries().after(error, streamed=True, answered=True) for error in (UNFINISHED, CUT)]
    assert pauses[0] is not None
    assert pauses[1] is not None
    assert 2.0 <= pauses[0].pause_s <= 4.0
    assert pauses[1].pause_s <= 0.5


def test_after_two_streams_that_were_ended_early_the_reply_is_asked_for_in_one_piece() -> None:
    """Two that end each other's streams for ever come through one after the other then."""
    made = tries()
    plainly = []
    for _ in range(3):
        made.after(UNFINISHED, streamed=not made.plainly, answered=True)
        plainly.append(made.plainly)
    assert plainly == [False, True, True]
