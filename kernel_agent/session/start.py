"""Start of a session: from its options to its parts, each closed when the session ends."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.config import Config
from kernel_agent.errors import InputError, UsageError
from kernel_agent.formats import AUTO, get_format
from kernel_agent.notebook import prepare_notebooks
from kernel_agent.records import (
    FILE_NAME,
    Approver,
    Budget,
    DataFile,
    Event,
    Notice,
    StopSignal,
    TraceWriter,
)
from kernel_agent.safe import Made, make_missing, make_private
from kernel_agent.sandbox import Level, choose, kernelspec_of, level_of
from kernel_agent.session.builtin_tools import Surroundings, ready_tools
from kernel_agent.session.closing import Closing, close_trace
from kernel_agent.session.delegation.child import Lineage, Spawn
from kernel_agent.session.delegation.tool import NAMES, Delegation, check_names
from kernel_agent.session.folder import (
    DATA_NAME,
    RUNS,
    hold_place,
    is_taken,
    leave_place,
    make_folder,
    new_folder,
)
from kernel_agent.session.folders.library import Library
from kernel_agent.session.folders.scan import Scan
from kernel_agent.session.parts import Parts, budget_of, proxy_of
from kernel_agent.session.telemetry import telemetry_for
from kernel_agent.session.telemetry.base import Telemetry
from kernel_agent.tools import Approval, Policy, Servers, Tool, as_tools, named_servers

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kernel_agent.formats import Format
    from kernel_agent.kernel import MakeKernel
    from kernel_agent.models import Choice, Model
    from kernel_agent.sandbox import Proxy
    from kernel_agent.session.inputs import Beside

NO_TOOLS = "The format {} can only call tools, and there are none: name some with --tools MODULE."


Listener = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Options of a session as its caller gave them; they are documented there.

    ``config`` has the settings among them, and ``notes`` what is to be told of where they come
    from; ``model`` is None where it is to be chosen by its name.
    """

    config: Config
    notes: Sequence[str]
    model: Model | None
    budget: Budget | None
    tools: Sequence[Tool | Callable[..., Any] | str]
    mcp: Sequence[str]
    approver: Approver | None
    data: Sequence[str | Path | Beside]
    out: str | Path | None
    title: str
    resume: str | Path | None
    on_event: Listener | None
    tracer: Tracer | None
    lineage: Lineage
    kernel: MakeKernel | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked order, with everything that needs no opening.

    Parameters
    ----------
    order
        The order.
    config, budget
        The settings, and what a run may cost by them.
    out
        The folder; another one if the caller named none and this one is taken by then.
    tools, named_tools
        Functions, and what else was named.
    servers, proxy
        The servers that were named, and the way out to named hosts; not started.
    resume
        A hibernated kernel to go on with.
    approval, stop, tell
        As in :class:`~kernel_agent.session.parts.Parts`.
    """

    order: Order
    config: Config
    budget: Budget
    out: Path
    tools: tuple[Tool, ...]
    named_tools: tuple[str, ...]
    servers: Servers
    proxy: Proxy | None
    resume: Path | None
    approval: Approval
    stop: StopSignal
    tell: Listener


def plan_of(order: Order, *, stop: StopSignal, tell: Listener, spawn: Spawn) -> Plan:
    """Check the order, and make the parts that need no opening.

    Parameters
    ----------
    order
        What was asked for.
    stop, tell
        The session's.
    spawn
        Makes the session of an agent beneath it.

    Raises
    ------
    UsageError
        The caller's: options that cannot be met, or not together.
    """
    if order.resume is not None and order.data:
        raise UsageError("a resumed session has the inputs that it had: leave data out")
    if order.config.sandbox != "auto":
        level_of(order.config.sandbox)  # an error if there is none of this name
    budget = order.budget or budget_of(order.config)
    config = order.config.merged(max_cost=budget.max_cost)
    servers = named_servers(order.mcp, config.mcp, os.environ)
    tools, named_tools = _sorted_tools(order, Delegation(config, order.lineage, spawn))
    approval = Approval(
        policy_of(config),
        approver=order.approver,
        word=secrets.token_hex(4),
        stop=stop,
    )
    return Plan(
        order=order,
        config=config,
        budget=budget,
        out=new_folder(order.title) if order.out is None else Path(order.out),
        tools=tools,
        named_tools=named_tools,
        servers=Servers(servers, tell),
        proxy=proxy_of(config, tell, visited=approval.note_visit),
        resume=None if order.resume is None else Path(order.resume).absolute(),
        approval=approval,
        stop=stop,
        tell=tell,
    )


def policy_of(config: Config) -> Policy:
    """Return the rule of approval, from the settings."""
    return Policy(mode=config.approve, tools=config.approve_tools)


def _sorted_tools(order: Order, delegation: Delegation) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Return the tools that are functions, the session's own among them, and other names."""
    names = [tool for tool in order.tools if isinstance(tool, str)]
    own = delegation.tools([name for name in names if name in NAMES])
    given = as_tools(tool for tool in order.tools if not isinstance(tool, str))
    check_names(given)
    return as_tools((*given, *own)), tuple(name for name in names if name not in NAMES)


def listener_of(on_event: Listener | None) -> Listener | None:
    """Return an event callback; refuse a coroutine function, which nobody would await."""
    if inspect.iscoroutinefunction(on_event):
        raise UsageError("on_event is called, not awaited: pass a plain function")
    return on_event


async def open_parts(plan: Plan, closing: Closing) -> Parts:
    """Open the parts that the session needs beside its kernel.

    Parameters
    ----------
    plan
        What is wanted.
    closing
        Takes in each part as it is opened.

    Raises
    ------
    UsageError
        The caller's: an option, a file, a folder that cannot be written.
    """
    data = await asyncio.to_thread(_check_beforehand, plan)
    for line in plan.order.notes:
        plan.tell(Notice(text=line))
    telemetry = plan.order.lineage.telemetry or await _open_telemetry(plan)
    closing.add("telemetry", telemetry.close)
    closing.add("MCP servers", plan.servers.close)
    scans = [each for each in data if isinstance(each, Scan)]
    library = plan.order.lineage.library
    library = library or Library(scans, untrusted=bool(plan.config.untrusted_data))
    closing.add("folders of data", library.close)
    tools = await _find_tools(plan, library)
    said: list[Event] = []  # told once nothing can be refused any more
    model = await _choose_model(plan, closing, said.append)
    level, folder, files = await _settle(plan, closing, data)
    for event in said:
        plan.tell(event)
    trace = TraceWriter(folder / FILE_NAME)
    closing.add("trace", partial(close_trace, trace, plan.tell))
    hold_place(folder)
    closing.add("notebook's place", partial(leave_place, folder))
    return Parts(
        config=plan.config,
        level=level,
        folder=folder,
        files=files,
        library=library,
        tools=tools,
        servers=plan.servers.public,
        proxy=plan.proxy,
        resume=plan.resume,
        own_kernel=plan.order.kernel,
        model=model,
        trace=trace,
        approval=plan.approval,
        stop=plan.stop,
        lineage=plan.order.lineage,
        telemetry=telemetry,
        tell=plan.tell,
    )


Data = Sequence["str | Path | Beside | Scan"]
"""What the user named as data: files as they were named, folders as they were found."""


def _check_beforehand(plan: Plan) -> Data:
    """Look at what can be known to fail before anything is started or made; return the data.

    Raises
    ------
    UsageError
        The caller's: the model's name or key, the format, a file.
    """
    from kernel_agent.session.inputs import Beside, look_up
    from kernel_agent.session.model import check_model

    get_format(plan.config.format)
    if plan.order.model is None:
        check_model(plan.config)
    above = plan.order.lineage.library
    found: list[str | Path | Beside | Scan] = list(above.scans) if above else []
    for path in plan.order.data:
        if isinstance(path, Beside):
            found.append(path)
        else:
            found += [s if isinstance(s, Scan) else s.path for s in look_up(path)]
    return found


async def _open_telemetry(plan: Plan) -> Telemetry:
    return await asyncio.to_thread(telemetry_for, plan.order.tracer, plan.tell)


async def _find_tools(plan: Plan, library: Library) -> tuple[Tool, ...]:
    """Load the tools that were named, and connect the servers; with those of the data."""
    around = Surroundings(config=plan.config, tell=plan.tell)
    named = await asyncio.to_thread(ready_tools, plan.named_tools, around)
    check_names(named)
    tools = as_tools((*plan.tools, *named, *library.tools))
    if plan.servers.public:  # which need JSON Schema: it comes without a grammar with notebooks
        await asyncio.to_thread(prepare_notebooks)
    return as_tools((*tools, *await plan.servers.open({*NAMES, *(t.name for t in tools)})))


async def _choose_model(plan: Plan, closing: Closing, tell: Listener) -> Model:
    if plan.order.model is not None:
        return plan.order.model  # taken in by the session when it was made
    return await _named_model(plan.config, closing, tell)


async def _named_model(config: Config, closing: Closing, tell: Listener) -> Model:
    from kernel_agent.session.model import choose_model

    model = await choose_model(config, get_format(config.format), tell)
    closing.add("model", model.close)
    return model


async def change_parts(
    parts: Parts, *, before: Parts, model: Model | None, budget: Budget, closing: Closing
) -> tuple[Parts, Choice | None]:
    """Return the parts with the model that their settings name, and its format if it may be new.

    Parameters
    ----------
    parts, before
        The parts with the new settings, and as they were.
    model
        A model that the caller made.
    budget
        What a run may cost: trying out a model takes a share of it.
    closing
        Takes in a model that is opened.

    Raises
    ------
    UsageError
        The caller's: there can be no such model, or not in that format.
    """
    now, was = parts.config, before.config
    get_format(now.format)  # an error if there is none of this name
    renamed = (now.model, now.base_url) != (was.model, was.base_url)
    if model is not None:
        closing.add("model", model.close)
    elif renamed or (now.format != was.format and parts.model.name == "offline"):
        model = await _named_model(now, closing, parts.tell)
    changed = replace(parts, model=model or parts.model)
    if model is None and now.format == was.format:
        return changed, None
    return changed, await prepare(changed, budget)


async def _settle(
    plan: Plan, closing: Closing, data: Data
) -> tuple[str, Path, tuple[DataFile, ...]]:
    """Choose the level while the folder is made."""
    level, made = await asyncio.gather(
        asyncio.to_thread(choose, plan.config.sandbox),
        asyncio.to_thread(_make_folder, plan, closing, data),
        return_exceptions=True,  # both end before the folder may be removed again
    )
    for failed in (made, level):
        if isinstance(failed, BaseException):
            raise failed
    assert isinstance(level, Level)
    assert isinstance(made, tuple)
    folder, files = made
    if not level.shares_folder and any(file.is_folder for file in files):
        raise InputError(
            f"the level {level.name} shares no folder with this machine: name the files that are "
            "needed, or choose another level with --sandbox"
        )
    level.check_data([file for file in files if file.path.startswith(DATA_NAME)])
    asked = plan.config.sandbox
    return asked if kernelspec_of(asked) else level.name, folder, files


def _make_folder(plan: Plan, closing: Closing, data: Data) -> tuple[Path, tuple[DataFile, ...]]:
    from kernel_agent.session.inputs import place

    folder = plan.out
    made: Made | None
    try:
        if plan.order.out is None:  # another session may be given the same name
            made = make_folder(folder, plan.order.title)
            folder = made.path
        elif (made := make_missing(folder)) is None:
            _check_free(folder)
    except OSError as error:  # looking is refused, too, in a folder of somebody else
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; name another folder with --out"
        ) from None
    if made is not None:
        closing.add_made("folder", partial(asyncio.to_thread, _unmake, made))
    files = (*plan.order.lineage.files, *place(data, folder, notice=plan.tell))
    # It is protected from now on, for what is put later.
    make_private(folder / DATA_NAME, exist_ok=True)
    return folder, files


def _unmake(made: Made) -> None:
    """Remove the folder of a session that did not start, and that of runs if it is empty."""
    made.clear()
    if made.path.parent.name == RUNS:
        with suppress(OSError):
            made.path.parent.rmdir()


def _check_free(folder: Path) -> None:
    """Refuse a folder in which files are in the way of the session's own."""
    taken = is_taken(folder)
    if taken == FILE_NAME:
        raise InputError(
            f"{folder} holds an earlier session already: name another folder with --out"
        )
    if taken:
        raise InputError(
            f"{folder} has a {taken} already, and the session writes one: "
            "rename it, or name another folder with --out"
        )


async def prepare(parts: Parts, budget: Budget) -> Choice:
    """Prepare the model for its first call; return its format."""
    from kernel_agent.models import Choice, OpenAIModel, choose_format, memory_file

    await parts.model.prepare()
    if parts.config.context_tokens is None and isinstance(parts.model, OpenAIModel):
        await parts.model.learn_window()
    if parts.config.format != AUTO:
        return Choice(format=parts.config.format, reason="")
    return await choose_format(parts.model, budget=budget, tell=parts.tell, memory=memory_file())


def tell_doubts(parts: Parts, format: Format) -> None:  # noqa: A002 - the project's word
    """Warn of probable mistakes in the user's options, and note the presence of untrusted data."""
    if not format.writes_code and not parts.tools:
        parts.tell(Notice(text=NO_TOOLS.format(format.name)))
    for line in parts.approval.policy.strangers({tool.name for tool in parts.tools}):
        parts.tell(Notice(text=line))
    if parts.config.untrusted_data and parts.files:
        parts.approval.note_data("the data files")
