"""Standard output and error of the kernel: capped, complete, in order.

Three things differ from ipykernel's stream, each because of a measured failure
(``docs/design.md``, "Output"):

* what a cell prints beyond a cap stays in the kernel; its last part is sent when the cell ends,
  so a flood costs neither memory nor the end of the cell;
* what is written to the file descriptors (by C code and child processes) is not echoed to the
  launcher's descriptors, where nobody reads and the cell would hang;
* what is waiting in those descriptors when the cell ends is published before the cell's end.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import struct
import termios
import threading
from collections import deque
from typing import Any

from ipykernel.iostream import OutStream

from .outputs import Memory

HEAD = 1_000_000  # characters of one stream of one cell that are sent as they are printed
TAIL = 100_000  # characters of its end that are sent when the cell is over


class Cut:
    """State of a cell's stream: what it has sent, and the tail of what it has not."""

    def __init__(self) -> None:
        self.sent = 0
        self.held_back = 0
        self._tail: deque[str] = deque()
        self._tail_chars = 0

    def hold(self, text: str) -> None:
        """Keep the end of the text that is not sent."""
        self.held_back += len(text)
        self._tail.append(text[-TAIL:])
        self._tail_chars += min(len(text), TAIL)
        while self._tail_chars - len(self._tail[0]) >= TAIL:
            self._tail_chars -= len(self._tail.popleft())

    def ending(self, step: int, *, whole: bool) -> str:
        """Return a line on what was left out, and the last part."""
        tail = "".join(self._tail)[-TAIL:]
        left_out = self.held_back - len(tail)
        where = "outputs[{}] holds {}".format(
            step, "all of it" if whole else "the first part of it"
        )
        return f"\n… {left_out:,} characters left out; {where} …\n{tail}"


class ForkedStream(OutStream):
    """A stream that forks of the kernel's process write to as well.

    What a fork prints goes through the file descriptor, which is watched. ipykernel's own way is a
    TCP connection to itself, which no sandbox opens: the text would be lost without a word.
    """

    _line = ""  # what a fork has written of a line: lines of several forks stay whole

    def write(self, string: str) -> int:
        """Send the text; from a fork, line by line."""
        if not self._in_fork or not isinstance(string, str):
            return super().write(string) or 0
        lines, newline, rest = string.rpartition("\n")
        if newline:
            self._pass_on(self._line + lines + newline)
            self._line = ""
        self._line += rest
        return len(string)

    def flush(self) -> None:
        """Publish what was written; what waited when a fork began is the parent's to publish."""
        if self._in_fork:
            line, self._line = self._line, ""
            self._pass_on(line)
        else:
            super().flush()

    def close(self) -> None:
        """Publish what was written, and stay open: ``with sys.stdout`` ends no kernel."""
        self.flush()

    def _pass_on(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._original_stdstream_fd, data) :]

    @property
    def _in_fork(self) -> bool:
        return self._fid is not None and not self._is_master_process()


class CappedStream(ForkedStream):
    """The class of ``sys.stdout`` and ``sys.stderr`` in our kernels; built by ipykernel."""

    head = HEAD
    memory: Memory | None = None
    flush_interval = 0.05  # seconds until a printed line is on its way (ipykernel: 0.2)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._cuts: dict[str, Cut] = {}
        self._cut_lock = threading.Lock()
        self._fd_lock = threading.Lock()
        self._flush_lock = threading.RLock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(*args, **kwargs)
        if self._fid is not None:
            os.set_blocking(self._fid, False)

    def write(self, string: str) -> int:
        """Send the text, or hold it back when the cell has printed enough."""
        if not isinstance(string, str) or not self._is_master_process():
            return super().write(string) or 0
        size = len(string)
        if self.memory is not None:
            self.memory.append(string)
        msg_id = self.parent_header.get("msg_id", "")
        with self._cut_lock:
            cut = self._cuts.get(msg_id)
            if cut is None:
                cut = self._cuts[msg_id] = Cut()
            room = self.head - cut.sent
            if room < size:
                cut.hold(string[max(room, 0) :])
                string = string[: max(room, 0)]
            cut.sent += len(string)
        if string:
            super().write(string)
        return size

    def flush(self) -> None:
        """Publish what was written; costs next to nothing when that is nothing.

        ipykernel flushes both streams three times a cell, and each time waits for another thread.
        It does so before a display and before the cell's value, which must not overtake what child
        processes have printed on the descriptor until then.
        """
        if self._is_master_process():
            self.drain()
            if self._buffers:
                super().flush()
        else:
            super().flush()
        # A flush that the timer began has taken the text already, but may not have handed it on:
        # without waiting for it the cell's end would overtake its last output.
        with self._flush_lock:
            pass

    def _flush(self) -> None:
        """Hand on what was written; ipykernel calls this in its output thread."""
        with self._flush_lock:
            super()._flush()

    def end_cell(self, step: int) -> None:
        """Publish all pending output; called when a cell is over, before its end is announced."""
        self.drain()
        with self._cut_lock:
            cuts, self._cuts = self._cuts, {}
        cut = cuts.get(self.parent_header.get("msg_id", ""))
        if cut is not None and cut.held_back:
            whole = self.memory is None or self.memory.is_whole(step)
            super().write(cut.ending(step, whole=whole))

    def drain(self) -> None:
        """Publish everything written to the file descriptor so far."""
        if self._fid is None:
            return
        while _waiting(self._fid):
            self._read_once()
        with self._fd_lock:  # what the watching thread has read is published when it lets go
            pass

    def _read_once(self) -> bool:
        with self._fd_lock:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:  # the other reader was faster
                return True
            self.write(self._decoder.decode(data))
            return bool(data)

    @property
    def _fd(self) -> int:
        assert self._fid is not None
        fd: int = self._fid
        return fd

    def _watch_pipe_fd(self) -> None:
        """Publish text as it arrives on the descriptor; ipykernel runs this in a thread."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        while self._should_watch:
            poller.poll()
            if not self._should_watch or not self._read_once():
                return


def _waiting(fd: int) -> int:
    """Return the number of bytes that can be read from a pipe now."""
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
