"""SQLite queries in a child process: ``sqlite.py`` reads one query and returns its rows.

SQL can make much of little: a function of one value that takes hours and heeds no interruption
(``instr`` of two long texts), gigabytes within one row, a sort that fills the disk. So the query
runs in a child, which is killed when its time is over, which gets as much memory and as much of a
temporary file as is said here, and which ends with the host. Needs nothing but Python's library,
so that it starts in some hundredths of a second.

Read-only is SQLite's own doing: ``mode=ro``, ``query_only``, and an authorizer that knows reading
only; no other file is attached and no extension loaded. A value is at most as long as a result
may be, divided by the columns.

The child is given one object and answers with several, each in marshal's form with its length
before it: a dict of settings; then the names of the columns, lists of rows, and None at the end, or
``[kind, message]`` of an error.
"""

from __future__ import annotations

import marshal
import os
import re
import resource
import sqlite3
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

COLUMNS_MAX = 1_000
VALUE_MIN = 50_000  # bytes that a value may have however many columns there are
MEMORY = 256_000_000  # bytes of the child, some 20 of them its interpreter's
TEMPORARY = 1_000_000_000  # bytes of a file that a sort or a large intermediate result makes
BATCH_BYTES = 1_000_000
_LENGTH = struct.Struct("<I")


def open_read_only(file: str) -> sqlite3.Connection:
    """Open a file for reading, in a connection that another thread may interrupt."""
    connection = sqlite3.connect(
        f"{Path(file).absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
    )
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # A table of a module (full text, r-tree) declares itself when it is first looked at, which is
    # no reading: it is done here, before a query's own authorizer is asked.
    virtual = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%' LIMIT 1000"
    with suppress(sqlite3.Error):  # no database, or a name that is no text: a query will say so
        for (name,) in connection.execute(virtual).fetchall():
            with suppress(sqlite3.Error):  # of a module that is not here
                connection.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall()
    return connection


def reading_only(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    """Allow the actions of a query (https://sqlite.org/c3ref/set_authorizer.html) and no others."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version" and second is None:
        return sqlite3.SQLITE_OK  # full-text tables ask so whether they were written to
    if action == sqlite3.SQLITE_TRANSACTION and first == "ROLLBACK":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


# --- the host's side -----------------------------------------------------------------------------


class Failed(Exception):
    """The query was refused, or ended; ``kind`` is the name of the error for the kernel."""

    def __init__(self, message: str, kind: str = "ValueError") -> None:
        super().__init__(message)
        self.kind = kind


def rows_of(
    file: str,
    query: str,
    params: Mapping[str, Any],
    *,
    seconds: float,
    rows_max: int,
    bytes_max: int,
    cells_max: int,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one query; return the names of the columns and the rows.

    Parameters
    ----------
    file
        An SQLite file.
    query, params
        One SELECT, and values by name.
    seconds
        After so long the child is killed.
    rows_max, bytes_max, cells_max
        What a result may have; more is an error.

    Raises
    ------
    Failed
        It cannot be run, or takes or gives too much.
    """
    asked = {
        "file": file, "query": query, "params": dict(params), "seconds": seconds,
        "rows_max": rows_max, "bytes_max": bytes_max, "cells_max": cells_max,
    }  # fmt: skip
    try:
        sent = marshal.dumps(asked)
    except ValueError:
        raise Failed("params may be numbers, texts, bytes, dates and None") from None
    late = threading.Event()
    with _start_child() as child:

        def kill() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            return _conversation(child, sent)
        except (OSError, EOFError):
            if late.is_set():
                raise Failed(
                    f"the query was cancelled after {seconds:g} s: ask for less", "TimeoutError"
                ) from None
            raise Failed("the query ended its process: it needs too much memory") from None
        finally:
            timer.cancel()
            child.kill()


def _start_child() -> Any:
    import subprocess

    kept = ("LD_LIBRARY_PATH", "TMPDIR", "SQLITE_TMPDIR")
    return subprocess.Popen(  # noqa: S603 - this file, by this interpreter
        [sys.executable, "-I", "-S", __file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in kept if name in os.environ},
    )  # fmt: skip


def _conversation(child: Any, sent: bytes) -> tuple[list[str], list[tuple[Any, ...]]]:
    child.stdin.write(_LENGTH.pack(len(sent)) + sent)
    child.stdin.flush()
    names: list[str] | None = None
    rows: list[tuple[Any, ...]] = []
    while (part := _receive(child.stdout)) is not None:
        match part:
            case {"failed": message, "kind": kind}:
                raise Failed(message, kind)
            case {"names": columns}:
                names = columns
            case _:
                rows += part
    if names is None:
        raise EOFError
    return names, rows


def _receive(stream: BinaryIO) -> Any:
    head = stream.read(_LENGTH.size)
    data = stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if not data:
        raise EOFError
    return marshal.loads(data)  # noqa: S302 - from this file, in a child process


# --- the child's side ----------------------------------------------------------------------------


def main() -> None:
    """Answer the one question on standard input."""
    _limit(resource.RLIMIT_DATA, MEMORY)
    _limit(resource.RLIMIT_FSIZE, TEMPORARY)
    _limit(resource.RLIMIT_CORE, 0)
    asked = _receive(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_host, daemon=True).start()
    # One that computes in C heeds nothing else, should the host be gone before it can kill.
    _limit(resource.RLIMIT_CPU, int(asked["seconds"]) + 5)
    try:
        for part in _answer(asked):
            _send(part)
        _send(None)
    except MemoryError:
        _send({"failed": "the query needs too much memory: ask for less", "kind": "ValueError"})
    except (sqlite3.Error, sqlite3.Warning, Failed, ValueError, TypeError, re.error) as error:
        _send({"failed": str(error)[:2000], "kind": getattr(error, "kind", "ValueError")})


def _limit(what: int, most: int) -> None:
    with suppress(OSError, ValueError):  # the host's own is lower
        resource.setrlimit(what, (most, most))


def _end_with_the_host() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _send(part: Any) -> None:
    data = marshal.dumps(part)
    sys.stdout.buffer.write(_LENGTH.pack(len(data)) + data)
    sys.stdout.buffer.flush()


def _answer(asked: dict[str, Any]) -> Iterator[Any]:
    connection = open_read_only(asked["file"])
    connection.set_authorizer(reading_only)
    connection.create_function("regexp", 2, _matches, deterministic=True)
    columns = _columns(connection, asked["query"], asked["params"])
    if columns > COLUMNS_MAX:
        raise Failed(f"the result has {columns:,} columns: at most {COLUMNS_MAX:,} are given")
    most = max(asked["bytes_max"] // max(columns, 1), VALUE_MIN)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
    try:
        found = connection.execute(asked["query"], asked["params"])
        if found.description is None:
            raise Failed("that is not a query: it returns no rows")
        yield {"names": [column[0] for column in found.description]}
        yield from _batches(found, asked)
    except sqlite3.DataError as error:
        raise Failed(f"{error}: a value may have {most:,} bytes where a result has {columns} "
                     "columns; select fewer, or a part (substr)") from None  # fmt: skip


def _batches(found: sqlite3.Cursor, asked: dict[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows, each counted before the next is made."""
    batch: list[tuple[Any, ...]] = []
    size = rows = held = 0
    for row in found:
        grown = sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        size, rows, held = size + grown, rows + 1, held + grown
        if (
            size > asked["bytes_max"]
            or rows > asked["rows_max"]
            or rows * len(row) > asked["cells_max"]
        ):
            raise Failed(
                f"the result is larger than {asked['rows_max']:,} rows or "
                f"{asked['bytes_max'] // 1_000_000} MB: aggregate, select fewer columns, or use "
                "LIMIT"
            )
        batch.append(row)
        if held > BATCH_BYTES:
            yield batch
            batch, held = [], 0
    yield batch


def _columns(connection: sqlite3.Connection, query: str, params: dict[str, Any]) -> int:
    """Return how many columns a query's result has, without running it."""
    try:
        steps = connection.execute(f"EXPLAIN {query}", params).fetchall()
    except (sqlite3.Error, sqlite3.Warning):
        return 1  # it is no query, or an EXPLAIN: to run it says what is wrong
    return max((step[3] for step in steps if step[1] == "ResultRow"), default=1)


def _matches(pattern: str, text: Any) -> bool:
    """Implement ``x REGEXP y`` as SQLAlchemy does."""
    return text is not None and re.search(pattern, str(text)) is not None


if __name__ == "__main__":
    main()
