"""A session: one kernel, one workspace, any number of runs. Here the parts meet.

Here is what a caller asks for and does; nothing is decided that belongs to a part. How a session
starts and ends is in :mod:`.life`. A session works in one folder, which receives ``trace.jsonl``,
``run.ipynb``, ``data/`` (the inputs, read-only) and the files that the runs make, and which is
the kernel's working directory.

Asynchronous once: ``run_sync`` and ``execute_sync`` are the same methods on an event loop in a
thread of the session's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.config import Config
from kernel_agent.errors import UsageError
from kernel_agent.models import Lent, as_model
from kernel_agent.records import (
    Approver,
    Budget,
    CellResult,
    Decision,
    Event,
    Given,
    Json,
    Question,
    Undone,
)
from kernel_agent.session.delegation.child import Lineage, whole_answer
from kernel_agent.session.delegation.tool import MAX_DEPTH, NAMES
from kernel_agent.session.folders.library import FIND_DATA
from kernel_agent.session.life import Life
from kernel_agent.session.parts import settings_of
from kernel_agent.session.pipeline import FixedCell
from kernel_agent.session.run import Run
from kernel_agent.session.start import Order, listener_of
from kernel_agent.tools import Tool

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kernel_agent.kernel import MakeKernel
    from kernel_agent.models import Model
    from kernel_agent.session.inputs import Beside


class Session(Life):
    """One kernel, one workspace, any number of runs; an (async) context manager.

    Parameters
    ----------
    model
        A name for the endpoint, ``offline``, ``scripted:FILE``, or an object with the methods of
        :class:`~kernel_agent.models.base.Model`. Without one: the configured endpoint if there is
        one, else ``offline``.
    base_url
        The OpenAI-compatible endpoint.
    format
        ``auto``, ``fenced``, ``envelope``, ``tool`` or ``json``; see ``docs/formats.md``.
    sandbox
        ``auto``, for the best level that works here, or a level; ``none`` protects nothing.
    allow_hosts
        Hosts that cells may reach on the network (``NAME`` or ``NAME:PORT``); none by default.
    guard_imports
        Modules that cells may import: a cell that imports another is refused. A guard against
        mistakes, not a boundary; off by default.
    max_operations
        Turns of loops and calls of functions of its own after which a cell is ended; likewise.
    tools
        Functions that cells may call on the host; also modules and files that define some, and
        ready-made ones by name (``docs/ready-made-tools.md``), and ``"delegate"`` and ``"llm"``
        (``docs/delegation.md``).
    mcp
        Model Context Protocol servers: commands, URLs, or names in the configuration.
    approve
        What is asked about: ``never``, ``risky`` (calls of tools with effects; the default) or
        ``always`` (also each cell); see ``docs/approval.md``.
    approve_tools
        What holds for single tools instead: ``allow``, ``ask`` or ``deny`` by name; it goes before
        the configured ones.
    approver
        Asks a person: given a question, it returns their decision. Without one there is nobody to
        ask, and what would be asked about is denied.
    untrusted_data
        Whether ``data`` comes from others and may hold instructions that are not yours.
    budget
        What each run may cost; the configured one by default.
    data
        Files and folders that the kernel finds in ``data/``; one may stand without a list.
    out
        The session's folder; ``runs/<time>-<title>/`` by default.
    title
        What the folder is named after.
    resume
        The folder that :meth:`hibernate` wrote: the kernel goes on with its variables, in a new
        folder and trace. What was said to the model before is not known to it any more.
    config
        Settings; read from file and environment by default.
    on_event
        Told everything that happens, as it happens.
    tracer
        An OpenTelemetry tracer that makes spans of the runs. Without one: that of the process, if
        it has set one up (see ``docs/telemetry.md``).
    lineage
        Where the session stands among those that delegate; set by the one above it.
    kernel
        What makes the kernels instead of a sandbox level: :class:`~kernel_agent.FakeKernel`, for
        tests (``docs/testing.md``). It protects nothing.

    Examples
    --------
    >>> async with Session(model="offline", data=["sales.csv"]) as session:
    ...     run = await session.run("What is the total amount per region?")
    ...     print(run.text)
    """

    def __init__(
        self,
        *,
        model: str | Model | None = None,
        base_url: str | None = None,
        format: str | None = None,  # noqa: A002 - the project's word
        sandbox: str | None = None,
        allow_hosts: Sequence[str] | str | None = None,
        guard_imports: Sequence[str] | str | None = None,
        max_operations: int | None = None,
        tools: Sequence[Tool | Callable[..., Any] | str] | Tool | Callable[..., Any] | str = (),
        mcp: Sequence[str] | str = (),
        approve: str | None = None,
        approve_tools: Mapping[str, str] | None = None,
        approver: Approver | None = None,
        untrusted_data: bool | None = None,
        budget: Budget | None = None,
        data: Sequence[str | Path | Beside] | str | Path = (),
        out: str | Path | None = None,
        title: str = "session",
        resume: str | Path | None = None,
        config: Config | None = None,
        on_event: Callable[[Event], None] | None = None,
        tracer: Tracer | None = None,
        lineage: Lineage | None = None,
        kernel: MakeKernel | None = None,
    ) -> None:
        settings, notes = settings_of(
            config,
            resumed=resume is not None,
            own_kernel=kernel is not None,
            model=model if isinstance(model, str) else None,
            base_url=base_url,
            format=format,
            sandbox=sandbox,
            allow_hosts=None if allow_hosts is None else _several(allow_hosts),
            guard_imports=None if guard_imports is None else _several(guard_imports),
            max_operations=max_operations,
            approve=approve,
            approve_tools=approve_tools,
            untrusted_data=untrusted_data,
        )
        order = Order(
            config=settings,
            notes=notes,
            model=None if model is None or isinstance(model, str) else as_model(model),
            budget=budget,
            tools=_several(tools),
            mcp=_several(mcp),
            approver=approver,
            data=_sources(data) or (settings.data if lineage is None and resume is None else ()),
            out=out,
            title=title,
            resume=resume,
            on_event=on_event,
            tracer=tracer,
            lineage=lineage or Lineage(),
            kernel=kernel,
        )
        super().__init__(order, self._spawn)

    # --- runs ------------------------------------------------------------------------------

    async def run(
        self,
        task: str,
        *,
        budget: Budget | None = None,
        on_event: Callable[[Event], None] | None = None,
        wanted: Sequence[str] = (),
        typed: bool = True,
    ) -> Run:
        """Work on a task until it ends; no ending raises.

        Parameters
        ----------
        task
            The question, in words.
        wanted
            Names of variables in which results are to be left, for :meth:`take`.
        budget
            What this run may cost, instead of the session's budget.
        on_event
            Told what happens, instead of the session's.
        typed
            Whether the answer itself is taken out of the kernel, for ``run.value``.

        Raises
        ------
        UsageError
            The task is empty, or the session is not started or is busy.
        TraceError
            The trace cannot be written (disk full).
        """
        if not task.strip():
            raise UsageError("the task is empty: ask a question")
        runner = self._get_runner()
        tell = listener_of(on_event) or self._on_event
        budget = budget or self.budget
        try:
            return await runner.run(task, budget, tell=tell, wanted=wanted, typed=typed)
        finally:
            self._follow(runner)

    async def play(
        self,
        cells: Sequence[FixedCell],
        title: str,
        *,
        budget: Budget | None = None,
        on_event: Callable[[Event], None] | None = None,
        typed: bool = True,
    ) -> Run:
        """Run fixed cells instead of asking a model; see :mod:`kernel_agent.session.pipeline`.

        Parameters
        ----------
        cells
            What :func:`kernel_agent.session.pipeline.read_cells` gives.
        title
            What the run is called in the trace and the notebook.
        budget
            What the run may cost; the session's by default, without its cap on steps, which is for
            a model's: fixed cells are as many as they are.
        on_event, typed
            As in :meth:`run`.
        """
        runner = self._get_runner()
        tell = listener_of(on_event) or self._on_event
        caps = budget or dataclasses.replace(self.budget, max_steps=None)
        return await runner.run(title, caps, tell=tell, cells=cells, typed=typed)

    async def execute(self, code: str, *, timeout_s: float | None = None) -> CellResult:
        """Run one cell without a model, in the same kernel.

        Parameters
        ----------
        code
            The source; magics are allowed.
        timeout_s
            Seconds until it is interrupted; the configured ``cell_seconds`` by default.
        """
        executor = self._get_runner().executor
        return await executor.execute(code, timeout_s=timeout_s, tell=self._on_event)

    async def put(self, variables: Mapping[str, Any]) -> tuple[Given, ...]:
        """Set variables in the kernel to values of the user's; the next run's model is told.

        Tables and series cross as Arrow, arrays, pictures, dates and plain values as what they are;
        nothing is pickled. A copy lies in ``data/`` of the session's folder, and the notebook loads
        it when it is run again.

        Parameters
        ----------
        variables
            Values by the name that they are to have.

        Returns
        -------
        tuple of Given
            What was recorded of each, also whether it took the place of another value.

        Raises
        ------
        UsageError
            The session is not started, or busy with a run.
        InputError
            A value that cannot be passed; the line names the variable. None was set.
        """
        kernels = await self._between_runs("variables are put")
        return await kernels.put(variables)

    async def take(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables of the kernel: tables, series, arrays, pictures, dates, plain values.

        They come as data that is checked, never as pickles; a matplotlib figure comes as a picture.

        Parameters
        ----------
        names
            The variables.

        Raises
        ------
        UsageError
            The session is not started, or busy with a run.
        InputError
            There is no such variable, or its value has no form in which it could be taken.
        """
        kernels = await self._between_runs("variables are taken")
        assert kernels.now is not None
        return await kernels.now.get(names)

    async def undo(
        self,
        steps: int = 1,
        *,
        reason: str = "",
        on_event: Callable[[Event], None] | None = None,
    ) -> Undone:
        """Take the last steps back: kernel, files and conversation are as before them.

        The cells before them are played again in a new kernel; no tool is called a second time
        (``docs/undo.md``). What cells of the person's own did since then goes, too.

        Parameters
        ----------
        steps
            How many of the steps that hold.
        reason
            Why, in a few words; the model is told, and the notebook says so.
        on_event
            Told what happens, instead of the session's.

        Raises
        ------
        UsageError
            The session is not started, or is busy; there are not so many steps.
        UndoError
            It could not be done, or was stopped: the session is as it was.
        TraceError
            The trace cannot be written.
        """
        runner = self._get_runner()
        return await runner.undo(steps, reason, tell=on_event or self._on_event)

    # --- delegation ------------------------------------------------------------------------

    def _spawn(self, lineage: Lineage, out: Path, on_event: Callable[[Event], None]) -> Session:
        """Make the session of an agent beneath this one; every choice for it is made here."""
        assert self._model is not None
        assert self._runner is not None
        deep = lineage.depth >= MAX_DEPTH

        async def asked_above(question: Question) -> Decision:
            reason = f"agent {out.name} asks: {question.reason}"
            return await self._approval.ask(dataclasses.replace(question, reason=reason))

        session = Session(
            model=Lent(self._model),
            format=self._runner.format.name,
            sandbox=self.sandbox,
            tools=[
                tool.name if tool.name in NAMES else tool
                for tool in self.tools
                if not (deep and tool.name == "delegate") and tool.name != FIND_DATA
            ],
            out=out,
            config=self.config,
            approver=asked_above,
            on_event=on_event,
            lineage=dataclasses.replace(lineage, library=self._runner.parts.library.beneath()),
            kernel=self._plan.order.kernel,
        )
        if self._approval.tainted:
            session._approval.note_data("the run that delegated")
        return session

    async def whole_answer(self, run: Run) -> Json:
        """Return the answer of the last run with its type and all its rows, in the wire's forms.

        Called by the session above. What has no such form is what the run says that it is.

        Raises
        ------
        KernelError
            The kernel did not give it: it is too large, or the kernel has ended.
        """
        assert self._kernel is not None
        return await whole_answer(run, self._kernel)


def _several(given: Any) -> tuple[Any, ...]:
    """Return what was given as a tuple; a text, path or function that stands alone is one of it."""
    alone = isinstance(given, str | Path) or callable(given)
    return (given,) if alone else tuple(given)


def _sources(given: Any) -> tuple[Any, ...]:
    """Return the files and folders that were given as data.

    Raises
    ------
    UsageError
        One is something else, as a table.
    """
    alone = isinstance(given, Mapping) or hasattr(given, "columns")
    several = isinstance(given, Iterable) and not alone
    sources = _several(given) if several else (given,)
    for each in sources:
        if not isinstance(each, str | Path) and not hasattr(each, "folder"):
            kind = type(each).__name__
            raise UsageError(f"data are files and folders, not a {kind}: give variables to put()")
    return sources
