"""Ctrl-C while something is waited for that runs on a loop in another thread."""

import asyncio
import signal
import sys
import threading

import pytest

from kernel_agent.session.loop_thread import LoopThread


async def interrupting() -> None:
    """Send the signal to this thread, not to the main one, which waits: so it wakes nobody."""
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "wait":
        await asyncio.sleep(0)
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def thread():
    made = LoopThread()
    yield made
    made.end()


def test_a_signal_that_wakes_nobody_is_noticed_all_the_same(thread):
    async def work() -> None:
        await interrupting()
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        thread.result(work())


def test_what_is_interrupted_has_ended_when_that_is_told(thread):
    """It removes what it made: the program must not end before."""
    done = []

    async def work() -> None:
        try:
            await interrupting()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("removed")

    with pytest.raises(KeyboardInterrupt):
        thread.result(work())
    assert done == ["removed"]


def test_what_ends_well_when_it_is_stopped_gives_its_result(thread):
    """A run is told to stop, and is then waited for."""
    stopped = asyncio.Event()

    async def work() -> str:
        await interrupting()
        await stopped.wait()
        return "interrupted"

    async def stop() -> None:
        stopped.set()

    assert thread.result(work(), on_interrupt=lambda: thread.begin(stop())) == "interrupted"
