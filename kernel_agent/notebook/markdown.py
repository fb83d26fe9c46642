r"""Untrusted text as Markdown and HTML in which nothing is live. Pure.

In a running notebook everything that is displayed is trusted: a script in an output, or a tag in
a Markdown cell that another program wrote, can call the server that the notebook came from and
so run code in any kernel. Thoughts, tasks, answers and outputs are therefore written so that no
renderer (JupyterLab, nbconvert, GitHub, VS Code) finds a tag, an entity, a link, a picture or a
formula in them, however its rules for nesting differ:

* ``&``, ``<``, ``$`` and ``\`` become entities, which closes tags, entities, math and escapes; the
  last two in elements of their own, because math is looked for in what entities have become, too;
* a link is written out, and any other ``[`` is escaped: no picture, reference or footnote is left;
* the mark in an address (``:`` before ``//``, ``@``, the dot after ``www``) becomes an entity,
  because renderers link addresses without being asked;
* a backtick without a partner on its own line becomes an entity, and a code span or block whose
  content could matter outside of code is written with entities, too.

What is left works: paragraphs, lists, emphasis, tables, code.
"""

from __future__ import annotations

import html
import re

from kernel_agent.safe import plain, unlinked

_FENCE = re.compile(r"( *)(`{3,}|~{3,})[ \t]*([\w+#.-]{0,30})[^`]*$")
_BACKTICKS = re.compile(r"(`+)")
_HEADING = re.compile(r"^( {0,3})#{1,6}(?=[ \t]|$)")
_UNDERLINE = re.compile(r"^( {0,3})(?==+[ \t]*$|-+[ \t]*$)")
# What would matter if a renderer did not take a code span for code: a table cell can end in it.
_LIVE_IN_SPAN = re.compile(r"[<&|\\$]|\]\s*[(\[:]|!\[")
# Formulas are looked for before code by some renderers.
_LIVE_IN_BLOCK = re.compile(r"\$\$|\\\\[\[(]|\\begin")
_MATH = {"$": "<span>&#36;</span>", "\\": "<span>&#92;</span>"}
_ENTITIES = {"&": "&amp;", "<": "&lt;", "[": r"\[", **_MATH}
# What renderers make a link of without being asked: an address, a name that begins with www., mail.
_ADDRESS = r"(?<=\w):(?=//)|(?<=\bwww)\.|(?<=\w)@(?=\w)"
_LIVE = re.compile("|".join([*map(re.escape, _ENTITIES), _ADDRESS]), re.IGNORECASE)
_INLINE = r"[&<$\\\[`*_~|#>!\]@]|:(?=//)|(?<=www)\."
_MARKUP = re.compile(_INLINE + r"|^\s*(?:[-+=]|\d+[.)])|^[ \t]+", re.MULTILINE)


def markdown(text: str) -> str:
    """Return Markdown from an untrusted author as Markdown in which nothing is live.

    Headings become the fourth level, below those of the notebook itself.
    """
    blocks: list[str] = []
    margin, fence, info, code = "", "", "", list[str]()
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if fence:
            if re.fullmatch(rf" *{fence[0]}{{{len(fence)},}}[ \t]*", line):
                blocks += ["", code_block("\n".join(code), info), ""]
                fence, code = "", []
            else:
                code.append(line.removeprefix(margin))
        elif match := _FENCE.match(line):
            margin, fence, info = match.groups()
        else:
            blocks.append(_line(line))
    if fence:
        blocks += ["", code_block("\n".join(code), info), ""]
    return "\n".join(blocks).strip("\n")


def verbatim(text: str) -> str:
    """Return any text as Markdown that renders as exactly this text, a line a line."""
    lines = [_MARKUP.sub(lambda m: _as_entities(m[0]), line) for line in text.split("\n")]
    return "\\\n".join(line or "&nbsp;" for line in lines) if any(lines) else ""


def inline(text: str) -> str:
    """Return a line of text for within a line: between marks, or in a cell of a table."""
    return re.sub(_INLINE, lambda match: _as_entities(match[0]), " ".join(text.split()))


def quote_text(text: str) -> str:
    """Return any text as a Markdown quotation that renders as exactly this text."""
    return "\n".join(f"> {line}" for line in verbatim(text).split("\n"))


def code_block(code: str, language: str = "") -> str:
    """Return any text as a block of code."""
    if _LIVE_IN_BLOCK.search(code):
        live = re.sub(r"[&<>$\\\[`]", lambda match: _as_entities(match[0]), code)
        return f"<pre><code>{live}</code></pre>"
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _line(line: str) -> str:
    line = _HEADING.sub(r"\1####", line)
    pieces = _BACKTICKS.split(line)  # text, run, text, run, …
    written, i = [_escape(pieces[0])], 1
    while i < len(pieces):
        end = next((j for j in range(i + 2, len(pieces), 2) if pieces[j] == pieces[i]), None)
        if end is None:
            written += ["&#96;" * len(pieces[i]), _escape(pieces[i + 1])]
            i += 2
        else:
            written += [_span("".join(pieces[i + 1 : end]), pieces[i]), _escape(pieces[end + 1])]
            i = end + 2
    return _UNDERLINE.sub(r"\1" + "\\\\", "".join(written))


def _span(code: str, ticks: str) -> str:
    if not _LIVE_IN_SPAN.search(code):
        return f"{ticks}{code}{ticks}"
    inner = code[1:-1] if code.startswith(" ") and code.endswith(" ") and code.strip() else code
    return f"<code>{_MARKUP.sub(lambda m: _as_entities(m[0]), inner)}</code>"


def _escape(text: str) -> str:
    text = unlinked(text)
    return _LIVE.sub(lambda match: _ENTITIES.get(match[0]) or _as_entities(match[0]), text)


def _as_entities(text: str) -> str:
    return "".join("&nbsp;" if c in " \t" else _MATH.get(c, f"&#{ord(c)};") for c in text)


# --- HTML ----------------------------------------------------------------------------------

_KEPT = frozenset(("table", "thead", "tbody", "tfoot", "tr", "th", "td", "div", "p", "br"))
_TOKEN = re.compile(
    r"<!--.*?-->|<style\b[^<>]*>.*?</style\s*>|<(/?)([a-z]+)((?:\s[^<>]*)?)>",
    re.IGNORECASE | re.DOTALL,
)
_SPAN = re.compile(
    r"""\s(colspan|rowspan)\s*=\s*["']?([1-9]\d{0,3})["']?(?=[\s/]|$)""", re.IGNORECASE
)
MAX_DEPTH = 100


def table_html(source: str) -> str | None:
    """Return the HTML of a table, written anew from harmless parts.

    Not a parser of HTML, on purpose: whatever is not one of a few plain tags, a comment or a
    style sheet makes the whole worthless, so that no two readings of it are possible (and no
    input takes quadratic time, as unclosed tags take the standard library's parser).

    Parameters
    ----------
    source
        HTML from a kernel.

    Returns
    -------
    str or None
        Only table, row, cell, div and p tags, without attributes other than spans, and escaped
        text. Style sheets and comments are dropped. None when there is no table, or anything
        else that starts like a tag.
    """
    written: list[str] = []
    opened: list[str] = []
    at = 0
    while (start := source.find("<", at)) >= 0:
        written.append(_escape_html(source[at:start]))
        token = _TOKEN.match(source, start)
        if token is None or len(opened) > MAX_DEPTH:
            return None
        at = token.end()
        closing, tag, attributes = token.groups()
        if tag is None:
            continue
        tag = tag.lower()
        if tag not in _KEPT:
            return None
        written.append(_close_tag(tag, opened) if closing else _open_tag(tag, attributes, opened))
    if '<table border="1" class="dataframe">' not in written:
        return None
    return "".join([*written, _escape_html(source[at:]), *(f"</{t}>" for t in reversed(opened))])


def _open_tag(tag: str, attributes: str, opened: list[str]) -> str:
    if tag != "br":
        opened.append(tag)
    if tag == "table":
        return '<table border="1" class="dataframe">'
    spans = "".join(f' {name.lower()}="{value}"' for name, value in _SPAN.findall(attributes))
    return f"<{tag}{spans}>"


def _close_tag(tag: str, opened: list[str]) -> str:
    """Close a tag, and those that were left open inside it."""
    if tag not in opened:
        return ""
    left = len(opened) - 1 - opened[::-1].index(tag)
    closed = "".join(f"</{name}>" for name in reversed(opened[left:]))
    del opened[left:]
    return closed


def _escape_html(text: str) -> str:
    return html.escape(plain(html.unescape(text)))
