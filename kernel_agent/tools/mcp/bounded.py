"""Answers over HTTP, passed on only when they are known to be no more than is read.

The client reads an answer in one step, on the event loop: so its bytes and its items are counted
before it gets any of them. An event stream may stay open, and is passed on event by event
(https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from kernel_agent.tools.mcp.pipes import MESSAGE_MAX, excess

ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")  # of an event


async def bounded(chunks: AsyncIterable[bytes], *, events: bool) -> AsyncIterator[bytes]:
    """Yield what a server answers, whole or event by event.

    Raises
    ------
    ValueError
        The server's: it is more than is read; the message says of what.
    """
    held = bytearray()
    async for chunk in chunks:
        seen = max(len(held) - 3, 0)
        held += chunk
        end = max(held.rfind(mark, seen) for mark in ENDS) if events else -1
        if end >= 0:
            yield await _looked_at(bytes(held[: end + 4]))
            del held[: end + 4]
        elif len(held) > MESSAGE_MAX:
            raise ValueError(f"more than {MESSAGE_MAX:,} bytes")
    yield await _looked_at(bytes(held))


async def _looked_at(part: bytes) -> bytes:
    if too_many := await excess(part):
        raise ValueError(too_many)
    return part
