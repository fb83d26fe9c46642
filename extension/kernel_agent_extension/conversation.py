"""A notebook's session, and one question to it from beginning to end.

All of this runs on the event loop that the notebook's sessions share; only :meth:`Talk.stop` may be
called from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from kernel_agent.config import SETTINGS
from kernel_agent.errors import InputError, KernelAgentError, UsageError
from kernel_agent.notebook import export, prepare_notebooks
from kernel_agent.records import Budget, Decision, Event, Notice, Question, Step, Undone, Variables
from kernel_agent.session import Run, Session, check_endpoint, check_tables, is_offline
from kernel_agent.tools import Tool
from kernel_agent_extension.handle import is_answered
from kernel_agent_extension.options import Request
from kernel_agent_extension.views import RunView


class Talk:
    """A session, its options, and the variables passed in.

    Parameters
    ----------
    request
        The question that begins it, with the options of the session.
    once
        Whether the session ends with its first run.
    tools
        What its code may call: functions of the notebook, and names.
    opening
        A line to tell when it has started; empty for none.

    Raises
    ------
    KernelAgentError
        The caller's: an option that cannot be met.
    """

    def __init__(
        self,
        request: Request,
        *,
        once: bool,
        tools: Sequence[Tool | str] = (),
        opening: str = "",
    ) -> None:
        self.request = request
        self.once = once
        self.tools = tools
        self.opening = opening
        self._at: Literal["nothing", "preparing", "running", "finishing"] = "nothing"
        self.view: RunView | None = None
        """The view of the question that is under way."""
        self.future: Future[Run] | None = None
        """The work on the latest question."""
        self._tell_to: Callable[[Event], None] = lambda _: None
        self._last = 0  # the number of the run's latest step
        self._asked: list[tuple[str, int]] = []  # each run, and how many of its steps stand
        self._undo_from = 0  # the first of the steps that a person undid while it went on
        self._started = self._has_worked = False
        self._variables = Variables()  # that its cells made
        self.session = Session(
            **{name: value for name, value in request.settings.items() if SETTINGS[name].argument},
            data=request.data,
            tools=tools,
            mcp=request.mcp,
            out=request.out,
            title=request.task,
            on_event=self._tell,
            approver=self._ask_person,
        )

    async def answer(
        self,
        request: Request,
        variables: Mapping[str, Any],
        *,
        tell: Callable[[Event], None],
        names: MutableMapping[str, Any],
    ) -> Run:
        """Start the session if need be, pass variables in, run, take variables out.

        Parameters
        ----------
        request
            The question.
        variables
            What is passed in.
        tell
            Told what happens.
        names
            The user's variables; only those that are wanted are set.
        """
        self._tell_to = tell
        self._last = self._undo_from = 0

        def listen(event: Event) -> None:
            if isinstance(event, Step):
                self._last = event.number
                self._has_worked |= event.action is not None
                if event.result is not None:
                    self._variables.apply(event.result.changes, event.number)
            tell(event)

        try:
            _check_export(request)
            if not self._started:
                ready = asyncio.ensure_future(asyncio.to_thread(prepare_notebooks))
                await asyncio.to_thread(self._check, bool(variables))
                await self.session.start()
                await ready
                self._started = True
                if self.opening:
                    tell(Notice(text=self.opening))
            await self._change(request)
            self._check_prices(request)
            await self._put(variables, tell)
            self._at = "running"
            run = await self.session.run(
                request.task,
                budget=_budget(self.session.budget, request),
                on_event=listen,
                wanted=request.wanted,
            )
            self._asked.append((run.run_id, len(run.steps)))
            undone = await self._undo_pressed(run, tell)
            self._at = "finishing"
            if request.wanted and not undone:
                await self._take(request.wanted, run, tell, names)
            if request.export is not None:
                tell(Notice(text=f"Exported: {export(run.trace, request.export)}", good=True))
            return run
        finally:
            self._at = "nothing"
            if self.once:
                await self.session.close()

    def _check(self, has_variables: bool) -> None:  # noqa: FBT001 - its only argument
        """Refuse what cannot be answered before anything is started for it."""
        config = self.session.config
        if is_offline(config) and not has_variables:
            check_tables([*self.request.data] or config.data)
        check_endpoint(config)

    async def _change(self, request: Request) -> None:
        """Go on with another model, format or rule of approval, where the question names one."""
        config = self.session.config
        between = (name for name in request.settings if SETTINGS[name].between)
        changed = {name: request.settings[name] for name in between}
        changed = {name: v for name, v in changed.items() if v != getattr(config, name)}
        if changed:
            await self.session.change(**changed)

    def _check_prices(self, request: Request) -> None:
        """Refuse a cap on money that could cap nothing."""
        session = self.session
        named = {session.model_name, session.config.model}
        known = named & {"offline", *session.config.prices}
        if "max_cost" in request.settings and not known:
            raise UsageError(
                f'--max-cost needs prices: configure [prices."{session.model_name}"] with prompt '
                "and completion, in US dollars per million tokens"
            )

    @property
    def has_worked(self) -> bool:
        """Whether a model of this session has ever replied: there may be something to lose."""
        return self._has_worked

    @property
    def made(self) -> list[str]:
        """Names of the variables that its cells made, and that were not passed in."""
        return [name for name in self._variables.told if name not in self.session.given]

    @property
    def started(self) -> bool:
        """Whether there is a kernel already, or was."""
        return self._started

    @property
    def options(self) -> Request:
        """The options of the session as it is now, for one that takes its place."""
        named = {name for name in self.request.settings if SETTINGS[name].argument}
        between = {name for name, row in SETTINGS.items() if row.between}
        config = self.session.config
        changed = {name for name in between if getattr(config, name) != SETTINGS[name].default}
        settings = {name: getattr(config, name) for name in sorted(named | changed)}
        return replace(self.request, settings=settings)

    def new_kernel_for(self, request: Request) -> str:
        """Return the first option that needs another kernel than this session's, if one does."""
        own = self.request
        for name in ("data", "tools", "mcp", "out"):
            asked = getattr(request, name)
            if asked and asked != getattr(own, name):
                return f"--{name}"
        for name, asked in request.settings.items():
            row, now = SETTINGS[name], getattr(self.session.config, name)
            same = asked in (now, self.session.sandbox if name == "sandbox" else now)
            if row.argument and not row.between and not same and _list_of(asked) != _list_of(now):
                return f"--{row.magic_name}"
        return ""

    @property
    def busy(self) -> bool:
        """Whether a question is under way."""
        return self._at != "nothing"

    @property
    def given(self) -> dict[str, str]:
        """Fingerprints of the variables that were passed in, as they were then."""
        return {name: given.fingerprint for name, given in self.session.given.items()}

    def stop(self) -> None:
        """End the question: the run, as interrupted, or the preparations before it."""
        if self._at == "running":
            self.session.stop()
        elif self._at == "preparing" and self.future is not None:
            self.future.cancel()

    def press_undo(self) -> None:
        """Stop the run, and go back to before the latest step that was seen to end."""
        if self._at == "running" and self._last:
            self._undo_from = self._last
            self.session.stop()

    async def _undo_pressed(self, run: Run, tell: Callable[[Event], None]) -> Undone | None:
        count = sum(step.number >= self._undo_from for step in run.steps)
        if not self._undo_from or not count:
            return None
        try:
            return await self._back(count, on_event=tell)
        except KernelAgentError as error:
            tell(Notice(text=f"{str(error).capitalize()}."))
            return None

    async def undo(self, steps: int | None, reason: str) -> Undone:
        """Take steps, or the last question, back between questions; for ``%agent undo``."""
        if self.busy or not self._started:
            raise UsageError("nothing can be undone now: wait for the question, or stop it")
        if steps is None:
            if not self._asked:
                raise UsageError("no question is left to undo")
            steps = self._asked[-1][1]
        return await self._back(steps, reason=reason)

    async def undo_run(self, run: Run) -> Undone:
        """Take a question back; called for the button below its page."""
        last, steps = self._asked[-1] if self._asked else ("", 0)
        if self.busy or run.run_id != last:
            raise UsageError("it is not the last question of its session any more")
        return await self._back(steps, on_event=lambda _: None)

    async def _back(self, steps: int, **more: Any) -> Undone:
        self._variables.clear()  # what is left of them is not known here
        undone = await self.session.undo(steps, **more)
        while self._asked and steps >= self._asked[-1][1]:
            steps -= self._asked.pop()[1]
        if self._asked:
            run, standing = self._asked.pop()
            self._asked.append((run, standing - steps))
        return undone

    def begin(self, view: RunView) -> None:
        """Take a question, unless there is one; called before :meth:`answer` is."""
        self._at, self.view = "preparing", view

    async def close(self) -> None:
        """End the session, now or when its question is through."""
        if self.busy:
            self.once = True
        else:
            await self.session.close()

    # --- variables -------------------------------------------------------------------------

    async def _put(self, variables: Mapping[str, Any], tell: Callable[[Event], None]) -> None:
        if not variables:
            return
        for given in await self.session.put(variables):
            if given.again:
                text = f"{given.name} has changed since it was passed in: it was passed in again"
                if given.undone:
                    text += (
                        f", and what the agent had made of its copy in step {given.undone} is gone"
                    )
                tell(Notice(text=f"{text}."))

    async def _take(
        self,
        wanted: Sequence[str],
        run: Run,
        tell: Callable[[Event], None],
        names: MutableMapping[str, Any],
    ) -> None:
        if not is_answered(run):
            tell(Notice(text=f"Not taken, because there is no answer: {', '.join(wanted)}."))
            return
        for name in wanted:
            try:
                names[name] = (await self.session.take([name]))[name]
            except InputError as error:
                if len(wanted) == 1 and "no variable" in str(error):
                    names[name] = run.value
                    what = run.instead or "the answer"
                    tell(Notice(text=f"The code set no {name}: it is {what}."))
                else:
                    tell(Notice(text=f"Not taken: {error}."))

    # --- what the session says and asks ----------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._tell_to(event)

    async def _ask_person(self, question: Question) -> Decision:
        if self.view is None or self.view.approver is None:
            return Decision(allowed=False, by="policy", reason="there is nobody to ask")
        return await self.view.approver(question)


def _list_of(value: Any) -> Any:
    """Return a sequence as a list, whether a line or a file wrote it; other values as they are."""
    return list(value) if isinstance(value, list | tuple) else value


def _check_export(request: Request) -> None:
    """Refuse a notebook for which there is no folder before the run has cost anything."""
    folder = Path(request.export or "").parent
    if not folder.is_dir():
        raise UsageError(f"--export {request.export}: there is no folder {folder}")


def _budget(budget: Budget, request: Request) -> Budget:
    """Return the session's limits, overridden by a question's."""
    own = {name: v for name, v in request.settings.items() if not SETTINGS[name].argument}
    return replace(budget, **own)
