"""Delegation: a cell asks for another agent, or asks the model once; the host does both.

``delegate(task, data=…)`` runs a session of its own beneath the one that asks: its own kernel at
the same level, its own folder, trace and notebook, and a part of the budget
(:meth:`kernel_agent.records.budget.Meter.shared`). ``llm(prompt)`` is one call of the session's
model. The code that calls has neither keys nor network; it chooses a task, data and smaller caps,
and nothing else: not the model, the level, the tools, the hosts or the folder.

What a cell asked for ends with the cell: one that is interrupted or dies, or a run that is
stopped, takes its agents with it, kernels and all. ``docs/delegation.md`` describes it to users.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from kernel_agent.errors import (
    BudgetExceeded,
    InputError,
    KernelAgentError,
    KernelError,
    ModelError,
    ToolError,
    UsageError,
)
from kernel_agent.models import estimate_usage
from kernel_agent.records import Answer as FinalAnswer
from kernel_agent.records import (
    Budget,
    Code,
    DataFile,
    Delegated,
    Event,
    ExitStatus,
    Json,
    Message,
    Meter,
    Notice,
    Reply,
    RequestOptions,
    RunStart,
    RunStop,
    Step,
    Usage,
    agent_line,
    agents_of,
)
from kernel_agent.safe import Folder, clear, make_private, one_line, plain
from kernel_agent.session.folder import DATA_NAME, slug
from kernel_agent.session.parameters import Opening, opening_of
from kernel_agent.session.run import Run
from kernel_agent.session.telemetry import Telemetry
from kernel_agent.tools import Tool, note

if TYPE_CHECKING:
    from kernel_agent.config import Config
    from kernel_agent.kernel import Kernel
    from kernel_agent.models import Model
    from kernel_agent.session.session import Session

NAMES = ("delegate", "llm")
"""The tools that belong to a session, by the names that ``--tools`` and ``Session`` take."""

KINDS = {"arrow": "Arrow", "json": "JSON", "bin": "binary", "png": "PNG"}
MAX_TASK = 100_000  # characters of a task or a prompt
PROMPTS_AT_ONCE = 8
STOP_GRACE_S = 6.0  # an interrupted cell may take three seconds, and its kernel as long
GIVEN = "What this run was given:"  # over the cell that reads it
ANSWER_CHARS = 1000  # of an answer, in the record of the run that asked
REASON_CHARS = 400
NAME_CHARS = 32

Answer = Callable[[str], Awaitable[str]]


DELEGATE = """\
Let another agent, with a kernel of its own, do a task; return its answer. It finds `data` (a
DataFrame, array, text …) as the variable `data`, or the values of a dict by their names; it has no
other variable and no file of yours, so say in `task` all that it must know and what it must answer
with; a DataFrame comes back as one. delegate.map(tasks, data=[...]) runs several side by side (a
list of tasks, or one task for every item of data) and returns a list in order. An agent that gives
no answer raises RuntimeError with how it ended and what it achieved; in the list of delegate.map
the exception stands in its place: look with isinstance(result, Exception), and report it.

It gets half of what this run has left of its budget, or a smaller `share`, or at most `max_steps`,
`max_seconds`, `max_tokens` and `max_cost`; in delegate.map all share evenly.
"""
LLM = """\
Ask the language model once and return its text, to classify, extract or rewrite text. It sees the
prompt and nothing else. llm.map(prompts) asks several at once and returns the texts in order.

It costs what any call of the model costs, and raises RuntimeError when the budget is spent.
"""
"""What the models read: the first paragraph in the prompt, all of it in ``help()``."""


def _tool(function: Callable[..., Any], doc: str) -> Tool:
    function.__doc__ = doc
    function.__annotations__ = get_type_hints(function)  # a prompt shows types, not their texts
    return Tool(function)


def check_names(tools: Iterable[Tool]) -> None:
    """Refuse tools whose names are those of the tools here; called by the session.

    Raises
    ------
    UsageError
        The caller's: the kernel and the notebook know these names.
    """
    for tool in tools:
        if tool.name in NAMES:
            raise UsageError(
                f"a tool cannot be called {tool.name}: that is the name of one of kernel-agent's "
                f"own (--tools {tool.name}); give it another"
            )


@dataclass
class Count:
    """How many runs there are beneath a session at the top of a tree, in all."""

    runs: int = 0


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Where a session stands in its tree; that of the top is the default.

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
    telemetry: Telemetry | None = None
    count: Count = field(default_factory=Count)


@dataclass(frozen=True, kw_only=True)
class Current:
    """The run that may delegate now."""

    run_id: str
    meter: Meter
    model: Model
    telemetry: Telemetry
    tell: Callable[[Event], None]
    writes_code: bool = True


class Scope:
    """One cell, and what it has asked for: it all ends with the cell."""

    def __init__(self) -> None:
        self.over = False
        self._agents: dict[asyncio.Task[Any], Session | None] = {}
        self._requests: set[asyncio.Task[Any]] = set()
        self._under_way = 0
        self._since = 0.0
        self._waited = 0.0

    def waited(self) -> float:
        """Return the seconds in which the cell has waited for an agent or the model."""
        now = time.monotonic() - self._since if self._under_way else 0.0
        return self._waited + now

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time as waited for; several at the same time count once."""
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
        """Return what answers the cell's requests, as a part of this scope."""

        async def answer_here(prompt: str) -> str:
            task = asyncio.current_task()
            assert task is not None
            _SCOPE.set(self)
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            return await answer(prompt)

        return answer_here

    async def work(self, make: Callable[[], Any], session: Session | None = None) -> Any:
        """Do work that ends with the cell at the latest.

        Raises
        ------
        ToolError
            The cell was over before the work was done.
        """
        self.check()
        task = asyncio.ensure_future(make())
        self._agents[task] = session
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            del self._agents[task]
        if task.cancelled():
            raise _over()
        return task.result()

    def check(self) -> None:
        """Raise when the cell is over."""
        if self.over:
            raise _over()

    async def __aenter__(self) -> Self:
        self._token = _SCOPE.set(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        _SCOPE.reset(self._token)
        await asyncio.shield(self.end())

    async def end(self) -> None:
        """Stop what is still under way, and wait until its kernels are gone."""
        self.over = True
        tasks = set(self._agents)
        if not tasks:
            return
        for task, session in self._agents.items():
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


_SCOPE: ContextVar[Scope] = ContextVar("scope")


class Delegation:
    """What a session's cells may ask of the host beyond its tools: agents, and the model.

    Parameters
    ----------
    config
        Caps on depth and number.
    lineage
        Where the session stands.
    out
        Returns the session's folder.
    agents
        Returns where the folders of its agents go.
    spawn
        Makes a session beneath this one: its lineage, its folder, what hears its events.
    """

    def __init__(
        self,
        config: Config,
        *,
        lineage: Lineage,
        out: Callable[[], Path],
        agents: Callable[[], Path],
        spawn: Callable[[Lineage, Path, Callable[[Event], None]], Session],
    ) -> None:
        for name in ("max_depth", "max_agents", "agents_at_once"):
            if getattr(config, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(config, name)}")
        self._config = config
        self._lineage = lineage
        self._out = out
        self._agents = agents
        self._spawn = spawn
        self._places = asyncio.Semaphore(config.agents_at_once)
        self._prompts = Prompts()
        self._numbers = 0
        self.at_work = 0
        """Agents that are under way."""
        self.current: Current | None = None
        """The run under way; set by the runner."""

    # --- the tools ---------------------------------------------------------------------------

    def tools(self, names: Sequence[str]) -> tuple[Tool, ...]:
        """Return the tools of these names.

        Raises
        ------
        UsageError
            There is no such tool.
        """
        known = {"delegate": self._delegate_tool, "llm": self._llm_tool}
        for name in names:
            if name not in known:
                raise UsageError(f"there is no tool {name!r}: name {' or '.join(NAMES)}")
        return tuple(known[name]() for name in dict.fromkeys(names))

    def _delegate_tool(self) -> Tool:
        async def delegate(
            task: str,
            data: Any = None,
            *,
            share: float = 0.5,
            max_steps: int | None = None,
            max_seconds: float | None = None,
            max_tokens: int | None = None,
            max_cost: float | None = None,
        ) -> Any:
            try:
                at_most = Budget(
                    max_steps=max_steps,
                    max_seconds=max_seconds,
                    max_tokens=max_tokens,
                    max_cost=max_cost,
                )
            except UsageError as error:
                raise ValueError(str(error)) from None
            named = data if data is None or isinstance(data, dict) else {"data": data}
            return await self.delegate(task, named, share=share, at_most=at_most)

        return _tool(delegate, DELEGATE)

    def _llm_tool(self) -> Tool:
        async def llm(prompt: str, *, system: str = "") -> str:
            return await self.ask(prompt, system=system)

        return _tool(llm, LLM)

    # --- another agent -----------------------------------------------------------------------

    async def delegate(
        self, task: str, data: Mapping[str, Json] | None, *, share: float, at_most: Budget
    ) -> Json:
        """Run an agent beneath the current run; return its answer in the wire's forms.

        Raises
        ------
        ToolError
            It gave no answer, could not be started, or may not be; as RuntimeError in the cell.
        ValueError
            The caller's: the task or the data.
        """
        current, scope = self._now(), _SCOPE.get()
        task = _checked(task, "task")
        if not share > 0:
            raise ValueError(f"share must be greater than 0, not {share!r}")
        if data and not current.writes_code:
            raise ValueError("agents that act by calls have no variables: put the data into task")
        opening = await asyncio.to_thread(opening_of, data) if data else None
        with scope.waiting():
            async with self._places:
                scope.check()
                self._take_place()
                try:
                    with current.meter.shared(share, at_most=at_most) as meter:
                        return await self._run(current, scope, task, opening, meter)
                except BudgetExceeded as error:
                    raise _refused(f"nothing is left for another agent: {error}") from None

    def _now(self) -> Current:
        if self.current is None or _SCOPE.get(None) is None:
            raise _refused("there is no run under way that could delegate")
        return self.current

    def _take_place(self) -> None:
        """Count the run that is about to begin, in the whole tree."""
        if self._lineage.count.runs >= self._config.max_agents:
            raise _refused(
                f"max_agents: {self._config.max_agents} agents were run already, do the rest here"
            )
        self._lineage.count.runs += 1
        self._numbers += 1

    async def _run(
        self, current: Current, scope: Scope, task: str, opening: Opening | None, meter: Meter
    ) -> Json:
        name = f"{self._numbers}-{_short(slug(task))}"
        folder = self._agents() / name
        lineage = Lineage(
            depth=self._lineage.depth + 1,
            parent_id=current.run_id,
            meter=meter,
            opening=Code(source=opening.source, thought=GIVEN) if opening else None,
            files=_files(opening) if opening else (),
            telemetry=current.telemetry.beneath(),
            count=self._lineage.count,
        )
        given = {"data": dict(opening.described)} if opening else {}
        note(arguments={"args": [task], "kwargs": given})
        hearing = _Hearing(name, task, _relative(folder, self._out()), current.tell)
        self.at_work += 1
        try:
            await asyncio.to_thread(_place, folder, opening)
            session = self._spawn(lineage, folder, hearing)
            run, answer = await scope.work(lambda: _worked(session, task, meter.budget), session)
        except ToolError:
            raise
        except (KernelAgentError, OSError) as error:
            reason = one_line(str(error), REASON_CHARS)
            raise _refused(f"the agent {name} could not work: {reason}") from None
        finally:
            self.at_work -= 1
            if hearing.delegated is None:  # no run has been in it
                await asyncio.to_thread(clear, folder)
            else:
                note(
                    run_id=hearing.run_id,
                    delegated=hearing.delegated,
                    usage=meter.usage,
                    untrusted=hearing.untrusted or session.tainted,
                )
        if run.status is ExitStatus.ANSWERED:
            note(result=answer)  # whole, because the notebook replays it
            return answer
        raise _refused(_reason(hearing.delegated, run))

    # --- the model, once ---------------------------------------------------------------------

    async def ask(self, prompt: str, *, system: str = "") -> str:
        """Ask the model once, within the budget of the current run.

        Raises
        ------
        ToolError
            A cap is reached, or the model failed; as RuntimeError in the cell.
        ValueError
            The caller's: the prompt is empty or too long.
        """
        current, scope = self._now(), _SCOPE.get()
        prompt = _checked(prompt, "prompt")
        if len(system) > MAX_TASK:
            raise ValueError(f"the system prompt is longer than {MAX_TASK:,} characters")
        if current.model.answers_no_prompts:
            raise _refused(current.model.answers_no_prompts)
        messages = [Message(role="system", content=system)] if system else []
        messages.append(Message(role="user", content=prompt))
        with scope.waiting():
            try:
                async with self._prompts.turn(current.meter, messages):
                    reply = await scope.work(lambda: _asked(current, messages))
            except TimeoutError:
                raise _refused("time_limit: the time of the run is over") from None
            except (BudgetExceeded, ModelError) as error:
                raise _refused(one_line(str(error), REASON_CHARS)) from None
        self._prompts.learn(reply)
        return plain(reply.content)


class Prompts:
    """The prompts of one session that are under way: near a cap they go one after the other.

    What an answer costs is known when it has come. So that eight at a time do not spend a cap eight
    times over, each is expected to cost what it asks and the longest answer so far.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PROMPTS_AT_ONCE)
        self._answered = asyncio.Event()
        self._longest = float("inf")  # tokens of an answer; nobody knows before the first

    @asynccontextmanager
    async def turn(self, meter: Meter, messages: list[Message]) -> AsyncIterator[None]:
        """Wait for a place, and until the budget has room beside the others.

        Raises
        ------
        BudgetExceeded
            Nothing is left.
        """
        async with self._places:
            while True:
                meter.check()
                tokens = _given_up(messages).prompt_tokens + self._longest
                if meter.affords(tokens):
                    break
                self._answered.clear()
                await self._answered.wait()
            with meter.expecting(tokens):
                try:
                    yield
                finally:
                    self._answered.set()

    def learn(self, reply: Reply) -> None:
        """Take in how long an answer was."""
        known = 0.0 if self._longest == float("inf") else self._longest
        self._longest = max(known, reply.usage.completion_tokens)


async def _asked(current: Current, messages: list[Message]) -> Reply:
    """Ask the model and charge what that cost; of an answer that nobody waits for, the question."""
    usage = _given_up(messages, current.meter.usage)
    try:
        async with asyncio.timeout(current.meter.seconds_left):
            reply = await current.telemetry.beneath().complete(
                current.model, messages, RequestOptions(), _ignore_text(current.tell)
            )
        usage = reply.usage
    except ModelError:
        usage = Usage()
        raise
    finally:
        current.meter.charge(usage)
        note(usage=usage)
    return reply


def _given_up(messages: list[Message], so_far: Usage | None = None) -> Usage:
    """Return what a question costs without its answer, at the price of those before."""
    usage = estimate_usage(messages, Reply(content=""))
    if so_far is None or so_far.cost_usd is None:
        return usage
    price = so_far.cost_usd / max(so_far.total_tokens, 1)
    return dataclasses.replace(usage, cost_usd=price * usage.prompt_tokens)


def _ignore_text(tell: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return what passes on notices only: the text of a reply is no part of the run's story."""

    def hear(event: Event) -> None:
        if isinstance(event, Notice):
            tell(event)

    return hear


async def _worked(session: Session, task: str, budget: Budget) -> tuple[Run, Json]:
    async with session:
        run = await session.run(task, budget=budget)
        answer = await session.whole_answer(run) if run.status is ExitStatus.ANSWERED else None
    return run, answer


async def whole_answer(run: Run, kernel: Kernel) -> Json:
    """Return the answer of a run that has just ended, as its kernel has it; see the session's.

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


def _place(folder: Path, opening: Opening | None) -> None:
    """Make an agent's folder, with the files that it is handed; it must not be there yet."""
    make_private(folder)
    if opening is None or not opening.files:
        return
    with Folder(folder) as opened, opened.folder(DATA_NAME, make=True) as data:
        for name, content in opening.files.items():
            with data.create(name, mode=0o444) as file:
                file.write(content)


def _files(opening: Opening) -> tuple[DataFile, ...]:
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


class _Hearing:
    """Hears a delegated run: tells its beginning and end above, keeps what is reported of it."""

    def __init__(self, name: str, task: str, folder: str, tell: Callable[[Event], None]) -> None:
        self._name, self._task, self._folder = name, task, folder
        self._tell = tell
        self._agents: tuple[Delegated, ...] = ()
        self.run_id = ""
        self.untrusted = False
        """Whether it used what came from others: then its answer does, too."""
        self.delegated: Delegated | None = None
        """What came of it; None until it began."""

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
        self.delegated = dataclasses.replace(
            self.delegated,
            status=stop.status,
            answer=_answer_text(stop.answer),
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
    """Return what a person reads of an answer in passing; a table is only named."""
    if answer is None:
        return ""
    if "\n" in answer.text.strip() and answer.kind not in ("str", "text"):
        return f"a {plain(answer.kind)}"
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


def _reason(delegated: Delegated | None, run: Run) -> str:
    """Return in one line how a run without an answer ended, and what it had achieved."""
    where = f" Its notebook: {delegated.folder}/run.ipynb" if delegated else ""
    partial = one_line(run.partial, REASON_CHARS)
    return f"{run.status}: {one_line(run.message, REASON_CHARS)}. So far: {partial}{where}"


def _relative(folder: Path, out: Path) -> str:
    return os.path.relpath(folder, out)


def _short(words: str) -> str:
    """Return as many whole words as make a name that is easily read."""
    if len(words) <= NAME_CHARS:
        return words
    return words[: NAME_CHARS + 1].rpartition("-")[0] or words[:NAME_CHARS]


def _checked(text: str, what: str) -> str:
    if not text.strip():
        raise ValueError(f"the {what} is empty")
    if len(text) > MAX_TASK:
        raise ValueError(f"the {what} is longer than {MAX_TASK:,} characters")
    return text


def _refused(reason: str) -> ToolError:
    return ToolError(reason, kind="RuntimeError")
