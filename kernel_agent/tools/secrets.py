"""Keep the configuration's secrets on the host, even when a tool's text contains them.

A tool's exception goes to the cell as it is, and may quote a connection string. The rule: values of
environment variables that the configuration names as secrets (``api_key_env``, ``secret_env``,
headers that come from a variable, ``$NAME`` in what is said of databases and MCP servers), headers
and settings that are named like one (``Authorization``) and the passwords of the addresses of the
endpoint and of databases are cut from every text that a tool gives to a kernel or into a trace.
No other text is searched. A tool that shows one in its signature or description is refused: these
go to the kernel and to the model. What a tool author puts into bytes, tables or pictures is theirs.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from kernel_agent.config import Config, hides
from kernel_agent.errors import UsageError
from kernel_agent.tools.definition import Tool

CUT = "[secret]"
URL_VARIABLE = "KERNEL_AGENT_SQL_URL"
_VARIABLE = re.compile(r"\$\{?(\w+)")
# As databases are told them: any sign but @ where an address has it, or in a driver's own settings.
_PASSWORD = re.compile(r"://[^:/@]*:([^@]*)@|(?i:\bpwd|password)=(?:\{([^}]+)|([^;&]+))")
SHORTEST = 8  # a shorter value is a word that texts are full of, not a secret


def secrets_of(config: Config, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that must not leave the host, longest first; called by the executor."""
    names = (config.api_key_env, *config.secret_env, *_variables((config.mcp, config.sql)))
    named = [environment.get(name, "") for name in (*names, *_passed_variables(config.mcp))]
    from_variables = set(environment.values())
    for name, value in config.headers.items():
        if hides(name) or value in from_variables:
            named += [value, value.rpartition(" ")[2]]  # of "Bearer KEY" the key, too
    named += _looks_secret(config.mcp)
    for url in (config.base_url or "", f"${URL_VARIABLE}", *map(str, config.sql.values())):
        named += _passwords(environment.get(url[1:], "") if url.startswith("$") else url)
    return worth_hiding(named)


def worth_hiding(values: Iterable[str]) -> tuple[str, ...]:
    """Return those values that can be secrets, longest first: one may be a part of another."""
    return tuple(sorted({v for v in values if len(v) >= SHORTEST}, key=len, reverse=True))


def _variables(value: Any) -> Iterator[str]:
    """Yield the names of the environment variables that texts in a setting refer to."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables(item)
    elif isinstance(value, str):
        yield from _VARIABLE.findall(value)


def _passed_variables(servers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the variables that servers are given as they are (a list of names)."""
    for server in servers.values():
        given = server.get("env", ()) if isinstance(server, Mapping) else ()
        yield from map(str, given if isinstance(given, (list, tuple)) else ())


def _looks_secret(value: Any) -> Iterator[str]:
    """Yield the texts in a setting whose names say that they are secrets."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if isinstance(item, str) and hides(str(name)) and not _VARIABLE.search(item):
                yield from (item, item.rpartition(" ")[2])
            else:
                yield from _looks_secret(item)


def _passwords(url: str) -> tuple[str, ...]:
    """Return the passwords in an address, as they stand there and as they are meant."""
    found = [
        "".join(parts) for text in (url, unquote_plus(url)) for parts in _PASSWORD.findall(text)
    ]
    with contextlib.suppress(ValueError):  # no address to a browser; connecting to it says more
        parts = urlsplit(url)
        found.append(parts.password or "")
        pairs = [pair.partition("=") for pair in parts.query.split("&")]
        found += [value for name, _, value in pairs if hides(unquote(name))]
    return (*found, *map(unquote, found))


def check_tools(tools: Sequence[Tool], secrets: Iterable[str]) -> None:
    """Refuse tools that show a secret; called by the broker for all of a session's.

    Raises
    ------
    UsageError
        The caller's: a default (``functools.partial`` makes such) or a description holds a secret.
    """
    for tool in tools:
        shown = json.dumps(tool.spec, ensure_ascii=False)
        if without_secrets(shown, secrets) != shown:
            raise UsageError(
                f"the tool {tool.name} shows a secret in its signature or description, which the "
                "model reads: let the function look it up when it is called"
            )


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text, or JSON as text, with every secret cut from it.

    Examples
    --------
    >>> without_secrets("no access for key s3cr3t-key", ["s3cr3t-key"])
    'no access for key [secret]'
    >>> without_secrets("postgresql://me:a%2Fb%2Bc%3Dd@host", ["a/b+c=d"])
    'postgresql://me:[secret]@host'
    """
    for secret in secrets:
        for form in {secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret)}:
            text = text.replace(form, CUT)
    return text


def json_text_without(text: str, secrets: Sequence[str]) -> str:
    """Return JSON as text with every secret cut from it; of a number with one a text is made.

    Examples
    --------
    >>> json_text_without('{"pin": 1234567890, "of": "id 1234567890"}', ["1234567890"])
    '{"pin": "[secret]", "of": "id [secret]"}'
    """
    if without_secrets(text, secrets) == text:
        return text

    def number(kind: type) -> Callable[[str], Any]:
        def read(digits: str) -> Any:
            told = f"{digits} {json.dumps(kind(digits))}"  # 1.2345678e7 is written as 12345678.0
            return kind(digits) if without_secrets(told, secrets) == told else CUT

        return read

    whole = json.loads(text, parse_int=number(int), parse_float=number(float))
    return without_secrets(json.dumps(whole), secrets)
