"""What a hostile kernel displays reaches a browser as pixels, text or a table of ours, or not.

The same payloads are tried where they would act: in the exported notebook, in what ``nbconvert``
makes of it, and in a real browser (``tests/browser``).
"""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, PngImagePlugin
from support.hostile import ACT, exported_page, hostile_outputs, shown, table

from kernel_agent.notebook.outputs import displayable, notebook_outputs
from kernel_agent.notebook.tables import MAX_CELLS, render_table

TAGS = {"html", "head", "body", "div", "table", "thead", "tbody", "tfoot", "tr", "th", "td", "p",
        "br"}  # fmt: skip
ATTRIBUTES = {"border", "class", "colspan", "rowspan"}


def live(source: str) -> list[str]:
    """Return what HTML has, as a browser reads it, that a table of ours has not."""
    found = []
    for element in html5lib.parse(source, namespaceHTMLElements=False).iter():
        if not isinstance(element.tag, str) or element.tag not in TAGS:
            found.append(str(element.tag))
        found += [name for name in element.attrib if name not in ATTRIBUTES]
    return found


# --- the rule ------------------------------------------------------------------------------------


BIDI_CODES = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
UNWANTED = re.compile(f"[{''.join(map(chr, BIDI_CODES))}\x9b]|\x1b(?!\\[[0-9;:]*m)")


def texts_of(value: Any) -> Iterator[str]:
    """Yield every text in an output, wherever it stands."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *texts_of(item))
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)


def test_only_text_pictures_and_tables_of_ours_are_left_of_a_display() -> None:
    seen = 0
    for output in hostile_outputs():
        for kept in notebook_outputs([output]):
            data = kept.get("data", {})
            assert set(data) <= {"text/plain", "text/html"}  # none of the payloads is a picture
            assert set(kept.get("metadata", {})) <= {"kernel_agent"}
            assert live(data.get("text/html", "")) == [], output
            assert [text for text in texts_of(kept) if UNWANTED.search(text)] == [], output
            seen += 1
    assert seen > 1000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"text/html": "<b>bold</b><script>x</script>"}, "bold"),
        ({"text/markdown": "# Title"}, "# Title"),
        ({"text/latex": "$x^2$", "text/plain": "<IPython.core.display.Math object>"}, "$x^2$"),
        ({"application/json": {"b": 1, "a": "<img>"}}, '{"a": "<img>", "b": 1}'),
        ({"image/svg+xml": "<svg/>"}, "[shown: image/svg+xml]"),
        ({"text/html": "<b>x</b>", "text/plain": "its text"}, "its text"),
        ({"text/plain": "a\x1b[31mred\x1b[0m\x1b]0;t\x07"}, "a\x1b[31mred\x1b[0m"),
        ({"text/plain": "user\u202etxt.exe"}, "user\\u202etxt.exe"),
    ],
)
def test_what_is_left_out_says_what_it_can_as_text(data: dict[str, Any], text: str) -> None:
    kept = displayable(shown(data))
    assert kept["data"] == {"text/plain": text}
    others = sorted(set(data) - {"text/plain"})
    assert kept["metadata"].get("kernel_agent", {}).get("left_out", []) == others


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_description_of_a_table_breaks_the_host(described: Any) -> None:
    html = render_table(described)
    assert html is None or live(html) == []


@pytest.mark.parametrize(
    "change",
    [
        {"columns": [["a"]]}, {"columns": []}, {"columns": [[1, 2]]}, {"cells": [["x"]]},
        {"cells": [[1], ["1"]]}, {"index": [["x"], []]}, {"row_gap": 2}, {"row_gap": True},
        {"column_gap": -1}, {"column_names": []}, {"index_names": [None, ""]},
        {"columns": [["c"] * MAX_CELLS], "cells": [["x"]] * MAX_CELLS},
    ],
)  # fmt: skip
def test_data_that_does_not_fit_together_is_no_table(change: dict[str, Any]) -> None:
    assert render_table(table("x")) is not None
    assert render_table({**table("x"), **change}) is None


def test_a_table_from_data_reads_as_pandas_wrote_it() -> None:
    import pandas as pd

    from kernel_agent.inkernel.display import describe_table
    from kernel_agent.safe.text import html_text

    plain = pd.DataFrame(
        {"n": [1.5, None, 3], "text": ["x", "<b>&", "z"],
         "when": pd.to_datetime(["2020-01-01", None, "2020-03-01"])}
    )  # fmt: skip
    several = plain.groupby(["text", "n"], dropna=False).agg({"when": ["min", "max"]})
    for frame in (
        plain, plain.set_index("text"), several, several.T, plain.iloc[:0], plain[[]],
        pd.DataFrame({"x": range(100)}), pd.DataFrame([range(50)]), pd.DataFrame(),
        pd.DataFrame([[1, 2]], columns=["same", "same"]), pd.DataFrame({("a", 1): [True]}),
        pd.DataFrame({"x": [1, 2]}, index=pd.date_range("2020", periods=2)),
    ):  # fmt: skip
        html = displayable(
            shown({"application/vnd.kernel-agent.value+json": describe_table(frame)})
        )["data"].get("text/html", "")
        assert html_text(html) == html_text(frame._repr_html_()), frame


# --- pictures ------------------------------------------------------------------------------------


def encoded(size: tuple[int, int] = (20, 10), kind: str = "PNG", **save: Any) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", size, "teal").save(buffer, kind, **save)
    return base64.b64encode(buffer.getvalue()).decode()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(side: int) -> str:
    """A PNG of few bytes whose header states many pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    raw += chunk(b"IDAT", zlib.compress(b"\0" * 10_000_000, 9)) + chunk(b"IEND", b"")
    return base64.b64encode(raw).decode()


def test_a_picture_is_encoded_anew_without_what_is_no_pixel() -> None:
    secret = f"<script>{ACT}</script>"
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", secret)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    second = Image.new("RGB", (20, 10), "red")
    exif = Image.Exif()
    exif[0x010E] = secret
    cases = {
        "image/png": [encoded(pnginfo=notes, icc_profile=profile),
                      encoded(save_all=True, append_images=[second])],
        "image/jpeg": [encoded(kind="JPEG", comment=secret.encode(), exif=exif)],
    }  # fmt: skip
    for mime, pictures in cases.items():
        for picture in pictures:
            trailing = base64.b64encode(base64.b64decode(picture) + secret.encode()).decode()
            kept = displayable(shown({mime: trailing}))["data"][mime]
            raw = base64.b64decode(kept)
            assert b"script" not in raw
            with Image.open(io.BytesIO(raw)) as image:
                assert (image.size, getattr(image, "n_frames", 1)) == ((20, 10), 1)
                assert not set(image.info) - {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


@pytest.mark.parametrize(
    ("mime", "data"),
    [
        ("image/png", bomb(6000)), ("image/png", bomb(100_000)), ("image/png", bomb(2**31 - 1)),
        ("image/png", encoded(kind="JPEG")), ("image/png", encoded(kind="GIF")),
        ("image/jpeg", encoded()), ("image/png", encoded()[:60]), ("image/png", "PHN2Zz4="),
        ("image/png", "not base64!"), ("image/png", 7), ("image/png", ["x"]), ("image/png", ""),
        ("image/png", "A" * 30_000_000),
    ],
    ids=lambda value: str(value)[:16],
)  # fmt: skip
def test_what_is_no_picture_or_a_bomb_is_left_out(mime: str, data: Any) -> None:
    kept = displayable(shown({mime: data, "text/plain": "a figure"}))
    assert kept["data"] == {"text/plain": "a figure"}
    assert kept["metadata"]["kernel_agent"]["left_out"] == [mime]


def test_a_picture_that_would_not_fit_is_scaled_down() -> None:
    noise = Image.effect_noise((2000, 1000), 100)
    buffer = io.BytesIO()
    noise.save(buffer, "PNG")
    kept = displayable(shown({"image/png": base64.b64encode(buffer.getvalue()).decode()}))
    with Image.open(io.BytesIO(base64.b64decode(kept["data"]["image/png"]))) as image:
        assert image.size == (1000, 500)


# --- where it would act --------------------------------------------------------------------------


@pytest.mark.long
def test_the_page_of_an_exported_notebook_has_nothing_live_of_theirs(tmp_path: Path) -> None:
    tree = html5lib.parse(exported_page(tmp_path).read_text(), namespaceHTMLElements=False)
    (main,) = (e for e in tree.iter() if e.tag == "main")
    elements = [e for e in main.iter() if isinstance(e.tag, str)]
    assert len(elements) > 1000
    allowed = {"script", "iframe", "object", "embed", "form", "meta", "base", "link", "video",
               "img", "style", "math"}  # fmt: skip
    assert {e.tag for e in elements} & allowed == set()
    for element in elements:
        assert not [name for name in element.attrib if name.startswith("on") or name == "style"]
        address = element.attrib.get("href", element.attrib.get("src", "#"))
        assert address.startswith("#"), address
