"""Outputs on their way to an application that may not read them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq
import zmq.asyncio

PATIENCE_S = 10.0  # with an application that does not read
RETRY_S = 0.005
TOO_SLOW = {
    "name": "stderr",
    "text": "[A reader of this kernel does not keep up, and misses outputs.]\n",
}


def send_now(socket: zmq.asyncio.Socket, frames: list[bytes]) -> bool:
    """Send a message if that can be done without waiting; return whether it was."""
    sent: Any = socket.send_multipart(frames, flags=zmq.DONTWAIT)  # a future that is done
    return sent.done() and sent.exception() is None


class Publisher:
    """Sends outputs, and holds the kernel while one of their readers does not take them.

    A reader that takes none for :data:`PATIENCE_S` loses those that come then, and the others are
    told so. libzmq sets it aside until it reads again, so nobody waits for it any more.

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
        self._note = partial(list[bytes])

    def publish(self, frames: list[bytes], note: partial[list[bytes]]) -> None:
        """Send a message, or keep it for a while.

        Parameters
        ----------
        note
            Makes a message of printed text, for the same cell.
        """
        if not self._waiting and self._try(frames):
            return
        self._waiting.append(frames)
        self._note = note
        self._hold(held=True)
        self._more.set()

    async def run(self) -> None:
        """Send what waits, as soon as it is taken."""
        loop = asyncio.get_running_loop()
        while True:
            await self._more.wait()
            until = loop.time() + PATIENCE_S
            while self._waiting and loop.time() < until:
                if self._try(self._waiting[0]):
                    self._waiting.popleft()
                else:
                    await asyncio.sleep(RETRY_S)
            if self._waiting:
                self._send_to_others([*self._waiting, self._note(TOO_SLOW)])
                self._waiting.clear()
            self._more.clear()
            self._hold(held=False)

    def _try(self, frames: list[bytes]) -> bool:
        assert self.socket is not None
        return send_now(self.socket, frames)

    def _send_to_others(self, messages: list[list[bytes]]) -> None:
        """Send to all readers but those that do not read."""
        assert self.socket is not None
        self.socket.setsockopt(zmq.XPUB_NODROP, 0)
        for frames in messages:
            self._try(frames)
        self.socket.setsockopt(zmq.XPUB_NODROP, 1)
