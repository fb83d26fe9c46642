"""The trace: an append-only file of records, the one source from which everything else is made.

One JSON object a line (JSONL, UTF-8). Each line is a record of :mod:`kernel_agent.records`
(``RunStart``, ``Step``, ``FormatChange``, ``Condensation``, ``Undone`` or ``RunStop``, named by
``"$"``) with ``"v"``, the schema version. A line is flushed before the run goes on, so a killed
process loses at most the step in flight, and a half-written last line is told apart from damage. It
is described in ``docs/trace.md``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from kernel_agent.errors import TraceError, fault_of
from kernel_agent.records.codec import from_json
from kernel_agent.records.conversation import Json
from kernel_agent.records.trace import Condensation, FormatChange, Record, Undone, to_json
from kernel_agent.safe import FILE_MODE, Folder, json_items, move_aside, one_line, open_file

SCHEMA_VERSION = 3
"""The newest version that is read. A line says which one it needs: 3 for an ``Undone``, 2 for a
``Condensation`` and a ``FormatChange``, else 1, so that an older program still reads every run that
has none of them."""

FILE_NAME = "trace.jsonl"
MAX_BYTES = 4 << 30  # of a trace that is read; a file may claim any size without taking the space
MAX_LINE = 64 << 20
"""Bytes of one line. No longer one is written: see :data:`OUTPUTS_BYTES` and :func:`_line_of`."""
OUTPUTS_BYTES = MAX_LINE // 2
"""Of all outputs that are kept of a cell, as :func:`size_in_trace` counts them; the other half is
for the model's words, calls, pictures and errors."""
CUT_AT = (1_000_000, 100_000, 10_000, 1_000, 100)
"""Characters of a text, and items of a list, to which a line is cut that would be too long."""
PIECE = 1 << 20  # bytes of a line that are looked at in one step
MAX_REASON = 300
MAX_ITEMS = 4_000_000
"""Lists, objects and items in one line, counted before it is decoded: one of some bytes takes a
hundred in memory. The outputs of a cell have no more (:mod:`kernel_agent.kernel.collect`)."""
MAX_ALL_ITEMS = 4 * MAX_ITEMS


class TraceWriter:
    """Appends records to one file.

    Parameters
    ----------
    path
        The file; made when it is not there, continued when it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        """The appended records: the host's own word, even if the file changes."""
        self._before, self._written = b"", hashlib.sha256()
        try:
            with Folder(path.parent) as folder:
                self._file = folder.append(path.name, mode=FILE_MODE)
                if self._file.tell():  # continued
                    self._before = folder.read(path.name, max_bytes=MAX_BYTES)
        except OSError as error:
            raise TraceError(f"cannot write the trace {path}: {error.strerror}") from None
        self._written.update(self._before)

    def append(self, record: Record) -> None:
        """Write one record and hand it to the operating system; called by the loop.

        Raises
        ------
        TraceError
            The disk is full or gone, or no cut makes it fit a line. What is written is kept.
        """
        data = _line_of(record)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {error.strerror}") from None
        self.records.append(record)
        self._written.update(data)

    def restore(self) -> bool:
        """Write the file again if its content is not what was appended; return whether it was.

        A folder in its place is kept, with another name.

        Called by the session after each run, before anything is made of the trace: where the level
        of the sandbox does not hide the file, a cell can change it.

        Raises
        ------
        TraceError
            It cannot be written.
        """
        if self._file.closed:  # it could not be written, and who asked before has been told
            return False
        try:
            with open_file(self.path) as file:
                if os.path.samestat(os.fstat(file.fileno()), os.fstat(self._file.fileno())):
                    found = hashlib.file_digest(file, "sha256")
                    if found.digest() == self._written.digest():
                        return False
        except OSError:  # it is gone, or something else is there: that is a change, too
            pass
        try:
            with Folder(self.path.parent) as folder:
                data = self._before + b"".join(map(_line_of, self.records))
                with suppress(FileNotFoundError):
                    move_aside(folder, self.path.name)
                folder.replace(self.path.name, data, mode=FILE_MODE)
                self._file.close()
                self._file = folder.append(self.path.name, mode=FILE_MODE)
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {error.strerror}") from None
        return True

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:  # the buffer could not be written: append() has said so already
            return


def read_trace(path: str | Path) -> tuple[Record, ...]:
    """Return the records of a trace file, or of the trace in a run's folder.

    A last line without its end was being written when the process was killed: it is left out.

    Raises
    ------
    TraceError
        The file is missing, is not a trace, or is damaged before its last line.
    """
    return load(path)[0]


def load(path: str | Path) -> tuple[tuple[Record, ...], bool]:
    """Return the records, and whether the last line was left out because it is incomplete."""
    file = locate(path)
    records: list[Record] = []
    items = 0
    for number, line in enumerate(_lines(file), start=1):
        if not line.strip():
            continue
        try:
            items += _count_items(line)
            if items > MAX_ALL_ITEMS:
                raise TraceError(f"{file} has more than {MAX_ALL_ITEMS:,} items: it is not read")
            records.append(_record_of(line))
        except (ValueError, RecursionError) as error:
            if not line.endswith(b"\n"):  # the last one
                return tuple(records), True
            told = one_line(fault_of(error), MAX_REASON)
            raise TraceError(
                f"damaged trace {file}: line {number} is not a trace record ({told})"
            ) from None
    if not records:
        raise TraceError(f"{file} holds no record")
    return tuple(records), False


def _count_items(line: bytes) -> int:
    items = json_items(line, MAX_ITEMS)
    if items > MAX_ITEMS:
        raise ValueError(f"it has more than {MAX_ITEMS:,} items")
    return items


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a trace, each with its end."""
    read = 0
    try:
        with open_file(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            while line := _read_line(opened, file):
                read += len(line)
                if max(read, size) > MAX_BYTES:  # it may grow
                    raise TraceError(f"{file} is larger than {MAX_BYTES:,} bytes: it is not read")
                yield line
    except OSError as error:
        raise TraceError(f"cannot read the trace {file}: {error.strerror}") from None


def _read_line(opened: BinaryIO, file: Path) -> bytes:
    """Return the next line. What a long one holds is only kept once its end was found.

    Raises
    ------
    TraceError
        It is longer than :data:`MAX_LINE`, or cannot be a record: a hole, or no object in text.
    """
    start = opened.tell()
    piece = opened.readline(PIECE)
    if len(piece) < PIECE or piece.endswith(b"\n"):
        length = len(piece)
    else:
        length = _length_of_line(opened, piece, file)
    if length > MAX_LINE:
        raise TraceError(
            f"{file} has a line larger than {MAX_LINE:,} bytes: it is not read. No such line is "
            "written any more: read an older trace with the version that wrote it"
        )
    if length == len(piece):
        return piece
    opened.seek(start)
    return opened.read(length)


def _length_of_line(opened: BinaryIO, piece: bytes, file: Path) -> int:
    """Return how long a line is, or a number above :data:`MAX_LINE`, by looking at its pieces."""
    length = len(piece)
    is_object = piece.lstrip(b"\xef\xbb\xbf \t").startswith(b"{")
    while length <= MAX_LINE:
        if not is_object or b"\0" in piece:
            raise TraceError(f"damaged trace {file}: a long line in it is no record")
        if piece.endswith(b"\n") or not (piece := opened.readline(PIECE)):
            break
        length += len(piece)
    return length


def locate(path: str | Path) -> Path:
    """Return the trace file for a path: the file itself, or the one in that folder."""
    file = Path(path)
    if file.is_dir():
        file /= FILE_NAME
    if not os.path.lexists(file):
        raise TraceError(f"there is no trace at {file}")
    return file


def size_in_trace(value: Json) -> int:
    """Return how many bytes of a line a value takes."""
    return len(_encode(value))


def _encode(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _line_of(record: Record) -> bytes:
    """Return a record as a line that can be read again: one that is too long has its texts cut.

    A cell's outputs were bounded before, and stay as they are.

    Raises
    ------
    TraceError
        It is too long even so.
    """
    version = 1
    if isinstance(record, Condensation | FormatChange):
        version = 2
    elif isinstance(record, Undone):
        version = 3
    data = {"v": version, **to_json(record)}
    line = _encode(data) + b"\n"
    for most in CUT_AT:
        if _can_be_read(line):
            return line
        line = _encode(_cut(data, most)) + b"\n"
    if not _can_be_read(line):
        raise TraceError("a record is too large to be written to the trace")
    return line


def _can_be_read(line: bytes) -> bool:
    if len(line) <= MAX_ITEMS:
        return True
    return len(line) <= MAX_LINE and json_items(line, MAX_ITEMS) <= MAX_ITEMS


def _cut(value: Json, most: int, path: tuple[str, ...] = ()) -> Json:
    """Return a value with its long texts and lists cut, but for a cell's outputs."""
    if path == ("result", "outputs"):
        return value
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}… (cut: too long for the trace)"
    if isinstance(value, dict):
        items = islice(value.items(), most)
        return {name[:most]: _cut(item, most, (*path[:2], name)) for name, item in items}
    if isinstance(value, list):
        return [_cut(item, most, (*path[:2], "")) for item in value[:most]]
    return value


def _record_of(line: bytes) -> Record:
    data: Any = json.loads(line.decode("utf-8-sig", "surrogatepass"))
    if not isinstance(data, dict) or not isinstance(data.get("$"), str):
        raise ValueError("it has no record type")  # noqa: TRY004 - damage, not a type
    version = data.get("v", 0)
    if not isinstance(version, int):
        raise ValueError("its schema version is no number")  # noqa: TRY004 - damage, not a type
    if version > SCHEMA_VERSION:
        raise ValueError(f"schema version {version} is newer than this program")
    record = from_json(data)
    if not isinstance(record, Record):
        raise ValueError(f"{data['$']} is not a record of its own")  # noqa: TRY004 - damage, not a type
    return record
