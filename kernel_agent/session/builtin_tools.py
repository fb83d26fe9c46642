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

from kernel_agent.config import Config
from kernel_agent.errors import UsageError
from kernel_agent.records import Event
from kernel_agent.session.delegation.tool import NAMES
from kernel_agent.tools import Tool, load_tools


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Settings and listener, for a maker of tools."""

    config: Config
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
            raise UsageError(f"--tools {name}: {_advice(name, what)}")
        else:
            tools += load_tools(text)
    for name, whats in wanted.items():
        tools += READY[name](whats, around)
    return tuple(tools)


def _advice(name: str, what: str) -> str:
    """Return what to do instead of naming a tool that there is not."""
    if name == "fetch":
        hosts = filter(None, map(str.strip, what.split(",")))
        options = " ".join(f"--allow-host {host}" for host in hosts) or "--allow-host HOST"
        return f"cells read pages themselves, of hosts that you open: {options}"
    if name == "files":
        return f"cells read a folder themselves, in place: --data {what or 'FOLDER'}"
    return f"neither a module nor a ready-made tool ({', '.join((*READY, *NAMES))})"


def _is_no_module(text: str) -> bool:
    """Say whether a name is neither installed nor a file in the working directory."""
    is_file = Path(text).exists() or Path(f"{text}.py").exists()
    return text.isidentifier() and not is_file and importlib.util.find_spec(text) is None


def _sql(whats: Sequence[str], around: Surroundings) -> Sequence[Tool]:
    from kernel_agent.tools import sql_tools

    return sql_tools(whats, around.config.sql, on_event=around.tell)


READY: Mapping[str, Maker] = {"sql": _sql}
"""The ready-made tools, by the names that a user writes."""
