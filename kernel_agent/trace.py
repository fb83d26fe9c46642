"""The trace: an append-only file of records, the one source from which everything else is made.

One JSON object a line (JSONL, UTF-8). Each line is a record of :mod:`kernel_agent.records`
(``RunStart``, ``Step``, ``FormatChange``, ``Condensation`` or ``RunStop``, named by ``"$"``) with
``"v"``, the schema version. A line is flushed before the run goes on, so a killed process loses at
most the step in flight, and a half-written last line is told apart from damage. It is described in
``docs/trace.md``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_agent.errors import TraceError
from kernel_agent.records import (
    Condensation,
    FormatChange,
    Record,
    RunStop,
    from_json,
    to_json,
)

SCHEMA_VERSION = 2
"""The newest version that is read. A line says which one it needs: 2 for a ``Condensation`` and a
``FormatChange``, else 1, so that an older program still reads every run that has neither."""

FILE_NAME = "trace.jsonl"


class TraceWriter:
    """Appends records to one file.

    Parameters
    ----------
    path
        The file; made when it is not there, continued when it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("ab")
        except OSError as error:
            raise TraceError(f"cannot write the trace {path}: {error.strerror}") from None

    def append(self, record: Record) -> None:
        """Write one record and hand it to the operating system; called by the loop.

        Raises
        ------
        TraceError
            The disk is full or gone. What was written before is kept.
        """
        version = 2 if isinstance(record, Condensation | FormatChange) else 1
        line = json.dumps({"v": version, **to_json(record)}, ensure_ascii=False)
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {error.strerror}") from None

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
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(f"cannot read the trace {file}: {error.strerror}") from None
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_record_of(line))
        except ValueError as error:
            if number == len(lines):
                return tuple(records), True
            raise TraceError(f"{file}, line {number}: not a trace record ({error})") from None
    if not records:
        raise TraceError(f"{file} holds no record")
    return tuple(records), False


def locate(path: str | Path) -> Path:
    """Return the trace file that is meant: the file itself, or the one in that folder."""
    file = Path(path)
    if file.is_dir():
        file /= FILE_NAME
    if not file.exists():
        raise TraceError(f"there is no trace at {file}")
    return file


def _record_of(line: bytes) -> Record:
    data: Any = json.loads(line)
    if not isinstance(data, dict) or "$" not in data:
        raise ValueError("it has no record type")
    if data.get("v", 0) > SCHEMA_VERSION:
        raise ValueError(f"schema version {data['v']} is newer than this program")
    record = from_json(data)
    if not isinstance(record, Record):
        raise ValueError(f"{data['$']} is not a record of its own")  # noqa: TRY004 - damage, not a type
    return record


def follow(path: str | Path, *, poll_s: float = 0.2) -> Iterator[Record]:
    """Yield records as they are written, and end with the ``RunStop`` that ends the file.

    For looking at a run from another process. Never ends for a run that was killed.
    """
    with locate(path).open("rb") as file:
        rest = b""
        while True:
            piece = file.readline()
            if not piece:
                time.sleep(poll_s)
                continue
            rest += piece
            if not rest.endswith(b"\n"):
                continue
            record = _record_of(rest)
            rest = b""
            yield record
            if isinstance(record, RunStop):
                return
