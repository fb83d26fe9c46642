"""MCP servers as the user names them: a command, a URL, or a name in the configuration. Pure.

::

    --mcp "uvx mcp-server-time"            a command, split as a shell does, started without one
    --mcp "clock=uvx mcp-server-time"      the same, under a name of the user's
    --mcp https://example.org/mcp          streamable HTTP
    --mcp wiki                             [mcp.wiki] of the configuration file

Commands and URLs may hold keys: neither is ever shown, recorded, or part of a message.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from kernel_agent.errors import UsageError
from kernel_agent.tools.secrets import without_secrets, worth_hiding

START_S = 20.0
CALL_S = 60.0
_RUNNERS = {"npx", "uvx", "bunx", "pipx", "run", "exec", "tool", "uv", "pnpm", "dlx", "node", "bun"}
_NAMED = re.compile(r"([a-z][a-z0-9_-]{0,30})=(.+)", re.DOTALL)
_AFFIX = r"^(mcp_server_|server_|mcp_)|(_mcp_server|_mcp|_server)$"  # of what no user has named
_PACKAGE = re.compile(r"[@\w][\w.@/-]*")
_KEYS: dict[str, tuple[type, ...]] = {
    "command": (str,), "url": (str,), "env": (list, dict), "headers": (dict,), "tools": (list,),
    "start_seconds": (int, float), "call_seconds": (int, float),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server: ``command`` for stdio, or ``url``; fields that may hold a key are not in its repr.

    ``env`` and ``headers`` hold values; ``tools`` are the names that are wanted, all when empty.
    """

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    url: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: tuple[str, ...] = ()
    start_seconds: float = START_S
    call_seconds: float = CALL_S

    @property
    def transport(self) -> str:
        """Name of the transport in a trace."""
        return "http" if self.url else "stdio"

    def without_secrets(self, text: str) -> str:
        """Return a text of the server's without the secrets that the user entrusted to it."""
        parts = urlsplit(self.url)
        hidden = [*self.env.values(), *self.headers.values(), *self.command[1:], self.url,
                  parts.query, parts.username or "", parts.password or ""]  # fmt: skip
        hidden += [word for value in self.headers.values() for word in value.split()]
        return without_secrets(text, worth_hiding(hidden))


def named_servers(
    given: Iterable[str],
    configured: Mapping[str, Any],
    environment: Mapping[str, str],
) -> tuple[Server, ...]:
    """Return the servers that were named; two that would have the same name are numbered.

    Parameters
    ----------
    given
        What followed each ``--mcp``.
    configured
        The table ``mcp`` of the configuration.
    environment
        Where ``$NAME`` in the configuration, and the variables that a server is given, come from.

    Raises
    ------
    UsageError
        One cannot be read as a command or a URL, or a setting is wrong.
    """
    servers: list[Server] = []
    for text in given:
        if text.strip() in configured:
            made = _from_table(text.strip(), configured[text.strip()], environment)
        else:
            made = _parse(text)
        names = {server.name for server in servers}
        name, number = made.name, 2
        while name in names:
            name, number = f"{made.name}_{number}", number + 1
        servers.append(_rename(made, name))
    return tuple(servers)


def _parse(text: str) -> Server:
    named = _NAMED.fullmatch(text.strip())
    name, text = (named[1], named[2]) if named else ("", text)
    server = _parse_address(text, name)
    return _rename(server, name) if name else server


def _parse_address(text: str, name: str) -> Server:
    """Read a command or a URL."""
    shown = f"--mcp {name}".strip()
    text = text.strip()
    if re.match(r"https?://", text, re.IGNORECASE):
        try:
            host = urlsplit(text).hostname
        except ValueError:
            host = None
        if not host:
            raise UsageError(f"{shown}: the URL names no host")
        return Server(name=_plain_name(host, _AFFIX), url=text)
    if "://" in text.split(" ", maxsplit=1)[0]:
        raise UsageError(f"{shown}: only http:// and https:// URLs are servers")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{shown}: not a command line: {error}") from None
    if not words or "\0" in text:
        raise UsageError(f"{shown}: name a command, a URL, or a server of the configuration file")
    return Server(name=_name_of(words), command=words)


def _name_of(words: tuple[str, ...]) -> str:
    """Name a command: by its program or the module it runs, never an argument's value."""
    program = PurePath(words[0]).name
    rest = list(words[1:])
    if re.fullmatch(r"python[\d.]*", program):
        if rest[:1] == ["-m"] and len(rest) > 1:
            program = rest[1]
        elif rest and rest[0].endswith(".py"):
            program = PurePath(rest[0]).stem
    elif program in _RUNNERS:
        while rest and (rest[0] in _RUNNERS or rest[0] in ("-y", "--yes", "-q", "--quiet")):
            rest.pop(0)
        if rest and _PACKAGE.fullmatch(rest[0]):
            program = PurePath(rest[0].partition("@")[0] or rest[0]).stem
    return _plain_name(program, _AFFIX)


def _plain_name(text: str, without: str = "") -> str:
    name = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_")
    return re.sub(without, "", name)[:30] or "server"


def _from_table(name: str, table: Any, environment: Mapping[str, str]) -> Server:
    where = f"[mcp.{name}] of the configuration"
    if not isinstance(table, dict):
        raise UsageError(f"{where} must be a table with a command or a url")
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(f"{where}: there is no setting {key!r}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise UsageError(f"{where}: {key} must be {_KEYS[key][0].__name__}")
    if ("command" in table) == ("url" in table):
        raise UsageError(f"{where} needs a command or a url, and not both")
    env = table.get("env", {})
    if isinstance(env, list):
        env = {str(variable): f"${variable}" for variable in env}
    server = _parse_address(table.get("command") or table["url"], name)
    return Server(
        name=_plain_name(name),
        command=server.command,
        url=server.url,
        env=_fill_in(env, environment, where),
        headers=_fill_in(table.get("headers", {}), environment, where),
        tools=tuple(map(str, table.get("tools", ()))),
        start_seconds=float(table.get("start_seconds", START_S)),
        call_seconds=float(table.get("call_seconds", CALL_S)),
    )


def _fill_in(values: Mapping[str, Any], env: Mapping[str, str], where: str) -> dict[str, str]:
    """Put the variables in the place of their names."""
    filled = {}
    for key, value in values.items():
        text = str(value)
        for variable in re.findall(r"\$(\w+)", text):
            if variable not in env:
                raise UsageError(f"{where}: the variable {variable} is not set")
        filled[key] = re.sub(r"\$(\w+)", lambda match: env[match[1]], text)
    return filled


def _rename(server: Server, name: str) -> Server:
    return replace(server, name=_plain_name(name))
