"""Tell a model of the session's folders: the files that fit its question, then all the layouts.

Whatever the number of files the list has at most :data:`MAX_LISTING` characters. What does not fit
is counted, and found by words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kernel_agent.safe import one_line, size_text, write_unseen
from kernel_agent.session.folders.index import Entry, Index, Layout
from kernel_agent.session.folders.scan import Scan
from kernel_agent.session.folders.search import Found, Search

MAX_LISTING = 3_000  # characters
MAX_LINE = 240
BEST = 5  # files that fit a question


def tell_folders(
    search: Search, scans: Sequence[tuple[str, Scan]], question: str, *, has_search: bool = True
) -> str:
    """Return the list of the session's folders for the message that begins a run.

    Parameters
    ----------
    search
        Search in their index.
    scans
        Each folder's path in the session's folder, and what was found in it.
    question
        The task, in words.
    has_search
        Whether cells can call ``find_data``.
    """
    index = search.index
    lines = [_head(path, scan) for path, scan in scans]
    if has_search:
        lines.append('  find_data("words") returns a DataFrame of the files that fit best.')
    lines += _warnings(index)
    best = search.best(question, BEST)
    if best:
        lines.append("  Fit the question best:")
        lines += [line for each in best for line in _file(index, each)]
    return _fill(lines, list(_layouts(index, {each.entry.layout for each in best})))


def list_found(search: Search, words: str, most: int) -> list[str]:
    """Return the files that fit some words, and why, a line each."""
    index = search.index
    return [
        one_line(f"{_about(found.entry, index.layout_of(found.entry))} — {found.why}", 2 * MAX_LINE)
        for found in search.best(words, most)
    ]


def example_of_folders(index: Index) -> str:
    """Return the source of a first cell that reads a typical table; empty without one."""
    counted = Counter(entry.layout for entry in index.entries)
    for layout, _ in counted.most_common():
        entry = next(entry for entry in index.entries if entry.layout == layout)
        call = read_call(entry, index.layouts[layout])
        if call and _is_plain(entry.path):
            return f"import pandas as pd\n\ndf = pd.{call}\ndf.head()"
    return ""


def read_call(entry: Entry, layout: Layout) -> str:
    """Return the call of pandas that reads a file; empty where a plain one does not."""
    path, kind = repr(entry.path).replace("'", '"'), layout.kind.removesuffix(", gzip")
    if not layout.regular or not _is_plain(entry.path):
        return ""
    if kind in ("CSV", "TSV"):
        options = [path]
        options += [f'sep="{_escaped(layout.delimiter)}"'] if layout.delimiter != "," else []
        options += [f"skiprows={layout.skipped}"] if layout.skipped else []
        options += [f'encoding="{layout.encoding}"'] if layout.encoding else []
        return f"read_csv({', '.join(options)})"
    if kind == "Excel":
        skipped = f", skiprows={layout.skipped}" if layout.skipped else ""
        return f"read_excel({path}{skipped})"
    if kind == "JSON lines":
        return f"read_json({path}, lines=True)"
    return {"Parquet": f"read_parquet({path})", "JSON": f"read_json({path})"}.get(kind, "")


def _escaped(delimiter: str) -> str:
    return "\\t" if delimiter == "\t" else delimiter


def _is_plain(path: str) -> bool:
    return path.isprintable() and write_unseen(path) == path and not set(path) & set("\"'\\")


def _head(path: str, scan: Scan) -> str:
    return f"- {one_line(path, 100)} (a folder with {scan.files:,} files, {size_text(scan.bytes)})"


def _warnings(index: Index) -> Iterator[str]:
    if not index.is_whole or index.failed:
        yield "  (not every file was looked at: the list is not complete)"


def _file(index: Index, found: Found) -> Iterator[str]:
    layout = index.layout_of(found.entry)
    yield f"  - {_about(found.entry, layout)}"
    if found.entry.words.strip():
        yield f"      {one_line(found.entry.words, MAX_LINE)}"


def _about(entry: Entry, layout: Layout) -> str:
    facts = [layout.kind, *([_rows(entry)] if entry.rows >= 0 else [])]
    if layout.delimiter not in ("", ","):
        facts.append(f'sep="{_escaped(layout.delimiter)}"')
    facts += [f"skiprows={layout.skipped}"] if layout.skipped else []
    facts += [f"encoding={layout.encoding}"] if layout.encoding else []
    told = layout.columns or layout.shown[:1]
    columns = f": {', '.join(told)}" if told else ""
    return one_line(f"{entry.path} ({', '.join(facts)}){columns}", MAX_LINE)


def _rows(entry: Entry) -> str:
    return f"{'about ' if entry.about else ''}{entry.rows:,} rows"


def _layouts(index: Index, shown: set[int]) -> Iterator[str]:
    """Yield a line for each layout that was not told of: tables first, by their number of files."""
    alike: dict[int, list[Entry]] = {}
    for entry in index.entries:
        alike.setdefault(entry.layout, []).append(entry)
    order = sorted(alike, key=lambda n: (not index.layouts[n].columns, -len(alike[n])))
    for number in order:
        entries, layout = alike[number], index.layouts[number]
        if number in shown and len(entries) <= BEST:
            continue
        if len(entries) == 1:
            yield f"  - {_about(entries[0], layout)}"
            continue
        columns = f": {', '.join(layout.columns)}" if layout.columns else ""
        names = f"{entries[0].path}, {entries[1].path}"
        more = ", …" if len(entries) > 2 else ""
        told = f"{len(entries):,} {layout.kind} files ({names}{more}){columns}"
        yield f"  - {one_line(told, MAX_LINE)}"


def _fill(lines: list[str], layouts: list[str]) -> str:
    """Return the lines, and of the layouts as many as there is room for."""
    room = MAX_LISTING - sum(len(line) + 1 for line in lines) - 80
    shown: list[str] = []
    for line in layouts:
        if room < len(line) + 1:
            break
        room -= len(line) + 1
        shown.append(line)
    head = ["  All layouts:" if lines[-1:] and len(shown) == len(layouts) else "  Layouts:"]
    more = len(layouts) - len(shown)
    rest = [f"  … and {more:,} more layouts"] if more else []
    return "\n".join([*lines, *(head if shown else []), *shown, *rest])
