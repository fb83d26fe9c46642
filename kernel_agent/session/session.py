"""A session: one kernel, one workspace, any number of runs. The place where the parts meet.

From the configuration to a model, a trace, an executor and a runner; nothing is decided here that
belongs to one of them. A session works in one folder, which receives ``trace.jsonl``,
``run.ipynb``, ``data/`` (the inputs, read-only) and the files that the runs make, and which is
the kernel's working directory.

Asynchronous once: ``run_sync`` and ``execute_sync`` are the same methods on an event loop in a
thread of the session's own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kernel_agent.config import Config
from kernel_agent.errors import InputError, UsageError
from kernel_agent.formats import AUTO, get_format
from kernel_agent.models import Lent, as_model
from kernel_agent.records import (
    FILE_NAME,
    Approver,
    Budget,
    CellResult,
    DataFile,
    Decision,
    Event,
    Given,
    Json,
    Notice,
    Question,
    TraceWriter,
    Undone,
)
from kernel_agent.safe import clear, make_private
from kernel_agent.sandbox import Level, choose, level_of
from kernel_agent.session.builtin_tools import Surroundings, ready_tools
from kernel_agent.session.cells import Executor
from kernel_agent.session.delegation import (
    NAMES,
    Delegation,
    Lineage,
    check_names,
    whole_answer,
)
from kernel_agent.session.folder import (
    DATA_NAME,
    NOTEBOOK_NAME,
    agents_folder,
    hold_place,
    leave_place,
    make_folder,
    new_folder,
)
from kernel_agent.session.loop_thread import CLOSED, Synchronous
from kernel_agent.session.parts import budget_of, proxy_of, settings_of, statement_of
from kernel_agent.session.pipeline import FixedCell
from kernel_agent.session.run import Run
from kernel_agent.session.runs import Runner
from kernel_agent.session.telemetry import Telemetry, telemetry_for
from kernel_agent.tools import Approval, Policy, Servers, Tool, as_tools, named_servers

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kernel_agent.kernel import Kernel, MakeKernel
    from kernel_agent.models import Choice, Model
    from kernel_agent.session.inputs import Beside

NOT_STARTED = "the session is not started: use `async with Session(…)`"
OTHER_LOOP = (
    "the session was started on another event loop: use it where it was started, or make one here"
)
NO_TOOLS = "The format {} can only call tools, and there are none: name some with --tools MODULE."


Listener = Callable[[Event], None]


class Session(Synchronous):
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
        Files that the kernel finds in ``data/``.
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
        An OpenTelemetry tracer that makes spans of the runs. Without one: our own, if the
        environment names a collector (see ``docs/telemetry.md``).
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
        allow_hosts: Sequence[str] | None = None,
        guard_imports: Sequence[str] | None = None,
        max_operations: int | None = None,
        tools: Sequence[Tool | Callable[..., Any] | str] = (),
        mcp: Sequence[str] = (),
        approve: str | None = None,
        approve_tools: Mapping[str, str] | None = None,
        approver: Approver | None = None,
        untrusted_data: bool | None = None,
        budget: Budget | None = None,
        data: Sequence[str | Path | Beside] = (),
        out: str | Path | None = None,
        title: str = "session",
        resume: str | Path | None = None,
        config: Config | None = None,
        on_event: Callable[[Event], None] | None = None,
        tracer: Tracer | None = None,
        lineage: Lineage | None = None,
        kernel: MakeKernel | None = None,
    ) -> None:
        super().__init__()
        self._about_settings: list[str] = []  # told when the session starts
        self.config = settings_of(
            config,
            tell=self._about_settings.append,
            resumed=resume is not None,
            own_kernel=kernel is not None,
            model=model if isinstance(model, str) else None,
            base_url=base_url,
            format=format,
            sandbox=sandbox,
            allow_hosts=tuple(allow_hosts) if allow_hosts is not None else None,
            guard_imports=guard_imports,
            max_operations=max_operations,
            approve=approve,
            approve_tools=approve_tools,
            untrusted_data=untrusted_data,
        )
        if resume is not None and data:
            raise UsageError("a resumed session has the inputs that it had: leave data out")
        self._resume = None if resume is None else Path(resume).absolute()
        self._own_kernel = kernel
        self.sandbox = self.config.sandbox
        """The level; ``auto`` until the session is started."""
        if self.sandbox != "auto":
            level_of(self.sandbox)  # an error if there is none of this name
        self.budget = budget or budget_of(self.config)
        self.config = self.config.merged(max_cost=self.budget.max_cost)
        servers = named_servers(mcp, self.config.mcp, os.environ)
        self.out = Path(out) if out is not None else new_folder(title)
        self._title = title if out is None else None  # another session may be given the same name
        self._lineage = lineage or Lineage()
        self._delegation = Delegation(
            self.config,
            lineage=self._lineage,
            out=lambda: self.out,
            agents=lambda: agents_folder(self.out, self.sandbox),
            spawn=self._spawn,
        )
        names = tuple(tool for tool in tools if isinstance(tool, str))
        self._named_tools = tuple(name for name in names if name not in NAMES)
        own = self._delegation.tools([name for name in names if name in NAMES])
        given = as_tools(tool for tool in tools if not isinstance(tool, str))
        check_names(given)
        self.tools = as_tools((*given, *own))
        self._data = data
        self._model: Model | None = (
            None if model is None or isinstance(model, str) else as_model(model)
        )
        self._on_event = _listener(on_event) or (lambda _event: None)
        self._tracer = tracer
        self._telemetry = Telemetry()
        self._approval = Approval(
            Policy(mode=self.config.approve, tools=self.config.approve_tools),
            approver=approver,
            word=secrets.token_hex(4),
        )
        self._proxy = proxy_of(self.config, self._tell, visited=self._approval.visited)
        self._servers = Servers(servers, self._tell)
        self._begin()

    def _begin(self) -> None:
        """Set what a session learns while it lives to what it knows before."""
        self._executor: Executor | None = None
        self._runner: Runner | None = None
        self._trace: TraceWriter | None = None
        self._files: tuple[DataFile, ...] = ()
        self._made_folder = False
        self._closed = False

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
        """One line on what protects this machine; said at every start."""
        return statement_of(self.sandbox, self.config)

    @property
    def sandbox_report(self) -> dict[str, Any]:
        """What the sandbox's self-test found in the running kernel."""
        return self._executor.sandbox_report if self._executor else {}

    @property
    def _kernel(self) -> Kernel | None:
        return self._executor.kernel if self._executor else None

    @property
    def alive(self) -> bool:
        """Whether there is a kernel, with the variables that cells have made."""
        return self._kernel is not None and self._kernel.alive

    @property
    def tainted(self) -> bool:
        """Whether data from others has entered the session."""
        return self._approval.tainted

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._executor is not None and self._executor.busy

    @property
    def closed(self) -> bool:
        """Whether the session has ended, or failed to start."""
        return self._closed

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The inputs, as they were placed when the session started."""
        return self._files

    @property
    def given(self) -> Mapping[str, Given]:
        """The variables that were put and that the kernel has, by name."""
        return self._executor.exchange.given if self._executor else {}

    @property
    def model_name(self) -> str:
        """The model that writes the actions."""
        return self._model.name if self._model else self.config.model or "offline"

    # --- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

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
            await self.close()
            if self._made_folder:  # in this start, and no run has been in it
                await asyncio.to_thread(clear, self.out)
            raise

    async def _start(self) -> None:
        from kernel_agent.session.model import choose_model

        for line in self._about_settings:
            self._tell(Notice(text=line))
        if self._lineage.telemetry is not None:
            self._telemetry = self._lineage.telemetry
        else:
            self._telemetry = await asyncio.to_thread(telemetry_for, self._tracer, self._tell)
        await self._find_tools()
        fmt = get_format(self.config.format)
        if self._model is None:
            self._model = await choose_model(self.config, fmt, self._tell)
        level, made = await asyncio.gather(
            asyncio.to_thread(choose, self.sandbox, self.config.remote_kernelspec or ""),
            asyncio.to_thread(self._make_folder),
            return_exceptions=True,  # both end before the folder may be removed again
        )
        for failed in (made, level):
            if isinstance(failed, BaseException):
                raise failed
        assert isinstance(level, Level)
        level.check_data([file for file in self._files if file.path.startswith(DATA_NAME)])
        self.sandbox = level.name
        self._trace = TraceWriter(self.trace_path)
        hold_place(self.out)
        self._executor = self._make_executor()
        preparing = asyncio.ensure_future(self._prepare(self._model))
        try:
            await self._executor.start()
            choice = await preparing
        finally:
            preparing.cancel()  # when the kernel did not start, nothing is asked any more
        runner = self._make_runner(self._model, choice, self._executor, self._trace)
        if not runner.format.writes_code and not self.tools:
            self._tell(Notice(text=NO_TOOLS.format(runner.format.name)))
        for line in self._approval.policy.strangers({tool.name for tool in self.tools}):
            self._tell(Notice(text=line))
        if self.config.untrusted_data and self._files:
            self._approval.entered("the data files")
        self._runner = runner

    async def _find_tools(self) -> None:
        """Load the tools that were named, and connect the servers."""
        around = Surroundings(config=self.config, proxy=self._proxy, tell=self._tell)
        named = await asyncio.to_thread(ready_tools, self._named_tools, around)
        check_names(named)
        self.tools = as_tools((*self.tools, *named))
        names = {*NAMES, *(tool.name for tool in self.tools)}
        self.tools = as_tools((*self.tools, *await self._servers.open(names)))

    async def _prepare(self, model: Model) -> Choice:
        """Do what a model needs before its first call, while the kernel starts."""
        from kernel_agent.models import Choice, choose_format, memory_file

        await model.prepare()
        if self.config.format != AUTO:
            return Choice(format=self.config.format, reason="")
        return await choose_format(model, budget=self.budget, tell=self._tell, memory=memory_file())

    def _make_folder(self) -> None:
        from kernel_agent.session.inputs import place

        try:
            if self._title is None and self.trace_path.exists():
                raise InputError(
                    f"{self.out} holds an earlier session already: name another folder with --out"
                )
            self._made_folder = self._title is not None or not self.out.exists()
            if self._title is None:
                make_private(self.out, exist_ok=True)
            else:
                self.out = make_folder(self.out, self._title)
        except OSError as error:  # looking is refused, too, in a folder of somebody else
            raise InputError(
                f"cannot write to {self.out}: {error.strerror}; name another folder with --out"
            ) from None
        self._files = self._lineage.files or place(self._data, self.out, notice=self._tell)
        # It is protected from now on, for what is put later.
        make_private(self.out / DATA_NAME, exist_ok=True)

    def _make_executor(self) -> Executor:
        return Executor(
            self.config,
            level=self.sandbox,
            folder=self.out,
            files=self._files,
            tools=self.tools,
            proxy=self._proxy,
            resume=self._resume,
            approval=self._approval,
            delegation=self._delegation,
            calling=self._telemetry.call,
            tell=self._tell,
            own_kernel=self._own_kernel,
        )

    def _make_runner(
        self, model: Model, choice: Choice, executor: Executor, trace: TraceWriter
    ) -> Runner:
        return Runner(
            self.config,
            model=model,
            choice=choice,
            executor=executor,
            trace=trace,
            folder=self.out,
            files=self._files,
            tools=self.tools,
            approval=self._approval,
            delegation=self._delegation,
            lineage=self._lineage,
            telemetry=self._telemetry,
            sandbox={
                "level": self.sandbox,
                "statement": self.sandbox_line,
                "not_covered": list(level_of(self.sandbox).not_covered),
            },
            settings={**self.config.public, "mcp": self._servers.public},
        )

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
        if self._executor is None or self._kernel is None or self._closed or self.busy:
            raise UsageError("a session is hibernated between runs, and before it is closed")
        await self._executor.hibernate(Path(folder))
        await self.close()

    async def close(self) -> None:
        """End the kernel and let go of everything. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as ending:  # from the last to the first, whatever fails
            ending.push_async_callback(self._telemetry.close, self._tell)
            if self._model is not None:
                ending.push_async_callback(self._model.close)
            if self._trace is not None:
                ending.callback(self._trace.close)
                ending.callback(leave_place, self.out)
            ending.push_async_callback(self._servers.close)
            if self._executor is not None:
                ending.push_async_callback(self._executor.close)

    # --- runs ------------------------------------------------------------------------------

    async def run(
        self,
        task: str,
        *,
        budget: Budget | None = None,
        on_event: Callable[[Event], None] | None = None,
        wanted: Sequence[str] = (),
    ) -> Run:
        """Work on a task until it ends; never raises for an ending, whatever it is.

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

        Raises
        ------
        UsageError
            The task is empty, or the session is not started or is busy.
        TraceError
            The trace cannot be written (disk full).
        """
        if not task.strip():
            raise UsageError("the task is empty: ask a question")
        runner = self._started()
        tell = _listener(on_event) or self._on_event
        return await runner.run(task, budget or self.budget, tell=tell, wanted=wanted)

    async def play(
        self,
        cells: Sequence[FixedCell],
        title: str,
        *,
        budget: Budget | None = None,
        on_event: Callable[[Event], None] | None = None,
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
        on_event
            As in :meth:`run`.
        """
        runner = self._started()
        tell = _listener(on_event) or self._on_event
        caps = budget or dataclasses.replace(self.budget, max_steps=None)
        return await runner.play(cells, title, caps, tell=tell)

    def _started(self) -> Runner:
        if self._runner is None or self._closed:
            raise UsageError(CLOSED if self._closed else NOT_STARTED)
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(OTHER_LOOP)
        return self._runner

    async def execute(self, code: str, *, timeout_s: float | None = None) -> CellResult:
        """Run one cell without a model, in the same kernel.

        Parameters
        ----------
        code
            The source; magics are allowed.
        timeout_s
            Seconds until it is interrupted; the configured ``cell_seconds`` by default.
        """
        self._started()
        assert self._executor is not None
        return await self._executor.execute(code, timeout_s=timeout_s, tell=self._on_event)

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
        executor = await self._between_runs("variables are put")
        return await executor.put(variables)

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
        executor = await self._between_runs("variables are taken")
        return await executor.take(names)

    async def _between_runs(self, what: str) -> Executor:
        executor = self._started().executor
        if executor.busy:
            raise UsageError(f"the session is busy with a run: {what} between runs")
        await executor.revive(self._on_event)
        return executor

    def stop(self) -> None:
        """End the current run, or cell of yours, as interrupted, at once.

        Safe from any thread or signal handler.
        """
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        if self._runner is not None:
            self._runner.stop()

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
        runner = self._started()
        return await runner.undo(steps, reason, tell=on_event or self._on_event)

    def _tell(self, event: Event) -> None:
        self._on_event(event)

    # --- delegation ------------------------------------------------------------------------

    def _spawn(self, lineage: Lineage, out: Path, on_event: Callable[[Event], None]) -> Session:
        """Make the session of an agent beneath this one: all that is decided is decided here."""
        assert self._model is not None
        assert self._runner is not None
        deep = lineage.depth >= self.config.max_depth

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
                if not (deep and tool.name == "delegate")
            ],
            out=out,
            config=self.config,
            approver=asked_above,
            on_event=on_event,
            lineage=lineage,
            kernel=self._own_kernel,
        )
        if self._approval.tainted:
            session._approval.entered("the run that delegated")
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

    # --- the synchronous face --------------------------------------------------------------

    def run_sync(self, task: str, **options: Any) -> Run:
        """Run a task and wait for it; see :meth:`run`. Ctrl-C ends the run as interrupted."""
        return self._wait_for(lambda: self.run(task, **options))

    def play_sync(self, cells: Sequence[FixedCell], title: str, **options: Any) -> Run:
        """Run fixed cells and wait for them; see :meth:`play`."""
        return self._wait_for(lambda: self.play(cells, title, **options))

    def execute_sync(self, code: str, *, timeout_s: float | None = None) -> CellResult:
        """Run one cell and wait for it; see :meth:`execute`. Ctrl-C ends it as interrupted."""
        return self._wait_for(lambda: self.execute(code, timeout_s=timeout_s))

    def undo_sync(self, steps: int = 1, **options: Any) -> Undone:
        """Take the last steps back and wait for it; see :meth:`undo`. Ctrl-C stops it."""
        return self._wait_for(lambda: self.undo(steps, **options))

    def put_sync(self, variables: Mapping[str, Any]) -> tuple[Given, ...]:
        """Put variables and wait for it; see :meth:`put`."""
        return self._wait_for(lambda: self.put(variables))

    def take_sync(self, names: Sequence[str]) -> dict[str, Any]:
        """Take variables and wait for them; see :meth:`take`."""
        return self._wait_for(lambda: self.take(names))

    def hibernate_sync(self, folder: str | Path) -> None:
        """Hibernate and wait for it; see :meth:`hibernate`."""
        self._wait_for(lambda: self.hibernate(folder))


def _listener(on_event: Listener | None) -> Listener | None:
    """Return what is told of events; refuse what would have to be awaited, and never would be."""
    if inspect.iscoroutinefunction(on_event):
        raise UsageError("on_event is called, not awaited: pass a plain function")
    return on_event
