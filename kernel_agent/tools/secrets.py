"""Secrets of the configuration stay on the host, whatever a tool says.

A tool's exception goes to the cell as it is, and may quote a connection string. The rule: values of
environment variables that the configuration names as secrets (``api_key_env``, ``secret_env``,
headers that come from a variable, ``$NAME`` in what is said of databases and MCP servers) and the
passwords of database URLs are cut from every text that goes to a kernel or into a trace.
What a tool author puts into bytes, tables or pictures is the author's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from kernel_agent.config import Config

CUT = "[secret]"
_VARIABLE = re.compile(r"\$\{?(\w+)")
SHORTEST = 8  # a shorter value is a word that texts are full of, not a secret


def secrets_of(config: Config, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that must not leave the host, longest first; called by the executor."""
    named = [environment.get(name, "") for name in (config.api_key_env, *config.secret_env)]
    from_variables = set(environment.values())
    named += [value for value in config.headers.values() if value in from_variables]
    named += [environment.get(name, "") for name in _variables((config.mcp, config.sql))]
    for url in map(str, config.sql.values()):
        named.append(_password(environment.get(url[1:], "") if url.startswith("$") else url))
    return tuple(sorted({v for v in named if len(v) >= SHORTEST}, key=len, reverse=True))


def _variables(value: Any) -> Iterator[str]:
    """Yield the names of the environment variables that texts in a setting refer to."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables(item)
    elif isinstance(value, str):
        yield from _VARIABLE.findall(value)


def _password(url: str) -> str:
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text, or JSON as text, with every secret cut from it.

    Examples
    --------
    >>> without_secrets("no access for key s3cr3t-key", ["s3cr3t-key"])
    'no access for key [secret]'
    """
    for secret in secrets:
        for form in {secret, json.dumps(secret)[1:-1]}:
            text = text.replace(form, CUT)
    return text
