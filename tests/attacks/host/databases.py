"""Queries that make much of little, for the tool ``sql``."""

from __future__ import annotations

from pathlib import Path

from attacks.score import either, grew, never_ended, stood_still
from attacks.words import host_attack

TOO_MUCH = either(stood_still(), grew(), never_ended)


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
