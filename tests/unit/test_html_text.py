"""What a stranger's markup becomes as text: in linear work, whatever it is."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.safe.text import html_text

PIECES = ["<a", " href=", '"', "'", ">", "<!--", "-->", "<script", "</script", "x", " ", "&#", "9"]


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_markup_gives_text(pieces):
    assert isinstance(html_text("".join(pieces)), str)


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
from kernel_agent.safe.text import html_text
for unit in {UNITS!r}:
    text = unit * (300_000 // len(unit))
    for end in ("", ">", "'", '"'):
        html_text(text + end)
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=300)
