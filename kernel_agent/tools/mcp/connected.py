"""The MCP servers of a session: opened side by side, listed once, closed side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernel_agent.errors import UsageError, how_to_install
from kernel_agent.records import Event, Json, Notice
from kernel_agent.safe import one_line
from kernel_agent.tools.mcp.connection import Connection
from kernel_agent.tools.mcp.foreign import ForeignTool, names_for
from kernel_agent.tools.mcp.servers import Server
from kernel_agent.tools.threads import in_thread

TOOLS_MAX = 64  # of one server; the model reads them all


class Servers:
    """The MCP servers of one session.

    Parameters
    ----------
    servers
        What the user named.
    on_event
        Called with notices for the user.
    """

    def __init__(self, servers: Sequence[Server], on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._connections = [Connection(server, on_event) for server in servers]
        self._tools: dict[str, int] = {}

    @property
    def public(self) -> list[dict[str, Json]]:
        """The servers as a trace may hold them: name, transport, number of tools."""
        return [
            {
                "name": c.server.name,
                "transport": c.server.transport,
                "tools": self._tools.get(c.server.name, 0),
            }
            for c in self._connections
        ]

    async def open(self, taken: Collection[str]) -> tuple[ForeignTool, ...]:
        """Start or reach all of them, and return their tools. Called once, by the session.

        Parameters
        ----------
        taken
            Names of the session's other tools.

        Raises
        ------
        UsageError
            One does not work; none is left running.
        """
        if self._connections and find_spec("mcp") is None:
            raise UsageError(f"--mcp needs the package mcp: {how_to_install('mcp')}")
        if self._connections:  # away from the loop: it takes a second
            await asyncio.to_thread(import_module, "mcp")
        opening = [asyncio.create_task(self._open_one(c)) for c in self._connections]
        try:
            listed = await asyncio.gather(*opening)
        except BaseException:
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)
            await self.close()
            raise
        tools: list[ForeignTool] = []
        for connection, found in zip(self._connections, listed, strict=True):
            names = [*taken, *(tool.name for tool in tools)]
            tools += await self._make_tools(connection, found, names)
        return tuple(tools)

    async def close(self) -> None:
        """End them all; never hangs."""
        await asyncio.gather(*(connection.close() for connection in self._connections))

    @staticmethod
    async def _open_one(connection: Connection) -> list[Any]:
        await connection.open()
        return await connection.tools()

    async def _make_tools(
        self, connection: Connection, found: Sequence[Any], taken: Collection[str]
    ) -> list[ForeignTool]:
        server = connection.server
        wanted = [tool for tool in found if not server.tools or tool.name in server.tools]
        missing = set(server.tools) - {tool.name for tool in found}
        if missing:
            raise UsageError(f"--mcp {server.name}: it has no tool {', '.join(sorted(missing))}")
        if not wanted:
            self._on_event(Notice(text=f"The MCP server {server.name} offers no tools."))
        if len(wanted) > TOOLS_MAX:
            self._on_event(
                Notice(
                    text=f"The MCP server {server.name} offers {len(wanted):,} tools: the first "
                    f"{TOOLS_MAX} are taken. Name those that you want with tools = [...] in its "
                    "table of the configuration file."
                )
            )
        wanted = wanted[:TOOLS_MAX]
        tools: list[ForeignTool] = await in_thread(_foreign, connection, wanted, taken)
        self._tools[server.name] = len(tools)
        if tools:
            listed = ", ".join(tool.name for tool in tools)
            self._on_event(
                Notice(text=one_line(f"MCP server {server.name} ({server.transport}): {listed}"))
            )
        return tools


def _foreign(
    connection: Connection, described: Sequence[Any], taken: Collection[str]
) -> list[ForeignTool]:
    """Make the tools; in a thread, since a stranger's schemas may be long."""
    server = connection.server
    names = names_for(server.name, [tool.name for tool in described], taken)
    return [
        ForeignTool(server.name, tool, name, connection.call, hide=server.without_secrets)
        for tool, name in zip(described, names, strict=True)
    ]
