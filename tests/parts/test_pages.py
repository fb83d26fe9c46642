"""What a stranger's bytes become: bounded, in linear work, whatever they are. Pure."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.safe.text import html_text
from kernel_agent.tools.builtin.pages import (
    HTML_MAX,
    LINK_MAX,
    LINKS_MAX,
    MEMBERS_MAX,
    Packed,
    decode_text,
    describe_page,
    links_of,
    unpack,
)


def page(body, content_type="text/html", encoding="", max_bytes=10_000_000):
    return describe_page(
        url="http://h/d/p", status=200, content_type=content_type, encoding=encoding, body=body,
        max_bytes=max_bytes,
    )  # fmt: skip


def raw(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@given(
    st.binary(max_size=3000),
    st.sampled_from(["gzip", "x-gzip", " GZIP ", "deflate", "identity", ""]),
)
def test_what_is_packed_once_is_unpacked(data, encoding):
    name = encoding.strip().lower().removeprefix("x-")
    body = {"gzip": gzip.compress, "deflate": zlib.compress}.get(name, bytes)(data)
    assert unpack(body, encoding, max_bytes=3000) == data


def test_deflate_is_read_without_its_head_as_many_servers_send_it():
    assert unpack(raw(b"x" * 500_000), "deflate", max_bytes=500_000) == b"x" * 500_000


def test_members_of_gzip_are_one_file_and_garbage_behind_them_is_none():
    body = gzip.compress(b"a" * 300_000) + gzip.compress(b"") + gzip.compress(b"b")
    assert unpack(body, "gzip", max_bytes=400_000) == b"a" * 300_000 + b"b"
    assert unpack(body + b"\0\0junk", "gzip", max_bytes=400_000)[-1:] == b"b"


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,deflate", "br", "zstd", "compress", "x"])
def test_other_encodings_and_several_are_refused(encoding):
    with pytest.raises(Packed, match="gzip or deflate are read, and one of them"):
        unpack(b"", encoding, max_bytes=10)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_damaged_or_breaks_off_is_said(encoding):
    body = (gzip if encoding == "gzip" else zlib).compress(bytes(range(256)) * 100)
    with pytest.raises(Packed, match="breaks off in the middle"):
        unpack(body[:-20], encoding, max_bytes=100_000)
    with pytest.raises(Packed, match=f"not {encoding}, as it says"):
        unpack(b"\xff" * 50, encoding, max_bytes=100_000)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, raw])
def test_no_more_is_unpacked_than_may_be_held(pack):
    encoding = "gzip" if pack is gzip.compress else "deflate"
    with pytest.raises(Packed, match="larger than 10,000 bytes"):
        unpack(pack(bytes(30_000_000)), encoding, max_bytes=10_000)
    assert len(unpack(pack(bytes(10_000)), encoding, max_bytes=10_000)) == 10_000


def test_files_beyond_count_in_one_are_refused():
    with pytest.raises(Packed, match="members"):
        unpack(gzip.compress(b"") * (MEMBERS_MAX + 1), "gzip", max_bytes=10)


@pytest.mark.parametrize(
    "charset", ["idna", "punycode", "unicode_escape", "raw_unicode_escape", "rot13", "base64",
                "zip", "undefined", "utf-7", "utf-32", "cp037", "a" * 10_000, "\0", "é", ""],
)  # fmt: skip
def test_a_charset_that_is_none_of_the_web_is_not_used(charset):
    assert decode_text(b"xn--a-ecp.ru \\u0041", charset) == ("xn--a-ecp.ru \\u0041", True)


@pytest.mark.parametrize(
    ("charset", "text"),
    [("windows-1252", "€"), ("latin-1", "é"), ("ISO-8859-15", "€"), ("koi8-r", "да"),
     ("Shift_JIS", "日本"), ("gbk", "中"), ("gb18030", "中€"), ("big5", "中"), ("euc-kr", "한"),
     ("EUC-JP", "日"), ("iso-2022-jp", "日本"), ("utf-16", "é"), ("macintosh", "é"),
     ("ibm866", "д"), ("windows-1251", "д"), ("tis-620", "ก"), ("UTF8", "é")],
)  # fmt: skip
def test_the_charsets_of_the_web_are_read(charset, text):
    body = text.encode(charset)
    assert page(body, f'text/plain; charset="{charset}"')["text"] == text


@given(st.text(alphabet="aé日😀\n", max_size=400), st.sampled_from(["utf-8", "gb18030", "utf-16"]))
def test_text_is_the_same_decoded_in_pieces(text, charset):
    body = (text * 40).encode(charset)
    assert decode_text(body, charset) == (text * 40, True)


def test_html_is_read_up_to_its_first_million_characters_and_that_is_said():
    told = page(b"<p>a</p>" * 200_000)
    assert told["text"].endswith(
        f"(only the first {HTML_MAX:,} of 1,600,000 characters of HTML were read)"
    )
    assert "only the first" not in page(b"<p>a</p>")["text"]


LINKS = [
    ('<a href="/x?a=1&amp;b=2#c">', ["http://h/x?a=1&b=2"]),
    ("<A class='x>y' HREF = '../q'>", ["http://h/q"]),
    ("<a\nhref=r>", ["http://h/d/r"]),
    ("<a href=//o/p>", ["http://o/p"]),
    ('<a data-href="no" title="href=no" href="yes">', ["http://h/d/yes"]),
    ("<abbr href=x><area href=x>", []),
    ("<!-- <a href=x> --><script>'<a href=y>'</script><a href=z>", ["http://h/d/z"]),
    ("<a href=javascript:x><a href=file:///etc/passwd><a href='data:,x'>", []),
    ("<a href='http://[::1'><a href='http://h/\x1b[2J'><a href=a\x00b>", []),
    (f"<a href={'x' * LINK_MAX}x>", []),
    ("<a href=x <a href=y", []),
    ("<a href='x", []),
]


@pytest.mark.parametrize(("source", "links"), LINKS)
def test_links_are_absolute_and_lead_to_pages(source, links):
    assert links_of(source, "http://h/d/p") == links


def test_at_most_so_many_links_are_given():
    assert len(links_of("".join(f"<a href={n}>" for n in range(2000)), "http://h/")) == LINKS_MAX


PIECES = ["<a", " href=", '"', "'", ">", "<!--", "-->", "<script", "</script", "x", " ", "&#", "9"]


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_markup_gives_links_and_text(pieces):
    source = "".join(pieces)
    assert all(link.startswith("http") for link in links_of(source, "http://h/"))
    assert isinstance(html_text(source), str)


def test_a_number_too_long_for_python_is_a_character_that_is_none():
    """Markup of a page, or of what a cell displays, would end in an exception otherwise."""
    assert html_text("a &#" + "9" * 5000 + "; b") == "a \ufffd b"


UNITS = [
    "<a ",
    "<a '",
    '<a "',
    "<a href=",
    "<div>",
    "<",
    "<!--",
    "<script>",
    "<a href=x>",
    "&#9",
    "\r",
]


def test_broken_markup_takes_linear_work():
    """In a process that is ended after ten times what it takes; quadratic work would take hours."""
    source = f"""
from kernel_agent.tools.builtin.pages import describe_page
for unit in {UNITS!r}:
    body = unit.encode() * (1_000_000 // len(unit))
    for end in (b"", b">", b"'", b'"'):
        describe_page(url="http://h/", status=200, content_type="text/html", encoding="",
                  body=body + end, max_bytes=10_000_000)
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=300)
