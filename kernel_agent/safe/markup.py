"""Text of others as HTML that is read and never obeyed. Pure.

The pieces of which :mod:`kernel_agent.notebook.page` is made. Three things hold for all of them:

* Text is escaped, and loses the characters that reorder or hide text
  (:func:`kernel_agent.safe.text.plain`). No Markdown is interpreted and no address becomes a link.
* ``$`` and the backslash stand in elements of their own, because viewers look for formulas in what
  a cell shows, and a formula may hold a link.
* Styles are inline and few: what JupyterLab's sanitiser keeps (``allowedStyles`` in its package
  ``@jupyterlab/apputils``). Colours read on white and on black, because nobody knows the theme of
  the reader (each has a contrast of 4 to both); borders and grounds are translucent greys.

:func:`belt` is the last one: an HTML5 parser that lets pass what these pieces are made of.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby

from kernel_agent.safe.text import plain, shorten

INK = {
    "blue": "#2f7bd6",
    "green": "#2b8a4b",
    "red": "#d4493f",
    "orange": "#b3701a",
    "purple": "#8f68d8",
    "teal": "#1c8a8a",
    "grey": "#7d7d7d",
}
"""Colours of text: each reads on a white and on a black ground."""

LINE = "1px solid rgba(128, 128, 128, 0.35)"
GROUND = "rgba(128, 128, 128, 0.1)"
MONO = "monospace"

MAX_HIGHLIGHTED = 20_000  # characters of one cell; the lexer takes some microseconds for each
_MATHS = re.compile(r"[$\\]")

_TAGS = {
    "div", "p", "br", "span", "strong", "small", "em", "h2", "h3", "h4", "ul", "li", "details",
    "summary", "pre", "code", "del", "img", "a", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
_ATTRIBUTES = {
    "*": {"style"},
    "div": {"class"},
    "details": {"open"},
    "img": {"src", "alt", "width"},
    "a": {"href"},
    "table": {"border", "class"},
    "th": {"colspan", "rowspan"},
    "td": {"colspan", "rowspan"},
}
_STYLES = {
    "background-color", "border", "border-collapse", "border-left", "border-radius", "border-top",
    "color", "cursor", "font-family", "font-size", "font-style", "font-weight", "line-height",
    "list-style-type", "margin", "max-height", "max-width", "overflow", "overflow-wrap", "padding",
    "opacity", "text-align", "white-space", "word-break",
}  # fmt: skip


def belt(source: str) -> str:
    """Return HTML of ours with nothing in it that our pieces do not use, by an HTML5 parser."""
    import nh3

    return nh3.clean(
        source,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        filter_style_properties=_STYLES,
        url_schemes={"data"},
        link_rel=None,
    )


def escaped(text: str) -> str:
    """Return any text as the content of an element, its line breaks not yet among it."""
    shown = html.escape(plain(text), quote=False)
    return _MATHS.sub(lambda mark: f"<span>{mark[0]}</span>", shown)


def prose(text: str, *, max_chars: int, style: str = "") -> str:
    """Return text as paragraphs: an empty line ends one, a line break stays."""
    text = shorten(plain(text).strip("\n"), max_chars)
    paragraphs = [p for p in re.split(r"\n\s*\n", text) if p.strip()]
    look = f"white-space:pre-wrap;overflow-wrap:break-word;{style}"
    return "".join(
        element("p", "<br>".join(escaped(line) for line in paragraph.strip("\n").split("\n")),
                f"margin:{'0.6em' if number else '0'} 0 0 0;{look}")
        for number, paragraph in enumerate(paragraphs)
    )  # fmt: skip


def block(text: str, *, max_chars: int, style: str = "", where: str = "") -> str:
    """Return text as it was printed, both ends of it when it is long."""
    shown = shorten(plain(text).strip("\n"), max_chars, where=where)
    return _pre(escaped(shown), style) if shown.strip() else ""


def code(source: str, *, max_chars: int) -> str:
    """Return a cell's source, its words coloured."""
    shown = shorten(plain(source).strip("\n"), max_chars)
    if not shown.strip():
        return ""
    pieces = _highlighted(shown) if len(shown) <= MAX_HIGHLIGHTED else [("", shown)]
    inner = "".join(
        f'<span style="color:{ink}">{escaped(text)}</span>' if ink else escaped(text)
        for ink, text in pieces
    )
    # JupyterLab paints code in a colour of its own.
    words = element("code", inner, "background-color:transparent;padding:0")
    return _pre(words, f"background-color:{GROUND};border-radius:4px")


def element(tag: str, inner: str, style: str = "") -> str:
    """Return an element around HTML that is ours or escaped already."""
    style = style.strip(";")
    return f'<{tag} style="{style}">{inner}</{tag}>' if style else f"<{tag}>{inner}</{tag}>"


def inked(text: str, ink: str, *, bold: bool = False) -> str:
    """Return text in one of our colours."""
    return element("strong" if bold else "span", escaped(text), f"color:{INK[ink]}")


def folded(summary: str, inner: str, *, style: str = "", opened: bool = False) -> str:
    """Return what opens when its first line is clicked."""
    opening = f'<details{" open" if opened else ""} style="{style or "margin:0.3em 0"}">'
    title = element("summary", summary, "cursor:pointer;overflow-wrap:break-word")
    return f"{opening}{title}{inner}</details>"


def _pre(inner: str, style: str) -> str:
    look = (
        f"margin:0.4em 0;padding:0.5em 0.7em;font-family:{MONO};font-size:0.88em;line-height:1.45;"
        "white-space:pre-wrap;overflow-wrap:break-word;max-height:30em;overflow:auto"
    )
    # The parser of HTML drops a newline that follows the tag; the text has none in front.
    return element("pre", inner, f"{look};{style}")


def _highlighted(source: str) -> Iterator[tuple[str, str]]:
    """Yield pieces of the source, each with its colour or none."""
    from pygments.lexers.python import PythonLexer
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    inks = (
        (Comment, "grey"),
        (String, "green"),
        (Number, "orange"),
        (Keyword, "purple"),
        (Operator.Word, "purple"),
        (Name.Decorator, "orange"),
        (Name.Function, "blue"),
        (Name.Class, "blue"),
        (Name.Namespace, "teal"),
        (Name.Builtin, "teal"),
        (Name.Exception, "red"),
    )
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    coloured = (
        (next((INK[ink] for kind, ink in inks if token in kind), ""), text)
        for token, text in lexer.get_tokens(source)
    )
    for ink, run in groupby(coloured, key=lambda piece: piece[0]):
        yield ink, "".join(text for _, text in run)
