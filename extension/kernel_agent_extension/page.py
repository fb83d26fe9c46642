"""The static page as data: elements, for a panel that has to show it itself. Pure.

A panel builds elements and never interprets text, so the page travels as a tree: an element is its
name, its attributes and its children, a text is a text. Only names and attributes that are listed
here are in it, and the panel has the same list.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TypeAlias

Page: TypeAlias = "list[str | list[str | dict[str, str] | Page]]"

# fmt: off
ELEMENTS = frozenset((
    "a", "b", "blockquote", "br", "caption", "code", "dd", "details", "div", "dl", "dt", "em",
    "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "li", "ol", "p",
    "pre", "small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot",
    "th", "thead", "tr", "ul",
))
EMPTY = frozenset(("br", "hr", "img"))
ATTRIBUTES = frozenset((
    "alt", "aria-label", "class", "colspan", "dir", "href", "open", "role", "rowspan", "scope",
    "src", "style", "title",
))
# fmt: on


def page_of(html: str) -> Page:
    """Return the page's elements.

    Parameters
    ----------
    html
        What :func:`kernel_agent.notebook.summary_html` gives: well-formed.

    Examples
    --------
    >>> page_of("<p class='a' onclick='x()'>1 &lt; <b>2</b></p>")
    [['p', {'class': 'a'}, ['1 < ', ['b', {}, ['2']]]]]
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page: Page = []
        self._open: list[tuple[str, Page]] = [("", self.page)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ELEMENTS:
            return
        kept = {name: value or "" for name, value in attrs if name in ATTRIBUTES}
        inner: Page = []
        self._open[-1][1].append([tag, kept, inner])
        if tag not in EMPTY:
            self._open.append((tag, inner))

    def handle_endtag(self, tag: str) -> None:
        if len(self._open) > 1 and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1][1].append(data)
