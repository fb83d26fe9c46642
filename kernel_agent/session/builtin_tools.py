"""Tools by the names that ``--tools`` takes: ready-made ones by a table, else a module or a file.

A ready-made tool is off until it is named. ``NAME=WHAT`` says what it is about; the same name
several times gives its maker several of them. Makers stand in the layer above the tools because
some need what the sandbox knows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.config import Config
from kernel_agent.errors import UsageError
from kernel_agent.records import Event
from kernel_agent.session.delegation.tool import NAMES
from kernel_agent.tools import Tool, load_tools

if TYPE_CHECKING:
    from kernel_agent.sandbox import Proxy


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Settings, way out to named hosts and listener, for a maker of tools."""

    config: Config
    proxy: Proxy | None
    tell: Callable[[Event], None]


Maker = Callable[[Sequence[str], Surroundings], Sequence[Tool]]


def ready_tools(named: Sequence[str], around: Surroundings) -> tuple[Tool, ...]:
    """Return the tools that each ``--tools`` names; called when a session starts.

    Raises
    ------
    UsageError
        There is no such tool or module, or it cannot be used.
    """
    tools: list[Tool] = []
    wanted: dict[str, list[str]] = {}
    for text in named:
        name, equals, what = text.partition("=")
        if name in READY:
            wanted.setdefault(name, []).extend([what] if equals else [])
        elif (equals and not name.endswith(".py")) or _is_no_module(text):
            known = ", ".join((*READY, *NAMES))
            raise UsageError(f"--tools {name}: neither a module nor a ready-made tool ({known})")
        else:
            tools += load_tools(text)
    for name, whats in wanted.items():
        tools += READY[name](whats, around)
    return tuple(tools)


def _is_no_module(text: str) -> bool:
    """Say whether a name is neither installed nor a file in the working directory."""
    is_file = Path(text).exists() or Path(f"{text}.py").exists()
    return text.isidentifier() and not is_file and importlib.util.find_spec(text) is None


def _sql(whats: Sequence[str], around: Surroundings) -> Sequence[Tool]:
    from kernel_agent.tools import sql_tools

    return sql_tools(whats, around.config.sql, on_event=around.tell)


def _files(whats: Sequence[str], _around: Surroundings) -> Sequence[Tool]:
    from kernel_agent.tools import file_tools

    return file_tools(whats)


def _fetch(whats: Sequence[str], around: Surroundings) -> Sequence[Tool]:
    from kernel_agent.sandbox import Refused
    from kernel_agent.session.parts import proxy_of
    from kernel_agent.tools import fetch_tools

    hosts = [host.strip() for what in whats for host in what.split(",") if host.strip()]
    proxy = around.proxy
    if hosts:  # opened to the tool alone, and not to the cells
        proxy = proxy_of(around.config.merged(allow_hosts=tuple(hosts)), around.tell)
    if proxy is None:
        raise UsageError(
            "--tools fetch needs to know which hosts: --tools fetch=HOST, or --allow-host HOST"
        )
    return fetch_tools(
        admit=proxy.admit,
        received=proxy.count_received,
        hosts=[str(host) for host in proxy.allowed],
        refused=Refused,
    )


READY: Mapping[str, Maker] = {"sql": _sql, "files": _files, "fetch": _fetch}
"""The ready-made tools, by the names that a user writes."""
