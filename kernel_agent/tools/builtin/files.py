"""``search_files`` and ``read_file``: the files of a granted folder. ``--tools files=FOLDER``.

The folder stays outside the sandbox; the host opens what is asked for, beneath the folder and
nowhere else (:mod:`kernel_agent.safe.root`): no link, no pipe or device, no hidden file. It parses
nothing: text goes into the kernel as text and everything else as bytes, and is read there.
"""

import fnmatch
import glob
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.safe import Entry, Folder, one_line
from kernel_agent.tools.definition import Tool

FILE_MAX = 20_000_000  # bytes of a file that is read
LOOKED_AT_MAX = 200_000_000  # bytes that one search for a text reads
TEXT_FILE_MAX = 5_000_000  # larger ones are not searched for a text
FOUND_MAX = 1_000
PATTERN_MAX = 1_000  # characters; each file's name is held against it
TEXT_MAX = 10_000


def file_tools(folders: Sequence[str]) -> tuple[Tool, ...]:
    """Return the tools for folders; with more than one, their names come first in each path.

    Raises
    ------
    UsageError
        No folder was named, or one cannot be opened, or two have the same name.
    """
    granted = _name_folders(folders)
    names = ", ".join(granted)

    def search_files(pattern: str = "*", containing: str = "") -> list[dict[str, object]]:
        return _search(granted, pattern, containing)

    def read_file(path: str) -> str | bytes:
        folder, name = _place(granted, path)
        return _read(folder, name)

    search_files.__doc__ = f"""Find the user's files in {names}: dicts with path, size and lines.

        ``pattern`` is about the name (``*.csv``) or, with a slash, the whole path. ``containing``
        keeps text files with that text in any case; ``lines`` are then up to ten of theirs, as
        [number, text]. Files above {TEXT_FILE_MAX // 1_000_000} MB are not searched for it, nor
        more than {LOOKED_AT_MAX // 1_000_000} MB in all. Hidden files are not seen. At most
        {FOUND_MAX} are returned.
        """
    read_file.__doc__ = f"""Read a file that search_files found: text as str, else bytes.

        A table: ``pd.read_csv(io.StringIO(read_file(path)))``, or
        ``pd.read_parquet(io.BytesIO(read_file(path)))``. At most {FILE_MAX // 1_000_000} MB.
        """
    return (Tool(search_files, untrusted=True), Tool(read_file, untrusted=True))


def _name_folders(folders: Sequence[str]) -> dict[str, Path]:
    granted: dict[str, Path] = {}
    for text in folders:
        path = Path(text).expanduser().absolute() if text else None
        if path is None or not path.is_dir():
            raise UsageError(f"--tools files={text}: not a folder")
        if path.name in granted:
            raise UsageError(f"--tools files: two folders have the name {path.name}")
        granted[path.name or "/"] = path
    if not granted:
        raise UsageError("--tools files needs a folder: --tools files=FOLDER")
    return granted


def _search(granted: dict[str, Path], pattern: str, containing: str) -> list[dict[str, object]]:
    _check_length("pattern", pattern, PATTERN_MAX)
    _check_length("containing", containing, TEXT_MAX)
    found: list[dict[str, object]] = []
    left = LOOKED_AT_MAX
    for prefix, path in granted.items():
        with _open_folder(path) as folder:
            for entry in _matching(folder, pattern):
                lines: list[list[Any]] = []
                if containing:
                    if entry.status.st_size > min(TEXT_FILE_MAX, left):
                        continue
                    left -= entry.status.st_size
                    lines = _lines_with(folder, entry.path, containing)
                    if not lines:
                        continue
                name = f"{prefix}/{entry.path}" if len(granted) > 1 else entry.path
                found.append({"path": name, "size": entry.status.st_size, "lines": lines})
                if len(found) == FOUND_MAX:
                    return found
    return found


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ToolError(f"{name} has at most {most:,} characters", kind="ValueError")


def _matching(folder: Folder, pattern: str) -> Iterator[Entry]:
    wanted = pattern.lower()
    # Beginning with "**/" it also means the top, as elsewhere; "[x].csv" may be a file's very name.
    patterns = {wanted, wanted.removeprefix("**/"), glob.escape(wanted)}
    for entry in folder.files(wanted=_is_shown):
        path = entry.path.lower()
        name = path if "/" in wanted else path.rpartition("/")[2]
        if entry.is_file and any(fnmatch.fnmatchcase(name, one) for one in patterns):
            yield entry


def _is_shown(path: str) -> bool:
    return not path.rpartition("/")[2].startswith(".")


def _lines_with(folder: Folder, name: str, text: str) -> list[list[Any]]:
    try:
        content = folder.read(name, max_bytes=TEXT_FILE_MAX).decode("utf-8")
    except (OSError, ValueError):  # gone, not readable, no text
        return []
    wanted = text.casefold()
    if wanted not in content.casefold():
        return []
    lines = enumerate(content.splitlines(), start=1)
    found = ([number, one_line(line)] for number, line in lines if wanted in line.casefold())
    return [line for line, _ in zip(found, range(10), strict=False)]


def _place(granted: dict[str, Path], path: str) -> tuple[Path, str]:
    """Return the folder and the name in it that a path means."""
    folder, name = next(iter(granted.values())), path
    if len(granted) > 1:
        first, _, name = path.partition("/")
        if first not in granted:
            raise ToolError(f"there is no folder {first[:80]!r}", kind="FileNotFoundError")
        folder = granted[first]
    if not all(map(_is_shown, name.split("/"))):
        raise ToolError("not the path of a file that search_files finds", kind="PermissionError")
    return folder, name


def _read(path: Path, name: str) -> str | bytes:
    try:
        with _open_folder(path) as folder:
            data = folder.read(name, max_bytes=FILE_MAX)
    except OSError as error:
        kind = type(error).__name__
        raise ToolError(f"{name[:200]}: {error.strerror}", kind=kind) from None
    with suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode("utf-8-sig")
    return data


def _open_folder(path: Path) -> Folder:
    try:
        return Folder(path)
    except OSError as error:
        raise ToolError(f"{path.name} cannot be opened: {error.strerror}", kind="OSError") from None
