"""Tell which names there are when one is not found: columns of a table, packages.

A ``KeyError`` names what was asked for, and nothing else. The table is in the frames of its
traceback: a note is added to the error, with the nearest names and those that there are.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from types import TracebackType
from typing import Any

from .preview import list_name

MAX_LABELS = 5_000  # that are looked at
LISTED_CHARS = 500  # of the names that are listed
PACKAGES = (
    "numpy", "pandas", "scipy", "sklearn", "statsmodels", "matplotlib", "seaborn", "plotly",
    "altair", "polars", "duckdb", "pyarrow", "openpyxl", "lxml", "bs4", "tabulate", "sympy",
    "networkx", "xarray", "PIL", "requests",
)  # fmt: skip
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_SEVERAL = re.compile(r"not in index|not found in axis|are in the")  # pandas' words for many names


def explain(error: BaseException) -> None:
    """Add a note to an error that names what is not there; called before a traceback is shown."""
    if isinstance(error, ModuleNotFoundError) and error.name and not _notes(error):
        there = [name for name in PACKAGES if _is_installed(name)]
        error.add_note(f"Packages for data that are installed: {', '.join(there) or 'none'}")
    if isinstance(error, KeyError) and "pandas" in sys.modules and not _notes(error):
        with suppress(Exception):  # a table in a state that nobody thought of: no hint
            found = _find_labels(error.__traceback__)
            if found is not None:
                error.add_note(_hint(_asked(error), *found))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # it is half imported, or imports are limited
        return False


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def _find_labels(traceback: TracebackType | None) -> tuple[str, Any] | None:
    """Return the labels that were searched, and whether they are columns or rows."""
    pandas: Any = sys.modules["pandas"]
    columns: list[Any] = []
    found = None
    for values in _pandas_locals(traceback):
        for value in values:
            if isinstance(value, pandas.DataFrame):
                columns.append(value.columns)
                found = value.columns
            elif isinstance(value, pandas.Series):
                found = value.index
            elif isinstance(value, pandas.Index):
                found = value
    if found is None:
        return None
    return "columns" if any(found is one for one in columns) else "labels", found


def _pandas_locals(traceback: TracebackType | None) -> Iterator[list[Any]]:
    while traceback is not None:
        frame = traceback.tb_frame
        if str(frame.f_globals.get("__name__", "")).startswith("pandas."):
            yield [frame.f_locals[name] for name in ("obj", "self") if name in frame.f_locals]
        traceback = traceback.tb_next


def _asked(error: KeyError) -> list[str]:
    text = str(error.args[0]) if error.args else ""
    return _QUOTED.findall(text) if _SEVERAL.search(text) else [text]


def _hint(asked: list[str], kind: str, labels: Any) -> str:
    names = [str(name) for name in islice(labels, MAX_LABELS)]
    near = list(dict.fromkeys(name for one in asked for name in _nearest(one, names)))
    listed = list(_fitting(map(list_name, names)))
    more = len(labels) - len(listed)
    told = f"The {kind} are: {', '.join(listed)}" + (f", and {more:,} more" if more else "")
    return f"Nearest: {', '.join(map(list_name, near))}. {told}" if near else told


def _nearest(asked: str, names: list[str]) -> list[str]:
    plain = {_fold(name): name for name in reversed(names)}
    return [plain[near] for near in difflib.get_close_matches(_fold(asked), plain, n=3)]


def _fold(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())


def _fitting(names: Iterable[str]) -> Iterator[str]:
    room = LISTED_CHARS
    for name in names:
        room -= len(name) + 2
        if room < 0:
            return
        yield name
