"""The folders of data of a session: looked at, indexed, told of, searched, and what was read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.errors import KernelError, ToolError
from kernel_agent.records import DataFile, Event, Notice, count_text
from kernel_agent.session.folders import kept
from kernel_agent.session.folders.index import INDEX_MIME, Index, read_index
from kernel_agent.session.folders.listing import example_of_folders, list_found, tell_folders
from kernel_agent.session.folders.reads import Reads
from kernel_agent.session.folders.scan import MAX_FILES, Scan, cover
from kernel_agent.session.folders.search import MAX_MOST, MOST, Search
from kernel_agent.tools import Tool

if TYPE_CHECKING:
    import pandas as pd

    from kernel_agent.kernel import Kernel
    from kernel_agent.sandbox import Level

FIND_DATA = "find_data"
UNREADABLE = "not readable"  # a kind, as in inkernel/indexing.py
INDEX_SECONDS = 60.0
SAMPLE_CHARS = {5_000: 1_500, 20_000: 240, MAX_FILES: 60}
"""Up to so many files, the characters of each that are kept to search in."""


@dataclass(frozen=True, kw_only=True)
class Granted:
    """Paths that a kernel may read, folders whose names it may, and what it does not see."""

    readable: Sequence[Path]
    listed: Sequence[Path]
    hidden: Sequence[Path]


class Library:
    """The folders of data of a session; empty for most.

    Parameters
    ----------
    scans
        What was found in each folder.
    untrusted
        Whether they come from others.
    """

    def __init__(self, scans: Sequence[Scan] = (), *, untrusted: bool = False) -> None:
        self.scans = tuple(scans)
        self._untrusted = untrusted
        self._placed: tuple[tuple[str, Scan], ...] = ()
        self._search = Search(Index())
        self._known: tuple[str, ...] = ()  # the places for which there is an index already
        self._reads: Reads | None = None
        self._is_seen = True  # as far as is known
        self._tell: Callable[[Event], None] = lambda _event: None

    def beneath(self) -> Library:
        """Return the same folders for the session of an agent: they are not indexed again."""
        other = Library(self.scans, untrusted=self._untrusted)
        other._search, other._known = self._search, tuple(path for path, _ in self._placed)
        return other

    @property
    def tools(self) -> tuple[Tool, ...]:
        """``find_data``, where there is a folder."""
        return (Tool(self._make_tool(), untrusted=self._untrusted),) if self.scans else ()

    def _make_tool(self) -> Callable[..., pd.DataFrame]:
        def find_data(words: str = "", most: int = MOST) -> pd.DataFrame:
            """Find files of the data folders by words: path, kind, rows, columns, why; best first.

            ``words`` may be a question, names of columns, or parts of paths; without any, the
            first files by their names. Read a file by its path.
            """
            if not 1 <= most <= MAX_MOST:
                raise ToolError(f"most is a number from 1 to {MAX_MOST}", kind="ValueError")
            return self._search.table(words, most)

        find_data.__annotations__.pop("return")  # nobody need import pandas to read it
        return find_data

    def grant(self, workspace: Path, *, hides_paths: bool) -> Granted:
        """Return what a kernel may read of them.

        Parameters
        ----------
        workspace
            The session's folder, resolved.
        hides_paths
            Whether its level can hide paths in what may be read.

        Raises
        ------
        InputError
            What is to be left out lies among too many other files to grant these one by one.
        """
        readable: list[Path] = []
        listed: list[Path] = []
        hidden: list[Path] = []
        for scan in self.scans:
            own = _within(scan, workspace)
            # A kernel that root starts is another user, who may not enter the folders of runs.
            singly = own if os.geteuid() == 0 else ""
            if singly or (scan.left_out and not hides_paths):
                readable += cover(scan, besides=singly)
                listed.append(scan.real)
            else:
                readable.append(scan.real)
                hidden += [scan.real / each.path for each in scan.left_out]
        return Granted(readable=readable, listed=listed, hidden=hidden)

    async def open(
        self,
        kernel: Kernel,
        files: Sequence[DataFile],
        *,
        workspace: Path,
        level: Level,
        tell: Callable[[Event], None],
    ) -> None:
        """Make the index in a kernel that has just been started, and watch what is read.

        Parameters
        ----------
        kernel
            The kernel.
        files
            The session's inputs: the folders among them are those that were looked at.
        workspace
            The session's folder, resolved: where it lies in a folder of data it is none of it.
        level
            The kernel's level of isolation.
        tell
            Told what there is, and what is not complete.
        """
        if not self.scans or self._placed:
            return
        self._tell = tell
        by_source = {str(scan.real): scan for scan in self.scans}
        self._placed = tuple((f.path, by_source[f.source]) for f in files if f.is_folder)
        if self._known != tuple(path for path, _ in self._placed):
            await self._make_index(kernel, workspace, level.name)
        if level.shows_opened:
            self._reads = await asyncio.to_thread(Reads, self._placed)
        self._check_reads()

    async def _make_index(self, kernel: Kernel, workspace: Path, level: str) -> None:
        for _, scan in self._placed:
            self._tell(Notice(text=scan.line))
        count = sum(scan.files for scan in self.scans)
        try:
            index = await self._index(kernel, workspace, level, count)
        except KernelError as error:
            self._tell(Notice(text=f"The data was not looked through: {error}"))
            index = Index(is_whole=False)
        for line in _doubts(index, count):
            self._tell(Notice(text=line))
        self._search = Search(index)

    async def _index(self, kernel: Kernel, workspace: Path, level: str, count: int) -> Index:
        """Return the index that is kept of an earlier session, or else the kernel's."""
        asked = [
            {"path": path, "left_out": [*_left_out(scan, workspace)]} for path, scan in self._placed
        ]
        roots = [path for path, _ in self._placed]

        def read(bundle: object) -> Index:
            return read_index(bundle, roots, max_files=2 * MAX_FILES)

        states = [[path, str(scan.real), scan.state] for path, scan in self._placed]
        key = kept.key_of(states, level=level) if count >= kept.MIN_FILES else ""
        with suppress(KernelError):
            if key and (bundle := await asyncio.to_thread(kept.recall, key)):
                return await asyncio.to_thread(read, bundle)
        sample = next((chars for most, chars in SAMPLE_CHARS.items() if count <= most), 60)
        bundle = await kernel.index(asked, sample=sample, seconds=INDEX_SECONDS)
        index = await asyncio.to_thread(read, bundle)
        if key and index.is_whole and not index.failed and len(index.entries) == count:
            await asyncio.to_thread(kept.keep, key, {INDEX_MIME: bundle[INDEX_MIME]})
        return index

    def tell(self, question: str, *, has_search: bool) -> str:
        """Return the list of the folders for a model; empty without any."""
        if not self._placed:
            return ""
        return tell_folders(self._search, self._placed, question, has_search=has_search)

    def lines(self, words: str, most: int) -> list[str]:
        """Return the files that fit some words, or all layouts, a line each, for a person."""
        if words.strip():
            return list_found(self._search, words, most)
        return self.tell("", has_search=False).splitlines()

    @property
    def example(self) -> str:
        """Source of a first cell that reads a typical table; empty without one."""
        return example_of_folders(self._search.index)

    # --- what is read ------------------------------------------------------------------------

    def begin_cell(self) -> None:
        """Forget what others opened."""
        if self._reads is not None:
            self._reads.begin()

    def end_cell(self) -> None:
        """Keep what was opened while the cell ran."""
        if self._reads is not None:
            self._reads.end()

    def take_read(self) -> tuple[DataFile, ...]:
        """Return the files that cells opened since the last time; say so if not all were seen."""
        self._check_reads()
        return self._reads.take() if self._reads is not None else ()

    def _check_reads(self) -> None:
        is_whole = self._reads is not None and self._reads.is_whole
        if self._placed and self._is_seen and not is_whole:
            self._is_seen = False
            self._tell(
                Notice(text="Data: which files are read cannot be seen here, or not of all.")
            )

    def close(self) -> None:
        """Stop watching."""
        if self._reads is not None:
            self._reads.close()


def _left_out(scan: Scan, workspace: Path) -> Sequence[str]:
    own = _within(scan, workspace)
    return [*(each.path for each in scan.left_out), *([own] if own else [])]


def _within(scan: Scan, workspace: Path) -> str:
    """Return the session's folder by its path in a folder of data; empty where it is elsewhere."""
    inside = workspace.is_relative_to(scan.real)
    return str(workspace.relative_to(scan.real)) if inside else ""


def _doubts(index: Index, count: int) -> Sequence[str]:
    """Return lines on what of ``count`` files is not in the index, or not as one may expect."""
    lines = []
    closed = sum(index.layout_of(entry).kind == UNREADABLE for entry in index.entries)
    if index.is_whole and (closed := closed + max(count - len(index.entries), 0)):
        told = f"Data: {count_text(closed, 'file')} cannot be read by the cells: check the rights."
        as_root = " Of a run that root starts the cells are another user." * (os.geteuid() == 0)
        lines.append(told + as_root)
    if not index.is_whole:
        told = f"{len(index.entries):,} files were looked at, not all"
        lines.append(f"Data: {told}: the others are there, and find_data does not know them.")
    if index.failed:
        told = count_text(index.failed, "file")
        lines.append(f"Data: {told} could not be looked at: reading broke off.")
    tables = any(layout.columns for layout in index.layouts)
    if index.entries and not tables:
        kinds = sorted({layout.kind for layout in index.layouts})
        lines.append(f"Data: no table was found; there are files of the kinds {', '.join(kinds)}.")
    return lines
