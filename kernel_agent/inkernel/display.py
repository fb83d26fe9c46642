"""Representations of values when they leave the kernel.

Tables and arrays carry, beside the representations that Jupyter shows, a small description of
themselves (shape, types, a preview) under a private MIME type: it is what the model is shown
(:mod:`.preview`), and what ``outputs[k]`` keeps.
``final_answer(value)`` is a display like any other, marked as the answer.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable
from itertools import islice
from typing import Any

from IPython.core.formatters import BaseFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import ObjectName, Unicode

from .answers import no_answer
from .plain import describe_answer
from .preview import (
    COLLECTIONS,
    cell_texts,
    list_name,
    preview_array,
    preview_collection,
    preview_scalar,
    preview_table,
)

VALUE_MIME = "application/vnd.kernel-agent.value+json"
ANSWER_MIME = "application/vnd.kernel-agent.answer+json"

SOURCES = ("text/plain", "text/html", "text/markdown", "text/latex")
"""What ``outputs[k]`` keeps of a display, by preference."""
TELLS_NOTHING = re.compile(r"<(?:IPython\.core\.display\.\w+ object|Figure size [^>]*)>\s*")

MAX_COLUMNS = 200  # columns described; a wider table says how many there are
MAX_ROWS = 500  # rows that are shown when an option of pandas asks for all
MAX_CELL_TEXT = 1_000  # characters of one cell of a table that is shown
MAX_TITLES = 12  # of one figure
MAX_TEXT = 1_000_000  # characters of one text representation
MAX_BINARY = 16_000_000  # characters of one base64 picture, or of a page of HTML
MAX_NOTE = 2_000  # characters beside an answer
MAX_CELL = 28_000_000  # characters of all displays of one cell; the host keeps a little more


class ValueFormatter(BaseFormatter):
    """Describe tables and arrays; everything else has no such description."""

    format_type = Unicode(VALUE_MIME)
    print_method = ObjectName("_kernel_agent_value_")
    _return_type = dict


def install(shell: InteractiveShell) -> ValueFormatter:
    """Register the descriptions by type name, so that pandas and numpy are not imported here."""
    assert shell.display_formatter is not None
    formatter = ValueFormatter(parent=shell.display_formatter)
    shell.display_formatter.formatters[VALUE_MIME] = formatter
    for module in ("pandas", "pandas.core.frame"):
        formatter.for_type_by_name(module, "DataFrame", describe_table)
    for module in ("pandas", "pandas.core.series"):
        formatter.for_type_by_name(module, "Series", describe_series)
    formatter.for_type_by_name("pandas.io.formats.style", "Styler", describe_styled)
    formatter.for_type_by_name("numpy", "ndarray", describe_array)
    formatter.for_type_by_name("numpy", "generic", describe_scalar)
    # Of figures' own type the inline backend takes all formatters away.
    formatter.for_type_by_name("matplotlib.figure", "FigureBase", describe_figure)
    for kind in COLLECTIONS:
        formatter.for_type(kind, describe_collection)
    return formatter


def describe_table(table: Any, *_: Any) -> dict[str, Any]:
    """Return kind, shape, types and a preview of a DataFrame."""
    dtypes = [[list_name(name), str(t)] for name, t in islice(table.dtypes.items(), MAX_COLUMNS)]
    described = {"kind": "DataFrame", "shape": list(table.shape), "dtypes": dtypes}
    return {**described, **preview_table(table), "table": table_texts(table)}


def table_texts(table: Any) -> dict[str, Any]:
    """Return the texts of the rows and columns of a DataFrame that are shown, as pandas cuts it.

    It is what the host renders: HTML from here goes nowhere.
    """
    import pandas as pd

    rows, row_gap = _in_view(
        len(table), pd.get_option("display.max_rows"), pd.get_option("display.min_rows"), MAX_ROWS
    )
    columns, column_gap = _in_view(
        table.shape[1], pd.get_option("display.max_columns"), None, MAX_COLUMNS
    )
    view = table.iloc[rows, columns]
    return {
        "columns": [_texts(view.columns.get_level_values(n)) for n in range(view.columns.nlevels)],
        "column_names": [_name(name) for name in view.columns.names],
        "index": [_texts(view.index.get_level_values(n)) for n in range(view.index.nlevels)],
        "index_names": [_name(name) for name in view.index.names],
        "cells": _cell_texts(view),
        "row_gap": row_gap,
        "column_gap": column_gap,
        "shape": list(table.shape),
    }


def _in_view(
    count: int, most: int | None, fewest: int | None, ours: int
) -> tuple[list[int], int | None]:
    """Return the positions that are shown, and where others are left out."""
    most = ours if not most else min(most, ours)
    if count <= most:
        return list(range(count)), None
    half = max((min(fewest, most) if fewest else most) // 2, 1)
    return [*range(half), *range(count - half, count)], half


def _texts(level: Any) -> list[str]:
    missing = level.isna()
    return [
        ("NaT" if level.dtype.kind in "mM" else "NaN") if gone else str(text)[:MAX_CELL_TEXT]
        for text, gone in zip(level.astype(str), missing, strict=True)
    ]


def _name(name: object) -> str:
    return "" if name is None else str(name)[:MAX_CELL_TEXT]


def _cell_texts(view: Any) -> list[list[str]]:
    """Return the cells as pandas writes them, a list a column."""
    return [[str(text).strip()[:MAX_CELL_TEXT] for text in column] for column in cell_texts(view)]


def describe_series(series: Any, *_: Any) -> dict[str, Any]:
    """Return kind, shape, type and a preview of a Series."""
    return {
        "kind": "Series",
        "shape": list(series.shape),
        "dtypes": [["" if series.name is None else list_name(series.name), str(series.dtype)]],
        **preview_table(series.to_frame(), names=False),
    }


def describe_styled(styled: Any, *_: Any) -> dict[str, Any]:
    """Return the description of the table below a style; a person is shown the style itself."""
    return {k: part for k, part in describe_table(styled.data).items() if k != "table"}


def describe_array(array: Any, *_: Any) -> dict[str, Any]:
    """Return kind, shape, type and a preview of an array."""
    return {
        "kind": "ndarray",
        "shape": list(array.shape),
        "dtypes": [["", str(array.dtype)]],
        **preview_array(array),
    }


def describe_scalar(value: Any, *_: Any) -> dict[str, Any]:
    """Return a numpy scalar as it is written without numpy."""
    return {"kind": "scalar", "shape": [], **preview_scalar(value)}


def describe_collection(items: Any, *_: Any) -> dict[str, Any] | None:
    """Return kind, length and a preview of a list, dict, tuple or set that needs one."""
    preview = preview_collection(items)
    return preview and {"kind": type(items).__name__, "shape": [len(items)], **preview}


def describe_figure(figure: Any, *_: Any) -> dict[str, Any]:
    """Return the titles of a figure, its own first."""
    own = getattr(figure, "get_suptitle", str)()  # of matplotlib 3.8
    titles = [own, *(axes.get_title() for axes in figure.axes)]
    return {"kind": "Figure", "titles": [title for title in titles if title][:MAX_TITLES]}


def kept_text(data: dict[str, Any]) -> str | None:
    """Return what ``outputs[k]`` keeps of a display."""
    described = data.get(VALUE_MIME)
    if isinstance(described, dict):
        for name in ("whole", "preview"):
            if isinstance(described.get(name), str):
                return str(described[name])
    texts = [data[mime] for mime in SOURCES if isinstance(data.get(mime), str)]
    return next((text for text in texts if not TELLS_NOTHING.fullmatch(text)), None)


class DisplayCap:
    """Keep displays within bounds, and their text for ``outputs[k]``.

    Parameters
    ----------
    remember
        Takes the text of each display.
    """

    def __init__(self, remember: Callable[[str], None]) -> None:
        self._remember = remember
        self._chars = 0

    def install(self, shell: Any) -> None:
        """Intercept both ``display(…)`` and the value of a cell's last line."""
        shell.display_pub.register_hook(self._on_message)
        write = shell.displayhook.write_format_data
        # ipykernel's own hook for this came after 7.1.
        shell.displayhook.write_format_data = lambda data, metadata=None: write(
            self.bound(data), metadata
        )

    def begin(self) -> None:
        """Start counting for a new cell."""
        self._chars = 0

    def _on_message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content", {})
        if isinstance(content.get("data"), dict):
            content["data"] = self.bound(content["data"])
        return message

    def bound(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the representations that are small enough, or a note in their place."""
        kept: dict[str, Any] = {}
        left_out: list[str] = []
        for mime, given in data.items():
            value = b64encode(given).decode() if isinstance(given, bytes) else given
            size = len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
            if size > (MAX_BINARY if mime.startswith(("image/", "text/html")) else MAX_TEXT):
                left_out.append(f"[{mime} of {size:,} characters: too large to show]")
            else:
                kept[mime] = value
                self._chars += size
        if left_out:
            kept["text/plain"] = "\n".join([*filter(None, [kept.get("text/plain")]), *left_out])
        text = kept_text(kept)
        if text is not None:
            self._remember(text + "\n")
        if self._chars > MAX_CELL:
            return {"text/plain": f"[not shown: the cell displayed over {MAX_CELL:,} characters]"}
        return kept


class FinalAnswer:
    """The function ``final_answer``: the first call of a run gives the answer."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._given = False
        self._source = ""
        self.value: Any = None
        """The latest answer."""
        self.__name__ = "final_answer"
        self.__doc__ = (
            "End the run with this value as the answer: text, number, table or figure. A note is a "
            "caveat that is shown below it."
        )

    def begin(self, source: str) -> None:
        """Accept an answer again: a new cell began, and it only began if the run goes on."""
        self._given = False
        self._source = source

    def __call__(self, value: Any, note: str = "") -> None:
        """Publish the value as the answer, with a caveat that is shown below it.

        Raises
        ------
        TypeError
            It is not an answer. The cell fails, and the run goes on.
        """
        if self._given:
            sys.stderr.write("final_answer was called already; only the first call counts\n")
            return
        if reason := no_answer(value, self._source):
            raise TypeError(reason)
        self._given = True
        self.value = value
        assert self._shell.display_formatter is not None
        data, metadata = self._shell.display_formatter.format(value)
        if isinstance(value, str):
            data = {"text/plain": value[:MAX_TEXT]}
        data[ANSWER_MIME] = {**describe_answer(value), "note": str(note or "")[:MAX_NOTE]}
        metadata["kernel_agent"] = {"role": "answer"}
        self._shell.display_pub.publish(data, metadata)

    def __repr__(self) -> str:
        return "final_answer(value, note=''): ends the run with this value as the answer"
