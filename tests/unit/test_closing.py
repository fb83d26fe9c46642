"""Closing finishes: every part, in reverse order, whichever of them cannot be closed."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.records.event import Notice
from kernel_agent.session.closing import Closing

PARTS = ("telemetry", "servers", "model", "trace", "place", "kernel")


class Opened:
    """Parts that were opened, of which some cannot be closed."""

    def __init__(self, broken=(), error=OSError, tell=None):
        self.closed, self.told = [], []
        self.closing = Closing(tell or self.told.append)
        for number, name in enumerate(PARTS):
            close = self._awaited if number % 2 else self._called
            self.closing.add(name, lambda close=close, name=name: close(name, broken, error))

    def _called(self, name, broken, error):
        self.closed.append(name)
        if name in broken:
            raise error(f"no {name}")

    async def _awaited(self, name, broken, error):
        await asyncio.sleep(0)
        self._called(name, broken, error)


async def test_parts_are_closed_from_the_last_to_the_first():
    opened = Opened()
    await opened.closing.close()
    assert opened.closed == [*reversed(PARTS)]
    assert opened.told == []


@given(broken=st.lists(st.sampled_from(PARTS), min_size=1, max_size=2, unique=True))
async def test_whichever_parts_cannot_be_closed_all_others_are(broken):
    """Each failure is told, and the first one is raised when the rest is closed."""
    opened = Opened(broken)
    failed = [name for name in reversed(PARTS) if name in broken]
    with pytest.raises(OSError, match=f"^no {failed[0]}$"):
        await opened.closing.close()
    assert opened.closed == [*reversed(PARTS)]
    assert [event.text for event in opened.told] == [
        f"The {name} could not be closed (OSError: no {name})." for name in failed
    ]


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
@pytest.mark.parametrize("broken", PARTS)
async def test_an_interruption_while_closing_closes_the_rest_and_is_passed_on(broken, error):
    opened = Opened([broken, "kernel"], error=error)
    with pytest.raises(error):
        await opened.closing.close()
    assert opened.closed == [*reversed(PARTS)]


async def test_an_interruption_is_passed_on_rather_than_an_error():
    """So that a task that was cancelled while its session closed is seen to be cancelled."""
    opened = Opened(["model"], error=asyncio.CancelledError)
    opened.closing.add("first", lambda: 1 / 0)
    with pytest.raises(asyncio.CancelledError):
        await opened.closing.close()
    assert [type(event) for event in opened.told] == [Notice]


async def test_a_failure_is_logged_with_its_traceback(caplog):
    caplog.set_level(logging.INFO, "kernel_agent")
    with pytest.raises(OSError, match="no trace"):
        await Opened(["trace"]).closing.close()
    [record] = caplog.records
    assert record.getMessage() == "closing the trace failed"
    assert record.exc_info is not None


async def test_a_listener_that_fails_keeps_nothing_from_being_closed():
    def tell(_event):
        raise ValueError("of somebody else")

    opened = Opened(["trace"], tell=tell)
    with pytest.raises(OSError, match="no trace"):
        await opened.closing.close()
    assert opened.closed == [*reversed(PARTS)]


async def test_nothing_is_closed_twice():
    opened = Opened(["trace"])
    with pytest.raises(OSError, match="no trace"):
        await opened.closing.close()
    await opened.closing.close()
    assert opened.closed == [*reversed(PARTS)]


@given(broken=st.lists(st.sampled_from([*PARTS, "folder"]), max_size=2, unique=True))
async def test_after_a_start_that_failed_what_it_made_is_removed_and_nothing_is_raised(broken):
    """What made it fail is raised by the session; what was made is removed after all else."""
    opened = Opened(broken)
    opened.closing.add_made("folder", lambda: opened._called("folder", broken, OSError))
    await opened.closing.abandon()
    assert opened.closed == [*reversed(PARTS), "folder"]
    assert len(opened.told) == len(broken)


async def test_what_a_start_made_stays_when_the_session_ends_later():
    opened = Opened()
    opened.closing.add_made("folder", lambda: opened.closed.append("folder"))
    await opened.closing.close()
    assert "folder" not in opened.closed
