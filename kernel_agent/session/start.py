"""From what the caller of a session asked for to its parts, each closed when the session ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.config import Config
from kernel_agent.errors import InputError
from kernel_agent.formats import AUTO, get_format
from kernel_agent.kernel import interpreter
from kernel_agent.records import (
    FILE_NAME,
    Budget,
    DataFile,
    Event,
    Notice,
    StopSignal,
    TraceWriter,
)
from kernel_agent.safe import clear, make_private
from kernel_agent.sandbox import Level, choose
from kernel_agent.session.builtin_tools import Surroundings, ready_tools
from kernel_agent.session.closing import Closing
from kernel_agent.session.delegation.child import Lineage
from kernel_agent.session.delegation.tool import NAMES, check_names
from kernel_agent.session.folder import DATA_NAME, hold_place, leave_place, make_folder
from kernel_agent.session.parts import Parts
from kernel_agent.session.telemetry import Telemetry, telemetry_for
from kernel_agent.tools import Approval, Servers, Tool, as_tools

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kernel_agent.formats import Format
    from kernel_agent.models import Choice, Model
    from kernel_agent.sandbox import Proxy
    from kernel_agent.session.inputs import Beside

NO_TOOLS = "The format {} can only call tools, and there are none: name some with --tools MODULE."


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the caller of a session asked for; checked, and nothing of it opened yet.

    Parameters
    ----------
    config, notes
        The settings, and what is to be told of where they come from.
    out, title
        The folder, and what it is named after; no title where the caller named the folder.
    data
        Files that are placed in it.
    resume
        A hibernated kernel to go on with.
    model
        The caller's own; None: the one that the settings name.
    tools, named_tools
        Functions, and what else is named with ``--tools``.
    servers
        Those that the caller named.
    proxy
        The way out to named hosts.
    approval, stop, lineage, tell
        As in :class:`~kernel_agent.session.parts.Parts`.
    tracer
        The caller's own.
    """

    config: Config
    notes: Sequence[str]
    out: Path
    title: str | None
    data: Sequence[str | Path | Beside]
    resume: Path | None
    model: Model | None
    tools: tuple[Tool, ...]
    named_tools: tuple[str, ...]
    servers: Servers
    proxy: Proxy | None
    approval: Approval
    stop: StopSignal
    lineage: Lineage
    tracer: Tracer | None
    tell: Callable[[Event], None]


async def open_parts(order: Order, closing: Closing) -> Parts:
    """Open what the session needs beside its kernel.

    Parameters
    ----------
    order
        What the caller asked for.
    closing
        Takes in each part as it is opened.

    Raises
    ------
    UsageError
        The caller's: an option, a file, a folder that cannot be written.
    """
    for line in order.notes:
        order.tell(Notice(text=line))
    telemetry = order.lineage.telemetry or await _open_telemetry(order)
    closing.add("telemetry", partial(telemetry.close, order.tell))
    closing.add("MCP servers", order.servers.close)
    tools = await _find_tools(order)
    model = await _choose_model(order, closing)
    level, (folder, files) = await _settle(order, closing)
    trace = TraceWriter(folder / FILE_NAME)
    closing.add("trace", trace.close)
    hold_place(folder)
    closing.add("notebook's place", partial(leave_place, folder))
    return Parts(
        config=order.config,
        level=level,
        folder=folder,
        files=files,
        tools=tools,
        servers=order.servers.public,
        proxy=order.proxy,
        resume=order.resume,
        model=model,
        trace=trace,
        approval=order.approval,
        stop=order.stop,
        lineage=order.lineage,
        telemetry=telemetry,
        tell=order.tell,
    )


async def _open_telemetry(order: Order) -> Telemetry:
    return await asyncio.to_thread(telemetry_for, order.tracer, order.tell)


async def _find_tools(order: Order) -> tuple[Tool, ...]:
    """Load the tools that were named, and connect the servers."""
    around = Surroundings(config=order.config, proxy=order.proxy, tell=order.tell)
    named = await asyncio.to_thread(ready_tools, order.named_tools, around)
    check_names(named)
    tools = as_tools((*order.tools, *named))
    names = {*NAMES, *(tool.name for tool in tools)}
    return as_tools((*tools, *await order.servers.open(names)))


async def _choose_model(order: Order, closing: Closing) -> Model:
    from kernel_agent.session.model import choose_model

    fmt = get_format(order.config.format)
    if order.model is not None:
        return order.model  # taken in by the session when it was made
    model = await choose_model(order.config, fmt, order.tell)
    closing.add("model", model.close)
    return model


async def _settle(order: Order, closing: Closing) -> tuple[str, tuple[Path, tuple[DataFile, ...]]]:
    """Choose the level while the folder is made."""
    level, made = await asyncio.gather(
        asyncio.to_thread(choose, order.config.sandbox),
        asyncio.to_thread(_make_folder, order, closing),
        return_exceptions=True,  # both end before the folder may be removed again
    )
    for failed in (made, level):
        if isinstance(failed, BaseException):
            raise failed
    assert isinstance(level, Level)
    assert isinstance(made, tuple)
    return level.name, made


def _make_folder(order: Order, closing: Closing) -> tuple[Path, tuple[DataFile, ...]]:
    from kernel_agent.session.inputs import place

    folder = order.out
    try:
        if order.title is not None:
            folder = make_folder(folder, order.title)
            closing.add_made("folder", partial(asyncio.to_thread, clear, folder))
        else:
            if (folder / FILE_NAME).exists():
                raise InputError(
                    f"{folder} holds an earlier session already: name another folder with --out"
                )
            if not folder.exists():
                closing.add_made("folder", partial(asyncio.to_thread, clear, folder))
            make_private(folder, exist_ok=True)
    except OSError as error:  # looking is refused, too, in a folder of somebody else
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; name another folder with --out"
        ) from None
    files = order.lineage.files or place(order.data, folder, notice=order.tell)
    # It is protected from now on, for what is put later.
    make_private(folder / DATA_NAME, exist_ok=True)
    if order.config.sandbox == interpreter.LEVEL.name:
        interpreter.check_data([f for f in files if f.path.startswith(DATA_NAME)])
    return folder, files


async def prepare(parts: Parts, budget: Budget) -> Choice:
    """Do what a model needs before its first call; return the format that it is to write in."""
    from kernel_agent.models import Choice, choose_format, memory_file

    prepare_model = getattr(parts.model, "prepare", None)
    if prepare_model is not None:
        await prepare_model()
    if parts.config.format != AUTO:
        return Choice(format=parts.config.format, reason="")
    return await choose_format(parts.model, budget=budget, tell=parts.tell, memory=memory_file())


def tell_doubts(parts: Parts, format: Format) -> None:  # noqa: A002 - the project's word
    """Say what is probably not as the user meant it, and note that data of others is there."""
    if not format.writes_code and not parts.tools:
        parts.tell(Notice(text=NO_TOOLS.format(format.name)))
    for line in parts.approval.policy.strangers({tool.name for tool in parts.tools}):
        parts.tell(Notice(text=line))
    if parts.config.untrusted_data and parts.files:
        parts.approval.entered("the data files")
