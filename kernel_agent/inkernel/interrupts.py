"""An interrupt that comes as a cell begins to wait is sent again.

Python notes a signal and looks at the note between two of its instructions. One that comes after
the last look and before the system is asked to wait (``time.sleep(60)``) is noticed when the wait
is over. On a busy machine that is one interrupt in hundreds: the thread that sends it is given the
interpreter at that moment. So a main thread that stands where it stood is woken once more.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ipykernel import kernelbase

AGAIN_S = (0.1, 0.4, 1.0)  # after what was sent before


def install() -> None:
    """Have ipykernel's interrupts, by message, noticed."""
    kernel: Any = kernelbase.Kernel
    send = kernel._send_interrupt_children
    kernel._send_interrupt_children = lambda self: send_until_noticed(partial(send, self))


def send_until_noticed(send: Callable[[], None]) -> None:
    """Send an interrupt from a thread with an event loop; wake the main thread until it notices."""
    before = _place()
    send()
    if before == _place():
        _later(before, list(AGAIN_S))


def _later(place: Any, delays: list[float]) -> None:
    if delays:
        asyncio.get_running_loop().call_later(delays.pop(0), _wake, place, delays)


def _wake(place: Any, delays: list[float]) -> None:
    """Interrupt the wait of a main thread that has not gone on; the note is there already."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a cell's own
    if ours and _place() == place:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        _later(place, delays)


def _place() -> tuple[Any, int]:
    """Return where the main thread is: its frame, and the instruction."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return frame, frame.f_lasti
