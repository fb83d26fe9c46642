"""The proxy under attack from both sides: ``python -m attacks.host.proxying NAME SOCKET PORT``.

The process that is started so plays the code in the sandbox (whose connections all end at the
proxy's socket, whatever it does inside) and the server that was allowed, which works for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from attacks.score import either, grew, never_ended, stood_still
from attacks.words import host_attack

TOO_MUCH = either(stood_still(), grew(), never_ended)
SECONDS = 10.0
CONNECTIONS = 40  # at once, of the 64 that are served


# --- the attacker's side -------------------------------------------------------------------------


def _flood(path: str, head: bytes, unit: bytes) -> None:
    """Send a head and then the unit without end; read nothing."""
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.connect(path)
        client.sendall(head)
        while unit:
            client.sendall(unit)
        time.sleep(SECONDS)


def _many(path: str, head: bytes, unit: bytes = b"", count: int = CONNECTIONS) -> None:
    for _ in range(count):
        threading.Thread(target=_flood, args=(path, head, unit), daemon=True).start()
    time.sleep(SECONDS)


def _again(path: str, head: bytes, count: int = 4) -> None:
    """Send the same, over and over, on new connections."""
    until = time.monotonic() + SECONDS

    def work() -> None:
        while time.monotonic() < until:
            with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
                client.connect(path)
                client.sendall(head)
                client.settimeout(2)
                client.recv(100)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)


def _served(port: str, head: bytes, unit: bytes) -> None:
    """Be the allowed server: answer whoever comes with a head and then the unit without end."""

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(head)
            while True:
                connection.sendall(unit)

    def accept() -> None:
        with socket.create_server(("127.0.0.1", int(port)), backlog=200) as listener:
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    time.sleep(0.3)


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def _get(port: str) -> bytes:
    return f"GET http://localhost:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _post(port: str) -> bytes:
    return f"POST http://localhost:{port}/ HTTP/1.1\r\nHost: x\r\n".encode() + CHUNKED


def _crumbs_up(path: str, port: str) -> None:
    threading.Thread(target=_swallow, args=(port,), daemon=True).start()
    time.sleep(0.3)
    _many(path, _post(port), b"1\r\nx\r\n" * 10_000)


def _swallow(port: str) -> None:
    def take(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while connection.recv(65_536):
                pass

    with socket.create_server(("127.0.0.1", int(port)), backlog=200) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=take, args=(connection,), daemon=True).start()


def _crumbs_down(path: str, port: str) -> None:
    _served(port, b"HTTP/1.1 200 OK\r\n" + CHUNKED, b"1\r\nx\r\n" * 10_000)
    for _ in range(CONNECTIONS):
        threading.Thread(target=_reading, args=(path, _get(port)), daemon=True).start()
    time.sleep(SECONDS)


def _reading(path: str, head: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.connect(path)
        client.sendall(head)
        while client.recv(65_536):
            pass


def _interim(path: str, port: str) -> None:
    _served(port, b"", b"HTTP/1.1 100 \r\n\r\n" * 4_000)
    _many(path, _get(port))


def _unread(path: str, port: str) -> None:
    _served(port, b"HTTP/1.1 200 OK\r\n\r\n", bytes(1_000_000))
    _many(path, _get(port))


def _unread_tunnels(path: str, port: str) -> None:
    _served(port, b"", bytes(1_000_000))
    _many(path, f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\nhello".encode())


def _slow(path: str, port: str) -> None:
    _many(path, _get(port)[:-4], count=800)


def _heads(path: str, port: str) -> None:
    lines = b"a:\r\n" * 16_000
    _again(path, b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")


def _names(path: str, port: str) -> None:
    name = "ß." * 30_000
    _again(path, f"GET http://{name}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())


ATTACKERS: dict[str, Callable[[str, str], None]] = {
    "crumbs_up": _crumbs_up, "crumbs_down": _crumbs_down, "interim": _interim, "unread": _unread,
    "unread_tunnels": _unread_tunnels, "slow": _slow, "heads": _heads, "names": _names,
}  # fmt: skip


# --- the host's side -----------------------------------------------------------------------------


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


async def _attacked(folder: Path, name: str) -> str:
    from kernel_agent.sandbox.allowlist import parse_hosts
    from kernel_agent.sandbox.proxy import Proxy

    port = _free_port()
    proxy = Proxy(parse_hosts([f"localhost:{port}"]))
    await proxy.start(folder / "p")
    command = [sys.executable, "-m", "attacks.host.proxying", name, str(folder / "p"), str(port)]
    attacker = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
    code = await attacker.wait()
    await proxy.close()
    if code:
        raise AssertionError(f"the attacker ended with {code}")
    return f"{sum(visit.requests for visit in proxy.visits):,} requests were counted"


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_given_crumbs(folder: Path) -> str:
    """Proxy: 40 requests that are sent in chunks of one byte without end."""
    return await _attacked(folder, "crumbs_up")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_answered_with_crumbs(folder: Path) -> str:
    """Proxy: 40 answers in chunks of one byte without end."""
    return await _attacked(folder, "crumbs_down")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_answered_with_interim_heads(folder: Path) -> str:
    """Proxy: 40 answers of 100 Continue without end."""
    return await _attacked(folder, "interim")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_with_nobody_who_reads(folder: Path) -> str:
    """Proxy: 40 answers without end that the cell does not read."""
    return await _attacked(folder, "unread")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def tunnels_with_nobody_who_reads(folder: Path) -> str:
    """Proxy: 40 tunnels with data without end that the cell does not read."""
    return await _attacked(folder, "unread_tunnels")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_with_slow_heads(folder: Path) -> str:
    """Proxy: 800 connections whose head never ends."""
    return await _attacked(folder, "slow")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_given_many_headers(folder: Path) -> str:
    """Proxy: heads of 16,000 headers, one after the other on four connections."""
    return await _attacked(folder, "heads")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def proxy_given_long_names(folder: Path) -> str:
    """Proxy: names of 60,000 characters that IDNA takes long for."""
    return await _attacked(folder, "names")


def uncounted(stage: object, report: object) -> str:
    """Tell that a connection was made of which nothing was counted."""
    text = str(getattr(report, "text", ""))
    return text if text.startswith("not counted") else ""


@host_attack("network", uncounted, timeout_s=60)
async def tunnel_without_a_word(folder: Path) -> str:
    """Proxy: a tunnel to an allowed host in which nothing is said, to be counted nowhere."""
    from kernel_agent.sandbox.allowlist import parse_hosts
    from kernel_agent.sandbox.proxy import Proxy

    for place in ("connection", "proxy"):  # who says nothing is waited for
        module = import_module(f"kernel_agent.sandbox.{place}")
        assert hasattr(module, "IDLE_S")
        module.IDLE_S = 0.5  # type: ignore[attr-defined]
    reached = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy(parse_hosts([f"localhost:{port}"]))
    await proxy.start(folder / "p")
    reader, writer = await asyncio.open_unix_connection(str(folder / "p"))
    writer.write(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.read()
    writer.close()
    visits = proxy.visits
    await proxy.close()
    server.close()
    is_missing = reached.is_set() and not visits
    return "not counted: a connection to the host was made" if is_missing else ""


CELL = r"""
import socket
OPEN, OTHER = "localhost:%d", "localhost:%d"
GET = f"GET http://{OPEN}/ HTTP/1.1\r\nHost: {OTHER}\r\n"
HIDDEN = f"GET http://{OTHER}/hidden HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"
POST = f"POST http://{OPEN}/ HTTP/1.1\r\nHost: x\r\n"
tries = [
    HIDDEN, f"CONNECT {OTHER} HTTP/1.1\r\nHost: {OPEN}\r\n\r\n{HIDDEN}",
    f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n", f"{GET}\r\n{HIDDEN}",
    f"GET http://{OPEN}@{OTHER}/ HTTP/1.1\r\nHost: {OPEN}\r\n\r\n",
    f"GET http://{OTHER}#@{OPEN}/ HTTP/1.1\r\nHost: {OPEN}\r\n\r\n",
    f"GET http://{OTHER}\\@{OPEN}/ HTTP/1.1\r\nHost: {OPEN}\r\n\r\n",
    f"{POST}Content-Length: 0\r\nContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    f"{POST}Content-Length: {len(HIDDEN)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"{POST}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"{POST}X: a\r\n b\r\nHost: {OTHER}\r\n\r\n", f"{GET}\n\n{HIDDEN}",
    f"{GET}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n{HIDDEN}", f"GET http://{OTHER}/\r\n\r\n",
    *(HIDDEN.replace(OTHER, name + OTHER[9:])
      for name in ("127.0.0.1", "[::1]", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "LOCALHOST.",
                   "[64:ff9b::7f00:1]", "0", "localhost%%00")),
]
for text in tries:
    try:
        with socket.create_connection(("127.0.0.1", 3128), timeout=10) as client:
            client.sendall(text.encode("latin-1"))
            client.settimeout(3)
            while client.recv(65536):
                pass
    except OSError:
        pass
print(len(tries))
"""


def _reached_another(stage: object, report: object) -> str:
    text = str(getattr(report, "text", ""))
    return text if text.startswith("reached") else ""


@host_attack("network", _reached_another, timeout_s=180)
async def another_host_through_the_proxy(folder: Path) -> str:
    """Proxy: 23 requests of a cell, put so that another host or port answers than is allowed."""
    from kernel_agent.kernel import Access, KernelSession
    from kernel_agent.sandbox.allowlist import parse_hosts
    from kernel_agent.sandbox.proxy import Proxy

    heard: list[tuple[str, bytes]] = []

    async def serve(name: str) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append((name, await reader.read(65_536)))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        return await asyncio.start_server(answer, "127.0.0.1", 0)

    named, other = await serve("named"), await serve("other")
    ports = tuple(server.sockets[0].getsockname()[1] for server in (named, other))
    proxy = Proxy(parse_hosts([f"localhost:{ports[0]}"]))
    (folder / "work").mkdir()
    level = os.environ.get("ATTACKED_LEVEL", "bubblewrap")
    async with KernelSession(
        cwd=folder / "work", sandbox=level, access=Access(proxy=proxy)
    ) as kernel:
        result = await kernel.execute(CELL % ports)
    assert result.ok, result.error
    told = [data for name, data in heard if name == "named"]
    assert told, "the allowed host was never asked: the attack is broken"
    wrong = [data for data in told if b"/hidden" in data or str(ports[1]).encode() in data]
    if any(name == "other" for name, _ in heard) or wrong:
        return f"reached: {[name for name, _ in heard]}, {wrong}"
    return f"{len(told)} of the requests went to the allowed host"


def main() -> None:
    """Attack the proxy at a socket for some seconds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if soft < 4096 else soft, hard))
    threading.stack_size(256 * 1024)  # there are many
    name, path, port = sys.argv[1:]
    ATTACKERS[name](path, port)


if __name__ == "__main__":
    main()
