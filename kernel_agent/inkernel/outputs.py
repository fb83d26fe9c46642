"""``outputs[k]``: the full text of every step's output, and its code, kept where it was made.

The model is shown a shortened text; the whole of it stays in the kernel, in one unlinked file on
disk, so that a cell that prints a gigabyte costs neither memory nor context. What goes beyond
the cap of a cell is counted, not kept.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

CELL_CAP = 64 * 1024 * 1024  # bytes of one step that can be reopened
BUFFER = 64 * 1024  # bytes held back before they are written: most cells never touch the disk


def _ranges(steps: Iterable[int]) -> str:
    """Return numbers as they run: those that are missing between them are to be seen."""
    numbers = sorted(steps)
    if not numbers:
        return "no step yet"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = [f"{first} to {last}" if last > first else str(first) for first, last in runs]
    return f"step{'s' * (len(numbers) > 1)} {', '.join(told)} (no undone step, and no call)"


class Memory(Mapping[int, str]):
    """A read-only mapping from step number to the text of its output.

    Parameters
    ----------
    cell_cap
        Bytes kept for one step.
    """

    def __init__(self, cell_cap: int = CELL_CAP) -> None:
        self._cell_cap = cell_cap
        self._pieces: dict[int, list[tuple[int, int]]] = {}  # step -> (offset, length) in the file
        self._left_out: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._code: dict[int, str] = {}
        self._buffer: list[tuple[int, bytes]] = []  # (step, text) that is not on disk yet
        self._buffered = 0
        self._step = 0
        self._end = 0
        self._file: int | None = None
        self._lock = threading.RLock()

    def begin(self, step: int, code: str = "") -> None:
        """Send what is appended from now on to ``step``; called before each cell."""
        with self._lock:
            self._step = step
            self._code[step] = code
            self._pieces[step] = []
            self._left_out[step] = self._sizes[step] = 0

    def append(self, text: str) -> None:
        """Keep ``text``, from whichever thread printed it."""
        if self._step not in self._pieces:
            return
        with self._lock:
            room = self._cell_cap - self._sizes[self._step]
            if room <= 0:
                self._left_out[self._step] += len(text)
                return
            data = text.encode("utf-8", "surrogatepass")
            kept = data[:room]
            self._left_out[self._step] += len(data) - len(kept)
            self._sizes[self._step] += len(kept)
            self._buffer.append((self._step, kept))
            self._buffered += len(kept)
            if self._buffered > BUFFER:
                self._write_buffer()

    def is_whole(self, step: int) -> bool:
        """Whether everything that the step printed can be reopened."""
        return not self._left_out.get(step)

    def code(self, step: int) -> str:
        """Return the code of a step, as it ran."""
        self._check(step)
        return self._code[step]

    def _check(self, step: int) -> None:
        if step not in self._pieces:
            raise KeyError(f"outputs[{step!r}]: this kernel has run {_ranges(self._pieces)}")

    def _write_buffer(self) -> None:
        buffer, self._buffer, self._buffered = self._buffer, [], 0
        for step, pieces in groupby(buffer, key=itemgetter(0)):
            data = b"".join(piece for _, piece in pieces)
            try:
                self._write(data)
            except OSError:  # the disk is full: say so when it is asked for, do not fail the cell
                self._left_out[step] += len(data)
                continue
            self._pieces[step].append((self._end, len(data)))
            self._end += len(data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            with tempfile.TemporaryFile() as made:
                self._file = os.dup(made.fileno())
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], self._end + written)

    def __getitem__(self, step: int) -> str:
        with self._lock:
            self._check(step)
            self._write_buffer()
            data = b"".join(
                os.pread(self._file, length, offset)
                for offset, length in self._pieces[step]
                if self._file is not None
            )
            lost = self._left_out[step]
            # What was cut at the cap may end in half a character; else it is what was printed.
            text = data.decode("utf-8", "replace" if lost else "surrogatepass")
            return f"{text}\n… {lost:,} more characters were not kept …" if lost else text

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._pieces))

    def __len__(self) -> int:
        return len(self._pieces)

    def __repr__(self) -> str:
        return (
            f"outputs of {len(self)} steps: outputs[k] is the full text of step k's output, "
            "outputs.code(k) its code"
        )
