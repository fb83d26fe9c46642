"""The runner: carries out a session's runs, each from its first record to its notebook.

It has the model's side of a session: the model, the format in which it writes its actions now, the
conversation so far. A run is the loop, or fixed cells; what either asks for is carried out by the
executor, and what happens is kept in the trace, from which the notebook is written again after
each run. An undo is done here, too: it changes the same three, kernel, conversation and notebook.

The session makes one runner as the last thing when it starts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from kernel_agent.agent import Agent, Checks, Context, ModelDecider
from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.formats import AUTO, get_format, lower_rung
from kernel_agent.models import allowance_in, estimate_usage
from kernel_agent.notebook import prepare_notebooks
from kernel_agent.records import (
    FILE_NAME,
    Action,
    Budget,
    Code,
    DataFile,
    Decision,
    Event,
    ExitStatus,
    FormatChange,
    Message,
    Meter,
    Notice,
    Record,
    Reply,
    ReplyText,
    RequestOptions,
    RunStart,
    RunStop,
    Step,
    ToolSchema,
    Undone,
    Usage,
    now,
)
from kernel_agent.safe import Watch
from kernel_agent.sandbox import level_of
from kernel_agent.session.answers import give_plain, take_answer
from kernel_agent.session.cells import Executor
from kernel_agent.session.closing import restore
from kernel_agent.session.delegation.scope import CurrentRun
from kernel_agent.session.first_look import Look, example_of, look_at, tell_files, tell_names
from kernel_agent.session.folder import NOTEBOOK_NAME, files_made
from kernel_agent.session.parts import Parts, statement_of, system_prompt, versions
from kernel_agent.session.pipeline import FIXED, FixedCell, FixedCells
from kernel_agent.session.run import Run
from kernel_agent.session.undo import steps_to_undo

if TYPE_CHECKING:
    from kernel_agent.formats import Format
    from kernel_agent.models import Choice

NOT_ASKED = "the run was told not to take the answer itself"
Tell = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class _Voice:
    """Model of a session, with its settings, and the format in which it writes."""

    parts: Parts
    format: Format
    reason: str

    def approving(self, other: _Voice) -> _Voice:
        """Return it with the rule of approval of another one."""
        config = self.parts.config.merged(approve=other.parts.config.approve)
        return dataclasses.replace(self, parts=dataclasses.replace(self.parts, config=config))


class Runner:
    """Carries out the runs of one session, one at a time.

    Parameters
    ----------
    parts
        What the session is made of; the model is prepared.
    executor
        Runs the cells; its kernel is started.
    choice
        The format in which the model begins, why, and what finding out cost: the first run pays.
    """

    def __init__(self, parts: Parts, executor: Executor, choice: Choice) -> None:
        self.parts = parts
        """What the session is made of; the model and its settings change between runs."""
        self.executor = executor
        """Runs the cells."""
        self._kernels = executor.kernels
        self._format_reason = choice.reason
        self._unpaid = (choice.usage, choice.seconds)
        self._proven: _Voice | None = None  # the one that has replied last
        self._sandbox = {
            "level": parts.level,
            "statement": statement_of(parts.level),
            "not_covered": list(level_of(parts.level).not_covered),
        }
        self._watch = Watch(parts.folder)
        self._looks = look_at(parts.folder, [f for f in parts.files if not f.is_folder])
        trusted = () if parts.config.untrusted_data else self._looks
        self._look = example_of(trusted, may_import=lambda name: _may_import(parts, name))
        if not trusted and not parts.config.untrusted_data and _may_import(parts, "pandas"):
            self._look = parts.library.example or self._look
        self._is_listed = False  # whether a model was told of the files
        self.format = get_format(choice.format, look=self._look)
        """The format in which the model writes its actions now."""
        self._context = self._new_context()

    def _new_context(self) -> Context:
        """Return an empty conversation; what the tools' schemas take is not there for messages."""
        allowance = self._allowance
        offered = self.format.options(tools=self._schemas())
        beside = estimate_usage((), Reply(content=""), offered).prompt_tokens
        left = max(allowance - beside, allowance // 2)
        return Context(self._system_prompt(self.format), self.format, max_tokens=left)

    @property
    def _allowance(self) -> int:
        """Tokens that a conversation may take: as the user says, or by the model's window."""
        return self.parts.config.context_tokens or allowance_in(self.parts.model.window)

    def _schemas(self) -> tuple[ToolSchema, ...]:
        """Return the tools that are offered to a model which writes no code."""
        in_code = self.format.writes_code
        return () if in_code else tuple(tool.schema for tool in self.parts.tools)

    # --- a run -----------------------------------------------------------------------------

    async def run(
        self,
        task: str,
        budget: Budget,
        *,
        tell: Tell,
        wanted: Sequence[str] = (),
        cells: Sequence[FixedCell] | None = None,
        typed: bool = True,
    ) -> Run:
        """Work on a task until it ends, or run fixed cells; see :class:`Session`."""
        if self.executor.busy:
            raise UsageError("the session is busy with another run")
        with self.executor.occupied():
            tell = self.parts.telemetry.listener(tell, self.parts.model)
            Thread(target=prepare_notebooks, daemon=True).start()
            await self._kernels.revive(tell)
            before = files_made(self.parts.folder, self._kernels.agents)
            meter = self._meter(budget, cells)
            start = self._run_start(task, budget, wanted)
            if cells is None:
                listing = await asyncio.to_thread(self._list_files, start.data, task)
                start = dataclasses.replace(start, listing=listing)
                agent = self._make_agent(meter, tell)
            else:
                agent = self._make_pipeline(cells, meter, tell)
                start = dataclasses.replace(
                    start, model=FIXED, format=FIXED, system_prompt="", window=None, allowance=0
                )
            numbers, opening = self._kernels.numbers(), self.parts.lineage.opening
            try:
                with self.executor.within(self._current(start, meter, tell)):
                    stop = await agent.run(start, numbers=numbers, opening=opening)
            finally:
                if isinstance(agent.decider, ModelDecider):
                    self.format = agent.decider.format
                self._kernels.exchange.note(agent.steps)
                written = self._export(tell)
            if cells is None:
                self._judge_voice(stop, agent.steps, tell)
            after = files_made(self.parts.folder, self._kernels.agents)
            if typed:
                kernel, halt = self._kernels.now, self.parts.stop
                taken = await take_answer(stop.answer, agent.steps, kernel, stop=halt)
            else:
                taken = give_plain(stop.answer, NOT_ASKED)
            return Run.of(
                start,
                stop,
                steps=tuple(agent.steps),
                trace=self.parts.folder / FILE_NAME,
                notebook=next(iter(written), None),
                files=(
                    *(name for name in after if before.get(name) != after[name]),
                    *(path.name for path in written[1:]),
                ),
                taken=taken,
            )

    # --- another model, format or approval ---------------------------------------------------

    def change(self, parts: Parts, choice: Choice | None) -> None:
        """Go on with other parts, and in another format if there is a choice; between two runs."""
        reason, fmt = self._format_reason, self.format
        if choice is not None:
            self._unpaid = (choice.usage, choice.seconds)
            reason, fmt = choice.reason, get_format(choice.format, look=self._look)
        self._take_up(_Voice(parts=parts, format=fmt, reason=reason))

    def _take_up(self, voice: _Voice) -> None:
        self.parts, self.format, self._format_reason = voice.parts, voice.format, voice.reason
        said = [each for each in self._context.records if not isinstance(each, FormatChange)]
        self._context = self._new_context()  # what was learned of a model's window is its own
        for record in said:
            self._context.add(record)

    def _judge_voice(self, stop: RunStop, steps: Sequence[Step], tell: Tell) -> None:
        """Keep a model that has replied; go back to the one before if a new one never did."""
        voice, proven = self._voice, self._proven
        replied = any(step.action is not None for step in steps)
        if replied or stop.status is not ExitStatus.MODEL_ERROR:
            self._proven = voice if replied else proven
        elif proven is not None and proven.parts.model is not voice.parts.model:
            self._take_up(proven.approving(voice))
            names = voice.parts.model.name, proven.parts.model.name
            tell(Notice(text="{} did not reply: the session goes on with {}.".format(*names)))

    @property
    def _voice(self) -> _Voice:
        return _Voice(parts=self.parts, format=self.format, reason=self._format_reason)

    # --- what a run is made of -----------------------------------------------------------------

    def _meter(self, budget: Budget, cells: Sequence[FixedCell] | None) -> Meter:
        """Return a run's meter; the first run that asks the model pays for the format's trials."""
        if cells is not None:
            return Meter(budget)
        meter = self.parts.lineage.meter or Meter(budget)
        usage, seconds = self._unpaid
        meter.charge(usage, seconds=seconds)
        self._unpaid = (Usage(), 0.0)
        return meter

    def _make_agent(self, meter: Meter, tell: Tell) -> Agent:
        model, fmt, trace = self.parts.model, self.format, self.parts.trace
        telemetry, approval = self.parts.telemetry, self.parts.approval
        tools, schemas = self.parts.tools, self._schemas()

        async def complete(messages: list[Message]) -> Reply:
            options = decider.format.options(tools=schemas)
            return await telemetry.complete(model, messages, options, tell_all)

        def tell_all(event: Event) -> None:
            agent.hear(event)
            tell(event)

        async def summarise(messages: list[Message]) -> Reply:
            return await telemetry.complete(model, messages, RequestOptions(), tell_notices)

        def tell_notices(event: Event) -> None:
            if not isinstance(event, ReplyText):  # a summary is no part of the run's story
                tell(event)

        async def admit(action: Action, number: int) -> Decision | None:
            if not isinstance(action, Code):
                return None  # the broker asks about each call
            return await approval.cell(action.source, number)

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
            names=frozenset(tool.name for tool in tools),
        )
        agent = Agent(
            decider,
            execute=self.executor.carry_out,
            record=record,
            meter=meter,
            on_event=tell,
            stop=self.parts.stop,
            checks=Checks(
                admit=admit,
                show=approval.mark_shown,
                visits=self._kernels.take_visits,
                obeyed=self._watch.news,
                read=self.parts.library.take_read,
            ),
        )
        return agent

    def _lower(self, format: Format) -> tuple[Format, str] | None:  # noqa: A002 - the project's word
        """Return the next rung of the ladder, unless the user chose the format."""
        below = lower_rung(format.name) if self.parts.config.format == AUTO else None
        if below is None:
            return None
        found = get_format(below, look=self._look)
        return found, self._system_prompt(found)

    def _system_prompt(self, format: Format) -> str:  # noqa: A002 - the project's word
        return system_prompt(
            format,
            config=self.parts.config,
            level=self.parts.level,
            tools=self.parts.tools,
            approval=self.parts.approval,
        )

    def _make_pipeline(self, cells: Sequence[FixedCell], meter: Meter, tell: Tell) -> Agent:
        return Agent(
            FixedCells(cells),
            execute=self.executor.carry_out,
            record=self.parts.trace.append,
            meter=meter,
            on_event=tell,
            stop=self.parts.stop,
            checks=Checks(
                visits=self._kernels.take_visits,
                obeyed=self._watch.news,
                read=self.parts.library.take_read,
            ),
        )

    def _run_start(self, task: str, budget: Budget, wanted: Sequence[str]) -> RunStart:
        parts = self.parts
        return RunStart(
            run_id=secrets.token_hex(6),
            task=task,
            time=now(),
            model=parts.model.name,
            format=self.format.name,
            sandbox={**self._sandbox, "report": self._kernels.report},
            budget=dataclasses.asdict(budget),
            data=(*parts.files, *self._kernels.exchange.files),
            tools=tuple(tool.name for tool in parts.tools),
            tool_docs={tool.name: tool.spec["doc"] for tool in parts.tools},
            system_prompt=self._system_prompt(self.format),
            format_reason=self._format_reason,
            parent_id=parts.lineage.parent_id,
            versions=versions(),
            config={**parts.config.public, "mcp": parts.servers},
            changes=self._kernels.take_changes(),
            given=self._kernels.exchange.take_news(),
            wanted=tuple(wanted),
            window=parts.model.window,
            allowance=self._allowance,
        )

    def _list_files(self, files: Sequence[DataFile], question: str) -> str:
        """Return what a model is told of the files when it first meets them.

        Of untrusted files the names, too, are never told but as data.
        """
        library, mark = self.parts.library, self.parts.approval.mark_text
        has_files = bool(self._looks or library.scans)
        if self._is_listed or not has_files or not self.format.writes_code:
            return mark(tell_names(files)) if self.parts.config.untrusted_data else ""
        self._is_listed = True
        singly = [file for file in files if not file.is_folder]
        put = tuple(Look(file=file) for file in singly[len(self._looks) :])
        told = tell_files((*self._looks, *put)), library.tell(question, has_search=True)
        return mark("\n".join(filter(None, told)))

    def _current(self, start: RunStart, meter: Meter, tell: Tell) -> CurrentRun:
        return CurrentRun(
            run_id=start.run_id,
            meter=meter,
            tell=tell,
            model=self.parts.model,
            telemetry=self.parts.telemetry,
            visited=self._kernels.note_visits,
            folder=self.parts.folder,
            agents=self._kernels.agents,
            writes_code=self.format.writes_code,
        )

    def _export(self, tell: Tell) -> Sequence[Path]:
        """Write the notebook, and what it needs beside it, from the host's records.

        Never from the file: where the sandbox does not hide it, a cell can change it.
        """
        from kernel_agent.notebook import rewrite_notebook

        trace = self.parts.trace
        try:
            restore(trace, tell)
            return rewrite_notebook(trace.records, self.parts.folder / NOTEBOOK_NAME)
        except KernelAgentError as error:
            tell(Notice(text=f"No notebook was written: {error}"))
            return ()

    # --- an undo ---------------------------------------------------------------------------

    async def undo(self, steps: int, reason: str, *, tell: Tell) -> Undone:
        """Take the last steps back; see :meth:`Session.undo`."""
        if self.executor.busy:
            raise UsageError("the session is busy: stop the run first, then undo")
        with self.executor.occupied():
            await self._kernels.left_behind()
            trace = self.parts.trace
            gone = steps_to_undo(trace.records, steps)
            undoing = self._kernels.undoing(gone, reason, record=trace.append, tell=tell)
            async with undoing as undone:
                self._context.add(undone)
                self._export(tell)
                tell(undone)
            self.parts.telemetry.undone(undone)
            return undone


def _may_import(parts: Parts, package: str) -> bool:
    """Whether cells have packages, and the guard lets them import this one."""
    allowed = parts.config.guard_imports
    return level_of(parts.level).has_packages and (allowed is None or package in allowed)
