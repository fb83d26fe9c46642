"""Web pages from a stranger's server: unpacked, decoded, reduced to text and links. Pure.

Everything here takes time and memory in proportion to the bytes, however they are made: one
encoding, unpacked up to a bound and not a byte further; charsets of the web from a list (Python
knows others, ``punycode`` and ``idna`` among them, which take quadratic time); text and links of
HTML by scanners that never go back, and of its first million characters only. Texts are decoded in
pieces, because a decoder in C holds up every other thread while it works.
"""

from __future__ import annotations

import codecs
import html
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

from kernel_agent.safe import html_text

HTML_MAX = 1_000_000  # characters of a page of HTML that are read
LINKS_MAX = 500
LINK_MAX = 2_000  # characters of a link
ANCHORS_MAX = 20_000  # that are looked at
MEMBERS_MAX = 1_000  # of a gzip file: each is unpacked by a new decoder
PIECE = 262_144  # bytes that are decoded at a time: some milliseconds in any charset

# The encodings of https://encoding.spec.whatwg.org/#names-and-labels, by Python's names, with those
# that pages name beside them.
CHARSETS = frozenset({
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be",
    *(f"iso8859-{part}" for part in range(1, 17) if part != 12),
    *(f"cp{page}" for page in (866, 874, 932, 949, *range(1250, 1259))),
    "koi8-r", "koi8-u", "tis-620", "mac-roman", "mac-cyrillic",
    "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "shift_jis", "euc_kr",
})  # fmt: skip
_TEXTS = re.compile(r"text/|application/(.*\+)?(json|xml|javascript|x-ndjson|yaml|toml)")
_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]*?\b(?:charset|encoding)\s*=\s*["']?(?!utf-?16|utf-?32)([\w.:-]{1,40})""",
    re.IGNORECASE,
)  # a page that could be read so far is not in one of two or four bytes a character
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
# Each ends with the text if it ends nowhere before, so that no search begins at its inside.
_NO_LINKS = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# A tag, its quoted values whole. Possessive; in a text that ends in ">" each "<a" has its end.
_ANCHOR = re.compile(r"""<a(?=[\s/])((?:[^>"']++|"[^"]*+"|'[^']*+'|["'])*+)>""", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([^\s=>"'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]*+)))?+""")
_GZIP = b"\x1f\x8b"


class Packed(ValueError):
    """A body that cannot be unpacked here; the message is for the code in the kernel."""


def describe_page(
    *, url: str, status: int, content_type: str, encoding: str, body: bytes, max_bytes: int
) -> dict[str, Any]:
    """Return a page as the code in the kernel gets it.

    Parameters
    ----------
    url, status
        Where it came from, and its status.
    content_type, encoding
        The headers ``Content-Type`` and ``Content-Encoding``, as they were sent.
    body
        As it was sent.
    max_bytes
        How many it may become.

    Raises
    ------
    Packed
        It cannot be unpacked, or becomes more than ``max_bytes``.
    """
    data = unpack(body, encoding, max_bytes=max_bytes)
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()[:100]
    page: dict[str, Any] = {
        "url": url, "status": status, "type": kind, "text": "", "links": [], "data": None,
    }  # fmt: skip
    if not _TEXTS.match(kind or "text/"):
        return {**page, "data": data}
    text, exact = decode_text(data, _header_charset(parameters) or _page_charset(kind, data))
    if not exact:  # in a charset that nothing names: who knows it can read the bytes
        page["data"] = data
    if kind not in ("text/html", "application/xhtml+xml"):
        return {**page, "text": text}
    read = text[:HTML_MAX]
    links = links_of(read, url)
    cut = f"(only the first {HTML_MAX:,} of {len(text):,} characters of HTML were read)"
    shown = html_text(read)
    return {**page, "text": f"{shown}\n{cut}" if len(text) > HTML_MAX else shown, "links": links}


# --- bytes ---------------------------------------------------------------------------------------


def unpack(body: bytes, encoding: str, *, max_bytes: int) -> bytes:
    """Unpack a body, to ``max_bytes`` at most.

    Raises
    ------
    Packed
        In another encoding than gzip or deflate, in several, damaged, or too large.
    """
    names = [n for n in (part.strip().lower() for part in encoding.split(",")) if n]
    names = [name for name in names if name != "identity"]
    match names:
        case []:
            pieces: Iterator[bytes] = iter((body,))
        case ["gzip" | "x-gzip"]:
            pieces = _gunzip(body, max_bytes + 1)
        case ["deflate"]:
            pieces = _inflate(body, max_bytes + 1)
        case _:
            raise Packed(f"it is packed as {', '.join(names)[:80]!r}: gzip or deflate are read, "
                         "and one of them")  # fmt: skip
    data = bytearray()
    try:
        for piece in pieces:
            data += piece
            if len(data) > max_bytes:
                raise Packed(f"the answer is larger than {max_bytes:,} bytes")
    except zlib.error as error:
        raise Packed(f"it is not {names[0]}, as it says: {error}") from None
    return bytes(data)


class _Stream:
    """A zlib stream in a body, from an offset on."""

    def __init__(self, body: bytes, start: int, width: int) -> None:
        self._body = body
        self._decoder = zlib.decompressobj(width)
        self.end = start  # of what was taken of the body

    def pieces(self, room: int) -> Iterator[bytes]:
        """Unpack bit by bit, into at most ``room`` bytes."""
        decoder = self._decoder
        while room > 0 and not decoder.eof:
            waiting = self._body[self.end : self.end + PIECE]
            piece = decoder.decompress(waiting, min(room, 4 * PIECE))
            if not waiting and not piece:
                raise Packed("it breaks off in the middle")
            self.end += len(waiting) - len(decoder.unconsumed_tail) - len(decoder.unused_data)
            room -= len(piece)
            yield piece


def _gunzip(body: bytes, room: int) -> Iterator[bytes]:
    """Unpack the members of a gzip file; anything after them is ignored (RFC 1952)."""
    start = 0
    for _ in range(MEMBERS_MAX):
        stream = _Stream(body, start, 16 + zlib.MAX_WBITS)
        for piece in stream.pieces(room):
            yield piece
            room -= len(piece)
        start = stream.end
        if not body.startswith(_GZIP, start):
            return
    raise Packed(f"it has more than {MEMBERS_MAX:,} members")


def _inflate(body: bytes, room: int) -> Iterator[bytes]:
    """Unpack deflate, which many servers send without zlib's head and sum (RFC 9110, 8.4.1.2)."""
    try:
        zlib.decompressobj().decompress(body[:64], 1)
        width = zlib.MAX_WBITS
    except zlib.error:
        width = -zlib.MAX_WBITS
    yield from _Stream(body, 0, width).pieces(room)


# --- text ----------------------------------------------------------------------------------------


def decode_text(data: bytes, charset: str) -> tuple[str, bool]:
    """Return text, and whether it is exact; a byte order mark goes before other charsets."""
    charset = next((known for mark, known in _MARKS.items() if data.startswith(mark)), charset)
    names = list(dict.fromkeys([*filter(None, [_python_charset(charset)]), "utf-8"]))
    for name in names:
        with suppress(UnicodeError):
            return _text(data, name, "strict"), True
    return _text(data, names[0], "replace"), False


def _text(data: bytes, charset: str, errors: str) -> str:
    decoder = codecs.getincrementaldecoder(charset)(errors)
    starts = range(0, len(data), PIECE)
    texts = [decoder.decode(data[start : start + PIECE]) for start in starts]
    return "".join([*texts, decoder.decode(b"", final=True)])


def _python_charset(charset: str) -> str | None:
    """Return Python's name of a charset of the web, or None."""
    if len(charset) > 40:
        return None
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if name in CHARSETS else None


def _header_charset(parameters: str) -> str:
    """Return the charset that a Content-Type names, if it does."""
    for parameter in parameters[:1000].split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""


def _page_charset(kind: str, data: bytes) -> str:
    """Return the charset that a page of HTML or XML names in its first kilobyte, if it does."""
    found = _CHARSET.search(data[:1024]) if kind.endswith(("html", "xml")) else None
    return found[1].decode("ascii") if found else "utf-8"


def links_of(source: str, base: str) -> list[str]:
    """Return the links of HTML as absolute http(s) URLs, each once, in order."""
    shown = _NO_LINKS.sub(" ", source)
    shown = shown[: shown.rfind(">") + 1]  # a tag without an end is not a tag
    found: dict[str, None] = {}
    for _, anchor in zip(range(ANCHORS_MAX), _ANCHOR.finditer(shown), strict=False):
        url = _absolute(_href(anchor[1]), base)
        if url:
            found[url] = None
        if len(found) == LINKS_MAX:
            break
    return list(found)


def _href(attributes: str) -> str:
    """Return the value of the first attribute ``href``, none from within another's value."""
    for found in _ATTRIBUTE.finditer(attributes):
        if found[1].lower() == "href":
            return found[found.lastindex or 1] if found.lastindex != 1 else ""
    return ""


def _absolute(href: str, base: str) -> str:
    """Return an http(s) URL without its fragment, or nothing."""
    if not href or len(href) > LINK_MAX:
        return ""
    try:
        url = urljoin(base, html.unescape(href).strip()).partition("#")[0]
    except ValueError:  # no address, or not a number
        return ""
    return url if url.startswith(("http://", "https://")) and url.isprintable() else ""
