"""Kinds of data files: the kind by the name, and whether the content agrees.

Reads at most the first megabyte and a few bytes of the end. Whether a text is a good table, or good
JSON, is for its reader to find: the agent sees the error and can mend it. What is refused is what
no reader could make sense of, with one line that says what it is and what to do.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernel_agent.errors import InputError
from kernel_agent.inkernel import KINDS, decode_text

SAMPLE_BYTES = 1 << 20
"""Bytes of a file that are read: thousands of rows, parsed in some ten milliseconds."""

_NUL_BYTES = 1 << 16

_OLE = b"\xd0\xcf\x11\xe0"
_SQLITE = b"SQLite format 3\x00"

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
_DOCUMENTS = {
    ".doc": "a Word document",
    ".docx": "a Word document",
    ".odt": "an OpenDocument text",
    ".ppt": "a PowerPoint presentation",
    ".pptx": "a PowerPoint presentation",
}


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """The beginning of a file."""

    path: Path
    head: bytes

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
    sample = _Sample(path=path, head=head)
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
    elif kind in {"CSV", "TSV", "text"}:
        _text(sample, kind)
    elif head.startswith(_SQLITE):
        _check_database(sample)
        return "SQLite"
    else:
        _check_other(sample, suffix)
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
    text = _text(sample, kind).strip()
    # Not splitlines(): it also breaks at characters that may stand inside a value.
    first, *more = re.split(r"[\r\n]+", text, maxsplit=1)
    try:
        is_line = isinstance(json.loads(first), (dict, list))
    except (ValueError, RecursionError):
        is_line = False
    if not more or text[0] not in "[{":
        return kind
    return "JSON lines" if is_line else "JSON"
