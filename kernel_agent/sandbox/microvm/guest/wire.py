"""The wire between host and machine: frames over one stream, a virtio-serial port.

A frame is a kind (1 byte), a number (4 bytes, network order), a length (4 bytes) and that many
bytes. Numbers name connections. The frames are

========  =======  ========================================================================
kind      from     payload
========  =======  ========================================================================
``OPEN``  host     the name of the kernel's channel that a client of the host connected to
``DATA``  both     bytes of that connection
``CLOSE`` both     nothing: the connection is over
``NOTE``  both     a JSON object; ``note`` says what it is
``FILE``  both     a regular file's path, from the host with a zero byte and its mtime in ns
``BYTES`` both     content of that file; an empty frame ends it
``MAKE``  both     the path of a directory to make
``LINK``  host     a path and a target, with a zero byte between
``GONE``  machine  the path of a file or directory that was removed
========  =======  ========================================================================

The host believes nothing of it: lengths are bounded here, paths and sizes in ``files``.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator
from typing import Any

HEAD = struct.Struct("!BII")
MAX_PAYLOAD = 256 * 1024  # bytes of one frame
MAX_PATH = 4096
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")

OPEN, DATA, CLOSE, NOTE, FILE, BYTES, MAKE, LINK, GONE = range(1, 10)


class WireError(Exception):
    """The other side broke the protocol."""


class Wire:
    """One end of the wire.

    Parameters
    ----------
    descriptor
        A stream that is read and written: a port inside the machine, a socket on the host.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, kind: int, payload: bytes = b"", number: int = 0) -> None:
        """Send one frame, or as many as a long payload of bytes needs."""
        with self._lock:
            for start in range(0, max(len(payload), 1), MAX_PAYLOAD):
                part = payload[start : start + MAX_PAYLOAD]
                self._write(HEAD.pack(kind, number, len(part)) + part)

    def note(self, note: str, **fields: Any) -> None:
        """Send a note."""
        self.send(NOTE, json.dumps({"note": note, **fields}).encode())

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield kind, number and payload of each frame, until the stream ends.

        Raises
        ------
        WireError
            A kind that does not exist, or a length above ``MAX_PAYLOAD``.
        """
        while len(head := self._read(HEAD.size)) == HEAD.size:
            kind, number, length = HEAD.unpack(head)
            if not OPEN <= kind <= GONE or length > MAX_PAYLOAD:
                raise WireError(f"a frame of kind {kind} with {length} bytes")
            payload = self._read(length)
            if len(payload) < length:
                return
            yield kind, number, payload

    def _read(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            try:
                part = os.read(self._descriptor, length - len(parts))
            except ConnectionError:
                break
            if not part:
                break
            parts += part
        return bytes(parts)

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._descriptor, view) :]
