"""Queries that make much of little, for the tool ``sql``."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from attacks.score import either, grew, never_ended, stood_still
from attacks.words import host_attack

TOO_MUCH = either(stood_still(), grew(), never_ended)
COUNTING = "WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g) "


async def _asked(folder: Path, query: str) -> str:
    from kernel_agent.errors import ToolError
    from kernel_agent.tools.builtin.sql import sql_tools

    with sqlite3.connect(folder / "x.db") as connection:
        connection.execute("CREATE TABLE t(a)")
    connection.close()
    sql = sql_tools([str(folder / "x.db")], {}, on_event=lambda _: None, query_seconds=8.0)[0]
    try:
        found = await sql.call([query], {})
    except ToolError as error:
        raise ValueError(str(error)) from None
    return f"{len(found)} rows"


@host_attack("host-resource", TOO_MUCH, timeout_s=40)
async def row_of_many_large_values(folder: Path) -> str:
    """SQLite: one row of 60 columns of 20 MB."""
    return await _asked(folder, f"SELECT {', '.join(['zeroblob(20000000)'] * 60)}")


@host_attack("host-resource", TOO_MUCH, timeout_s=40)
async def rows_that_grow_late(folder: Path) -> str:
    """SQLite: 20,000 short rows, and long ones behind them, within one batch."""
    value = "CASE WHEN i < 20000 THEN 1 ELSE zeroblob(19000000) END"
    return await _asked(folder, f"{COUNTING} SELECT {value} FROM g LIMIT 21000")


@host_attack("host-resource", TOO_MUCH, timeout_s=40)
async def value_without_an_end(folder: Path) -> str:
    """SQLite: an object of JSON that grows for ever within one row."""
    grown = "json_group_object(i, hex(zeroblob(1000)))"
    return await _asked(folder, f"{COUNTING} SELECT {grown} FROM g")


@host_attack("host-resource", TOO_MUCH, timeout_s=40)
async def function_without_an_end(folder: Path) -> str:
    """SQLite: one call of a function that takes hours; the whole process has to end."""
    found = "instr(zeroblob(9500000), zeroblob(5000000) || x'01')"
    return await _asked(folder, f"SELECT {found}")


@host_attack("host-resource", TOO_MUCH, timeout_s=40)
async def pattern_without_an_end(folder: Path) -> str:
    """SQLite: a regular expression that tries everything twice."""
    return await _asked(folder, f"SELECT '{'a' * 40}' REGEXP '(a+)+$b'")


async def _asked_of_a_server(query: str) -> str:
    from servers.postgres import BOSS, cluster

    from kernel_agent.errors import ToolError
    from kernel_agent.tools.builtin.sql import sql_tools

    with cluster() as address:
        url = f"postgresql://boss:{BOSS}@{address}/postgres"
        sql = sql_tools([url], {}, on_event=lambda _: None, query_seconds=20.0)[0]
        try:
            found = await sql.call([query], {})
        except ToolError as error:
            raise ValueError(str(error)) from None
    return f"{len(found)} rows"


@host_attack("host-resource", TOO_MUCH, timeout_s=90)
async def row_of_a_server_that_is_large(folder: Path) -> str:
    """PostgreSQL: one value of 500 MB."""
    return await _asked_of_a_server("SELECT repeat('x', 500000000)")


@host_attack("host-resource", TOO_MUCH, timeout_s=90)
async def rows_of_a_server_that_grow_late(folder: Path) -> str:
    """PostgreSQL: short rows, and rows of 15 MB behind them, within one batch."""
    value = "CASE WHEN i < 9000 THEN 'x' ELSE repeat('x', 15000000) END"
    return await _asked_of_a_server(f"SELECT {value} FROM generate_series(1, 9100) AS g(i)")
