"""The protocol of a Jupyter kernel's sockets: ZMTP 3.0 without security, within bounds. Pure.

libzmq, which kernels use, has no bound for a message: it keeps the parts of one that is not over
for as long as they come. The host reads its side of the connection itself, and keeps of a message
only what is allowed; the rest is counted and thrown away as it arrives. Nothing that a peer
*announces* takes memory, only what it has sent.

The protocol is https://rfc.zeromq.org/spec/23/; a peer that speaks a later 3.x answers in 3.0,
in which a subscription is a message. Bytes go in (:meth:`Reader.feed`), events come out
(:meth:`Reader.next_event`); each event is little work, so that the caller can stop in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Frame = bytes | bytearray

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"NULL".ljust(20, b"\0")
GREETING = _SIGNATURE + b"\x03\x00" + _MECHANISM + bytes(32)
SUBSCRIBE_ALL = b"\x01"
_MORE, _LONG, _COMMAND = 1, 2, 4

MAX_COMMAND = 10_000  # bytes; READY of libzmq has some fifty
MAX_FRAMES = 64  # kept of a message; Jupyter's have seven, and buffers that nobody here reads
MAX_PARTS = 4096  # of a message; more is one without an end
MAX_SIZE = 1 << 30  # bytes of a message of which the end is waited for


class ProtocolError(ValueError):
    """The peer breaks the protocol, or sends without end."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The peer has introduced itself: messages may be sent."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Any other command; send ``answer`` where it is not empty."""

    answer: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message: the frames that were kept, and the bytes and parts of all of it."""

    frames: list[Frame]
    size: int
    complete: bool


Event = Ready | Command | Message


def ready(kind: str, identity: bytes = b"") -> bytes:
    """Return the command by which a socket introduces itself.

    Parameters
    ----------
    kind
        ``DEALER`` or ``SUB``.
    identity
        By which a ROUTER knows it.
    """
    properties = {b"Socket-Type": kind.encode()} | ({b"Identity": identity} if identity else {})
    body = b"\x05READY" + b"".join(
        bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
        for name, value in properties.items()
    )
    return _frame(body, _COMMAND)


def message(frames: Iterable[bytes]) -> bytes:
    """Return a message as it is sent."""
    *first, last = frames
    return b"".join([*(_frame(frame, _MORE) for frame in first), _frame(last, 0)])


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | _LONG]) + len(body).to_bytes(8, "big") + body


class Reader:
    """Turn a peer's bytes into events.

    Parameters
    ----------
    most
        Asked when a message begins: how many bytes of it may be kept.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._data = b""
        self._at = 0
        self._greeted = False
        self._ready = False
        self._flags = 0
        self._left: int | None = None  # bytes of the frame that is being read
        self._kept = False
        self._part = bytearray()  # what has come of it
        self._begin_message()

    def feed(self, data: bytes) -> None:
        """Take bytes, however they are cut; only when :meth:`next_event` has given None."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def next_event(self) -> Event | None:
        """Return the next event, or None when it takes more bytes.

        Raises
        ------
        ProtocolError
            The peer is at fault; the connection is of no more use.
        """
        if not self._greeted and not self._read_greeting():
            return None
        while self._left is not None or self._begin_frame():
            frame = self._read_body()
            if frame is None:
                return None
            if self._flags & _COMMAND:
                return self._command(bytes(frame))
            if self._kept:
                self._frames.append(frame)
            if not self._flags & _MORE:
                return self._end_message()
        return None

    # --- parts ---------------------------------------------------------------------------------

    def _read_greeting(self) -> bool:
        if len(self._data) - self._at < len(GREETING):
            return False
        got = self._data[self._at : self._at + len(GREETING)]
        if got[0] != 0xFF or not got[9] & 1 or got[10] < 3 or got[12:32] != _MECHANISM:
            raise ProtocolError("a greeting that is not ZMTP 3 without security")
        self._at += len(GREETING)
        self._greeted = True
        return True

    def _begin_message(self) -> None:
        self._frames: list[Frame] = []
        self._parts = self._size = 0
        self._room = 0
        self._complete = True

    def _begin_frame(self) -> bool:
        """Read a frame's head; return whether all of it was there."""
        data, at = self._data, self._at
        there = len(data) - at
        if there < 2:
            return False
        flags = self._flags = data[at]
        if flags & _LONG:
            if there < 9:
                return False
            size, self._at = int.from_bytes(data[at + 1 : at + 9], "big"), at + 9
        else:
            size, self._at = data[at + 1], at + 2
        self._kept = self._admit_command(size) if flags & _COMMAND else self._admit_part(size)
        self._left = size
        return True

    def _admit_command(self, size: int) -> bool:
        if self._flags & _MORE or size > MAX_COMMAND or self._parts:
            raise ProtocolError("a command that is too long, or in the middle of a message")
        return True

    def _admit_part(self, size: int) -> bool:
        """Count a part of a message; return whether it is to be kept."""
        if not self._ready:
            raise ProtocolError("a message before the peer has introduced itself")
        if not self._parts:
            self._room = self._most()
        self._parts += 1
        self._size += size
        if self._parts > MAX_PARTS or self._size > MAX_SIZE:
            raise ProtocolError("a message without an end")
        if size > self._room or len(self._frames) >= MAX_FRAMES:
            self._complete = False
            return False
        self._room -= size
        return True

    def _read_body(self) -> Frame | None:
        """Return the frame when the rest of it is there, empty where it is not kept."""
        assert self._left is not None
        there = min(self._left, len(self._data) - self._at)
        piece = self._data[self._at : self._at + there] if self._kept else b""
        self._at += there
        if there < self._left:
            self._part += piece
            self._left -= there
            return None
        self._left = None
        if not self._part:
            return piece
        whole, self._part = self._part, bytearray()
        whole += piece
        return whole

    def _command(self, body: bytes) -> Event:
        name, rest = body[1 : 1 + body[0]] if body else b"", body[1 + body[0] :] if body else b""
        if not self._ready:
            if name != b"READY":
                raise ProtocolError("another command than READY")
            self._ready = True
            return Ready()
        if name == b"ERROR":
            raise ProtocolError("the peer gave up")
        # A PING carries how long its sender waits, and up to 16 bytes that come back with a PONG.
        return Command(
            answer=_frame(b"\x04PONG" + rest[2:18], _COMMAND) if name == b"PING" else b""
        )

    def _end_message(self) -> Message:
        ended = Message(frames=self._frames, size=self._size, complete=self._complete)
        self._begin_message()
        return ended
