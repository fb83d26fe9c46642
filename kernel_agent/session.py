"""A session: one kernel, one workspace, any number of runs. The place where the parts meet.

From the configuration to a model, a kernel, a broker, a trace and the loop; nothing is decided
here that belongs to one of them. A session works in one folder, which receives ``trace.jsonl``,
``run.ipynb``, ``data/`` (the inputs, read-only) and the files that the runs make, and which is
the kernel's working directory.

Asynchronous once: ``run_sync`` and ``execute_sync`` are the same methods on an event loop in a
thread of the session's own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kernel_agent.agent import Agent, now
from kernel_agent.assembly import budget_of, make_kernel, proxy_of, versions
from kernel_agent.background import LoopThread
from kernel_agent.budget import Budget, Meter
from kernel_agent.config import Config, load_config
from kernel_agent.context import Context
from kernel_agent.delegation import (
    NAMES,
    Current,
    Delegation,
    Lent,
    Lineage,
    Scope,
    check_names,
)
from kernel_agent.errors import (
    InputError,
    KernelAgentError,
    KernelError,
    SandboxError,
    UndoError,
    UsageError,
)
from kernel_agent.exchange import PUT_SECONDS, Exchange
from kernel_agent.formats import AUTO, get_format, ladder
from kernel_agent.named import Surroundings, ready_tools
from kernel_agent.pipeline import FIXED, FixedCell, Pipeline
from kernel_agent.records import (
    Action,
    Calls,
    CellError,
    CellResult,
    Changes,
    Code,
    DataFile,
    Decision,
    Event,
    FormatChange,
    Given,
    Json,
    Message,
    Notice,
    Output,
    OutputDict,
    Question,
    Record,
    Reply,
    ReplyText,
    RequestOptions,
    RunStart,
    Undone,
    Usage,
    Visit,
)
from kernel_agent.run import Run
from kernel_agent.sandbox import interpreter
from kernel_agent.sandbox.choose import choose, mechanism
from kernel_agent.sandbox.guard import check_guard, guard_prompt, refusal, refused
from kernel_agent.sandbox.interpreter import InterpreterSession
from kernel_agent.sandbox.levels import Level
from kernel_agent.telemetry import Telemetry, telemetry_for
from kernel_agent.text import one_line
from kernel_agent.tools.broker import Broker
from kernel_agent.tools.direct import carry_out
from kernel_agent.tools.mcp.connected import Servers
from kernel_agent.tools.mcp.servers import named_servers
from kernel_agent.tools.policy import Approval, Approver, Policy, approval_prompt
from kernel_agent.tools.secrets import secrets_of
from kernel_agent.tools.tool import Tool, as_tools, stubs
from kernel_agent.trace import FILE_NAME, TraceWriter
from kernel_agent.undo import Aside, History, Played, Replay, play_again, steps_to_undo
from kernel_agent.untrusted import untrusted_prompt
from kernel_agent.variables import merge
from kernel_agent.workspace import (
    DATA_NAME,
    NOTEBOOK_NAME,
    agents_folder,
    files_made,
    hold_place,
    leave_place,
    make_folder,
    new_folder,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kernel_agent.formats.base import Format
    from kernel_agent.kernel.session import KernelSession
    from kernel_agent.models.base import Model
    from kernel_agent.sandbox.proxy import Proxy

NOT_SANDBOXED = (
    "NOT SANDBOXED: code written by the model runs with your rights on this machine "
    "(files, network, processes)."
)

STOPPED_UNDO = "nothing was undone: it was stopped"
TAKE_ANSWER = "get_ipython().kernel_agent_answer()"  # see inside/app.py
STOP_S = 0.25  # for a cell to end when the run is stopped; the run does not wait longer for it

NO_TOOLS = "The format {} can only call tools, and there are none: name some with --tools MODULE."

T = TypeVar("T")


class Session:
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

    Examples
    --------
    >>> async with Session(model="offline", data=["sales.csv"]) as session:
    ...     run = await session.run("What were the total sales per region?")
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
        data: Sequence[str | Path] = (),
        out: str | Path | None = None,
        title: str = "session",
        resume: str | Path | None = None,
        config: Config | None = None,
        on_event: Callable[[Event], None] | None = None,
        tracer: Tracer | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        named = model if isinstance(model, str) else None
        self.config = (config or load_config()).merged(
            model=named,
            base_url=base_url,
            format=format,
            sandbox=sandbox,
            allow_hosts=tuple(allow_hosts) if allow_hosts is not None else None,
            guard_imports=guard_imports,
            max_operations=max_operations,
            approve=approve,
            untrusted_data=untrusted_data,
        )
        if approve_tools:
            both = {**self.config.approve_tools, **approve_tools}
            self.config = self.config.merged(approve_tools=both)
        check_guard(self.config.guard_imports, self.config.max_operations)
        if resume is not None and data:
            raise UsageError("a resumed session has the inputs that it had: leave data out")
        self._resume = None if resume is None else Path(resume).absolute()
        if self._resume is not None and self.config.sandbox == "auto":
            self.config = self.config.merged(sandbox="microvm")
        self.sandbox = self.config.sandbox
        """The level; ``auto`` until the session is started."""
        if self.sandbox != "auto":
            mechanism(self.sandbox)
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
        self._proxy = proxy_of(self.config, self._tell, visited=self._visited)
        self._model: Model | None = None if isinstance(model, str) else model
        self._on_event = on_event or (lambda _event: None)
        self._tracer = tracer
        self._telemetry = Telemetry()
        self._approval = Approval(
            Policy(mode=self.config.approve, tools=self.config.approve_tools),
            approver=approver,
            word=secrets.token_hex(4),
        )
        self._broker = Broker(
            self.tools,
            calling=self._call,
            admit=self._approval.call,
            mark=self._approval.mark,
            secrets=secrets_of(self.config, os.environ),
        )
        self._servers = Servers(servers, self._tell)
        self._exchange = Exchange()
        self._begin()

    def _begin(self) -> None:
        """Set what a session learns while it lives to what it knows before."""
        self._format: Format | None = None
        self._kernel: KernelSession | InterpreterSession | None = None
        self._trace: TraceWriter | None = None
        self._context: Context | None = None
        self._files: tuple[DataFile, ...] = ()
        self._agent: Agent | Pipeline | None = None
        self._format_reason = ""
        self._unpaid = Usage()  # of measuring the format; the first run pays
        self._stop_calls = asyncio.Event()
        self._steps = 0
        self._history = History()
        self._playing: asyncio.Task[Replay] | None = None  # an undo's
        self._changes: Changes | None = None  # of variables, since the last run
        self._left: asyncio.Future[CellResult] | None = None  # a cell that outlived its run
        self._made_folder = self._busy = self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: LoopThread | None = None
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
        if self.sandbox == "none":
            return NOT_SANDBOXED
        if self._interpreted:
            return interpreter.STATEMENT
        return f"Sandbox: {choose(self.sandbox).name} ({choose(self.sandbox).summary})"

    @property
    def sandbox_report(self) -> dict[str, Any]:
        """What the sandbox's self-test found in the running kernel."""
        return getattr(self._kernel, "sandbox_report", {})

    @property
    def _interpreted(self) -> bool:
        return self.sandbox == interpreter.LEVEL.name

    @property
    def _delegates(self) -> bool:
        return any(tool.name == "delegate" for tool in self.tools)

    @property
    def tainted(self) -> bool:
        """Whether data from others has entered the session."""
        return self._approval.tainted

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._busy

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
        return self._exchange.given

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
            The caller's: an option, a file, a folder that cannot be written.
        KernelStartError
            The kernel did not start.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._start()
        except BaseException:
            await self.close()
            if self._made_folder:  # in this start, and no run has been in it
                shutil.rmtree(self.out, ignore_errors=True)
            raise

    async def _start(self) -> None:
        from kernel_agent.models.choose import choose_model

        if self._lineage.telemetry is not None:
            self._telemetry = self._lineage.telemetry
        else:
            self._telemetry = await asyncio.to_thread(telemetry_for, self._tracer, self._tell)
        await self._find_tools()
        self._format = get_format(self.config.format)
        if self._model is None:
            self._model = await choose_model(self.config, self._format, self._tell)
        level, made = await asyncio.gather(
            asyncio.to_thread(choose, self.sandbox),
            asyncio.to_thread(self._make_folder),
            return_exceptions=True,  # both end before the folder may be removed again
        )
        for failed in (made, level):
            if isinstance(failed, BaseException):
                raise failed
        assert isinstance(level, Level)
        self.sandbox = level.name
        self._trace = TraceWriter(self.trace_path)
        hold_place(self.out)
        preparing = asyncio.ensure_future(self._prepare(self._model))
        try:
            await self._start_kernel()
            await preparing
        finally:
            preparing.cancel()  # when the kernel did not start, nothing is asked any more
        self._context = Context(
            self._system_prompt(self._format),
            self._format,
            max_tokens=self.config.context_tokens,
        )
        if not self._format.writes_code and not self.tools:
            self._tell(Notice(text=NO_TOOLS.format(self._format.name)))
        for line in self._approval.policy.strangers({tool.name for tool in self.tools}):
            self._tell(Notice(text=line))
        if self.config.untrusted_data and self._files:
            self._approval.entered("the data files")

    async def _find_tools(self) -> None:
        """Load the tools that were named, and connect the servers."""
        around = Surroundings(config=self.config, proxy=self._proxy, tell=self._tell)
        named = await asyncio.to_thread(ready_tools, self._named_tools, around)
        check_names(named)
        self.tools = as_tools((*self.tools, *named))
        names = {*NAMES, *(tool.name for tool in self.tools)}
        self.tools = as_tools((*self.tools, *await self._servers.open(names)))
        self._broker.offer(self.tools)

    async def _prepare(self, model: Model) -> None:
        """Do what a model needs before its first call, while the kernel starts."""
        prepare = getattr(model, "prepare", None)
        if prepare is not None:
            await prepare()
        if self.config.format == AUTO:
            from kernel_agent.models.probe import choose_format, memory_file

            choice = await choose_format(
                model, max_tokens=self.budget.max_tokens, tell=self._tell, memory=memory_file()
            )
            self._format = get_format(choice.format)
            self._format_reason, self._unpaid = choice.reason, choice.usage

    def _system_prompt(self, format: Format) -> str:  # noqa: A002 - the project's word
        prompt = format.system_prompt(tools=stubs(self.tools))
        prompt = "\n\n".join(filter(None, (prompt, *self._what_is_asked_and_marked())))
        if not format.writes_code:
            return prompt
        language = interpreter.prompt() if self._interpreted else ""
        limits = guard_prompt(self.config.guard_imports, self.config.max_operations)
        return "\n\n".join(filter(None, (prompt, language, limits)))

    def _what_is_asked_and_marked(self) -> tuple[str, str]:
        """Return what the prompt says of approval and of untrusted data, the session through."""
        config = self.config
        strangers = any(tool.untrusted for tool in self.tools)
        tainted = config.untrusted_data or self._approval.tainted
        marks = strangers or tainted or bool(config.allow_hosts)
        return (
            approval_prompt(self._approval.policy, self.tools),
            untrusted_prompt(self._approval.word) if marks else "",
        )

    def _make_folder(self) -> None:
        from kernel_agent.inputs import place

        try:
            if self._title is None and self.trace_path.exists():
                raise InputError(
                    f"{self.out} holds an earlier session already: name another folder with --out"
                )
            self._made_folder = self._title is not None or not self.out.exists()
            if self._title is None:
                self.out.mkdir(parents=True, exist_ok=True)
            else:
                self.out = make_folder(self.out, self._title)
        except OSError as error:  # looking is refused, too, in a folder of somebody else
            raise InputError(
                f"cannot write to {self.out}: {error.strerror}; name another folder with --out"
            ) from None
        self._files = self._lineage.files or place(self._data, self.out, notice=self._tell)
        (self.out / DATA_NAME).mkdir(exist_ok=True)  # protected from now on, for what is put later
        if self._interpreted:
            interpreter.check_data(self._files)

    async def _start_kernel(self) -> None:
        if self._kernel is not None:
            await self._kernel.close()
        if self._delegates:  # before the kernel, which is to see an empty folder there
            agents_folder(self.out, self.sandbox).mkdir(exist_ok=True)
        self._kernel = self._make_kernel(self._proxy, self._resume)
        self._broker.fresh_kernel()
        await self._kernel.start()
        self._history.begin(self._resume)
        gone = await self._exchange.restore(self._set, level=self.sandbox)
        if gone:
            self._tell(Notice(text=f"Pass these in again, they are gone: {', '.join(gone)}."))
        if self._resume is not None:
            self._resume = None  # a kernel that is lost is replaced by a fresh one
            self._steps = self._kernel.steps

    def _make_kernel(
        self, proxy: Proxy | None, resume: Path | None
    ) -> KernelSession | InterpreterSession:
        return make_kernel(
            self.config,
            level=self.sandbox,
            folder=self.out.resolve(),
            files=self._files,
            tools=self.tools,
            proxy=proxy,
            resume=resume,
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
        if self._kernel is None or self._closed or self._busy:
            raise UsageError("a session is hibernated between runs, and before it is closed")
        from kernel_agent.kernel.session import KernelSession

        if not isinstance(self._kernel, KernelSession):
            raise SandboxError(f"a kernel at level {self.sandbox} cannot hibernate")
        await self._kernel.hibernate(Path(folder))
        await self.close()

    async def close(self) -> None:
        """End the kernel and let go of everything. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._kernel is not None:
            await self._kernel.close()
        if self._left is not None:
            self._left.cancel()
        await self._servers.close()
        if self._delegates:
            with suppress(OSError):  # there are agents in it
                agents_folder(self.out, self.sandbox).rmdir()
        if self._trace is not None:
            leave_place(self.out)
            self._trace.close()
        if self._model is not None:
            await self._model.close()
        await self._telemetry.close(self._tell)

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
        return await self._run(task, self._make_agent, budget, on_event, wanted)

    async def play(
        self,
        cells: Sequence[FixedCell],
        title: str,
        *,
        budget: Budget | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Run:
        """Run fixed cells instead of asking a model; see :mod:`kernel_agent.pipeline`.

        Parameters
        ----------
        cells
            What :func:`kernel_agent.pipeline.read_cells` gives.
        title
            What the run is called in the trace and the notebook.
        budget, on_event
            As in :meth:`run`.
        """

        def make(budget: Budget, tell: Callable[[Event], None]) -> Pipeline:
            return self._make_pipeline(cells, budget, tell)

        return await self._run(title, make, budget, on_event)

    async def _run(
        self,
        task: str,
        make: Callable[[Budget, Callable[[Event], None]], Agent | Pipeline],
        budget: Budget | None,
        on_event: Callable[[Event], None] | None,
        wanted: Sequence[str] = (),
    ) -> Run:
        """Do a run, by the loop or by fixed cells, from its first record to its notebook."""
        if self._context is None or self._closed:
            raise UsageError("the session is not started: use `async with Session(…)`")
        if self._busy:
            raise UsageError("the session is busy with another run")
        self._busy, self._stopping = True, False
        try:
            tell = self._telemetry.listener(on_event or self._on_event, self._model)
            return await self._run_now(task, make, budget, tell, wanted)
        finally:
            self._busy = False

    async def _run_now(
        self,
        task: str,
        make: Callable[[Budget, Callable[[Event], None]], Agent | Pipeline],
        budget: Budget | None,
        tell: Callable[[Event], None],
        wanted: Sequence[str],
    ) -> Run:
        await self._revive(tell)
        before = files_made(self.out)
        agent = make(budget or self.budget, tell)
        self._agent = agent
        if self._stopping:
            agent.stop()
        start = self._run_start(task, budget or self.budget)
        start = dataclasses.replace(start, given=self._exchange.told(), wanted=tuple(wanted))
        if isinstance(agent, Pipeline):
            start = dataclasses.replace(start, model=FIXED, format=FIXED, system_prompt="")
        self._changes = None
        self._delegation.current = self._current(start, tell)
        given = {"opening": self._lineage.opening} if self._lineage.opening else {}
        try:
            stop = await agent.run(start, first_step=self._steps + 1, **given)
        finally:
            self._agent = self._delegation.current = None
            if isinstance(agent, Agent):
                self._format = agent.format
            self._steps += len(agent.steps)
            self._exchange.note(agent.steps)
            notebook = self._export(tell)
        return Run.of(
            start,
            stop,
            steps=tuple(agent.steps),
            trace=self.trace_path,
            notebook=notebook,
            files=tuple(
                name
                for name, changed in files_made(self.out).items()
                if before.get(name) != changed
            ),
        )

    async def execute(self, code: str, *, timeout_s: float | None = None) -> CellResult:
        """Run one cell without a model, in the same kernel.

        Parameters
        ----------
        code
            The source; magics are allowed.
        timeout_s
            Seconds until it is interrupted; the configured ``cell_seconds`` by default.
        """
        await self._revive(self._on_event)
        self._steps += 1
        meter = Meter(Budget(max_steps=None, max_seconds=None))
        if not self._busy:
            self._approval.begin(meter, self._on_event)
        result = await self._run_cell(
            code,
            self._steps,
            timeout_s=timeout_s or self.config.cell_seconds,
            on_output=None,
            is_step=False,
            waited=lambda: meter.waited,
        )
        if not self._busy:  # in a run, the next step's report has it
            self._changes = merge(self._changes, result.changes)
        return result

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
        await self._between_runs("variables are put")
        given, changes = await self._exchange.put(
            variables, self._set, folder=self.out, level=self.sandbox, after=self._steps
        )
        self._changes = merge(self._changes, changes)
        return given

    async def _set(self, source: str, names: Sequence[str]) -> CellResult:
        """Run a cell that sets variables of the user's; an undo of later steps plays it again."""
        assert self._kernel is not None
        recording = self._history.recording(self._steps, source, is_step=False, given=names)
        result = await self._kernel.execute(source, step=0, timeout_s=PUT_SECONDS)
        if result.ok:
            recording.end(result)
        return result

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
        kernel = await self._between_runs("variables are taken")
        return await self._exchange.take(names, kernel)

    async def _between_runs(self, what: str) -> KernelSession | InterpreterSession:
        if self._context is None or self._closed:
            raise UsageError("the session is not started: use `async with Session(…)`")
        if self._busy:
            raise UsageError(f"the session is busy with a run: {what} between runs")
        await self._revive(self._on_event)
        assert self._kernel is not None
        return self._kernel

    def stop(self) -> None:
        """End the current run as interrupted, at once. Safe from any thread or signal handler."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        self._stopping = self._busy
        if self._playing is not None:
            self._playing.cancel()
        if self._agent is None:
            return
        self._agent.stop()
        self._approval.stop()
        self._stop_calls.set()
        if self._kernel is not None:
            self._interrupting = asyncio.ensure_future(self._kernel.interrupt())

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
        if self._context is None or self._closed:
            raise UsageError("the session is not started: use `async with Session(…)`")
        if self._busy:
            raise UsageError("the session is busy: stop the run first, then undo")
        self._busy, self._stopping = True, False
        try:
            return await self._undo(steps, reason, on_event or self._on_event)
        finally:
            self._busy = False

    async def _undo(self, steps: int, reason: str, tell: Callable[[Event], None]) -> Undone:
        assert self._trace is not None
        assert self._context is not None
        await self._left_behind()
        gone = steps_to_undo(self._trace.records, steps)
        first, last = gone[0].number, gone[-1].number
        resumed, cells = self._history.before(first)
        if cells:
            told = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
            tell(Notice(text=f"Playing {told} again in a new kernel; no tool is called."))
        aside = Aside(self.out, self._history, first=first, last=last, again=cells)
        await asyncio.to_thread(aside.take)
        proxy = proxy_of(self.config, self._tell, visited=self._visited)
        kernel = self._make_kernel(proxy, resumed)
        self._playing = asyncio.ensure_future(self._play_again(kernel, cells))
        try:
            replay = await self._playing
            undone = Undone(
                run_id=gone[0].run_id,
                first=first,
                last=last,
                reason=reason,
                time=now(),
                files=aside.files,
                cells=self._history.own_cells_from(first),
                given=self._exchange.since(first),
                withdrawn=tuple(s.run_id for s in gone if s.result and s.result.answer),
                differences=replay.differences,
                changes=replay.changes if replay.differences else None,
            )
            self._trace.append(undone)
        except BaseException as error:
            self._playing.cancel()
            await kernel.close()
            await asyncio.to_thread(aside.put_back)
            if isinstance(error, asyncio.CancelledError) and self._stopping:
                raise UndoError(STOPPED_UNDO) from None
            if isinstance(error, KernelError | SandboxError):
                raise UndoError(f"nothing was undone: {error}") from None
            raise
        finally:
            self._playing = None
        await asyncio.to_thread(aside.settle)
        old, self._kernel, self._proxy = self._kernel, kernel, proxy
        kernel.steps = self._steps  # numbers are not used again
        self._broker.fresh_kernel()
        self._history.go_back(first, replay.played, resumed)
        self._exchange.go_back(first)
        self._changes = None
        try:
            self._context.add(undone)
            self._export(tell)
            tell(undone)
        finally:
            if old is not None:
                await old.close()
        self._telemetry.undone(undone)
        return undone

    async def _play_again(
        self, kernel: KernelSession | InterpreterSession, cells: Sequence[Played]
    ) -> Replay:
        if self._stopping:
            raise UndoError(STOPPED_UNDO)
        await kernel.start()
        return await play_again(
            kernel, cells, timeout_s=self.config.cell_seconds, folder=str(self.out.resolve())
        )

    async def _left_behind(self) -> None:
        """Wait for a cell that outlived its run."""
        if self._left is not None:
            await asyncio.wait({self._left})
            self._left = None

    async def _revive(self, tell: Callable[[Event], None]) -> None:
        """Start a new kernel when the last one was lost, and say what that means."""
        if self._playing is not None:
            raise UsageError("an undo is under way")
        await self._left_behind()
        if self._kernel is None or not self._kernel.alive:
            tell(Notice(text="The kernel was lost: a new one was started, all variables are gone."))
            await self._start_kernel()
            self._changes = Changes(fresh=True)

    def _make_agent(self, budget: Budget, tell: Callable[[Event], None]) -> Agent:
        model, fmt, context, trace = self._model, self._format, self._context, self._trace
        assert model is not None
        assert fmt is not None
        assert context is not None
        assert trace is not None
        meter = self._meter = self._lineage.meter or Meter(budget)
        meter.charge(self._unpaid)
        self._unpaid = Usage()
        self._stop_calls = asyncio.Event()
        schemas = tuple(tool.schema for tool in self.tools) if not fmt.writes_code else ()

        async def complete(messages: list[Message]) -> Reply:
            options = agent.format.options(tools=schemas)
            return await self._telemetry.complete(model, messages, options, tell)

        async def summarise(messages: list[Message]) -> Reply:
            options = RequestOptions()
            return await self._telemetry.complete(model, messages, options, tell_notices)

        def tell_notices(event: Event) -> None:
            if not isinstance(event, ReplyText):  # a summary is no part of the run's story
                tell(event)

        execute = self._executing(meter, tell)

        async def admit(action: Action, number: int) -> Decision | None:
            if not isinstance(action, Code):
                return None  # the broker asks about each call
            return await self._approval.cell(action.source, number)

        def record(made: Record) -> None:
            trace.append(made)
            if isinstance(made, FormatChange):
                from kernel_agent.models.probe import memory_file, remember_change

                remember_change(memory_file(), made, model=model)

        agent = Agent(
            complete=complete,
            execute=execute,
            record=record,
            format=fmt,
            context=context,
            meter=meter,
            on_event=tell,
            observation_chars=self.config.observation_chars,
            visits=self._proxy.take_visits if self._proxy else tuple,
            lower=self._lower,
            summarise=summarise if getattr(model, "writes_prose", False) else None,
            names=frozenset(tool.name for tool in self.tools),
            admit=admit,
            show=self._approval.shown,
        )
        return agent

    def _lower(self, format: Format) -> tuple[Format, str] | None:  # noqa: A002 - the project's word
        """Return the next rung of the ladder, unless the user chose the format."""
        below = ladder.lower(format.name) if self.config.format == AUTO else None
        if below is None:
            return None
        found = get_format(below)
        return found, self._system_prompt(found)

    def _make_pipeline(
        self, cells: Sequence[FixedCell], budget: Budget, tell: Callable[[Event], None]
    ) -> Pipeline:
        assert self._trace is not None
        meter = self._meter = Meter(budget)
        return Pipeline(
            cells,
            execute=self._executing(meter, tell),
            record=self._trace.append,
            meter=meter,
            on_event=tell,
            observation_chars=self.config.observation_chars,
            visits=self._proxy.take_visits if self._proxy else tuple,
        )

    def _executing(
        self, meter: Meter, tell: Callable[[Event], None]
    ) -> Callable[[Action, int], Awaitable[CellResult]]:
        """Return what carries out an action of a run, within what the run may still spend."""
        self._approval.begin(meter, tell)

        async def execute(action: Action, number: int) -> CellResult:
            timeout_s = min(self.config.cell_seconds, meter.seconds_left or float("inf"))
            if isinstance(action, Calls):
                self._approval.enter(number)
                self._approval.arriving()
                async with Scope() as scope:
                    return await carry_out(
                        action,
                        self._broker,
                        timeout_s=timeout_s,
                        stopping=self._stop_calls,
                        waited=lambda: meter.waited + scope.waited(),
                    )
            if not isinstance(action, Code):
                raise UsageError("the format asked for something that cannot be done")
            outputs: list[OutputDict] = []

            def show(output: OutputDict) -> None:
                outputs.append(output)
                tell(Output(number=number, output=output))

            running = self._run_cell(
                action.source,
                number,
                timeout_s=timeout_s,
                on_output=show,
                waited=lambda: meter.waited,
            )
            return await self._until_stopped(running, outputs)

        return execute

    async def _until_stopped(
        self, running: Coroutine[Any, Any, CellResult], outputs: list[OutputDict]
    ) -> CellResult:
        """Wait for a cell, but not much longer than until somebody asks for the end of the run.

        One that does not let itself be interrupted at once is left behind: the next use of the
        kernel waits until it has ended, or the kernel was killed.
        """
        cell = asyncio.ensure_future(running)
        stopping = asyncio.ensure_future(self._stop_calls.wait())
        try:
            await asyncio.wait({cell, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not cell.done():
                await asyncio.wait({cell}, timeout=STOP_S)
            while not cell.done() and self._delegation.at_work:  # they end with the cell
                await asyncio.wait({cell}, timeout=STOP_S)
        except asyncio.CancelledError:
            cell.cancel()
            await asyncio.wait({cell})
            raise
        finally:
            stopping.cancel()
        if cell.done():
            return cell.result()
        self._left = cell
        error = CellError(ename="KeyboardInterrupt", evalue="")
        return CellResult(status="interrupted", outputs=tuple(outputs), error=error)

    async def _run_cell(
        self,
        source: str,
        number: int,
        *,
        timeout_s: float,
        on_output: Callable[[OutputDict], None] | None,
        waited: Callable[[], float] = lambda: 0.0,
        is_step: bool = True,
    ) -> CellResult:
        assert self._kernel is not None
        if self.config.guard_imports is not None:
            reason = refusal(source, self.config.guard_imports)
            if reason:
                return refused(reason)
        recording = self._history.recording(number, source, is_step=is_step)
        self._approval.enter(number, source)
        try:
            async with Scope() as scope:
                result = await self._kernel.execute(
                    source,
                    step=number,
                    timeout_s=timeout_s,
                    waited=lambda: waited() + scope.waited(),
                    on_output=on_output,
                    on_request=recording.listening(scope.answering(self._answer)),
                )
        finally:
            await self._approval.leave()
            await self._broker.end_cell()
            calls, counted = self._broker.take_calls(), self._broker.take_counted()
        recording.end(result)
        return dataclasses.replace(result, calls=calls, counted=counted)

    def _run_start(self, task: str, budget: Budget) -> RunStart:
        assert self._format is not None
        return RunStart(
            run_id=secrets.token_hex(6),
            task=task,
            time=now(),
            model=self.model_name,
            format=self._format.name,
            sandbox={
                "level": self.sandbox,
                "statement": self.sandbox_line,
                "not_covered": list(choose(self.sandbox).not_covered),
                "report": self.sandbox_report,
            },
            budget=dataclasses.asdict(budget),
            data=(*self._files, *self._exchange.files),
            tools=tuple(tool.name for tool in self.tools),
            system_prompt=self._system_prompt(self._format),
            format_reason=self._format_reason,
            parent_id=self._lineage.parent_id,
            versions=versions(),
            config={**self.config.public, "mcp": self._servers.public},
            changes=self._changes,
        )

    def _export(self, tell: Callable[[Event], None]) -> Path | None:
        """Write the notebook from the host's records; a failure is told.

        Never from the file: where the sandbox does not hide it, a cell can change it.
        """
        from kernel_agent.notebook.export import notebook_of, rewrite_notebook

        assert self._trace is not None
        try:
            if self._trace.restore():
                tell(
                    Notice(
                        text="The trace had been changed by code in a cell or another program: "
                        "it was written again from what the host had recorded."
                    )
                )
            return rewrite_notebook(notebook_of(self._trace.records), self.notebook_path)
        except KernelAgentError as error:
            tell(Notice(text=f"No notebook was written: {error}"))
            return None

    def _tell(self, event: Event) -> None:
        self._on_event(event)

    async def _answer(self, prompt: str) -> str:
        self._approval.arriving()
        return await self._broker.answer(prompt)

    def _visited(self, visit: Visit) -> None:
        if visit.allowed:
            self._approval.entered(f"the host {visit.host}")

    async def _call(self, tool: Tool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return await self._telemetry.call(tool, args, kwargs)

    # --- delegation ------------------------------------------------------------------------

    def _current(self, start: RunStart, tell: Callable[[Event], None]) -> Current:
        assert self._model is not None
        assert self._meter is not None
        return Current(
            run_id=start.run_id,
            meter=self._meter,
            model=self._model,
            telemetry=self._telemetry,
            tell=tell,
            writes_code=self._format is not None and self._format.writes_code,
        )

    def _spawn(self, lineage: Lineage, out: Path, on_event: Callable[[Event], None]) -> Session:
        """Make the session of an agent beneath this one: all that is decided is decided here."""
        assert self._model is not None
        assert self._format is not None
        deep = lineage.depth >= self.config.max_depth

        async def asked_above(question: Question) -> Decision:
            reason = f"agent {out.name} asks: {question.reason}"
            return await self._approval.ask(dataclasses.replace(question, reason=reason))

        session = Session(
            model=Lent(self._model),
            format=self._format.name,
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
        if not run.steps or not isinstance(run.steps[-1].action, Code):
            return run.answer  # it was given by a call: plain JSON
        taken: list[Json] = []

        def take_answer(value: Any) -> None:
            """Take the answer."""
            taken.append(value)

        receive = Broker([Tool(take_answer)]).answer
        result = await self._kernel.execute(
            TAKE_ANSWER, timeout_s=self.config.cell_seconds, on_request=receive
        )
        if taken:
            return taken[0]
        error = result.error
        if error is not None and error.ename == "TypeError":  # it has no form there
            return run.answer
        why = one_line(f"{error.ename}: {error.evalue}" if error else result.status, 300)
        raise KernelError(f"its answer could not be taken from its kernel ({why})")

    # --- the synchronous face --------------------------------------------------------------

    def run_sync(self, task: str, **options: Any) -> Run:
        """Run a task and wait for it; see :meth:`run`. Ctrl-C ends the run as interrupted."""
        return self._wait_for(lambda: self.run(task, **options))

    def play_sync(self, cells: Sequence[FixedCell], title: str, **options: Any) -> Run:
        """Run fixed cells and wait for them; see :meth:`play`."""
        return self._wait_for(lambda: self.play(cells, title, **options))

    def execute_sync(self, code: str, *, timeout_s: float | None = None) -> CellResult:
        """Run one cell and wait for it; see :meth:`execute`."""
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

    def close_sync(self) -> None:
        """Close a session that was used synchronously."""
        if self._thread is not None:
            self._thread.result(self.close())
            self._thread.end()
            self._thread = None

    def __enter__(self) -> Self:
        self._on_own_thread()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close_sync()

    def _wait_for(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        thread = self._on_own_thread()
        return thread.result(make(), on_interrupt=self.stop)

    def _on_own_thread(self) -> LoopThread:
        if self._thread is None:
            if self._loop is not None:
                raise UsageError("this session runs on your event loop: await session.run(…)")
            self._thread = LoopThread()
            try:
                self._thread.result(self.start())
            except BaseException:
                self.close_sync()
                raise
        return self._thread
