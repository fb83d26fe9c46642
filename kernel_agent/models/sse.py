"""Server-sent events, read from bytes as they arrive.

A pure reader: it is fed whatever the socket gave, in whatever pieces, and returns the events that
are complete. Lines may end in LF, CRLF or CR, an event's data may span lines, comments keep
connections alive and carry nothing. It is written by hand because the client library's reader takes
an error within a stream, and a reply in one piece, for the end of an empty reply, fails at events
without a blank line between them, and holds a line without end (of 400 MB it took 1.5 GB).

Protocol: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

from typing import NamedTuple

from kernel_agent.models.errors import EndpointError

MAX_LINE_BYTES = 32_000_000
"""A line longer than this is no event of a chat reply, nor are lines without an empty one between
them; they are refused before they fill memory."""

_ERROR = b"error"
"""llama.cpp's name for the line of an error within a stream."""

MAX_NAME_CHARS = 100
DATA_LINE_BYTES = 64
"""Cost of a line of data beyond its text: empty ones take memory, too."""


class ServerEvent(NamedTuple):
    """A server-sent event; ``name`` is empty unless the server named it."""

    name: str
    data: str


class EventReader:
    r"""Turns bytes into events.

    >>> reader = EventReader()
    >>> reader.feed(b"data: on"), reader.feed(b"e\r\n\r\n: still here\n")
    ([], [ServerEvent(name='', data='one')])
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the line that has not ended yet
        self._line_bytes = 0
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take the next bytes and return the events that they complete.

        Raises
        ------
        EndpointError
            The endpoint's fault: a line without end.
        """
        if not chunk:
            return []
        cut_in_crlf = self._after_cr and chunk.startswith(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        if cut_in_crlf:
            chunk = chunk[1:]
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        if not rest:
            return []
        lines = [b"".join(self._line), *rest[:-1]]
        self._line, self._line_bytes = [], 0
        self._hold(rest[-1])
        return [event for line in lines if (event := self._take(line)) is not None]

    def end(self) -> list[ServerEvent]:
        """Return the event that was left open when the stream ended without a blank line."""
        last = self._take(b"".join(self._line))
        open_event = self._take(b"")
        self._line, self._line_bytes = [], 0
        return [event for event in (last, open_event) if event is not None]

    def _hold(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_bytes += len(piece)
        _check(self._line_bytes, "a line")

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if line.startswith(b'{"error"'):
            field, value = _ERROR, line  # Ollama: as it is, in the middle of the events
        if field in {b"data", b"event", _ERROR}:
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if field == b"event":
                self._name = text[:MAX_NAME_CHARS]
            else:
                self._name = "error" if field == _ERROR else self._name
                self._data.append(text)
                self._data_bytes += len(line) + DATA_LINE_BYTES
                _check(self._data_bytes, "an event")
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._data_bytes = "", [], 0
        return event


def _check(size: int, what: str) -> None:
    if size > MAX_LINE_BYTES:
        raise EndpointError(
            f"sent {what} of more than {MAX_LINE_BYTES // 1_000_000} MB",
            advice="check --base-url: this is not a chat-completions stream",
        )
