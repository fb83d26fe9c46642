"""Untrusted text as inert HTML. Pure.

What the templates of :mod:`kernel_agent.notebook.page` stand on. Three things hold for all of them:

* Text is escaped, and loses the characters that reorder or hide text
  (:func:`kernel_agent.safe.text.plain`). Markdown is read in answers and thoughts alone, and a
  small part of it (:mod:`kernel_agent.safe.formatted`); no address becomes a link.
* ``$`` and the backslash stand in elements of their own, because viewers look for formulas in what
  a cell shows, and a formula may hold a link.
* Styles are inline and few: what JupyterLab's sanitiser keeps (``allowedStyles`` in its package
  ``@jupyterlab/apputils``). Colours read on white and on black, because nobody knows the theme of
  the reader (each has a contrast of 4 to both); borders and grounds are translucent greys.

:func:`belt` is the last one: an HTML5 parser that lets pass what the templates are made of.
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

MAX_HIGHLIGHTED = 20_000  # characters of one cell; the lexer takes some microseconds for each
_MATHS = re.compile(r"[$\\]")

_TAGS = {
    "div", "p", "br", "span", "strong", "small", "em", "h2", "h3", "h4", "ul", "ol", "li",
    "blockquote", "details", "summary", "pre", "code", "del", "img", "a", "table", "thead",
    "tbody", "tr", "th", "td",
}  # fmt: skip
_ATTRIBUTES = {
    "*": {"style"},
    "div": {"class"},
    "h3": {"id"},
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
    """Strip from HTML everything that the templates do not use, by an HTML5 parser."""
    import nh3

    return nh3.clean(
        source,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        filter_style_properties=_STYLES,
        url_schemes={"data"},
        link_rel=None,
    )


def escape_text(text: str) -> str:
    """Return any text as the content of an element, its line breaks not yet among it."""
    shown = html.escape(plain(text), quote=False)
    return _MATHS.sub(lambda mark: f"<span>{mark[0]}</span>", shown)


def paragraphs(text: str, *, max_chars: int) -> list[list[str]]:
    """Return text as paragraphs of lines: an empty line ends one, a line break stays."""
    text = shorten(plain(text).strip("\n"), max_chars)
    whole = [p for p in re.split(r"\n\s*\n", text) if p.strip()]
    return [paragraph.strip("\n").split("\n") for paragraph in whole]


def as_printed(text: str, *, max_chars: int, where: str = "") -> str:
    """Return printed text, shortened to its two ends when it is long."""
    return shorten(plain(text).strip("\n"), max_chars, where=where)


def highlight(source: str, *, max_chars: int) -> list[tuple[str, str]]:
    """Return a cell's source in pieces, each with the name of its colour or an empty one."""
    shown = shorten(plain(source).strip("\n"), max_chars)
    if not shown.strip():
        return []
    return list(_highlight(shown)) if len(shown) <= MAX_HIGHLIGHTED else [("", shown)]


def _highlight(source: str) -> Iterator[tuple[str, str]]:
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
        (next((ink for kind, ink in inks if token in kind), ""), text)
        for token, text in lexer.get_tokens(source)
    )
    for ink, run in groupby(coloured, key=lambda piece: piece[0]):
        yield ink, "".join(text for _, text in run)
