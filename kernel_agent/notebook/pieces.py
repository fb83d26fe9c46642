"""The pieces of a run's page: templates, and text and outputs made fit for them. Pure.

How a page looks stands in ``summary.html`` (one macro a piece) and ``page.html`` beside this
module. Everything that a template is given is escaped on its way out, unless a piece made it
(:func:`kernel_agent.safe.markup.escape_text`); what was displayed comes through
:mod:`kernel_agent.notebook.outputs`.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

from kernel_agent.notebook.outputs import displayable, picture_size
from kernel_agent.notebook.tables import align_numbers
from kernel_agent.records import CellResult, OutputDict, as_text, role_of
from kernel_agent.safe import (
    FORMATS,
    INK,
    MAX_FORMATTED,
    Unreadable,
    as_printed,
    escape_text,
    format_markdown,
    highlight,
    one_line,
    paragraphs,
    plain,
    reencode,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

Alt: TypeAlias = Callable[[OutputDict], str]
MAX_OUTPUT = 20_000  # characters of one output that are shown
QUOTE = "&#34;"
SIDES = (1600, 1000, 600, 300)  # pixels to which a picture is scaled down until it fits


@dataclass
class Room:
    """Characters that are left for a part of the summary."""

    left: int

    def fits(self, source: str) -> bool:
        """Take room for this HTML if there is enough."""
        if length(source) > self.left:
            return False
        self.left -= length(source)
        return True


def length(made: str) -> int:
    """Return the characters that will be written: the parser turns quotation marks back."""
    return len(made) - made.count(QUOTE) * (len(QUOTE) - 1)


@cache
def templates() -> Environment:
    """Return the environment that renders; it escapes everything that is not markup already."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: Any) -> Any:
        if type(value) is not str:
            return value
        return Markup(escape_text(value).replace('"', QUOTE))  # noqa: S704 - in attributes, too

    templates = Environment(
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        loader=FunctionLoader(_template),
    )
    templates.globals["ink"] = INK
    # Without the elements around dollars, which can stand in no attribute and no title.
    templates.filters |= {"attribute": escape, "bare": _bare}
    return templates


def _bare(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(html.escape(plain(text), quote=False))  # noqa: S704 - escaped


def _template(name: str) -> str:
    source = resources.files("kernel_agent.notebook").joinpath(name).read_text(encoding="utf-8")
    return source if name == "page.html" else "".join(map(str.strip, source.splitlines()))


@cache
def sorting_program() -> str:
    """Return the program that lets a person sort and search tables, for a page or a widget."""
    place = resources.files("kernel_agent.notebook").joinpath("sortable.js")
    return place.read_text(encoding="utf-8")


@cache
def sorting() -> dict[str, str]:
    """Return what a page of its own runs, which is that alone, and the hash that admits it."""
    from markupsafe import Markup

    program = f"{sorting_program()}makeSortable(document.body);\n"
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    return {"program": Markup(program), "admits": f"sha256-{digest}"}  # noqa: S704 - ours


def piece(name: str, /, **data: Any) -> Markup:
    """Render one piece of the summary: a macro of its template."""
    pieces: Any = templates().get_template("summary.html").module
    made: Markup = getattr(pieces, name)(**data)
    return made


def join(parts: Sequence[Markup]) -> Markup:
    """Return pieces one after another."""
    return piece("joined", parts=parts)


def prose(text: str, *, max_chars: int, style: str = "") -> Markup:
    """Return text as paragraphs."""
    return piece("prose", paragraphs=paragraphs(text, max_chars=max_chars), style=style)


def rich(text: str, *, max_chars: int) -> Markup:
    """Return text as the Markdown that it may be; very long text as paragraphs."""
    from markupsafe import Markup

    if len(text) > min(max_chars, MAX_FORMATTED):
        return prose(text, max_chars=max_chars)
    return Markup(format_markdown(text))  # noqa: S704 - made of escaped text


def block(text: str, *, max_chars: int, where: str = "") -> Markup:
    """Return text as it was printed."""
    return piece("block", text=as_printed(text, max_chars=max_chars, where=where))


def code(source: str, *, max_chars: int) -> Markup:
    """Return a cell's source, its words coloured."""
    return piece("code", pieces=highlight(source, max_chars=max_chars))


def note(text: str) -> Markup:
    """Return a line of small print."""
    return piece("note", text=one_line(text, 500))


# --- outputs -------------------------------------------------------------------------------------


def output_pieces(result: CellResult, room: Room, alt: Alt) -> Iterator[Markup]:
    """Yield a cell's outputs: text, tables and pictures, but the answer, which stands above."""
    text = ""
    for output in result.outputs:
        kind = output.get("output_type")
        if kind == "stream":
            text += as_text(output.get("text"))[: 4 * MAX_OUTPUT]
            continue
        if text:
            yield _show_printed(text, room)
            text = ""
        if kind in ("display_data", "execute_result") and role_of(output) != "answer":
            yield display_piece(output, room, alt=alt(output))
    if text:
        yield _show_printed(text, room)


def _show_printed(text: str, room: Room) -> Markup:
    limit = min(MAX_OUTPUT, max(room.left // 3, 300))
    return block(text, max_chars=limit, where="the trace has all of it")


def display_piece(
    output: OutputDict, room: Room, *, alt: str = "Figure", rich_only: bool = False
) -> Markup:
    """Return a table, a picture or text; of what does not fit, its text."""
    from markupsafe import Markup

    data = displayable(output)["data"]
    table = data.get("text/html")
    if table is not None:
        aligned = align_numbers(table).replace("$", "<span>$</span>")
        cleaned = Markup(aligned)  # noqa: S704 - by `displayable`
        framed = piece("table", cleaned=cleaned)
        if len(framed) <= room.left:
            return framed
    for mime in FORMATS:
        if mime in data and (picture := picture_piece(mime, output, room.left - 500, alt=alt)):
            return picture
    pictured = any(mime in data for mime in FORMATS)
    if rich_only and not pictured and table is None:
        return join([])
    above = [note("A picture is left out: it does not fit here.")] if pictured else []
    return join([*above, _show_printed(as_text(data.get("text/plain")), room)])


def picture_piece(mime: str, output: OutputDict, most: int, *, alt: str) -> Markup:
    """Return a display's picture, scaled down until it fits; empty when it never does."""
    data = as_text(output["data"][mime])
    width = picture_size(output, mime).get("width")  # one for fine screens has twice the pixels
    expected, longest = len(data), 0  # characters, pixels
    for side in SIDES:
        # What has fewer pixels takes about as many characters fewer: most sides need no trial.
        if longest and expected * (side / longest) ** 2 > 1.3 * most:
            continue
        try:
            shown, *pixels = reencode(mime, data, max_side=side)
        except Unreadable:
            break
        if len(shown.data) <= most:
            source = f"data:{shown.media_type};base64,{shown.data}"
            return piece("picture", source=source, width=width, alt=alt)
        expected, longest = len(shown.data), min(side, max(pixels))
    return join([])
