"""A session beneath another: its place in the tree, its files, its answer, its story above."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from kernel_agent.errors import InputError, KernelError
from kernel_agent.records import Answer as FinalAnswer
from kernel_agent.records import (
    Budget,
    Code,
    DataFile,
    Delegated,
    Event,
    ExitStatus,
    Json,
    Meter,
    Notice,
    RunStart,
    RunStop,
    Step,
    agent_line,
    agents_of,
    answer_note,
    word_answer,
)
from kernel_agent.safe import Made, make_beneath, one_line, plain
from kernel_agent.session.delegation.scope import CurrentRun, Stoppable
from kernel_agent.session.folder import DATA_NAME
from kernel_agent.session.parameters import Opening
from kernel_agent.session.run import Run
from kernel_agent.session.telemetry.base import Telemetry

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel
    from kernel_agent.session.folders.library import Library

KINDS = {"arrow": "Arrow", "json": "JSON", "bin": "binary", "png": "PNG"}
ANSWER_CHARS = 1000  # of an answer, in the record of the run that asked
NOTE_CHARS = 500  # of what stands beside it


@dataclass
class Count:
    """Count of all runs beneath the session at the top of a tree."""

    runs: int = 0


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The place of a session in its tree; the default is the top.

    Parameters
    ----------
    depth
        How many sessions are above it.
    parent_id
        The run that delegated it.
    meter
        What its run may cost.
    opening
        The first cell of its run.
    files
        What that cell reads; in its folder already.
    library
        The folders of data of the session above, which it may read as well.
    telemetry
        What it reports to, beneath the call that delegated it.
    count
        Shared by the whole tree.
    """

    depth: int = 0
    parent_id: str | None = None
    meter: Meter | None = None
    opening: Code | None = None
    files: tuple[DataFile, ...] = ()
    library: Library | None = None
    telemetry: Telemetry | None = None
    count: Count = field(default_factory=Count)


class Child(Stoppable, Protocol):
    """A session beneath, as the one above uses it; :class:`kernel_agent.Session` is one."""

    @property
    def tainted(self) -> bool:
        """Whether data from others has entered it."""
        ...

    async def __aenter__(self) -> Any:
        """Start."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End."""

    async def run(self, task: str, *, budget: Budget, typed: bool) -> Run:
        """Work on a task until it ends."""
        ...

    async def whole_answer(self, run: Run) -> Json:
        """Return the answer of the last run with its type and all its rows."""
        ...


Spawn = Callable[[Lineage, Path, Callable[[Event], None]], Child]
"""Makes a session beneath this one: its lineage, its folder, what hears its events."""


async def work(session: Child, task: str, budget: Budget) -> tuple[Run, Json]:
    """Do a task in a session of its own; return the run, and its answer if there is one."""
    async with session:
        run = await session.run(task, budget=budget, typed=False)
        answer = await session.whole_answer(run) if run.status is ExitStatus.ANSWERED else None
    return run, answer


async def whole_answer(run: Run, kernel: Kernel) -> Json:
    """Return the answer of a run that has just ended, as its kernel has it.

    Parameters
    ----------
    run
        The last run of its session.
    kernel
        That of the session.

    Raises
    ------
    KernelError
        The kernel did not give it: it is too large, or the kernel has ended.
    """
    if not run.steps or not isinstance(run.steps[-1].action, Code):
        return run.answer  # it was given by a call: plain JSON
    try:
        return await kernel.get_answer()
    except InputError:  # it has no form there
        return run.answer
    except KernelError as error:
        why = one_line(str(error), 300)
        raise KernelError(f"its answer could not be taken from its kernel ({why})") from None


def make_place(agents: Made | None, name: str) -> Made:
    """Make an agent's folder, with a number behind its name when that is taken.

    Raises
    ------
    OSError
        It cannot be made, or what is in the place of the folder of all agents is not that.
    """
    assert agents is not None  # made before the kernel whose cells may delegate
    with agents.open() as opened:
        return make_beneath(opened, name)


def fill(folder: Made, opening: Opening | None) -> None:
    """Write the files for an agent into its folder."""
    if opening is None or not opening.files:
        return
    with folder.open() as opened, opened.make(DATA_NAME) as data:
        for name, content in opening.files.items():
            with data.create(name, mode=0o444) as file:
                file.write(content)


def files_of(opening: Opening) -> tuple[DataFile, ...]:
    """Return the records of an agent's files."""
    return tuple(
        DataFile(
            path=f"{DATA_NAME}/{name}",
            source="delegate(data)",
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            kind=KINDS[name.rpartition(".")[2]],
        )
        for name, content in opening.files.items()
    )


class Hearing:
    """Listens to a delegated run: reports its beginning and end above, keeps its record."""

    def __init__(self, name: str, task: str, folder: Path, above: CurrentRun) -> None:
        self._name, self._task = name, task
        self._folder = os.path.relpath(folder, above.folder)
        self._tell = above.tell
        self._visited = above.visited
        self._agents: tuple[Delegated, ...] = ()
        self.run_id = ""
        self.untrusted = False
        """Whether it used what came from others: then its answer does, too."""
        self.delegated: Delegated | None = None
        """The run's result so far; None until it began."""

    def __call__(self, event: Event) -> None:
        """Hear an event of the run; called by its session."""
        if isinstance(event, RunStart):
            self._begin(event)
        elif isinstance(event, Step):
            self._agents += agents_of([event])
            calls = event.result.calls if event.result else ()
            self.untrusted = self.untrusted or any(call.untrusted for call in calls)
        elif isinstance(event, RunStop):
            self._end(event)
        elif isinstance(event, Notice):
            self._say(event.text, event.run_id)

    def _begin(self, start: RunStart) -> None:
        self.run_id = start.run_id
        self.delegated = Delegated(
            run_id=start.run_id,
            name=self._name,
            folder=self._folder,
            task=self._task,
            status=ExitStatus.INTERRUPTED,  # until it says otherwise
        )
        caps = limits_text(start.budget)
        self._say(f"started ({caps}): {one_line(self._task, 100)}")

    def _end(self, stop: RunStop) -> None:
        assert self.delegated is not None
        self._visited(stop.network)
        self.delegated = dataclasses.replace(
            self.delegated,
            status=stop.status,
            answer=_answer_text(stop.answer),
            note=one_line(answer_note(stop.answer), NOTE_CHARS) if stop.answer else "",
            message=stop.message,
            steps=stop.steps,
            seconds=stop.seconds,
            usage=stop.usage,
            agents=self._agents,
        )
        self._say(agent_line(self.delegated))

    def _say(self, text: str, run_id: str = "") -> None:
        self._tell(Notice(text=f"Agent {self._name}: {text}", run_id=run_id or self.run_id))


def _answer_text(answer: FinalAnswer | None) -> str:
    """Return a short text of an answer for a person; of a table, its size."""
    if answer is None:
        return ""
    worded = word_answer(answer)
    if worded.size and "\n" in worded.text:
        return f"a {plain(answer.kind)}: {worded.size.partition(';')[0]}"
    return plain(answer.text)[:ANSWER_CHARS]


def limits_text(budget: Mapping[str, Json]) -> str:
    """Return the caps of a run in words."""
    words = {
        "max_steps": "{} steps",
        "max_seconds": "{:.0f} s",
        "max_tokens": "{:,} tokens",
        "max_cost": "${:.4f}",
    }
    caps = [word.format(budget[name]) for name, word in words.items() if budget.get(name)]
    return f"at most {', '.join(caps)}" if caps else "no limits"
