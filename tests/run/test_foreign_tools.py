"""MCP servers and ready-made tools used from cells in a sandbox: the credentials stay outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from servers.postgres import BOSS, cluster, programs
from support.command import run_command
from support.replies import cell

from kernel_agent import ScriptedModel, Session
from kernel_agent.config import Config
from kernel_agent.errors import UsageError
from kernel_agent.records.store import read_trace

pytest.importorskip("mcp", reason="the extra mcp is not installed")

SERVERS = Path(__file__).parents[1] / "servers"
BAD = f"{sys.executable} {SERVERS / 'mcp_over_pipes.py'}"
TIME = f"{sys.executable} -m mcp_server_time --local-timezone UTC"
KEY = "sk-9f8e7d6c5b4a"


@pytest.fixture(scope="module")
def shop():
    """The URL of a database."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with cluster() as address:
        url = f"postgresql://boss:{BOSS}@{address}/postgres"
        with psycopg.connect(url, autocommit=True) as boss:
            boss.execute("CREATE TABLE sales(region TEXT, amount FLOAT)")
            boss.execute("INSERT INTO sales VALUES ('north', 10.5), ('south', 20), ('north', 4.5)")
        yield url


async def test_a_run_asks_a_server_and_a_database_from_a_cell(tmp_path, shop, monkeypatch):
    """Rows are a DataFrame; the trace knows names and transports, no command, no URL, no key."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "rates.csv").write_text("region,rate\nnorth,2\nsouth,3\n")
    monkeypatch.setenv("SALES_URL", shop)
    code = (
        "import pandas as pd\n"
        "sold = sql('SELECT region, sum(amount) AS amount FROM sales GROUP BY region')\n"
        "rates = pd.read_csv(find_data('rates')['path'][0])\n"
        "total = (sold.merge(rates)['amount'] * sold.merge(rates)['rate']).sum()\n"
        "zone = get_current_time('Asia/Tokyo')['timezone']\n"
        "final_answer(f'{type(sold).__name__} {total} {zone} ' + echo(text='x'))"
    )
    model = ScriptedModel([{"content": cell(code)}], keep_requests=True)
    config = Config(
        format="fenced",
        sql={"sales": "$SALES_URL"},
        mcp={"bad": {"command": f"{BAD} plain --key={KEY}", "env": {"TOKEN": KEY}}},
    )
    session = Session(
        model=model, config=config, out=tmp_path / "out", mcp=[TIME, "bad"],
        tools=["sql=sales"], data=tmp_path / "notes",
    )  # fmt: skip
    async with session:
        run = await session.run("What was sold?")
    assert run.text == 'DataFrame 90.0 Asia/Tokyo {"text": "x"}'
    start = read_trace(run.trace)[0]
    assert start.config["mcp"] == [
        {"name": "time", "transport": "stdio", "tools": 2},
        {"name": "bad", "transport": "stdio", "tools": 2},
    ]
    assert "def sql(query: str" in start.system_prompt
    assert "tool of the MCP server 'time'" in start.system_prompt
    for kept in (run.trace, run.notebook):
        text = kept.read_text()
        for secret in (KEY, BOSS, shop, "mcp_over_pipes", "SALES_URL"):
            assert secret not in text


@pytest.mark.long
async def test_what_goes_wrong_outside_is_one_line_in_the_cell(tmp_path):
    """A server that hangs, one that dies; the session goes on."""
    config = Config(
        mcp={
            "hangs": {"command": f"{BAD} hangs", "call_seconds": 0.5, "tools": ["wait"]},
            "dies": {"command": f"{BAD} dies"},
        }
    )
    told = []
    session = Session(
        model="offline", config=config, out=tmp_path / "out", mcp=["hangs", "dies"],
        approve="never", on_event=told.append,
    )  # fmt: skip
    async with session:
        late = await session.execute("wait(text='x')")
        assert (late.error.ename, late.error.evalue) == (
            "TimeoutError", "the MCP server 'hangs' did not answer within 0.5 s",
        )  # fmt: skip
        dead = await session.execute("die(text='x')")
        assert dead.error.ename == "ConnectionError"
        assert "exit code 3: out of cheese" in dead.error.evalue
        again = await session.execute("echo(text='x').isdigit()")
        assert again.outputs[0]["data"]["text/plain"] == "True"
    assert any("was gone and was started again" in getattr(event, "text", "") for event in told)


async def test_a_server_that_does_not_start_leaves_no_folder(tmp_path):
    """As with any other option that is wrong."""
    with pytest.raises(UsageError, match="--mcp no_such_program: there is no such program"):
        async with Session(model="offline", mcp=["no-such-program"], out=tmp_path / "out"):
            pass
    assert not (tmp_path / "out").exists()


@pytest.mark.long
async def test_a_foreign_tool_is_offered_by_its_bounded_schema(tmp_path):
    """For the format whose actions are calls, too."""
    call = {
        "id": "1", "type": "function",
        "function": {"name": "get_current_time", "arguments": '{"timezone": "UTC"}'},
    }  # fmt: skip
    answer = {
        "id": "2", "type": "function",
        "function": {"name": "final_answer", "arguments": '{"answer": "done"}'},
    }  # fmt: skip
    model = ScriptedModel(
        [{"content": "", "tool_calls": [call]}, {"content": "", "tool_calls": [answer]}]
    )
    async with Session(model=model, format="json", mcp=[TIME], out=tmp_path / "out") as session:
        run = await session.run("What time is it?")
    assert run.text == "done"
    assert '"timezone": "UTC"' in run.steps[0].observation.text


def command(*arguments, **environment):
    return run_command(Path.cwd(), "run", "How much?", *arguments, **environment)


@pytest.mark.long
def test_the_command_takes_servers_and_databases(tmp_path, shop):
    """The URL of the database from the environment."""
    replies = tmp_path / "replies.jsonl"
    code = "final_answer(float(sql('SELECT sum(amount) AS s FROM sales')['s'][0]))"
    replies.write_text(json.dumps({"content": cell(code)}) + "\n")
    done = command(
        "--model", f"scripted:{replies}", "--tools", "sql", "--mcp", TIME, "--quiet",
        "--out", str(tmp_path / "out"), KERNEL_AGENT_SQL_URL=shop,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "35"), done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--mcp", f"{BAD} killed {KEY}"], "--mcp over_pipes: it was ended by signal 9"),
        (
            ["--mcp", f"http://127.0.0.1:9/?key={KEY}"],
            "--mcp 127_0_0_1: nothing answers at its URL",
        ),
        (["--tools", "sql=nowhere"], "--tools sql=nowhere: no URL, and no name"),
        (["--tools", f"sql={__file__}"], "--data FILE"),
        (["--tools", "files=/a"], "cells read a folder themselves, in place: --data /a"),
        (["--tools", "fetch=a.org,b.org"], "--allow-host a.org --allow-host b.org"),
        (["--tools", "magic=1"], "--tools magic: neither a module nor a ready-made tool"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(tmp_path, given, said):
    """Nothing is left behind."""
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps({"content": cell("final_answer(1)")}) + "\n")
    done = command("--model", f"scripted:{replies}", "--out", str(tmp_path / "out"), *given)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
    assert KEY not in line
    assert not (tmp_path / "out").exists()
