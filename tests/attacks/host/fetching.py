"""Hostile pages for the tool ``fetch``; ``python -m attacks.host.fetching NAME`` serves one.

The server is a process of its own, so that what it costs to make a page is not measured.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attacks.score import either, grew, never_ended, stood_still
from attacks.words import host_attack

SIZE = 9_000_000  # within the ten that an answer may have
TOO_MUCH = either(stood_still(), grew(), never_ended)


# --- pages ---------------------------------------------------------------------------------------


def _page(body: bytes, *headers: str, status: str = "200 OK") -> list[bytes]:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return ["\r\n".join(lines).encode() + body]


def _html(unit: str) -> list[bytes]:
    return _page(unit.encode() * (SIZE // len(unit)), "Content-Type: text/html")


def _encoded(name: str) -> list[bytes]:
    # What Python reads as a label of a domain's name, in quadratic time.
    return _page(b"xn--a-" + b"b" * 3_000_000, f"Content-Type: text/plain; charset={name}")


def _zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([packer.compress(bytes(1_000_000)) for _ in range(megabytes)]) + packer.flush()


def _packed_twice() -> list[bytes]:
    packer = zlib.compressobj(9, wbits=31)
    body = packer.compress(_zeros(900)) + packer.flush()
    return _page(body, "Content-Encoding: gzip, gzip")


def _many_members() -> list[bytes]:
    packer = zlib.compressobj(9, wbits=31)
    one = packer.compress(b"") + packer.flush()
    return _page(one * (SIZE // len(one)), "Content-Encoding: gzip")


def _redirect_with_a_body() -> Iterator[bytes]:
    yield b"HTTP/1.1 302 Found\r\nLocation: /next\r\n\r\n"
    while True:
        yield bytes(1_000_000)


def _crumbs() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"1\r\nx\r\n" * 20_000


def _heads() -> Iterator[bytes]:
    while True:
        yield b"HTTP/1.1 100 \r\n\r\n" * 5_000


def _drip() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in itertools.count():
        yield f"X-{number}: y\r\n".encode()
        time.sleep(1)


PAGES: dict[str, Callable[[], Iterable[bytes]]] = {
    "divs": lambda: _html("<div>"),
    "anchors": lambda: _html("<a href=x><b><i>"),
    "tables": lambda: _html("<table>x"),
    "foreign": lambda: _html("<svg><math><p>"),
    "punycode": lambda: _encoded("punycode"),
    "idna": lambda: _encoded("idna"),
    "twice": _packed_twice,
    "bomb": lambda: _page(_zeros(2000), "Content-Encoding: gzip"),
    "members": _many_members,
    "redirect": _redirect_with_a_body,
    "crumbs": _crumbs,
    "heads": _heads,
    "drip": _drip,
}


def serve(name: str) -> None:
    """Print the port, and give everybody who connects the page."""
    made = PAGES[name]()
    pieces = made if isinstance(made, list) else None
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, pieces or PAGES[name]())).start()


def _answer(connection: socket.socket, pieces: Iterable[bytes]) -> None:
    with connection:
        try:
            connection.recv(65_536)
            for piece in pieces:
                connection.sendall(piece)
        except OSError:
            pass


@contextmanager
def serving(name: str) -> Iterator[int]:
    """Yield the port of a process that serves the page."""
    command = [sys.executable, "-m", "attacks.host.fetching", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


# --- the host meets them -------------------------------------------------------------------------


async def _fetched(name: str) -> str:
    from kernel_agent.errors import ToolError
    from kernel_agent.sandbox.allowlist import parse_hosts
    from kernel_agent.sandbox.proxy import Proxy, Refused
    from kernel_agent.tools.builtin.fetch import fetch_tools

    with serving(name) as port:
        proxy = Proxy(parse_hosts([f"localhost:{port}"]))
        (fetch,) = fetch_tools(
            admit=proxy.admit, received=proxy.received, hosts=["x"], refused=Refused
        )
        try:
            async with asyncio.timeout(60):
                page = await fetch.call([f"http://localhost:{port}/"], {})
        except (ToolError, TimeoutError) as error:
            raise ValueError(str(error) or "given up after 60 s") from None
    return f"{len(page['text'])} characters, {len(page['links'])} links"


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_of_unclosed_divs(folder: Path) -> str:
    """Fetched page: 9 MB of tags that are never closed."""
    return await _fetched("divs")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_of_unclosed_anchors(folder: Path) -> str:
    """Fetched page: 9 MB of links and styles that are never closed."""
    return await _fetched("anchors")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_of_unclosed_tables(folder: Path) -> str:
    """Fetched page: 9 MB of tables with text beside their cells."""
    return await _fetched("tables")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_of_foreign_elements(folder: Path) -> str:
    """Fetched page: 9 MB of pictures in formulas in paragraphs."""
    return await _fetched("foreign")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_in_punycode(folder: Path) -> str:
    """Fetched page: 3 MB in the charset punycode."""
    return await _fetched("punycode")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_in_idna(folder: Path) -> str:
    """Fetched page: 3 MB in the charset idna."""
    return await _fetched("idna")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_packed_twice(folder: Path) -> str:
    """Fetched page: 900 MB of zeros, compressed twice to some thousand bytes."""
    return await _fetched("twice")


@host_attack("host-resource", TOO_MUCH, timeout_s=60)
async def page_packed_once(folder: Path) -> str:
    """Fetched page: 2 GB of zeros, compressed once."""
    return await _fetched("bomb")


@host_attack("host-resource", TOO_MUCH, timeout_s=50)
async def page_of_many_members(folder: Path) -> str:
    """Fetched page: 450,000 empty compressed files one after the other."""
    return await _fetched("members")


@host_attack("host-resource", TOO_MUCH, timeout_s=90)
async def page_behind_a_redirect_without_end(folder: Path) -> str:
    """Fetched page: a redirect whose own body never ends."""
    return await _fetched("redirect")


@host_attack("host-resource", TOO_MUCH, timeout_s=90)
async def page_in_crumbs(folder: Path) -> str:
    """Fetched page: chunks of one byte without end."""
    return await _fetched("crumbs")


@host_attack("host-resource", TOO_MUCH, timeout_s=90)
async def page_of_interim_heads(folder: Path) -> str:
    """Fetched page: interim answers (100 Continue) without end."""
    return await _fetched("heads")


@host_attack("host-resource", TOO_MUCH, timeout_s=90)
async def page_that_drips(folder: Path) -> str:
    """Fetched page: a header a second."""
    return await _fetched("drip")


@host_attack("host-resource", TOO_MUCH, timeout_s=150)
async def page_that_outlives_the_command(folder: Path) -> str:
    """Fetched page: 9 MB of unclosed tags; the whole command has to end."""
    reply = "```python\npage = fetch(URL)\nprint(len(page['text']))\nfinal_answer('done')\n```"
    with serving("divs") as port:
        cell = reply.replace("URL", repr(f"http://localhost:{port}/"))
        Path("m.jsonl").write_text(json.dumps({"content": cell}) + "\n")
        command = [
            sys.executable, "-m", "kernel_agent", "run", "Read it", "--model", "scripted:m.jsonl",
            "--sandbox", os.environ.get("ATTACKED_LEVEL", "bubblewrap"), "--quiet",
            "--tools", f"fetch=localhost:{port}", "--out", "run",
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.returncode}: {said.decode()} {errors.decode()[-500:]}")
    return "the command ended"


if __name__ == "__main__":
    serve(sys.argv[1])
