"""The content of a step for the panel's page: outputs, tables, code with its colours. Pure.

What a kernel displays passes through :mod:`kernel_agent.notebook.outputs` first, which leaves text,
pictures that we encoded, and tables that we wrote; a table travels as rows of texts. Nothing here
is markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any, TypeAlias

from kernel_agent.notebook import displayable, figure_titles
from kernel_agent.records import OutputDict, source_text
from kernel_agent.safe import FORMATS, harmless, one_line, plain, shorten

Note: TypeAlias = dict[str, Any]

MAX_TEXT = 20_000  # characters of one step's output that the page is sent; the notebook has more
MAX_CODE = 50_000
MAX_CELLS = 3_000  # of a table; a person reads fewer
MAX_OUTPUTS = 100  # of one step
MAX_PICTURES = 20  # of one step
MORE = "… more output follows; the notebook has it …\n"

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:]{0,40})?$")


class Shown:
    """The outputs of one step that have been shown, within bounds."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.any = False
        self._room = MAX_TEXT
        self._outputs = self._pictures = 0
        self._held: dict[str, str] = {}
        self._full = False

    def notes(self, output: OutputDict) -> Iterator[Note]:
        """Return the notes of an output: harmless text, pictures that we encoded, rows of texts."""
        self.any = True
        if self._full:
            return
        for shown in self._harmless(output):
            self._outputs += 1
            self._pictures += shown["kind"] == "picture"
            self._room -= _length(shown)
            if self._room < 0 or self._outputs > MAX_OUTPUTS or self._pictures > MAX_PICTURES:
                self._full = True
                yield {"op": "out", "step": self.number, "kind": "more", "text": MORE.strip()}
                return
            yield {"op": "out", "step": self.number, **shown}

    def _harmless(self, output: OutputDict) -> Iterator[Note]:
        kind = output.get("output_type")
        if kind == "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            text = self._without_escapes(name, output.get("text"))
            if text:
                yield {"kind": "stream", "name": name, "text": text[: max(self._room, 0)]}
                if len(text) > self._room:
                    self._room = -1
        elif kind == "error":
            yield _error(output)
        elif kind in ("display_data", "execute_result"):
            yield from _display(output)

    def _without_escapes(self, name: str, value: Any) -> str:
        """Return a piece of a stream as text; an escape sequence may be cut between pieces."""
        text = self._held.pop(name, "") + (value if isinstance(value, str) else "")
        if cut := _CUT_ESCAPE.search(text):
            self._held[name], text = text[cut.start() :], text[: cut.start()]
        return _COLOUR.sub("", harmless(text)).replace("\b", "")


def _length(shown: Note) -> int:
    return len(shown.get("text", ""))


def _error(output: OutputDict) -> Note:
    traceback = output.get("traceback")
    lines = [line for line in traceback if isinstance(line, str)] if traceback else []
    name, value = str(output.get("ename") or "Error"), str(output.get("evalue") or "")
    return {
        "kind": "error",
        "title": one_line(f"{name}: {value}" if value else name, 300),
        "text": shorten(plain("\n".join(lines[:200])), 6000),
    }


def _display(output: OutputDict) -> Iterator[Note]:
    data = displayable(output)["data"]
    for media_type in FORMATS:
        if media_type in data:
            about = data.get("text/plain", "")
            about = "" if about.startswith("<Figure") else one_line(about, 120)
            alt = figure_titles(output) or about
            yield {"kind": "picture", "type": media_type, "data": data[media_type], "alt": alt}
            return
    if "text/html" in data:
        table = rows(data["text/html"])
        if table is not None:
            yield {"kind": "table", **table}
            return
    text = plain(data.get("text/plain", "")).strip("\n")
    if text:
        yield {"kind": "text", "text": shorten(text, MAX_TEXT // 2)}


# --- code and calls ----------------------------------------------------------------------------


def colour_code(code: str) -> Note:
    """Return code and its colours: a letter and a length for each run of characters.

    ``k6t1f5`` colours six characters as a keyword, one as text, five as a function. Lengths are
    those of JavaScript's strings (UTF-16).
    """
    code = shorten(source_text(code), MAX_CODE).strip("\n")  # nothing that would run is hidden
    return {"code": code, "hues": "".join(_hues(code))} if code else {"code": code}


def _hues(code: str) -> Iterator[str]:
    from pygments.lexers.python import PythonLexer

    if len(code) > MAX_TEXT:
        return
    last, length = "", 0
    for token, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code):
        hue = "t" if text.isspace() and last in ("", "t") else _hue(token)
        hue = last if text.isspace() and last else hue
        if hue != last and length:
            yield f"{last}{length}"
            length = 0
        last = hue
        length += len(text) + sum(char > "\uffff" for char in text)
    if length:
        yield f"{last}{length}"


def _hue(token: Any) -> str:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    for kind, hue in (
        (Comment, "c"),
        (String, "s"),
        (Number, "n"),
        (Keyword, "k"),
        (Operator.Word, "k"),
        (Name.Builtin, "f"),
        (Name.Function, "f"),
        (Name.Class, "f"),
        (Name.Decorator, "f"),
    ):
        if token in kind:
            return hue
    return "t"


def harmless_text(text: str, max_chars: int) -> str:
    """Return text for the page, shortened in its middle."""
    return shorten(plain(text), max_chars).strip("\n")


# --- tables --------------------------------------------------------------------------------------


def rows(html: str) -> Note | None:
    """Return an output's described table as rows of texts; None without one.

    Parameters
    ----------
    html
        What :func:`kernel_agent.notebook.outputs.displayable` gives: well-formed, a few tags.

    Returns
    -------
    dict or None
        ``head`` and ``body``, lists of rows. A cell is its text; a heading is a list of its text,
        the columns and the rows that it covers. ``below`` is the text under the table.
    """
    reader = _Rows()
    reader.feed(html)
    if not reader.head and not reader.body:
        return None
    body = list(_within(reader.body, MAX_CELLS))
    below = " ".join(" ".join(reader.below).split())
    if len(body) < len(reader.body):
        below = f"{len(body)} of {len(reader.body)} rows; the notebook has all. {below}".strip()
    return {"head": reader.head[:20], "body": body, "below": below}


def _within(lines: Iterable[list[Any]], room: int) -> Iterator[list[Any]]:
    for line in lines:
        room -= len(line)
        if room < 0:
            return
        yield line


class _Rows(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.head: list[list[Any]] = []
        self.body: list[list[Any]] = []
        self.below: list[str] = []
        self._in_head = False
        self._row: list[Any] | None = None
        self._cell: tuple[str, list[str], int, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self._row = []
            (self.head if self._in_head else self.body).append(self._row)
        elif tag in ("td", "th"):
            given = dict(attrs)
            self._cell = (tag, [], _span(given.get("colspan")), _span(given.get("rowspan")))
        elif tag == "br":
            self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":
            self._in_head = False
        elif tag in ("td", "th") and self._cell is not None:
            kind, pieces, columns, lines = self._cell
            text = "".join(pieces).strip()
            if self._row is not None:
                plain_cell = kind == "td" and columns == lines == 1
                self._row.append(text if plain_cell else [text, columns, lines, kind == "th"])
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell[1].append(data)
        elif data.strip():
            self.below.append(data)


def _span(value: str | None) -> int:
    return min(int(value), 1000) if value and value.isascii() and value.isdigit() else 1
