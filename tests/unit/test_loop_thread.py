"""Ctrl-C while something is waited for that runs on a loop in another thread."""

import asyncio
import signal

import pytest

from kernel_agent.session.loop_thread import LoopThread


async def interrupting() -> None:
    """Send the signal so that it wakes nobody: it comes to this thread, not to the main one."""
    signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()


@pytest.fixture
def thread():
    made = LoopThread()
    yield made
    made.end()


def test_a_signal_that_wakes_nobody_is_noticed_all_the_same(thread):
    with pytest.raises(KeyboardInterrupt):
        thread.result(interrupting())


def test_what_is_interrupted_has_ended_when_that_is_told(thread):
    """It removes what it made: the program must not end before."""
    done = []

    async def work() -> None:
        try:
            await interrupting()
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
        signal.raise_signal(signal.SIGINT)
        await stopped.wait()
        return "interrupted"

    def stop() -> None:
        thread.begin(set_it())

    async def set_it() -> None:
        stopped.set()

    assert thread.result(work(), on_interrupt=stop) == "interrupted"
