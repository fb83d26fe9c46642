"""``sql``, ``sql_tables``, ``sql_schema``: read-only database tools that return DataFrames.

``--tools sql=NAME`` takes the URL from the configuration (``[sql]``), ``--tools sql`` from
``KERNEL_AGENT_SQL_URL`` or the one that is configured, and ``--tools sql=URL`` is for URLs without
a password: a command line is no secret. With several databases the functions are named after them:
``sql_sales``, ``sql_sales_tables`` … An SQLite file is no server but an input: ``--data``.

The URL stays here. :mod:`.database` explains what keeps a database from being written to.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import UsageError, how_to_install
from kernel_agent.records import Event
from kernel_agent.safe import one_line
from kernel_agent.tools.builtin.database import QUERY_S, ROWS_MAX, Database
from kernel_agent.tools.definition import Tool
from kernel_agent.tools.secrets import URL_VARIABLE

if TYPE_CHECKING:
    import pandas as pd

_AS_DATA = "name it as --data FILE"


def sql_tools(
    whats: Sequence[str],
    configured: Mapping[str, Any],
    *,
    on_event: Callable[[Event], None],
    query_seconds: float = QUERY_S,
) -> tuple[Tool, ...]:
    """Return the tools for databases, each of which is connected to once, to see that it works.

    Parameters
    ----------
    whats
        What followed each ``--tools sql=``; empty for the one that is configured.
    configured
        URLs by name; a value ``$NAME`` stands for the variable.
    on_event
        Called with a notice of what read-only does not cover.
    query_seconds
        After so long a query is cancelled.

    Raises
    ------
    UsageError
        There is no such database, it cannot be reached, or a package is missing.
    """
    urls = _find_urls(whats, configured)
    for package in ("sqlalchemy", "pyarrow"):
        if find_spec(package) is None:
            raise UsageError(f"--tools sql needs {package}: {how_to_install('sql')}")
    databases = [
        Database(name, url, query_seconds=query_seconds, on_event=on_event)
        for name, url in urls.items()
    ]
    several = len(databases) > 1
    return tuple(
        tool for d in databases for tool in _tools(d, f"sql_{d.name}" if several else "sql")
    )


def _tools(database: Database, prefix: str) -> tuple[Tool, ...]:
    about = f"the {database.kind} database {database.name!r}, read-only"

    def sql(query: str, params: dict[str, object] | None = None) -> "pd.DataFrame":
        return database.query(query, params)

    def sql_tables() -> "pd.DataFrame":
        return database.tables()

    def sql_schema(table: str) -> "pd.DataFrame":
        return database.columns(table)

    made: dict[str, tuple[Callable[..., Any], str]] = {
        prefix: (sql, f"""Run one SELECT on {about}; the rows as a DataFrame.

            Write values as ``:name`` and pass them in ``params``. At most {ROWS_MAX:,} rows and
            {database.query_seconds:g} s: more is an error, so aggregate in SQL. Decimals arrive as
            floats.
            """),
        f"{prefix}_tables": (sql_tables, f"Return the tables and views of {about}."),
        f"{prefix}_schema": (sql_schema, f"""Return the columns of a table of {about}.

            ``table`` is NAME or SCHEMA.NAME. Columns: column, type, nullable, key, references.
            """),
    }  # fmt: skip
    tools = []
    for name, (function, doc) in made.items():
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        function.__annotations__["return"] = _Named("DataFrame")
        tools.append(Tool(function, untrusted=True))
    return tuple(tools)


class _Named:
    """An annotation that shows as a name: pandas is not imported for it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


def _find_urls(whats: Sequence[str], configured: Mapping[str, Any]) -> dict[str, str]:
    """Return the URLs by the names of their databases."""
    found: dict[str, str] = {}
    for what in whats or [""]:
        name, url = _find_url(what.strip(), configured)
        if name in found:
            raise UsageError(f"--tools sql: two databases have the name {name}")
        if url.startswith("sqlite"):
            raise UsageError(f"--tools sql: {name} is an SQLite file, which cells open: {_AS_DATA}")
        found[name] = url
    return found


def _find_url(what: str, configured: Mapping[str, Any]) -> tuple[str, str]:
    if not what and os.environ.get(URL_VARIABLE):
        return _name_in(os.environ[URL_VARIABLE]), os.environ[URL_VARIABLE]
    if not what and len(configured) == 1:
        (what,) = configured
    if what in configured:
        url = str(configured[what])
        if url.startswith("$"):
            if not os.environ.get(url[1:]):
                raise UsageError(f"--tools sql={what}: the variable {url[1:]} is not set")
            url = os.environ[url[1:]]
        return re.sub(r"\W", "_", what), url
    if "://" in what:
        return _name_in(what), what
    if what and Path(what).is_file():
        raise UsageError(f"--tools sql={one_line(what, 60)}: a file, which cells open: {_AS_DATA}")
    names = ", ".join(configured) or "none are configured"
    raise UsageError(
        f"--tools sql{'=' * bool(what)}{one_line(what, 60)}: no URL, and no name of [sql] in "
        f"the configuration ({names}); {URL_VARIABLE} may hold a URL, too"
    )


def _name_in(url: str) -> str:
    """Return a name for a database from the end of its URL, where no password stands."""
    last = url.partition("?")[0].rpartition("/")[2].rpartition("@")[2]
    return re.sub(r"\W", "_", Path(last).stem, flags=re.ASCII).strip("_")[:30] or "database"
