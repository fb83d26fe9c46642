"""Jupyter's messages as a hostile kernel may send them: signed, counted, then read. Pure.

To read JSON holds the interpreter's lock in one piece, on whatever thread, so what that costs is
bounded by counts of the bytes before: of escapes, and of items, which cost many times their length.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jupyter_client.session import DELIM

from kernel_agent.kernel.zmtp import Frame

MAX_HEADERS = 100_000  # bytes of a message's header and its parent's
MAX_METADATA = 1_000_000  # bytes of a reply's metadata that are read
MAX_ITEMS = 100_000  # lists, objects, items and texts: each costs many times its length
MAX_ESCAPES = 3_000_000  # our kernel displays texts of at most a million characters
TAKEN_ITEMS = 3_000_000  # of variables that the user has asked for
PIECE = 2_000_000  # bytes of a request that are read at a time: some 10 ms

_BEFORE_PROMPT = re.compile(rb'\s*\{\s*"prompt"\s*:\s*(?=")')
_AFTER_PROMPT = re.compile(rb'\s*(?:,\s*"password"\s*:\s*(?:true|false)\s*)?\}\s*\Z')

Sign = Callable[[list[Any]], bytes]


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A message whose headers were read; metadata and content are as they came."""

    kind: str
    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: Frame
    content: Frame

    @property
    def answers(self) -> str:
        """The id of the message that this one answers."""
        return str(self.parent.get("msg_id"))


def open_envelope(frames: list[Frame], sign: Sign) -> Envelope:
    """Check the signature and read the headers.

    ``Session.deserialize`` would also turn dates in all parts into objects, for half a millisecond
    a cell.

    Raises
    ------
    ValueError, TypeError, KeyError, RecursionError
        Not signed with our key, not a message, or without what a message has.
    """
    start = frames.index(DELIM)
    signature, header, parent, metadata, content = frames[start + 1 : start + 6]
    if not hmac.compare_digest(signature, sign([header, parent, metadata, content])):
        raise ValueError("wrong signature")
    head, above = _headers(header, parent)
    return Envelope(
        kind=str(head["msg_type"]), header=head, parent=above, metadata=metadata, content=content
    )


def headers_of(frames: list[Frame]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and parent, unchecked, of a message whose other parts were not kept.

    Raises
    ------
    ValueError, TypeError, RecursionError
        They are not there.
    """
    start = frames.index(DELIM)
    return _headers(*frames[start + 2 : start + 4])


def _headers(header: Frame, parent: Frame) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(header) + len(parent) > MAX_HEADERS:
        raise ValueError("headers that are too long")
    head, above = json.loads(header), json.loads(parent)
    if not isinstance(head, dict) or not isinstance(above, dict):
        raise TypeError("headers that are no mappings")
    return head, above


def content_of(
    content: Frame, *, most: int | None = None, items: int = MAX_ITEMS
) -> dict[str, Any]:
    """Read a message's content, unless that costs too much.

    Measured for each bound by itself: 30 ms for 100,000 names with a number each, 35 ms for three
    million escapes, 25 ms for a picture of 20 MB, 45 ms for 20 MB of characters of four bytes.

    Raises
    ------
    TooCostly
        It would take too long, or become too large.
    ValueError, TypeError, RecursionError
        It is no JSON, or no mapping.
    """
    too_long = most is not None and len(content) > most
    if too_long or content.count(b"\\") > MAX_ESCAPES or items_in(content, items) > items:
        raise TooCostly
    found = json.loads(content)
    if not isinstance(found, dict):
        raise TypeError("a content that is no mapping")
    return found


class TooCostly(ValueError):
    """Reading this would hold up everything else."""


def items_in(content: Frame, enough: int) -> int:
    """Return about how many lists, objects, items and texts a JSON text has.

    Those in texts are left out only where they matter, and never more work is done for it than
    ``enough`` stands for: a text has two quotes, so many quotes are many texts.
    """
    count = sum(map(content.count, (b"[", b"{", b",")))
    if count <= enough:
        return count
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    if quotes > 2 * enough:
        return quotes
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b"[", b"{", b",")))


def metadata_of(metadata: Frame) -> dict[str, Any]:
    """Return the metadata that our code in the kernel added to a reply."""
    if len(metadata) > MAX_METADATA or items_in(metadata, MAX_ITEMS) > MAX_ITEMS:
        return {}
    found = json.loads(metadata)
    ours = found.get("kernel_agent") if isinstance(found, dict) else None
    return ours if isinstance(ours, dict) else {}


def question(content: Frame) -> Frame:
    """Return the text of an input request, still as JSON: one text, and no lists in it.

    Lists and objects cost the host many times their length before anybody can refuse them.

    Raises
    ------
    ValueError
        It is no input request.
    """
    before = _BEFORE_PROMPT.match(content)
    after = _AFTER_PROMPT.search(content, max(len(content) - 60, 0))
    if before is None or after is None:
        raise ValueError("not an input request")
    return content[before.end() : after.start()]


def text_in_pieces(quoted: Frame) -> Iterator[str]:
    """Read a JSON text piece by piece; each is little work.

    Raises
    ------
    ValueError
        It is not one text.
    """
    if len(quoted) < 2 or quoted[:1] != b'"' or quoted[-1:] != b'"':
        raise ValueError("not a text")
    at, end, carried = 1, len(quoted) - 1, b""
    while at < end:
        cut = end if end - at <= PIECE else _safe_cut(quoted, at, at + PIECE)
        piece: str = json.loads(b'"' + carried + quoted[at:cut] + b'"')
        carried = b""
        if cut < end and "\ud800" <= piece[-1:] <= "\udbff":  # the first half of a character
            piece, carried = piece[:-1], f"\\u{ord(piece[-1]):04x}".encode()
        yield piece
        at = cut


def _safe_cut(quoted: Frame, start: int, cut: int) -> int:
    """Return a place at or before ``cut`` that is in no escape and no character."""
    while quoted[cut] & 0xC0 == 0x80 and cut > start + 1:  # within a character of UTF-8
        cut -= 1
    slash = quoted.rfind(b"\\", cut - 6, cut)
    if slash < 0:
        return cut
    before = quoted[start : slash + 1]
    run = len(before) - len(before.rstrip(b"\\"))
    first = slash if run % 2 else slash - 1  # of the escape that begins there
    length = 6 if quoted[first + 1 : first + 2] == b"u" else 2
    return first if first + length > cut else cut
