"""The ready-made tool sql against real databases: what it reads, what it cannot be talked into."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from servers.postgres import BOSS, PASSWORD, cluster, programs

pytest.importorskip("sqlalchemy", reason="the extra sql is not installed")

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.tools.builtin import database
from kernel_agent.tools.builtin.sql import sql_tools

ROWS = """
    CREATE TABLE region(name TEXT PRIMARY KEY);
    CREATE TABLE sales(id INTEGER PRIMARY KEY, region TEXT REFERENCES region(name), amount NUMERIC,
                       day DATE, note TEXT);
    CREATE VIEW big AS SELECT * FROM sales WHERE amount > 15;
    INSERT INTO region VALUES ('north'), ('south');
    INSERT INTO sales(id, region, amount, day, note) VALUES
        (1, 'north', 10.5, '2024-01-01', '50 % off: now'), (2, 'south', 20, '2024-01-02', NULL),
        (3, NULL, NULL, NULL, 'x');
"""


class Tools:
    """The tools of one database, called as the broker calls them."""

    def __init__(self, what, configured=None, **options):
        self.told = []
        options = {"query_seconds": 1.0, **options}
        whats = [what] if isinstance(what, str) else what
        made = sql_tools(whats, configured or {}, on_event=self.told.append, **options)
        self.by_name = {tool.name: tool for tool in made}

    async def __call__(self, query, params=None, name="sql"):
        return await self.by_name[name].call([query] if params is None else [query, params], {})

    async def refusal(self, query):
        with pytest.raises(ToolError) as error:
            await self(query)
        return str(error.value)


def test_rows_become_a_table_of_one_type_a_column():
    """One column a name; whole numbers stay whole where some are missing."""
    rows = [(1, 9007199254740993, 2), ("b", None, 3), (None, 7, 4)]
    found = database._frame(["a", "n", "a"], rows)
    assert list(found.columns) == ["a", "n", "a_2"]
    assert found["a"].tolist()[:2] == ["1", "b"]
    assert found["n"].tolist()[0] == 9007199254740993
    assert database._frame(["a"], []).shape == (0, 1)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nowhere.db", "no URL, and no name of"),
        (__file__, "a file, which cells open: name it as --data FILE"),
        ("sqlite:///shop.db", "an SQLite file, which cells open: name it as --data FILE"),
        ("sqlite+pysqlite://", "--data FILE"),
        ("nonsense://x", "not a database URL"),
        ("postgresql://me:word@127.0.0.1:bad/shop", "not a database URL"),
        ("postgresql+psycopg2://x/y", "only psycopg"),
        ("postgresql://u:s3cret-passw0rd@127.0.0.1:9/db", "refused"),
        ("", "none are configured"),
    ],
)
def test_a_database_that_cannot_be_opened_is_said_before_the_run(what, said, monkeypatch):
    """In one line, without the password."""
    monkeypatch.delenv("KERNEL_AGENT_SQL_URL", raising=False)
    with pytest.raises(UsageError, match=said) as error:
        Tools([what] if what else [])
    assert "\n" not in str(error.value)
    assert "s3cret" not in str(error.value)


# --- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres():
    """The address of a server with a table, and a role that was given every right on it."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with cluster() as address:
        host, port = address.split(":")
        with psycopg.connect(
            host=host, port=port, user="boss", password=BOSS, dbname="postgres", autocommit=True
        ) as boss:
            boss.execute(f"CREATE ROLE analyst LOGIN PASSWORD '{PASSWORD}'")
            for statement in ROWS.split(";"):
                if statement.strip():
                    boss.execute(statement)
            boss.execute("CREATE SEQUENCE numbers")
            boss.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO analyst")
            boss.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO analyst")
            boss.execute("GRANT CREATE ON SCHEMA public TO analyst")
            boss.execute(
                "CREATE FUNCTION wipe() RETURNS int LANGUAGE sql AS "
                "'DELETE FROM sales; SELECT 1' SECURITY DEFINER"
            )
        yield address


def analyst(address, **options):
    return Tools(f"postgresql://analyst:{PASSWORD}@{address}/postgres", **options)


async def test_postgresql_rows_come_as_a_table(postgres):
    """With the types that tables have; what they have none for is text."""
    tools = analyst(postgres)
    assert tools.told == []
    found = await tools("SELECT * FROM sales WHERE note LIKE '50 % off: now'")
    assert found["amount"].tolist() == [10.5]
    found = await tools("SELECT '12:30'::time AS at, CAST(:x AS int) AS x", {"x": 3})
    assert found["x"].tolist() == [3]
    kinds = await tools(
        "SELECT '{\"a\": 1}'::jsonb AS j, ARRAY[1, 2] AS l, gen_random_uuid() AS u,"
        " 'inf'::float8 AS f, now() AS n, '1 day'::interval AS i, int4range(1, 5) AS r,"
        " '\\x00ff'::bytea AS b"
    )
    assert kinds.loc[0, "j"] == '{"a": 1}'
    assert kinds.loc[0, "l"] == "[1, 2]"
    assert kinds.loc[0, "b"] == b"\0\xff"
    assert pd.api.types.is_datetime64_any_dtype(kinds["n"])
    tables = await tools.by_name["sql_tables"].call([], {})
    assert set(tables["table"]) == {"region", "sales", "big"}
    columns = (await tools.by_name["sql_schema"].call(["public.sales"], {})).set_index("column")
    assert columns.loc["region", "references"] == "region.name"


async def test_a_table_that_there_is_not_is_said(postgres):
    """With the way to those that there are."""
    with pytest.raises(ToolError, match=r"no table 'nothing'; sql_tables\(\) lists them"):
        await analyst(postgres).by_name["sql_schema"].call(["nothing"], {})


async def test_several_databases_have_functions_named_after_them(postgres, monkeypatch):
    """From the configuration, by a variable, and by a URL."""
    url = f"postgresql://analyst:{PASSWORD}@{postgres}/postgres"
    monkeypatch.setenv("HR_URL", url)
    tools = Tools(["hr", url], {"hr": "$HR_URL", "other": "sqlite:///nowhere"})
    assert list(tools.by_name) == [
        "sql_hr", "sql_hr_tables", "sql_hr_schema",
        "sql_postgres", "sql_postgres_tables", "sql_postgres_schema",
    ]  # fmt: skip
    assert (await tools("SELECT count(*) AS n FROM sales", name="sql_hr"))["n"][0] == 3


ATTACKS = [
    "DELETE FROM sales",
    "WITH gone AS (DELETE FROM sales RETURNING *) SELECT * FROM gone",
    "SELECT 1; DROP TABLE sales",
    "SELECT 1; COMMIT; DROP TABLE sales",
    "COMMIT",
    "SET TRANSACTION READ WRITE",
    "SET default_transaction_read_only = off",
    "BEGIN READ WRITE; DELETE FROM sales",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT nextval('numbers')",
    "SELECT setval('numbers', 100)",
    "SELECT wipe()",
    "SELECT query_to_xml('DELETE FROM sales', true, true, '')",
    "DO $$ BEGIN DELETE FROM sales; END $$",
    "COPY sales TO PROGRAM 'touch /tmp/owned'",
    "COPY (SELECT 1) TO '/tmp/owned'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/owned')",
    "CREATE TEMP TABLE t AS SELECT 1",
    "SELECT * FROM sales FOR UPDATE",
    "SELECT pg_sleep(20)",
    # The server's own timeout is lifted between two fetches; the cancellation from here is not.
    """SELECT set_config('statement_timeout', '0', false), pg_sleep(0)
       FROM generate_series(1, 3000) UNION ALL SELECT 'x', pg_sleep(20)""",
    "SELECT generate_series(1, 10000000)",
    "SELECT repeat('x', 30000000)",
]


@pytest.mark.parametrize("query", ATTACKS)
async def test_postgresql_is_only_read(postgres, query):
    """By a role that may do everything to the table: every row is there afterwards."""
    tools = analyst(postgres)
    refusal = await tools.refusal(query)
    assert PASSWORD not in refusal
    assert "\n" not in refusal
    assert (await tools("SELECT count(*) AS n FROM sales"))["n"][0] == 3
    assert not Path("/tmp/owned").exists()


BOUND = [
    ("SELECT repeat('x', 30000000)", "or 20 MB"),
    ("SELECT repeat('x', 9000000), repeat('y', 9000000), repeat('z', 9000000)", "or 20 MB"),
    (("SELECT CASE WHEN i < 9000 THEN 'x' ELSE repeat('x', 9000000) END FROM "
     "generate_series(1, 9003) AS g(i)"), "or 20 MB"),
    ("SELECT array_fill('xxxxxxxxxx'::text, ARRAY[2500000])", "or 20 MB"),
    ("SELECT 1) AS q UNION ALL SELECT length(repeat('x', 40000000)) FROM (SELECT 1", ""),
    ("SELECT 'a') AS q UNION ALL SELECT repeat('x', 40000000) FROM (SELECT 'b'", "or 20 MB"),
    (("SELECT 'a') AS q) AS r(c0)) AS s UNION ALL SELECT repeat('x', 40000000), 1 FROM ("
     "SELECT 1 FROM (SELECT 1 FROM (SELECT 1"), "syntax error"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "said"), BOUND)
async def test_postgresql_sends_no_more_than_a_result_may_have(postgres, query, said):
    """However it is put: what passes the cap is counted by the server and stays there."""
    tools = analyst(postgres, query_seconds=30)
    if said:
        assert said in await tools.refusal(query)
    else:
        assert len(await tools(query)) == 2


async def test_a_bounded_query_gives_what_the_query_gives(postgres):
    """Names twice, a comment at the end, an order, nothing at all, types without a text."""
    tools = analyst(postgres, query_seconds=30)
    found = await tools("SELECT id, id, region AS size FROM sales ORDER BY id DESC; ")
    assert list(found.columns) == ["id", "id_2", "size"]
    assert found["id"].tolist() == [3, 2, 1]
    assert (await tools("SELECT 1 AS a -- so many"))["a"].tolist() == [1]
    assert (await tools("WITH x AS (SELECT 1 AS a) TABLE x"))["a"].tolist() == [1]
    assert (await tools("VALUES (1, 'a'), (2, NULL)")).shape == (2, 2)
    assert (await tools("SELECT id FROM sales WHERE false")).shape == (0, 1)
    assert (await tools("SELECT ROW(1, 'a') AS r, pg_sleep(0) AS v, 1.5::numeric AS n, 'a'"))["n"][
        0
    ] == 1.5
    assert (await tools("SELECT n FROM generate_series(1, 150000) AS g(n)"))[
        "n"
    ].sum() == 11250075000


async def test_a_setting_that_a_query_changes_is_gone_with_its_connection(postgres):
    """The next call begins read-only again."""
    tools = analyst(postgres)
    await tools("SELECT set_config('default_transaction_read_only', 'off', false)")
    assert "read-only" in await tools.refusal("SELECT nextval('numbers')")


async def test_what_any_role_may_do_is_gone_with_the_call_or_is_its_own(postgres):
    """As the documents say: locks last as long as a call, and large objects are rolled back."""
    tools = analyst(postgres)
    held = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'"
    assert len(await tools("SELECT pg_advisory_lock(7), pg_notify('a', 'b'), lo_create(4711)")) == 1
    assert (await tools(held))["n"][0] == 0
    found = await tools("SELECT count(*) AS n FROM pg_largeobject_metadata WHERE oid = 4711")
    assert found["n"][0] == 0


async def test_what_read_only_does_not_hold_is_said(postgres):
    """A superuser's functions reach the server's files in any transaction."""
    tools = Tools(f"postgresql://boss:{BOSS}@{postgres}/postgres")
    assert "may call functions that reach the server's files" in tools.told[0].text


def test_a_wrong_password_is_said_without_it(postgres):
    """Nor with the user or the host."""
    with pytest.raises(UsageError, match="password authentication failed") as error:
        Tools(f"postgresql://analyst:wr0ng-passw0rd@{postgres}/postgres")
    assert "wr0ng" not in str(error.value)
    assert "analyst" not in str(error.value)


@pytest.mark.long
async def test_a_server_that_goes_away_is_one_line():
    """Between two calls."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with cluster() as address:
        tools = Tools(f"postgresql://boss:{BOSS}@{address}/postgres")
    refusal = await tools.refusal("SELECT 1")
    assert "refused" in refusal
    assert BOSS not in refusal


def test_the_caps_fit_through_the_wire():
    """A result at the cap, as base64, is below what a reply may be."""
    assert database.BYTES_MAX * 4 / 3 < 32_000_000


@pytest.mark.parametrize("query", ["/**/" * 5000, "/**/ -- x\n" * 5000 + "drop table t"])
def test_comments_before_a_statement_are_read_in_one_way(query: str) -> None:
    """Thirty of them would otherwise stop the host for good."""
    assert not database._QUERY.match(query)
    assert database._QUERY.match("/* a */ -- b\n/**/ SELECT 1")
