"""The ready-made tool fetch against real servers: which hosts it reaches, what pages become."""

from __future__ import annotations

import asyncio
import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernel_agent.config import Config
from kernel_agent.errors import ToolError, UsageError
from kernel_agent.sandbox.allowlist import parse_hosts
from kernel_agent.sandbox.proxy import Proxy, Refused
from kernel_agent.session.builtin_tools import Surroundings, ready_tools
from kernel_agent.tools.builtin import fetch as module
from kernel_agent.tools.builtin.fetch import fetch_tools
from kernel_agent.tools.builtin.pages import links_of

PAGE = """<html><head><title>T</title><script>alert(1)</script></head><body>
<h1>Prices</h1><p>Apples &amp; pears</p><a href="/more?a=1&amp;b=2#top">more</a>
<a href="javascript:alert(1)">bad</a><a href='https://other.org/x'>other</a></body></html>"""


@contextmanager
def website():
    """Yield the port of a web server with pages of every kind, and the requests that it got."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, dict(self.headers)))
            status, headers, body = PAGES[self.path](self.server.server_address[1])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for chunk in body if isinstance(body, list) else [body]:
                    self.wfile.write(chunk)
            except OSError:
                pass  # who asked has heard enough

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kind(name):
    return {"Content-Type": name}


JAPANESE = '<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS"><p>日本語'
FEED = "<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>"
BOMB = gzip.compress(b"\0" * 50_000_000)
PAGES = {
    "/page": lambda _: (200, kind("text/html; charset=utf-8"), PAGE.encode()),
    "/latin": lambda _: (200, kind("text/plain; charset=latin-1"), "é".encode("latin-1")),
    "/meta": lambda _: (200, kind("text/html"), JAPANESE.encode("shift_jis")),
    "/hurt": lambda _: (200, kind("text/plain; charset=shift_jis"), b"\x93\xfa\x96\x7b\xff"),
    "/feed": lambda _: (200, kind("application/rss+xml"), FEED.encode("latin-1")),
    "/marked": lambda _: (200, kind("text/csv"), "\ufeffa,é".encode()),
    "/wide": lambda _: (200, kind("text/plain"), "é".encode("utf-16")),
    "/untold": lambda _: (200, kind("text/csv"), "é".encode("latin-1")),
    "/odd": lambda _: (200, kind("text/plain; charset=nonsense"), "é".encode()),
    "/json": lambda _: (200, kind("application/json"), b'{"a": 1}'),
    "/binary": lambda _: (200, kind("application/octet-stream"), b"\0\1\2"),
    "/missing": lambda _: (404, kind("text/plain"), b"nothing here"),
    "/gzip": lambda _: (200, {"Content-Encoding": "gzip"}, gzip.compress(b"x")),
    "/bomb": lambda _: (200, {"Content-Encoding": "gzip"}, BOMB),
    "/flood": lambda _: (200, kind("text/plain"), [b"x" * 1_000_000] * 50),
    "/there": lambda _: (302, {"Location": "/page"}, b""),
    "/loop": lambda _: (302, {"Location": "/loop"}, b""),
    "/away": lambda port: (302, {"Location": f"http://127.0.0.1:{port}/page"}, b""),
    "/file": lambda _: (302, {"Location": "file:///etc/passwd"}, b""),
}  # fmt: skip


def tool_for(proxy):
    (tool,) = fetch_tools(
        admit=proxy.admit, received=proxy.count_received, hosts=["x"], refused=Refused
    )
    return tool


@pytest.fixture
def site():
    """What the tool gives for a path of a server that was named by its host and port."""
    with website() as (port, seen):
        proxy = Proxy(parse_hosts([f"localhost:{port}"]))
        tool = tool_for(proxy)

        async def fetch(path):
            return await tool.call(
                [path if "://" in path else f"http://localhost:{port}{path}"], {}
            )

        fetch.proxy, fetch.port, fetch.seen = proxy, port, seen
        yield fetch


async def test_a_page_becomes_text_and_links(site):
    """Scripts are no text; links are absolute, and lead to pages only."""
    page = await site("/page")
    assert page["status"] == 200
    assert page["type"] == "text/html"
    assert page["text"].splitlines()[1:] == ["Prices", "Apples & pears", "more badother"]
    assert "alert" not in page["text"]
    assert page["links"] == [f"http://localhost:{site.port}/more?a=1&b=2", "https://other.org/x"]
    (visit,) = site.proxy.visits
    assert (visit.host, visit.allowed, visit.received) == ("localhost", True, len(PAGE))


async def test_other_kinds_come_as_they_are(site):
    """Text by its charset; what is no text as bytes; an error's page with its status."""
    assert (await site("/latin"))["text"] == "é"
    assert (await site("/odd"))["text"] == "é"
    assert (await site("/json"))["text"] == '{"a": 1}'
    assert (await site("/binary"))["data"] == b"\0\1\2"
    assert (await site("/missing"))["status"] == 404
    assert (await site("/gzip"))["text"] == "x"


async def test_text_is_read_in_the_charset_that_it_names_itself(site):
    """Old pages and feeds name it inside; bytes in a charset that nothing names are not lost."""
    assert (await site("/meta"))["text"].strip() == "日本語"
    assert (await site("/feed"))["text"] == FEED
    assert (await site("/marked"))["text"] == "a,é"
    assert (await site("/wide"))["text"] == "é"
    hurt = await site("/hurt")  # one byte of it is wrong, not its charset
    assert (hurt["text"], hurt["data"][-1:]) == ("日本\ufffd", b"\xff")
    untold = await site("/untold")
    assert (untold["text"], untold["data"]) == ("\ufffd", b"\xe9")


async def test_a_redirect_is_followed_where_the_url_itself_might_go(site):
    """The same server under a name that was not opened is another host."""
    assert (await site("/there"))["url"].endswith("/page")
    with pytest.raises(ToolError, match=r"127.0.0.1:.* is not among the allowed hosts") as error:
        await site("/away")
    assert error.value.kind == "PermissionError"
    for path in ("/loop", "/file"):
        with pytest.raises(ToolError, match="cannot be fetched"):
            await site(path)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/", "http://localhost:1/", "https://localhost/", "http://127.0.0.1:{port}/",
        "http://2130706433:{port}/page", "http://localhost.:1/", "http://[::1]:{port}/page",
        "http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "nonsense",
        "http://localhost@example.org:{port}/", "gopher://localhost:{port}/",
    ],
)  # fmt: skip
async def test_nothing_but_the_named_host_and_port_is_reached(site, url):
    """Whatever the URL looks like."""
    with pytest.raises(ToolError):
        await site(url.format(port=site.port))
    assert site.seen == []


async def test_a_public_name_that_leads_home_is_refused():
    """The resolver's answer decides, and the address that was looked at is the one connected to."""

    async def rebound(_host, _port):
        return ["127.0.0.1"]

    proxy = Proxy(parse_hosts(["example.org"]), resolve=rebound)
    with pytest.raises(ToolError, match="resolves to a private address"):
        await tool_for(proxy).call(["http://example.org/"], {})
    (visit,) = proxy.visits
    assert visit.allowed is False


@pytest.mark.parametrize("path", ["/bomb", "/flood"])
async def test_an_answer_without_an_end_is_an_error(site, path):
    """Also one that becomes large when it is unpacked."""
    with pytest.raises(ToolError, match="larger than 10,000,000 bytes"):
        await site(path)


async def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    """In a bounded time."""
    monkeypatch.setattr(module, "TOTAL_S", 0.3)

    async def silent(reader, writer):
        begun.append(writer)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    begun, gone = [], asyncio.Event()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        tool = tool_for(Proxy(parse_hosts([f"localhost:{port}"])))
        with pytest.raises(ToolError, match=r"no whole answer within 0\.3 s"):
            await tool.call([f"http://localhost:{port}/"], {})
        if begun:  # on a busy machine it may be given up before it is connected
            await gone.wait()


async def test_the_environment_of_the_host_is_not_used(site, monkeypatch):
    """Neither its proxies nor anything that identifies its user."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    await site("/json")
    _, headers = site.seen[0]
    assert set(headers) <= {"Host", "Accept", "Accept-Encoding", "Connection", "User-Agent"}


def test_links_cost_little_however_broken_a_page_is():
    """A million unclosed tags."""
    assert links_of("<a href=x>" * 200_000, "http://h/")[:1] == ["http://h/x"]


def test_hosts_have_to_be_named_somewhere():
    """For the tool alone, or for the cells, too."""
    around = Surroundings(config=Config(), proxy=None, tell=print)
    with pytest.raises(UsageError, match="which hosts"):
        ready_tools(["fetch"], around)
    (tool,) = ready_tools(["fetch=example.org,docs.python.org"], around)
    assert "Get a page of example.org, docs.python.org" in tool.doc
    with pytest.raises(UsageError, match="neither a module nor a ready-made tool"):
        ready_tools(["ftech=example.org"], around)
