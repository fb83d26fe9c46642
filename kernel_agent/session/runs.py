"""The runner: does the runs of a session, each from its first record to its notebook.

It has the model's side of a session: the model, the format in which it writes its actions now, the
conversation so far. A run is the loop, or fixed cells; what either asks for is carried out by the
executor, and what happens is kept in the trace, from which the notebook is written again after
each run. An undo is done here, too: it changes the same three, kernel, conversation and notebook.

The session makes one runner as the last thing when it starts.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from kernel_agent.agent import Agent, Checks, Context, ModelDecider, now
from kernel_agent.config import Config
from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.formats import AUTO, get_format, lower_rung
from kernel_agent.notebook import prepare_notebooks
from kernel_agent.records import (
    FILE_NAME,
    Action,
    Budget,
    Code,
    DataFile,
    Decision,
    Event,
    FormatChange,
    Json,
    Message,
    Meter,
    Notice,
    Record,
    Reply,
    ReplyText,
    RequestOptions,
    RunStart,
    TraceWriter,
    Undone,
    Usage,
)
from kernel_agent.safe import Watch
from kernel_agent.sandbox import level_of
from kernel_agent.session.cells import Executor
from kernel_agent.session.delegation import Current, Delegation, Lineage
from kernel_agent.session.first_look import look_at
from kernel_agent.session.folder import NOTEBOOK_NAME, files_made
from kernel_agent.session.parts import system_prompt, versions
from kernel_agent.session.pipeline import FIXED, FixedCell, FixedCells
from kernel_agent.session.run import Run
from kernel_agent.session.telemetry import Telemetry
from kernel_agent.session.undo import steps_to_undo
from kernel_agent.tools import Approval, Tool

if TYPE_CHECKING:
    from kernel_agent.formats import Format
    from kernel_agent.models import Choice, Model

Tell = Callable[[Event], None]
Making = Callable[[Budget, Tell], Agent]
"""Makes what does a run: what it may cost, who is told what happens."""


class Runner:
    """Does the runs of one session, one at a time.

    Parameters
    ----------
    config
        The settings.
    model
        Writes the actions; prepared, and closed by the session.
    choice
        The format in which it begins, why, and what finding out cost: the first run pays.
    executor
        Runs the cells; started.
    trace
        Keeps the records.
    folder
        The session's folder.
    files
        The inputs.
    tools
        What actions may call.
    approval
        Decides on the cells.
    delegation
        Told which run may delegate.
    lineage
        Where the session stands among those that delegate.
    telemetry
        Hears the events, and watches the model's calls.
    sandbox
        What a run's first record says of the level.
    settings
        What it says of the settings.
    """

    def __init__(
        self,
        config: Config,
        *,
        model: Model,
        choice: Choice,
        executor: Executor,
        trace: TraceWriter,
        folder: Path,
        files: Sequence[DataFile],
        tools: Sequence[Tool],
        approval: Approval,
        delegation: Delegation,
        lineage: Lineage,
        telemetry: Telemetry,
        sandbox: Mapping[str, Json],
        settings: Mapping[str, Json],
    ) -> None:
        self._config = config
        self._model = model
        self._format_reason = choice.reason
        self._unpaid = (choice.usage, choice.seconds)
        self.executor = executor
        """Runs the cells."""
        self._trace = trace
        self._folder = folder
        self._watch = Watch(folder)
        self._files = files
        self._tools = tools
        self._approval = approval
        self._delegation = delegation
        self._lineage = lineage
        self._telemetry = telemetry
        self._sandbox = sandbox
        self._settings = settings
        self._agent: Agent | None = None
        has_pandas = level_of(executor.level).has_packages
        self._look = look_at(folder, files, pandas=has_pandas and _may_import(config, "pandas"))
        self.format = get_format(choice.format, look=self._look)
        """How the model writes its actions now."""
        self._context = Context(
            self._system_prompt(self.format), self.format, max_tokens=config.context_tokens
        )

    # --- a run -----------------------------------------------------------------------------

    async def run(
        self, task: str, budget: Budget, *, tell: Callable[[Event], None], wanted: Sequence[str]
    ) -> Run:
        """Work on a task until it ends; see :meth:`Session.run`."""
        return await self._run(task, self._make_agent, budget, tell=tell, wanted=wanted)

    async def play(
        self,
        cells: Sequence[FixedCell],
        title: str,
        budget: Budget,
        *,
        tell: Callable[[Event], None],
    ) -> Run:
        """Run fixed cells; see :meth:`Session.play`."""

        def make(budget: Budget, tell: Tell) -> Agent:
            return self._make_pipeline(cells, budget, tell)

        return await self._run(title, make, budget, tell=tell)

    async def _run(
        self,
        task: str,
        make: Making,
        budget: Budget,
        *,
        tell: Callable[[Event], None],
        wanted: Sequence[str] = (),
    ) -> Run:
        if self.executor.busy:
            raise UsageError("the session is busy with another run")
        with self.executor.occupied():
            heard = self._telemetry.listener(tell, self._model)
            return await self._run_now(task, make, budget, tell=heard, wanted=wanted)

    async def _run_now(
        self, task: str, make: Making, budget: Budget, *, tell: Tell, wanted: Sequence[str]
    ) -> Run:
        Thread(target=prepare_notebooks, daemon=True).start()
        await self.executor.revive(tell)
        before = files_made(self._folder)
        self._agent = agent = make(budget, tell)
        if self.executor.stopping:
            agent.stop()
        start = self._run_start(task, budget, wanted)
        if isinstance(agent.decider, FixedCells):
            start = dataclasses.replace(start, model=FIXED, format=FIXED, system_prompt="")
        self._delegation.current = self._current(start, tell)
        first, opening = self.executor.steps + 1, self._lineage.opening
        try:
            stop = await agent.run(start, first_step=first, opening=opening)
        finally:
            self._agent = self._delegation.current = None
            if isinstance(agent.decider, ModelDecider):
                self.format = agent.decider.format
            self.executor.note(agent.steps)
            notebook = self._export(tell)
        return Run.of(
            start,
            stop,
            steps=tuple(agent.steps),
            trace=self._folder / FILE_NAME,
            notebook=notebook,
            files=tuple(
                name
                for name, changed in files_made(self._folder).items()
                if before.get(name) != changed
            ),
        )

    def stop(self) -> None:
        """End what is under way, at once; called on the session's loop."""
        self.executor.stop()
        if self._agent is not None:
            self._agent.stop()
            self.executor.interrupt()

    def _make_agent(self, budget: Budget, tell: Tell) -> Agent:
        model, fmt, trace = self._model, self.format, self._trace
        meter = self._meter = self._lineage.meter or Meter(budget)
        usage, seconds = self._unpaid
        meter.charge(usage, seconds=seconds)
        self._unpaid = (Usage(), 0.0)
        schemas = tuple(tool.schema for tool in self._tools) if not fmt.writes_code else ()

        async def complete(messages: list[Message]) -> Reply:
            options = decider.format.options(tools=schemas)
            return await self._telemetry.complete(model, messages, options, tell_all)

        def tell_all(event: Event) -> None:
            agent.hear(event)
            tell(event)

        async def summarise(messages: list[Message]) -> Reply:
            options = RequestOptions()
            return await self._telemetry.complete(model, messages, options, tell_notices)

        def tell_notices(event: Event) -> None:
            if not isinstance(event, ReplyText):  # a summary is no part of the run's story
                tell(event)

        async def admit(action: Action, number: int) -> Decision | None:
            if not isinstance(action, Code):
                return None  # the broker asks about each call
            return await self._approval.cell(action.source, number)

        def record(made: Record) -> None:
            trace.append(made)
            if isinstance(made, FormatChange):
                from kernel_agent.models import memory_file, remember_change

                remember_change(memory_file(), made, model=model)

        decider = ModelDecider(
            complete,
            format=fmt,
            context=self._context,
            lower=self._lower,
            summarise=summarise if model.writes_prose else None,
            names=frozenset(tool.name for tool in self._tools),
            observation_chars=self._config.observation_chars,
        )
        agent = Agent(
            decider,
            execute=self.executor.executing(meter, tell),
            record=record,
            meter=meter,
            on_event=tell,
            checks=Checks(
                admit=admit,
                show=self._approval.shown,
                visits=self.executor.take_visits,
                obeyed=self._watch.news,
            ),
        )
        return agent

    def _lower(self, format: Format) -> tuple[Format, str] | None:  # noqa: A002 - the project's word
        """Return the next rung of the ladder, unless the user chose the format."""
        below = lower_rung(format.name) if self._config.format == AUTO else None
        if below is None:
            return None
        found = get_format(below, look=self._look)
        return found, self._system_prompt(found)

    def _system_prompt(self, format: Format) -> str:  # noqa: A002 - the project's word
        return system_prompt(
            format,
            config=self._config,
            level=self.executor.level,
            tools=self._tools,
            approval=self._approval,
        )

    def _make_pipeline(self, cells: Sequence[FixedCell], budget: Budget, tell: Tell) -> Agent:
        meter = self._meter = Meter(budget)
        return Agent(
            FixedCells(cells, observation_chars=self._config.observation_chars),
            execute=self.executor.executing(meter, tell),
            record=self._trace.append,
            meter=meter,
            on_event=tell,
            checks=Checks(visits=self.executor.take_visits, obeyed=self._watch.news),
        )

    def _run_start(self, task: str, budget: Budget, wanted: Sequence[str]) -> RunStart:
        return RunStart(
            run_id=secrets.token_hex(6),
            task=task,
            time=now(),
            model=self._model.name,
            format=self.format.name,
            sandbox={**self._sandbox, "report": self.executor.sandbox_report},
            budget=dataclasses.asdict(budget),
            data=(*self._files, *self.executor.exchange.files),
            tools=tuple(tool.name for tool in self._tools),
            system_prompt=self._system_prompt(self.format),
            format_reason=self._format_reason,
            parent_id=self._lineage.parent_id,
            versions=versions(),
            config=self._settings,
            changes=self.executor.take_changes(),
            given=self.executor.exchange.told(),
            wanted=tuple(wanted),
        )

    def _current(self, start: RunStart, tell: Tell) -> Current:
        return Current(
            run_id=start.run_id,
            meter=self._meter,
            model=self._model,
            telemetry=self._telemetry,
            tell=tell,
            writes_code=self.format.writes_code,
        )

    def _export(self, tell: Tell) -> Path | None:
        """Write the notebook from the host's records; a failure is told.

        Never from the file: where the sandbox does not hide it, a cell can change it.
        """
        from kernel_agent.notebook import notebook_of, rewrite_notebook

        try:
            if self._trace.restore():
                tell(
                    Notice(
                        text="The trace had been changed by code in a cell or another program: "
                        "it was written again from what the host had recorded."
                    )
                )
            notebook = notebook_of(self._trace.records)
            return rewrite_notebook(notebook, self._folder / NOTEBOOK_NAME)
        except KernelAgentError as error:
            tell(Notice(text=f"No notebook was written: {error}"))
            return None

    # --- an undo ---------------------------------------------------------------------------

    async def undo(self, steps: int, reason: str, *, tell: Callable[[Event], None]) -> Undone:
        """Take the last steps back; see :meth:`Session.undo`."""
        if self.executor.busy:
            raise UsageError("the session is busy: stop the run first, then undo")
        with self.executor.occupied():
            return await self._undo(steps, reason, tell)

    async def _undo(self, steps: int, reason: str, tell: Tell) -> Undone:
        await self.executor.left_behind()
        gone = steps_to_undo(self._trace.records, steps)
        undoing = self.executor.undoing(gone, reason, record=self._trace.append, tell=tell)
        async with undoing as undone:
            self._context.add(undone)
            self._export(tell)
            tell(undone)
        self._telemetry.undone(undone)
        return undone


def _may_import(config: Config, package: str) -> bool:
    """Whether the guard lets cells import a package."""
    return config.guard_imports is None or package in config.guard_imports
