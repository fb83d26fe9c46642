"""``sql``, ``sql_tables``, ``sql_schema``: a database, read-only, its rows as a DataFrame.

``--tools sql=NAME`` takes the URL from the configuration (``[sql]``), ``--tools sql`` from
``KERNEL_AGENT_SQL_URL`` or the one that is configured, ``--tools sql=FILE`` opens an SQLite file,
and ``--tools sql=URL`` is for URLs without a password: a command line is no secret. With several
databases the functions are named after them: ``sql_sales``, ``sql_sales_tables`` …

The URL stays here. Read-only is the database's own doing where it can be:

* SQLite: opened with ``mode=ro``, ``query_only``, and an authorizer that knows reading only; no
  other file is attached and no extension loaded. A handler ends a query at its time.
* PostgreSQL (with psycopg): a read-only transaction, and a cursor that is declared on the server,
  which takes one SELECT, VALUES or WITH that changes nothing, whatever the text says. Its own
  timeout, and a cancellation from here. A *function* that a superuser may call is not held by
  that (``pg_read_file``), which is said when the role is one.
* Any other: only what begins like a query, and a transaction that is rolled back. That is no
  protection where a statement commits by itself: give a role that may only read.

A connection lives as long as a call. A result beyond the caps is an error, never cut silently.
"""

import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.records import Event, Notice
from kernel_agent.text import one_line
from kernel_agent.tools.tool import Tool

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection, Engine

URL_VARIABLE = "KERNEL_AGENT_SQL_URL"
ROWS_MAX = 200_000
BYTES_MAX = 20_000_000  # of a result, as counted below; beyond 32 MB nothing is sent
CELLS_MAX = 5_000_000  # what a table of short values becomes costs more than its text
VALUE_MAX = 20_000_000  # bytes of one value that SQLite makes
QUERY_S = 30.0
CONNECT_S = 10
BATCH = 2_000  # rows that are fetched at a time, fewer when they are long
BATCH_BYTES = 2_000_000
# Possessive: comments can be read in more than one way, and thirty of them would all be tried.
_QUERY = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*+(select|with|values|table|show|describe)\b",
    re.IGNORECASE | re.DOTALL,
)
_KEPT = (bool, int, float, str, bytes, date, datetime, clock_time, timedelta)


def sql_tools(
    whats: Sequence[str],
    configured: Mapping[str, Any],
    *,
    tell: Callable[[Event], None],
    query_seconds: float = QUERY_S,
) -> tuple[Tool, ...]:
    """Return the tools for databases, each of which is connected to once, to see that it works.

    Parameters
    ----------
    whats
        What followed each ``--tools sql=``; empty for the one that is configured.
    configured
        URLs by name; a value ``$NAME`` stands for the variable.
    tell
        Told what read-only does not cover.
    query_seconds
        After so long a query is cancelled.

    Raises
    ------
    UsageError
        There is no such database, it cannot be reached, or a package is missing.
    """
    for package in ("sqlalchemy", "pyarrow"):
        if find_spec(package) is None:
            raise UsageError(f"--tools sql needs {package}: pip install 'kernel-agent[sql]'")
    databases = [
        Database(name, url, query_seconds=query_seconds, tell=tell)
        for name, url in _named(whats, configured).items()
    ]
    several = len(databases) > 1
    return tuple(
        tool for d in databases for tool in _tools(d, f"sql_{d.name}" if several else "sql")
    )


def _tools(database: "Database", prefix: str) -> tuple[Tool, ...]:
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


def _named(whats: Sequence[str], configured: Mapping[str, Any]) -> dict[str, str]:
    """Return the URLs by the names of their databases."""
    found: dict[str, str] = {}
    for what in whats or [""]:
        name, url = _one(what.strip(), configured)
        if name in found:
            raise UsageError(f"--tools sql: two databases have the name {name}")
        found[name] = url
    return found


def _one(what: str, configured: Mapping[str, Any]) -> tuple[str, str]:
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
        return _name_in(what), f"sqlite:///{Path(what).absolute()}"
    names = ", ".join(configured) or "none are configured"
    raise UsageError(
        f"--tools sql{'=' * bool(what)}{one_line(what, 60)}: not a database file, and no name of "
        f"[sql] in the configuration ({names}); {URL_VARIABLE} may hold a URL, too"
    )


def _name_in(url: str) -> str:
    """Return a name for a database from the end of its URL, where no password stands."""
    last = url.partition("?")[0].rpartition("/")[2].rpartition("@")[2]
    return re.sub(r"\W", "_", Path(last).stem, flags=re.ASCII).strip("_")[:30] or "database"


class Database:
    """A database that may be read.

    Parameters
    ----------
    name
        What it is called.
    url
        As SQLAlchemy reads it.
    query_seconds
        After so long a query is cancelled.
    tell
        Told once what read-only does not cover.

    Raises
    ------
    UsageError
        The URL cannot be read, a driver is missing, or nothing answers.
    """

    def __init__(
        self, name: str, url: str, *, query_seconds: float, tell: Callable[[Event], None]
    ) -> None:
        from sqlalchemy.exc import ArgumentError, SQLAlchemyError

        self.name = name
        self.query_seconds = query_seconds
        try:
            self._engine = _engine(url, query_seconds)
            self.kind = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(
                self._engine.dialect.name, self._engine.dialect.name
            )
            with self._engine.connect() as connection:
                warning = _not_held(connection)
        except ArgumentError:
            raise UsageError(f"--tools sql={name}: not a database URL") from None
        except (SQLAlchemyError, ImportError, ValueError, sqlite3.Error) as error:
            reason = _without(url, _first_line(error))
            raise UsageError(f"--tools sql={name}: {reason}") from None
        if warning:
            tell(Notice(text=f"Database {name}: {warning}"))

    def query(self, query: str, params: Mapping[str, Any] | None) -> "pd.DataFrame":
        """Run one query; see the module for what keeps it from writing.

        Raises
        ------
        ToolError
            The database refuses it, or it took too long or gave too much.
        """
        from sqlalchemy import text

        if self.kind not in ("SQLite", "PostgreSQL") and not _QUERY.match(query):
            raise ToolError("only queries can be run here", kind="PermissionError")
        with self._reading() as connection:
            if params:
                result = connection.execute(text(query), dict(params))
            else:  # nothing in it is a placeholder, neither ":" nor "%"
                plain = connection.execution_options(no_parameters=True)
                result = plain.exec_driver_sql(query)
            with closing(result):
                if not result.returns_rows:
                    raise ToolError("that is not a query: it returns no rows", kind="ValueError")
                return _frame(list(result.keys()), _rows(result))

    def tables(self) -> "pd.DataFrame":
        """Return schema, name and kind of every table and view."""
        import pandas as pd
        from sqlalchemy import inspect

        found = []
        with self._reading(inspecting=True) as connection:
            looking = inspect(connection)
            default = looking.default_schema_name
            for schema in looking.get_schema_names():
                if schema in ("information_schema", "pg_catalog", "pg_toast"):
                    continue
                shown = "" if schema in (default, "main") else schema
                found += [(shown, name, "table") for name in looking.get_table_names(schema)]
                found += [(shown, name, "view") for name in looking.get_view_names(schema)]
        return pd.DataFrame(found, columns=["schema", "table", "kind"])

    def columns(self, table: str) -> "pd.DataFrame":
        """Return what is known of the columns of a table or view.

        Raises
        ------
        ToolError
            There is none of that name.
        """
        import pandas as pd
        from sqlalchemy import inspect
        from sqlalchemy.exc import NoSuchTableError

        schema, _, name = table.rpartition(".")
        with self._reading(inspecting=True) as connection:
            looking = inspect(connection)
            try:
                columns = looking.get_columns(name, schema or None)
            except NoSuchTableError:
                raise ToolError(f"there is no table {one_line(table, 80)!r}; sql_tables() lists "
                                "them", kind="KeyError") from None  # fmt: skip
            key = looking.get_pk_constraint(name, schema or None)["constrained_columns"]
            points = {
                mine: f"{foreign['referred_table']}.{theirs}"
                for foreign in looking.get_foreign_keys(name, schema or None)
                for mine, theirs in zip(
                    foreign["constrained_columns"], foreign["referred_columns"], strict=False
                )
            }
        rows = [
            (c["name"], str(c["type"]), bool(c["nullable"]), c["name"] in key,
             points.get(c["name"], ""))
            for c in columns
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["column", "type", "nullable", "key", "references"])

    @contextmanager
    def _reading(self, *, inspecting: bool = False) -> Iterator["Connection"]:
        """Yield a connection that cannot write, and turn what goes wrong into one line."""
        from sqlalchemy.exc import SQLAlchemyError

        late = threading.Event()
        try:
            with (
                self._engine.connect() as opened,
                _limited(opened, self.query_seconds, late),
            ):
                connection = opened
                if self._engine.dialect.name == "postgresql":
                    connection = connection.execution_options(
                        postgresql_readonly=True, stream_results=not inspecting,
                        max_row_buffer=BATCH,
                    )  # fmt: skip
                elif self._engine.dialect.name == "sqlite" and not inspecting:
                    _raw(connection).set_authorizer(_reading_only)
                try:
                    yield connection
                finally:
                    connection.rollback()
        except (SQLAlchemyError, sqlite3.Error) as error:
            if late.is_set() or "statement timeout" in str(error):
                raise ToolError(
                    f"the query was cancelled after {self.query_seconds:g} s: ask for less",
                    kind="TimeoutError",
                ) from None
            if getattr(error, "connection_invalidated", False):
                raise ToolError(f"the connection to {self.name} was lost") from None
            line = _without(str(self._engine.url.render_as_string(hide_password=False)),
                            _first_line(error))  # fmt: skip
            raise ToolError(line, kind="ValueError") from None


# --- one engine, read-only -----------------------------------------------------------------------


def _engine(url: str, query_seconds: float) -> "Engine":
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.pool import NullPool

    known = make_url(re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url))
    backend = known.get_backend_name()
    if backend == "sqlite":
        whole = url.partition(":///")[2]  # a name may hold a "?"
        file = whole if whole and Path(whole).is_file() else known.database
        if not file or not Path(file).is_file():
            raise UsageError(f"--tools sql: there is no SQLite file {file or ''}".rstrip())
        return create_engine("sqlite://", creator=lambda: _open_sqlite(file), poolclass=NullPool)
    if backend == "postgresql":
        if known.get_driver_name() != "psycopg":
            raise UsageError("--tools sql: of the drivers of PostgreSQL only psycopg is known")
        if find_spec("psycopg") is None:
            raise UsageError("--tools sql needs psycopg: pip install 'psycopg[binary]'")
        milliseconds = int(query_seconds * 1000)
        options = (
            f"-c default_transaction_read_only=on -c statement_timeout={milliseconds} "
            f"-c lock_timeout={milliseconds} -c idle_in_transaction_session_timeout=60000"
        )
        arguments = {
            "options": options, "connect_timeout": CONNECT_S, "client_encoding": "utf8",
        }  # fmt: skip
        return create_engine(known, poolclass=NullPool, connect_args=arguments)
    return create_engine(known, poolclass=NullPool)


def _open_sqlite(file: str) -> sqlite3.Connection:
    """Open a file for reading, in a connection that another thread may interrupt."""
    connection = sqlite3.connect(
        f"{Path(file).absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
    )
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # A table of a module (full text, r-tree) declares itself when it is first looked at, which is
    # no reading: it is done here, before a query's own authorizer is asked.
    virtual = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%' LIMIT 1000"
    with suppress(sqlite3.Error):  # no database, or a name that is no text: a query will say so
        for (name,) in connection.execute(virtual).fetchall():
            with suppress(sqlite3.Error):  # of a module that is not here
                connection.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall()
    return connection


def _reading_only(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    """Allow what a query does (https://sqlite.org/c3ref/set_authorizer.html), and nothing else."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version" and second is None:
        return sqlite3.SQLITE_OK  # full-text tables ask so whether they were written to
    if action == sqlite3.SQLITE_TRANSACTION and first == "ROLLBACK":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _raw(connection: "Connection") -> Any:
    return connection.connection.driver_connection


@contextmanager
def _limited(connection: "Connection", seconds: float, late: threading.Event) -> Iterator[None]:
    """Cancel what runs on a connection when its time is over, in the way of its database."""
    raw = _raw(connection)

    def cancel() -> None:
        late.set()
        for name in ("interrupt", "cancel"):  # of sqlite3; of psycopg and some others
            if hasattr(raw, name):
                getattr(raw, name)()
                return

    if isinstance(raw, sqlite3.Connection):  # also between the rows, where nothing is interrupted
        until = time.monotonic() + seconds

        def is_late() -> int:
            if time.monotonic() > until:
                late.set()
            return int(late.is_set())

        raw.set_progress_handler(is_late, 20_000)
    # A moment after the server's own timeout, which says more.
    timer = threading.Timer(seconds + (0.5 if "psycopg" in type(raw).__module__ else 0), cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _not_held(connection: "Connection") -> str:
    """Return what read-only does not cover for this connection."""
    kind = connection.dialect.name
    if kind == "sqlite":
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
        return ""
    if kind == "postgresql":
        row = connection.exec_driver_sql(
            "SELECT rolsuper, pg_has_role('pg_read_server_files', 'member') FROM pg_roles "
            "WHERE rolname = current_user"
        ).one()
        if row[0] or row[1]:
            return (
                "the role may call functions that reach the server's files, which a read-only "
                "transaction does not prevent. Use a role that may only SELECT."
            )
        return ""
    return (
        f"{kind} is not known here: transactions are rolled back, which does not undo what "
        "commits by itself. Use a role that may only SELECT."
    )


# --- rows ----------------------------------------------------------------------------------------


def _rows(result: Any) -> list[Any]:
    """Fetch the rows, within the caps."""
    rows: list[Any] = []
    size, wanted = 0, 1
    while batch := result.fetchmany(wanted):
        rows += batch
        grown = sum(_size(value) for row in batch for value in row)
        size += grown
        wanted = max(1, min(BATCH, 4 * wanted, BATCH_BYTES * len(batch) // (grown + 1)))
        cells = len(rows) * len(batch[0])
        if len(rows) > ROWS_MAX or size > BYTES_MAX or cells > CELLS_MAX:
            raise ToolError(
                f"the result is larger than {ROWS_MAX:,} rows or {BYTES_MAX // 1_000_000} MB: "
                "aggregate, select fewer columns, or use LIMIT",
                kind="ValueError",
            )
    return rows


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 8


def _frame(names: Sequence[str], rows: Sequence[Any]) -> "pd.DataFrame":
    """Return rows as a table that Arrow can hold: one type a column, one column a name."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for position, name in enumerate(names):
        free, number = str(name), 2
        while free in columns:
            free, number = f"{name}_{number}", number + 1
        columns[free] = _column([_value(row[position]) for row in rows])
    return pd.DataFrame(columns, columns=list(columns))


def _value(value: Any) -> Any:
    """Return a value of a type that tables have."""
    if value is None or isinstance(value, _KEPT):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)  # UUIDs, ranges, addresses


def _column(values: list[Any]) -> Any:
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        return [value if value is None else str(value) for value in values]
    whole = kinds == {int}
    if whole and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pd.array(values, dtype="Int64") if None in values else values
    return [str(value) if value is not None else None for value in values] if whole else values


# --- errors --------------------------------------------------------------------------------------


def _first_line(error: BaseException) -> str:
    """Return what the database said, without SQLAlchemy's additions."""
    text = str(getattr(error, "orig", None) or error)
    if "not authorized" in text or "authorization denied" in text:  # by our authorizer
        return "only a SELECT can be run here: the database is open for reading"
    return one_line(text.strip().partition("\n")[0] or type(error).__name__, 500)


def _without(url: str, text: str) -> str:
    """Return a message without what the URL holds: password, user, host and the URL itself."""
    from sqlalchemy import make_url

    known = make_url(url)
    for secret in filter(None, (url, known.password, known.username, known.host)):
        if len(str(secret)) > 2:
            text = text.replace(str(secret), "…")
    return text
