"""Tasks started by one cell: they all end with the cell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from kernel_agent.errors import ToolError
from kernel_agent.records import Event, Meter, Visit
from kernel_agent.safe import Made
from kernel_agent.session.telemetry.base import Telemetry

if TYPE_CHECKING:
    from kernel_agent.models import Model

STOP_GRACE_S = 9.0  # an interrupted cell may take six seconds, and its kernel three

Answer = Callable[[str], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class CurrentRun:
    """The run under way: its cells act in its name and spend its budget.

    Parameters
    ----------
    run_id, meter
        Which it is, and what it may spend.
    tell
        Told what happens in it.
    model, telemetry
        What its prompts go to, and what watches the calls.
    visited
        Told what an agent's cells asked of the network.
    folder, agents
        The session's folder, and where the folders of its agents go, if there may be any.
    writes_code
        Whether its actions are cells; an agent's are as its own.
    """

    run_id: str
    meter: Meter
    tell: Callable[[Event], None]
    model: Model
    telemetry: Telemetry
    visited: Callable[[tuple[Visit, ...]], None]
    folder: Path
    agents: Made | None
    writes_code: bool = True


class Stoppable(Protocol):
    """A session beneath that can be stopped."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        ...

    def stop(self) -> None:
        """End the run."""
        ...


class Scope:
    """One cell, and the tasks that it has started.

    Parameters
    ----------
    current
        Returns the run under way, if there is one.
    """

    def __init__(self, current: Callable[[], CurrentRun | None] = lambda: None) -> None:
        self._current = current
        self.over = False
        """Whether the cell has ended."""
        self.agents = 0
        """Agents that are under way."""
        self._tasks: dict[asyncio.Task[Any], Stoppable | None] = {}
        self._requests: set[asyncio.Task[Any]] = set()
        self._under_way = 0
        self._since = 0.0
        self._waited = 0.0

    @property
    def run(self) -> CurrentRun | None:
        """The run under way."""
        return self._current()

    def waited(self) -> float:
        """Return the seconds in which the cell has waited for an agent or the model."""
        now = time.monotonic() - self._since if self._under_way else 0.0
        return self._waited + now

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time as waiting; several waits at the same time count once."""
        if not self._under_way:
            self._since = time.monotonic()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._waited += time.monotonic() - self._since

    def answering(self, answer: Answer) -> Answer:
        """Return a function that answers the cell's requests; its end waits for their answers."""

        async def answer_here(prompt: str) -> str:
            task = asyncio.current_task()
            assert task is not None
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            return await answer(prompt)

        return answer_here

    async def work(self, make: Callable[[], Any], session: Stoppable | None = None) -> Any:
        """Do work that ends with the cell at the latest.

        Raises
        ------
        ToolError
            The cell was over before the work was done.
        """
        self.check()
        task = asyncio.ensure_future(make())
        self._tasks[task] = session
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            del self._tasks[task]
        if task.cancelled():
            raise _over()
        return task.result()

    def check(self) -> None:
        """Raise when the cell is over."""
        if self.over:
            raise _over()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.end())

    async def end(self) -> None:
        """Stop what is still under way, and wait until its kernels are gone."""
        self.over = True
        tasks = set(self._tasks)
        if not tasks:
            return
        for task, session in self._tasks.items():
            if session is None or not session.busy:
                task.cancel()
            else:
                session.stop()
        _, late = await asyncio.wait(tasks, timeout=STOP_GRACE_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        await asyncio.sleep(0)
        if self._requests:  # their answers are records of the step
            await asyncio.wait(self._requests, timeout=0.1)


def _over() -> ToolError:
    return ToolError("interrupted: the cell that asked for it is over", kind="RuntimeError")
