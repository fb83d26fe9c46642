"""Tools for cells that delegate: ``delegate`` and ``llm``, and the work behind them."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

from kernel_agent.errors import (
    BudgetExceeded,
    KernelAgentError,
    ModelError,
    ToolError,
    UsageError,
)
from kernel_agent.records import Budget, Code, Delegated, ExitStatus, Json, Message, Meter
from kernel_agent.safe import Made, one_line, plain
from kernel_agent.sandbox import level_of
from kernel_agent.session.delegation.child import (
    Hearing,
    Lineage,
    Spawn,
    files_of,
    fill,
    make_place,
    work,
)
from kernel_agent.session.delegation.prompts import Prompts, ask_and_charge
from kernel_agent.session.delegation.scope import CurrentRun, Scope
from kernel_agent.session.folder import slug
from kernel_agent.session.parameters import Opening, opening_of
from kernel_agent.session.run import Run
from kernel_agent.tools import Origin, Tool

if TYPE_CHECKING:
    from kernel_agent.config import Config

NAMES = ("delegate", "llm")
"""The tools that belong to a session, by the names that ``--tools`` and ``Session`` take."""

MAX_DEPTH = 2  # of agents beneath a run
MAX_AGENTS = 32  # beneath a session
AT_ONCE = 4  # agents of one run at work
MAX_TASK = 100_000  # characters of a task or a prompt
GIVEN = "What this run was given:"  # over the cell that reads it
REASON_CHARS = 400
NAME_CHARS = 32
NO_RUN = "there is no run under way that could delegate"


DELEGATE = """\
Let another agent, with a kernel of its own, do a task; return its answer. It finds `data` as the
variable `data`, or the values of a dict by their names; it has no other variable, and of your files
the data folders alone, so say in `task` all that it must know and what it must answer with. An
agent that gives no answer raises RuntimeError with how it ended and what it achieved.

It gets half of what this run has left of its budget, or a smaller `share`, or at most `max_steps`,
`max_seconds`, `max_tokens` and `max_cost`.
"""
LLM = """\
Ask the language model once and return its text, to classify, extract or rewrite text. It sees the
prompt and nothing else.

It costs what any call of the model costs, and raises RuntimeError when the budget is spent.
"""
"""Text for the models, in the prompt and in ``help()``."""
MAPPED = {
    DELEGATE: """
`data` may be a DataFrame, array or picture, too, and a DataFrame comes back as one.

delegate.map(tasks, data=[...]) runs several side by side (a list of tasks, or one task for every
item of data), which share evenly, and returns a list in order. In the place of an agent that gave
no answer stands the exception: look with isinstance(result, Exception), and report it.
""",
    LLM: "\nllm.map(prompts) asks several at once and returns the texts in order.\n",
}
"""More of it, where tools have ``map``: in cells of Python."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The run and the cell in whose name a tool here is called.

    ``note`` puts facts into the call's record.
    """

    run: CurrentRun
    scope: Scope
    note: Callable[..., None]


class Delegating(Tool):
    """A tool of the session's own, bound to the run and the cell that it works for.

    Parameters
    ----------
    declared
        What the model, the kernel and the checks see: name, parameters, annotations. It is called
        when no run is under way.
    doc
        What it is for.
    work
        Does it: takes an :class:`Asking`, then the arguments.
    """

    def __init__(
        self, declared: Callable[..., Any], doc: str, work: Callable[..., Awaitable[Any]]
    ) -> None:
        declared.__doc__ = doc
        declared.__annotations__ = get_type_hints(declared)  # a prompt shows types, not their texts
        super().__init__(declared)
        self._work = work

    def within(self, origin: Origin, note: Callable[..., None]) -> Tool:
        """Return the tool as it works for a cell of the run under way."""
        scope = origin.cell
        if not isinstance(scope, Scope) or scope.run is None:
            return self
        bound = copy.copy(self)
        bound.function = partial(self._work, Asking(run=scope.run, scope=scope, note=note))
        return bound


def check_names(tools: Iterable[Tool]) -> None:
    """Refuse tools with the names of the tools here; called by the session.

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


class Delegation:
    """Run agents, and ask the model, for the cells of a session.

    Parameters
    ----------
    config
        The session's settings.
    lineage
        Where the session stands.
    spawn
        Makes a session beneath this one.
    """

    def __init__(self, config: Config, lineage: Lineage, spawn: Spawn) -> None:
        has_map = config.sandbox == "auto" or level_of(config.sandbox).has_help
        self._more = MAPPED if has_map and config.format != "json" else {}
        self._lineage = lineage
        self._spawn = spawn
        self._places = asyncio.Semaphore(AT_ONCE)
        self._prompts = Prompts()
        self._numbers = itertools.count(1)  # of agents, as they were asked for

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
            task: str,  # noqa: ARG001 - declared for those who call it
            data: Any = None,  # noqa: ARG001
            *,
            share: float = 0.5,  # noqa: ARG001
            max_steps: int | None = None,  # noqa: ARG001
            max_seconds: float | None = None,  # noqa: ARG001
            max_tokens: int | None = None,  # noqa: ARG001
            max_cost: float | None = None,  # noqa: ARG001
        ) -> Any:
            raise _make_refusal(NO_RUN)

        return Delegating(delegate, DELEGATE + self._more.get(DELEGATE, ""), self.delegate)

    def _llm_tool(self) -> Tool:
        async def llm(prompt: str, *, system: str = "") -> str:  # noqa: ARG001 - as above
            raise _make_refusal(NO_RUN)

        return Delegating(llm, LLM + self._more.get(LLM, ""), self.ask)

    # --- another agent -----------------------------------------------------------------------

    async def delegate(
        self, asking: Asking, task: str, data: Any = None, *, share: float = 0.5, **caps: Any
    ) -> Json:
        """Run an agent beneath the run that asks; return its answer in the wire's forms.

        Raises
        ------
        ToolError
            It gave no answer, could not be started, or may not be; as RuntimeError in the cell.
        ValueError
            The caller's: the task, the data or a cap.
        """
        at_most = _at_most(**caps)
        task = _check_text(task, "task")
        if not share > 0:
            raise ValueError(f"share must be greater than 0, not {share!r}")
        given = {"data": data} if data is not None and not isinstance(data, dict) else data
        if given and not asking.run.writes_code:
            raise ValueError("agents that act by calls have no variables: put the data into task")
        number = next(self._numbers)
        opening = await asyncio.to_thread(opening_of, given) if given else None
        with asking.scope.waiting():
            async with self._places:
                asking.scope.check()
                self._take_place()
                try:
                    with asking.run.meter.shared(share, at_most=at_most) as meter:
                        wanted = f"{number}-{_short(slug(task))}"
                        return await self._run(asking, task, opening, meter, wanted)
                except BudgetExceeded as error:
                    raise _make_refusal(f"nothing is left for another agent: {error}") from None

    def _take_place(self) -> None:
        """Count the run that is about to begin, in the whole tree."""
        if self._lineage.count.runs >= MAX_AGENTS:
            raise _make_refusal(
                f"{MAX_AGENTS} agents were run already, which is the most: do the rest here"
            )
        self._lineage.count.runs += 1

    async def _run(
        self, asking: Asking, task: str, opening: Opening | None, meter: Meter, wanted: str
    ) -> Json:
        run_above, note = asking.run, asking.note
        given = {"data": dict(opening.described)} if opening else {}
        note(arguments={"args": [task], "kwargs": given})
        made = self._make_place(run_above, wanted)
        name, folder = made.path.name, made.path
        lineage = Lineage(
            depth=self._lineage.depth + 1,
            parent_id=run_above.run_id,
            meter=meter,
            opening=Code(source=opening.source, thought=GIVEN) if opening else None,
            files=files_of(opening) if opening else (),
            telemetry=run_above.telemetry.beneath(),
            count=self._lineage.count,
        )
        hearing = Hearing(name, task, folder, run_above)
        asking.scope.agents += 1
        try:
            await asyncio.to_thread(fill, made, opening)
            session = self._spawn(lineage, folder, hearing)
            run, answer = await asking.scope.work(
                lambda: work(session, task, meter.budget), session
            )
        except ToolError:
            raise
        except (KernelAgentError, OSError) as error:
            reason = one_line(str(error), REASON_CHARS)
            raise _make_refusal(f"the agent {name} could not work: {reason}") from None
        finally:
            asking.scope.agents -= 1
            if hearing.delegated is None:  # no run has been in it
                await asyncio.to_thread(made.clear)
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
        raise _make_refusal(_reason(hearing.delegated, run))

    def _make_place(self, run_above: CurrentRun, name: str) -> Made:
        try:
            return make_place(run_above.agents, name)
        except OSError as error:
            reason = one_line(str(error), REASON_CHARS)
            raise _make_refusal(f"no folder can be made for an agent: {reason}") from None

    # --- the model, once ---------------------------------------------------------------------

    async def ask(self, asking: Asking, prompt: str, *, system: str = "") -> str:
        """Ask the model once, within the budget of the run that asks.

        Raises
        ------
        ToolError
            A cap is reached, or the model failed; as RuntimeError in the cell.
        ValueError
            The caller's: the prompt is empty or too long.
        """
        current, scope = asking.run, asking.scope
        prompt = _check_text(prompt, "prompt")
        if len(system) > MAX_TASK:
            raise ValueError(f"the system prompt is longer than {MAX_TASK:,} characters")
        if current.model.answers_no_prompts:
            raise _make_refusal(current.model.answers_no_prompts)
        messages = [Message(role="system", content=system)] if system else []
        messages.append(Message(role="user", content=prompt))
        with scope.waiting():
            try:
                async with self._prompts.turn(current.meter, messages):
                    reply = await scope.work(lambda: ask_and_charge(current, messages, asking.note))
            except TimeoutError:
                raise _make_refusal("time_limit: the time of the run is over") from None
            except (BudgetExceeded, ModelError) as error:
                raise _make_refusal(one_line(str(error), REASON_CHARS)) from None
        self._prompts.learn(reply)
        return plain(reply.content)


def _reason(delegated: Delegated | None, run: Run) -> str:
    """Return one line on the ending of a run without an answer, and its partial result."""
    where = f" Its notebook: {delegated.folder}/run.ipynb" if delegated else ""
    partial = one_line(run.partial, REASON_CHARS)
    return f"{run.status}: {one_line(run.message, REASON_CHARS)}. So far: {partial}{where}"


def _at_most(**caps: Any) -> Budget:
    try:
        return Budget(**{"max_steps": None, "max_seconds": None, **caps})
    except UsageError as error:
        raise ValueError(str(error)) from None


def _short(words: str) -> str:
    """Shorten a text to a readable name of whole words."""
    if len(words) <= NAME_CHARS:
        return words
    return words[: NAME_CHARS + 1].rpartition("-")[0] or words[:NAME_CHARS]


def _check_text(text: str, what: str) -> str:
    if not text.strip():
        raise ValueError(f"the {what} is empty")
    if len(text) > MAX_TASK:
        raise ValueError(f"the {what} is longer than {MAX_TASK:,} characters")
    return text


def _make_refusal(reason: str) -> ToolError:
    return ToolError(reason, kind="RuntimeError")
