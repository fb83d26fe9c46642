"""Index of folders of data, as the host holds it: what the kernel says of them, checked. Pure.

The kernel that reads the files may be taken over by one of them, before any cell has run: each
field is looked at, cut, and held against what was granted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_agent.errors import KernelError

INDEX_MIME = "application/vnd.kernel-agent.index+json"  # as in inkernel/folders.py
MAX_LAYOUTS = 20_000
MAX_TEXT = 400  # characters of a field
MAX_WORDS = 2_000  # characters of a file to search in
MAX_PATH = 4_096
MAX_COLUMNS = 200


@dataclass(frozen=True, slots=True)
class Layout:
    """What files that are read alike have in common, with the first rows of one of them."""

    kind: str
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    skipped: int = 0
    encoding: str = ""
    regular: bool = False
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: path in the session's folder, bytes, layout by number, rows or -1, and its words."""

    path: str
    bytes: int
    layout: int
    rows: int = -1
    about: bool = False
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Index:
    """All files of the session's folders of data, in the order of their names.

    ``is_whole`` says that each was looked at; ``failed`` counts those over which their reader
    ended.
    """

    entries: tuple[Entry, ...] = ()
    layouts: tuple[Layout, ...] = ()
    is_whole: bool = True
    failed: int = 0

    def layout_of(self, entry: Entry) -> Layout:
        """Return the layout of one of its files."""
        return self.layouts[entry.layout]


def read_index(bundle: Any, roots: Sequence[str], *, max_files: int) -> Index:
    """Return the index that a kernel gave.

    Parameters
    ----------
    bundle
        The display data; anything, from a hostile kernel.
    roots
        The granted folders, by their paths in the session's folder.
    max_files
        How many files there can be.

    Raises
    ------
    KernelError
        The kernel gave something else.
    """
    found = bundle.get(INDEX_MIME) if isinstance(bundle, Mapping) else None
    if not isinstance(found, Mapping):
        raise KernelError("the kernel gave no index of the data")
    layouts = tuple(_layouts(found.get("layouts")))
    prefixes = tuple(f"{root}/" for root in roots)
    entries = tuple(_entries(found.get("files"), prefixes, layouts, max_files))
    failed = found.get("failed")
    return Index(
        entries=entries,
        layouts=layouts,
        is_whole=found.get("whole") is True,
        failed=len(failed) if isinstance(failed, list) else 0,
    )


def _layouts(found: Any) -> Iterator[Layout]:
    for each in _items(found)[:MAX_LAYOUTS]:
        kind, columns, delimiter, skipped, encoding, regular, shown = _fields(each, 7)
        yield Layout(
            kind=_text(kind, 40) or "other",
            columns=tuple(_text(name, 80) for name in _items(columns)[:MAX_COLUMNS]),
            delimiter=_text(delimiter, 1),
            skipped=_number(skipped),
            encoding=_text(encoding, 40),
            regular=regular is True,
            shown=tuple(_text(line) for line in _items(shown)[:3]),
        )


def _entries(
    found: Any, prefixes: tuple[str, ...], layouts: Sequence[Layout], max_files: int
) -> Iterator[Entry]:
    for each in _items(found)[:max_files]:
        _, path, size, layout, rows, about, words = _fields(each, 7)
        number = _number(layout)
        name = path if isinstance(path, str) else ""
        beneath = name.startswith(prefixes) and ".." not in name.split("/")
        if not beneath or len(name) > MAX_PATH or number >= len(layouts):
            continue
        yield Entry(
            path=name,
            bytes=_number(size),
            layout=number,
            rows=_number(rows) if rows != -1 else -1,
            about=about is True,
            words=_text(words, MAX_WORDS),
        )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _fields(value: Any, count: int) -> list[Any]:
    fields = _items(value)[:count]
    return [*fields, *[None] * (count - len(fields))]


def _text(value: Any, most: int = MAX_TEXT) -> str:
    return value[:most] if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0
