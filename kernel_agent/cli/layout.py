"""Text fitted to a terminal's width. Pure.

Lines break between words only. A word that is wider than the terminal (an address, a path) stays
whole, so that it is copied whole; the terminal itself continues it on the next line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

TAB = 4
LEAST = 20  # columns of text, however deep it is indented
# Scripts that have no blanks between words break before each of their characters.
_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
)
_WORD = re.compile(f"[{_WIDE}]|[^\\s{_WIDE}]+")


def wrap(text: Text, width: int, indent: str = "") -> Iterator[Text]:
    """Yield the lines of a text, each at most ``width`` columns wide where its words allow it.

    Parameters
    ----------
    text
        Its own line ends stay; what continues a line is indented as far as the line is.
    width
        Of the terminal.
    indent
        Put before each line.
    """
    text.expand_tabs(TAB)
    for line in text.split("\n", allow_blank=True):
        source = line.plain
        own = source[: len(source) - len(source.lstrip(" "))]
        hanging = own if len(own) <= width // 2 else ""
        room = max(width - cell_len(indent), LEAST)
        pieces = line.divide(_breaks(source, room, len(hanging)))
        for number, piece in enumerate(pieces):
            piece.rstrip()
            yield Text.assemble(indent, hanging if number else "", piece)


def _breaks(line: str, room: int, hanging: int) -> list[int]:
    """Return the positions at which a line is broken: before words, never in them."""
    found: list[int] = []
    start = 0
    for word in _WORD.finditer(line):
        full = cell_len(line[start : word.end()]) > room
        if full and line[start : word.start()].strip():
            start = word.start()
            room = room if found else room - hanging
            found.append(start)
    return found
