"""Check a server's messages before the client gets them.

The client checks a message in one step on the event loop, several times, and names all that is
wrong with it: 150,000 wrong pieces of one answer took it 4 s. So what it would check item by item
is bounded here, and an answer with something wrong in it is refused for the first thing; both in
a thread, in short steps. An answer that is refused becomes an error with its number; a note or a
question that is too long is left out, as nobody waits for it. Structured content is not checked by
anybody, and may be as long as :mod:`kernel_agent.safe.gate` lets it be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from kernel_agent.safe import json_items
from kernel_agent.tools.threads import in_thread

PIECES_MAX = 1_000  # of one result; and tools of one page
CHECKED_MAX = 20_000  # lists, objects and items in all that the client looks into
TOLD_MAX = 500  # of a note or a question
_UNCHECKED = ("structuredContent", "_meta")


@asynccontextmanager
async def check_messages(transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Yield a transport's two streams, the first of which gives only checked messages."""
    async with transport as (incoming, outgoing):
        yield _LookedAt(incoming), outgoing


class _LookedAt:
    """A stream of a server's messages."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self.receive_fit(await self._inner.__anext__())

    async def receive(self) -> Any:
        """Return the next message."""
        return await self.receive_fit(await self._inner.receive())

    async def receive_fit(self, item: Any) -> Any:
        """Return an item or, while it is left out, the next."""
        while (found := await fit(item)) is None:
            item = await self._inner.receive()
        return found

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def fit(item: Any) -> Any:
    """Return the client's message for one item of the stream; None if it is left out."""
    from mcp.shared.message import SessionMessage
    from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

    message = getattr(item, "message", None)
    if isinstance(message, JSONRPCResponse):
        wrong = await in_thread(problem, message.result)
        if not wrong:
            return item
        error = ErrorData(code=INTERNAL_ERROR, message=wrong)
        answer = JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
        return SessionMessage(message=answer, metadata=item.metadata)
    params = getattr(message, "params", None)
    return item if params is None or _items(params) <= TOLD_MAX else None


def problem(result: dict[str, Any]) -> str:
    """Return one line on a fault of a result, or on its excess."""
    from mcp_types import CallToolResult, ListToolsResult

    if _items({k: v for k, v in result.items() if k not in _UNCHECKED}) > CHECKED_MAX:
        return f"its answer has more than {CHECKED_MAX:,} items beside structured content"
    for name, kind in (("content", CallToolResult), ("tools", ListToolsResult)):
        pieces = result.get(name)
        if not isinstance(pieces, list):
            continue
        if len(pieces) > PIECES_MAX:
            return f"its answer has {len(pieces):,} {name}, at most {PIECES_MAX:,}"
        for place, piece in enumerate(pieces):
            if wrong := _wrong(kind, name, piece):
                return f"what it sent is malformed: {name}.{place}{wrong}"
    return ""


def _wrong(kind: Any, name: str, piece: Any) -> str:
    try:
        kind.model_validate({name: [piece]}, by_name=False)
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else {"loc": (), "msg": str(error)}
        where = "".join(f".{part}" for part in first["loc"][2:])
        return f"{where}: {first['msg']}"
    return ""


def _items(value: Any) -> int:
    from pydantic_core import to_json

    return json_items(to_json(value), CHECKED_MAX)
