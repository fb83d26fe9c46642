"""The command's output: a stream that may fail, or whose reader may leave."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from kernel_agent.errors import UsageError


class Outlet:
    """A stream whose reader may leave (``| head``) or whose disk may be full.

    Writing never raises: what a run does is worth more than its display. :attr:`fault` says
    afterwards what went wrong.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str | bytes) -> None:
        """Write and flush; do nothing once that has failed. Bytes stay as they are."""
        if self.fault is not None:
            return
        try:
            if isinstance(text, bytes):
                self._stream.buffer.write(text)
            else:
                self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self.fault = error
            # What is still in the buffer would fail again, with a traceback, when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def check(self) -> None:
        """Raise the error of a write, unless the reader has merely left.

        Raises
        ------
        UsageError
            The caller's: the output goes to where it cannot be written.
        """
        if self.fault is not None and not isinstance(self.fault, BrokenPipeError):
            raise UsageError(f"The output could not be written: {self.fault.strerror}.")


def write_line(text: str | bytes, stream: TextIO | None = None) -> None:
    """Write a line, to standard output by default; bytes without an end of the line.

    Raises
    ------
    UsageError
        The caller's: the output goes to where it cannot be written.
    """
    outlet = Outlet(stream or sys.stdout)
    outlet.write(text if isinstance(text, bytes) else f"{text}\n")
    outlet.check()


def warn_of(level: str, stream: TextIO | None = None) -> None:
    """Write a line where a sandbox level protects nothing, before a kernel starts at it."""
    from kernel_agent.sandbox import AUTO, level_of

    if level != AUTO and not level_of(level).confines:
        write_line(level_of(level).line, stream)
