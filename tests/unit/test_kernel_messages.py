"""A kernel's messages are counted before they are read."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.kernel import messages
from kernel_agent.kernel.messages import TooCostly, content_of, items_in, question, text_in_pieces

values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


def items(value: Any) -> int:
    """Count as the rule says: brackets and commas outside of texts."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(len(value) - 1, 0) + sum(map(items, inner))
    return 0


@given(values)
def test_items_are_counted_outside_of_texts_only(value: Any) -> None:
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        text = written.encode(errors="surrogatepass")
        true = items(value)
        counted = items_in(text, true)
        assert counted == true or text.count(b'"') > 2 * true
        assert items_in(text, 10**9) >= true


@given(st.text(alphabet=st.sampled_from('ab"\\\n,[é€😀\x01/'), max_size=400), st.integers(1, 40))
def test_a_text_read_in_pieces_is_the_text(text: str, size: int) -> None:
    for ascii_only in (True, False):
        quoted = json.dumps(text, ensure_ascii=ascii_only).encode()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(messages, "PIECE", 12 + size)
            pieces = list(text_in_pieces(quoted))
        assert "".join(pieces) == text
        assert len(pieces) <= 1 + len(quoted) // (size + 5)


@given(st.binary(max_size=60), st.integers(1, 20))
def test_what_is_no_text_is_refused_whatever_it_is(data: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "PIECE", 12 + size)
        try:
            whole: str | None = json.loads(b'"' + data + b'"')
        except ValueError:
            whole = None
        try:
            pieces: str | None = "".join(text_in_pieces(b'"' + data + b'"'))
        except ValueError:
            pieces = None
    assert pieces == whole


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": [' + b",".join([b"[]"] * 200_000) + b"]}",
        b'{"a": [' + b'"",' * 1_000_000 + b'""]}',
        b'{"a": [' + b'",,",' * 1_000_000 + b'""]}',
        b'{"a": "' + b"\\n" * 4_000_000 + b'"}',
        b"[" * 300_000,
    ],
)
def test_what_would_cost_too_much_is_not_read_and_to_find_that_out_costs_little(
    content: bytes,
) -> None:
    tracemalloc.start()
    with pytest.raises(TooCostly):
        content_of(content)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * len(content) + 1_000_000


def test_what_our_kernel_displays_is_read() -> None:
    large = {
        "data": {
            "image/png": "iVBORw0K" * 2_000_000,
            "text/plain": "\n" * 1_000_000,
            "text/csv": "1,2,[{" * 160_000,
        }
    }
    assert content_of(json.dumps(large).encode()) == large
    assert content_of(b'{"data": {"a": [' + b"1.25, " * 90_000 + b"1]}}")


@pytest.mark.parametrize("content", [b"[]", b"1", b"null", b'"x"', b""])
def test_a_content_that_is_no_mapping_is_refused(content: bytes) -> None:
    with pytest.raises((TypeError, ValueError)):
        content_of(content)


@pytest.mark.parametrize(
    "content",
    [
        b'{"prompt": ["x"]}',
        b'{"prompt": "x", "a": []}',
        b"{}",
        b'{"password": false, "prompt": "x"}',
    ],
)
def test_an_input_request_is_one_text(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"not an? |text|Extra"):
        list(text_in_pieces(question(content)))
