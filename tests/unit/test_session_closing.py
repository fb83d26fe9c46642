"""A session that ends lets go of everything, whatever of it fails."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_agent import FakeKernel, ScriptedModel, Session
from kernel_agent.errors import UsageError
from kernel_agent.records.event import Event

PARTS = (
    "model", "telemetry", "MCP servers", "folders of data", "trace", "notebook's place", "kernel",
)  # fmt: skip


class Closable(ScriptedModel):
    """A model that says whether it was closed; and one that cannot be prepared, or closed."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__([])
        self.closed = False
        self._fails = fails

    async def prepare(self) -> None:
        """Fail if told to."""
        if self._fails:
            raise UsageError("no such model")

    async def close(self) -> None:
        """Note it."""
        self.closed = True
        if self._fails:
            raise OSError("not closed, either")


def make(model: ScriptedModel, out: Path, events: list[Event]) -> Session:
    return Session(model=model, out=out, kernel=FakeKernel, on_event=events.append)


def told(events: list[Event]) -> list[str]:
    return [getattr(event, "text", "") for event in events]


def failing(close: Callable[[], Awaitable[object] | None]) -> Callable[[], Awaitable[None]]:
    """Return what closes a part, and fails only then."""

    async def close_and_fail() -> None:
        closing: Any = close()
        if closing is not None:
            await closing
        raise OSError("it broke off")

    return close_and_fail


@pytest.mark.parametrize("broken", PARTS)
async def test_a_part_that_cannot_be_closed_keeps_no_other_from_being_closed(
    broken: str, tmp_path: Path
) -> None:
    """It is told which one, and the error is raised when all else is closed."""
    model, events = Closable(), list[Event]()
    session = make(model, tmp_path / "out", events)
    await session.start()
    assert session._parts is not None
    opened = session._closing._opened
    assert [name for name, _ in opened] == [*PARTS]
    opened[:] = [(name, failing(close) if name == broken else close) for name, close in opened]
    with pytest.raises(OSError, match="it broke off"):
        await session.close()
    assert f"The {broken} could not be closed (OSError: it broke off)." in told(events)
    assert not session.alive
    assert model.closed
    assert session._parts.trace._file.closed
    assert not session.notebook_path.exists()  # no run has filled it
    await session.close()  # nothing is left to be closed


async def test_what_made_a_start_fail_is_raised_even_when_closing_fails_too(tmp_path: Path) -> None:
    """And the folder that it made is gone."""
    model, events = Closable(fails=True), list[Event]()
    session = make(model, tmp_path / "out", events)
    with pytest.raises(UsageError, match="no such model"):
        await session.start()
    assert (session.closed, model.closed, session.alive) == (True, True, False)
    assert not (tmp_path / "out").exists()
    assert "The model could not be closed (OSError: not closed, either)." in told(events)


async def test_a_session_that_is_closed_while_it_starts_leaves_nothing_open(tmp_path: Path) -> None:
    """What was opened after that is closed by the start itself, which fails."""

    class Slow(Closable):
        async def prepare(self) -> None:
            await session.close()

    model = Slow()
    session = make(model, tmp_path / "out", [])
    with pytest.raises(UsageError, match="the session is closed"):
        await session.start()
    assert (model.closed, session.alive) == (True, False)


def test_a_session_used_synchronously_ends_its_thread_even_when_closing_fails(
    tmp_path: Path,
) -> None:
    session = make(Closable(), tmp_path / "out", [])
    assert session.__enter__() is session
    thread, opened = session._thread, session._closing._opened
    opened[:] = [(name, failing(close)) for name, close in opened]
    with pytest.raises(OSError, match="it broke off"):
        session.close_sync()
    assert thread is not None
    assert not thread._thread.is_alive()
