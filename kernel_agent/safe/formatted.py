"""A small part of an untrusted author's Markdown as inert HTML, built from escaped text. Pure.

Paragraphs, emphasis, code, headings, lists, quotations and tables. Of a link or a picture its words
and its address are shown, as text; HTML is not read at all. Nothing is loaded. Every text goes
through :func:`kernel_agent.safe.markup.escape_text`, tags and styles are those of this module, and
the page's last parser (:func:`kernel_agent.safe.markup.belt`) goes over the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kernel_agent.safe.markup import escape_text
from kernel_agent.safe.text import plain, shorten, unlinked

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_FORMATTED = 20_000  # characters; beyond it text is shown as it is written
NUMBER = re.compile(
    r"\s*[-+\u2212]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?\s?%?\s*|-?inf|NaN|None|NaT|<NA>|\.\.\."
)
"""The text of a cell that stands to the right."""

_GROUND = "background-color:rgba(128, 128, 128, 0.14);border-radius:3px;padding:1px 4px"
_LINE = "rgba(128, 128, 128, 0.35)"
_CELL = f"padding:0.2em 0.8em;border-top:1px solid {_LINE}"
_STYLES = {
    "p": "margin:0.4em 0",
    "h4": "margin:0.7em 0 0.3em 0",
    "ul": "margin:0.3em 0;padding:0 0 0 1.4em",
    "ol": "margin:0.3em 0;padding:0 0 0 1.6em",
    "blockquote": f"margin:0.4em 0;padding:0 0 0 0.8em;border-left:2px solid {_LINE}",
    "pre": "margin:0.4em 0;padding:0.5em 0.7em;font-family:monospace;white-space:pre-wrap",
    "table": "border-collapse:collapse;margin:0.5em 0",
}
_RENAMED = {"s": "del"} | {f"h{level}": "h4" for level in range(1, 7)}
_KEPT = frozenset(
    ("p", "h4", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td",
     "strong", "em", "del")
)  # fmt: skip


def format_markdown(text: str) -> str:
    """Return Markdown as HTML in which nothing is live.

    Examples
    --------
    >>> format_markdown("It is **42**, see [x](http://y)")
    '<p style="margin:0.4em 0">It is <strong>42</strong>, see x (http://y)</p>'
    """
    tokens = _parser().parse(shorten(plain(text), MAX_FORMATTED))
    _align(tokens)
    return "".join(_write(tokens))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True})
    parser.enable(["table", "strikethrough"])
    return parser.disable(["link", "image", "autolink", "html_inline", "html_block", "reference",
                           "entity"])  # fmt: skip


def _write(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.hidden:
            continue
        if token.type == "inline":
            yield from _write(token.children or ())
        elif token.type == "text":
            yield escape_text(unlinked(token.content))
        elif token.type in ("softbreak", "hardbreak"):
            yield "<br>"
        elif token.type == "code_inline":
            yield f'<code style="{_GROUND}">{escape_text(token.content)}</code>'
        elif token.type in ("fence", "code_block"):
            yield _block(token.content)
        elif token.type == "hr":
            yield '<p style="margin:0.4em 0">———</p>'
        elif token.nesting:
            yield _tag(token)


def _block(code: str) -> str:
    return f'<pre style="{_STYLES["pre"]}">{escape_text(code.strip(chr(10)))}</pre>'


def _tag(token: Token) -> str:
    name = _RENAMED.get(token.tag, token.tag)
    if name not in _KEPT:
        return ""
    if token.nesting < 0:
        return f"</{name}>"
    style = _STYLES.get(name, "")
    if name in ("th", "td"):
        style = f"{_CELL};text-align:{token.meta.get('side', 'left')}"
    return f'<{name} style="{style}">' if style else f"<{name}>"


def _align(tokens: Sequence[Token]) -> None:
    """Set the side of each table cell: as its author has said, else numbers to the right."""
    rows: list[list[tuple[Token, str]]] = []
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append((token, tokens[place + 1].content))
        elif token.type == "table_close":
            for cells in zip(*rows, strict=False):
                _set_side(cells)


def _set_side(cells: Sequence[tuple[Token, str]]) -> None:
    said = re.search(r"text-align:(left|right|center)", str(cells[0][0].attrGet("style") or ""))
    texts = [re.sub(r"[*`_]", "", text) for _, text in cells[1:]]
    numeric = bool(texts) and all(NUMBER.fullmatch(text) for text in texts)
    for token, _ in cells:
        meta: dict[str, Any] = token.meta
        meta["side"] = said[1] if said else "right" if numeric else "left"
