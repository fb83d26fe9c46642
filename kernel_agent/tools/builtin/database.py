"""A read-only database: a connection that cannot write, and its rows as a DataFrame.

Read-only is the database's own doing where it can be:

* PostgreSQL (with psycopg): a read-only transaction, and a cursor that is declared on the server,
  which takes one SELECT, VALUES or WITH that changes nothing, in any wording. Its own
  timeout, and a cancellation from here. The server counts the bytes of the result, and sends none
  beyond the cap (:func:`_bound_result`). A *function* that a superuser may call is not held by that
  (``pg_read_file``), which is said when the role is one.
* Any other: only what begins like a query, and a transaction that is rolled back. That is no
  protection where a statement commits by itself: give a role that may only read. One row may be
  as large as the driver takes.

SQLite has no server: its files are inputs, which cells open in their sandbox.

A connection lives as long as a call. A result beyond the caps is an error, never cut silently.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.records import Event, Notice
from kernel_agent.safe import one_line

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection, Engine

ROWS_MAX = 200_000
BYTES_MAX = 20_000_000  # of a result, as counted below; beyond 32 MB nothing is sent
CELLS_MAX = 5_000_000  # what a table of short values becomes costs more than its text
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
    on_event
        Called once with a notice of what read-only does not cover.

    Raises
    ------
    UsageError
        The URL cannot be read, a driver is missing, or nothing answers.
    """

    def __init__(
        self, name: str, url: str, *, query_seconds: float, on_event: Callable[[Event], None]
    ) -> None:
        from sqlalchemy.exc import ArgumentError, SQLAlchemyError

        self.name = name
        self.query_seconds = query_seconds
        try:
            self._engine = _engine(url, query_seconds)
            dialect = self._engine.dialect.name
            self.kind = "PostgreSQL" if dialect == "postgresql" else dialect
            with self._engine.connect() as connection:
                warning = _find_gaps(connection)
        except (ArgumentError, ValueError):  # as of a port that is no number
            raise UsageError(f"--tools sql={name}: not a database URL") from None
        except (SQLAlchemyError, ImportError) as error:
            reason = _redact(url, _first_line(error))
            raise UsageError(f"--tools sql={name}: {reason}") from None
        if warning:
            on_event(Notice(text=f"Database {name}: {warning}"))

    def query(self, query: str, params: Mapping[str, Any] | None) -> "pd.DataFrame":
        """Run one query; see the module for what keeps it from writing.

        Raises
        ------
        ToolError
            The database refuses it, or it took too long or gave too much.
        """
        from sqlalchemy import text

        if self.kind != "PostgreSQL" and not _QUERY.match(query):
            raise ToolError("only queries can be run here", kind="PermissionError")
        with self._reading() as connection:
            names = list[str]()
            if self.kind == "PostgreSQL":
                query, names = _bound_result(connection, query, params)
            if params:
                result = connection.execute(text(query), dict(params))
            else:  # nothing in it is a placeholder, neither ":" nor "%"
                plain = connection.execution_options(no_parameters=True)
                result = plain.exec_driver_sql(query)
            with closing(result):
                if not result.returns_rows:
                    raise ToolError("that is not a query: it returns no rows", kind="ValueError")
                names = names or list(result.keys())
                return _frame(names, _fetch_rows(result, len(names)))

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
                shown = "" if schema == default else schema
                found += [(shown, name, "table") for name in looking.get_table_names(schema)]
                found += [(shown, name, "view") for name in looking.get_view_names(schema)]
        return pd.DataFrame(found, columns=["schema", "table", "kind"])

    def columns(self, table: str) -> "pd.DataFrame":
        """Return a description of the columns of a table or view.

        Raises
        ------
        ToolError
            No table has that name.
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
        """Yield a connection that cannot write, and turn errors into one line."""
        from sqlalchemy.exc import SQLAlchemyError

        late = threading.Event()
        try:
            with (
                self._engine.connect() as opened,
                _cancel_when_late(opened, self.query_seconds, late),
            ):
                connection = opened
                if self._engine.dialect.name == "postgresql":
                    connection = connection.execution_options(
                        postgresql_readonly=True, stream_results=not inspecting,
                        max_row_buffer=BATCH,
                    )  # fmt: skip
                try:
                    yield connection
                finally:
                    connection.rollback()
        except SQLAlchemyError as error:
            if late.is_set() or "statement timeout" in str(error):
                raise ToolError(
                    f"the query was cancelled after {self.query_seconds:g} s: ask for less",
                    kind="TimeoutError",
                ) from None
            if getattr(error, "connection_invalidated", False):
                raise ToolError(f"the connection to {self.name} was lost") from None
            line = _redact(str(self._engine.url.render_as_string(hide_password=False)),
                            _first_line(error))  # fmt: skip
            raise ToolError(line, kind="ValueError") from None


# --- one engine, read-only -----------------------------------------------------------------------


def _engine(url: str, query_seconds: float) -> "Engine":
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.pool import NullPool

    known = make_url(re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url))
    if known.get_backend_name() == "postgresql":
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


def _raw(connection: "Connection") -> Any:
    return connection.connection.driver_connection


@contextmanager
def _cancel_when_late(
    connection: "Connection", seconds: float, late: threading.Event
) -> Iterator[None]:
    """Cancel what runs on a connection when its time is over, in the way of its database."""
    raw = _raw(connection)

    def cancel() -> None:
        late.set()
        for name in ("interrupt", "cancel"):  # the second of psycopg and some others
            if hasattr(raw, name):
                getattr(raw, name)()
                return

    # A moment after the server's own timeout, which says more.
    timer = threading.Timer(seconds + (0.5 if "psycopg" in type(raw).__module__ else 0), cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _find_gaps(connection: "Connection") -> str:
    """Return the gaps of read-only for this connection."""
    kind = connection.dialect.name
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


# Types of PostgreSQL whose values are a few bytes each, and those whose length it knows unread, by
# their numbers in pg_type.dat.
_SHORT = frozenset((16, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1266, 2950))
_MEASURED = frozenset((17, 25, 1042, 1043))  # bytea, text, char, varchar


def _bound_result(
    connection: "Connection", query: str, params: Mapping[str, Any] | None
) -> tuple[str, list[str]]:
    """Bound a query to the part of its result that may be sent; return it with its column names.

    libpq takes a row whole, however large. So the server adds up what the rows have, and sends no
    value of the row that passes the cap and of those behind it; the sum comes last in each row.
    """
    from sqlalchemy import text

    inner = query.strip().removesuffix(";")
    # The query stands deeper below than here: any parentheses that it closes are inside there.
    look = f"SELECT * FROM (\n{inner}\n) AS q LIMIT 0"  # noqa: S608 - a query of the caller's anyway
    plain = connection.execution_options(no_parameters=True)
    asked = connection.execute(text(look), dict(params)) if params else plain.exec_driver_sql(look)
    with closing(asked):
        columns = [(column[0], column[1]) for column in asked.cursor.description or ()]
    if not columns:
        return query, []
    names = [f"c{number}" for number in range(len(columns))]
    size = " + ".join(_measure(name, kind) for name, (_, kind) in zip(names, columns, strict=True))
    given = ", ".join(f"CASE WHEN size <= {BYTES_MAX} THEN {name} END" for name in names)
    listed = ", ".join(names)
    bounded = f"""
        SELECT {given}, size FROM (
            SELECT {listed}, sum({size}) OVER (ROWS UNBOUNDED PRECEDING) AS size
            FROM (SELECT * FROM (\n{inner}\n) AS q OFFSET 0) AS r({listed})
        ) AS s"""  # noqa: S608 - likewise
    return bounded, [name for name, _ in columns]


def _measure(name: str, kind: object) -> str:
    """Return the SQL expression for the bytes of a column's value; in float8, which adds fast."""
    if kind in _SHORT:
        return "8.0::float8"
    value = name if kind in _MEASURED else f"{name}::text"
    return f"coalesce(octet_length({value}), 0)::float8"


def _fetch_rows(result: Any, width: int) -> list[Any]:
    """Fetch the rows, within the caps; columns after the first ``width`` hold their size."""
    rows: list[Any] = []
    size, wanted = 0, 1
    while batch := result.fetchmany(wanted):
        rows += batch
        grown = sum(_size(value) for row in batch for value in row)
        size += grown
        wanted = max(1, min(BATCH, 4 * wanted, BATCH_BYTES * len(batch) // (grown + 1)))
        counted = batch[-1][-1] if len(batch[-1]) > width else 0
        cells = len(rows) * width
        if len(rows) > ROWS_MAX or max(size, counted) > BYTES_MAX or cells > CELLS_MAX:
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
    """Return the database's message without SQLAlchemy's additions."""
    text = str(getattr(error, "orig", None) or error)
    return one_line(text.strip().partition("\n")[0] or type(error).__name__, 500)


def _redact(url: str, text: str) -> str:
    """Return a message without the parts of the URL: password, user, host and the URL itself."""
    from sqlalchemy import make_url

    known = make_url(url)
    for secret in filter(None, (url, known.password, known.username, known.host)):
        if len(str(secret)) > 2:
            text = text.replace(str(secret), "…")
    return text
