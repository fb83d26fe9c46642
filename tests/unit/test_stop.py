"""The stop signal: one object that everything under way holds."""

import asyncio

from kernel_agent.records.stop import StopSignal


async def test_whoever_waits_is_woken_and_whoever_is_to_be_told_is_called():
    stop, told = StopSignal(), []
    waiting = asyncio.ensure_future(stop.wait())
    with stop.calling(lambda: told.append("a")), stop.calling(lambda: told.append("b")):
        await asyncio.sleep(0)
        assert not waiting.done()
        stop.set()
    await asyncio.wait_for(waiting, 5)
    assert (stop.is_set, told) == (True, ["a", "b"])


def test_what_has_ended_is_told_no_more():
    stop, told = StopSignal(), []
    with stop.calling(lambda: told.append("within")):
        pass
    stop.set()
    assert told == []


def test_what_began_after_a_first_request_is_told_of_a_second():
    stop, told = StopSignal(), []
    stop.set()
    with stop.calling(lambda: told.append("again")):
        assert told == []
        stop.set()
    assert told == ["again"]


def test_it_is_cleared_for_what_begins_next():
    stop = StopSignal()
    stop.set()
    stop.clear()
    assert not stop.is_set


async def test_whoever_was_woken_stays_woken_when_it_is_cleared_at_once():
    """A cell that outlived its run is not held up by the run after it."""
    stop = StopSignal()
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.sleep(0)
    stop.set()
    stop.clear()
    await asyncio.wait_for(waiting, 5)
