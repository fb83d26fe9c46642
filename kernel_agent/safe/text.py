"""Make text from a kernel or a model fit to show. Pure.

What is written to a stream is meant for a terminal: colours, progress bars that overwrite
themselves, and, from hostile code, sequences that rename windows or write clipboards.
:func:`plain` gives what would be left standing on the screen; :func:`harmless` keeps the colours
that Jupyter shows and takes the rest away; :func:`shorten` keeps both ends of what is too long.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import cache

_COLOUR = r"\x1b\[[0-9;:]*m"
# ECMA-48: strings (OSC, DCS, SOS, PM, APC) up to their terminator or the end of the line, then
# control sequences, then the two-character ones. Their one-character forms (0x80-0x9f) are not
# read as such: in data they are wrongly decoded letters, and dropping the one is enough.
_SEQUENCE = (
    r"\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_ESCAPES = re.compile(_SEQUENCE)
_COLOUR_OR_ESCAPE = re.compile(f"({_COLOUR})|{_SEQUENCE}")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_CONTROLS_BUT_MOVES = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
# Overrides, embeddings and isolates: they make text read as something else than it is.
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]+")
# What prints as nothing: soft hyphens, joiners of words, fillers, tags (which hold whole texts) and
# selectors (Unicode: Cf and Default_Ignorable; of Cf not the signs of numbers, which are seen).
_UNSEEN_RANGES = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200B), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_UNSEEN = frozenset(chr(n) for first, last in _UNSEEN_RANGES for n in range(first, last + 1))
_LOOKS = "\ufe0e\ufe0f"  # the character before as text, or as a picture
# Scripts and emoji need these, but never two of them in a row.
_JOINERS = re.compile(r"[\u061c\u200c-\u200f]{2,}")
# Possessive, and one that never ends ends with the text: else 30 million characters from a kernel
# cost 3.5 GB, or minutes.
_JSON_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_WINDOW = 1_000_000  # characters of JSON that are looked at in one step
_SURROGATE = re.compile(r"[\ud800-\udfff]")

_LINK = re.compile(r"!?\[([^\[\]\n]{1,500})\]\(([^()\s]{1,2000})\)")
LEFT_OUT = re.compile(r"\n?… ([\d,]+) characters left out[^\n]*…\n?")
"""The line that :func:`shorten` puts where text was left out."""


def plain(text: str) -> str:
    r"""Return the text as a terminal would finally show it, in lines of printable characters.

    Escape sequences are dropped, text that a carriage return or backspace overwrote is gone,
    control characters other than newline and tab are dropped, and halves of characters (lone
    surrogates, which no file can hold) become U+FFFD. What cannot be seen is written by its number.

    Examples
    --------
    >>> plain("10 %\r50 %\rdone\n\x1b[31mred\x1b[0m")
    'done\nred'
    """
    text = encodable(_ESCAPES.sub("", text)).replace("\r\n", "\n")
    text = text.replace("\v", "\n").replace("\f", "\n")
    if "\r" in text or "\b" in text:
        text = "\n".join(_overwrite(line) for line in text.split("\n"))
    text = _CONTROLS.sub("", text)
    return text if text.isascii() else write_unseen(text)


def harmless(text: str) -> str:
    """Return the text as written, with only text, colours and cursor movement left."""
    kept = _COLOUR_OR_ESCAPE.sub(lambda match: match[1] or "", encodable(text))
    return visible(_CONTROLS_BUT_MOVES.sub("", kept))


def visible(text: str) -> str:
    """Write characters that reorder the text around them by their numbers.

    Marks of direction, which languages need, stay.
    """
    return _BIDI.sub(_numbers, text)


def write_unseen(text: str) -> str:
    r"""Write characters that cannot be seen, or that turn text around, by their numbers.

    What only says whether a character is drawn as a picture is dropped. One joiner or mark of
    direction, which scripts and emoji need, stays; two in a row are written.

    Examples
    --------
    >>> write_unseen("pay\u200b \U000e0041")
    'pay\\u200b \\U000e0041'
    """
    text = _JOINERS.sub(_numbers, text)
    chars = set(text)
    if _UNSEEN.isdisjoint(chars):
        return text
    # All characters are in the table: to miss one costs more than to find it.
    return text.translate({ord(c): _written(c) for c in chars})


def _written(char: str) -> str:
    if char in _LOOKS:
        return ""
    return _number(char) if char in _UNSEEN else char


def _numbers(match: re.Match[str]) -> str:
    return "".join(map(_number, match[0]))


@cache
def _number(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str, max_chars: int = 200) -> str:
    """Return the text as one line of at most ``max_chars`` characters."""
    line = " ".join(plain(text[: 20 * max_chars]).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def unlinked(text: str) -> str:
    """Return text with Markdown's links and pictures written out: words, then address."""
    return _LINK.sub(r"\1 (\2)", text)


def title_line(text: str, max_chars: int) -> str:
    """Return the text as one line that, where it must be cut, is cut between two words.

    Examples
    --------
    >>> title_line("Which region sold most?", 16)
    'Which region …'
    """
    line = one_line(text, 2 * max_chars)
    if len(line) <= max_chars:
        return line
    head = line[: max_chars - 1].rpartition(" ")[0]
    return f"{head} …" if head else f"{line[: max_chars - 1]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest word, with a blank before it; else nothing.

    Examples
    --------
    >>> did_you_mean("ofline", ["offline", "scripted"])
    ' Did you mean offline?'
    """
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""


def size_text(count: int) -> str:
    """Return a number of bytes for a person.

    Examples
    --------
    >>> size_text(15_240)
    '15.2 kB'
    """
    size = float(count)
    for unit in ("B", "kB", "MB"):
        # Not 1000: 999,999 bytes are 1 MB, not "1e+03 kB".
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def shorten(text: str, max_chars: int, *, where: str = "") -> str:
    """Keep the head and the tail of a text, cut at line ends where possible.

    Parameters
    ----------
    text
        Any length, one huge line included.
    max_chars
        Upper bound of the result, the line about what was left out included.
    where
        What that line adds: where the full text is.
    """
    if len(text) <= max_chars:
        return text
    most = f"{len(text) + _left_out_before(text):,}"
    marker = f"… {most} characters left out{'; ' + where if where else ''} …"
    room = max_chars - len(marker) - 2
    if room < 20:
        return text[: max(max_chars - 1, 0)] + "…"[:max_chars]
    head = _head(text, room * 3 // 5)
    tail = _tail(text, room - len(head))
    cut = text[len(head) : len(text) - len(tail)]
    return f"{head}\n{marker.replace(most, f'{len(cut) + _left_out_before(cut):,}', 1)}\n{tail}"


def _left_out_before(text: str) -> int:
    """Return how many characters more a text had, before it was shortened the first time."""
    marks = (m for m in LEFT_OUT.finditer(text) if len(m[1]) <= 20)
    return sum(max(int(m[1].replace(",", "") or 0) - len(m[0]), 0) for m in marks)


def json_items(text: str | bytes, enough: int) -> int:
    """Return about how many lists, objects and items a JSON text has.

    Each costs many times its length when it is read. Counted in two ways, the fast one first: more
    than ``enough`` is only said when those in strings are left out.
    """
    if isinstance(text, bytes):
        count = sum(map(text.count, (b"[", b"{", b",")))
        return count if count <= enough else json_items(text.decode(), enough)
    count = sum(map(text.count, "[{,"))
    return count if count <= enough else _items_outside(text, enough)


def _items_outside(text: str, enough: int) -> int:
    """Count items outside strings, a window at a time: one step over all would take 120 ms."""
    count, at, inside = 0, 0, False
    while at < len(text) and count <= enough:
        window = text[at : at + _WINDOW]
        if (len(window) - len(window.rstrip("\\"))) % 2 and at + _WINDOW < len(text):
            window = window[:-1]  # an escape is not cut in two
        at += len(window)
        # What is added ends a string that goes on, and is swallowed by one that it begins.
        outside = _JSON_STRINGS.sub("", '"' * inside + window + '"\0')
        inside = outside.endswith("\0")
        count += sum(map(outside.count, "[{,"))
    return count


def html_text(source: str) -> str:
    """Return the text of HTML, a line a row or block; scripts and styles are no text.

    For reading only: the result may hold anything, tags included. The standard library's parser
    is not used because unclosed tags take it quadratic time (59 s for 200,000 characters).
    """
    lowered = source.lower()
    pieces: list[str] = []
    at = 0
    while (start := source.find("<", at)) >= 0:
        pieces.append(source[at:start].replace("\n", " "))
        name = _TAG_NAME.match(lowered, start)
        if source.startswith("<!--", start):
            at = source.find("-->", start) + 3
        elif name is None:
            pieces.append("<")
            at = start + 1
            continue
        elif name[1] in ("script", "style"):
            at = lowered.find(f"</{name[1]}", start) + len(name[1]) + 2
            at = source.find(">", at) + 1 if at > start else 0
        else:
            pieces.append(_BREAKS.get(name[1], ""))
            at = source.find(">", start) + 1
        if at <= start:  # it never ends
            return _lines(pieces)
    return _lines([*pieces, source[at:].replace("\n", " ")])


_TAG_NAME = re.compile(r"</?([a-z][a-z0-9]*)")
_TOO_LONG_A_NUMBER = re.compile(r"&#[0-9]{1000,}+;?")
_BREAKS = {
    **dict.fromkeys(("p", "div", "br", "tr", "li", "h1", "h2", "h3", "h4", "pre"), "\n"),
    **dict.fromkeys(("td", "th"), "  "),
}


def _lines(pieces: list[str]) -> str:
    text = _TOO_LONG_A_NUMBER.sub("\ufffd", "".join(pieces))  # Python reads none of 4,300 digits
    lines = (" ".join(line.split()) for line in plain(html.unescape(text)).split("\n"))
    return "\n".join(line for line in lines if line)


def _head(text: str, room: int) -> str:
    end = text.rfind("\n", room // 2, room + 1)
    return text[: end if end > 0 else room]


def _tail(text: str, room: int) -> str:
    start = len(text) - room
    newline = text.find("\n", start - 1, start + room // 2)
    return text[newline + 1 if newline >= 0 else start :]


def _overwrite(line: str) -> str:
    """Apply the carriage returns and backspaces of a line.

    The last text written at a position stands, so the parts are laid from last to first.
    """
    shown = ""
    for part in reversed(line.split("\r")):
        written = _apply_backspaces(part) if "\b" in part else part
        shown += written[len(shown) :]
    return shown


def _apply_backspaces(part: str) -> str:
    kept: list[str] = []
    for char in part:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)
