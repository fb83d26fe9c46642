"""Hand connections inside a sandbox on to the host's proxy: ``forward.py LISTENER PROXY``.

Runs in the kernel's empty network, beside the kernel. ``LISTENER`` is the descriptor of a listening
socket on the loopback interface, ``PROXY`` one of the host's unix socket (``O_PATH``): the socket
has no path in here. Nothing is decided or read here; the host does that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

CHUNK = 65_536


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until it ends, and then the end."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def serve(listener: int, proxy: int) -> None:
    """Forward connections until this process is ended."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outside = None
        with contextlib.suppress(OSError):
            inside, outside = await asyncio.open_unix_connection(f"/proc/self/fd/{proxy}")
            await asyncio.gather(copy(reader, outside), copy(inside, writer))
        for end in (writer, outside):
            if end is not None:
                end.close()

    server = await asyncio.start_server(accept, sock=socket.socket(fileno=listener))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
