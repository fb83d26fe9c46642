"""The proxy with real sockets: named hosts get through, everything else does not."""

import asyncio
import ssl
import threading
from contextlib import asynccontextmanager, suppress

import pytest
import trustme
from support.waiting import until

from kernel_agent.sandbox import connection as exchange_module
from kernel_agent.sandbox import proxy as proxy_module
from kernel_agent.sandbox.allowlist import parse_hosts
from kernel_agent.sandbox.connection import server_name
from kernel_agent.sandbox.proxy import OTHERS, Proxy

GET = "GET http://{host}/hello?x=1 HTTP/1.1\r\nHost: elsewhere\r\nX-Mine: yes\r\n\r\n"


class Upstream:
    """A web server that keeps what it was sent and gives one answer."""

    def __init__(self):
        self.seen = b""
        self.connections = 0
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Theirs: yes\r\n\r\nhello"

    async def serve(self, reader, writer):
        self.connections += 1
        self.seen += await reader.read(65536)
        writer.write(self.answer)
        await writer.drain()
        await hang_up(writer)


@asynccontextmanager
async def running(tmp_path, *names, context=None, **options):
    """A server on loopback, and a proxy that opens these names (``PORT`` stands for its port)."""
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    hosts = parse_hosts(name.replace("PORT", str(port)) for name in names)
    proxy = Proxy(hosts, **options)
    await proxy.start(tmp_path / "p")
    async with server:
        try:
            yield proxy, upstream, port
        finally:
            await proxy.close()


async def ask(proxy, request):
    """Send bytes to the proxy and return everything that comes back."""
    reader, writer = await asyncio.open_unix_connection(str(proxy._path))
    writer.write(request if isinstance(request, bytes) else request.encode())
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 20)
    await hang_up(writer)
    return answer


async def hang_up(writer):
    writer.close()
    with suppress(OSError, ssl.SSLError):
        await writer.wait_closed()


async def test_a_named_host_answers_and_the_bytes_are_counted(tmp_path):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        answer = await ask(proxy, GET.format(host=f"localhost:{port}"))
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"hello")
        assert b"X-Theirs: yes" in answer
        assert upstream.seen.startswith(b"GET /hello?x=1 HTTP/1.1\r\n")
        assert f"Host: localhost:{port}\r\n".encode() in upstream.seen
        assert b"elsewhere" not in upstream.seen
        [visit] = proxy.visits
        assert (visit.host, visit.port, visit.allowed) == ("localhost", port, True)
        assert (visit.requests, visit.received) == (1, 5)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{}", "evil.example", "localhost", "[::1]:{}", "0x7f.1"]
)
async def test_what_is_not_named_is_refused_and_reaches_nobody(tmp_path, host):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        host = host.format(port)
        for request in (GET.format(host=host), f"CONNECT {host} HTTP/1.1\r\nHost: x\r\n\r\n"):
            answer = await ask(proxy, request)
            assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))
        assert upstream.connections == 0
        assert all(not visit.allowed for visit in proxy.visits)


async def test_a_refusal_says_which_hosts_are_open(tmp_path):
    async with running(tmp_path, "example.org") as (proxy, _upstream, _port):
        answer = await ask(proxy, GET.format(host="evil.example"))
        assert b"evil.example:80 is not among the allowed hosts (example.org)" in answer


async def test_a_public_name_that_resolves_to_this_machine_is_refused(tmp_path):
    async def rebinding(host, port):
        return ["127.0.0.1"]

    async with running(tmp_path, "example.org:PORT", resolve=rebinding) as (proxy, upstream, port):
        answer = await ask(proxy, GET.format(host=f"example.org:{port}"))
        assert answer.startswith(b"HTTP/1.1 403")
        assert upstream.connections == 0


async def test_a_second_request_hidden_behind_the_first_is_not_served(tmp_path):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        host = f"localhost:{port}"
        hidden = GET.format(host=host).replace("/hello", "/hidden")
        await ask(proxy, GET.format(host=host) + hidden)
        await ask(
            proxy,
            f"POST http://{host}/one HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde{hidden}",
        )
        assert b"/hidden" not in upstream.seen
        both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
        await ask(proxy, f"POST http://{host}/two HTTP/1.1\r\nHost: x\r\n{both}")
        assert b"/hidden" not in upstream.seen


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00" * 100 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff\xfe\r\n\r\n",
        b"GET https://localhost/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET ftp://localhost/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://localhost/ HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"CONNECT localhost HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT :443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)  # fmt: skip
async def test_malformed_requests_get_an_error_and_the_proxy_goes_on(tmp_path, request_bytes):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        answer = await ask(proxy, request_bytes)
        assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
        assert upstream.connections == 0
        assert (await ask(proxy, GET.format(host=f"localhost:{port}"))).endswith(b"hello")


async def test_a_head_that_never_ends_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_module, "HEAD_S", 0.2)
    async with running(tmp_path, "localhost:PORT") as (proxy, _upstream, port):
        assert await ask(proxy, b"GET http://localhost/ HTTP/1.1\r\nX: ") == b""
        assert (await ask(proxy, GET.format(host=f"localhost:{port}"))).endswith(b"hello")


async def test_too_many_connections_are_refused_and_the_next_one_works_again(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_module, "CONNECTIONS_MAX", 4)
    async with running(tmp_path, "localhost:PORT") as (proxy, _upstream, port):
        held = [await asyncio.open_unix_connection(str(proxy._path)) for _ in range(4)]
        await until(lambda: len(proxy._open) == 4)
        assert (await ask(proxy, GET.format(host=f"localhost:{port}"))).startswith(b"HTTP/1.1 503")
        for _reader, writer in held:
            await hang_up(writer)
        await until(lambda: not proxy._open)
        assert (await ask(proxy, GET.format(host=f"localhost:{port}"))).endswith(b"hello")


async def test_a_scan_of_many_hosts_costs_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_module, "HOSTS_MAX", 10)
    told = []
    async with running(tmp_path, "localhost:PORT", on_visit=told.append) as (proxy, _upstream, _p):
        for number in range(30):
            await ask(proxy, GET.format(host=f"h{number}.example"))
        others = [visit for visit in proxy.visits if visit.host == OTHERS]
        assert len(proxy.visits) == 11
        assert others[0].requests == 20
        assert len(told) == 11


async def test_a_host_that_does_not_answer_is_said(tmp_path):
    async with running(tmp_path, "localhost:1") as (proxy, _upstream, _port):
        answer = await ask(proxy, GET.format(host="localhost:1"))
        assert answer.startswith(b"HTTP/1.1 502")
        assert b"localhost:1 cannot be reached" in answer


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def server_context(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1", "other.example").configure_cert(context)
    return context


async def tunnel(proxy, port, authority, name, host="localhost"):
    """Open TLS through the proxy to a host with this name inside."""
    reader, writer = await asyncio.open_unix_connection(str(proxy._path))
    writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.check_hostname = name is not None
    try:
        await writer.start_tls(context, server_hostname=name)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        await hang_up(writer)


async def test_tls_passes_through_a_tunnel_end_to_end(tmp_path, authority, server_context):
    async with running(tmp_path, "localhost:PORT", context=server_context) as (proxy, _up, port):
        assert (await tunnel(proxy, port, authority, "localhost")).endswith(b"hello")
        [visit] = proxy.visits
        assert visit.allowed
        assert visit.sent > 100
        assert visit.received > 100


async def test_tls_to_an_address_names_nothing(tmp_path, authority, server_context):
    """RFC 6066, 3: there is no name by which its server could choose another."""
    async with running(tmp_path, "127.0.0.1:PORT", context=server_context) as (proxy, _up, port):
        answer = await tunnel(proxy, port, authority, "127.0.0.1", "127.0.0.1")
        assert answer.endswith(b"hello")
        assert [(v.host, v.allowed) for v in proxy.visits] == [("127.0.0.1", True)]


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost", "other.example"), ("localhost", None), ("127.0.0.1", "other.example")],
)
async def test_a_tunnel_that_names_another_host_inside_is_closed(
    tmp_path, authority, server_context, host, name
):
    """TLS to a name that names none is no such host's, either."""
    async with running(tmp_path, f"{host}:PORT", context=server_context) as (proxy, up, port):
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            await tunnel(proxy, port, authority, name, host)
        assert up.seen == b""
        assert [(v.host, v.allowed, v.reason) for v in proxy.visits] == [
            (name or "(no host)", False, f"hidden behind {host}")
        ]


async def test_a_tunnel_to_a_web_port_is_no_way_around_the_hosts_name_in_plain_http(
    tmp_path, monkeypatch
):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        hidden = (
            f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n"
            "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"
        )
        assert (await ask(proxy, hidden)).endswith(b"hello")  # a port that a person named
        upstream.seen = b""
        monkeypatch.setattr(proxy_module, "WEB_PORTS", (port,))
        assert b"hello" not in await ask(proxy, hidden)
        assert upstream.seen == b""
        assert "no TLS in a tunnel" in [visit.reason for visit in proxy.visits]


def test_the_name_in_a_client_hello_is_read_and_junk_is_not():
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    assert server_name(hello) == "a.example"
    assert server_name(b"GET / HTTP/1.1") is None
    assert server_name(hello[:40]) == ""
    assert server_name(b"\x16" + b"\xff" * 100) == ""


async def test_closing_ends_open_tunnels_and_removes_the_socket(tmp_path):
    async with running(tmp_path, "localhost:PORT") as (proxy, _upstream, port):
        reader, writer = await asyncio.open_unix_connection(str(proxy._path))
        writer.write(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await proxy.close()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert not proxy._path.exists()
        await hang_up(writer)


async def test_interim_answers_without_end_are_given_up(tmp_path):
    """Else one connection keeps its thread busy for as long as the server likes."""
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        interim = b"HTTP/1.1 100 \r\n\r\n"
        upstream.answer = interim * 20 + upstream.answer
        assert (await ask(proxy, GET.format(host=f"localhost:{port}"))).endswith(b"hello")
        upstream.answer = interim * 200 + upstream.answer
        answer = await ask(proxy, GET.format(host=f"localhost:{port}"))
        assert answer.startswith(b"HTTP/1.1 502")
        assert b"interim answers" in answer


async def test_a_tunnel_in_which_nothing_is_said_is_counted(tmp_path, monkeypatch):
    """A connection was made: to be seen by the host is something told to it."""
    monkeypatch.setattr(exchange_module, "IDLE_S", 0.2)
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        await ask(proxy, f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(v.host, v.allowed, v.requests) for v in proxy.visits] == [("localhost", True, 1)]
        assert upstream.connections == 1


async def test_visits_are_told_in_the_loop_that_started_the_proxy(tmp_path):
    """The proxy has a thread of its own: what strangers make it compute is not in this one."""
    told = []
    home = threading.current_thread()

    def on_visit(visit):
        told.append((visit.host, threading.current_thread() is home))

    async def resolving(_host, _port):
        threads.append(threading.current_thread())
        return ["127.0.0.1"]

    threads = []
    async with running(
        tmp_path, "localhost:PORT", on_visit=on_visit, resolve=resolving
    ) as (proxy, _upstream, port):  # fmt: skip
        await ask(proxy, GET.format(host=f"localhost:{port}"))
        await ask(proxy, GET.format(host="evil.example"))
    assert told == [("localhost", True), ("evil.example", True)]
    assert threads[0] is not home
    await asyncio.to_thread(threads[0].join, 10)
    assert not threads[0].is_alive()


POST = "POST http://{h}/one HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        f"{POST}Content-Length: 1\r\nContent-Length: 9\r\n\r\nx",
        f"{POST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        f"{POST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        f"{POST}X: a\nHost: other.example\r\n\r\n",
        f"{POST} folded\r\n\r\n",
        f"{POST}Host: other.example\r\n\r\n",
        f"{POST}Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET http://{h}/one HTTP/1.1\nHost: x\n\n",
        "GET http://{h}/one HTTP/1.0\r\n\r\n",
        "GET http://me:pw@{h}/one HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET http://{h}//other.example/one HTTP/1.1\r\nHost: other.example\r\n\r\n",
    ],
)
async def test_the_server_is_told_one_request_to_the_named_host_however_it_is_put(
    tmp_path, request_bytes
):
    """Two lengths, folded lines, bare line ends, two hosts: refused, or written anew."""
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        hidden = GET.format(host=f"localhost:{port}").replace("/hello", "/hidden")
        await ask(proxy, request_bytes.format(h=f"localhost:{port}") + hidden)
        seen = upstream.seen.lower()
        assert b"/hidden" not in seen
        assert b"upgrade" not in seen
        assert seen.count(b"\r\nhost:") == (1 if seen else 0)
        assert not seen or f"host: localhost:{port}\r\n".encode() in seen
        assert b"me:pw" not in seen


LENGTH, CODING = "content-length: {}", "Transfer-Encoding: chunked"


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("order", [(LENGTH, CODING), (CODING, LENGTH)])
async def test_a_body_with_two_lengths_is_refused_and_hides_no_second_request(
    tmp_path, order, version
):
    """A server that believed the other of the two would read a request that nobody counted."""
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        where = f"localhost:{port}"
        hidden = GET.format(host=where).replace("/hello", "/hidden")
        body = f"{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n"  # of length 4, the rest is a request
        head = "\r\n".join(order).format(4)
        answer = await ask(
            proxy, f"POST http://{where}/one {version}\r\nHost: x\r\n{head}\r\n\r\n{body}"
        )
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"both Content-Length and Transfer-Encoding" in answer
        assert (upstream.connections, upstream.seen) == (0, b"")
        [visit] = proxy.visits
        assert (visit.host, visit.allowed, visit.requests) == ("localhost", False, 1)


async def test_an_answer_with_two_lengths_is_passed_on_with_the_one_that_counts(tmp_path):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        upstream.answer = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n0\r\n\r\n"
        )
        answer = await ask(proxy, GET.format(host=f"localhost:{port}"))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"content-length" not in answer.lower()
        assert answer.endswith(b"5\r\nhello\r\n0\r\n\r\n")
        assert proxy.visits[0].received == 5


@pytest.mark.parametrize(
    "host", ["LOCALHOST:{}", "localhost.:{}", "ⓛocalhost:{}", "x@localhost:{}"]
)
async def test_other_spellings_of_a_named_host_are_that_host(tmp_path, host):
    async with running(tmp_path, "localhost:PORT") as (proxy, upstream, port):
        request = GET.format(host=host.format(port))
        answer = await ask(proxy, request)
        if answer.endswith(b"hello"):
            assert f"Host: localhost:{port}\r\n".encode() in upstream.seen
        else:
            assert answer.startswith(b"HTTP/1.1 40")
            assert upstream.connections == 0
