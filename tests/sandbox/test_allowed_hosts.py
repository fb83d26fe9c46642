"""The way out of a sandbox: a named host answers code in the kernel, nothing else does."""

import asyncio
import io
from contextlib import asynccontextmanager

import pytest
from support.levels import need

from kernel_agent import Session
from kernel_agent.errors import SandboxError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.models.scripted import ScriptedModel
from kernel_agent.records.event import Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.story import PlainView
from kernel_agent.records.trace import RunStop, Step
from kernel_agent.sandbox.allowlist import parse_hosts
from kernel_agent.sandbox.proxy import Proxy

LEVELS = ["bubblewrap"]


async def web_page(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\na,b\n1,2\n")
    await writer.drain()
    writer.close()


@asynccontextmanager
async def kernel_with_a_way_out(tmp_path, level):
    """Yield a kernel, the port of the named host, another port of the same machine, the proxy."""
    need(level)
    named = await asyncio.start_server(web_page, "127.0.0.1", 0)
    other = await asyncio.start_server(web_page, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (named, other)]
    (tmp_path / "work").mkdir()
    proxy = Proxy(parse_hosts([f"localhost:{ports[0]}"]))
    async with (
        named, other,
        KernelSession(cwd=tmp_path / "work", sandbox=level, access=Access(proxy=proxy)) as kernel,
    ):  # fmt: skip
        yield kernel, *ports, proxy


def shown(result):
    assert result.ok, result.error
    return "".join(o.get("text", "") or o["data"]["text/plain"] for o in result.outputs)


@pytest.mark.parametrize("level", LEVELS)
async def test_urllib_requests_and_pandas_reach_the_named_host(tmp_path, level):
    async with kernel_with_a_way_out(tmp_path, level) as (kernel, port, _other, proxy):
        code = f"""
import urllib.request, requests, pandas
url = "http://localhost:{port}/t.csv"
print(urllib.request.urlopen(url).read(), requests.get(url).text, pandas.read_csv(url).shape)
"""
        assert "(1, 2)" in shown(await kernel.execute(code))
        [visit] = proxy.visits
        assert visit.requests == 3
        assert visit.received == 24


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "attempt",
    [
        "requests.get('http://localhost:{other}/').raise_for_status()",
        "requests.get('http://example.org/').raise_for_status()",
        "requests.get('https://example.org/')",
        "requests.get('http://localhost:{other}/', proxies={{'http': ''}})",
        "socket.create_connection(('127.0.0.1', {port}))",
        "socket.create_connection(('127.0.0.1', {other}))",
        "socket.create_connection(('192.0.2.1', 80))",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.getaddrinfo('example.org', 80)",
        "socket.socket(socket.AF_UNIX).connect({unix!r})",
    ],
)
async def test_everything_else_is_refused(tmp_path, level, attempt):
    async with kernel_with_a_way_out(tmp_path, level) as (kernel, port, other, _proxy):
        there = tmp_path / "there"
        async with await asyncio.start_unix_server(web_page, there):
            tried = attempt.format(port=port, other=other, unix=str(there))
            result = await kernel.execute(f"import requests, socket\n{tried}")
        assert result.status == "error"
        assert result.error.ename not in ("NameError", "SyntaxError", "ModuleNotFoundError")


@pytest.mark.parametrize("level", ["landlock", "namespaces"])
async def test_a_level_that_holds_no_unix_socket_back_by_its_path_opens_no_hosts(tmp_path, level):
    """A cell that may connect would reach those of the person's other programs."""
    (tmp_path / "work").mkdir()
    proxy = Proxy(parse_hosts(["localhost:1"]))
    kernel = KernelSession(cwd=tmp_path / "work", sandbox=level, access=Access(proxy=proxy))
    with pytest.raises(SandboxError, match=f"{level} cannot open single hosts.*bubblewrap can"):
        await kernel.start()


@pytest.mark.parametrize("level", LEVELS)
async def test_the_kernel_holds_no_descriptor_of_the_proxy(tmp_path, level):
    async with kernel_with_a_way_out(tmp_path, level) as (kernel, _port, _other, _proxy):
        code = "import os\n[os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')]"
        result = await kernel.execute(
            code.replace("os.readlink", "(lambda p: os.path.realpath(p))")
        )
        assert "proxy" not in shown(result)


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_records_and_shows_which_hosts_its_code_asked(tmp_path, level):
    need(level)
    import http.server
    import threading

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, told = server.server_port, []
    code = f"""
import urllib.request
for url in ("http://localhost:{port}/", "http://evil.example/"):
    try:
        urllib.request.urlopen(url)
    except OSError as error:
        print(error)
final_answer("done")
"""
    try:
        with Session(
            model=ScriptedModel([f"```python\n{code}```"]), sandbox=level,
            allow_hosts=[f"localhost:{port}"], out=tmp_path / "run", on_event=told.append,
        ) as session:  # fmt: skip
            run = session.run_sync("Ask")
    finally:
        server.shutdown()
        server.server_close()
    stop = next(r for r in read_trace(run.trace) if isinstance(r, RunStop))
    assert [(v.host, v.port, v.allowed, v.requests) for v in stop.network] == [
        ("localhost", port, True, 1),
        ("evil.example", 80, False, 1),
    ]
    notices = [event.text for event in told if isinstance(event, Notice)]
    assert any(f"reached localhost:{port}" in text for text in notices)
    assert any("was refused evil.example:80" in text for text in notices)
    shown = io.StringIO()
    PlainView(shown.write)(stop)
    assert "Network, refused: evil.example:80 (1 request)" in shown.getvalue()


@pytest.mark.parametrize("level", LEVELS)
async def test_an_agent_beneath_a_run_reaches_the_named_host_and_no_other(tmp_path, level):
    need(level)
    named = await asyncio.start_server(web_page, "127.0.0.1", 0)
    other = await asyncio.start_server(web_page, "127.0.0.1", 0)
    port, closed = (server.sockets[0].getsockname()[1] for server in (named, other))
    asked = f"""
import urllib.request
seen = []
for url in ("http://localhost:{port}/", "http://localhost:{closed}/", "http://evil.example/"):
    try:
        seen.append(urllib.request.urlopen(url).read().decode())
    except OSError:
        seen.append("refused")
final_answer(seen)
"""
    replies = [
        "```python\nfinal_answer(delegate('Ask around'))\n```",
        {"for": "Ask around", "content": f"```python\n{asked}```"},
    ]
    async with (
        named, other,
        Session(
            model=ScriptedModel(replies), sandbox=level, tools=["delegate"],
            allow_hosts=[f"localhost:{port}"], out=tmp_path / "run",
        ) as session,
    ):  # fmt: skip
        run = await session.run("What is there?")
    assert run.answer == ["a,b\n1,2\n", "refused", "refused"]
    [trace] = (tmp_path / "run").glob("agents/*/trace.jsonl")
    for path in (trace, run.trace):  # who gave the work answers for it
        [stop] = [record for record in read_trace(path) if isinstance(record, RunStop)]
        assert [(v.host, v.port, v.allowed) for v in stop.network] == [
            ("localhost", port, True),
            ("localhost", closed, False),
            ("evil.example", 80, False),
        ]
    [step] = run.steps
    assert step.result is not None
    assert [call.untrusted for call in step.result.calls] == [True]
    assert step.observation.text.startswith("[untrusted ")


@pytest.mark.parametrize("level", LEVELS)
async def test_what_cells_print_after_a_visit_is_marked_as_data_of_others(tmp_path, level):
    """From the cell that made it on, whatever it prints; not before."""
    need(level)
    async with await asyncio.start_server(web_page, "127.0.0.1", 0) as named:
        host = f"localhost:{named.sockets[0].getsockname()[1]}"
        cells = ["print(1)", f"import pandas\npandas.read_csv('http://{host}/t.csv')", "print(2)"]
        replies = [f"```python\n{code}\n```" for code in (*cells, "final_answer(3)")]
        async with Session(
            model=ScriptedModel(replies), sandbox=level, allow_hosts=[host], out=tmp_path / "run"
        ) as session:
            run = await session.run("Read it")
    steps = [r.observation.text for r in read_trace(run.trace) if isinstance(r, Step)]
    marks = ["it may hold what came from the host localhost" in text for text in steps[:3]]
    assert marks == [False, True, True]
