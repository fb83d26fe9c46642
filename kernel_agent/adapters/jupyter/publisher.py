"""Outputs on their way to an application that may not read them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq
import zmq.asyncio

PATIENCE_S = 10.0  # with an application that does not read
RETRY_S = 0.005


def send_now(socket: zmq.asyncio.Socket, frames: list[bytes]) -> bool:
    """Send a message if that can be done without waiting; return whether it was."""
    sent: Any = socket.send_multipart(frames, flags=zmq.DONTWAIT)  # a future that is done
    return sent.done() and sent.exception() is None


class Publisher:
    """Sends outputs, and holds the kernel while the application does not take them.

    Parameters
    ----------
    hold
        Called with ``held``: whether the kernel has to wait.
    """

    def __init__(self, hold: Callable[..., None]) -> None:
        self.socket: zmq.asyncio.Socket | None = None
        self._hold = hold
        self._waiting: deque[list[bytes]] = deque()
        self._more = asyncio.Event()
        self._dropped = 0

    def publish(self, frames: list[bytes], note: Callable[[dict[str, Any]], list[bytes]]) -> None:
        """Send a message, or keep it for a while.

        Parameters
        ----------
        note
            Makes a message of printed text, for the same cell.
        """
        if self._waiting:
            self._waiting.append(frames)
        elif not self._try(frames):
            if self._dropped:  # it has been waited for already
                self._dropped += 1
                return
            self._waiting.append(frames)
            self._hold(held=True)
            self._more.set()
        elif self._dropped:
            text = f"[{self._dropped:,} outputs were left out: they were not read in time.]\n"
            self._dropped = 0
            self._try(note({"name": "stderr", "text": text}))

    async def run(self) -> None:
        """Send what waits, as soon as it is taken."""
        loop = asyncio.get_running_loop()
        while True:
            await self._more.wait()
            until = loop.time() + PATIENCE_S
            while self._waiting:
                if self._try(self._waiting[0]):
                    self._waiting.popleft()
                elif loop.time() < until:
                    await asyncio.sleep(RETRY_S)
                else:
                    self._dropped += len(self._waiting)
                    self._waiting.clear()
            self._more.clear()
            self._hold(held=False)

    def _try(self, frames: list[bytes]) -> bool:
        assert self.socket is not None
        return send_now(self.socket, frames)
