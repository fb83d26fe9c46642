"""Kinds of data files: the kind by the name, and whether the content agrees.

Reads at most the first megabyte and a few bytes of the end. The check is lenient: preambles, ragged
last columns, odd encodings and unknown kinds are accepted, because the agent can look at them
itself. What is refused is what no reader could make sense of, with one line that says what it is
and what to do.
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from kernel_agent.errors import InputError
from kernel_agent.inkernel import KINDS, Row, decode_text, delimiter_of, rows_of

SAMPLE_BYTES = 1 << 20
"""Bytes of a file that are read: thousands of rows, parsed in some ten milliseconds."""

_NUL_BYTES = 1 << 16

_OLE = b"\xd0\xcf\x11\xe0"
_SQLITE = b"SQLite format 3\x00"
_AS_IS = "or name it .txt to hand it over as it is"

# What a file that should be text is instead, by its first bytes.
_SIGNATURES = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (_OLE, "an old Excel or Word document"),
    (b"PAR1", "a Parquet file"),
    (_SQLITE, "an SQLite database"),
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89HDF", "an HDF5 file"),
)
_NO_TABLES = (
    (b"%PDF-", "a PDF document"),
    (b"{\\rtf", "an RTF document"),
    (b"\x7fELF", "a program"),
)
_UNPACKERS: Mapping[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
}
_DOCUMENTS = {
    ".doc": "a Word document",
    ".docx": "a Word document",
    ".odt": "an OpenDocument text",
    ".ppt": "a PowerPoint presentation",
    ".pptx": "a PowerPoint presentation",
}


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """The beginning of a file; ``whole`` says that there is no more."""

    path: Path
    head: bytes
    whole: bool

    def make_error(self, fault: str, advice: str) -> InputError:
        return InputError(f"{self.path} {fault}. {advice}.")


def recognise(path: Path, file: BinaryIO) -> str:
    """Return the kind of a data file after a look at its content.

    Parameters
    ----------
    path
        The name that the user gave; its ending says what the content should be.
    file
        The file, open at its beginning; it is left anywhere.

    Returns
    -------
    str
        A value of :data:`KINDS`, ``SQLite``, or ``other``.

    Raises
    ------
    InputError
        The caller's: the file is empty or not what its name says.
    """
    head = file.read(SAMPLE_BYTES)
    sample = _Sample(path=path, head=head, whole=not file.read(1))
    if not head:
        raise sample.make_error("is empty (0 bytes)", "Check that it is the right file")
    suffix = path.suffix.lower() or path.resolve().suffix.lower()
    kind = KINDS.get(suffix, "other")
    if kind == "Parquet":
        _check_parquet(sample, file)
    elif kind == "Excel":
        _check_excel(sample, file, suffix)
    elif kind in {"JSON", "JSON lines"}:
        return _which_json(sample, kind)
    elif kind in {"CSV", "TSV"}:
        _check_table(sample, _text(sample, kind), kind)
    elif kind == "text":
        _text(sample, kind)
    elif head.startswith(_SQLITE):
        _check_database(sample)
        return "SQLite"
    else:
        _check_other(sample, suffix)
        _check_packed(sample)
    return kind


def _check_database(sample: _Sample) -> None:
    """Refuse a database whose newest rows stand in another file: they would be missed unnoticed.

    That is a log that is written ahead, or the journal of a change that was broken off
    (https://sqlite.org/tempfiles.html). Of the database itself nothing is read here.
    """
    for ending in ("-wal", "-journal"):
        beside = Path(f"{sample.path.resolve()}{ending}")
        with suppress(OSError):
            if beside.stat().st_size:
                fault = f"is in use, or was left so: {beside.name} holds changes to it"
                advice = f'Name a copy: sqlite3 {sample.path} ".backup copy.db"'
                raise sample.make_error(fault, advice)


def _check_other(sample: _Sample, suffix: str) -> None:
    """Refuse what no reader makes a table of, whatever it is called."""
    what = next((what for mark, what in _NO_TABLES if sample.head.startswith(mark)), "")
    packed = sample.head.startswith((b"PK\x03\x04", _OLE))
    what = what or (_DOCUMENTS.get(suffix, "") if packed else "")
    if what:
        advice = "Save the table that is in it as CSV or Excel, and name that file"
        raise sample.make_error(f"is no table: it is {what}", advice)


def _check_packed(sample: _Sample) -> None:
    """Refuse what is packed and damaged from its beginning on."""
    unpack = next((made for mark, made in _UNPACKERS.items() if sample.head.startswith(mark)), None)
    if unpack is None:
        return
    try:
        text = unpack().decompress(sample.head[:_NUL_BYTES], _NUL_BYTES)
        damaged = not text and sample.whole
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
        damaged = True
    if damaged:
        raise sample.make_error("is damaged: it cannot be unpacked", "Download or pack it again")


# --- text ------------------------------------------------------------------------------------


def _text(sample: _Sample, kind: str) -> str:
    """Decode the beginning of a file that should be text."""
    head = sample.head
    for signature, what in _SIGNATURES:
        if head.startswith(signature):
            advice = "Give it its proper ending, or export it as text"
            raise sample.make_error(f"is not {kind}: it is {what}", advice)
    text, encoding = decode_text(head)
    wide = encoding in {"utf-16", "utf-32"}
    if (not wide and b"\0" in head[:_NUL_BYTES]) or _controls(text[:_NUL_BYTES]) > 0.02:
        raise sample.make_error(f"is not {kind}: it holds binary data", "Export it as text (UTF-8)")
    if not text.strip():
        raise sample.make_error("holds only blank lines", "Check that it is the right file")
    if kind != "text" and re.match(r"\s*<(!doctype html|html)\b", text, re.IGNORECASE):
        advice = "Perhaps the download went wrong: download the file itself"
        raise sample.make_error(f"is a web page, not {kind}", advice)
    return text


def _controls(text: str) -> float:
    """Return the share of control characters, which text files do not have."""
    return sum(1 for c in text if c < " " and c not in "\t\n\r\f\v\x1a\x1b") / max(len(text), 1)


# --- Parquet, Excel --------------------------------------------------------------------------


def _check_parquet(sample: _Sample, file: BinaryIO) -> None:
    marks = {b"PAR1", b"PARE"}  # PARE: the footer is encrypted
    file.seek(-min(len(sample.head), 4), os.SEEK_END)
    # 12 bytes: two marks and the length of the footer between them.
    if sample.head[:4] not in marks or file.read(4) not in marks or len(sample.head) < 12:
        fault = "is not a complete Parquet file (PAR1 is missing at its beginning or end)"
        raise sample.make_error(fault, "Check that it was fully downloaded or written")


def _check_excel(sample: _Sample, file: BinaryIO, suffix: str) -> None:
    import zipfile

    if sample.head.startswith(_OLE):
        if suffix != ".xls":
            fault = "is protected by a password or an old .xls file"
            raise sample.make_error(fault, "Save it as a plain .xlsx")
        return
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        advice = "Open it in a spreadsheet and save it as .xlsx or .csv"
        raise sample.make_error("is not an Excel workbook, or is damaged", advice) from error
    if not any(name.startswith("xl/") for name in names):
        fault = "is a ZIP archive without a workbook in it"
        raise sample.make_error(fault, "Save the sheet as .xlsx or .csv")


# --- JSON ------------------------------------------------------------------------------------


def _which_json(sample: _Sample, kind: str) -> str:
    """Return ``JSON`` or ``JSON lines`` by the content: their endings are often mixed up."""
    text = _text(sample, kind)
    as_value = _json_fault(sample, text)
    as_lines = _json_lines_fault(sample, text)
    if as_lines is None and (kind == "JSON lines" or as_value):
        return "JSON lines"
    if as_value is None:
        return "JSON"
    line, reason = as_lines if as_lines and kind == "JSON lines" else as_value
    fault = f"is not valid {kind}: line {line}: {reason}"
    raise sample.make_error(fault, "Mend the file or convert it to CSV")


def _json_fault(sample: _Sample, text: str) -> tuple[int, str] | None:
    """Return line and reason of the first fault of one JSON value; None without a fault."""
    try:
        json.loads(text)
    except RecursionError:
        return None  # nested deeper than this check can look; its reader will tell
    except json.JSONDecodeError as error:
        # Where the sample ends, a sound file too is broken off.
        at_end = error.pos > len(text) - 1024 or error.msg.startswith("Unterminated string")
        return None if at_end and not sample.whole else (error.lineno, error.msg)
    return None


def _json_lines_fault(sample: _Sample, text: str) -> tuple[int, str] | None:
    """Return line and reason of the first line that is no object or array; None without a fault."""
    for number, line in enumerate(_lines(sample, text), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except RecursionError:
            return None
        except json.JSONDecodeError as error:
            return number, error.msg
        if not isinstance(value, (dict, list)):
            return number, "not a JSON object"
    return None


def _lines(sample: _Sample, text: str) -> list[str]:
    # Not splitlines(): it also breaks at characters that may stand inside a value.
    lines = re.split(r"\r\n|\n|\r", text)
    return lines if sample.whole or len(lines) == 1 else lines[:-1]


# --- tables written as text ------------------------------------------------------------------


def _check_table(sample: _Sample, text: str, kind: str) -> None:
    lines = _lines(sample, text)
    rows, open_quote = rows_of(lines, "\t" if kind == "TSV" else delimiter_of(lines[:200]))
    if open_quote and sample.whole:
        fault = f'is not valid {kind}: a quote (") that opens in line {open_quote} never closes'
        raise sample.make_error(fault, f"Close it, {_AS_IS}")
    odd = _first_odd(rows)
    if odd:
        fault = (
            f"is not a table: line {rows[0].line} has {rows[0].width} columns, "
            f"line {odd.line} has {odd.width}, and so on without a pattern"
        )
        raise sample.make_error(fault, f"Mend it, {_AS_IS}")


def _first_odd(rows: Sequence[Row]) -> Row | None:
    """Return the first row that differs from the first one when widths follow no pattern at all.

    A table is believed when most rows agree, when a block of rows agrees (the rest may be a
    preamble or footnotes), or when the widths at least stay close together.
    """
    widths = sorted(row.width for row in rows)
    if len(widths) < 3:
        return None
    agreeing = max(Counter(widths).values())
    block = max(len(list(run)) for _, run in groupby(row.width for row in rows))
    tenth = len(widths) // 10
    close = widths[-1 - tenth] <= 2 * widths[tenth]
    if agreeing * 2 >= len(widths) or block >= max(3, len(widths) // 5) or close:
        return None
    return next(row for row in rows if row.width != rows[0].width)
