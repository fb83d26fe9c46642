"""Life of a session: started once, looked at from outside, changed between runs, closed once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import UsageError
from kernel_agent.models import as_model
from kernel_agent.records import FILE_NAME, DataFile, Event, Given, StopSignal
from kernel_agent.sandbox import level_of
from kernel_agent.session.cells import Executor
from kernel_agent.session.closing import Closing
from kernel_agent.session.delegation.child import Spawn
from kernel_agent.session.folder import NOTEBOOK_NAME
from kernel_agent.session.kernels import Kernels
from kernel_agent.session.loop_thread import CLOSED, Synchronous
from kernel_agent.session.parts import Parts, statement_of
from kernel_agent.session.runs import Runner
from kernel_agent.session.start import (
    Order,
    change_parts,
    listener_of,
    open_parts,
    plan_of,
    policy_of,
    prepare,
    tell_doubts,
)

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel
    from kernel_agent.models import Model

NOT_STARTED = "the session is not started: use `async with Session(…)`"
OTHER_LOOP = (
    "the session was started on another event loop: use it where it was started, or make one here"
)


class Life(Synchronous):
    """Start, show and close a session.

    Parameters
    ----------
    order
        What its caller asked for.
    spawn
        Makes the session of an agent beneath it.
    """

    def __init__(self, order: Order, spawn: Spawn) -> None:
        super().__init__()
        self._on_event = listener_of(order.on_event) or (lambda _event: None)
        self._stop = StopSignal()
        plan = plan_of(order, stop=self._stop, tell=self._tell, spawn=spawn)
        self.config, self.budget, self.out = plan.config, plan.budget, plan.out
        self.sandbox = plan.config.sandbox
        """The level; ``auto`` until the session is started."""
        self.tools = plan.tools
        self._plan = plan
        self._approval = plan.approval
        self._model: Model | None = order.model
        self._closing = Closing(self._tell)
        if order.model is not None:
            self._closing.add("model", order.model.close)
        self._parts: Parts | None = None
        self._kernels: Kernels | None = None
        self._runner: Runner | None = None
        self._closed = False

    def _tell(self, event: Event) -> None:
        self._on_event(event)

    # --- what the front ends show ----------------------------------------------------------

    @property
    def trace_path(self) -> Path:
        """The trace file."""
        return self.out / FILE_NAME

    @property
    def notebook_path(self) -> Path:
        """The notebook that is written after each run."""
        return self.out / NOTEBOOK_NAME

    @property
    def sandbox_line(self) -> str:
        """One line on the protection of this machine; shown at every start."""
        return statement_of(self.sandbox)

    @property
    def sandbox_report(self) -> dict[str, Any]:
        """Findings of the sandbox's self-test in the running kernel."""
        return self._kernels.report if self._kernels else {}

    @property
    def _kernel(self) -> Kernel | None:
        return self._kernels.now if self._kernels else None

    @property
    def alive(self) -> bool:
        """Whether there is a kernel, with the cells' variables."""
        return self._kernel is not None and self._kernel.alive

    @property
    def tainted(self) -> bool:
        """Whether data from others has entered the session."""
        return self._approval.tainted

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._runner is not None and self._runner.executor.busy

    @property
    def closed(self) -> bool:
        """Whether the session has ended, or failed to start."""
        return self._closed

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The inputs, as they were placed when the session started."""
        return self._parts.files if self._parts else ()

    def list_data(self, words: str = "", *, most: int = 10) -> list[str]:
        """Return what is in the folders of data, a line each.

        Parameters
        ----------
        words
            What the files are to have in their names, columns or first rows; they come first that
            fit best. Without any: the layouts, with a file of each.
        most
            How many files at most.

        Raises
        ------
        UsageError
            The session is not started.
        """
        if self._parts is None or self._closed:
            raise UsageError(CLOSED if self._closed else NOT_STARTED)
        return self._parts.library.lines(words, most)

    @property
    def given(self) -> Mapping[str, Given]:
        """The user's variables that the kernel has, by name."""
        return self._kernels.exchange.given if self._kernels else {}

    @property
    def model_name(self) -> str:
        """The model that writes the actions."""
        return self._model.name if self._model else self.config.model or "offline"

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Place the data, choose the model, start the kernel. Called once.

        Raises
        ------
        UsageError
            The caller's: an option, a file, a folder that cannot be written; it was started before.
        KernelStartError
            The kernel did not start.
        """
        if self._closed or self._loop is not None:
            raise UsageError(CLOSED if self._closed else "the session is started already")
        self._loop = asyncio.get_running_loop()
        try:
            await self._start()
        except BaseException:
            self._closed = True
            await self._closing.abandon()
            raise

    async def _start(self) -> None:
        # Until now its owner may have changed these.
        plan = replace(self._plan, config=self.config, out=self.out, tools=self.tools)
        parts = self._parts = await open_parts(plan, self._closing)
        self.out, self.sandbox, self.tools = parts.folder, parts.level, parts.tools
        self._model = parts.model
        executor = Executor(parts)
        self._kernels = executor.kernels
        self._closing.add("kernel", executor.kernels.close)
        preparing = asyncio.ensure_future(prepare(parts, self.budget))
        try:
            await executor.kernels.start()
            assert executor.kernels.now is not None
            folder = parts.folder.resolve()
            await parts.library.open(
                executor.kernels.now,
                parts.files,
                workspace=folder,
                level=level_of(parts.level),
                tell=self._tell,
            )
            choice = await preparing
        finally:
            preparing.cancel()  # when the kernel did not start, nothing is asked any more
        runner = Runner(parts, executor, choice)
        tell_doubts(parts, runner.format)
        if self._closed:  # meanwhile, when only some of it was open
            raise UsageError(CLOSED)
        self._runner = runner

    async def change(
        self,
        *,
        model: str | Model | None = None,
        base_url: str | None = None,
        format: str | None = None,  # noqa: A002 - the project's word
        approve: str | None = None,
    ) -> None:
        """Go on with another model, format or rule of approval; kernel and conversation stay.

        If a new model never replies (a name that is misspelt, a wrong key), the session goes back
        to the one before when that run has ended.

        Parameters
        ----------
        model, base_url, format, approve
            As for a new session; what is None stays as it is.

        Raises
        ------
        UsageError
            The session is not started or is busy, or cannot have that. It is as it was.
        """
        runner = self._get_runner()
        if runner.executor.busy:
            raise UsageError("the session is busy with a run: it is changed between runs")
        name = model if isinstance(model, str) else None
        config = self.config.merged(model=name, base_url=base_url, format=format, approve=approve)
        policy = policy_of(config)
        given = None if model is None or isinstance(model, str) else as_model(model)
        parts, choice = await change_parts(
            replace(runner.parts, config=config),
            before=runner.parts,
            model=given,
            budget=self.budget,
            closing=self._closing,
        )
        self._approval.policy = policy
        runner.change(parts, choice)
        self._follow(runner)

    def _follow(self, runner: Runner) -> None:
        """Take over the model and the settings that the runner has now."""
        self.config, self._model = runner.parts.config, runner.parts.model

    async def hibernate(self, folder: str | Path) -> None:
        """Write the kernel with all its variables to a folder, and close the session.

        ``Session(resume=folder)`` goes on from there, as often as wanted. Only kernels at level
        ``microvm`` can do that. The folder holds the kernel's memory: it is private, keep it so.

        Raises
        ------
        UsageError
            The session is not started, or busy.
        SandboxError
            The level cannot do it, or it failed; the session then goes on, if its kernel does.
        """
        if self._kernels is None or self._kernel is None or self._closed or self.busy:
            raise UsageError("a session is hibernated between runs, and before it is closed")
        await self._kernels.hibernate(Path(folder))
        await self.close()

    def stop(self) -> None:
        """End the run, or your own cell, as interrupted; safe from any thread or signal handler."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop.set)

    async def close(self) -> None:
        """End the kernel and let go of everything. Safe to call twice.

        A part that cannot be closed keeps no other from being closed; the first error is raised
        at the end.
        """
        if not self._closed:
            self._closed = True
            if self._runner is None:  # it has not started: nothing of it is left
                await self._closing.abandon()
            else:
                await self._closing.close()

    def _get_runner(self) -> Runner:
        if self._runner is None or self._closed:
            raise UsageError(CLOSED if self._closed else NOT_STARTED)
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(OTHER_LOOP)
        return self._runner

    async def _between_runs(self, what: str) -> Kernels:
        executor = self._get_runner().executor
        if executor.busy:
            raise UsageError(f"the session is busy with a run: {what} between runs")
        await executor.kernels.revive(self._on_event)
        return executor.kernels
